"""Sensitivities against brute force, against closed forms, and against exact arithmetic.

Random boxes and starting points come from fixed seeds: no test here fails by chance.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.optimize import OptimizeResult, brentq, minimize

from dpbook import sensitivity
from dpbook.sensitivity import (
    bounded_sum,
    fourth_moments,
    histogram,
    jointly,
    of_few_records,
    rounded,
    second_moments,
)

Array = NDArray[np.float64]
Statistics = Callable[[Array], Array]


# -- brute force: an independent list of statistics, and a search over pairs of records ------------------------------


def monomials(size: int, degrees: tuple[int, ...], covariates: int, higher: tuple[int, ...]) -> Statistics:
    """Every unique product of as many coordinates as ``degrees`` (for the covariates also ``higher``) say."""
    chosen = [c for k in degrees for c in itertools.combinations_with_replacement(range(size), k)]
    chosen += [c for k in higher for c in itertools.combinations_with_replacement(range(covariates), k)]
    longest = max(degrees + higher)
    columns = np.array([c + (size,) * (longest - len(c)) for c in chosen])  # column ``size`` holds ones
    return lambda u: np.prod(np.concatenate([u, np.ones_like(u[..., :1])], axis=-1)[..., columns], axis=-1)


def second_statistics(size: int, intercept: bool) -> Statistics:
    return monomials(size, (1, 2) if intercept else (2,), 0, ())


def fourth_statistics(size: int, intercept: bool) -> Statistics:
    return monomials(size, (1, 2) if intercept else (2,), size - 1, (3, 4) if intercept else (4,))


def largest_change(statistics: Statistics, low: Array, high: Array, norm: int, rng: np.random.Generator) -> float:
    """The largest change that 4,000 random pairs, many of them at the ends, and six ascents from the best find."""
    ends = np.concatenate([low, low]), np.concatenate([high, high])
    pairs = rng.uniform(*ends, size=(4000, 2 * len(low)))
    kind = rng.integers(4, size=pairs.shape)
    pairs = np.where(kind == 0, ends[0], np.where(kind == 1, ends[1], pairs))

    def change(pair: Array) -> Array:
        difference = statistics(pair[..., : len(low)]) - statistics(pair[..., len(low) :])
        return np.asarray(np.sum(np.abs(difference) ** norm, axis=-1))

    changes = change(pairs)
    best = scale = float(changes.max())
    for pair in pairs[np.argsort(-changes)[:6]]:
        ascent = minimize(lambda z: -change(z) / scale, pair, method="L-BFGS-B", bounds=list(zip(*ends, strict=True)))
        best = max(best, float(change(np.clip(ascent.x, *ends))))
    return float(best ** (1 / norm))


def random_box(rng: np.random.Generator, size: int) -> tuple[Array, Array]:
    """Sides that straddle zero, touch it, or stay on one side of it, of different lengths and either sign."""
    far, kind = rng.uniform(0.3, 3.0, size), rng.integers(4, size=size)
    near = np.choose(kind, [-far * rng.uniform(0, 1, size), -far, np.zeros(size), far * rng.uniform(0.1, 0.9, size)])
    flip = rng.integers(2, size=size) == 1
    return np.where(flip, -far, near), np.where(flip, -near, far)


@pytest.mark.parametrize("norm", [1, 2])
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("size", [1, 2, 3])
def test_second_moments_is_never_exceeded_and_is_attained(size: int, intercept: bool, norm: int) -> None:
    rng = np.random.default_rng(100 * size + 10 * intercept + norm)
    for _ in range(6):
        low, high = random_box(rng, size)
        claimed = second_moments(low, high, intercept=intercept, norm=norm)
        found = largest_change(second_statistics(size, intercept), low, high, norm, rng)
        assert found <= claimed * (1 + 1e-12), (low, high)
        assert found >= claimed * (1 - 1e-6), (low, high)


@pytest.mark.parametrize("norm", [1, 2])
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("size", [2, 3])
def test_fourth_moments_is_never_exceeded_and_is_attained(size: int, intercept: bool, norm: int) -> None:
    rng = np.random.default_rng(200 * size + 10 * intercept + norm)
    for _ in range(4):
        low, high = random_box(rng, size)
        claimed = fourth_moments(low, high, intercept=intercept, norm=norm)
        found = largest_change(fourth_statistics(size, intercept), low, high, norm, rng)
        assert found <= claimed * (1 + 1e-12), (low, high)
        assert found >= claimed * (1 - 1e-6), (low, high)


@pytest.mark.parametrize("norm", [1, 2])
@pytest.mark.parametrize("intercept", [True, False])
def test_fourth_moments_of_covariates_alone_is_never_exceeded_and_is_attained(intercept: bool, norm: int) -> None:
    degrees = (1, 2, 3, 4) if intercept else (4,)
    rng = np.random.default_rng(10 * intercept + norm)
    for size in (1, 2):
        low, high = random_box(rng, size)
        claimed = fourth_moments(low, high, intercept=intercept, response=False, norm=norm)
        found = largest_change(monomials(size, degrees, 0, ()), low, high, norm, rng)
        assert claimed * (1 - 1e-6) <= found <= claimed * (1 + 1e-12), (low, high)


@pytest.mark.parametrize("which", [second_moments, fourth_moments])
@pytest.mark.parametrize("size", [5, 7])
def test_l2_beyond_four_coordinates_is_an_upper_bound_that_is_not_far_off(
    size: int, which: Callable[..., float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sensitivity, "WORK", 1e6)
    statistics = {second_moments: second_statistics, fourth_moments: fourth_statistics}[which](size, True)
    rng = np.random.default_rng(size)
    low, high = random_box(rng, size)
    found = largest_change(statistics, low, high, 2, rng)
    assert found * (1 - 1e-12) <= which(low, high, intercept=True, norm=2) <= 1.5 * found


@pytest.mark.parametrize("which", [second_moments, fourth_moments])
def test_a_search_without_time_still_returns_an_upper_bound(
    which: Callable[..., float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half a dozen boxes in which neither the centre nor a corner is the worst record: what was found is too little."""
    monkeypatch.setattr(sensitivity, "WORK", 0)
    sensitivity._search.cache_clear()
    statistics = {second_moments: second_statistics, fourth_moments: fourth_statistics}[which](3, True)
    rng = np.random.default_rng(12)
    for _ in range(6):
        low, high = random_box(rng, 3)
        found = largest_change(statistics, low, high, 2, rng)
        assert found * (1 - 1e-12) <= which(low, high, intercept=True, norm=2)
    sensitivity._search.cache_clear()


