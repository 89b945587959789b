"""The curator's side: releases of sufficient statistics and of posterior samples.

Every release is private for replace-one neighbours, n public. Chapter 3 explains them.
"""

from __future__ import annotations

import functools
import math
import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpbook import noise
from dpbook._validation import (
    finite_array,
    fraction,
    integer,
    interval,
    one_of,
    positive,
    privacy_loss,
    seeded_generator,
)
from dpbook.budget import PrivacyBudget, charge
from dpbook.expfam.families import OUTSIDE, Binomial, CustomFamily, Family, Multinomial
from dpbook.mechanisms import gaussian_scale, private_quantile
from dpbook.records import ExactSum, exact_sum, grid_unit
from dpbook.release import Release
from dpbook.sensitivity import rounded

__all__ = [
    "private_bounds",
    "release",
    "release_posterior_samples",
    "release_randomized_response",
]


def release(
    x: Any,
    family: Family,
    *,
    epsilon: float,
    outside: str = "clip",
    mechanism: str = "laplace",
    delta: float = 0.0,
    rng: np.random.Generator | None = None,
    budget: PrivacyBudget | None = None,
) -> Release:
    """Release the sufficient statistics of a family with noise.

    epsilon-DP (Laplace) or (epsilon, delta)-DP (Gaussian) for replace-one neighbours, n public. NaN, or a record
    outside a discrete domain, raises an error, which is not private: only the curator may see it. Continuous records
    outside the family's bounds raise nothing: they are clipped or redacted.

    Parameters
    ----------
    x : array, Series, table of one column, iterator of chunks, or Dask collection
        The records.
    family : Family
        The model, with its public bounds.
    epsilon : float
        The privacy loss.
    outside : {"clip", "redact"}
        What becomes of records outside the bounds of an unbounded family: moved to the nearest bound, or left out.
    mechanism : {"laplace", "gaussian"}
        The noise.
    delta : float, default 0.0
        0 for Laplace noise, greater than 0 for Gaussian noise.
    rng : numpy.random.Generator, optional
        Seeded teaching noise; None, the default, makes a real release.
    budget : PrivacyBudget, optional
        Charged before the noise is drawn.

    Returns
    -------
    Release
        With the noisy sums of the family's statistics as ``.values["sum"]``.

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook import expfam
    >>> noisy = expfam.release([1, 0, 0, 1], expfam.Binomial(), epsilon=1.0, rng=np.random.default_rng(0))
    >>> noisy["sum"].round(2), noisy.scale["sum"]
    (array([2.32]), 1.0)

    Explained in :doc:`/book/exponential-families/unbounded-statistics`.
    """
    _require_family(family)
    one_of("outside", outside, OUTSIDE)
    epsilon, delta = privacy_loss(epsilon, delta, mechanism)
    rng = seeded_generator(rng)
    norm = 1 if mechanism == "laplace" else 2
    unit = grid_unit(family.magnitude)
    bound = family.sensitivity(outside, norm)
    if not family.on_grid:
        bound = rounded(bound, family.size, unit, norm)
    total = _sums(x, family, outside)
    charge(budget, epsilon, delta, label=f"{family.name} sum")
    if mechanism == "laplace":
        noisy, scale = noise.add_laplace_to_sum(total, bound, epsilon, rng)
    else:
        scale = gaussian_scale(sensitivity=bound, epsilon=epsilon, delta=delta)
        noisy = noise.add_gaussian_to_sum(total, scale, rng)
    settings = {} if family.bounded else {"outside": outside}
    return Release(
        values={"sum": noisy},
        model=family.name,
        mechanism=mechanism,
        scale={"sum": scale},
        sensitivity={"sum": bound},
        epsilon=epsilon,
        delta=delta,
        n=total.n,
        bounds={"x": family.bounds},
        settings={**family.settings, **settings},
        float_safe=rng is None,
    )


