"""What a posterior of a family says of itself: whether the family was checked, and how good an approximation is.

Sums of n records are not quite normal. By the expansion of Cornish and Fisher, the ends of a 95 % interval are off by
(1.96² - 1)/6 times the skewness of the noisy sum, in standard deviations; noise, which has none, makes it smaller.
"""

from __future__ import annotations

import numpy as np

from dpbook._arrays import Array
from dpbook.doubts import Doubt, PoorApproximation
from dpbook.expfam.family import Family
from dpbook.expfam.fit import FitCheck
from dpbook.release import Release

__all__ = ["remarks", "skewness_of_sums"]

_NORMAL = ("collapsed", "gibbs", "moments")  # methods that take sums as normal
_ENDS = (1.96**2 - 1) / 6
_PSEUDO = 0.5  # over the root of n: by how much two halves of the normal family's Gibbs sampler disagree, as measured
_POOR = 0.1  # standard deviations by which an end of an interval may be off before there is a warning
_BINS = 512  # of equal width, in which a third moment is computed


def remarks(
    release: Release, family: Family, method: str, theta: Array, fit: FitCheck | None
) -> tuple[list[str], list[Doubt]]:
    """Return the notes of a posterior, and its doubts about the method."""
    notes: list[str] = []
    if not family.bounded:
        notes.append(
            f"The fit of the {family.name} family is unchecked: release(…, check=0.1) would check it."
            if fit is None
            else f"The fit of the {family.name} family was checked: p = {fit.p:.2g}."
        )
    if method not in _NORMAL:
        return notes, []
    skewness = skewness_of_sums(release, family, np.median(theta, axis=0))
    if skewness is None:
        return [*notes, f"Sums of {release.n} records are taken as normal."], []
    off = _ENDS * skewness
    if method == "gibbs" and family.size > 1 and not family.bounded:
        off = max(off, _PSEUDO / np.sqrt(release.n))
    size = f"about {off:.2g}" if off >= 0.01 else "less than 0.01"
    what = f"sums of {release.n} records are taken as normal, which moves an end of the 95 % interval by {size} sd"
    if off < _POOR:
        return [*notes, f"{what[0].upper()}{what[1:]}."], []
    better = next((each for each in ("exact", "records") if each in family.methods(release.mechanism)), None)
    remedy = f"use method='{better}', which is exact" if better else "trust the interval less, or use release_mean"
    return notes, [PoorApproximation(what, remedy, weight=off)]


def skewness_of_sums(release: Release, family: Family, theta: Array) -> float | None:
    """Return the largest skewness of a noisy sum given theta, None where the family does not tell its cells."""
    edges, at = _points(family)
    shares = family.cell_probabilities(np.asarray(theta, dtype=float), edges)
    if shares is None:
        return None
    values = family.released(at[:, None], str(release.settings.get("outside", "clip")))
    gap = values - shares @ values
    spread, third = shares @ gap**2, shares @ gap**3
    noise = (2 if release.mechanism == "laplace" else 1) * release.scale["sum"] ** 2
    return float(np.max(release.n * np.abs(third) / (release.n * spread + noise) ** 1.5))


def _points(family: Family) -> tuple[Array, Array]:
    """Return edges of fine cells, and a record in each of them, the first below the bounds and the last above."""
    low, high = family.bounds
    ends = np.array([low - (high - low), high + (high - low)])
    try:
        family.check_records(np.array([[(low + high) / 2 + np.sqrt(2) * 1e-3]]))
    except ValueError:  # whole numbers only
        if high - low <= _BINS:
            edges = np.arange(np.ceil(low), np.floor(high) + 2)
            return edges, np.rint(np.maximum([ends[0], *edges[:-1], ends[1]], 0.0))
        edges = np.linspace(low, high, _BINS + 1)
        return edges, np.rint(np.maximum([ends[0], *(edges[1:] + edges[:-1]) / 2, ends[1]], 0.0))
    edges = np.linspace(low, high, _BINS + 1)
    return edges, np.array([ends[0], *(edges[1:] + edges[:-1]) / 2, ends[1]])
