"""How far one record can move a sum: exact sensitivities from public bounds.

Chapter 1 explains sensitivity; the chapter on regression uses the moments. Every number here is for replace-one
neighbours with n public, is never below the true sensitivity (rational arithmetic, or a search with a proved bound,
rounded upwards), and depends on the bounds alone.

The moments rest on one fact. Let M be the end of each side of the box that lies farthest from zero, and m the other
end, signs flipped so that M > 0. Among all pairs of records, the change in *every* monomial at once is largest for
pairs (M, t) with t in [m, M], and is then M^a - t^a >= 0. With P(t) the sum of all monomials released, the L1
sensitivity is P(M) - min P(t), and the squared L2 sensitivity is the maximum of P(M²) - 2 P(M t) + P(t²).
"""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpbook._late import optimize
from dpbook._validation import at_least, finite_array, flag, fraction, integer, interval, positive

__all__ = [
    "answers_and_halves",
    "beside_histogram",
    "bounded_sum",
    "fourth_moments",
    "histogram",
    "jointly",
    "mean_and_shape",
    "mean_with_missing",
    "moments_by_cell",
    "of_few_records",
    "rounded",
    "second_moments",
]

Box = tuple[tuple[Fraction, ...], tuple[Fraction, ...]]

CELL_GAP = 1e-6  # the same for records in cells
GAP = 2e-9  # of the squared L2 sensitivity: the search stops when its bound is this close to a pair it has found
ROUNDING = 1e-11  # of the squared L2 sensitivity: far above what float64 can lose in the search
SEARCHED = 12  # records with more coordinates get the closed bounds only
WORK = 1e8  # multiplications the search may spend before it returns the bound that it has
BATCH = 500_000  # nodes times monomials in one NumPy call
_CHECK = (0.01, 0.5)  # of the privacy loss, for a histogram that only checks a model


# ---------------------------------------------------------------------------------------------------------------------
# What a caller uses


def histogram(tables: int = 1, *, norm: int = 1) -> float:
    """Sensitivity of the counts in one or several contingency tables of the same records.

    Replace-one neighbours, n public: in each table the replaced record leaves one cell and enters another. Explained in
    :doc:`/book/background/mechanisms`.

    Parameters
    ----------
    tables : int
        Number of tables released together.
    norm : {1, 2}
        L1 (for Laplace and geometric noise) or L2 (for Gaussian noise).

    Returns
    -------
    float
        2 per table in L1, the square root of that in L2.

    Examples
    --------
    >>> histogram(), histogram(tables=3), histogram(tables=2, norm=2)
    (2.0, 6.0, 2.0)
    """
    changed = Fraction(2 * integer("tables", tables, least=1))
    return _up(changed) if _norm(norm) == 1 else _root_up(changed)


def bounded_sum(lower: ArrayLike, upper: ArrayLike, *, norm: int = 1) -> float:
    """Sensitivity of a sum of records clipped to a box.

    Replace-one neighbours, n public: each coordinate of the sum moves by at most its own width. Explained in
    :doc:`/book/background/mechanisms`.

    Parameters
    ----------
    lower, upper : float or sequence of float
        The public bounds; a scalar beside a sequence holds for every coordinate.
    norm : {1, 2}
        L1 (for Laplace noise) or L2 (for Gaussian noise) of the vector of widths.

    Returns
    -------
    float
        The width for scalar bounds, else the norm of the widths.

    Examples
    --------
    >>> bounded_sum(0, 24), bounded_sum([0, -1], [3, 3]), bounded_sum([0, -1], [3, 3], norm=2)
    (24.0, 7.0, 5.0)
    """
    widths = [high - low for low, high in zip(*_bounds(lower, upper), strict=True)]
    return _up(sum(widths, Fraction())) if _norm(norm) == 1 else _root_up(sum((w * w for w in widths), Fraction()))


def second_moments(lower: ArrayLike, upper: ArrayLike, *, intercept: bool, norm: int = 1) -> float:
    """Exact sensitivity of the second moments of records in a box, released together.

    Replace-one neighbours, n public. A record u holds all covariates and the response. The statistics are the sums
    over records of u_i u_j for i <= j and, with an intercept, of u_i; n itself is public and carries no noise.
    Explained in :doc:`/book/background/mechanisms`.

    Parameters
    ----------
    lower, upper : float or sequence of float
        The public bounds of each coordinate; a scalar beside a sequence holds for every coordinate, two scalars
        describe a record of one number.
    intercept : bool
        Whether the first moments are released as well.
    norm : {1, 2}
        L1 (for Laplace noise) or L2 (for Gaussian noise).

    Returns
    -------
    float
        In L1 the exact value, rounded up to a float. In L2 the exact value, likewise, where no coordinate changes
        sign in the box, and on [-1, 1]^p (without an intercept on any [-c, c]^p); for other boxes of at most four
        coordinates the value to a relative 1e-9, from above (1e-7 where the maximum is nearly flat); for
        more coordinates an upper bound, as close as a few seconds of search bring it.

    Notes
    -----
    L1: with a common level s, the record t_i = clip(s, m_i, M_i) minimises the convex P of the module's docstring;
    s is the root of the increasing function iota + s + sum_i clip(s, m_i, M_i), iota = 1 with an intercept, else 0.

    Examples
    --------
    >>> second_moments([0, 0], [1, 1], intercept=True), second_moments([1, 1], [2, 2], intercept=False)
    (5.0, 9.0)
    >>> print(*(f"{second_moments([-1, -1], [1, 1], intercept=True, norm=norm):.4f}" for norm in (1, 2)))
    5.3333 2.8284
    """
    box = _folded(lower, upper)
    moments = _Moments(len(box[0]), (1, 2) if flag("intercept", intercept) else (2,))
    return _l1(moments, box) if _norm(norm) == 1 else _l2(moments, box)