def release_randomized_response(
    x: Any,
    *,
    epsilon: float,
    rng: np.random.Generator | None = None,
    budget: PrivacyBudget | None = None,
) -> Release:
    """Release how many of the randomised responses to a yes-or-no question are "yes".

    epsilon-DP for replace-one neighbours, n public, and locally: every answer is flipped with odds 1 : e^epsilon before
    it is counted, so the collector never holds a true one. The count of reports is all that inference needs.

    Parameters
    ----------
    x : array, Series, table of one column, iterator of chunks, or Dask collection
        The true answers, 0 or 1.
    epsilon : float
        The privacy loss of each answer.
    rng : numpy.random.Generator, optional
        Seeded teaching noise; None, the default, makes a real release.
    budget : PrivacyBudget, optional
        Charged before any answer is flipped.

    Returns
    -------
    Release
        With the number of "yes" reports as ``.values["reports"]``.

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook import expfam
    >>> answers = [1] * 30 + [0] * 70
    >>> expfam.release_randomized_response(answers, epsilon=1.0, rng=np.random.default_rng(0))["reports"]
    array([46])

    Explained in :doc:`/book/background/after-a-release`.
    """
    epsilon = positive("epsilon", epsilon)
    rng = seeded_generator(rng)
    ones = _sums(x, Binomial(), "clip")
    charge(budget, epsilon, 0.0, label="randomised response")
    # Answers are exchangeable, so flipping sorted ones gives the count the same law as flipping them in order.
    total = round(float(ones.values[0]))
    answers = np.repeat(np.array([1, 0], dtype=np.int64), [total, ones.n - total])
    reports = noise.flip(answers, 2, epsilon, rng)
    return Release(
        values={"reports": np.array([reports.sum()])},
        model="binomial",
        mechanism="randomized response",
        scale={"reports": _report_sd(ones.n, epsilon)},
        sensitivity={"reports": 1.0},
        epsilon=epsilon,
        n=ones.n,
        bounds={"x": (0.0, 1.0)},
        settings={"truth": 1 / (1 + math.exp(-epsilon))},
        float_safe=rng is None,
    )


def release_posterior_samples(
    x: Any,
    family: Family,
    prior: Any,
    *,
    epsilon: float,
    support: tuple[float, float],
    count: int = 1,
    grid: int = 2001,
    rng: np.random.Generator | None = None,
    budget: PrivacyBudget | None = None,
) -> Release:
    """Release draws from a flattened posterior: one-posterior sampling by the exponential mechanism on a public grid.

    epsilon-DP for replace-one neighbours, n public. The utility of theta is the log posterior, whose sensitivity Δ is
    the most that one record within the bounds can change it anywhere on the support. Only differences between values
    of theta matter, so the natural parameter is measured from the middle of its range: Δ is half that range times the
    range of the statistic (for yes-or-no records on [a, 1-a], log((1-a)/a)). Each of ``count`` draws spends
    epsilon / count, at the temperature T = max(1, 2Δ count / epsilon): a posterior sample itself is 2Δ-DP, and no
    budget is used to sharpen it.

    Parameters
    ----------
    x : array, Series, table of one column, iterator of chunks, or Dask collection
        The records; clipped to the family's bounds.
    family : Family
        A one-parameter family.
    prior : object
        Its conjugate prior.
    epsilon : float
        The privacy loss of all draws together.
    support : (low, high)
        Where theta may lie, fixed without the data: the log likelihood must be bounded on it.
    count : int, default 1
        How many draws.
    grid : int, default 2001
        How many points the public grid over the support has.
    rng : numpy.random.Generator, optional
        Seeded teaching noise; None, the default, makes a real release.
    budget : PrivacyBudget, optional
        Charged before anything is drawn.

    Returns
    -------
    Release
        With the draws as ``.values["theta"]``, the temperature as ``.scale`` and Δ as ``.sensitivity``.

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook import expfam
    >>> draw = expfam.release_posterior_samples(
    ...     [1] * 30 + [0] * 70, expfam.Binomial(), expfam.Beta(1, 1), epsilon=1.0, support=(0.1, 0.9),
    ...     rng=np.random.default_rng(0),
    ... )
    >>> round(draw.scale["theta"], 3)
    4.394

    Explained in :doc:`/book/exponential-families/information-bottleneck`.
    """
    _require_family(family)
    if family.parameters != 1:
        raise ValueError(f"family must have one parameter, got {family!r}")
    _require_prior(prior, family)
    _require_density(family, prior)
    epsilon, count = positive("epsilon", epsilon), integer("count", count, least=1)
    low, high = interval("support", support)
    if low <= prior.support[0] or high >= prior.support[1]:
        raise ValueError(f"support must lie strictly inside {prior.support}, got {support}")
    theta = np.linspace(low, high, integer("grid", grid, least=2))
    rng = seeded_generator(rng)
    total = _sums(x, family, "clip")
    utility, bound = _log_posterior(total, family, prior, theta)
    temperature = max(1.0, 2 * bound * count / epsilon)
    charge(budget, epsilon, 0.0, label=f"{family.name} posterior samples")
    # choose() draws in proportion to exp(utility · ε'/(2Δ)); ε' = 2Δ/T is at most epsilon / count.
    drawn = [theta[noise.choose(utility, bound, 2 * bound / temperature, rng)] for _ in range(count)]
    return Release(
        values={"theta": np.array(drawn)},
        model=f"{family.name} posterior samples",
        mechanism="exponential",
        scale={"theta": temperature},
        sensitivity={"theta": bound},
        epsilon=epsilon,
        n=total.n,
        bounds={"x": family.bounds, "theta": (low, high)},
        settings={"grid": theta.size},
        float_safe=rng is None,
    )


