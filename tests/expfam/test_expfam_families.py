"""Families: moments against high precision, quadrature and simulation; sensitivities against brute force."""

import itertools

import mpmath as mp
import numpy as np
import pytest
from scipy import stats

from dpbook.expfam import (
    Beta,
    Binomial,
    CustomFamily,
    Dirichlet,
    Exponential,
    Gamma,
    Multinomial,
    Normal,
    NormalInverseGamma,
    Poisson,
)
from dpbook.expfam.family import OUTSIDE
from dpbook.expfam.latent_sums import TableSums

# --- references in 150 digits --------------------------------------------------------------------------------------


def exponential_parts(theta, low, high):
    """E[x^k; region] below, inside and above, k = 0 … 2."""
    theta = mp.mpf(theta)

    def part(k, start, end):
        return (mp.gammainc(k + 1, theta * start, theta * end)) / theta**k

    regions = ((0, low), (low, high), (high, mp.inf))
    return [[part(k, mp.mpf(start), mp.mpf(end)) for k in range(3)] for start, end in regions]


def poisson_parts(theta, low, high):
    theta = mp.mpf(theta)
    first, last = int(np.ceil(low)), int(np.floor(high))

    def part(k, start, end):
        return mp.fsum(mp.mpf(x) ** k * mp.exp(-theta) * theta**x / mp.factorial(x) for x in range(start, end + 1))

    below, inside = ([part(k, *ends) for k in range(3)] for ends in ((0, first - 1), (first, last)))
    full = [mp.mpf(1), theta, theta + theta**2]
    return [below, inside, [f - b - i for f, b, i in zip(full, below, inside, strict=True)]]


def normal_parts(theta, low, high):
    """About 0, in the coordinates of the release, k = 0 … 4."""
    mean, sd = (mp.mpf(theta[0]) - (low + high) / 2) / ((high - low) / mp.mpf(2)), mp.sqrt(theta[1])
    sd = sd / ((high - low) / mp.mpf(2))

    def part(k, start, end):
        zs = [(mp.mpf(e) - mean) / sd for e in (start, end)]
        phi = [mp.npdf(z) if mp.isfinite(z) else mp.mpf(0) for z in zs]
        edge = [z if mp.isfinite(z) else mp.mpf(0) for z in zs]
        mass = (mp.erfc(zs[0] / mp.sqrt(2)) - mp.erfc(zs[1] / mp.sqrt(2))) / 2
        j = [mass, phi[0] - phi[1]]
        for m in range(2, 5):
            j.append((m - 1) * j[m - 2] + edge[0] ** (m - 1) * phi[0] - edge[1] ** (m - 1) * phi[1])
        return mp.fsum(mp.binomial(k, m) * mean ** (k - m) * sd**m * j[m] for m in range(k + 1))

    return [[part(k, *ends) for k in range(5)] for ends in ((-mp.inf, -1), (-1, 1), (1, mp.inf))]


def reference(parts, low, high, order, outside):
    """Mean and covariance of (released powers, powers) from partial moments, in high precision."""
    below, inside, above = parts
    clip = 1 if outside == "clip" else 0
    low, high = mp.mpf(low), mp.mpf(high)
    powers = range(1, order + 1)

    def released(i):
        return inside[i] + clip * (low**i * below[0] + high**i * above[0])

    def cross(i, j):
        return inside[i + j] + clip * (low**i * below[j] + high**i * above[j])

    def full(i):
        return below[i] + inside[i] + above[i]

    mean = [released(i) for i in powers] + [full(i) for i in powers]
    names = [("g", i) for i in powers] + [("x", i) for i in powers]

    def second(a, b):
        if a[0] == b[0] == "g":
            return released(a[1] + b[1])
        if a[0] == b[0] == "x":
            return full(a[1] + b[1])
        g, x = (a, b) if a[0] == "g" else (b, a)
        return cross(g[1], x[1])

    size = 2 * order
    cov = [[second(names[i], names[j]) - mean[i] * mean[j] for j in range(size)] for i in range(size)]
    return np.array(mean, dtype=float), np.array(cov, dtype=float)


