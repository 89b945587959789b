"""Means and histograms that assume no family: sensitivity, exact counts, coverage, what travels in a release."""

from __future__ import annotations

import itertools
import pickle

import numpy as np
import pytest
from scipy import stats

from dpbook import Release, expfam
from dpbook.expfam.noisy_moments import NoisyMoments, draw_mean_and_sd
from dpbook.expfam.table_counts import NoisyTable, draw_counts
from dpbook.sensitivity import mean_and_shape


@pytest.mark.parametrize(("norm", "squares"), [(1, 0.5), (1, 0.2), (2, 1.4), (2, 0.5)])
@pytest.mark.parametrize("cells", [0.01, 0.3, 2.0])
def test_no_pair_of_records_moves_mean_and_shape_by_more_and_the_two_ends_move_it_by_all(norm, squares, cells):
    u = np.linspace(-1, 1, 401)
    pairs = np.stack([np.abs(u[:, None] - u), squares * np.abs(u[:, None] ** 2 - u**2)], axis=-1)
    apart = np.full((401, 401, 2), cells) * ~np.eye(401, dtype=bool)[..., None]
    moved = np.linalg.norm(np.concatenate([pairs, apart], axis=-1), ord=norm, axis=-1)
    assert moved.max() == pytest.approx(mean_and_shape(squares=squares, cells=cells, norm=norm), rel=1e-12)


@pytest.mark.parametrize(("norm", "squares"), [(1, 0.51), (2, 1.42)])
def test_squares_that_would_cost_something_are_refused(norm, squares):
    with pytest.raises(ValueError, match="squares must be at most"):
        mean_and_shape(squares=squares, cells=1.0, norm=norm)


@pytest.mark.parametrize("laplace", [True, False])
@pytest.mark.parametrize("noisy", [[3.2, -1.0, 2.9], [9.0, 9.0, 9.0], [-4.0, -4.0, 0.5]])
def test_counts_behind_a_noisy_table_are_those_of_enumeration(laplace, noisy):
    """Five records in three cells; 20,000 independent draws: each probability within 5 standard errors."""
    alpha, n, scale = np.array([0.5, 1.0, 3.0]), 5, 1.7
    table = NoisyTable(np.array(noisy), scale, n, alpha, laplace)
    drawn = draw_counts(table, 20_000, np.random.default_rng(1))
    tables = [h for h in itertools.product(range(n + 1), repeat=3) if sum(h) == n]
    away = (np.array(noisy) - np.array(tables)) / scale
    fit = -np.abs(away).sum(axis=1) if laplace else -0.5 * (away**2).sum(axis=1)
    prior = stats.dirichlet_multinomial(alpha, n).logpmf(np.array(tables))
    exact = np.exp(fit + prior - (fit + prior).max())
    exact /= exact.sum()
    found = np.array([(drawn == h).all(axis=1).mean() for h in tables])
    assert found.sum() == pytest.approx(1.0)
    assert (np.abs(found - exact) < 5 * np.sqrt(exact / 20_000) + 1e-3).all()


def test_without_noise_to_speak_of_the_mean_is_that_of_students_t():
    """A flat prior of the standard deviation has n - 2 degrees of freedom; 40,000 draws, 2 % of the width."""
    x = np.random.default_rng(3).normal(0.1, 0.05, 12)
    tiny = np.array([1e-9])
    moments = NoisyMoments(np.array([x.sum()]), np.array([(x**2).sum()]), tiny, tiny, np.array([12.0]), True)
    mean, _ = draw_mean_and_sd(moments, 40_000, np.random.default_rng(4))
    spread = np.sqrt(((x - x.mean()) ** 2).sum() / 10 / 12)
    expected = x.mean() + spread * stats.t(10).ppf([0.025, 0.5, 0.975])
    assert np.quantile(mean, [0.025, 0.5, 0.975]) == pytest.approx(expected, abs=0.02 * np.ptp(expected))


DESIGNS = {
    "lognormal incomes": (lambda rng, n: rng.lognormal(10, 0.7, n), (0, 150_000)),
    "incomes, bounds five times too wide": (lambda rng, n: rng.lognormal(10, 0.7, n), (0, 750_000)),
    "incomes, a clipped tail": (lambda rng, n: rng.lognormal(10, 0.7, n), (0, 40_000)),
    "counts with too many zeros": (lambda rng, n: (rng.random(n) < 0.15) * rng.poisson(4, n), (0, 15)),
    "two points": (lambda rng, n: (rng.random(n) < 0.3) * 1.0, (0, 1)),
    "a constant": (lambda rng, n: np.full(n, 3.0), (0, 10)),
    "a constant at a bound": (lambda rng, n: np.full(n, 12.0), (0, 10)),
}


