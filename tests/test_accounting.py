"""Tests of dpbook.accounting against high-precision arithmetic, brute force and a second implementation."""

from __future__ import annotations

import itertools
import math
from typing import Any

import mpmath  # type: ignore[import-untyped, unused-ignore]
import numpy as np
import pytest
from scipy import integrate, stats

from dpbook.accounting import (
    advanced_composition,
    discrete_gaussian_delta,
    gaussian_delta,
    gaussian_rho,
    gaussian_scale,
    group_privacy,
    pure_composition_delta,
    zcdp_epsilon,
)


def exact_gaussian_delta(epsilon: float, mu: float) -> mpmath.mpf:
    """Return delta to sixty digits."""
    with mpmath.workdps(60 + int(mu + epsilon)):
        eps, m = mpmath.mpf(epsilon), mpmath.mpf(mu)
        return mpmath.ncdf(m / 2 - eps / m) - mpmath.exp(eps) * mpmath.ncdf(-m / 2 - eps / m)


# Groups ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("epsilon", "size", "delta"), [(0.5, 4, 1e-6), (2.0, 10, 1e-12), (1e-3, 1000, 1e-9), (1, 1, 0.1)]
)
def test_group_privacy_is_the_geometric_series(epsilon: float, size: int, delta: float) -> None:
    total, grown = group_privacy(epsilon, size, delta=delta)
    assert total == size * epsilon
    assert grown == pytest.approx(delta * math.fsum(math.exp(i * epsilon) for i in range(size)), rel=1e-10)


def test_group_privacy_stays_right_where_the_series_overflows() -> None:
    assert group_privacy(400.0, 3, delta=1e-305)[1] == 1.0
    assert group_privacy(10.0, 10**9, delta=1e-300) == (1e10, 1.0)
    assert group_privacy(1.0, 10**9) == (1e9, 0.0)


@pytest.mark.parametrize("size", [2, 3, 8])
def test_group_privacy_holds_for_the_gaussian_mechanism(size: int) -> None:
    """A group of k moves a Gaussian mechanism by k sensitivities, whose exact delta may not exceed the bound."""
    for epsilon, mu in itertools.product([0.1, 0.5, 2.0], [0.1, 0.5, 1.5]):
        total, delta = group_privacy(epsilon, size, delta=gaussian_delta(epsilon, mu))
        assert gaussian_delta(total, size * mu) <= delta


# Composition of pure mechanisms ---------------------------------------------------------------------------------------


def brute_force_delta(epsilon: float, count: int, total: float) -> float:
    """Sum max(0, P - e^total Q) over all 2^count answers of randomised response, none of the algebra used."""
    truth, lie = math.exp(epsilon) / (1 + math.exp(epsilon)), 1 / (1 + math.exp(epsilon))
    losses = []
    for answers in itertools.product([0, 1], repeat=count):
        p = math.prod(truth if bit else lie for bit in answers)
        q = math.prod(lie if bit else truth for bit in answers)
        losses.append(max(0.0, p - math.exp(total) * q))
    return math.fsum(losses)


@pytest.mark.parametrize("count", [1, 2, 5, 10])
@pytest.mark.parametrize("epsilon", [0.01, 0.3, 1.0, 4.0])
def test_pure_composition_delta_is_what_enumeration_gives(epsilon: float, count: int) -> None:
    for share in (0.0, 0.2, 0.5, 0.77, 0.99, 1.0, 1.3):
        total = share * count * epsilon
        expected = brute_force_delta(epsilon, count, total)
        assert pure_composition_delta(epsilon, count, total) == pytest.approx(expected, rel=1e-9, abs=1e-14)


@pytest.mark.parametrize(("epsilon", "count"), [(0.1, 50), (0.1, 400), (1.0, 20)])
def test_pure_composition_delta_agrees_with_a_privacy_loss_distribution(epsilon: float, count: int) -> None:
    """dp_accounting rounds losses up, so its delta is the larger one, by little."""
    from dp_accounting.pld import common, privacy_loss_distribution  # type: ignore[import-untyped, unused-ignore]

    one = privacy_loss_distribution.from_privacy_parameters(common.DifferentialPrivacyParameters(epsilon), 1e-4)
    composed = one.self_compose(count)
    for total in (0.3 * epsilon * math.sqrt(count), epsilon * math.sqrt(count), 3 * epsilon * math.sqrt(count)):
        ours, theirs = pure_composition_delta(epsilon, count, total), composed.get_delta_for_epsilon(total)
        assert ours == pytest.approx(theirs, rel=0.02)
        assert ours <= theirs * (1 + 1e-6)