def assert_same_moments(found, expected, rtol):
    """Means to rtol, or a millionth of it in sds; covariances to rtol of the two sds that they belong to."""
    sd = np.sqrt(np.diagonal(expected[1]))
    assert (np.abs(found[0] - expected[0]) <= rtol * np.maximum(np.abs(expected[0]), 1e-6 * sd)).all()
    assert (np.abs(found[1] - expected[1]) <= rtol * np.outer(sd, sd)).all()


@pytest.mark.parametrize("outside", OUTSIDE)
@pytest.mark.parametrize(("low", "high"), [(0.0, 2.0), (0.0063, 1.1717), (1000.0, 1000.5)])
def test_moments_of_the_exponential_are_those_of_high_precision_even_at_extreme_rates(low, high, outside):
    thetas = np.array([1e-12, 1e-6, 1e-3, 0.1, 1.0, 4.0, 30.0, 300.0])
    thetas = thetas if low < 1000 else thetas[:6] / 4
    mean, cov = Exponential(low, high).moments(thetas, outside)
    with mp.workdps(150):
        for i, theta in enumerate(thetas):
            expected = reference(exponential_parts(theta, low, high), low, high, 1, outside)
            assert_same_moments((mean[i], cov[i]), expected, 1e-9)


@pytest.mark.parametrize("outside", OUTSIDE)
@pytest.mark.parametrize(("low", "high"), [(0, 20), (1, 20), (2.5, 6.5), (0, 200), (30, 200)])
def test_moments_of_the_poisson_are_those_of_high_precision_even_at_extreme_rates(low, high, outside):
    thetas = np.array([1e-9, 1e-3, 0.5, 5.0, 21.0, 60.0, 150.0])
    mean, cov = Poisson(low, high).moments(thetas, outside)
    with mp.workdps(150):
        for i, theta in enumerate(thetas):
            expected = reference(poisson_parts(theta, low, high), low, high, 1, outside)
            if low == 30 and theta < 1:  # records inside have probability below 1e-40
                assert mean[i, 0] == pytest.approx(expected[0][0], rel=1e-9, abs=1e-30)
            else:
                assert_same_moments((mean[i], cov[i]), expected, 1e-8)


@pytest.mark.parametrize("outside", OUTSIDE)
@pytest.mark.parametrize(
    "theta",
    [(10.0, 4.0), (0.0, 1e-4), (19.0, 9.0), (10.0, 1e-8), (10.3, 1e6), (-5.0, 1e10), (35.0, 25.0), (-20.0, 9.0)],
)
def test_moments_of_the_normal_are_those_of_high_precision_even_at_extreme_parameters(theta, outside):
    mean, cov = Normal(0, 20).moments(np.array([theta]), outside)
    with mp.workdps(150):
        expected = reference(normal_parts(theta, 0, 20), -1, 1, 2, outside)
    assert_same_moments((mean[0], cov[0]), expected, 1e-7)


def test_hopeless_parameters_give_zero_variance_and_no_nan():
    """Where every record is clipped or redacted, released statistics are constants."""
    for family, thetas in (
        (Exponential(0.5, 2), [1e-300, 1e-150, 1e3, 1e150]),
        (Poisson(0, 20), [1e-300, 1e5, 1e100]),
        (Poisson(3, 200), [1e-300, 1e5, 1e100]),
    ):
        for outside in OUTSIDE:
            mean, variance = family.released_moments(np.array(thetas), outside)
            assert np.isfinite(mean).all()
            assert np.isfinite(variance).all()
            assert (variance >= 0).all()
    mean, cov = Normal(0, 20).moments(np.array([[1e6, 1.0], [-1e9, 1e-6]]), "clip")
    np.testing.assert_allclose(mean[:, :2], [[1, 1], [-1, 1]])
    np.testing.assert_array_equal(cov[:, :2, :2], 0)


