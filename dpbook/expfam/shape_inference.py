"""The analyst's side of means and histograms: posteriors from releases that assume no family.

Nothing here reads data. The section on a mean that assumes little explains it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dpbook._arrays import Array
from dpbook.expfam.cells import cells_of, labels_of
from dpbook.expfam.noisy_moments import NoisyMoments, draw_mean_and_sd
from dpbook.expfam.shape_posterior import HistogramPosterior, MeanPosterior
from dpbook.expfam.table_counts import NoisyTable, draw_counts, draw_probabilities
from dpbook.posterior import Posterior
from dpbook.priors import Dirichlet
from dpbook.release import Release

__all__ = ["MODELS", "infer_shapes"]

MODELS = ("mean", "histogram")  # whose releases name no family
_PSEUDO_COUNT = 0.5  # of each cell: Jeffreys's prior
_FEW = 30  # records, below which the mean of skewed ones is not yet normal


def infer_shapes(
    releases: Sequence[Release], prior: Any, draws: int, chains: int, rng: np.random.Generator
) -> list[Posterior]:
    """Return the posterior of each release of a mean or of a histogram, all of one kind, in one batch."""
    labels = _check(releases)
    alpha = _alpha(prior, len(labels))
    shape = (chains, -(-draws // chains))
    counts = [
        draw_counts(NoisyTable.of(each, "histogram", alpha), shape[0] * shape[1], rng).reshape(*shape, -1)
        for each in releases
    ]
    shares = draw_probabilities(np.stack(counts), alpha, rng)
    named = {"probabilities": labels}
    edges = cells_of(releases[0])
    ends = () if edges is None else edges.edges
    if releases[0].model == "histogram":
        return [HistogramPosterior({"probabilities": p}, "exact", labels=named, edges=ends) for p in shares]
    mean, sd = (each.reshape(-1, *shape) for each in _mean_and_sd(releases, shape[0] * shape[1], rng))
    return [
        MeanPosterior(
            {"mean": m, "sd": s, "probabilities": p}, "noisy moments", labels=named, edges=ends, notes=_notes(one, p)
        )
        for one, m, s, p in zip(releases, mean, sd, shares, strict=True)
    ]


def _check(releases: Sequence[Release]) -> tuple[str, ...]:
    """Return what the cells are called; raise unless the releases are of one kind."""
    first = releases[0]
    for each in releases:
        each.require(model=first.model, mechanisms=("laplace", "gaussian"), several=True)
        if (each.mechanism, each.settings, dict(each.bounds)) != (first.mechanism, first.settings, dict(first.bounds)):
            raise ValueError("release must be a sequence of one model, one mechanism, and the same bounds and cells")
    labels = labels_of(first)
    if any(each["histogram"].shape != (len(labels),) for each in releases):
        raise ValueError(f"release must have a count for each of the cells {labels}")
    return labels


def _alpha(prior: Any, cells: int) -> Array:
    if prior is None:
        return np.full(cells, _PSEUDO_COUNT)
    if not isinstance(prior, Dirichlet) or np.size(prior.alpha) != cells:
        raise TypeError(f"prior must be None or a Dirichlet with {cells} pseudo-counts, one per cell; got {prior!r}")
    return np.asarray(prior.alpha, dtype=float)


def _mean_and_sd(releases: Sequence[Release], draws: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """Draw mean and standard deviation in the data's units, (release, draw)."""
    moments, counts = _moments(releases), {len(each.observations) for each in releases}
    if len(counts) > 1:
        raise ValueError(f"release must be a sequence in which equally many are put together, got {sorted(counts)}")
    if counts != {1}:
        seen = zip(*(each.observations for each in releases), strict=True)
        moments = moments._replace(several=tuple(_moments(each) for each in seen))
    mean, sd = draw_mean_and_sd(moments, draws, rng)
    low, high = releases[0].bounds["x"]
    return (low + high) / 2 + (high - low) / 2 * mean, (high - low) / 2 * sd


def _moments(releases: Sequence[Release]) -> NoisyMoments:
    """Return the noisy sums and squares of some releases."""
    total, squares = (np.array([float(each[name][0]) for each in releases]) for name in ("sum", "squares"))
    of_total, of_squares = (np.array([each.scale[name] for each in releases]) for name in ("sum", "squares"))
    n = np.array([float(each.n) for each in releases])
    return NoisyMoments(total, squares, of_total, of_squares, n, releases[0].mechanism == "laplace")


def _notes(release: Release, shares: Array) -> list[str]:
    """Say what is covered, how much was clipped, and where the sampling error is not yet normal."""
    low, high = release.bounds["x"]
    notes = [
        f"mean and sd are those of records clipped to [{low:g}, {high:g}]. The mean's interval assumes no family; "
        "the sd's takes scatter to vary as that of normal records."
    ]
    beyond = {"below": shares[..., 0], "above": shares[..., -1]}
    seen = [f"{np.median(p):.1%} {side} them" for side, p in beyond.items() if np.quantile(p, 0.05) > 0.01]
    if seen:
        notes.append(f"Clipping moved records at the bounds ({', '.join(seen)}): unclipped(tail) bounds its effect.")
    if release.n < _FEW:
        notes.append(f"n = {release.n}: the interval is as good as Student's t, which skewed records mislead.")
    return notes