def test_pure_composition_delta_survives_extremes() -> None:
    assert pure_composition_delta(1e-3, 1_000_000, 1000.0) == 0.0
    assert pure_composition_delta(1e3, 3, 2999.0) == pytest.approx(1 - math.exp(-1))
    assert pure_composition_delta(1e3, 2, 1.0) == pytest.approx(1.0)
    assert 0 < pure_composition_delta(1e-3, 1_000_000, 5.0) < 1


@pytest.mark.parametrize("slack", [1e-12, 1e-6, 1e-2, 0.5])
@pytest.mark.parametrize("epsilon", [1e-3, 0.05, 0.5, 2.0, 10.0])
def test_advanced_composition_never_promises_more_than_is_exactly_true(epsilon: float, slack: float) -> None:
    for count in (1, 2, 10, 100, 3000):
        total, delta = advanced_composition(epsilon, count, slack=slack)
        assert pure_composition_delta(epsilon, count, total) <= delta
        assert total <= count * epsilon


def test_advanced_composition_falls_back_to_the_plain_sum_and_then_needs_no_slack() -> None:
    assert advanced_composition(1.0, 3, slack=1e-6, delta=1e-9) == pytest.approx((3.0, 3e-9))
    total, delta = advanced_composition(0.1, 1000, slack=1e-6, delta=1e-9)
    assert total == pytest.approx(0.1 * math.sqrt(2000 * math.log(1e6)) + 100 * (math.e**0.1 - 1) / (math.e**0.1 + 1))
    assert delta == pytest.approx(1e-6 + 1e-6)


# The Gaussian profile -------------------------------------------------------------------------------------------------

PROFILE = [*itertools.product([0.0, 1e-3, 0.1, 1.0, 5.0, 30.0, 1000.0], [1e-3, 0.05, 0.3, 1.0, 4.0, 45.0, 100.0])]


@pytest.mark.parametrize(("epsilon", "mu"), PROFILE)
def test_gaussian_delta_is_the_exact_one_and_never_below_it(epsilon: float, mu: float) -> None:
    exact = exact_gaussian_delta(epsilon, mu)
    ours = gaussian_delta(epsilon, mu)
    if exact > 1e-300:
        assert ours >= exact
        assert float(ours / exact - 1) < 1e-8
    else:
        assert ours <= 1e-290


@pytest.mark.parametrize(("epsilon", "mu"), [(0.0, 0.5), (0.5, 0.5), (1.0, 2.0), (3.0, 1.0)])
def test_gaussian_delta_is_the_integral_it_stands_for(epsilon: float, mu: float) -> None:
    """The hockey-stick divergence: the integral of max(0, p - e^eps q)."""

    def excess(x: float) -> float:
        return max(0.0, float(stats.norm.pdf(x, mu) - math.exp(epsilon) * stats.norm.pdf(x)))

    start = epsilon / mu + mu / 2  # where p = e^eps q
    area, _ = integrate.quad(excess, start, start + 12)
    assert gaussian_delta(epsilon, mu) == pytest.approx(area, rel=1e-6)


@pytest.mark.parametrize(("epsilon", "mu"), [(0.1, 0.2), (1.0, 0.3), (1.0, 1.0), (8.0, 2.0)])
def test_gaussian_delta_agrees_with_a_second_implementation(epsilon: float, mu: float) -> None:
    from dp_accounting.pld import privacy_loss_mechanism  # type: ignore[import-untyped, unused-ignore]

    theirs = privacy_loss_mechanism.GaussianPrivacyLoss(1 / mu).get_delta_for_epsilon(epsilon)
    assert gaussian_delta(epsilon, mu) == pytest.approx(theirs, rel=1e-8)