@pytest.mark.parametrize("kind", ["exponential", "poisson", "normal"])
def test_redacted_moments_follow_from_derivatives_of_the_log_probability_inside(kind):
    """The source's Lemma 1: cumulants of t given v < x < w are those of t plus derivatives of log(F(w) - F(v))."""
    with mp.workdps(40):
        if kind == "exponential":  # t = x, natural parameter -θ, A = -log(-η)
            theta, low, high, family = 2.0, 0.3, 1.7, Exponential(0.3, 1.7)

            def log_inside(eta):
                return mp.log(mp.exp(eta * low) - mp.exp(eta * high)), -mp.log(-eta)

            eta, point = -mp.mpf(theta), np.array(theta)
        elif kind == "poisson":  # t = x, natural parameter log θ, A = e^η
            theta, low, high, family = 4.0, 2, 7, Poisson(2, 7)

            def log_inside(eta):
                rate = mp.exp(eta)
                return mp.log(mp.fsum(rate**x / mp.factorial(x) for x in range(2, 8)) * mp.exp(-rate)), rate

            eta, point = mp.log(theta), np.array(theta)
        else:  # t = x with variance 1 known, natural parameter the mean, A = η²/2
            theta, family = 0.4, Normal(-1, 1)

            def log_inside(eta):
                return mp.log(mp.ncdf(1 - eta) - mp.ncdf(-1 - eta)), eta**2 / 2

            eta, point = mp.mpf(theta), np.array([theta, 1.0])
        q = mp.exp(log_inside(eta)[0])
        first, second = (mp.diff(lambda e: sum(log_inside(e)), eta, m) for m in (1, 2))
        expected_mean, expected_square = float(q * first), float(q * (second + first**2))
    mean, cov = family.moments(point, "redact")
    assert mean[0] == pytest.approx(expected_mean, rel=1e-12)
    assert cov[0, 0] + mean[0] ** 2 == pytest.approx(expected_square, rel=1e-12)


FAMILIES = [
    (Exponential(0.2, 1.5), np.array([0.3, 2.0, 9.0])),
    (Poisson(2, 9), np.array([0.7, 5.0, 12.0])),
    (Normal(-2, 3), np.array([[0.0, 1.0], [2.5, 4.0], [-4.0, 1.0]])),
]


def draw_records(family, theta, size, rng):
    if isinstance(family, Exponential):
        return rng.exponential(1 / theta, size)
    if isinstance(family, Poisson):
        return rng.poisson(theta, size).astype(float)
    return rng.normal(theta[0], np.sqrt(theta[1]), size)


@pytest.mark.parametrize("outside", OUTSIDE)
@pytest.mark.parametrize(("family", "thetas"), FAMILIES, ids=lambda v: getattr(v, "name", ""))
def test_moments_are_those_of_simulated_records(family, thetas, outside):
    """Each of at most 20 entries a parameter is within 5 standard errors: false alarms below 1e-4 in all."""
    rng = np.random.default_rng(1)
    mean, cov = family.moments(thetas, outside)
    for i, theta in enumerate(thetas):
        x = draw_records(family, theta, 200_000, rng)[:, None]
        both = np.hstack([family.released(x, outside), family.statistics(x)])
        error = both.std(axis=0) / np.sqrt(len(x))
        assert (np.abs(both.mean(axis=0) - mean[i]) < 5 * error).all()
        gap = both - mean[i]
        products = gap[:, :, None] * gap[:, None, :]
        assert (np.abs(products.mean(axis=0) - cov[i]) < 5 * products.std(axis=0) / np.sqrt(len(x)) + 1e-12).all()


def as_custom(family):
    """The same model as a custom family, whose moments come from quadrature or summation."""
    exponential = isinstance(family, Exponential)
    frozen = stats.expon if exponential else stats.poisson
    return CustomFamily(
        "custom",
        family.lower,
        family.upper,
        (0.0, np.inf),
        statistic=lambda x: x,
        log_density=(lambda x, t: frozen.logpdf(x, scale=1 / t)) if exponential else frozen.logpmf,
        conjugate=lambda prior, s, n, rng: rng.gamma(1.0, size=np.shape(s)),
        prior_type=Gamma,
        discrete=not exponential,
    )


@pytest.mark.parametrize("outside", OUTSIDE)
@pytest.mark.parametrize(("family", "thetas"), FAMILIES[:2], ids=lambda v: getattr(v, "name", ""))
def test_closed_forms_agree_with_quadrature(family, thetas, outside):
    for one, other in zip(family.moments(thetas, outside), as_custom(family).moments(thetas, outside), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-8, atol=1e-12)


