"""The curator's side: releases of sufficient statistics and of posterior samples.

Every release is private for replace-one neighbours, n public. Chapter 3 explains them.
"""

from __future__ import annotations

import functools
import math
import sys
from typing import Any, NamedTuple

import numpy as np

from dpbook import noise
from dpbook._arrays import Array
from dpbook._validation import (
    fraction,
    integer,
    interval,
    noise_arguments,
    one_of,
    positive,
    privacy_loss,
    seeded_generator,
)
from dpbook.budget import PrivacyBudget, charge
from dpbook.expfam.cells import Bins, bins_between
from dpbook.expfam.described import described
from dpbook.expfam.families import Binomial, require_family
from dpbook.expfam.family import OUTSIDE, Family
from dpbook.expfam.reading import coded
from dpbook.expfam.weights import cell_weight
from dpbook.mechanisms import private_quantile
from dpbook.records import ExactSum, as_chunks, exact_sum, grid_unit
from dpbook.release import Release
from dpbook.schema import Schema
from dpbook.sensitivity import beside_histogram, rounded

__all__ = [
    "PrivateBounds",
    "private_bounds",
    "release",
    "release_posterior_samples",
    "release_randomized_response",
]

_NARROW = 1024.0  # bounds whose width is a smaller share of their distance from zero are rounded from one of them on


class PrivateBounds(tuple[float, float]):
    """Bounds that were released privately: a pair (lower, upper) that knows what it cost.

    Parameters
    ----------
    lower, upper : float
        The bounds.
    epsilon : float
        The privacy loss of the pair.

    Examples
    --------
    >>> from dpbook.expfam import Exponential, PrivateBounds
    >>> bounds = PrivateBounds(0.0, 9.5, epsilon=0.1)
    >>> bounds, bounds.epsilon, Exponential(*bounds)
    ((0.0, 9.5), 0.1, Exponential(lower=0.0, upper=9.5))

    Explained in :doc:`/book/exponential-families/unbounded-statistics`.
    """

    epsilon: float

    def __new__(cls, lower: float, upper: float, epsilon: float) -> PrivateBounds:
        """Check the bounds and keep their price beside them."""
        pair = super().__new__(cls, interval("(lower, upper)", (lower, upper)))
        pair.epsilon = positive("epsilon", epsilon)
        return pair

    def __getnewargs__(self) -> tuple[float, float, float]:
        return (*self, self.epsilon)


def release(
    data: Any,
    family: Family,
    *,
    epsilon: float,
    schema: Schema | None = None,
    outside: str = "clip",
    mechanism: str = "laplace",
    delta: float = 0.0,
    check: float = 0.0,
    bounds_from: PrivateBounds | None = None,
    rng: np.random.Generator | None = None,
    budget: PrivacyBudget | None = None,
) -> Release:
    """Release the sufficient statistics of a family with noise, and what would show that the family is wrong.

    epsilon-DP (Laplace) or (epsilon, delta)-DP (Gaussian) for replace-one neighbours, n public. NaN, or a record
    outside a discrete domain, raises an error, which is not private: only the curator may see it. Continuous records
    outside the family's bounds, infinite ones too, raise nothing: they are clipped or redacted.

    Statistics are rounded to a public grid before they are summed. Where the bounds are narrow and far from zero
    (further than 1024 times their width), the end nearest to zero is subtracted from each clipped statistic before, and
    n times it added to the noisy sum: both are public, so that is post-processing, and the grid follows the width.
    Otherwise, and for redacted records, nothing is subtracted. Explained in
    :doc:`/book/exponential-families/unbounded-statistics`.

    Parameters
    ----------
    data : array, Series, table of one column, path, Arrow stream, iterator of chunks, or Dask collection
        The records.
    family : Family
        The model, with its public bounds.
    epsilon, delta : float
        The privacy loss; delta is 0 for Laplace noise and greater than 0 for Gaussian noise.
    schema : Schema, optional
        The one column to release, of a table that may have others, and what becomes of its missing values.
    outside : {"clip", "redact"}
        What becomes of records outside the bounds of an unbounded family: moved to the nearest bound, or left out.
    mechanism : {"laplace", "gaussian"}
        The noise.
    check : float, default 0.0
        The share of the privacy loss, such as 0.1, that a coarse histogram of the records takes: :func:`infer` then
        compares it with the family, and warns. It counts records before they are clipped, and in two cells more those
        below and above the bounds. Explained in :doc:`/book/exponential-families/is-the-family-right`.
    bounds_from : PrivateBounds, optional
        What :func:`private_bounds` returned, where the family's bounds are those: the release then says so, and what
        they cost. Their price is not part of epsilon.
    rng : numpy.random.Generator, optional
        Seeded teaching noise; None, the default, makes a real release.
    budget : PrivacyBudget, optional
        Charged before the noise is drawn.

    Returns
    -------
    Release
        With the noisy sums of the family's statistics as ``.values["sum"]``; with a check, too, the counts between the
        edges in its settings as ``["histogram"]``, and those below and above the bounds as ``["clipped"]``.

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook import expfam
    >>> noisy = expfam.release([1, 0, 0, 1], expfam.Binomial(), epsilon=1.0, rng=np.random.default_rng(0))
    >>> noisy["sum"].round(2), noisy.scale["sum"]
    (array([2.32]), 1.0)
    """
    if isinstance(data, Family):
        raise TypeError("data must come first, and the family after them: release(data, family, …)")
    require_family(family)
    one_of("outside", outside, OUTSIDE)
    epsilon, delta = privacy_loss(epsilon, delta, mechanism)
    origin = _origin_of_bounds(bounds_from, family)
    rng = seeded_generator(rng)
    plan = _Plan.of(family, outside, mechanism, check)
    data = described(data, schema).data
    on_sum = noise.on_sum(mechanism, plan.bound, epsilon, delta, rng, unit=plan.unit, statistics=plan.statistics)
    total = _sums(data, family, outside, plan)
    paid = charge(budget, epsilon, delta, label=f"{family.name} sum", **on_sum.loss)
    noisy, scale = on_sum.add(total)
    settings = {} if family.bounded else {"outside": outside}
    values, each = plan.named(noisy, total.n)
    made = Release(
        values=values,
        model=family.name,
        mechanism=mechanism,
        scale={name: scale / weight for name, weight in each.items()},
        sensitivity={name: plan.bound / weight for name, weight in each.items()},
        epsilon=epsilon,
        delta=delta,
        n=total.n,
        bounds={"x": family.bounds},
        settings={**family.settings, **settings, **origin, **plan.settings},
        centre={"sum": plan.centre} if plan.centre else {},
        float_safe=rng is None,
    )
    return paid.entered(made)


