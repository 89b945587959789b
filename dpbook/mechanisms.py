"""The mechanisms of chapter 1: functions that read exact numbers, spend budget, and return private ones.

Each checks its arguments, charges the budget, and only then draws noise. Each is private for replace-one neighbours
with n public, provided the sensitivity it is given is right; take sensitivities from :mod:`dpbook.sensitivity`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from fractions import Fraction
from typing import TypeVar, cast, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpbook import noise
from dpbook._validation import (
    at_least,
    finite_array,
    finite_number,
    flag,
    integer,
    interval,
    noise_arguments,
    present_array,
    seeded_generator,
    whole_array,
)
from dpbook.accounting import gaussian_loss, gaussian_scale
from dpbook.budget import PrivacyBudget, charge

__all__ = [
    "above_threshold",
    "exponential",
    "gaussian",
    "gaussian_scale",
    "geometric",
    "laplace",
    "private_quantile",
    "randomized_response",
]

T = TypeVar("T")

# Geometric noise is drawn in 64 bits; at this scale a draw beyond them has probability e^(-1024).
_WIDEST_GEOMETRIC = 2.0**53


@overload
def laplace(
    value: float,
    *,
    sensitivity: float,
    epsilon: float,
    rng: np.random.Generator | None = None,
    budget: PrivacyBudget | None = None,
    label: str = "laplace",
) -> float: ...
@overload
def laplace(
    value: Sequence[float] | NDArray[np.float64],
    *,
    sensitivity: float,
    epsilon: float,
    rng: np.random.Generator | None = None,
    budget: PrivacyBudget | None = None,
    label: str = "laplace",
) -> NDArray[np.float64]: ...
def laplace(
    value: ArrayLike,
    *,
    sensitivity: float,
    epsilon: float,
    rng: np.random.Generator | None = None,
    budget: PrivacyBudget | None = None,
    label: str = "laplace",
) -> float | NDArray[np.float64]:
    """Release a number or an array with Laplace noise of scale ``sensitivity / epsilon``.

    epsilon-DP for replace-one neighbours, n public. Explained in :doc:`/book/background/mechanisms`.

    Parameters
    ----------
    value : float or array
        The exact statistic. NaN and infinite values raise; only the curator may see that error.
    sensitivity : float
        Its L1 sensitivity: for an array, that of all entries together.
    epsilon : float
    rng : numpy.random.Generator, optional
        Seeded teaching noise; None, the default, draws floating-point-safe noise for a real release.
    budget, label : PrivacyBudget, optional, and str
        Charged before the noise is drawn, under this label.

    Returns
    -------
    float or ndarray
        The noisy value, of the same shape.

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook import PrivacyBudget
    >>> from dpbook.mechanisms import laplace
    >>> budget = PrivacyBudget(1.0)
    >>> noisy = laplace(42.0, sensitivity=1, epsilon=0.5, rng=np.random.default_rng(1), budget=budget)
    >>> round(noisy, 2), budget.remaining
    (42.05, 0.5)
    """
    array = finite_array("value", value)
    sensitivity, epsilon = noise_arguments(sensitivity, epsilon)
    rng = seeded_generator(rng)
    charge(budget, epsilon, 0.0, label=label)
    noisy, _ = noise.add_laplace(array, sensitivity, epsilon, rng)
    return float(noisy) if array.ndim == 0 else noisy


@overload
def geometric(
    value: int,
    *,
    epsilon: float,
    sensitivity: int = 1,
    rng: np.random.Generator | None = None,
    budget: PrivacyBudget | None = None,
    label: str = "geometric",
) -> int: ...
@overload
def geometric(
    value: Sequence[int] | NDArray[np.int64],
    *,
    epsilon: float,
    sensitivity: int = 1,
    rng: np.random.Generator | None = None,
    budget: PrivacyBudget | None = None,
    label: str = "geometric",
) -> NDArray[np.int64]: ...
def geometric(
    value: ArrayLike,
    *,
    epsilon: float,
    sensitivity: int = 1,
    rng: np.random.Generator | None = None,
    budget: PrivacyBudget | None = None,
    label: str = "geometric",
) -> int | NDArray[np.int64]:
    """Release a count, or an array of counts, with two-sided geometric noise: whole numbers stay whole.

    epsilon-DP for replace-one neighbours, n public. Explained in :doc:`/book/background/mechanisms`.

    Parameters
    ----------
    value : int or array of int
        The exact counts. A missing one, or one beyond 64 bits, raises; only the curator may see that error.
    sensitivity : int, default 1
        The counts' joint L1 sensitivity (2 for a histogram under replace-one).
    epsilon, rng, budget, label
        As in :func:`laplace`.

    Returns
    -------
    int or ndarray of int
        The noisy counts.

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook.mechanisms import geometric
    >>> geometric(42, epsilon=0.5, rng=np.random.default_rng(3))
    42
    """
    counts = whole_array("value", value)
    _, epsilon = noise_arguments(integer("sensitivity", sensitivity, least=1), epsilon, widest=_WIDEST_GEOMETRIC)
    rng = seeded_generator(rng)
    charge(budget, epsilon, 0.0, label=label)
    noisy = noise.add_geometric(counts, sensitivity, epsilon, rng)
    return int(noisy) if counts.ndim == 0 else noisy


@overload
def gaussian(
    value: float,
    *,
    sensitivity: float,
    epsilon: float,
    delta: float,
    rng: np.random.Generator | None = None,
    budget: PrivacyBudget | None = None,
    label: str = "gaussian",
) -> float: ...
@overload
def gaussian(
    value: Sequence[float] | NDArray[np.float64],
    *,
    sensitivity: float,
    epsilon: float,
    delta: float,
    rng: np.random.Generator | None = None,
    budget: PrivacyBudget | None = None,
    label: str = "gaussian",
) -> NDArray[np.float64]: ...
def gaussian(
    value: ArrayLike,
    *,
    sensitivity: float,
    epsilon: float,
    delta: float,
    rng: np.random.Generator | None = None,
    budget: PrivacyBudget | None = None,
    label: str = "gaussian",
) -> float | NDArray[np.float64]:
    """Release a number or an array with Gaussian noise, calibrated exactly by :func:`gaussian_scale`.

    (epsilon, delta)-DP for replace-one neighbours, n public. Explained in :doc:`/book/background/mechanisms`.

    Parameters
    ----------
    value, rng, budget, label
        As in :func:`laplace`.
    sensitivity : float
        Its L2 sensitivity: for an array, that of all entries together.
    epsilon, delta : float
        The privacy loss; delta in (0, 1).

    Returns
    -------
    float or ndarray
        The noisy value, of the same shape.

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook.mechanisms import gaussian
    >>> noisy = gaussian(np.zeros(2), sensitivity=1.0, epsilon=1.0, delta=1e-5, rng=np.random.default_rng(1))
    >>> noisy.round(2)
    array([1.29, 3.07])
    """
    array = finite_array("value", value)
    scale = gaussian_scale(sensitivity=sensitivity, epsilon=epsilon, delta=delta)
    rng = seeded_generator(rng)
    charge(budget, epsilon, delta, label=label, **gaussian_loss(sensitivity=sensitivity, scale=scale))
    noisy = noise.add_gaussian(array, scale, rng)
    return float(noisy) if array.ndim == 0 else noisy


def exponential(
    candidates: Sequence[T],
    utilities: ArrayLike,
    *,
    sensitivity: float,
    epsilon: float,
    rng: np.random.Generator | None = None,
    budget: PrivacyBudget | None = None,
    label: str = "exponential",
) -> T:
    """Release one candidate, drawn with probability proportional to ``exp(epsilon · utility / (2 sensitivity))``.

    epsilon-DP for replace-one neighbours, n public, provided the candidates are public. Explained in
    :doc:`/book/background/mechanisms`.

    Parameters
    ----------
    candidates : sequence
        The public outcomes, paired with the utilities by position.
    utilities : array
        One utility per candidate, computed from the data. NaN and infinite ones raise; only the curator may see that.
    sensitivity : float
        The most that any one utility can change between neighbours.
    epsilon, rng, budget, label
        As in :func:`laplace`.

    Returns
    -------
    object
        The candidate drawn.

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook.mechanisms import exponential
    >>> exponential(["red", "green"], [3, 40], sensitivity=1, epsilon=1.0, rng=np.random.default_rng(1))
    'green'
    """
    if not isinstance(candidates, Iterable) or isinstance(candidates, (Set, Mapping)):  # pairs go by position
        raise TypeError(f"candidates must be a sequence, in the order of utilities, got {candidates!r}")
    options, scores = list(candidates), finite_array("utilities", utilities, ndim=1)
    if len(options) != scores.size or scores.size == 0:
        raise ValueError(f"candidates must be as many as utilities, and at least 1: {len(options)} and {scores.size}")
    sensitivity, epsilon = noise_arguments(sensitivity, epsilon)
    rng = seeded_generator(rng)
    charge(budget, epsilon, 0.0, label=label)
    return options[noise.choose(scores, sensitivity, epsilon, rng)]


def above_threshold(
    queries: Iterable[float],
    threshold: float,
    *,
    sensitivity: float,
    epsilon: float,
    monotone: bool = False,
    rng: np.random.Generator | None = None,
    budget: PrivacyBudget | None = None,
    label: str = "above_threshold",
) -> int | None:
    """Return the index of the first query whose noisy answer is at least the noisy threshold, or None.

    The sparse vector technique: epsilon-DP for replace-one neighbours, n public, however many queries are asked
    before the first success. The threshold gets Laplace noise of scale 2Δ/ε, each query fresh noise of scale 4Δ/ε, or
    2Δ/ε when the queries are monotone (a change of record moves all of them in the same direction). Values are
    rounded to a grid of about Δ/2²⁰ and compared as whole numbers. Explained in
    :doc:`/book/background/sparse-vector-and-quantiles`.

    Parameters
    ----------
    queries : iterable of float
        The exact answers. May be a generator, which is read no further than the first success; what it yields is
        checked as it comes, after the budget is charged. NaN and infinite answers raise; only the curator may see that.
    threshold : float
        The public threshold.
    sensitivity : float
        The sensitivity of each single query.
    monotone : bool, default False
        Whether the queries all move in one direction between neighbours, as nested counts do.
    epsilon, rng, budget, label
        As in :func:`laplace`, for the whole search.

    Returns
    -------
    int or None
        The index, from 0; None when no query succeeds.

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook.mechanisms import above_threshold
    >>> above_threshold([3, 5, 80, 90], 40, sensitivity=1, epsilon=1.0, rng=np.random.default_rng(1))
    2
    """
    threshold = finite_number("threshold", threshold)
    sensitivity, epsilon = noise_arguments(sensitivity, epsilon)
    epsilon = at_least("epsilon", epsilon, 2.0**-30)  # below, the noise would not fit in 64 bits
    rng = seeded_generator(rng)
    flag("monotone", monotone)
    if not isinstance(queries, Iterator):
        queries = finite_array("queries", cast("ArrayLike", queries), ndim=1).tolist()
    charge(budget, epsilon, 0.0, label=label)
    unit = Fraction(2) ** (math.floor(math.log2(sensitivity)) - 20)
    # Rounding moves a query by half a step either way, so its sensitivity in steps is one larger than Δ/unit.
    sensitivity_in_steps = math.ceil(Fraction(sensitivity) / unit) + 1

    def noisy_steps(value: float, factor: int) -> int:
        # Steps above the public threshold. Clipping keeps them within 64 bits; it cannot raise a sensitivity.
        steps = round(Fraction(value) / unit) - round(Fraction(threshold) / unit)
        clipped = np.array([max(-(1 << 62), min(steps, 1 << 62))])
        return int(noise.add_geometric(clipped, factor * sensitivity_in_steps, epsilon / 2, rng)[0])

    bar = noisy_steps(threshold, 1)
    for index, query in enumerate(queries):
        if noisy_steps(finite_number("queries", query), 1 if monotone else 2) >= bar:
            return index
    return None


def private_quantile(
    values: ArrayLike,
    q: float,
    *,
    bounds: tuple[float, float],
    epsilon: float,
    grid: int = 1 << 14,
    rng: np.random.Generator | None = None,
    budget: PrivacyBudget | None = None,
    label: str = "private_quantile",
) -> float:
    """Release a quantile by the exponential mechanism on the gaps between the sorted values.

    epsilon-DP for replace-one neighbours, n public. The utility of a point is minus the distance of its rank from
    ``q n``, of sensitivity 1. With seeded noise a gap is drawn in proportion to its length times
    ``exp(epsilon · utility / 2)`` and the point uniformly within it; a real release draws among the midpoints of
    ``grid`` equal cells of the bounds. The rank ``q n`` is rounded to 1/256, so that utilities are exact floats.
    Explained in :doc:`/book/background/sparse-vector-and-quantiles`.

    Parameters
    ----------
    values : array
        The sensitive numbers; clipped to the bounds, infinite ones too. A missing value or text raises, and only the
        curator may see that error.
    q : float
        Between 0 and 1, both included.
    bounds : (low, high)
        Public bounds.
    grid : int, default 16384
        The number of cells of a real release.
    epsilon, rng, budget, label
        As in :func:`laplace`.

    Returns
    -------
    float
        A number within the bounds.

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook.mechanisms import private_quantile
    >>> ages = np.arange(20, 70)
    >>> round(private_quantile(ages, 0.5, bounds=(0, 100), epsilon=1.0, rng=np.random.default_rng(1)), 1)
    47.8
    """
    sample = present_array("values", values, ndim=1)
    if sample.size == 0:
        raise ValueError("values must hold at least one record")
    q = at_least("q", q, 0.0)
    if q > 1:
        raise ValueError(f"q must be at most 1, got {q}")
    low, high = interval("bounds", bounds)
    if not math.isfinite(high - low):
        raise ValueError(f"bounds must be closer together: their distance is not a finite number, got ({low}, {high})")
    (_, epsilon), grid = noise_arguments(1.0, epsilon), integer("grid", grid, least=2)
    rng = seeded_generator(rng)
    charge(budget, epsilon, 0.0, label=label)
    ordered = np.sort(np.clip(sample, low, high))
    target = round(q * sample.size * 256) / 256
    if rng is None:
        cells = low + (high - low) * (np.arange(grid) + 0.5) / grid
        utility = -np.abs(np.searchsorted(ordered, cells) - target)
        return float(cells[noise.choose(utility, 1.0, epsilon, None)])
    edges = np.concatenate([[low], ordered, [high]])
    utility = -np.abs(np.arange(sample.size + 1) - target)
    with np.errstate(divide="ignore"):  # an empty gap has log length -inf and is never drawn
        gap = int(np.argmax(np.log(np.diff(edges)) + epsilon * utility / 2 + rng.gumbel(size=utility.size)))
    return float(rng.uniform(edges[gap], edges[gap + 1]))


def randomized_response(
    answers: ArrayLike,
    *,
    epsilon: float,
    categories: int = 2,
    rng: np.random.Generator | None = None,
    budget: PrivacyBudget | None = None,
    label: str = "randomized_response",
) -> NDArray[np.int64]:
    """Let every person report the truth with odds ``e^epsilon : (categories - 1)``, otherwise another answer at random.

    epsilon-DP for replace-one neighbours, n public, and locally so: each report is private on its own, before anyone
    collects it. One person answers once, so the whole array costs epsilon. Explained in
    :doc:`/book/background/mechanisms`.

    Parameters
    ----------
    answers : array of int or bool
        Codes 0 … categories-1. A code outside, or a missing one, raises; only the curator may see that error.
    epsilon : float
        The privacy loss of each answer.
    categories : int, default 2
        How many answers there are, at most 2²⁰.
    rng, budget, label
        As in :func:`laplace`.

    Returns
    -------
    ndarray of int
        The reports.

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook.mechanisms import randomized_response
    >>> randomized_response([1, 1, 0, 0, 1], epsilon=1.0, rng=np.random.default_rng(2))
    array([1, 1, 1, 0, 1])
    """
    codes = whole_array("answers", answers, booleans=True)
    (_, epsilon), categories = noise_arguments(1.0, epsilon), integer("categories", categories, least=2)
    if codes.size and not (codes.min() >= 0 and codes.max() < categories):
        raise ValueError(f"answers must be codes 0 … {categories - 1}, got codes outside")
    rng = seeded_generator(rng)
    noise.require_flips(categories, epsilon, rng)
    charge(budget, epsilon, 0.0, label=label)
    return noise.flip(codes, categories, epsilon, rng)