def private_bounds(
    x: Any,
    *,
    public_range: tuple[float, float],
    epsilon: float,
    coverage: float = 0.95,
    rng: np.random.Generator | None = None,
    budget: PrivacyBudget | None = None,
) -> tuple[float, float]:
    """Release bounds that hold about the middle ``coverage`` of the records, for use as a family's bounds.

    epsilon-DP for replace-one neighbours, n public: two private quantiles at epsilon / 2 each. The bounds are then
    random and depend on the data; inference that takes them as fixed is off by what they reveal.

    Parameters
    ----------
    x : array
        The records.
    public_range : (low, high)
        Where records can lie at all, known without the data.
    epsilon : float
        The privacy loss of both bounds together.
    coverage : float, default 0.95
        The share of records to hold.
    rng : numpy.random.Generator, optional
        Seeded teaching noise; None, the default, makes a real release.
    budget : PrivacyBudget, optional
        Charged before the noise is drawn.

    Returns
    -------
    tuple of float
        (lower, upper).

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook import expfam
    >>> x = np.random.default_rng(0).exponential(size=1000)
    >>> low, high = expfam.private_bounds(x, public_range=(0, 50), epsilon=1.0, rng=np.random.default_rng(2))
    >>> 0 <= low < 0.1 and 2 < high < 8
    True

    Explained in :doc:`/book/exponential-families/unbounded-statistics`.
    """
    tail = (1 - fraction("coverage", coverage)) / 2
    epsilon = positive("epsilon", epsilon)
    records = finite_array("x", x, ndim=1)
    low, high = interval("public_range", public_range)
    rng = seeded_generator(rng)
    charge(budget, epsilon, 0.0, label="private bounds")
    ends = sorted(
        private_quantile(records, q, bounds=(low, high), epsilon=epsilon / 2, rng=rng) for q in (tail, 1 - tail)
    )
    if ends[0] == ends[1]:  # on a real release's grid both can fall in one cell; bounds need a width
        ends = [low, high]
    return ends[0], ends[1]


def _report_sd(n: int, epsilon: float) -> float:
    """Return the standard deviation of the number of "yes" reports given the answers: sqrt(n t (1-t)), not 0."""
    return max(math.sqrt(n) * math.exp(-epsilon / 2) / (1 + math.exp(-epsilon)), sys.float_info.min)


def _require_family(family: Any) -> None:
    if not isinstance(family, Family):
        raise TypeError(f"family must be a Family such as Binomial() or Exponential(0, 10), got {family!r}")


def _require_prior(prior: Any, family: Family) -> None:
    """Raise, naming the argument, unless the prior is one of the family's."""
    if not isinstance(prior, family.prior_type):
        raise TypeError(f"prior must be a {family.prior_type.__name__} for {family!r}, got {prior!r}")
    if isinstance(family, Multinomial) and np.size(prior.alpha) != family.k:
        raise ValueError(f"prior must have {family.k} pseudo-counts, got {np.size(prior.alpha)}")


def _require_density(family: Family, prior: Any) -> None:
    """Raise unless a custom family's density integrates to 1, as it does for most values that the prior gives."""
    if isinstance(family, CustomFamily):
        mass = family._total_mass(np.asarray(prior.draw(64, np.random.default_rng(0)), dtype=float))
        if not abs(np.median(mass) - 1) < 0.01:
            raise ValueError(f"family must have a log_density that integrates to 1, got {np.median(mass):.3g}")


def _log_posterior(
    total: ExactSum, family: Family, prior: Any, theta: NDArray[np.float64]
) -> tuple[NDArray[np.float64], float]:
    """Return the log posterior on a grid, up to a constant, and its sensitivity, with room for rounding."""
    eta, normaliser = family._natural(theta)
    eta = eta - (eta.max() + eta.min()) / 2
    log_prior = np.asarray(prior.log_density(theta), dtype=float)
    utility = log_prior + eta * total.values[0] - total.n * normaliser
    change = family.sensitivity("clip")
    if not family.on_grid:
        change = rounded(change, 1, grid_unit(family.magnitude), 1)
    # The utility is computed in floats: a few units in the last place of the largest number that can occur in it.
    largest = total.n * (np.abs(eta).max() * family.magnitude + np.abs(normaliser).max()) + np.abs(log_prior).max()
    return utility, float(np.abs(eta).max() * change * (1 + 1e-12) + 2.0**-48 * largest)


def _sums(x: Any, family: Family, outside: str) -> ExactSum:
    """Sum the family's released statistics exactly, on its public grid."""
    statistics = functools.partial(_statistics, family=family, outside=outside)
    return exact_sum(x, statistics, unit=grid_unit(family.magnitude), name="x")


def _statistics(rows: NDArray[np.float64], *, family: Family, outside: str) -> NDArray[np.float64]:
    if rows.shape[1] != 1:
        raise ValueError(f"x must have one column, got {rows.shape[1]}")
    return family._released(rows, outside)