def release_randomized_response(
    data: Any,
    *,
    epsilon: float,
    rng: np.random.Generator | None = None,
    budget: PrivacyBudget | None = None,
) -> Release:
    """Release how many of the randomised responses to a yes-or-no question are "yes".

    epsilon-DP for replace-one neighbours, n public, and locally: every answer is flipped with odds 1 : e^epsilon before
    it is counted, so the collector never holds a true one. The count of reports is all that inference needs. Explained
    in :doc:`/book/background/after-a-release`.

    Parameters
    ----------
    data, rng, budget
        As in :func:`release`; the true answers, 0 or 1.
    epsilon : float
        The privacy loss of each answer.

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
    """
    epsilon, rng = positive("epsilon", epsilon), seeded_generator(rng)
    noise.require_flips(2, epsilon, rng)
    ones = _sums(data, Binomial(), "clip")
    paid = charge(budget, epsilon, 0.0, label="randomised response")
    # Answers are exchangeable, so flipping sorted ones gives the count the same law as flipping them in order.
    total = round(float(ones.values[0]))
    answers = np.repeat(np.array([1, 0], dtype=np.int64), [total, ones.n - total])
    reports = noise.flip(answers, 2, epsilon, rng)
    made = Release(
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
    return paid.entered(made)


def release_posterior_samples(
    data: Any,
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
    budget is used to sharpen it. Explained in :doc:`/book/exponential-families/information-bottleneck`.

    Parameters
    ----------
    data, rng, budget
        As in :func:`release`; records are clipped to the family's bounds.
    family, prior : Family, object
        A one-parameter family and its conjugate prior.
    epsilon : float
        The privacy loss of all draws together.
    support : (low, high)
        Where theta may lie, fixed without the data: the log likelihood must be bounded on it.
    count : int, default 1
        How many draws.
    grid : int, default 2001
        How many points the public grid over the support has.

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
    """
    require_family(family)
    if family.parameters != 1:
        raise ValueError(f"family must have one parameter, got {family!r}")
    family.check_prior(prior)
    epsilon, count = positive("epsilon", epsilon), integer("count", count, least=1)
    low, high = interval("support", support)
    if low <= prior.support[0] or high >= prior.support[1]:
        raise ValueError(f"support must lie strictly inside {prior.support}, got {support}")
    theta = np.linspace(low, high, integer("grid", grid, least=2))
    rng = seeded_generator(rng)
    _log_posterior_terms(family, prior, theta)
    noise.require_choice(1.0, epsilon, rng)
    total = _sums(data, family, "clip")
    utility, bound = _log_posterior(total, family, prior, theta)
    temperature = max(1.0, 2 * bound * count / epsilon)
    # choose() draws in proportion to exp(utility · ε'/(2Δ)); ε' = 2Δ/T is at most epsilon / count.
    each = 2 * bound / temperature
    noise.require_choice(bound, each, rng)
    paid = charge(budget, epsilon, 0.0, label=f"{family.name} posterior samples")
    drawn = [theta[noise.choose(utility, bound, each, rng)] for _ in range(count)]
    made = Release(
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
    return paid.entered(made)


def private_bounds(
    data: Any,
    *,
    public_range: tuple[float, float],
    epsilon: float,
    coverage: float = 0.95,
    rng: np.random.Generator | None = None,
    budget: PrivacyBudget | None = None,
) -> PrivateBounds:
    """Release bounds that hold about the middle ``coverage`` of the records, for use as a family's bounds.

    epsilon-DP for replace-one neighbours, n public: two private quantiles at epsilon / 2 each. The bounds are then
    random and depend on the data; inference that takes them as fixed is off by what they reveal. Explained in
    :doc:`/book/exponential-families/unbounded-statistics`.

    Parameters
    ----------
    data : array
        The records; infinite ones are clipped to the range. A missing value raises, and only the curator may see that.
    public_range : (low, high)
        Where records can lie at all, known without the data.
    epsilon : float
        The privacy loss of both bounds together.
    coverage : float, default 0.95
        The share of records to hold.
    rng, budget
        As in :func:`release`.

    Returns
    -------
    PrivateBounds
        (lower, upper), and what they cost as ``.epsilon``. Hand it on as ``release(…, bounds_from=…)``.

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook import expfam
    >>> x = np.random.default_rng(0).exponential(size=1000)
    >>> low, high = expfam.private_bounds(x, public_range=(0, 50), epsilon=1.0, rng=np.random.default_rng(2))
    >>> 0 <= low < 0.1 and 2 < high < 8
    True
    """
    tail = (1 - fraction("coverage", coverage)) / 2
    epsilon, rng = positive("epsilon", epsilon), seeded_generator(rng)
    noise_arguments(1.0, epsilon / 2)
    low, high = interval("public_range", public_range)
    if not math.isfinite(high - low):
        raise ValueError(f"public_range must be narrower: its width is not a finite number, got ({low}, {high})")
    noise.require_choice(1.0, epsilon / 2, rng)
    records = _held(data)
    charge(budget, epsilon, 0.0, label="private bounds")
    ends = sorted(
        private_quantile(records, q, bounds=(low, high), epsilon=epsilon / 2, rng=rng) for q in (tail, 1 - tail)
    )
    if ends[0] == ends[1]:  # on a real release's grid both can fall in one cell; bounds need a width
        ends = [low, high]
    return PrivateBounds(ends[0], ends[1], epsilon)


def _held(data: Any) -> Array:
    """Return the records of one column, all of them in memory; infinite ones are handed on, to be clipped."""
    found = list(as_chunks(data, infinite=True))
    if not found:
        raise ValueError("data must hold at least one record, got none")
    if found[0].shape[1] != 1:
        raise ValueError(f"data must have one column, got {found[0].shape[1]}")
    return np.concatenate(found)[:, 0]


def _origin_of_bounds(bounds_from: Any, family: Family) -> dict[str, float]:
    """Return the setting that says what private bounds cost; raise unless they are the family's."""
    if bounds_from is None:
        return {}
    if not isinstance(bounds_from, PrivateBounds):
        raise TypeError(f"bounds_from must be what private_bounds returned, got {bounds_from!r}")
    if tuple(bounds_from) != tuple(family.bounds):
        raise ValueError(f"bounds_from must be the bounds of the family, {family.bounds}; got {bounds_from!r}")
    return {"bounds_epsilon": bounds_from.epsilon}


class _Plan(NamedTuple):
    """What is summed, from public numbers: sums less a centre on a grid, and a weighted histogram if there is one."""

    centre: float
    unit: float
    bound: float  # the sensitivity of what is summed, rounded
    size: int  # of the sums
    cells: Bins | None = None
    weight: float = 0.0
    check: float = 0.0

    @classmethod
    def of(cls, family: Family, outside: str, mechanism: str, check: Any = 0.0) -> _Plan:
        """Return the plan of a release; raise where a check makes no sense."""
        norm = 1 if mechanism == "laplace" else 2
        own, (centre, unit) = family.sensitivity(outside, norm), _grid(family, outside)
        weight = cell_weight(check, own, mechanism)
        if not weight:
            whole = family.whole_numbers and unit <= 1
            return cls(centre, unit, own if whole else rounded(own, family.size, unit, norm), family.size)
        if family.bounded:
            raise ValueError(f"check must be 0 for {family!r}: its counts are all that a check could see; got {check}")
        cells, unit = bins_between(family.bounds, family.check_edges), max(unit, grid_unit(weight))
        joint = beside_histogram(own, cells=weight, norm=norm)
        bound = rounded(joint, family.size + len(cells.edges) + 1, unit, norm)
        return cls(centre, unit, bound, family.size, cells, weight, float(check))

    @property
    def statistics(self) -> int:
        """How many numbers are summed."""
        return self.size + (len(self.cells.edges) + 1 if self.cells else 0)

    @property
    def settings(self) -> dict[str, Any]:
        """What a release says of its check."""
        return {"check": self.check, "edges": self.cells.edges} if self.cells else {}

    def named(self, noisy: Array, n: int) -> tuple[dict[str, Array], dict[str, float]]:
        """Return the noisy numbers in the units of records and counts, by name, and what each was weighted by."""
        values, each = {"sum": noisy[: self.size] + n * self.centre}, {"sum": 1.0}
        if self.cells:
            counts = noisy[self.size :] / self.weight
            values |= {"histogram": counts[:-2], "clipped": counts[-2:]}
            each |= {"histogram": self.weight, "clipped": self.weight}
        return values, each


def _grid(family: Family, outside: str) -> tuple[float, float]:
    """Return what is subtracted from every released statistic before it is rounded, and the step of the grid.

    Both depend on public numbers alone. The grid has some 2³² steps over the largest magnitude that a rounded number
    can have, and for most bounds that is the width, give or take a factor. Where clipped statistics lie further from
    zero than 1024 times their width, the end nearest to zero is subtracted first, so that the grid follows the width.
    The subtraction is exact: both numbers are within a factor of two (Sterbenz). A redacted record adds 0, so that
    there the width reaches to 0.
    """
    low, high = family.inside_range
    if outside == "redact" or family.magnitude <= _NARROW * (high - low):
        return 0.0, grid_unit(family.magnitude)
    return (low if low > 0 else high), grid_unit(high - low)


def _report_sd(n: int, epsilon: float) -> float:
    """Return the standard deviation of the number of "yes" reports given the answers: sqrt(n t (1-t)), not 0."""
    return max(math.sqrt(n) * math.exp(-epsilon / 2) / (1 + math.exp(-epsilon)), sys.float_info.min)


def _log_posterior_terms(family: Family, prior: Any, theta: Array) -> tuple[Array, Array, Array]:
    """Return the log posterior's public parts on a grid: η from the middle of its range, A, and the log prior.

    An error here is about public numbers alone, so it may be raised; a later one would tell of the records.
    """
    eta, normaliser = family.natural(theta)
    terms = eta - (eta.max() + eta.min()) / 2, normaliser, np.asarray(prior.log_density(theta), dtype=float)
    if not all(np.isfinite(term).all() for term in terms) or np.abs(terms[0]).max() > 1e250 / max(
        family.magnitude, 1.0
    ):
        raise ValueError("support must be narrower: the log posterior is not a moderate number everywhere on it")
    return terms


def _log_posterior(total: ExactSum, family: Family, prior: Any, theta: Array) -> tuple[Array, float]:
    """Return the log posterior on a grid, up to a constant, and its sensitivity, with room for rounding."""
    eta, normaliser, log_prior = _log_posterior_terms(family, prior, theta)
    centre, _ = _grid(family, "clip")
    utility = log_prior + eta * (total.values[0] + total.n * centre) - total.n * normaliser
    change = _Plan.of(family, "clip", "laplace").bound
    # The utility is computed in floats: a few units in the last place of the largest number that can occur in it.
    largest = total.n * (np.abs(eta).max() * family.magnitude + np.abs(normaliser).max()) + np.abs(log_prior).max()
    return utility, float(np.abs(eta).max() * change * (1 + 1e-12) + 2.0**-48 * largest)


def _sums(data: Any, family: Family, outside: str, plan: _Plan | None = None) -> ExactSum:
    """Sum the family's released statistics exactly, less its centre, on its public grid; and the cells, weighted."""
    plan = _Plan.of(family, outside, "laplace") if plan is None else plan
    statistics = functools.partial(_statistics, family=family, outside=outside, plan=plan)
    return exact_sum(coded(data, family), statistics, unit=plan.unit, name="data")


def _statistics(rows: Array, *, family: Family, outside: str, plan: _Plan) -> Array:
    """Return what each record adds, within the range that the noise is for, whatever a family of one's own says."""
    if rows.shape[1] != 1:
        raise ValueError(f"data must have one column, got {rows.shape[1]}")
    span = family.inside_range if outside == "clip" else family.released_range
    released = np.clip(family.released(rows, outside), *span)
    if family.whole_numbers:
        released = np.rint(released)
    if plan.centre:
        released = released - plan.centre
    if plan.cells is None:
        return released
    cells = plan.cells.indicators(rows[:, 0])
    return np.hstack([released, plan.weight * cells[:, 1:-1], plan.weight * cells[:, [0, -1]]])
