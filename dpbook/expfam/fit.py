"""Does the family fit? A noisy histogram beside the sums, compared with what the posterior predicts.

And what the sums themselves can contradict: the prior. Nothing here reads data; checks have a generator of their own,
so that the same release is always judged alike and the draws of a posterior do not depend on whether it was checked.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from dpbook._arrays import Array
from dpbook._late import pd
from dpbook.doubts import Doubt, Misfit, prior_conflict, smallest_ranks
from dpbook.expfam.cells import cells_of
from dpbook.expfam.family import Family
from dpbook.latent_noise import covariance_root
from dpbook.posterior import Posterior
from dpbook.release import Release

__all__ = ["FamilyPosterior", "FitCheck", "checked", "conflict", "from_prior"]

_SEED = 20191  # of made-up releases
_MADE_UP = 5000  # of them, for a check: each of some 17 numbers is then told apart well below the level
_FROM_PRIOR = 2000
_MOST_SUMS = 5  # statistics up to which prior and release are compared
_LEVEL = 0.05  # tail probability below which a check fails; a right family fails so often, or less
_FAR = 3.0  # standard deviations, beyond which a cell adds no more to what all cells say together


@dataclass(frozen=True, eq=False, repr=False)
class FitCheck:
    """How a released histogram compares with what the posterior of a family predicts.

    Explained in :doc:`/book/exponential-families/is-the-family-right`.

    Parameters
    ----------
    cells : tuple of str
        What the cells are called, from what lies below the bounds to what lies above.
    released, expected, sd : array
        The released counts; mean and standard deviation of such counts under the posterior, noise included.
    p : float
        How likely a release at least as far off is, if the family is right: small where it does not fit.
    doubt : Misfit or None
        What :func:`infer` warned of.
    furthest : bool
        Whether no made-up release was as far off, so that ``p`` is only a bound.
    visible : float
        By what share of the records a count beyond the bounds must be off before the check sees it in half of the
        cases: its power at this epsilon.

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook import expfam
    >>> rng = np.random.default_rng(1)
    >>> counts = rng.poisson(3, 2000)
    >>> noisy = expfam.release(counts, expfam.Poisson(0, 20), epsilon=1.0, check=0.1, rng=rng)
    >>> found = expfam.infer(noisy, expfam.Gamma(1, 0.1), rng=rng).check()
    >>> found.p > 0.01, list(found.table.columns)
    (True, ['released', 'expected', 'sd', 'z'])
    """

    cells: tuple[str, ...]
    released: Array
    expected: Array
    sd: Array
    p: float
    doubt: Misfit | None = None
    furthest: bool = False
    visible: float = math.nan

    def __repr__(self) -> str:
        found = "no misfit seen" if self.doubt is None else "misfit"
        seen = "" if math.isnan(self.visible) else f", sees what moves {self.visible:.2g} of the records"
        return f"FitCheck({self.p_value}: {found}{seen})\n{self.table.round(1)}"

    @property
    def p_value(self) -> str:
        """The probability in words, ``p = 0.3`` or ``p < 0.005``; it is simulated, and knows one digit."""
        return f"p {'<' if self.furthest else '='} {self.p:.1g}"

    @property
    def table(self) -> pd.DataFrame:
        """A row per cell; z is the distance between released and expected count, in standard deviations."""
        z = (self.released - self.expected) / self.sd
        columns = {"released": self.released, "expected": self.expected, "sd": self.sd, "z": z}
        return pd.DataFrame(columns, index=pd.Index(self.cells, name="cell"))


@dataclass(frozen=True, eq=False, repr=False)
class FamilyPosterior(Posterior):
    """The posterior of a family's parameter, which knows whether the family was checked.

    What :func:`infer` returns for :func:`release`. Explained in :doc:`/book/exponential-families/is-the-family-right`.

    Parameters
    ----------
    draws, method, labels, notes, doubts
        As in :class:`~dpbook.Posterior`; the draws hold ``theta``.
    fit : FitCheck, optional
        How the family fits, where the release holds a check.

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook import expfam
    >>> rng = np.random.default_rng(1)
    >>> noisy = expfam.release(rng.exponential(2.0, 500), expfam.Exponential(0, 9), epsilon=1.0, check=0.1, rng=rng)
    >>> posterior = expfam.infer(noisy, expfam.Gamma(1, 1), rng=rng)
    >>> posterior.check().doubt is None
    True
    """

    fit: FitCheck | None = field(default=None, kw_only=True)

    def check(self) -> FitCheck:
        """Return how the released histogram compares with the posterior predictive.

        Returns
        -------
        FitCheck
            With a ``table`` of cells and the probability ``p`` of a release at least as far off.
        """
        if self.fit is None:
            raise ValueError("check needs a release with a histogram: release(…, check=0.1)")
        return self.fit


def checked(release: Release, family: Family, theta: Array) -> FitCheck | None:
    """Compare the histogram of a release, if it has one, with made-up releases from draws of theta (draw, ...)."""
    cells = cells_of(release)
    if cells is None or "histogram" not in release.values:
        return None
    rng = np.random.default_rng(_SEED)
    chosen = theta[rng.integers(0, len(theta), _MADE_UP)]
    shares = family.cell_probabilities(chosen, np.asarray(cells.edges))
    if shares is None:
        return None
    below, above = release["clipped"]
    seen = np.array([below, *release["histogram"], above])
    counts = rng.multinomial(release.n, shares / shares.sum(axis=-1, keepdims=True)).astype(float)
    noise = rng.laplace if release.mechanism == "laplace" else rng.normal
    made_up = counts + noise(scale=release.scale["histogram"], size=counts.shape)
    expected, sd = made_up.mean(axis=0), made_up.std(axis=0)

    def figures(counts: Array) -> Array:
        away = np.minimum(((counts - expected) / sd) ** 2, _FAR**2).sum(axis=-1, keepdims=True)
        return np.concatenate([_with_tails(counts), away], axis=-1)

    ranks = smallest_ranks(np.concatenate([figures(seen)[None], figures(made_up)]))
    found = FitCheck(
        cells.labels,
        seen,
        expected,
        sd,
        float(np.mean(ranks <= ranks[0])),
        furthest=bool(ranks[0] == 1),
        visible=_visible(made_up[:, [0, -1]], ranks[1:]) / release.n,
    )
    doubt = _misfit(family, cells.edges, seen, made_up, found) if found.p < _LEVEL else None
    return replace(found, doubt=doubt)


def _visible(outer: Array, ranks: Array) -> float:
    """Return by how many records the larger of two made-up counts (draw, 2) must be off to look like a misfit."""
    at = int(np.argmax(outer.mean(axis=0)))
    most = max(int(np.quantile(ranks, _LEVEL)), 1)
    ordered = np.sort(outer[:, at])
    return float(ordered[-most] - ordered[ordered.size // 2])


def _with_tails(counts: Array) -> Array:
    """Return counts in cells, and beside them how many records lie in a cell or beyond it."""
    beyond = np.cumsum(counts[..., ::-1], axis=-1)[..., ::-1]
    return np.concatenate([counts, beyond[..., 1:]], axis=-1)


def _misfit(family: Family, edges: Sequence[float], seen: Array, made_up: Array, found: FitCheck) -> Misfit:
    """Name the cell or tail that is furthest off, and what to do about it."""
    labels = found.cells
    value, others = _with_tails(seen), _with_tails(made_up)
    centre, sd = others.mean(axis=0), others.std(axis=0)
    at = int(np.argmax(np.abs(value - centre) / sd))
    more, n = value[at] > centre[at], made_up.sum(axis=1).mean()
    if at < len(labels):
        what = f"{'more' if more else 'fewer'} records in {labels[at]} than {family.name} records have"
    elif centre[at] < n / 2:
        what = f"tail {'heavier' if more else 'lighter'} than {family.name} from {edges[at - len(labels)]:g} on"
    else:
        what = f"{'fewer' if more else 'more'} records below {edges[at - len(labels)]:g} than {family.name} records"
    cause = f"{what}: {value[at]:.0f} released, {centre[at]:.0f} ± {sd[at]:.0f} expected ({found.p_value})"
    return Misfit(cause, f"use {family.instead}, wider bounds, or release_mean", weight=1 - found.p, chance=_LEVEL)


def conflict(release: Release, family: Family, made_up: Array) -> Doubt | None:
    """Compare the released sums with some that were made up from the prior (draw, k)."""
    if not len(made_up):
        return None
    names = ["sum"] if family.size == 1 else ["sum", "sum of squares", *["statistic"] * family.size][: family.size]
    return prior_conflict(np.atleast_1d(release["sum"]), made_up, names=names)


def from_prior(release: Release, family: Family, prior: Any) -> Array:
    """Make up released sums (draw, k): parameters from the prior, sums by their mean and covariance, noise."""
    if family.size > _MOST_SUMS or "sum" not in release.values:
        return np.empty((0, family.size))
    rng, n, k = np.random.default_rng(_SEED), np.asarray(float(release.n)), family.size
    theta = prior.draw(_FROM_PRIOR, rng)
    sums = family.simulate_sums(theta, np.broadcast_to(n, (_FROM_PRIOR,)), rng) if family.bounded else None
    if sums is None:
        with np.errstate(all="ignore"):  # at the ends of double precision
            mean, cov = family.mean_and_covariance(theta, str(release.settings.get("outside", "clip")))
        usable = np.isfinite(mean[..., :k]).all(axis=-1) & np.isfinite(cov[..., :k, :k]).all(axis=(-2, -1))
        mean, cov = mean[usable, :k], cov[usable, :k, :k]
        root, _ = covariance_root(n * cov)
        drawn = (root @ rng.normal(size=(*mean.shape, 1)))[..., 0]
        sums = family.nearest_released(n * mean + drawn, np.broadcast_to(n, mean.shape[:-1]))
    noise = rng.laplace if release.mechanism == "laplace" else rng.normal
    return np.asarray(sums + noise(scale=release.scale["sum"], size=sums.shape))
