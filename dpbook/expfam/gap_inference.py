"""The analyst's side of a mean of the records that are there, whose number is known up to noise.

Nothing here reads data. Given how many records are there, their mean is inferred as from :func:`release_mean`; how many
there are is drawn from what its noisy count leaves possible. The section on quantiles with intervals explains it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dpbook._arrays import Array
from dpbook.expfam.gap_model import MODEL
from dpbook.expfam.noisy_moments import NoisyMoments, draw_mean_and_sd
from dpbook.posterior import Posterior
from dpbook.release import Release

__all__ = ["infer_present"]

_FEWEST = 3  # records that are there
_NUMBERS = 40  # of records that may be there, for each of which the mean is drawn
_REACH = 40.0


def infer_present(
    releases: Sequence[Release], prior: Any, draws: int, chains: int, rng: np.random.Generator
) -> list[Posterior]:
    """Return mean and standard deviation of the records that are there, and the share that is not, for each release."""
    if prior is not None:
        raise TypeError(f"prior must be None for a mean, which needs none; got {prior!r}")
    return [_posterior(each, draws, chains, rng) for each in releases]


def _posterior(release: Release, draws: int, chains: int, rng: np.random.Generator) -> Posterior:
    release.require(model=MODEL, mechanisms=("laplace", "gaussian"))
    shape = (chains, -(-draws // chains))
    numbers, times = _numbers(release, shape[0] * shape[1], rng)
    each = int(times.max())
    mean, sd = draw_mean_and_sd(_moments(release, numbers), each, rng)
    taken = [slice(0, count) for count in times]
    low, high = release.bounds["x"]
    found = {
        "mean": (low + high) / 2
        + (high - low) / 2 * np.concatenate([m[part] for m, part in zip(mean, taken, strict=True)]),
        "sd": (high - low) / 2 * np.concatenate([s[part] for s, part in zip(sd, taken, strict=True)]),
    }
    gone = release.n - np.repeat(numbers, times)
    found["missing"] = rng.beta(0.5 + gone, 0.5 + release.n - gone)
    order = rng.permutation(shape[0] * shape[1])
    shaped = {name: part[order].reshape(shape) for name, part in found.items()}
    return Posterior(shaped, "noisy moments", notes=_notes(release))


def _numbers(release: Release, draws: int, rng: np.random.Generator) -> tuple[Array, Any]:
    """Return numbers of records that may be there, and how many of the draws each gets: exact where they are few."""
    seen, scale = float(release["missing"][0]), release.scale["missing"]
    near = np.clip(seen, 0, release.n - _FEWEST)
    low, high = max(0.0, near - _REACH * scale), min(float(release.n - _FEWEST), near + _REACH * scale)
    possible = np.arange(np.floor(low), np.ceil(high) + 1)
    away = np.abs(seen - possible) / scale
    log_law = -away if release.mechanism == "laplace" else -0.5 * away**2
    reached = np.cumsum(np.exp(log_law - log_law.max()))
    uniform = (np.arange(draws) + rng.random(draws)) / draws
    drawn = possible[np.minimum(np.searchsorted(reached / reached[-1], uniform), possible.size - 1)]
    values, times = np.unique(drawn, return_counts=True)
    if values.size > _NUMBERS:  # groups of neighbours, each at its middle: the mean hardly changes within one
        parts = np.array_split(np.sort(drawn), _NUMBERS)
        values, times = np.array([np.round(np.median(part)) for part in parts]), np.array([part.size for part in parts])
    return release.n - values, times


def _moments(release: Release, numbers: Array) -> NoisyMoments:
    """Return the noisy sums once for each number of records that may be there."""
    total, squares = (np.full(numbers.size, float(release[name][0])) for name in ("sum", "squares"))
    of_total, of_squares = (np.full(numbers.size, release.scale[name]) for name in ("sum", "squares"))
    return NoisyMoments(total, squares, of_total, of_squares, numbers.astype(float), release.mechanism == "laplace")


def _notes(release: Release) -> list[str]:
    low, high = release.bounds["x"]
    beyond = np.maximum(np.asarray(release["histogram"])[[0, -1]], 0.0) / release.n
    notes = [
        f"mean and sd are those of records that are there, clipped to [{low:g}, {high:g}]; missing is the share of "
        "those that are not. The mean's interval assumes no family, and says nothing of what is missing."
    ]
    if beyond.max() > 0.01:
        notes.append(
            f"Clipping moved records to the bounds: by noisy counts, {beyond[0]:.1%} from below and {beyond[1]:.1%} "
            "from above."
        )
    return notes