@pytest.mark.parametrize("size", [1, 2, 5, 60])
@pytest.mark.parametrize(
    "degrees", [((1, 2), ()), ((2,), ()), ((1, 2, 3, 4), ()), ((1, 2), (3, 4)), ((2,), (4,)), ((4,), ())]
)
def test_the_sum_of_monomials_curves_at_least_as_much_as_the_search_assumes(
    size: int, degrees: tuple[tuple[int, ...], tuple[int, ...]]
) -> None:
    """Least where many covariates of one sign sum to -1, along the three directions tried there, and elsewhere."""
    moments = sensitivity._Moments(size + bool(degrees[1]), *degrees)
    rng = np.random.default_rng(size)
    worst, along = np.full(moments.size, -1 / size), np.full(moments.size, -2 / size)
    along[-1] = 1.0 if degrees[1] else along[-1]
    across = np.where(np.arange(moments.size) < size, np.resize([1.0, -1.0], moments.size), 0.0)
    points = [worst, worst, *rng.normal(size=(20, moments.size))]
    for values, step in zip(points, [along, across, *rng.normal(size=(20, moments.size))], strict=True):
        for length in (1e-3, 1.0):
            beyond = moments.remainder(values, length * step)
            assert beyond >= 0.5 * np.sum(moments.curvature() * (length * step) ** 2) * (1 - 1e-9)


def test_fourth_moments_in_l1_stays_exact_for_ten_covariates() -> None:
    """The claimed value is at most 1e-9 above what the far corner and one other record achieve."""
    statistics = fourth_statistics(11, True)
    for low, high in [(-np.ones(11), np.ones(11)), random_box(np.random.default_rng(11), 11)]:
        flipped = np.abs(low) > np.abs(high)
        near, far = np.where(flipped, -high, low), np.where(flipped, -low, high)

        def change(record: Array, far: Array = far) -> float:
            return float(np.abs(statistics(far) - statistics(record)).sum())

        descent = minimize(
            lambda t, change=change: -change(t),
            np.clip(-0.1, near, far),
            method="L-BFGS-B",
            jac="3-point",
            bounds=list(zip(near, far, strict=True)),
            options={"ftol": 1e-15, "gtol": 1e-9},
        )
        achieved = change(np.clip(descent.x, near, far))
        assert achieved * (1 - 1e-12) <= fourth_moments(low, high) <= achieved * (1 + 1e-9)