@pytest.mark.parametrize("design", DESIGNS)
@pytest.mark.parametrize(("n", "epsilon"), [(2000, 1.0), (60, 1.0), (20, 10.0), (5, 0.03)])
def test_intervals_cover_the_clipped_mean_as_often_as_students_less_a_little(design, n, epsilon):
    """200 trials; at a coverage of .92, fewer than .86 are found with a probability of .002 (binomial)."""
    draw, bounds = DESIGNS[design]
    rng = np.random.default_rng(17)
    truth = np.clip(draw(rng, 400_000), *bounds).mean()
    data = [np.asarray(draw(rng, n), dtype=float) for _ in range(200)]
    releases = [expfam.release_mean(x, bounds, epsilon=epsilon, rng=rng) for x in data]
    ends = np.array([p.interval(0.95, "mean") for p in expfam.infer(releases, draws=800, rng=rng)])
    inside = np.clip(data, *bounds)
    half = stats.t(n - 1).ppf(0.975) * inside.std(axis=1, ddof=1) / np.sqrt(n)
    student = np.mean(np.abs(inside.mean(axis=1) - truth) <= half + 1e-9)
    covered = np.mean((ends[:, 0] <= truth) & (truth <= ends[:, 1]))
    assert covered >= min(0.92, student - 0.03) - 0.06


def test_a_mean_is_as_narrow_as_the_noise_on_its_sum_alone_allows():
    rng = np.random.default_rng(5)
    releases = [expfam.release_mean(rng.normal(50, 10, 2000), (0, 100), epsilon=1.0, rng=rng) for _ in range(60)]
    widths = [np.diff(p.interval(0.95, "mean"))[0] for p in expfam.infer(releases, draws=2000, rng=rng)]
    sampling, noise = 10 / np.sqrt(2000), np.sqrt(2) * 100 / 2000
    assert np.median(widths) < 1.12 * 2 * 1.96 * np.hypot(sampling, noise)


def test_releases_travel_as_json_and_posteriors_as_pickles():
    rng = np.random.default_rng(6)
    noisy = expfam.release_mean(rng.exponential(2.0, 300), (0, 10), epsilon=1.0, rng=rng)
    again = Release.from_json(noisy.to_json())
    one, two = (expfam.infer(each, draws=400, rng=np.random.default_rng(1)) for each in (noisy, again))
    assert np.array_equal(one.draws["mean"], two.draws["mean"])
    kept = pickle.loads(pickle.dumps(one))
    assert kept.edges == one.edges
    assert "clipped to [0, 10]" in repr(kept.summary())
    assert noisy.scale["histogram"] * noisy.epsilon == pytest.approx(noisy.sensitivity["histogram"])
    assert noisy.scale["sum"] == pytest.approx(2 / 0.9, rel=1e-6)  # the squares cost nothing


def test_functionals_and_quantiles_of_a_histogram():
    rng = np.random.default_rng(7)
    x = rng.exponential(1.0, 20_000)
    posterior = expfam.infer(expfam.release_histogram(x, [0, 0.5, 1, 2, 4], epsilon=5.0, rng=rng), rng=rng)
    assert posterior.cells == ("below 0", "[0, 0.5)", "[0.5, 1)", "[1, 2)", "[2, 4]", "above 4")
    edges = np.array([0, 0.5, 1, 2, 4])
    even = np.interp(0.5, np.searchsorted(np.sort(x), edges) / x.size, edges)  # the median of evenly filled bins
    assert posterior.population_quantile(0.5).mean("quantile") == pytest.approx(even, abs=0.005)
    assert posterior.functional([0, 0, 0, 0, 0, 1]).mean("functional") == pytest.approx((x > 4).mean(), abs=0.003)
    labelled = expfam.infer(
        expfam.release_histogram(["a"] * 70 + ["b"] * 30, labels=["a", "b"], epsilon=9.0, rng=rng), rng=rng
    )
    scored = labelled.functional({"a": 1.0, "b": -1.0})
    assert scored.mean("functional") == pytest.approx(0.4, abs=0.1)
    with pytest.raises(ValueError, match="labels"):
        labelled.population_quantile(0.5)


def test_what_clipping_took_is_bounded_by_an_assumption_on_the_tail():
    rng = np.random.default_rng(8)
    x = rng.lognormal(3, 1, 5000)
    posterior = expfam.infer(expfam.release_mean(x, (0, 100), epsilon=3.0, rng=rng), rng=rng)
    low, high = posterior.unclipped((0, 500))
    assert low < x.mean() < high
    assert any("Clipping moved" in note for note in posterior.notes)
    with pytest.raises(ValueError, match="tail must reach beyond"):
        posterior.unclipped((0, 50))


@pytest.mark.parametrize(
    ("wrong", "name"),
    [
        ({"bins": [0, 5]}, "bins"),
        ({"bins": [0, 5, 5, 10]}, "bins"),
        ({"shape": 1.0}, "shape"),
        ({"bounds": 3}, "bounds"),
    ],
)
def test_wrong_arguments_are_named(wrong, name):
    with pytest.raises((TypeError, ValueError), match=name):
        expfam.release_mean([1.0, 2.0, 3.0], **({"bounds": (0, 10), "epsilon": 1.0} | wrong))


def test_a_mean_has_one_method_and_no_family():
    rng = np.random.default_rng(9)
    noisy = expfam.release_mean([1.0, 2.0, 3.0], (0, 5), epsilon=1.0, rng=rng)
    with pytest.raises(ValueError, match="method must not be given"):
        expfam.infer(noisy, method="gibbs")
    with pytest.raises(TypeError, match="prior must be None or a Dirichlet"):
        expfam.infer(noisy, expfam.Beta(1, 1))