def fourth_moments(
    lower: ArrayLike, upper: ArrayLike, *, intercept: bool = True, response: bool = True, norm: int = 1
) -> float:
    """Sensitivity of the second moments of records and the fourth moments of their covariates, released together.

    Replace-one neighbours, n public. A record holds the covariates x and, last, the response y. The statistics are
    those of :func:`second_moments` for (x, y) and the unique monomials of x that these lack: of degree three and
    four with an intercept (the fourth moments of (1, x)), of degree four without. Explained in
    :doc:`/book/background/mechanisms`.

    Parameters
    ----------
    lower, upper, norm
        As in :func:`second_moments`; the bounds of the response come last.
    intercept : bool
        Whether the regression has an intercept.
    response : bool
        False for the fourth moments alone: the record holds covariates only, and the statistics are its monomials
        of degree one to four (without an intercept, of degree four).

    Returns
    -------
    float
        In L1 the value to a relative 1e-9 or better, from above, for any number of covariates: a convex programme.
        In L2 exact where no coordinate changes sign in the box; to a relative 1e-9 from above for records of at most
        four coordinates (1e-7 where the maximum is nearly flat); for more coordinates an upper bound.

    Examples
    --------
    >>> print(f"{fourth_moments([-1, -1], [1, 1]):.6f}", fourth_moments(1, 2, response=False))
    7.375000 26.0
    """
    box = _folded(lower, upper)
    size, with_intercept = len(box[0]), flag("intercept", intercept)
    if not flag("response", response):
        moments = _Moments(size, (1, 2, 3, 4) if with_intercept else (4,))
    elif size < 2:
        raise ValueError("lower and upper must hold bounds of at least one covariate and, last, the response")
    else:
        moments = _Moments(size, (1, 2), (3, 4)) if with_intercept else _Moments(size, (2,), (4,))
    return _l1(moments, box) if _norm(norm) == 1 else _l2(moments, box)


def mean_and_shape(*, squares: float, cells: float, norm: int = 1) -> float:
    """Exact sensitivity of the sum, the weighted sum of squares and a weighted histogram of records in [-1, 1].

    Replace-one neighbours, n public. A record u has the statistics u, ``squares`` times u², and ``cells`` times the
    indicator of the histogram's cell that it lies in, where -1 and 1 lie in different cells. Explained in
    :doc:`/book/exponential-families/a-mean-that-assumes-little`.

    Parameters
    ----------
    squares : float
        The weight of u²: up to 1/2 in L1, up to √2 in L2, where it costs nothing. A larger one is refused.
    cells : float
        The weight of the histogram, 0 where there is none.
    norm : {1, 2}
        L1 (for Laplace noise) or L2 (for Gaussian noise).

    Returns
    -------
    float
        2 + 2 cells in L1, the root of 4 + 2 cells² in L2: -1 and 1 differ most, whatever the cells.

    Notes
    -----
    With d = ``|u - u'|`` we have ``|u + u'|`` ≤ 2 - d, so that the first two statistics move by at most
    d + squares d (2 - d) in L1, which increases up to d = 2 if squares ≤ 1/2, and likewise in L2.

    Examples
    --------
    >>> mean_and_shape(squares=0.5, cells=0.25), mean_and_shape(squares=1.0, cells=4.0, norm=2)
    (2.5, 6.0)
    """
    free = Fraction(at_least("squares", squares, 0))
    if free > Fraction(1, 2) if _norm(norm) == 1 else free**2 > 2:
        raise ValueError(f"squares must be at most {'1/2' if norm == 1 else 'the root of 2'}, got {squares}")
    weight = Fraction(at_least("cells", cells, 0))
    return _up(2 + 2 * weight) if norm == 1 else _root_up(4 + 2 * weight**2)


def mean_with_missing(*, squares: float, cells: float, missing: float, norm: int = 1) -> float:
    """Exact sensitivity of :func:`mean_and_shape`'s statistics where a record may also be missing, and is counted then.

    Replace-one neighbours, n public. A missing record has no value, square or cell, and ``missing`` in the weighted
    count of such records. Explained in :doc:`/book/exponential-families/quantiles-with-intervals`.

    Parameters
    ----------
    squares, cells, norm
        As in :func:`mean_and_shape`.
    missing : float
        The weight of the count of missing records: up to 1 - squares + cells in L1 it costs nothing.

    Returns
    -------
    float
        The larger of two moves: from one end of the bounds to the other, and from an end to missing.

    Examples
    --------
    >>> [mean_with_missing(squares=0.5, cells=0.25, missing=weight) for weight in (0.75, 1.0)]
    [2.5, 2.75]
    """
    there = mean_and_shape(squares=squares, cells=cells, norm=norm)
    weights = [
        Fraction(at_least(name, w, 0)) for name, w in (("squares", squares), ("cells", cells), ("missing", missing))
    ]
    if norm == 1:
        return max(there, _up(sum(weights, Fraction(1))))
    return max(there, _root_up(sum((weight**2 for weight in weights), Fraction(1))))