def test_fourth_moments_is_never_too_small_however_poor_the_numerical_minimum(monkeypatch: pytest.MonkeyPatch) -> None:
    for point in ([1.0, 1.0], [-1.0, 1.0], [0.0, 0.0], [-0.5, -0.3]):
        found = OptimizeResult(x=np.array(point))
        monkeypatch.setattr(sensitivity.optimize, "minimize", lambda *_, found=found, **__: found)
        assert fourth_moments([-1, -1], [1, 1]) >= 7.375


# -- reference values and closed forms --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("low", "high", "intercept", "norm", "square"),
    [
        (0, 1, True, 1, 25),
        (-1, 1, True, 1, Fraction(256, 9)),
        (1, 2, True, 1, 121),
        (1, 2, False, 1, 81),
        (0, 1, True, 2, 5),
        (-1, 1, True, 2, 8),
        (1, 2, True, 2, 29),
        (-1, 1, False, 2, 4),
    ],
)
def test_second_moments_of_two_coordinates_has_the_known_values(
    low: float, high: float, intercept: bool, norm: int, square: Fraction
) -> None:
    value = second_moments([low] * 2, [high] * 2, intercept=intercept, norm=norm)
    assert Fraction(value) ** 2 >= square > Fraction(math.nextafter(value, 0)) ** 2


@pytest.mark.parametrize("p", [1, 2, 3, 4, 7, 20])
def test_second_moments_on_the_cube_follow_their_closed_forms(p: int) -> None:
    cube = -np.ones(p), np.ones(p)
    assert second_moments(*cube, intercept=True) == pytest.approx(p * (p + 2) ** 2 / (2 * (p + 1)), rel=1e-15)
    assert second_moments(*cube, intercept=False) == p * (p + 1) / 2
    expected = math.sqrt(max(4 * k * (p + 1 - k) for k in range(p + 1)))
    assert second_moments(*cube, intercept=True, norm=2) == pytest.approx(expected, rel=1e-15)
    expected = math.sqrt(max(1, *(4 * k * (p - k) for k in range(p + 1))))
    assert second_moments(*cube, intercept=False, norm=2) == pytest.approx(expected, rel=1e-15)


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("p", [1, 2, 3, 4])
def test_search_confirms_the_closed_form_on_the_cube(p: int, intercept: bool) -> None:
    moments = sensitivity._Moments(p, (1, 2) if intercept else (2,))
    box = sensitivity._folded(-np.ones(p), np.ones(p))
    closed = second_moments(-np.ones(p), np.ones(p), intercept=intercept, norm=2)
    assert closed <= math.sqrt(sensitivity._search(moments, box)) <= closed * (1 + 2e-9)


@pytest.mark.parametrize("norm", [1, 2])
def test_where_no_coordinate_changes_sign_the_worst_pair_is_the_two_corners(norm: int) -> None:
    low, high = np.array([1.0, -5.0, 10.0]), np.array([2.0, -3.0, 10.5])
    for claimed, statistics in [
        (second_moments(low, high, intercept=True, norm=norm), second_statistics(3, True)),
        (second_moments(low, high, intercept=False, norm=norm), second_statistics(3, False)),
        (fourth_moments(low, high, norm=norm), fourth_statistics(3, True)),
    ]:
        nearest, farthest = np.array([1.0, -3.0, 10.0]), np.array([2.0, -5.0, 10.5])
        ranges = statistics(farthest) - statistics(nearest)
        assert claimed == pytest.approx(np.linalg.norm(ranges, ord=norm), rel=1e-13)


@pytest.mark.parametrize("width", [5e-324, 1e-300, 1e-160, 1.0, 1.4954350870919408, 3.7e9, 1e160, 1.7e308])
def test_the_l2_sensitivity_of_one_sum_is_its_width_however_small_or_large(width: float) -> None:
    assert bounded_sum(0, width, norm=2) == width


