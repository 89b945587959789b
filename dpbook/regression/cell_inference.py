"""The analyst's side where records have a schema: posteriors from noisy sums by cell.

The fixed design is the method: nothing is assumed of labels and numbers but that their bounds hold.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dpbook import moments
from dpbook._arrays import Array
from dpbook.doubts import Doubt, ManyClipped, PoorApproximation
from dpbook.moments import NoisySums, clipped_normal
from dpbook.regression.cell_law import CellLaw, CellPlaces
from dpbook.regression.design import MODEL, Design, design_of
from dpbook.regression.posterior import RegressionPosterior
from dpbook.regression.scale_free import Softened
from dpbook.regression.task import Draws, drawn
from dpbook.release import Release, observations_of

__all__: list[str] = []

METHOD = "fixed-design"
WHY = "nothing is assumed of labels and numbers but that their bounds hold"
_ROOM = 2_000_000  # numbers of a batch of covariances
_DIMENSIONS, _THINNEST = 25, 4  # of a position, for each of which one more draw is passed over, and at most so many
_SHARE, _SHIFT, _SKEWNESS = 0.02, 1.0, 0.5  # as in dpbook.regression.suspicions
_AT_BOUNDS = 0.85  # of y², as in dpbook.regression.choice
_MANY, _FEW, _LONG = 20, 4, 10  # chains, and from how many releases on they are few


def check_by_cell(batch: Sequence[Any], prior: Any, covariates: Any, method: str | None) -> list[Design]:
    """Return the designs of releases on a schema; raise on what does not go with them."""
    for each in batch:
        if not isinstance(each, Release):
            raise TypeError(f"release must hold Release objects, got {type(each).__name__}")
        each.require(model=MODEL, mechanisms=("laplace", "gaussian"), several=True)
    if method not in (None, METHOD):
        raise ValueError(f"method must be {METHOD!r} for a release on a schema, got {method!r}")
    if prior is not None or covariates is not None:
        raise ValueError(
            "prior and covariates must be left out for a release on a schema, which has beliefs of its own"
        )
    known: dict[str, Design] = {}
    for each in batch:
        key = repr(each.settings)
        known[key] = known[key] if key in known else design_of(each)
    return [known[repr(each.settings)] for each in batch]


def infer_by_cell(
    batch: Sequence[Release],
    designs: Sequence[Design],
    *,
    draws: int,
    chains: int | None,
    rng: np.random.Generator,
    progress: bool,
    options: Mapping[str, Any],
) -> tuple[list[RegressionPosterior], list[list[Doubt]]]:
    """Return the posteriors of a batch, the releases of one design and noise in one run, and what to doubt of them."""
    count = chains if chains is not None else _FEW if len(batch) > _LONG else _MANY
    settings: dict[str, Any] = {"per_chain": -(-draws // count), "chains": count, "rng": rng, "progress": progress}
    keys = [(id(design), each.mechanism, len(each.observations)) for design, each in zip(designs, batch, strict=True)]
    found: dict[int, RegressionPosterior] = {}
    doubts: dict[int, list[Doubt]] = {}
    for key in dict.fromkeys(keys):
        among = [i for i, own in enumerate(keys) if own == key]
        sums, design = _sums([batch[i] for i in among]), designs[among[0]]
        for i, theta, sigma2 in zip(among, *_sample(design, sums, settings, options), strict=True):
            found[i] = _posterior(design, theta, sigma2)
        doubts |= dict(zip(among, _doubts(CellPlaces(design), sums), strict=True))
    return [found[i] for i in range(len(batch))], [doubts[i] for i in range(len(batch))]


def _posterior(design: Design, theta: Array, sigma2: Array) -> RegressionPosterior:
    return RegressionPosterior(
        {"theta": design.theta_out(theta), "sigma2": design.sigma2_out(sigma2)},
        METHOD,
        labels={"theta": design.labels},
        heavy_tailed=True,
        notes=[f"{METHOD}: {WHY}"],
        design=design,
    )


def _sums(releases: Sequence[Release]) -> NoisySums:
    return NoisySums(
        np.stack([each["sums"] for each in releases]),
        np.array([each.scale["sums"] for each in releases]),
        np.array([float(each.n) for each in releases]),
        releases[0].mechanism == "laplace",
        observations_of(releases, "sums"),
    )


def _sample(design: Design, sums: NoisySums, settings: dict[str, Any], options: Mapping[str, Any]) -> Draws:
    """Draw from posteriors, some releases at a time."""
    size = max(1, _ROOM // (len(design.pairs) ** 2 * settings["chains"]))
    found = []
    for first in range(0, len(sums.noisy), size):
        part = _part(sums, slice(first, first + size))
        law = Softened(CellLaw(design), part)
        thin = min(1 + law.dim // _DIMENSIONS, _THINNEST)
        run = settings | {"per_chain": thin * settings["per_chain"]}
        found.append(drawn(law.parameters, moments.sample(law, part, **run, **options)[:, thin - 1 :: thin]))
    return Draws(*(np.concatenate(each) for each in zip(*found, strict=True)))


def _part(sums: NoisySums, block: slice) -> NoisySums:
    several = None if sums.several is None else (sums.several[0][:, block], sums.several[1][:, block])
    return NoisySums(sums.noisy[block], sums.scale[block], sums.n[block], sums.laplace, several)


def _doubts(at: CellPlaces, sums: NoisySums) -> list[list[Doubt]]:
    """Return what to doubt: responses that were clipped, and a sum of squares that is not normal."""
    mean, _ = at.mean_of_y(sums)
    noise = sums.variance[:, at.y_squared]
    open_ = np.sqrt(noise * (1 + 4 * mean**2)) / sums.n
    variance = np.clip(sums.noisy[:, at.y_squared] / sums.n - mean**2, 0.0, 1.0)
    sd = np.sqrt(np.maximum(variance, 1e-12))
    cut = clipped_normal(mean, sd)
    share = 1 - cut.inside
    lost = sums.n * (variance - (cut.moments[1] - cut.moments[0] ** 2))
    shift = np.abs(lost) / np.sqrt(2 * sums.n * variance**2 + noise)
    third = sums.n * (8 * variance**3 + 24 * variance**2 * mean**2)
    skewness = third / (sums.n * (2 * variance**2 + 4 * variance * mean**2) + noise) ** 1.5
    found: list[list[Doubt]] = []
    for i, n in enumerate(sums.n):
        own: list[Doubt] = []
        two_values = sums.noisy[i, at.y_squared] > _AT_BOUNDS * n  # answers of two kinds, which are the bounds
        if variance[i] > 3 * open_[i] and share[i] > _SHARE and shift[i] > _SHIFT and not two_values:
            cause = (
                f"if responses are normal, {100 * share[i]:.0f} % or more of them were clipped, which is ignored here"
            )
            own.append(ManyClipped(cause, "use wider bounds of the response in the next release", weight=share[i]))
        if skewness[i] > _SKEWNESS:
            cause = f"the sum of squares of {n:.0f} records has skewness {skewness[i]:.2f}, and is taken as normal"
            own.append(PoorApproximation(cause, "read the intervals as rough", weight=float(skewness[i])))
        found.append(own)
    return found