def beside_histogram(sensitivity: float, *, cells: float, norm: int = 1) -> float:
    """Exact sensitivity of sums and of a weighted histogram of the same records, released together.

    Replace-one neighbours, n public. A replaced record moves the sums by at most ``sensitivity`` and leaves one cell
    for another, whose two counts move by ``cells`` each. A record that is divided among several cells, in parts that
    add up to one, moves them by no more. It is attained where two records that move the sums the most can lie in
    different cells; else it is an upper bound. Explained in :doc:`/book/exponential-families/is-the-family-right`.

    Parameters
    ----------
    sensitivity : float
        Of the sums alone, in the same norm.
    cells : float
        The weight of the histogram, greater than 0.
    norm : {1, 2}
        L1 (for Laplace noise) or L2 (for Gaussian noise).

    Returns
    -------
    float
        sensitivity + 2 cells in L1, the root of sensitivity² + 2 cells² in L2.

    Examples
    --------
    >>> beside_histogram(20.0, cells=1.5), beside_histogram(1.0, cells=2.0, norm=2)
    (23.0, 3.0)
    """
    own, weight = Fraction(at_least("sensitivity", sensitivity, 0)), Fraction(positive("cells", cells))
    return _up(own + 2 * weight) if _norm(norm) == 1 else _root_up(own**2 + 2 * weight**2)


def check_share(check: Any) -> float:
    """Return the share of the privacy loss that a histogram beside sums takes, checked; 0 where there is none."""
    if check is None or (not isinstance(check, bool) and check == 0):
        return 0.0
    share = fraction("check", check)
    if not _CHECK[0] <= share <= _CHECK[1]:
        raise ValueError(f"check must be 0 or lie between {_CHECK[0]} and {_CHECK[1]}, got {check}")
    return share


def cell_weight(check: Any, sensitivity: float, mechanism: str) -> float:
    """Return the weight of a histogram that takes a share ``check`` of the loss beside sums of this sensitivity; or 0.

    That is the share 2w / (Δ + 2w) of the L1 sensitivity, or 2w² / (Δ² + 2w²) of the squared L2 sensitivity.
    """
    share = check_share(check)
    half_odds = share / (1 - share) / 2
    return sensitivity * (half_odds if mechanism == "laplace" else math.sqrt(half_odds))


def jointly(sensitivities: Sequence[float], *, weights: Sequence[float] | None = None, norm: int = 1) -> float:
    """Sensitivity of several weighted statistics of the same records, released together, from that of each.

    Replace-one neighbours, n public. It is attained where one pair of records can move all of them the most, as it can
    when they are of different columns; else it is an upper bound. Explained in
    :doc:`/book/any-model/if-you-can-simulate-it`.

    Parameters
    ----------
    sensitivities : sequence of float
        Of each statistic alone, in the same norm.
    weights : sequence of float, optional
        What each statistic is multiplied by; by default 1.
    norm : {1, 2}
        L1 (for Laplace noise) or L2 (for Gaussian noise).

    Returns
    -------
    float
        Their weighted sum in L1, the root of the weighted sum of their squares in L2.

    Examples
    --------
    >>> jointly([2.0, 2.25]), jointly([3.0, 2.0], weights=[1.0, 2.0], norm=2)
    (4.25, 5.0)
    """
    factors = [1.0] * len(sensitivities) if weights is None else weights
    parts = [
        Fraction(at_least(f"sensitivities[{i}]", each, 0)) * Fraction(positive(f"weights[{i}]", weight))
        for i, (each, weight) in enumerate(zip(sensitivities, factors, strict=True))
    ]
    if _norm(norm) == 1:
        return _up(sum(parts, Fraction()))
    return _root_up(sum((each * each for each in parts), Fraction()))