def test_gaussian_delta_underflows_to_zero_not_to_one() -> None:
    assert gaussian_delta(1.0, 1e-160) == 0.0
    assert gaussian_delta(1e100, 1e-200) == 0.0
    assert gaussian_delta(0.0, 1e6) == 1.0


# zCDP -----------------------------------------------------------------------------------------------------------------


def exact_discrete_delta(epsilon: float, shift: int, scale: float) -> mpmath.mpf:
    """Return delta by definition, the sum over all outputs of (q - e^ε p)+, to fifty digits."""
    with mpmath.workdps(50):
        reach = math.ceil(50 * scale) + shift
        law = {y: mpmath.exp(-(mpmath.mpf(y) ** 2) / (2 * mpmath.mpf(scale) ** 2)) for y in range(-reach, reach + 1)}
        factor = mpmath.exp(mpmath.mpf(epsilon))
        excess = (law[y] - factor * law.get(y + shift, 0) for y in law)
        return mpmath.fsum(max(0, each) for each in excess) / mpmath.fsum(law.values())


@pytest.mark.parametrize("scale", [1e-3, 0.2, 0.543, 1.0, 3.7, 9.9])
@pytest.mark.parametrize("shift", [1, 2, 7, 40])
@pytest.mark.parametrize("epsilon", [0.0, 0.3, 1.0, 8.0, 50.0])
def test_the_profile_of_discrete_gaussian_noise_is_the_one_of_its_definition(
    epsilon: float, shift: int, scale: float
) -> None:
    exact = exact_discrete_delta(epsilon, shift, scale)
    found = discrete_gaussian_delta(epsilon, shift, scale)
    assert found >= exact * (1 - mpmath.mpf(10) ** -30) or exact < 1e-290  # never below, but for underflow
    assert found == pytest.approx(float(exact), rel=1e-11, abs=1e-300)


def test_the_discrete_profile_tends_to_the_gaussian_one_with_the_square_of_the_step() -> None:
    """The kink of (q - e^ε p)+ adds between -h²/12 and h²/24 of its slope there (Euler and Maclaurin), h = 1/scale."""
    for scale in (50.0, 400.0, 3000.0):
        for mu, epsilon in [(0.5, 1.0), (1.0, 1.0), (2.0, 3.0)]:
            shift = round(mu * scale)
            mu = shift / scale
            slope = mu * stats.norm.pdf(epsilon / mu - mu / 2)
            gap = discrete_gaussian_delta(epsilon, shift, scale) - gaussian_delta(epsilon, mu)
            assert -1 / 12 - 1e-3 <= gap * scale**2 / slope <= 1 / 24 + 1e-3


def test_a_smaller_shift_of_discrete_gaussian_noise_never_has_a_larger_delta() -> None:
    for scale in (0.3, 1.0, 4.2):
        for epsilon in (0.1, 1.0, 5.0):
            deltas = [discrete_gaussian_delta(epsilon, shift, scale) for shift in range(1, 40)]
            assert all(one <= other * (1 + 1e-11) for one, other in itertools.pairwise(deltas))


@pytest.mark.parametrize("alpha", [1.5, 2.0, 10.0])
def test_gaussian_rho_is_the_renyi_divergence_over_alpha(alpha: float) -> None:
    mu = 0.7
    moment, _ = integrate.quad(
        lambda x: math.exp(alpha * stats.norm.logpdf(x, mu) + (1 - alpha) * stats.norm.logpdf(x)), -20, 30
    )
    assert gaussian_rho(mu) * alpha == pytest.approx(math.log(moment) / (alpha - 1), rel=1e-6)


@pytest.mark.parametrize("delta", [1e-12, 1e-6, 1e-2, 0.3])
@pytest.mark.parametrize("mu", [1e-3, 0.1, 1.0, 5.0, 45.0])
def test_zcdp_epsilon_is_never_below_the_exact_gaussian_one(mu: float, delta: float) -> None:
    epsilon = zcdp_epsilon(gaussian_rho(mu), delta)
    assert exact_gaussian_delta(epsilon, mu) <= delta


