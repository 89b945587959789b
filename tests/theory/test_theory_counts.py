"""Exact profiles of synthetic yes-or-no records: against sums from the definition, exact fractions and enumeration."""

import itertools
import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from scipy import stats

from dpbook.theory import _counts
from dpbook.theory._counts import binomial_losses, composed_bounds, count_losses, log_delta

EPSILONS = np.array([0.0, 0.1, 0.5, 1.0, 2.0, 4.0])


def brute(p, q, epsilons=EPSILONS):
    return np.array([np.maximum(p - math.exp(e) * q, 0).sum() for e in epsilons])


@pytest.mark.parametrize("seed", range(8))
def test_counts_agree_with_sums_from_the_definition_on_random_parameters(seed):
    rng = np.random.default_rng(seed)
    a, b, m = *10 ** rng.uniform(-1.5, 2.5, 2), int(rng.integers(1, 800))
    k = np.arange(m + 1)
    for losses, laws in (
        (count_losses(a, b, m), (stats.betabinom(m, a + 1, b), stats.betabinom(m, a, b + 1))),
        (binomial_losses(a, b, m), (stats.binom(m, (a + 1) / (a + b + 1)), stats.binom(m, a / (a + b + 1)))),
    ):
        p, q = (law.pmf(k) for law in laws)
        np.testing.assert_allclose(np.exp(log_delta(losses, EPSILONS)), brute(p, q), rtol=1e-8, atol=1e-12)


def beta_binomial_reference(a, b, m, epsilon):
    """The definition in 50 digits."""
    with mpmath.workdps(50):
        a, b, grow = mpmath.mpf(a), mpmath.mpf(b), mpmath.exp(mpmath.mpf(epsilon))

        def law(x, y):
            probability = mpmath.rf(y, m) / mpmath.rf(x + y, m)
            for k in range(m + 1):
                yield probability
                if k < m:
                    probability *= (m - k) * (x + k) / ((k + 1) * (y + m - k - 1))

        return mpmath.log(sum(max(p - grow * q, 0) for p, q in zip(law(a + 1, b), law(a, b + 1), strict=True)))


@pytest.mark.parametrize(
    ("a", "b", "m", "epsilon"),
    [
        (1e-6, 3.0, 50, 1.0),
        (3.0, 1e-6, 50, 1.0),
        (10.0, 2000.0, 2000, 1.3),
        (500.0, 800.0, 3000, 0.3),
        (2, 5, 900, 5.0),
    ],
)
def test_a_count_from_one_draw_agrees_with_fifty_digits(a, b, m, epsilon):
    exact = float(beta_binomial_reference(a, b, m, epsilon))
    assert float(log_delta(count_losses(a, b, m), epsilon)) == pytest.approx(exact, abs=1e-11)


def binomial_reference(a, b, m, epsilon):
    with mpmath.workdps(50):
        grow = mpmath.exp(mpmath.mpf(epsilon))
        p, q = (mpmath.mpf(a) + 1) / (mpmath.mpf(a) + b + 1), mpmath.mpf(a) / (mpmath.mpf(a) + b + 1)
        first = int(
            mpmath.ceil((epsilon + m * mpmath.log((1 - q) / (1 - p))) / mpmath.log(p * (1 - q) / (q * (1 - p))))
        )
        one = mpmath.binomial(m, first) * p**first * (1 - p) ** (m - first)
        two = mpmath.binomial(m, first) * q**first * (1 - q) ** (m - first)
        total = mpmath.mpf(0)
        for k in range(first, m + 1):
            total += one - grow * two
            if one < mpmath.mpf(10) ** -45 * total:
                break
            one, two = (x * (m - k) / (k + 1) * y / (1 - y) for x, y in ((one, p), (two, q)))
        return mpmath.log(total)


@pytest.mark.parametrize("epsilon", [0.2, 1.0, 1.7])
def test_a_million_records_from_a_million_keep_their_digits(epsilon):
    """delta down to 1e-12 and below."""
    exact = float(binomial_reference(20, 10**6, 10**6, epsilon))
    assert float(log_delta(binomial_losses(20.0, 1e6, 10**6), epsilon)) == pytest.approx(exact, abs=1e-10)


