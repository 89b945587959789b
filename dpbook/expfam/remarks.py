"""What a posterior of a family says of itself: whether the family was checked, and how good an approximation is.

Sums of n records are not quite normal. By the expansion of Cornish and Fisher, the ends of a 95 % interval are off by
(1.96² - 1)/6 times the skewness of the noisy sum, in standard deviations; noise, which has none, makes it smaller.
"""

from __future__ import annotations

import numpy as np

from dpbook._arrays import Array
from dpbook.doubts import Doubt, ManyClipped, PoorApproximation
from dpbook.expfam.family import Family
from dpbook.expfam.fit import FitCheck
from dpbook.release import Release

__all__ = ["remarks", "skewness_of_sums"]

_NORMAL = ("collapsed", "gibbs", "moments")  # methods that take sums as normal
_ENDS = (1.96**2 - 1) / 6
_PSEUDO = 0.5  # over the root of n: by how much two halves of the normal family's Gibbs sampler disagree, as measured
_POOR = 0.1  # standard deviations by which an end of an interval may be off before there is a warning
_BEYOND, _SURE = 0.05, 0.99  # share of records beyond the bounds that matters, and how sure one must be of it
_SEEN = 0.5  # of the share beyond the bounds: a check that would not see so large a misfit there has no power
_SOME = 500  # draws of a parameter that tell the share beyond the bounds
_BINS = 512  # of equal width, in which a third moment is computed


def remarks(
    release: Release, family: Family, method: str, theta: Array, fit: FitCheck | None
) -> tuple[list[str], list[Doubt]]:
    """Return the notes of a posterior, and its doubts about the method."""
    notes, doubts = _approximation(release, family, method, theta)
    if family.bounded:
        return notes, doubts
    clipped = _tail_assumed(family, theta, fit)
    if fit is None:
        said = f"The fit of the {family.name} family is unchecked: release(…, check=0.1) would check it."
    else:
        said = (
            f"The fit of the {family.name} family was checked: {fit.p_value}. At this epsilon it sees what moves "
            f"{100 * fit.visible:.1g} % of the records across a bound, or more."
        )
    return [said, *notes], [*doubts, *clipped]


def _tail_assumed(family: Family, theta: Array, fit: FitCheck | None) -> list[Doubt]:
    """Return the doubt that much of the answer lies beyond the bounds, where no check sees whether the family holds."""
    some = theta[:: max(len(theta) // _SOME, 1)]
    with np.errstate(all="ignore"):
        shares = family.cell_probabilities(some, np.asarray(family.bounds, dtype=float))
    if shares is None or not np.quantile(shares[..., 0] + shares[..., -1], 1 - _SURE) > _BEYOND:
        return []
    sides = np.median(shares, axis=0)[[0, -1]]
    if fit is not None and (fit.doubt is not None or fit.visible < _SEEN * sides.max()):
        return []
    share = float(sides.sum())
    what = (
        f"if records are {family.name}, {100 * share:.0f} % of them lie beyond the bounds, where the family is assumed"
    )
    if fit is None:
        remedy = "widen the bounds, look with check=0.1, or ask release_mean for the mean of clipped records"
        return [ManyClipped(what, remedy, weight=share)]
    what += f" and the check sees nothing below {100 * fit.visible:.0f} % of the records"
    return [ManyClipped(what, "widen the bounds, spend more, or use release_mean", weight=share)]


def _approximation(release: Release, family: Family, method: str, theta: Array) -> tuple[list[str], list[Doubt]]:
    """Say how far the normal law of the sums moves an interval, or doubt it."""
    if method not in _NORMAL:
        return [], []
    skewness = skewness_of_sums(release, family, np.median(theta, axis=0))
    if skewness is None:
        return [f"Sums of {release.n} records are taken as normal."], []
    off = _ENDS * skewness
    if method == "gibbs" and family.size > 1 and not family.bounded:
        off = max(off, _PSEUDO / np.sqrt(release.n))
    size = f"about {off:.2g}" if off >= 0.01 else "less than 0.01"
    what = f"sums of {release.n} records are taken as normal, which moves an end of the 95 % interval by {size} sd"
    if off < _POOR:
        return [f"{what[0].upper()}{what[1:]}."], []
    better = next((each for each in ("exact", "records") if each in family.methods(release.mechanism)), None)
    remedy = f"use method='{better}', which is exact" if better else "trust the interval less, or use release_mean"
    return [], [PoorApproximation(what, remedy, weight=off)]


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