@pytest.mark.parametrize("rho", [1e-6, 1e-2, 0.5, 10.0, 1000.0])
def test_zcdp_epsilon_is_the_minimum_over_orders_and_beats_the_plain_conversion(rho: float) -> None:
    for delta in (1e-12, 1e-5, 0.1):
        alpha = 1 + np.exp(np.linspace(-25, 25, 200_001))
        bounds = alpha * rho - np.log(alpha * delta) / (alpha - 1) + np.log1p(-1 / alpha)
        epsilon = zcdp_epsilon(rho, delta)
        assert epsilon == pytest.approx(max(0.0, float(bounds.min())), rel=1e-6, abs=1e-9)
        assert epsilon <= rho + 2 * math.sqrt(rho * math.log(1 / delta))


@pytest.mark.parametrize(("rho", "delta"), [(1.0, 5e-324), (1e-320, 1e-6), (1e-320, 5e-324), (1e300, 1e-6)])
def test_zcdp_epsilon_at_the_ends_of_double_precision_is_finite_and_at_most_the_plain_one(
    rho: float, delta: float
) -> None:
    assert 0 < zcdp_epsilon(rho, delta) <= (rho + 2 * math.sqrt(rho * -math.log(delta))) * (1 + 1e-12)


def test_zcdp_epsilon_holds_for_randomised_response_too() -> None:
    """Pure eps-DP implies rho = eps²/2, and the exact delta of randomised response must stay within."""
    for epsilon, count in itertools.product([0.1, 0.5, 2.0], [1, 10, 200]):
        total = zcdp_epsilon(count * epsilon**2 / 2, 1e-6)
        assert pure_composition_delta(epsilon, count, total) <= 1e-6


# Arguments ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "argument"),
    [
        (lambda: group_privacy(0, 2), "epsilon"),
        (lambda: group_privacy(1, 0), "size"),
        (lambda: group_privacy(1, 2.5), "size"),  # type: ignore[arg-type]
        (lambda: group_privacy(1, 2, delta=-1e-9), "delta"),
        (lambda: advanced_composition(math.nan, 2, slack=1e-6), "epsilon"),
        (lambda: advanced_composition(1, 2, slack=0), "slack"),
        (lambda: advanced_composition(1, 2, slack=1e-6, delta=1), "delta"),
        (lambda: advanced_composition(1, True, slack=1e-6), "count"),
        (lambda: pure_composition_delta(1, 2, -1), "total"),
        (lambda: pure_composition_delta("1", 2, 1), "epsilon"),  # type: ignore[arg-type]
        (lambda: pure_composition_delta(1e308, 10, 1), "epsilon"),
        (lambda: gaussian_delta(-1, 1), "epsilon"),
        (lambda: gaussian_delta(1, 0), "mu"),
        (lambda: gaussian_rho(math.inf), "mu"),
        (lambda: zcdp_epsilon(0, 1e-6), "rho"),
        (lambda: zcdp_epsilon(1, 0), "delta"),
    ],
)
def test_a_wrong_argument_is_named(call: Any, argument: str) -> None:
    with pytest.raises((ValueError, TypeError), match=f"^{argument} must"):
        call()


# The analytic calibration ---------------------------------------------------------------------------------------------


def exact_delta(epsilon: float, sigma: Any) -> Any:
    """Return the delta of Gaussian noise at sensitivity 1 in the working precision of mpmath."""
    eps = mpmath.mpf(epsilon)
    far, near = 1 / (2 * sigma) - eps * sigma, -1 / (2 * sigma) - eps * sigma
    return mpmath.ncdf(far) - mpmath.exp(eps) * mpmath.ncdf(near)


def exact_scale(epsilon: float, delta: float) -> float:
    """Solve for the noise of sensitivity 1 in high-precision arithmetic, by bisection."""
    with mpmath.workdps(50 + int(epsilon)):
        low, high = mpmath.mpf("1e-4"), mpmath.mpf("1e6")
        for _ in range(60):
            sigma = mpmath.sqrt(low * high)
            low, high = (sigma, high) if exact_delta(epsilon, sigma) > delta else (low, sigma)
        return float(high)