def of_few_records(values: ArrayLike, *, norm: int = 1) -> float:
    """Exact sensitivity of any statistics of records that can take a few values only, all of which are given.

    Replace-one neighbours, n public: the largest distance between the statistics of two records, over all pairs.
    Explained in :doc:`/book/any-model/if-you-can-simulate-it`.

    Parameters
    ----------
    values : array_like (records, k)
        The statistics of every record that there can be.
    norm : {1, 2}
        L1 (for Laplace noise) or L2 (for Gaussian noise).

    Returns
    -------
    float
        Rounded upwards by a relative 1e-12, more than float64 can lose on the way.

    Examples
    --------
    >>> print(f"{of_few_records([[0, 0], [1, 0], [1, 1]]):.6f}", f"{of_few_records([[0, 0], [3, 4]], norm=2):.6f}")
    2.000000 5.000000
    """
    table = finite_array("values", values, ndim=2)
    if not table.size:
        raise ValueError("values must hold the statistics of one record or more, got none")
    rows = max(1, BATCH // table.size)
    largest = 0.0
    for start in range(0, len(table), rows):
        change = np.abs(table[start : start + rows, None] - table)
        distance = change.sum(axis=2) if _norm(norm) == 1 else np.sqrt((change**2).sum(axis=2))
        largest = max(largest, float(distance.max()))
    return largest * (1 + 1e-12)


def answers_and_halves(questions: int = 1, *, halves: float) -> float:
    """Exact L1 sensitivity of partitions' answers, their squares, differences from halves, and failures, summed.

    Replace-one neighbours, n public: a replaced record changes one partition. For each question a partition has the
    statistics a in [-1, 1], a²/2, ``halves`` times d and half of that times d², with d in [-1, 1]; and once the weight
    ``questions`` (1 + ``halves``)/2 if it failed, with zeros for everything else. Explained in
    :doc:`/book/sample-and-aggregate/when-parts-differ`.

    Parameters
    ----------
    questions : int
        How many questions each partition answers.
    halves : float
        The weight of the differences from halves, greater than 0.

    Returns
    -------
    float
        2 questions (1 + halves): squares and failures cost nothing.

    Notes
    -----
    With δ = ``|a - a'|`` we have ``|a + a'|`` ≤ 2 - δ, so that a and a²/2 together move by at most
    δ + δ (2 - δ)/2, which increases up to 2 at δ = 2. A partition that fails moves them by at most 3/2, d and d² by
    3/2 of their weight, and the last statistic by the half that is left.

    Examples
    --------
    >>> answers_and_halves(halves=0.25), answers_and_halves(3, halves=0.25)
    (2.5, 7.5)
    """
    count = integer("questions", questions, least=1)
    return _up(2 * count * (1 + Fraction(positive("halves", halves))))


def moments_by_cell(by_cell: ArrayLike, overall: ArrayLike, *, norm: int = 1) -> float:
    """Sensitivity of sums of monomials of records that also lie in cells, some summed cell by cell, some in all.

    Replace-one neighbours, n public. A record is a cell, one of at least two, and a point u of [-1, 1]^p, of which
    nothing ties one to the other. A monomial u^a with exponents a is summed cell by cell, or over all records; a row of
    zeros is the constant 1, whose sums by cell are the counts. Explained in :doc:`/book/regression/categories`.

    Parameters
    ----------
    by_cell, overall : array_like of int, shape (monomials, p)
        The exponents of either kind, from 0 to 4; one of the two may be empty.
    norm : {1, 2}
        L1 (for Laplace noise) or L2 (for Gaussian noise).

    Returns
    -------
    float
        Exact, rounded up to a float, where the counts and first moments are by cell and all second moments overall (in
        L1 2 + p (p + 3) / 2 and a term of its own, in L2 the root of 2 + 2 p + 4 floor(p²/4)). For other monomials the
        value to a relative 1e-6, from above; with many coordinates an upper bound, as close as a few seconds of search
        bring it.

    Notes
    -----
    Flipping signs, and dividing the smaller of two coordinates by the larger one, moves no statistic less: two
    records in different cells differ the most where one is (1, …, 1). With t the other, a monomial by cell moves by
    1 + ``|t^a|``, one overall by 1 - t^a.

    Examples
    --------
    Seven regions and a response: counts and sums of y by region, and the sum of y².

    >>> from dpbook.sensitivity import moments_by_cell, second_moments
    >>> moments_by_cell([[0], [1]], [[2]]), moments_by_cell([[0], [1]], [[2]], norm=2)
    (4.25, 2.0)
    >>> second_moments([-1] * 7, [1] * 7, intercept=True)  # the six dummies as numbers
    35.4375
    """
    apart, common = _exponents("by_cell", by_cell), _exponents("overall", overall)
    size = max(apart.shape[1], common.shape[1])
    apart, common = (each if len(each) else np.zeros((0, size), dtype=np.int64) for each in (apart, common))
    if size == 0 or apart.shape[1] != common.shape[1]:
        raise ValueError(
            f"by_cell and overall must have a column for each coordinate, got {apart.shape} and {common.shape}"
        )
    first = np.concatenate([np.zeros((1, size), dtype=np.int64), np.eye(size, dtype=np.int64)])
    if _same_rows(apart, first) and _same_rows(common, _Moments(size, (2,)).exponents()):
        if _norm(norm) == 1:
            return _up(2 + Fraction(size * (size + 3), 2) + max(_opposed(g, size - g) for g in range(size + 1)))
        return _root_up(Fraction(2 + 2 * size + 4 * (size * size // 4)))
    if _norm(norm) == 1:
        return _up(Fraction(_largest_change(apart, common, 1)))
    nothing = np.zeros((0, size), dtype=np.int64)
    either = [_largest_change(apart, common, 2), _largest_change(nothing, np.concatenate([apart, common]), 2)]
    return _root_up(Fraction(max(either)))


def rounded(sensitivity: float, statistics: int, unit: float, norm: int = 1) -> float:
    """Sensitivity of a sum after each record's statistics were rounded to multiples of ``unit``.

    Replace-one neighbours, n public. Rounding moves each of the two records' values by at most half a unit, so that
    the difference between them grows by at most one unit per statistic. Explained in
    :doc:`/book/background/where-privacy-breaks`.

    Parameters
    ----------
    sensitivity, norm : float, {1, 2}
        Sensitivity of the sum before rounding, and its norm.
    statistics : int
        How many statistics each record contributes.
    unit : float
        Step of the grid.

    Returns
    -------
    float
        The sensitivity plus ``statistics * unit`` in L1, plus ``sqrt(statistics) * unit`` in L2. The slack is
        stretched by 2**-18 for products that float64 has rounded before they meet the grid; that is enough for up to
        four factors and for values of at most 2**32 units, as :mod:`dpbook.records` makes them.

    Examples
    --------
    >>> print(f"{rounded(2.0, 3, 0.25):.4f}", f"{rounded(2.0, 4, 0.25, norm=2):.4f}")
    2.7500 2.5000
    """
    exact = Fraction(at_least("sensitivity", sensitivity, 0))
    count = integer("statistics", statistics, least=1)
    step = Fraction(positive("unit", unit)) * (1 + Fraction(1, 2**18))
    return _up(exact + step * (count if _norm(norm) == 1 else Fraction(_root_up(Fraction(count)))))


# ---------------------------------------------------------------------------------------------------------------------
# Arguments and rounding upwards


def _norm(norm: int) -> int:
    if integer("norm", norm) not in (1, 2):
        raise ValueError(f"norm must be 1 or 2, got {norm}")
    return int(norm)


def _bounds(lower: ArrayLike, upper: ArrayLike) -> Box:
    """Return the ends of each side of the box as exact rational numbers."""
    lows, highs = finite_array("lower", lower), finite_array("upper", upper)
    if max(lows.ndim, highs.ndim) > 1 or (lows.ndim == highs.ndim == 1 and lows.shape != highs.shape):
        raise ValueError(
            f"lower and upper must be numbers or sequences of one length, got shapes {lows.shape} and {highs.shape}"
        )
    lows, highs = np.broadcast_arrays(np.atleast_1d(lows), np.atleast_1d(highs))
    if lows.size == 0:
        raise ValueError("lower and upper must hold at least one bound, got none")
    sides = [
        interval(f"(lower[{i}], upper[{i}])", side)
        for i, side in enumerate(zip(lows.tolist(), highs.tolist(), strict=True))
    ]
    return tuple(Fraction(low) for low, _ in sides), tuple(Fraction(high) for _, high in sides)


def _folded(lower: ArrayLike, upper: ArrayLike) -> Box:
    """Return the ends (m, M) of each side, flipped so that M is positive and at least as far from zero as m."""
    sides = list(zip(*_bounds(lower, upper), strict=True))
    near, far = zip(*((low, high) if abs(low) <= abs(high) else (-high, -low) for low, high in sides), strict=True)
    if not (min(far) >= 1e-25 and max(far) <= 1e25):  # so that eighth powers, which L2 needs, are ordinary floats
        raise ValueError(
            "lower and upper must reach between 1e-25 and 1e25 in magnitude on every side: rescale the data"
        )
    return near, far


def _up(exact: Fraction) -> float:
    """Return the least float at or above ``exact``."""
    try:
        nearest = float(exact)
    except OverflowError:
        raise ValueError("the sensitivity exceeds the largest float: lower and upper are too far apart") from None
    return nearest if Fraction(nearest) >= exact else math.nextafter(nearest, math.inf)


def _root_up(square: Fraction) -> float:
    """Return a float at or just above the square root of ``square``; the root itself where that is a float."""
    # By a power of four near 1 first, where no square is too large or too small for a float.
    power = (square.numerator.bit_length() - square.denominator.bit_length()) // 2
    square /= Fraction(4) ** power
    root = math.sqrt(_up(square))
    below = math.nextafter(root, 0.0)
    root = below if Fraction(below) ** 2 >= square else root
    root = root if Fraction(root) ** 2 >= square else math.nextafter(root, math.inf)
    return _up(Fraction(root) * Fraction(2) ** power)


# ---------------------------------------------------------------------------------------------------------------------
# The sum P of all released monomials


def _complete(values: Any, degree: int) -> list[Any]:
    """Return the complete homogeneous polynomials h_0 … h_degree: h_k is the sum of all monomials of degree k."""
    sums: list[Any] = [1] + [0] * degree
    for value in values:
        for k in range(1, degree + 1):
            sums[k] = sums[k] + value * sums[k - 1]
    return sums


@dataclass(frozen=True)
class _Moments:
    """The monomials of a record that are released, and P, their sum.

    All monomials whose degree is in ``degrees``, and those of the covariates (every coordinate but the last) whose
    degree is in ``higher``. Values may be floats, rationals, or columns of an array. P is convex for every choice
    made in this module: h_k(x) = E[Z^k]/k! with Z = sum_i x_i E_i and independent standard exponential E_i, and
    z + z²/2 + z³/6 + z⁴/24 has second derivative 1 + z + z²/2 >= 1/2.
    """

    size: int
    degrees: tuple[int, ...]
    higher: tuple[int, ...] = ()

    def _parts(self) -> list[tuple[int, tuple[int, ...]]]:
        return [(self.size, self.degrees), (self.size - 1, self.higher)][: 2 if self.higher else 1]

    def total(self, values: Any) -> Any:
        """Return P(values)."""
        parts = [(_complete(values[:count], max(degrees)), degrees) for count, degrees in self._parts()]
        return sum(sums[k] for sums, degrees in parts for k in degrees)

    def gradient(self, values: Any) -> list[Any]:
        """Return the partial derivatives of P: that of h_k in x_i is the sum over j < k of x_i^j h_(k-1-j)."""
        slopes: list[Any] = [0] * self.size
        for count, degrees in self._parts():
            sums = _complete(values[:count], max(degrees))
            for i, value in enumerate(values[:count]):
                slopes[i] = slopes[i] + sum(value**j * sums[k - 1 - j] for k in degrees for j in range(k))
        return slopes

    def remainder(self, values: Any, steps: Any) -> Any:
        """Return P(values + steps) - P(values) - gradient · steps, term by term: no cancellation for values >= 0."""
        beyond: Any = 0
        for count, degrees in self._parts():
            table: list[list[Any]] = [[1], *([0] * (k + 1) for k in range(1, max(degrees) + 1))]
            for value, step in zip(values[:count], steps[:count], strict=True):
                for k in range(1, len(table)):  # table[k][j] is the coefficient of e^j in h_k(values + e steps)
                    for j in range(k):
                        table[k][j] = table[k][j] + value * table[k - 1][j]
                        table[k][j + 1] = table[k][j + 1] + step * table[k - 1][j]
            beyond = beyond + sum(sum(table[k][2:]) for k in degrees)
        return beyond

    def curvature(self) -> NDArray[np.float64]:
        """Return a diagonal matrix below the Hessian of P everywhere (h_2 alone has Hessian I + 11')."""
        if 3 in self.degrees or 3 in self.higher:  # E[E E' (1 + Z + Z²/2)] >= (I + 11')/2; the response uses up 11'/2
            return np.where(np.arange(self.size) < self.size - bool(self.higher), 0.5, 0.0)
        return np.full(self.size, 1.0 if 2 in self.degrees else 0.0)

    def exponents(self) -> NDArray[np.int64]:
        """Return one row of exponents for each monomial."""
        rows = [
            np.bincount(chosen, minlength=self.size)
            for count, degrees in self._parts()
            for k in degrees
            for chosen in itertools.combinations_with_replacement(range(count), k)
        ]
        return np.array(rows, dtype=np.int64)


# ---------------------------------------------------------------------------------------------------------------------
# L1: a convex programme


def _l1(moments: _Moments, box: Box) -> float:
    """Return P(M) - min P(t), rounded up."""
    if moments.degrees[-1] == 2 and not moments.higher:
        return _up(moments.total(box[1]) - moments.total(_level_record(box, int(1 in moments.degrees))))
    return _up(moments.total(box[1]) - _least_total(moments, box))


def _level_record(box: Box, iota: int) -> tuple[Fraction, ...]:
    """Return the t in [m, M] that minimises iota Σ t_i + Σ_{i<=j} t_i t_j, exactly.

    Where t_i is inside its side, iota + t_i + Σ t = 0: the free coordinates share one level s, the root of the
    increasing, piecewise linear iota + s + Σ clip(s, m_i, M_i).
    """

    def excess(level: Fraction) -> Fraction:
        return iota + level + sum(min(max(level, low), high) for low, high in zip(*box, strict=True))

    corners = sorted(set(box[0] + box[1]))
    start = corners[max(bisect.bisect_right(corners, Fraction(0), key=excess) - 1, 0)]
    free = sum(low <= start < high for low, high in zip(*box, strict=True)) if excess(start) <= 0 else 0
    level = start - excess(start) / (1 + free)
    return tuple(min(max(level, low), high) for low, high in zip(*box, strict=True))


def _least_total(moments: _Moments, box: Box) -> Fraction:
    """Return a lower bound of P on the box: the tangent at a numerical minimum, in exact arithmetic.

    A convex function lies above its tangents, and a linear function is least at a corner.
    """
    near, far = (np.array([float(end) for end in ends]) for ends in box)
    size = moments.total(far)

    def scaled(point: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        values = far * point
        return moments.total(values) / size, far * np.array(moments.gradient(values)) / size

    start = np.maximum(near / far, 0.0)
    options = {"ftol": 0.0, "gtol": 1e-15, "maxiter": 300, "maxcor": 30}
    found = optimize.minimize(
        scaled, start, jac=True, method="L-BFGS-B", bounds=[(s, 1.0) for s in near / far], options=options
    )
    point = [min(max(Fraction(x), low), high) for x, low, high in zip((far * found.x).tolist(), *box, strict=True)]
    slack = sum(
        min(slope * (low - x), slope * (high - x))
        for slope, x, low, high in zip(moments.gradient(point), point, *box, strict=True)
    )
    return Fraction(moments.total(point) + slack)


# ---------------------------------------------------------------------------------------------------------------------
# L2: closed forms where there are any, else branch and bound


def _l2(moments: _Moments, box: Box) -> float:
    """Return the root of the maximum of G(t) = P(M²) - 2 P(M t) + P(t²), or of an upper bound, rounded up."""
    near, far = box
    iota = int(1 in moments.degrees)
    second_only = max(moments.degrees + moments.higher) == 2
    if min(near) >= 0:  # every monomial falls as t does
        return _root_up(_squared_distance(moments, far, near))
    if second_only and len(set(far)) == 1 and all(low == -far[0] for low in near) and (far[0] == 1 or not iota):
        # On the cube the q = p + iota coordinates of (1, u) reach q² when q is even, q² - 1 when it is odd.
        q = moments.size + iota
        return _root_up(far[0] ** 4 * (q * q - (q % 2 if q > 1 else 0)))
    bounds = [_sum_of_ranges(moments, box), _convex_bound(moments, box)]
    if second_only:
        bounds.append(Fraction(iota + sum(end * end for end in far)) ** 2)  # |z|⁴, z = (1, M)
    if moments.size <= SEARCHED:
        bounds.append(Fraction(_search(moments, box)))
    return _root_up(min(bounds))


def _squared_distance(moments: _Moments, far: Sequence[Fraction], record: Sequence[Fraction]) -> Fraction:
    """Return G(t), the squared L2 distance between the statistics of the records M and t."""
    pairs = list(zip(far, record, strict=True))
    squares, products, others = [a * a for a, _ in pairs], [a * b for a, b in pairs], [b * b for _, b in pairs]
    return Fraction(moments.total(squares) - 2 * moments.total(products) + moments.total(others))


def _sum_of_ranges(moments: _Moments, box: Box) -> Fraction:
    """Bound G by the squared range of each monomial, summed."""
    near, far = (np.array([float(end) for end in ends]) for ends in box)
    powers = moments.exponents()
    # Factors lie in [low, high] with |low| <= high, so a product that can be negative is least with one factor low.
    ratio = np.min(near**powers / far**powers, axis=1)
    one_signed = _changes(powers, far, (far - np.maximum(near, 0.0))[np.newaxis])[0]
    ranges = np.where(ratio < 0, np.prod(far**powers, axis=1) * (1 - ratio), one_signed)
    return Fraction(float(np.sum(ranges**2))) * (1 + Fraction(ROUNDING))


def _convex_bound(moments: _Moments, box: Box) -> Fraction:
    """Bound G by 2 (P(M²) - min P(M t)), since P(t²) <= P(M²)."""
    near, far = box
    squares = tuple(end * end for end in far)
    products = tuple(low * high for low, high in zip(near, far, strict=True))
    return Fraction(2 * (moments.total(squares) - _least_total(moments, (products, squares))))


@lru_cache(maxsize=256)
def _search(moments: _Moments, box: Box) -> float:
    """Bound the maximum of G on the box by branch and bound over the step M - t, best nodes first."""
    near, far = (np.array([float(end) for end in ends]) for ends in box)
    powers = moments.exponents()
    centre = radius = ((far - near) / 2)[np.newaxis]
    bound, split, found = _node_bounds(moments, powers, far, centre, radius)
    budget, batch = WORK / powers.size / moments.size, max(1, min(1024, BATCH // len(powers)))
    while bound.max(initial=0.0) > (1 + GAP) * found and budget > 0:
        best = np.argsort(-bound)[:batch]
        rest = np.setdiff1d(np.arange(len(bound)), best)
        half = radius[best]
        half[np.arange(len(best)), split[best]] /= 2
        move = np.where(np.arange(moments.size) == split[best, np.newaxis], half, 0.0)
        centres, halves = np.concatenate([centre[best] - move, centre[best] + move]), np.concatenate([half, half])
        bounds, splits, reached = _node_bounds(moments, powers, far, centres, halves)
        budget -= len(centres)
        found = max(found, reached)
        centre, radius = np.concatenate([centre[rest], centres]), np.concatenate([radius[rest], halves])
        bound, split = np.concatenate([bound[rest], bounds]), np.concatenate([split[rest], splits])
        kept = bound > (1 + GAP) * found
        centre, radius, bound, split = centre[kept], radius[kept], bound[kept], split[kept]
    return max(float(bound.max(initial=0.0)), (1 + GAP) * found) * (1 + ROUNDING)


def _node_bounds(
    moments: _Moments,
    powers: NDArray[np.int64],
    far: NDArray[np.float64],
    centre: NDArray[np.float64],
    radius: NDArray[np.float64],
) -> tuple[NDArray[np.float64], NDArray[np.int64], float]:
    """Bound G on each node |step - centre| <= radius; name the side to split; return the largest G seen.

    With c the record at the centre and d the way from it, convexity gives -2 P(M t) <= its tangent - Σ k_i M_i² d_i²
    (k the curvature), and t² = c² + 2 c d + d² gives P(t²) <= its tangent + Σ P_i(c²) d_i² + remainder.
    """
    record, changes = far - centre, _changes(powers, far, centre)
    value, slope = np.sum(changes**2, axis=1), _slope(powers, record, changes)
    corner = np.sum(_changes(powers, far, centre + np.sign(slope) * radius) ** 2, axis=1)
    square, spread = record**2, 2 * np.abs(record) * radius + radius**2
    tangent, beyond = _columns(moments.gradient(square.T)), _columns(moments.gradient((square + spread).T))
    steep, bend = np.abs(slope), tangent - moments.curvature() * far**2
    # The largest of steep d + bend d² over 0 <= d <= radius: at the end, or at the top of a parabola that bends down.
    inside = (bend < 0) & (steep < -2 * bend * radius)
    rise = np.where(inside, steep**2 / np.where(inside, -4 * bend, 1.0), (steep + bend * radius) * radius)
    bound = value + rise.sum(axis=1) + moments.remainder(square.T, spread.T)
    split = np.argmax(tangent * radius**2 + (beyond - tangent) * spread, axis=1)
    return bound, split, float(max(value.max(), corner.max()))


def _columns(values: Sequence[Any]) -> NDArray[np.float64]:
    return np.stack(np.broadcast_arrays(*values), axis=1)


def _changes(powers: NDArray[np.int64], far: NDArray[np.float64], step: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return M^a - t^a for the records t = M - step, a row each, without the cancellation of that difference."""
    record, degree = far - step, np.arange(powers.max() + 1)
    ends, values = far[:, np.newaxis] ** degree, record[..., np.newaxis] ** degree
    drops = np.zeros_like(values)  # M^e - t^e = M^(e-1) (M - t) + t (M^(e-1) - t^(e-1))
    for e in degree[1:]:
        drops[..., e] = ends[:, e - 1] * step + record * drops[..., e - 1]
    changes, before = np.zeros((len(step), len(powers))), np.ones(len(powers))
    for i, e in enumerate(powers.T):  # the same rule, from one coordinate to the next
        changes, before = before * drops[:, i, e] + values[:, i, e] * changes, before * ends[i, e]
    return changes


def _slope(powers: NDArray[np.int64], record: NDArray[np.float64], changes: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the gradient of G in the step, 2 Σ (M^a - t^a) times the derivative of t^a."""
    degree = np.arange(powers.max() + 1)
    values = record[..., np.newaxis] ** degree
    slopes = np.concatenate([np.zeros_like(values[..., :1]), degree[1:] * values[..., :-1]], axis=-1)
    factors = [values[:, i, e] for i, e in enumerate(powers.T)]
    gradient = [
        2 * np.sum(changes * slopes[:, i, e] * math.prod(factors[:i] + factors[i + 1 :]), axis=1)
        for i, e in enumerate(powers.T)
    ]
    return np.stack(gradient, axis=1)


# ---------------------------------------------------------------------------------------------------------------------
# Records in cells: polynomials on the unit cube


def _exponents(name: str, given: ArrayLike) -> NDArray[np.int64]:
    """Return rows of exponents, checked."""
    rows = finite_array(name, given)
    if rows.size == 0:
        return np.zeros((0, 0), dtype=np.int64)
    if rows.ndim != 2 or (rows != np.rint(rows)).any() or rows.min() < 0 or rows.max() > 4:
        raise ValueError(f"{name} must hold rows of whole exponents from 0 to 4, got shape {rows.shape}")
    return rows.astype(np.int64)


def _same_rows(one: NDArray[np.int64], other: NDArray[np.int64]) -> bool:
    return sorted(map(tuple, one.tolist())) == sorted(map(tuple, other.tolist()))


def _opposed(same: int, opposite: int) -> Fraction:
    """Return the largest of Σ x - (Σ x² + (Σ s x)²) / 2, x in [0, 1], with this many signs s of either kind.

    It is concave and symmetric, so that x is one number for each sign: 1 for the rarer one, the other follows.
    """
    many, few = max(same, opposite), min(same, opposite)
    level = Fraction(1 + few, 1 + many)
    gap = many * level - few
    return many * level + few - (many * level**2 + few + gap**2) / 2


def _largest_change(apart: NDArray[np.int64], common: NDArray[np.int64], norm: int) -> float:
    """Bound the L1 change, or the squared L2 change, between (1, …, 1) and t in another cell, over all t."""
    found, bound = 0.0, 0.0
    powers = [norm * apart, norm * common] + ([common] if norm == 2 else [])
    constant = float(len(apart) + len(common))
    done: set[bytes] = set()
    for signs in itertools.product((1, -1), repeat=apart.shape[1]):
        sign = np.prod(np.array(signs) ** common, axis=1)
        parts = [np.ones(len(apart)), -sign if norm == 1 else np.ones(len(common))] + ([-2.0 * sign] * (norm == 2))
        exponents, where = np.unique(np.concatenate(powers), axis=0, return_inverse=True)
        weights = np.zeros(len(exponents))
        np.add.at(weights, where.ravel(), np.concatenate(parts))
        if weights.tobytes() not in done:  # other signs, the same polynomial
            done.add(weights.tobytes())
            top, found = _largest_polynomial(weights, exponents, constant, found)
            bound = max(bound, top)
    return bound * (1 + ROUNDING)


def _largest_polynomial(
    weights: NDArray[np.float64], exponents: NDArray[np.int64], constant: float, found: float
) -> tuple[float, float]:
    """Bound constant + Σ weight x^a on the unit cube by branch and bound; return the bound and the best value seen."""
    low, high = np.zeros((1, exponents.shape[1])), np.ones((1, exponents.shape[1]))
    bound, reached = _box_bounds(weights, exponents, low, high)
    found, bound = max(found, constant + reached), constant + bound
    budget, batch = WORK / exponents.size / 4, max(1, min(1024, BATCH // len(exponents)))
    settled = 0.0  # the largest bound of a box that need not be split: exact where a corner attains it
    while bound.max(initial=0.0) > (1 + CELL_GAP) * found and budget > 0:
        order = np.argsort(-bound)
        best, rest = order[:batch], order[batch:]
        side = np.argmax(high[best] - low[best], axis=1)
        rows, middle = np.arange(len(best)), (low[best] + high[best])[np.arange(len(best)), side] / 2
        lows, highs = np.concatenate([low[best]] * 2), np.concatenate([high[best]] * 2)
        highs[rows, side], lows[len(best) + rows, side] = middle, middle
        bounds, reached = _box_bounds(weights, exponents, lows, highs)
        budget -= len(lows)
        found, bound = max(found, constant + reached), np.concatenate([bound[rest], constant + bounds])
        low, high = np.concatenate([low[rest], lows]), np.concatenate([high[rest], highs])
        kept = bound > (1 + CELL_GAP) * found
        settled = max(settled, float(bound[~kept].max(initial=0.0)))
        low, high, bound = low[kept], high[kept], bound[kept]
    return max(float(bound.max(initial=0.0)), settled, found), found


def _box_bounds(
    weights: NDArray[np.float64], exponents: NDArray[np.int64], low: NDArray[np.float64], high: NDArray[np.float64]
) -> tuple[NDArray[np.float64], float]:
    """Bound a polynomial on boxes of the unit cube, by its ends and by its tangent; return the largest value seen.

    Monomials grow, so that each lies between its values at two corners; and what a tangent at the centre leaves out is
    at most, with all weights taken as positive, what it leaves out at the upper corner.
    """
    centre, radius = (low + high) / 2, (high - low) / 2
    at_low, at_high, at = (_monomials(each, exponents) for each in (low, high, centre))
    ends = at_high @ np.maximum(weights, 0) + at_low @ np.minimum(weights, 0)
    slopes = np.stack(
        [
            _monomials(centre, np.maximum(exponents - np.eye(exponents.shape[1], dtype=np.int64)[i], 0))
            * exponents[:, i]
            for i in range(exponents.shape[1])
        ],
        axis=1,
    )  # (box, coordinate, monomial)
    slope, steepest = slopes @ weights, slopes @ np.abs(weights)
    left_out = (at_high - at) @ np.abs(weights) - (steepest * radius).sum(axis=1)
    tangent = at @ weights + (np.abs(slope) * radius).sum(axis=1) + np.maximum(left_out, 0.0)
    corner = _monomials(centre + np.sign(slope) * radius, exponents) @ weights
    return np.minimum(ends, tangent), float(max((at @ weights).max(), corner.max()))


def _monomials(points: NDArray[np.float64], exponents: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return every monomial at every point, (point, monomial)."""
    return np.asarray(np.prod(points[:, None, :] ** exponents, axis=2))