def test_fourth_moments_has_the_known_values() -> None:
    assert fourth_moments([-1, -1], [1, 1]) == pytest.approx(7.375, rel=1e-9)
    assert fourth_moments([-1, -1], [1, 1], norm=2) == pytest.approx(math.sqrt(12), rel=2e-9)
    assert fourth_moments(1, 2, response=False) == (2 - 1) + (4 - 1) + (8 - 1) + (16 - 1)


def test_second_moments_equals_the_concave_programme_in_half_differences() -> None:
    """The same optimum in other variables: W = |u - u'| / 2, with W_i = clip((iota + T + M_i)/2 - S, 0, h_i)."""
    rng = np.random.default_rng(3)
    for size in (1, 2, 5, 9):
        for iota in (0, 1):
            low, high = random_box(rng, size)
            half, reach = (high - low) / 2, np.maximum(np.abs(low), np.abs(high))
            level = (iota + reach.sum() + reach) / 2

            def width(s: float, level: Array = level, half: Array = half) -> Array:
                return np.clip(level - s, 0, half)

            root = brentq(lambda s: width(s).sum() - s, 0, half.sum(), xtol=1e-14, rtol=1e-14)
            w = width(root)
            value = w @ (2 * iota + 2 * reach.sum() + 2 * reach) - 2 * w @ w - 2 * w.sum() ** 2
            assert second_moments(low, high, intercept=bool(iota)) == pytest.approx(value, rel=1e-12)


def test_second_moments_in_l1_is_the_least_float_above_the_exact_value() -> None:
    """In rational arithmetic the far corner and the level record give the value that was rounded up."""
    rng = np.random.default_rng(4)
    for size in (1, 2, 4):
        low, high = random_box(rng, size)
        near, far = box = sensitivity._folded(low, high)
        record = sensitivity._level_record(box, 1)
        assert all(a <= t <= b for a, t, b in zip(near, record, far, strict=True))
        pairs = list(itertools.combinations_with_replacement(range(size), 2))
        exact = sum(far) - sum(record) + sum(far[i] * far[j] - record[i] * record[j] for i, j in pairs)
        value = second_moments(low, high, intercept=True)
        assert Fraction(math.nextafter(value, 0)) < exact <= Fraction(value)


# -- the source's formula, as a mutant --------------------------------------------------------------------------------


def width_formula(low: Array, high: Array, intercept: bool) -> float:
    """The formula to avoid: every product of two coordinates is said to move by the product of their widths."""
    width_x, width_y = high - low
    d = 1 + intercept
    return float(d * (d + 1) / 2 * width_x**2 + d * width_x * width_y + width_y**2)


@pytest.mark.parametrize(
    ("low", "high", "intercept", "ratio"),
    [
        (np.array([1, 1], float), np.array([2, 2], float), False, 3.0),
        (np.array([1, 1], float), np.array([2, 2], float), True, 11 / 6),
        (np.array([10, 0], float), np.array([11, 1], float), True, 35 / 6),
        (np.array([-1, -1], float), np.array([1, 1], float), True, 16 / 3 / 24),
    ],
)
def test_products_of_widths_protect_too_little_away_from_zero_and_too_much_around_it(
    low: Array, high: Array, intercept: bool, ratio: float
) -> None:
    claimed = width_formula(low, high, intercept)
    assert second_moments(low, high, intercept=intercept) / claimed == pytest.approx(ratio)
    found = largest_change(second_statistics(2, intercept), low, high, 1, np.random.default_rng(5))
    assert found / claimed == pytest.approx(ratio, rel=1e-6)


def test_fourth_powers_of_widths_protect_too_little_away_from_zero() -> None:
    assert fourth_moments(1, 2, response=False) / (5 * (2 - 1) ** 4) == pytest.approx(26 / 5)


# -- properties -------------------------------------------------------------------------------------------------------

sides = st.tuples(st.floats(-4, 4), st.floats(0.125, 4)).map(lambda side: (side[0], side[0] + side[1]))
boxes = st.lists(sides, min_size=2, max_size=3).map(lambda box: tuple(np.array(box).T))