# --- sensitivities ------------------------------------------------------------------------------------------------


def brute_force(family, outside, norm, records):
    statistics = family.released(records[:, None], outside)
    return max(np.linalg.norm(a - b, ord=norm) for a, b in itertools.combinations(statistics, 2))


CASES = [
    (Binomial(), np.array([0.0, 1.0])),
    (Multinomial(4), np.arange(4.0)),
    (Exponential(0.5, 3), np.array([0, 0.5, 1, 2, 3, 5])),
    (Exponential(0, 3), np.array([0, 0.5, 1, 2, 3, 5])),
    (Poisson(2, 7), np.arange(12.0)),
    (Normal(0, 20), np.concatenate([np.linspace(0, 20, 81), [-3.0, 25.0]])),
    (Normal(-7, -1), np.concatenate([np.linspace(-7, -1, 81), [-30.0, 25.0]])),
    (
        CustomFamily(
            "squares", -2.0, 1.0, (-np.inf, np.inf), lambda x: x**3, lambda x, t: x * t, lambda *a: a[1], Gamma
        ),
        np.linspace(-3, 3, 61),
    ),
]


@pytest.mark.parametrize("norm", [1, 2])
@pytest.mark.parametrize("outside", OUTSIDE)
@pytest.mark.parametrize(("family", "records"), CASES, ids=lambda v: getattr(v, "name", ""))
def test_the_sensitivity_is_the_largest_change_that_one_record_makes(family, records, outside, norm):
    """Attained by a pair on the grid (the normal's within the grid's step), never exceeded."""
    found, largest = family.sensitivity(outside, norm), brute_force(family, outside, norm, records)
    assert largest <= found * (1 + 1e-12)
    assert found == pytest.approx(largest, rel=2e-3 if family.name == "normal" else 1e-12)


def test_redaction_makes_a_record_vanish_so_its_sensitivity_is_not_the_width():
    assert Exponential(4, 5).sensitivity("clip") == 1
    assert Exponential(4, 5).sensitivity("redact") == 5
    assert Poisson(4, 5).sensitivity("redact") == 5
    assert Multinomial(7).sensitivity() == 2
    assert Multinomial(7).sensitivity(norm=2) == pytest.approx(np.sqrt(2))


# --- conjugate steps ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("family", "prior", "statistics", "n", "expected"),
    [
        (Binomial(), Beta(2, 3), [4.0], 10, [stats.beta(6, 9)]),
        (Exponential(0, 1), Gamma(2, 3), [4.0], 10, [stats.gamma(12, scale=1 / 7)]),
        (Poisson(0, 1), Gamma(2, 3), [4.0], 10, [stats.gamma(6, scale=1 / 13)]),
        (
            Multinomial(3),
            Dirichlet([1, 2, 3]),
            [5.0, 1.0, 4.0],
            10,
            [stats.beta(6, 10), stats.beta(3, 13), stats.beta(7, 9)],
        ),
    ],
    ids=lambda v: getattr(v, "name", ""),
)
def test_the_parameter_is_drawn_from_the_conjugate_posterior(family, prior, statistics, n, expected):
    """KS at the 1e-4 level for each marginal."""
    given = np.broadcast_to(np.array(statistics), (5000, 1, family.size))
    drawn = family.draw_parameter(prior, given, np.array([n]), np.random.default_rng(3))
    for column, law in zip(np.reshape(drawn, (5000, -1)).T, expected, strict=True):
        assert stats.kstest(column, law.cdf).pvalue > 1e-4


def test_the_normal_parameter_is_drawn_from_the_conjugate_posterior_in_the_units_of_the_data():
    """KS at the 1e-4 level for each marginal, against textbook formulas on the raw records."""
    x = np.random.default_rng(1).normal(12, 3, 25)
    prior, family = NormalInverseGamma(10, 2, 3, 20), Normal(0, 30)
    given = np.broadcast_to(family.statistics(x[:, None]).sum(axis=0), (5000, 1, 2))
    drawn = family.draw_parameter(prior, given, np.array([25.0]), np.random.default_rng(2))[:, 0]
    strength, shape = 27, 3 + 12.5
    centre = (2 * 10 + x.sum()) / 27
    rate = 20 + 0.5 * ((x - x.mean()) ** 2).sum() + 0.5 * 2 * 25 / 27 * (x.mean() - 10) ** 2
    assert stats.kstest(drawn[:, 1], stats.invgamma(shape, scale=rate).cdf).pvalue > 1e-4
    assert stats.kstest(drawn[:, 0], stats.t(2 * shape, centre, np.sqrt(rate / shape / strength)).cdf).pvalue > 1e-4