@pytest.mark.parametrize("delta", [1e-12, 1e-6, 1e-2])
@pytest.mark.parametrize("epsilon", [1e-3, 0.1, 1.0, 10.0, 200.0])
def test_gaussian_scale_is_the_smallest_that_is_private_and_never_below_it(epsilon: float, delta: float) -> None:
    ours, exact = gaussian_scale(sensitivity=1, epsilon=epsilon, delta=delta), exact_scale(epsilon, delta)
    assert exact <= ours <= exact * (1 + 1e-8)
    assert gaussian_scale(sensitivity=250, epsilon=epsilon, delta=delta) == pytest.approx(250 * ours)


@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 1e-6), (1.0, 1e-5), (8.0, 1e-9)])
def test_gaussian_scale_agrees_with_a_second_implementation(epsilon: float, delta: float) -> None:
    from dp_accounting.pld import common, privacy_loss_mechanism  # type: ignore[import-untyped, unused-ignore]

    parameters = common.DifferentialPrivacyParameters(epsilon, delta)
    theirs = privacy_loss_mechanism.GaussianPrivacyLoss.from_privacy_guarantee(parameters)
    ours = gaussian_scale(sensitivity=1, epsilon=epsilon, delta=delta)
    assert ours == pytest.approx(theirs.standard_deviation, rel=1e-6)


def test_the_classical_formula_is_wasteful_below_epsilon_1_and_wrong_far_above() -> None:
    for epsilon, private in ((0.1, True), (1.0, True), (20.0, False)):
        classical = math.sqrt(2 * math.log(1.25e6)) / epsilon
        assert (classical >= gaussian_scale(sensitivity=1, epsilon=epsilon, delta=1e-6)) is private


def exact_lattice_delta(epsilon: float, shift: tuple[int, ...], scale: float) -> float:
    """Return the exact delta of discrete Gaussian noise on a lattice, shifted by a vector, from the definition.

    The privacy loss is (2⟨x, shift⟩ - |shift|²) / (2 scale²) at an output x: convolve the laws of shift_i x_i.
    """
    law = {0: 1.0}
    reach = math.ceil(12 * scale + 2)
    for step in shift:
        weights = {y: math.exp(-0.5 * (y / scale) ** 2) for y in range(-reach, reach + 1)}
        whole = math.fsum(weights.values())
        grown: dict[int, float] = {}
        for (value, p), (y, w) in itertools.product(law.items(), weights.items()):
            grown[value + step * y] = grown.get(value + step * y, 0.0) + p * w / whole
        law = grown
    norm = sum(step * step for step in shift)  # under the shifted law x = y + shift, so 2⟨x, shift⟩ - norm = 2v + norm
    losses = ((p, (2 * value + norm) / (2 * scale**2)) for value, p in law.items())
    return math.fsum(p * -math.expm1(epsilon - loss) for p, loss in losses if loss > epsilon)


@pytest.mark.parametrize("delta", [1e-8, 1e-4, 1e-2])
@pytest.mark.parametrize("epsilon", [0.3, 1.0, 3.0, 8.0, 30.0])
@pytest.mark.parametrize("steps", [1.0, 1.5, 2.3, 3.0])
def test_gaussian_noise_on_a_grid_keeps_its_promise_for_every_shift_by_whole_steps(
    steps: float, epsilon: float, delta: float
) -> None:
    """All shift vectors with L2 norm at most the sensitivity; for one statistic also to fifty digits."""
    unit = 2.0**-5
    for statistics in (1, 2, 3):
        scale = gaussian_scale(sensitivity=steps * unit, epsilon=epsilon, delta=delta, unit=unit, statistics=statistics)
        assert scale >= gaussian_scale(sensitivity=steps * unit, epsilon=epsilon, delta=delta)
        if scale / unit > 12 and statistics > 1:
            continue  # too large a lattice to sum; a test below looks at the bound there
        shifts = itertools.combinations_with_replacement(range(int(steps) + 1), statistics)
        inside = [shift for shift in shifts if 0 < sum(s * s for s in shift) <= steps**2]
        worst = max(exact_lattice_delta(epsilon, shift, scale / unit) for shift in inside)
        assert worst <= delta * (1 + 1e-10)
    with mpmath.workdps(50):
        sigma, m = mpmath.mpf(gaussian_scale(sensitivity=steps, epsilon=epsilon, delta=delta, unit=1.0)), int(steps)
        ys = range(-math.ceil(30 * sigma) - m, math.ceil(30 * sigma) + m + 1)
        law = {y: mpmath.exp(-(mpmath.mpf(y) ** 2) / (2 * sigma**2)) for y in ys}
        gains = (law[y] - mpmath.exp(epsilon) * law.get(y + m, 0) for y in ys)
        assert mpmath.fsum(max(0, gain) for gain in gains) / mpmath.fsum(law.values()) <= delta