@settings(max_examples=15, deadline=None, derandomize=True)
@given(boxes, st.booleans())
def test_order_and_sign_of_the_coordinates_do_not_matter(box: tuple[Array, Array], intercept: bool) -> None:
    low, high = box
    value = second_moments(low, high, intercept=intercept)
    assert second_moments(low[::-1], high[::-1], intercept=intercept) == value
    assert second_moments(-high, -low, intercept=intercept) == value
    flipped = fourth_moments(-high, -low, intercept=intercept)
    assert fourth_moments(low, high, intercept=intercept) == pytest.approx(flipped, rel=1e-9)


@settings(max_examples=15, deadline=None, derandomize=True)
@given(boxes, st.sampled_from([0.25, 2.0, 8.0]))
def test_in_other_units_second_moments_change_by_the_square(box: tuple[Array, Array], factor: float) -> None:
    low, high = box
    for norm, tolerance in [(1, 1e-15), (2, 2e-9)]:
        value = second_moments(low, high, intercept=False, norm=norm)
        scaled = second_moments(factor * low, factor * high, intercept=False, norm=norm)
        assert scaled == pytest.approx(factor**2 * value, rel=tolerance)


@settings(max_examples=15, deadline=None, derandomize=True)
@given(boxes, st.floats(0, 2))
def test_more_room_or_more_statistics_never_lower_the_sensitivity(box: tuple[Array, Array], room: float) -> None:
    low, high = box
    for norm in (1, 2):
        value = second_moments(low, high, intercept=True, norm=norm)
        slack = 1 + 2e-9 * (norm == 2)
        assert value <= slack * second_moments(low - room, high, intercept=True, norm=norm)
        assert second_moments(low, high, intercept=False, norm=norm) <= slack * value
        assert value <= slack * fourth_moments(low, high, norm=norm)
        assert value <= second_moments(low, high, intercept=True)


# -- the parts of the L2 search ---------------------------------------------------------------------------------------

ALL_MOMENTS = [
    sensitivity._Moments(3, (1, 2)),
    sensitivity._Moments(3, (2,)),
    sensitivity._Moments(3, (1, 2), (3, 4)),
    sensitivity._Moments(3, (2,), (4,)),
    sensitivity._Moments(3, (1, 2, 3, 4)),
    sensitivity._Moments(3, (4,)),
]


@pytest.mark.parametrize("moments", ALL_MOMENTS)
def test_bound_of_a_node_holds_at_every_record_in_it(moments: sensitivity._Moments) -> None:
    rng = np.random.default_rng(6)
    powers = moments.exponents()
    for shrink in (1.0, 0.3, 0.03):
        low, high = random_box(rng, 3)
        near, far = (np.array([float(x) for x in ends]) for ends in sensitivity._folded(low, high))
        radius = (far - near) / 2 * shrink * rng.uniform(0, 1, (200, 3))
        centre = radius + rng.uniform(0, 1, (200, 3)) * (far - near - 2 * radius)
        bound, _, reached = sensitivity._node_bounds(moments, powers, far, centre, radius)
        steps = centre + radius * np.clip(rng.normal(size=(200, 200, 3)), -1, 1)
        records = (far - steps)[:, :, np.newaxis, :]
        values = np.sum((np.prod(far**powers, axis=1) - np.prod(records**powers, axis=-1)) ** 2, axis=-1)
        assert (values <= bound * (1 + 1e-12)).all()
        assert reached <= bound.max()
        assert (bound.max() - values.max()) <= 200 * shrink * values.max()  # the bound tightens with its node


@pytest.mark.parametrize("moments", ALL_MOMENTS)
def test_curvature_lies_below_the_hessian(moments: sensitivity._Moments) -> None:
    """Second differences of the gradient, which is linear enough at this step for five digits."""
    rng = np.random.default_rng(7)
    for point in rng.normal(size=(200, 3)) * rng.choice([0.5, 1.0, 3.0], size=(200, 1)):
        steps = 1e-5 * np.eye(3)
        hessian = [
            (np.array(moments.gradient(point + s)) - np.array(moments.gradient(point - s))) / 2e-5 for s in steps
        ]
        assert np.linalg.eigvalsh(np.array(hessian) - np.diag(moments.curvature()))[0] >= -1e-6