# --- counts -------------------------------------------------------------------------------------------------------


def test_counts_are_drawn_as_the_dense_formulas_say_and_sum_to_n():
    """Means within 5 standard errors and covariances within 6 %, of 100,000 draws: false alarms below 1e-4."""
    theta, n = np.array([0.1, 0.2, 0.3, 0.4]), 200.0
    noisy, noise = np.array([35.0, 20.0, 70.0, 90.0]), np.array([50.0, 8.0, 100.0, 20.0])
    prior_cov = n * (np.diag(theta) - np.outer(theta, theta))
    gain = prior_cov @ np.linalg.inv(prior_cov + np.diag(noise))
    expected, cov = n * theta + gain @ (noisy - n * theta), prior_cov - gain @ prior_cov
    law = TableSums(Multinomial(4), np.broadcast_to(theta, (100_000, 4)), np.array(n))
    draws = law.draw_normal(noisy, noise, np.random.default_rng(5))
    np.testing.assert_allclose(draws.sum(axis=1), n, rtol=1e-12)
    np.testing.assert_array_less(np.abs(draws.mean(axis=0) - expected), 5 * np.sqrt(np.diagonal(cov) / 100_000))
    np.testing.assert_allclose(np.cov(draws.T), cov, atol=0.06 * np.diagonal(cov).max())


def test_the_nearest_valid_counts_are_the_projection_on_the_simplex():
    """Against bisection on the shift: the projection is max(y - shift, 0) with the shift that gives the total n."""
    rng = np.random.default_rng(6)
    noisy, n = rng.normal(10, 40, (50, 6)), rng.integers(1, 100, 50)
    found = Multinomial(6).nearest_valid(noisy, n.astype(float))
    for y, total, counts in zip(noisy, n, found, strict=True):
        low, high = y.min() - total, y.max()
        for _ in range(200):
            middle = (low + high) / 2
            low, high = (middle, high) if np.maximum(y - middle, 0).sum() > total else (low, middle)
        np.testing.assert_allclose(counts, np.maximum(y - low, 0), atol=1e-9)
    assert (found >= 0).all()
    np.testing.assert_allclose(found.sum(axis=1), n)


def test_nearest_valid_statistics_are_possible_and_leave_possible_ones_alone():
    normal = Normal(-1, 1)
    np.testing.assert_allclose(normal.nearest_valid(np.array([4.0, 1.0]), np.array(10.0)), [4.0, 1.6])
    np.testing.assert_allclose(normal.nearest_valid(np.array([4.0, 3.0]), np.array(10.0)), [4.0, 3.0])
    assert Exponential(0, 1).nearest_valid(np.array([-3.0]), np.array(10.0)) == [0.0]
    assert Poisson(0, 1).nearest_valid(np.array([-3.0]), np.array(10.0)) == [0.0]
    assert Binomial().nearest_valid(np.array([13.0]), np.array(10.0)) == [10.0]


# --- arguments ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: Multinomial(1), "k"),
        (lambda: Multinomial(2.5), "k"),
        (lambda: Exponential(-1, 2), "lower"),
        (lambda: Exponential(2, 2), "upper"),
        (lambda: Poisson(0, np.inf), "upper"),
        (lambda: Normal("a", 2), "lower"),
        (lambda: Exponential(0, 1).sensitivity("drop"), "outside"),
        (lambda: Exponential(0, 1).sensitivity("clip", 3), "norm"),
        (lambda: Exponential(0, 1).moments(1.0, "drop"), "outside"),
        (lambda: Exponential(0, 1).moments(np.nan), "theta"),
        (lambda: Normal(0, 1).moments(1.0), "theta"),
    ],
)
def test_errors_name_the_argument(make, named):
    with pytest.raises((TypeError, ValueError), match=named):
        make()