def test_the_scale_without_a_grid_breaks_the_promise_on_a_coarse_one() -> None:
    """Three times the claimed delta at epsilon 8, a sensitivity of one step: why the grid must be told."""
    plain = gaussian_scale(sensitivity=1.0, epsilon=8.0, delta=1e-4)
    assert exact_lattice_delta(8.0, (1,), plain) == pytest.approx(3.14e-4, rel=0.01)
    assert exact_lattice_delta(8.0, (1,), gaussian_scale(sensitivity=1.0, epsilon=8.0, delta=1e-4, unit=1.0)) <= 1e-4


@pytest.mark.parametrize("steps", [10.0, 100.0, 3000.0, 40_000.0])
def test_the_bound_for_many_statistics_covers_the_exact_delta_of_one_and_costs_little(steps: float) -> None:
    """Axis shifts, whose lattice of losses is the coarsest: the bound must cover the exact profile, and no more."""
    for epsilon, delta in [(0.5, 1e-6), (2.0, 1e-3), (6.0, 1e-9)]:
        plain = gaussian_scale(sensitivity=steps, epsilon=epsilon, delta=delta)
        scale = gaussian_scale(sensitivity=steps, epsilon=epsilon, delta=delta, unit=1.0, statistics=5)
        if scale < 2**20:
            assert discrete_gaussian_delta(epsilon, int(steps), scale) <= delta
        assert plain <= scale <= math.hypot(plain, 2.0) * (1 + 1e-12)
        if plain >= 2**16:
            assert scale == plain


def test_random_rounding_by_a_discrete_gaussian_of_scale_2_gives_the_discrete_gaussian() -> None:
    """The lemma behind √(s² + 4), to forty digits: the kernel's output is within 10⁻³³ of the discrete Gaussian."""
    with mpmath.workdps(50):
        s, r = mpmath.mpf("1.3"), 2
        sigma2 = s**2 + r**2

        def kernel(y: int, x: mpmath.mpf) -> mpmath.mpf:
            return (
                mpmath.exp(-((y - x) ** 2) / (2 * r**2))
                / mpmath.jtheta(3, mpmath.pi * x, mpmath.exp(-2 * mpmath.pi**2 * r**2))
                / (r * mpmath.sqrt(2 * mpmath.pi))
            )

        norm = mpmath.jtheta(3, 0, mpmath.exp(-2 * mpmath.pi**2 * sigma2)) * mpmath.sqrt(2 * mpmath.pi * sigma2)
        h = mpmath.mpf(1) / 16  # the trapezoidal rule converges like e^(-2π²s²/h²)
        for y in (0, 1, 5):
            nodes = [h * i for i in range(-400, 401)]
            mass = h * mpmath.fsum(mpmath.npdf(x, 0, s) * kernel(y, x) for x in nodes)
            assert abs(mass / (mpmath.exp(-(y**2) / (2 * sigma2)) / norm) - 1) < mpmath.mpf(10) ** -33


def test_gaussian_scale_survives_extremes() -> None:
    for epsilon, delta in itertools.product([1e-12, 1e-3], [1e-300, 1e-12, 0.999]):
        scale = gaussian_scale(sensitivity=1, epsilon=epsilon, delta=delta)
        with mpmath.workdps(400):
            assert exact_delta(epsilon, mpmath.mpf(scale)) <= delta
    for epsilon, delta in itertools.product([1e3, 1e9], [1e-300, 1e-12, 0.999]):
        scale = gaussian_scale(sensitivity=1, epsilon=epsilon, delta=delta)
        assert gaussian_delta(min(epsilon, 1e6), 1 / scale) <= delta
    with pytest.raises(ValueError, match="epsilon and delta"):
        gaussian_scale(sensitivity=1, epsilon=1e-100, delta=1e-100)