def test_a_search_that_runs_out_of_work_still_returns_an_upper_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    box = [-0.3, -0.2, -0.9], [1.0, 1.0, 1.0]
    finished = second_moments(*box, intercept=False, norm=2)
    sensitivity._search.cache_clear()
    monkeypatch.setattr(sensitivity, "WORK", 0.0)
    starved = second_moments(*box, intercept=False, norm=2)
    sensitivity._search.cache_clear()
    assert finished * (1 + 1e-3) < starved < 2 * finished


@pytest.mark.parametrize("moments", ALL_MOMENTS)
def test_bounds_by_ranges_and_by_convexity_lie_above_the_distance_even_on_hair_thin_boxes(
    moments: sensitivity._Moments,
) -> None:
    """On a one-signed box the ranges add up to the distance between the corners, here 1e-9 of the moments."""
    near, far = box = sensitivity._folded([1e6, -3e3, 2e5], [1e6 + 1e-3, -3e3 + 3e-6, 2e5 + 2e-4])
    exact = sensitivity._squared_distance(moments, far, near)
    assert exact <= sensitivity._sum_of_ranges(moments, box) <= exact * (1 + Fraction(1e-10))
    assert exact <= sensitivity._convex_bound(moments, box)


@pytest.mark.parametrize("ends", [([1e6, -1.0], [1e6 + 1, 1.0]), ([-1e-3, -200.0, 1.0], [2e-3, 500.0, 1.001])])
def test_l2_keeps_its_precision_on_thin_and_lopsided_boxes(ends: tuple[list[float], list[float]]) -> None:
    """Here P(M²) is up to 1e11 times the answer: computed as a difference of such numbers it would be lost."""
    low, high = (np.array(end) for end in ends)
    claimed = second_moments(low, high, intercept=True, norm=2)
    found = largest_change(second_statistics(len(low), True), low, high, 2, np.random.default_rng(8))
    assert claimed * (1 - 1e-6) <= found <= claimed * (1 + 1e-12)


# -- histograms, sums, rounding ---------------------------------------------------------------------------------------


def test_histogram_is_attained_by_a_record_that_changes_cell_in_every_table() -> None:
    data = np.array([[0, 1, 0], [1, 1, 1]])
    neighbour = np.array([[0, 1, 0], [0, 0, 0]])
    tables = [np.bincount(data[:, c], minlength=2) - np.bincount(neighbour[:, c], minlength=2) for c in range(3)]
    difference = np.concatenate(tables)
    assert histogram(tables=3) == np.abs(difference).sum() == 6
    assert histogram(tables=3, norm=2) == pytest.approx(np.linalg.norm(difference), rel=1e-15)
    assert histogram() == 2.0


def test_bounded_sum_is_the_norm_of_the_widths_rounded_up() -> None:
    assert bounded_sum(-1, 3) == 4.0
    assert bounded_sum([0, -1], [3, 3]) == 7.0
    assert bounded_sum(0, [3, 4], norm=2) == 5.0
    width = Fraction(0.7) - Fraction(-0.1)
    assert Fraction(math.nextafter(bounded_sum(-0.1, 0.7), 0)) < width <= Fraction(bounded_sum(-0.1, 0.7))


@pytest.mark.parametrize("norm", [1, 2])
def test_rounding_to_a_grid_never_moves_more_than_the_slack_and_can_use_it(norm: int) -> None:
    unit, count = 0.25, 3
    slack = rounded(1.0, count, unit, norm) - 1.0
    assert slack == pytest.approx(unit * (count if norm == 1 else math.sqrt(count)), rel=1e-5)
    rng = np.random.default_rng(9)
    a, b = rng.uniform(-2, 2, size=(2, 10_000, count))
    a[0], b[0] = 0.125 + 1e-9, -0.125 - 1e-9  # one cell apart and a hair: two steps of the grid
    exact = np.linalg.norm(a - b, ord=norm, axis=1)
    moved = np.linalg.norm(unit * (np.rint(a / unit) - np.rint(b / unit)), ord=norm, axis=1)
    limit = np.array([rounded(e, count, unit, norm) for e in exact])
    assert (moved <= limit).all()
    assert moved[0] >= limit[0] * (1 - 1e-5)