def test_what_is_left_out_of_a_large_window_is_no_float():
    """The window must not cut off what counts, whatever the shape of the law: all counts give the same."""
    for a, b, m in (
        (0.1, 50.0, 10**4),
        (50.0, 0.1, 10**4),
        (0.2, 0.2, 10**4),
        (900.0, 3000.0, 10**5),
        (1.0, 1.0, 5000),
    ):
        for make in (count_losses, binomial_losses):
            losses = make(a, b, m)
            assert np.exp(losses.log_p).sum() == pytest.approx(1.0, abs=1e-12)
            whole = _whole(make, a, b, m)
            # the cumulative logarithms of ratios err by 1e-16 a count
            exact = log_delta(whole, EPSILONS)
            seen = exact > -600
            np.testing.assert_allclose(log_delta(losses, EPSILONS)[seen], exact[seen], rtol=1e-9, atol=1e-9)


def _whole(make, a, b, m):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_counts, "_window", lambda m, *args, **options: (0, m))
        return make(a, b, m)


def test_an_impossible_count_has_an_infinite_loss():
    losses = binomial_losses(0.0, 9.0, 20)
    assert np.exp(log_delta(losses, [0.0, 50.0])) == pytest.approx([1 - 0.9**20] * 2)
    assert np.exp(log_delta(binomial_losses(9.0, 0.0, 20), [0.0]))[0] == pytest.approx(1 - 0.9**20)


@pytest.mark.parametrize(("a", "b", "r", "k"), [(1, 2, 3, 3), (2, 1, 2, 4), (Fraction(1, 2), 3, 4, 2)])
def test_vectors_of_counts_agree_with_exact_fractions(a, b, r, k):
    """All vectors of k counts, with probabilities as exact fractions."""

    def law(x, y):
        values = []
        for j in range(r + 1):
            value = Fraction(math.comb(r, j))
            for i in range(j):
                value *= x + i
            for i in range(r - j):
                value *= y + i
            for i in range(r):
                value /= x + y + i
            values.append(value)
        return values

    p, q = law(Fraction(a) + 1, Fraction(b)), law(Fraction(a), Fraction(b) + 1)
    vectors = list(itertools.product(range(r + 1), repeat=k))
    one, two = (np.array([float(math.prod(v[i] for i in vector)) for vector in vectors]) for v in (p, q))
    found = composed_bounds(count_losses(float(a), float(b), r), k, EPSILONS)
    np.testing.assert_allclose(np.exp(found.upper), brute(one, two), rtol=1e-9, atol=1e-14)
    np.testing.assert_array_equal(found.lower, found.upper)


@pytest.mark.parametrize(("a", "b", "r", "k"), [(5.0, 50.0, 10, 4), (1.0, 20.0, 6, 5), (0.3, 0.3, 8, 3)])
@pytest.mark.parametrize("grid", [2**11, 2**15])
def test_the_bounds_of_a_convolution_enclose_what_enumeration_gives(a, b, r, k, grid):
    single = count_losses(a, b, r)
    exact = composed_bounds(single, k, EPSILONS).upper
    found = _counts._convolved(single, k, EPSILONS, grid)
    seen = exact > -100
    assert np.all(found.upper[seen] >= exact[seen] - 1e-11)
    assert np.all(found.lower[seen] <= exact[seen] + 1e-11)


def test_a_finer_grid_brings_the_bounds_together():
    single = count_losses(5.0, 100.0, 40)
    gaps = []
    for grid in (2**12, 2**17):
        found = _counts._convolved(single, 10, np.array([0.2, 0.7, 1.5]), grid)
        gaps.append(float(np.max(found.upper - found.lower)))
    assert gaps[1] < gaps[0] / 20
    assert gaps[1] < 2e-3


def test_composition_reduces_to_one_draw_and_to_redrawing():
    single = count_losses(4.0, 30.0, 1)  # one record from each of 25 draws: 25 redrawn records
    redrawn = log_delta(binomial_losses(4.0, 30.0, 25), EPSILONS)
    np.testing.assert_allclose(composed_bounds(single, 25, EPSILONS).upper, redrawn, atol=1e-9)
    one = count_losses(4.0, 30.0, 25)
    np.testing.assert_allclose(composed_bounds(one, 1, EPSILONS).upper, log_delta(one, EPSILONS), atol=1e-12)


def test_a_lower_bound_that_ignored_the_spread_would_be_caught():
    """The upper bound of a coarse grid is really above the exact value, so bounds that coincide with it are wrong."""
    single = count_losses(5.0, 50.0, 10)
    exact = composed_bounds(single, 4, EPSILONS).upper
    coarse = _counts._convolved(single, 4, EPSILONS, 2**9).upper
    assert np.max(coarse - exact) > 1e-5
