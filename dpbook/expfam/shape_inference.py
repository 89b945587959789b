"""The analyst's side of means and histograms: posteriors from releases that assume no family.

Nothing here reads data. The section on a mean that assumes little explains it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from dpbook._arrays import Array
from dpbook.doubts import Doubt, PriorDecides, speak
from dpbook.expfam.cells import cells_of, labels_of
from dpbook.expfam.noisy_moments import NoisyMoments, draw_mean_and_sd
from dpbook.expfam.shape_posterior import HistogramPosterior, MeanPosterior
from dpbook.expfam.table_counts import NoisyTable, draw_mixed_counts, draw_own_shares, draw_probabilities, shared_out
from dpbook.posterior import Posterior
from dpbook.priors import Dirichlet
from dpbook.release import Release

__all__ = ["MODELS", "infer_shapes"]

MODELS = ("mean", "histogram")  # whose releases name no family
_DROWNED = 0.15  # of the records: noise of all cells together beyond which the prior decides which of them are filled
_FEW = 30  # records, below which the mean of skewed ones is not yet normal


def infer_shapes(
    releases: Sequence[Release], prior: Any, draws: int, chains: int, rng: np.random.Generator
) -> list[Posterior]:
    """Return the posterior of each release of a mean or of a histogram, all of one kind, in one batch."""
    labels = _check(releases)
    alphas, weights = _mixture(prior, len(labels))
    shape = (chains, -(-draws // chains))
    tables = [NoisyTable.of(each, "histogram", alphas[0]) for each in releases]
    shares = [_shares(each, alphas, weights, shape, rng) for each in tables]
    own = [draw_own_shares(each, shape[0] * shape[1], rng).reshape(*shape, -1) for each in tables]
    drowned = [None if prior is not None else _drowned(each) for each in tables]
    edges = cells_of(releases[0])
    common: dict[str, Any] = {"labels": {"probabilities": labels}, "edges": () if edges is None else edges.edges}
    if releases[0].model == "histogram":
        found = [
            HistogramPosterior({"probabilities": p}, "exact", own=q, **common) for p, q in zip(shares, own, strict=True)
        ]
        return speak(found, [[each] if each else [] for each in drowned], chains=False)
    mean, sd = (each.reshape(-1, *shape) for each in _mean_and_sd(releases, shape[0] * shape[1], rng))
    return [
        MeanPosterior(
            {"mean": m, "sd": s, "probabilities": p}, "noisy moments", own=q, notes=_notes(one, q, doubt), **common
        )
        for one, m, s, p, q, doubt in zip(releases, mean, sd, shares, own, drowned, strict=True)
    ]


def _shares(
    table: NoisyTable, alphas: Array, weights: Array, shape: tuple[int, int], rng: np.random.Generator
) -> Array:
    """Draw the shares (chain, draw, cell) of all cells."""
    counts, which = draw_mixed_counts(table, alphas, weights, shape[0] * shape[1], rng)
    return draw_probabilities(counts, alphas[which], rng).reshape(*shape, -1)


def _drowned(table: NoisyTable) -> Doubt | None:
    """Return the doubt that the prior decides, where the noise of all cells together is large beside the records."""
    each = table.scale * math.sqrt(2 if table.laplace else 1)
    share = each * math.sqrt(table.noisy.size) / table.n
    if share < _DROWNED:
        return None
    cause = (
        f"the prior decides which of the {table.noisy.size} cells are filled: a count has noise of sd {each:.3g}, "
        f"all of them together {100 * share:.0f} % of the {table.n} records"
    )
    remedy = "release fewer cells, spend more, or read each share from its own count, posterior.alone()"
    return PriorDecides(cause, remedy, weight=share)


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


def _mixture(prior: Any, cells: int) -> tuple[Array, Array]:
    """Return Dirichlet priors (prior, cell) and their weights: the default mixture, or the one that was given."""
    if prior is None:
        return shared_out(cells)
    if not isinstance(prior, Dirichlet) or np.size(prior.alpha) != cells:
        raise TypeError(f"prior must be None or a Dirichlet with {cells} pseudo-counts, one per cell; got {prior!r}")
    return np.asarray(prior.alpha, dtype=float)[None], np.ones(1)


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


def _notes(release: Release, own: Array, drowned: Doubt | None) -> list[str]:
    """Say what is covered, how much was clipped, and where the sampling error is not yet normal."""
    low, high = release.bounds["x"]
    notes = [
        f"mean and sd are those of records clipped to [{low:g}, {high:g}]. The mean's interval assumes no family; "
        "the sd's takes scatter to vary as that of normal records."
    ]
    sides = {"below": own[..., 0], "above": own[..., -1]}
    seen = {side: np.quantile(p, (0.025, 0.975)) for side, p in sides.items() if np.quantile(p, 0.025) > 0.01}
    if seen:
        said = " and ".join(f"{ends[0]:.1%} to {ends[1]:.1%} of the records {side}" for side, ends in seen.items())
        notes.append(
            f"Clipping moved records to the bounds: by noisy counts, {said} (95 % intervals). unclipped(tail) bounds "
            "its effect."
        )
    if drowned:
        notes.append(f"Of the histogram beside the mean, {drowned.cause}.")
    if release.n < _FEW:
        notes.append(f"n = {release.n}: the interval is as good as Student's t, which skewed records mislead.")
    return notes