def test_rounding_slack_covers_products_that_float_arithmetic_has_rounded() -> None:
    """Float64 lifts a hair below a tie onto the tie, the grid lifts that again: more than one unit is gained."""
    unit, hair = Fraction(1, 2**32), Fraction(1, 2**23)
    high, low = (2**31 + Fraction(3, 2) - hair) * unit, (2**31 + Fraction(1, 2) + hair) * unit
    steps = [int(np.rint(float(value) / float(unit))) for value in (high, low)]
    moved = (steps[0] - steps[1]) * unit
    assert moved > high - low + unit
    assert moved <= Fraction(rounded(float(high - low), 1, float(unit)))


# -- wrong arguments --------------------------------------------------------------------------------------------------


def wrong(value: Any) -> Any:
    """Hide the type of an argument from the type checker, which would refuse it too."""
    return value


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: second_moments([0, 1], [1, 1], intercept=True), r"\(lower\[1\], upper\[1\]\) must have low < high"),
        (lambda: second_moments([0, np.nan], [1, 1], intercept=True), "lower must be finite"),
        (lambda: second_moments([0, 0], [1, np.inf], intercept=True), "upper must be finite"),
        (lambda: second_moments("a", 1, intercept=True), "lower must be numeric"),
        (lambda: second_moments([0, 0], [1, 1, 1], intercept=True), r"lower and upper must be .* \(2,\) and \(3,\)"),
        (lambda: second_moments(np.zeros((2, 2)), 1, intercept=True), "lower and upper must be numbers or sequences"),
        (lambda: second_moments([], [], intercept=True), "lower and upper must hold at least one bound"),
        (lambda: second_moments(0, 1, intercept=wrong("yes")), "intercept must be True or False, got 'yes'"),
        (lambda: second_moments(0, 1, intercept=True, norm=3), "norm must be 1 or 2, got 3"),
        (lambda: second_moments(0, 1, intercept=True, norm=wrong(1.5)), "norm must be a whole number"),
        (lambda: second_moments(0, 1e30, intercept=True), "lower and upper must reach between 1e-25 and 1e25"),
        (lambda: second_moments([0, 0], [1, 1e-30], intercept=True), "lower and upper must reach between"),
        (lambda: fourth_moments(-1, 1), "lower and upper must hold bounds of at least one covariate"),
        (lambda: fourth_moments([0, 0], [1, 1], response=wrong(None)), "response must be True or False"),
        (lambda: histogram(0), "tables must be at least 1, got 0"),
        (lambda: histogram(wrong(1.5)), "tables must be a whole number"),
        (lambda: histogram(1, norm=0), "norm must be 1 or 2"),
        (lambda: bounded_sum(1, 1), "must have low < high"),
        (lambda: bounded_sum(-1.7e308, 1.7e308), "exceeds the largest float: lower and upper"),
        (lambda: rounded(-1, 1, 1), "sensitivity must be at least 0"),
        (lambda: rounded(1, 0, 1), "statistics must be at least 1"),
        (lambda: rounded(1, 1, 0), "unit must be greater than 0"),
        (lambda: rounded(1, 1, 1, norm=4), "norm must be 1 or 2"),
    ],
)
def test_wrong_arguments_are_refused_by_name(call: Callable[[], float], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        call()


def test_statistics_together_move_by_the_sum_of_what_each_moves_by() -> None:
    assert jointly([2.0, 0.5], weights=[1.0, 4.0]) == 4.0
    assert jointly([3.0, 4.0], norm=2) == 5.0
    third = jointly([0.1, 0.2])
    assert Fraction(third) >= Fraction(0.1) + Fraction(0.2)  # upwards, where float addition may round down
    with pytest.raises(ValueError, match=r"weights\[1\] must be greater than 0"):
        jointly([1.0, 1.0], weights=[1.0, 0.0])


def test_few_records_are_compared_pair_by_pair() -> None:
    values = np.random.default_rng(1).normal(size=(60, 3))
    change = np.abs(values[:, None] - values)
    assert of_few_records(values) == pytest.approx(change.sum(axis=2).max(), rel=1e-9)
    assert of_few_records(values, norm=2) == pytest.approx(np.sqrt((change**2).sum(axis=2)).max(), rel=1e-9)
    assert of_few_records(values) > change.sum(axis=2).max()
    with pytest.raises(ValueError, match="one record or more"):
        of_few_records(np.empty((0, 2)))
