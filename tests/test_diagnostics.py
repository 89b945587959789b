"""The judges are judged: false alarms at the stated rate, known faults found, every score against a second source.

Where one study is asserted to pass, it is judged at the level 0.001: a right posterior fails that once in 1,000 seeds.
"""

from __future__ import annotations

import copy
import pickle
import tracemalloc
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.figure import Figure
from scipy import integrate, stats
from sklearn.metrics.pairwise import rbf_kernel  # type: ignore[import-untyped]
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.proportion import proportion_confint

from dpbook.diagnostics import (
    Calibration,
    calibrate,
    coverage,
    crps,
    ecdf_bands,
    holm,
    interval_score,
    mmd2,
    plot_ecdf_difference,
)
from dpbook.posterior import Posterior

mpl.use("agg")
POSTERIOR_SD = np.sqrt(0.5)  # of θ ~ N(0, 1) given y ~ N(θ, 1), whose posterior is N(y/2, 1/2)


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def prior_draw(generator: np.random.Generator, trials: int) -> Any:
    return generator.normal(size=trials)


def simulate(theta: Any, generator: np.random.Generator) -> Any:
    return generator.normal(theta)


def conjugate(spread: float = 1.0, shift: float = 0.0, draws: int = 99) -> Callable[[Any, Any], Any]:
    """The exact posterior, or one whose sd is wrong by a factor or whose mean is off by some posterior sds."""

    def infer(y: Any, generator: np.random.Generator) -> Any:
        centre = y[:, None] / 2 + shift * POSTERIOR_SD
        return generator.normal(centre, spread * POSTERIOR_SD, size=(len(y), draws))

    return infer


def the_prior(y: Any, generator: np.random.Generator) -> Any:
    return generator.normal(size=(len(y), 99))


def log_likelihood(parameters: Any, y: Any) -> Any:
    return -0.5 * (y[:, None] - parameters["theta"]) ** 2


# Calibration: level and power


def variance_power(spread: float, trials: int) -> float:
    """Exact power at 5 % where the posterior sd is wrong by a factor: Σz² is chi-squared divided by spread²."""
    low, high = stats.chi2.ppf([0.025, 0.975], trials)
    return float(stats.chi2.cdf(low * spread**2, trials) + stats.chi2.sf(high * spread**2, trials))


def test_a_right_posterior_fails_at_the_stated_rate() -> None:
    # 1,000 studies. Both tests are exact and nearly independent, so Holm's level is 1 - 0.975² = 4.94 %.
    # Outside [3.0 %, 7.2 %]: probability below 0.4 % (binomial), were the seed not fixed.
    generator = rng(1)
    studies = [calibrate(prior_draw, simulate, conjugate(draws=19), 60, rng=generator) for _ in range(1000)]
    alarms = np.mean([not study.passed(0.05) for study in studies])
    assert 0.030 <= alarms <= 0.072


def test_each_test_alone_is_exact_even_with_three_draws() -> None:
    # p-values of a true hypothesis are uniform: KS over 600 studies, one in 500 would fail for each test.
    generator = rng(2)
    studies = [calibrate(prior_draw, simulate, conjugate(draws=3), 40, rng=generator) for _ in range(600)]
    for p_values in np.array([list(study.raw_p_values.values()) for study in studies]).T:
        assert stats.kstest(p_values, "uniform").pvalue > 0.002


def test_a_posterior_sd_13_percent_too_wide_is_seen_by_the_variance_test_and_hardly_by_ks() -> None:
    # 2,000 studies of R = 300 with exact ranks Φ(z/1.13); bounds are 4 standard errors (.0082, .0080, .0026).
    # KS has no closed form here: .152 and .0139 come from 40,000 studies with another seed.
    ranks = stats.norm.cdf(rng(3).normal(size=(2000, 300)) / 1.13)
    study = Calibration({str(i): row for i, row in enumerate(ranks)})
    p_values = study.raw_p_values
    power = {test: np.mean([p_values[str(i), test] <= 0.05 for i in range(2000)]) for test in ("ks", "variance")}
    assert variance_power(1.13, 300) == pytest.approx(0.839, abs=0.001)
    assert power["variance"] == pytest.approx(variance_power(1.13, 300), abs=0.033)
    assert power["ks"] == pytest.approx(0.152, abs=0.032)
    over_threshold = np.mean(np.array(list(study.ks.values())) > 0.10)
    assert over_threshold == pytest.approx(0.0139, abs=0.0105)


def test_calibrate_itself_has_that_power() -> None:
    # 150 studies from draws, not exact ranks; standard error .030, bounds 4 of them.
    generator = rng(4)
    studies = [calibrate(prior_draw, simulate, conjugate(1.13, draws=199), 300, rng=generator) for _ in range(150)]
    power = np.mean([study.raw_p_values["theta", "variance"] <= 0.05 for study in studies])
    assert power == pytest.approx(variance_power(1.13, 300), abs=0.12)
    assert np.mean([study.variance["theta"] for study in studies]) == pytest.approx(1.13**-2, abs=0.02)


@pytest.mark.parametrize(("spread", "direction"), [(1.3, -1), (1 / 1.3, 1)])
def test_the_variance_statistic_tells_too_wide_from_too_narrow(spread: float, direction: int) -> None:
    study = calibrate(prior_draw, simulate, conjugate(spread), 400, rng=rng(5))
    assert not study.passed()
    assert direction * (study.variance["theta"] - 1) > 0.2


def test_a_biased_posterior_is_caught_by_ks() -> None:
    study = calibrate(prior_draw, simulate, conjugate(shift=0.4), 400, rng=rng(6))
    assert not study.passed()
    assert study.p_values["theta", "ks"] < 0.001
    # Truth lies 0.4 sd too low among its draws: the largest gap of the two CDFs is 2Φ(0.2) - 1.
    assert study.ks["theta"] == pytest.approx(2 * stats.norm.cdf(0.2) - 1, abs=0.06)


def test_the_prior_passes_with_no_contraction_until_a_quantity_looks_at_the_data() -> None:
    # 300 studies at the 5 % level: more than 28 alarms has probability below 0.1 %.
    generator = rng(7)
    blind = [calibrate(prior_draw, simulate, the_prior, 100, rng=generator) for _ in range(300)]
    assert sum(not study.passed(0.05) for study in blind) <= 28
    # One contraction has a standard error of √(2/100) = .14; their mean of .008, and a bias of -2/100.
    assert np.mean([study.contraction["theta"] for study in blind]) == pytest.approx(-0.02, abs=0.035)
    seeing = calibrate(prior_draw, simulate, the_prior, 400, quantities={"fit": log_likelihood}, rng=rng(7))
    assert not seeing.passed()
    assert seeing.p_values["fit", "ks"] < 1e-6


def test_the_right_posterior_passes_with_a_data_dependent_quantity_and_contracts_by_half() -> None:
    study = calibrate(prior_draw, simulate, conjugate(), 2000, quantities={"fit": log_likelihood}, rng=rng(8))
    assert study.passed(0.001)
    # The prior variance is estimated from 2,000 trials: standard error of the contraction .016.
    assert study.contraction["theta"] == pytest.approx(0.5, abs=0.06)
    assert "fit" not in study.contraction


# Calibration: the mechanics


def test_ranks_count_the_draws_below_and_spread_ties_over_their_cell() -> None:
    draws = np.array([[1.0, 2, 3, 4], [1, 1, 1, 1], [5, 6, 7, 8]] * 2000)
    truth = np.tile([2.5, 1.0, 9.0], 2000)
    study = calibrate(lambda g, t: truth, lambda p, g: None, lambda d, g: draws, 6000, rng=rng(9))
    between, tied, above = study.ranks["theta"].reshape(2000, 3).T
    # One in 1,000 would fail for each line, were the seed not fixed.
    assert stats.kstest(between, stats.uniform(2 / 5, 1 / 5).cdf).pvalue > 0.001
    assert stats.kstest(tied, "uniform").pvalue > 0.001
    assert stats.kstest(above, stats.uniform(4 / 5, 1 / 5).cdf).pvalue > 0.001


def test_a_quantity_is_ranked_among_all_draws_like_a_parameter() -> None:
    study = calibrate(prior_draw, simulate, conjugate(), 50, quantities={"same": lambda p, y: p["theta"]}, rng=rng(9))
    cells = {name: np.floor(100 * ranks) for name, ranks in study.ranks.items()}  # 99 draws leave 100 places
    np.testing.assert_array_equal(cells["same"], cells["theta"])


def test_a_discrete_parameter_is_calibrated_under_its_exact_posterior() -> None:
    prior = np.array([0.5, 0.3, 0.2])

    def exact(y: Any, generator: np.random.Generator) -> Any:
        weights = prior * stats.norm.pdf(y[:, None], np.arange(3))
        below = np.cumsum(weights, axis=1) / weights.sum(axis=1, keepdims=True)
        return (generator.random((len(y), 50, 1)) > below[:, None]).sum(axis=-1)

    def draw(generator: np.random.Generator, trials: int) -> Any:
        return generator.choice(3, size=trials, p=prior)

    # Unbroken ties would give a KS distance near .3.
    study = calibrate(draw, simulate, exact, 3000, rng=rng(10))
    assert study.passed(0.001)


def test_every_component_of_an_array_gets_its_own_rank() -> None:
    def draw(generator: np.random.Generator, trials: int) -> dict[str, Any]:
        return {"slope": generator.normal(size=trials), "cov": generator.normal(size=(trials, 2, 2))}

    def infer(data: Any, generator: np.random.Generator) -> dict[str, Any]:
        shifts = np.array([[0.0, 3.0], [-3.0, 0.0]])
        draws = {"slope": (50, 9), "cov": (50, 9, 2, 2)}
        made = {name: generator.normal(size=shape) for name, shape in draws.items()}
        return {**made, "cov": made["cov"] + shifts, "latent": np.zeros((50, 9))}

    study = calibrate(draw, lambda p, g: None, infer, 50, rng=rng(11))
    assert list(study.ranks) == ["slope", "cov[0,0]", "cov[0,1]", "cov[1,0]", "cov[1,1]"]
    assert study.ranks["cov[0,1]"].mean() < 0.2  # shifted up, so the truth ranks low
    assert study.ranks["cov[1,0]"].mean() > 0.8
    assert set(study.contraction) == set(study.ranks)


def test_posteriors_are_pooled_over_chains_and_thinned_to_the_shortest() -> None:
    def infer(y: Any, generator: np.random.Generator) -> list[Any]:
        lengths = np.where(np.arange(len(y)) % 2, 30, 20)
        draws = [generator.normal(value / 2, POSTERIOR_SD, size=(4, n)) for value, n in zip(y, lengths, strict=True)]
        return [Posterior({"theta": array}) for array in draws]

    seen: list[Any] = []

    def spy(parameters: Any, y: Any) -> Any:
        seen.append(parameters["theta"].shape)
        return log_likelihood(parameters, y)

    study = calibrate(
        prior_draw,
        simulate,
        infer,
        300,
        quantities={"spy": spy},
        rng=rng(12),
    )
    assert seen == [(300, 1), (300, 80)]
    assert study.passed(0.001)


def test_pooling_keeps_the_axes_of_array_parameters() -> None:
    draws = np.arange(2 * 5 * 3, dtype=float).reshape(2, 5, 3)
    truth = np.array([[10.0, 10, 10], [20, 20, 20]])
    seen: list[Any] = []

    def spy(parameters: Any, data: Any) -> Any:
        seen.append(parameters["beta"])
        return parameters["beta"][..., 0]

    calibrate(
        lambda g, t: {"beta": truth},
        lambda p, g: None,
        lambda d, g: [SimpleNamespace(draws={"beta": draws + trial}) for trial in range(2)],
        2,
        quantities={"spy": spy},
        rng=rng(13),
    )
    np.testing.assert_array_equal(seen[0], truth[:, None])
    np.testing.assert_array_equal(seen[1], np.stack([draws.reshape(10, 3), draws.reshape(10, 3) + 1]))


def test_draws_thins_evenly_and_cures_the_false_alarm_of_a_sticky_chain() -> None:
    def sticky(y: Any, generator: np.random.Generator) -> Any:  # each draw repeated 100 times
        return np.repeat(conjugate(draws=20)(y, generator), 100, axis=1)

    assert calibrate(prior_draw, simulate, sticky, 1000, draws=20, rng=rng(14)).passed(0.001)
    assert calibrate(prior_draw, simulate, sticky, 1000, rng=rng(14)).passed(0.001)
    with pytest.raises(ValueError, match=r"draws must be at most about \d+: the 2000 kept of 'theta'"):
        calibrate(prior_draw, simulate, sticky, 1000, draws=2000, rng=rng(14))


def autoregressive(phi: float, draws: int, spread: float = 1.0) -> Callable[..., Any]:
    """Return the conjugate posterior, or one wrong by ``spread``, drawn by a chain of autocorrelation ``phi``."""

    def infer(y: Any, generator: np.random.Generator) -> Any:
        chain = generator.normal(size=(len(y), draws))
        for t in range(1, draws):
            chain[:, t] = phi * chain[:, t - 1] + np.sqrt(1 - phi**2) * chain[:, t]
        return y[:, None] / 2 + spread * np.sqrt(0.5) * chain

    return infer


def test_draws_of_a_chain_are_thinned_until_a_right_posterior_passes_as_often_as_the_level_says() -> None:
    """30 studies at the 0.1 level: more than 8 rejections with probability 0.002, for each of two chains."""
    for phi, size in ((0.9, 400), (0.6, 120)):
        studies = [
            calibrate(prior_draw, simulate, autoregressive(phi, size), 200, rng=np.random.default_rng((40, i)))
            for i in range(30)
        ]
        assert sum(not study.passed(0.1) for study in studies) <= 8


def test_thinned_chains_still_show_a_posterior_that_is_too_narrow() -> None:
    study = calibrate(prior_draw, simulate, autoregressive(0.9, 1000, spread=0.6), 400, rng=rng(41))
    assert study.variance["theta"] > 1.3
    assert not study.passed(0.001)


def test_a_chain_that_is_worth_too_few_draws_is_refused() -> None:
    with pytest.raises(ValueError, match=r"infer must return more draws: the 200 of 'theta' .* run longer chains"):
        calibrate(prior_draw, simulate, autoregressive(0.97, 200), 200, rng=rng(42))


def test_chains_are_thinned_one_by_one_and_independent_draws_stay_as_they_are() -> None:
    chains = [
        SimpleNamespace(draws={"theta": autoregressive(0.8, 200)(np.zeros(4), np.random.default_rng((43, i)))})
        for i in range(100)
    ]
    seen: list[Any] = []

    def spy(parameters: Any, data: Any) -> Any:
        seen.append(parameters["theta"])
        return parameters["theta"]

    def look(infer: Callable[..., Any]) -> Any:
        seen.clear()
        calibrate(lambda g, t: g.normal(size=t), simulate, infer, 100, quantities={"spy": spy}, rng=rng(44))
        return seen[-1]

    thinned = look(lambda y, g: chains)  # an autocorrelation time of 9 steps
    step = round(200 / (thinned.shape[1] / 4))
    assert 7 <= step <= 11
    expected = np.stack([one.draws["theta"][:, ::step].ravel() for one in chains])
    np.testing.assert_array_equal(thinned, expected)
    assert look(conjugate(draws=60)).shape == (100, 60)


def test_callbacks_are_called_once_in_turn_with_what_came_before() -> None:
    calls: list[Any] = []
    theta, data = np.arange(5.0), object()
    draws = np.tile(np.arange(5.0)[:, None], (1, 4))

    def record(name: str, value: Any) -> Callable[..., Any]:
        def callback(*arguments: Any) -> Any:
            calls.append((name, *arguments))
            return value

        return callback

    generator = rng(15)
    calibrate(record("prior", theta), record("simulate", data), record("infer", draws), 5, rng=generator)
    assert [call[0] for call in calls] == ["prior", "simulate", "infer"]
    assert calls[0][1:] == (generator, 5)
    assert calls[1][1] is theta
    assert calls[2][1] is data


def test_the_same_generator_gives_the_same_calibration() -> None:
    first, again, other = (calibrate(prior_draw, simulate, conjugate(), 50, rng=rng(seed)) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first.ranks["theta"], again.ranks["theta"])
    assert not np.array_equal(first.ranks["theta"], other.ranks["theta"])


def test_infinite_quantities_are_ranked_and_extreme_truths_stay_inside_the_unit_interval() -> None:
    study = calibrate(
        prior_draw,
        simulate,
        conjugate(),
        200,
        quantities={"support": lambda p, y: np.where(p["theta"] > 0, 0.0, -np.inf)},
        rng=rng(16),
    )
    assert 0 < study.ranks["support"].min() < study.ranks["support"].max() < 1

    class Zeros(np.random.Generator):
        def random(self, size: Any = None, *_: Any) -> Any:  # type: ignore[override]  # the least value that a generator can return
            return np.zeros(size)

    zeros = Zeros(np.random.PCG64(0))
    edge = calibrate(lambda g, t: np.zeros(3), lambda p, g: None, lambda d, g: np.ones((3, 4)), 3, rng=zeros)
    assert np.isfinite(edge.variance["theta"])


# Calibration: the record


@pytest.mark.parametrize("shape", [(1.2, 1.0), (1.0, 1.2)], ids=["too high", "too low"])
def test_statistics_agree_with_their_formulas(shape: tuple[float, float]) -> None:
    ranks = rng(17).beta(*shape, size=150)
    study = Calibration({"theta": ranks})
    reference = stats.kstest(ranks, "uniform")
    assert study.ks["theta"] == pytest.approx(reference.statistic, rel=1e-12)
    assert study.raw_p_values["theta", "ks"] == pytest.approx(reference.pvalue, rel=1e-9)
    squares = np.sum(stats.norm.ppf(ranks) ** 2)
    assert study.variance["theta"] == pytest.approx(squares / 150)
    side = stats.chi2.cdf(squares, 150)
    assert study.raw_p_values["theta", "variance"] == pytest.approx(2 * min(side, 1 - side))


def test_p_values_are_corrected_over_quantities_and_tests_together() -> None:
    study = Calibration({name: rng(i).beta(1.1, 1.1, size=200) for i, name in enumerate("abc")})
    raw, corrected = study.raw_p_values, study.p_values
    assert list(raw) == list(corrected) == [(name, test) for name in "abc" for test in ("ks", "variance")]
    np.testing.assert_allclose(list(corrected.values()), multipletests(list(raw.values()), method="holm")[1])


def test_passed_rejects_at_the_level_it_is_given() -> None:
    study = Calibration({"theta": rng(18).beta(1.3, 1.3, size=200)})
    least = min(study.p_values.values())
    assert not study.passed(least)
    assert study.passed(0.999 * least)


def test_summary_has_a_row_a_quantity_and_nan_contraction_for_test_quantities() -> None:
    study = calibrate(prior_draw, simulate, conjugate(), 100, quantities={"fit": log_likelihood}, rng=rng(19))
    table = study.summary()
    assert list(table.index) == ["theta", "fit"]
    assert list(table.columns) == ["ks", "ks_p", "variance", "variance_p", "contraction"]
    assert table.loc["fit", "variance_p"] == study.p_values["fit", "variance"]
    assert table.loc["theta", "ks_p"] == study.p_values["theta", "ks"]
    assert table.loc["theta", "contraction"] == study.contraction["theta"]
    assert table["contraction"].isna().tolist() == [False, True]


def test_a_calibration_is_frozen_and_survives_pickle_and_later_changes_of_its_input() -> None:
    ranks = rng(20).random(50)
    kept = ranks.copy()
    study = Calibration({"theta": ranks})
    ranks[:] = 0.5
    np.testing.assert_array_equal(study.ranks["theta"], kept)
    with pytest.raises(ValueError, match="read-only"):
        study.ranks["theta"][0] = 0.5
    with pytest.raises(AttributeError):
        study.ranks = {}  # type: ignore[misc]
    for clone in (pickle.loads(pickle.dumps(study)), copy.deepcopy(study)):
        np.testing.assert_array_equal(clone.ranks["theta"], kept)


def test_contraction_compares_unbiased_variances() -> None:
    """True values 0 and 2 have variance 2; draws 0 and 1 have variance 1/2: the contraction is 3/4."""
    study = calibrate(
        lambda g, t: np.array([0.0, 2.0]), lambda p, g: p, lambda d, g: np.array([[0.0, 1.0]] * 2), 2, rng=rng(22)
    )
    assert study.contraction["theta"] == pytest.approx(0.75)


def test_a_constant_parameter_has_no_contraction() -> None:
    study = calibrate(lambda g, t: np.ones(t), lambda p, g: p, lambda d, g: np.ones((20, 5)), 20, rng=rng(21))
    assert np.isnan(study.contraction["theta"])


BAD_CALIBRATIONS: list[tuple[str, dict[str, Any], str]] = [
    ("trials too few", {"trials": 1}, "trials"),
    ("trials not whole", {"trials": 20.0}, "trials"),
    ("rng a seed", {"rng": 3}, "rng"),
    ("draws too few", {"draws": 1}, "draws"),
    ("draws more than there are", {"draws": 100}, "draws must be at most the 99"),
    ("prior not callable", {"prior_draw": 1.0}, "prior_draw must be callable"),
    ("quantity not callable", {"quantities": {"fit": 1.0}}, r"quantities\['fit'\] must be callable"),
    ("prior of another length", {"prior_draw": lambda g, t: np.zeros(t + 1)}, "prior_draw must return"),
    ("prior with NaN", {"prior_draw": lambda g, t: np.full(t, np.nan)}, "prior_draw's 'theta' must be finite"),
    ("infer with NaN", {"infer": lambda y, g: np.full((20, 9), np.nan)}, "infer's 'theta' must be finite"),
    ("infer without draws", {"infer": lambda y, g: np.zeros(20)}, "infer must return arrays"),
    ("infer of another length", {"infer": lambda y, g: np.zeros((19, 9))}, "infer must return arrays"),
    ("infer of one draw", {"infer": lambda y, g: np.zeros((20, 1))}, "infer must return at least 2"),
    ("infer of another shape", {"infer": lambda y, g: np.zeros((20, 9, 2))}, "infer must return draws of 'theta'"),
    ("infer of another name", {"infer": lambda y, g: {"beta": np.zeros((20, 9))}}, "infer must return a parameter"),
    ("infer of nothing", {"infer": lambda y, g: {}}, "infer must return"),
    (
        "unequal numbers of draws",
        {"infer": lambda y, g: {"theta": np.zeros((20, 9)), "latent": np.zeros((20, 8))}},
        "infer must return the same number",
    ),
    (
        "posteriors of several models",
        {"infer": lambda y, g: [SimpleNamespace(draws={f"theta{i}": np.zeros((1, 9))}) for i in range(20)]},
        "infer must return posteriors",
    ),
    (
        "too few posteriors",
        {"infer": lambda y, g: [SimpleNamespace(draws={"theta": np.zeros((1, 9))})] * 19},
        "infer must return arrays",
    ),
    ("quantity of a wrong shape", {"quantities": {"fit": lambda p, y: y}}, r"quantities\['fit'\] must return shape"),
    ("quantity of NaN", {"quantities": {"fit": lambda p, y: p["theta"] * np.nan}}, r"quantities\['fit'\] must not"),
    ("quantity that hides a parameter", {"quantities": {"theta": log_likelihood}}, "quantities must have names"),
]


@pytest.mark.parametrize(
    ("change", "message"), [case[1:] for case in BAD_CALIBRATIONS], ids=[c[0] for c in BAD_CALIBRATIONS]
)
def test_calibrate_names_the_argument_that_is_wrong(change: dict[str, Any], message: str) -> None:
    arguments: dict[str, Any] = {
        "prior_draw": prior_draw,
        "simulate": simulate,
        "infer": conjugate(),
        "trials": 20,
        "rng": rng(),
    }
    with pytest.raises((ValueError, TypeError), match=message):
        calibrate(**(arguments | change))


@pytest.mark.parametrize(
    "ranks", [{}, {"a": [0.5]}, {"a": [0.0, 0.5]}, {"a": [0.5, 1.0]}, {"a": [3, 7]}, {"a": [0.1, np.nan]}, {"a": 0.5}]
)
def test_calibration_refuses_what_are_not_normalised_ranks(ranks: Any) -> None:
    with pytest.raises(ValueError, match="ranks"):
        Calibration(ranks)


@pytest.mark.parametrize("level", [0, 1, np.nan, 5])
def test_passed_refuses_a_level_outside_the_unit_interval(level: float) -> None:
    with pytest.raises(ValueError, match="level"):
        Calibration({"a": np.array([0.2, 0.7])}).passed(level)


# Holm


def test_holm_agrees_with_statsmodels() -> None:
    generator = rng(22)
    for size in (1, 2, 5, 40):
        p_values = generator.beta(0.3, 1, size=size).round(2)  # rounding makes ties
        np.testing.assert_allclose(holm(p_values), multipletests(p_values, method="holm")[1], atol=1e-15)


def test_holm_of_nothing_is_nothing() -> None:
    assert holm([]).shape == (0,)


@pytest.mark.parametrize("p_values", [[-0.1], [1.1], [np.nan], [[0.1]]])
def test_holm_refuses_what_are_not_p_values(p_values: Any) -> None:
    with pytest.raises(ValueError, match="p_values"):
        holm(p_values)


# ECDF bands


def binomial_recursion(trials: int, points: Any, least: Any, most: Any) -> float:
    """The textbook route to the same probability: a Markov chain of counts with binomial steps."""
    state, before = np.zeros(trials + 1), 0.0
    state[0] = 1
    counts = np.arange(trials + 1)
    for z, low, high in zip(points, least, most, strict=True):
        step = stats.binom.pmf(counts[None] - counts[:, None], trials - counts[:, None], (z - before) / (1 - before))
        state = (state @ step) * ((counts >= low) & (counts <= high))
        before = z
    return float(state.sum())


@pytest.mark.parametrize(
    ("trials", "points"), [(1, None), (30, None), (50, [0.02, 0.03, 0.4, 0.9]), (80, np.linspace(0.05, 0.95, 19))]
)
def test_the_coverage_of_the_bands_is_exact(trials: int, points: Any) -> None:
    for level in (0.5, 0.95, 0.999):
        bands = ecdf_bands(trials, level, points)
        least, most = (np.rint((edge + bands.points) * trials) for edge in (bands.lower, bands.upper))
        assert bands.coverage == pytest.approx(binomial_recursion(trials, bands.points, least, most), rel=1e-10)
        assert bands.coverage >= level


def test_uniform_ranks_stay_inside_the_bands_as_often_as_promised() -> None:
    # 20,000 sets of 300 ranks: standard error .0015; bounds are 4 of them.
    bands = ecdf_bands(300)
    cells = rng(23).multinomial(300, np.diff(np.r_[0, bands.points, 1]), size=20_000)
    difference = np.cumsum(cells, axis=1)[:, :-1] / 300 - bands.points
    slack = 1e-12
    inside = np.all((difference >= bands.lower - slack) & (difference <= bands.upper + slack), axis=1)
    assert inside.mean() == pytest.approx(bands.coverage, abs=0.006)
    assert 0.95 <= bands.coverage < 0.951


def test_gamma_is_the_largest_that_keeps_the_level() -> None:
    # With the next larger gamma some binomial interval loses a count and the exact coverage drops below the level.
    bands = ecdf_bands(100)
    wider = bands.gamma * (1 + 2e-6)
    least, most = stats.binom.ppf(wider / 2, 100, bands.points), stats.binom.ppf(1 - wider / 2, 100, bands.points)
    assert binomial_recursion(100, bands.points, least, most) < 0.95
    pointwise = stats.binom.ppf(1 - bands.gamma / 2, 100, bands.points) / 100 - bands.points
    np.testing.assert_allclose(bands.upper, pointwise, atol=1e-12)
    assert 0.05 / 99 < bands.gamma < 0.05


def test_one_point_gives_the_binomial_interval_and_many_trials_approach_the_diagonal() -> None:
    bands = ecdf_bands(1000, 0.9, [0.5])
    assert bands.gamma == pytest.approx(0.1)
    assert ecdf_bands(1000, 0.9, [0.5, 0.5 + 1e-12]).gamma == pytest.approx(0.1)  # two points that are one
    assert bands.upper[0] == pytest.approx(stats.binom.ppf(0.95, 1000, 0.5) / 1000 - 0.5)
    assert ecdf_bands(10_000).upper.max() == pytest.approx(ecdf_bands(1000).upper.max() / np.sqrt(10), rel=0.05)


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ({"trials": 0}, "trials"),
        ({"trials": 10, "level": 1.0}, "level"),
        ({"trials": 10, "points": []}, "points"),
        ({"trials": 10, "points": [0.0, 0.5]}, "points"),
        ({"trials": 10, "points": [0.5, 1.0]}, "points"),
        ({"trials": 10, "points": [0.5, 0.4]}, "points"),
        ({"trials": 10, "points": [0.5, 0.5]}, "points"),
    ],
)
def test_ecdf_bands_names_the_argument_that_is_wrong(arguments: dict[str, Any], name: str) -> None:
    with pytest.raises(ValueError, match=name):
        ecdf_bands(**arguments)


def test_the_plot_shows_every_quantity_inside_a_band_with_axis_labels() -> None:
    study = calibrate(prior_draw, simulate, conjugate(), 100, quantities={"fit": log_likelihood}, rng=rng(24))
    ax = plot_ecdf_difference(study, ax=Figure().subplots(), color="black")
    assert [line.get_label() for line in ax.get_lines()] == ["theta", "fit"]
    assert {line.get_color() for line in ax.get_lines()} == {"black"}
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("normalised rank", "ECDF difference")
    assert len(ax.collections) == 1
    bands = ecdf_bands(100)
    vertices = np.asarray(ax.collections[0].get_paths()[0].vertices)
    assert vertices[:, 1].max() == pytest.approx(bands.upper.max())


def test_the_curve_is_the_ecdf_minus_the_diagonal_and_starts_and_ends_at_zero() -> None:
    ranks = rng(25).beta(1, 2, size=40)
    ax = plot_ecdf_difference(ranks, ax=Figure().subplots(), label="mine", points=[0.25, 0.5, 0.75], band=False)
    (line,) = ax.get_lines()
    expected = [0, *(np.mean(ranks <= z) - z for z in (0.25, 0.5, 0.75)), 0]
    np.testing.assert_allclose(
        np.asarray(line.get_xydata(), dtype=float), np.c_[[0, 0.25, 0.5, 0.75, 1], expected], atol=1e-12
    )
    assert line.get_label() == "mine"
    assert len(ax.collections) == 0


def test_a_rank_that_is_at_a_point_counts_there() -> None:
    ax = plot_ecdf_difference([0.5, 0.75], points=[0.5], ax=Figure().subplots(), band=False)
    np.testing.assert_allclose(np.asarray(ax.lines[0].get_ydata(), dtype=float), [0, 0, 0], atol=1e-15)


def test_the_plot_draws_one_quantity_on_the_current_axes() -> None:
    import matplotlib.pyplot as plt

    figure, ax = plt.subplots()
    study = Calibration({"a": rng(26).random(30), "b": rng(27).random(30)})
    assert plot_ecdf_difference(study, quantity="b") is ax
    assert [line.get_label() for line in ax.get_lines()] == ["b"]
    plt.close(figure)


def test_the_plot_names_the_argument_that_is_wrong() -> None:
    study = Calibration({"a": rng(28).random(30)})
    with pytest.raises(ValueError, match="quantity"):
        plot_ecdf_difference(study, quantity="b")
    with pytest.raises(ValueError, match="quantity"):
        plot_ecdf_difference([0.1, 0.2], quantity="b")
    with pytest.raises(ValueError, match="ranks"):
        plot_ecdf_difference([1, 2, 3])


# Coverage and interval score


@pytest.mark.parametrize(("method", "theirs"), [("wilson", "wilson"), ("clopper-pearson", "beta")])
@pytest.mark.parametrize("hits", [0, 1, 17, 39, 40])
def test_coverage_intervals_agree_with_statsmodels_and_scipy(method: str, theirs: str, hits: int) -> None:
    truth = np.where(np.arange(40) < hits, 0.5, 2.0)
    result = coverage(np.zeros(40), np.ones(40), truth, confidence=0.9, method=method)
    assert (result.rate, result.trials) == (hits / 40, 40)
    low, high = proportion_confint(hits, 40, alpha=0.1, method=theirs)
    assert (result.low, result.high) == pytest.approx((low, high), abs=1e-12)
    scipy_method = {"wilson": "wilson", "clopper-pearson": "exact"}[method]
    check = stats.binomtest(hits, 40).proportion_ci(0.9, method=scipy_method)
    assert (result.low, result.high) == pytest.approx((check.low, check.high), abs=1e-9)


def test_coverage_of_right_intervals_is_their_level() -> None:
    # 20,000 exact posteriors: standard error .0021.
    generator = rng(29)
    theta = generator.normal(size=20_000)
    y = generator.normal(theta)
    half = stats.norm.ppf(0.95) * POSTERIOR_SD
    result = coverage(y / 2 - half, y / 2 + half, theta)
    assert result.rate == pytest.approx(0.9, abs=0.0085)
    assert result.low < result.rate < result.high
    assert result.high - result.low == pytest.approx(2 * 1.96 * np.sqrt(0.09 / 20_000), rel=0.03)


def test_coverage_keeps_quantities_apart_and_counts_the_ends_as_inside() -> None:
    lower, upper = np.zeros((4, 2)), np.ones((4, 2))
    truth = np.array([[0.0, 2], [1.0, 2], [0.5, 0.5], [-1, 0.5]])
    result = coverage(lower, upper, truth)
    np.testing.assert_allclose(result.rate, [0.75, 0.5])
    assert result.low.shape == result.high.shape == (2,)
    assert isinstance(coverage(lower[:, 0], upper[:, 0], truth[:, 0]).rate, float)


def test_the_interval_score_has_its_closed_form_under_a_normal_law() -> None:
    # E = width + (2/α)·2·E(X - u)₊ with E(X - u)₊ = φ(u) - u(1 - Φ(u)), for a central interval (-u, u).
    level, u = 0.8, 1.1
    expected = 2 * u + 2 / 0.2 * 2 * (stats.norm.pdf(u) - u * stats.norm.sf(u))
    by_quadrature = integrate.quad(
        lambda x: interval_score(-u, u, x, level) * stats.norm.pdf(x), -9, 9, points=[-u, u], limit=200
    )[0]
    assert by_quadrature == pytest.approx(expected, rel=1e-8)


def test_the_interval_score_is_least_at_the_true_quantiles() -> None:
    # The sum of two pinball losses at the tails, times 2/α: least at their quantiles. Standard errors cancel (same x).
    x = rng(30).normal(size=100_000)
    u = stats.norm.ppf(0.95)
    scores = {factor: interval_score(-u * factor, u * factor, x, 0.9).mean() for factor in (0.7, 1.0, 1.4)}
    assert scores[1.0] < min(scores[0.7], scores[1.4])
    below, above = np.maximum(-u - x, 0), np.maximum(x + u, 0)
    pinball = 0.95 * below + 0.05 * above + 0.95 * np.maximum(x - u, 0) + 0.05 * np.maximum(u - x, 0)
    np.testing.assert_allclose(interval_score(-u, u, x, 0.9), 2 / 0.1 * pinball, rtol=1e-9)


def test_the_interval_score_of_scalars_is_a_float() -> None:
    assert interval_score(0, 2, 1, 0.95) == 2.0
    assert isinstance(interval_score(0, 2, 1, 0.95), float)
    assert interval_score(0, 2, -1, 0.95) == pytest.approx(42)


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (([0, 2], [1, 1], [0, 0]), "lower"),
        (([0, np.nan], [1, 1], [0, 0]), "lower"),
        (([0, 0], [1, np.inf], [0, 0]), "upper"),
        (([0, 0], [1, 1], ["a", "b"]), "truth"),
        (([0, 0], [1, 1], [0, 0, 0]), "truth"),
    ],
)
def test_intervals_that_are_wrong_are_named(arguments: Any, name: str) -> None:
    with pytest.raises((ValueError, TypeError), match=name):
        coverage(*arguments)
    with pytest.raises((ValueError, TypeError), match=name):
        interval_score(arguments[0], arguments[1], arguments[2], level=0.9)


def test_options_that_are_wrong_are_named() -> None:
    with pytest.raises(ValueError, match="confidence"):
        coverage([0], [1], [0], confidence=95)
    with pytest.raises(ValueError, match="method"):
        coverage([0], [1], [0], method="wald")
    with pytest.raises(ValueError, match="truth"):
        coverage(0, 1, 0)
    with pytest.raises(ValueError, match="truth"):
        coverage([], [], [])
    with pytest.raises(ValueError, match="level"):
        interval_score(0, 1, 0, 95)


# CRPS


def gaussian_crps(mean: float, sd: float, truth: Any) -> Any:
    z = (truth - mean) / sd
    return sd * (z * (2 * stats.norm.cdf(z) - 1) + 2 * stats.norm.pdf(z) - 1 / np.sqrt(np.pi))


def test_crps_agrees_with_the_sum_over_all_pairs() -> None:
    draws, truth = rng(31).normal(size=(7, 30)), rng(32).normal(size=7)
    gaps = np.abs(draws[:, :, None] - draws[:, None, :]).sum(axis=(1, 2))
    error = np.abs(draws - truth[:, None]).mean(axis=1)
    np.testing.assert_allclose(crps(draws, truth), error - gaps / (2 * 30 * 29), rtol=1e-12)
    np.testing.assert_allclose(crps(draws, truth, fair=False), error - gaps / (2 * 30**2), rtol=1e-12)


def test_plain_crps_is_the_integral_of_the_squared_gap_between_distribution_functions() -> None:
    draws, truth = rng(33).normal(size=12), 0.3
    grid = np.sort(np.r_[draws, truth])
    steps = np.searchsorted(np.sort(draws), grid[:-1], side="right") / 12 - (grid[:-1] >= truth)
    assert crps(draws, truth, fair=False) == pytest.approx(np.sum(steps**2 * np.diff(grid)), rel=1e-12)


def test_fair_crps_is_unbiased_for_the_gaussian_score_and_the_plain_one_is_not() -> None:
    # 200,000 ensembles of 4: the mean score has a standard error of about .0012; bounds are 4 of them.
    draws = rng(34).normal(1.0, 2.0, size=(200_000, 4))
    expected = gaussian_crps(1.0, 2.0, 2.5)
    assert crps(draws, 2.5).mean() == pytest.approx(expected, abs=0.005)
    # Plain: larger by E|X - X′|/(2m), where E|X - X′| = 2σ/√π.
    bias = crps(draws, 2.5, fair=False).mean() - expected
    assert bias == pytest.approx(2 * 2.0 / np.sqrt(np.pi) / 8, abs=0.005)


def test_crps_survives_a_large_offset_and_many_draws() -> None:
    quantiles = stats.norm.ppf((np.arange(100_000) + 0.5) / 100_000)
    assert crps(quantiles, 0.7) == pytest.approx(gaussian_crps(0, 1, 0.7), abs=1e-4)
    assert crps(quantiles + 1e9, 1e9 + 0.7) == pytest.approx(crps(quantiles, 0.7), abs=1e-6)


def test_crps_takes_the_draws_from_the_axis_it_is_told() -> None:
    draws, truth = rng(35).normal(size=(5, 40, 3)), rng(36).normal(size=(5, 3))
    result = crps(draws, truth, axis=1)
    assert result.shape == (5, 3)
    assert result[2, 1] == pytest.approx(crps(draws[2, :, 1], truth[2, 1]))
    assert isinstance(crps([1.0, 2.0], 1.0), float)
    assert crps([3.0], 1.0, fair=False) == 2.0


@pytest.mark.parametrize(
    ("arguments", "options", "name"),
    [
        (([1.0], 1.0), {}, "draws"),
        ((1.0, 1.0), {}, "axis"),
        (([[1.0, 2.0]], 1.0), {"axis": 2}, "axis"),
        (([1.0, np.nan], 1.0), {}, "draws"),
        (([1.0, 2.0], np.inf), {}, "truth"),
        ((np.zeros((3, 5)), np.zeros(5)), {}, "truth"),
    ],
)
def test_crps_names_the_argument_that_is_wrong(arguments: Any, options: Any, name: str) -> None:
    with pytest.raises(ValueError, match=name):
        crps(*arguments, **options)


# MMD


def brute_mmd2(x: Any, y: Any, bandwidth: float) -> float:
    gamma = 1 / (2 * bandwidth**2)
    xx, yy, xy = (rbf_kernel(a, b, gamma=gamma) for a, b in ((x, x), (y, y), (x, y)))
    m, n = len(x), len(y)
    return float((xx.sum() - np.trace(xx)) / m / (m - 1) + (yy.sum() - np.trace(yy)) / n / (n - 1) - 2 * xy.mean())


def normal_mmd2(gap: float, sd_x: float, sd_y: float, bandwidth: float = 1.0) -> float:
    """Closed form for two normal laws: E k(a, b) = h/√(h² + v) · exp(-gap²/2(h² + v)), v the variance of a - b."""

    def mean_kernel(variance: float, distance: float) -> float:
        total = bandwidth**2 + variance
        return float(bandwidth / np.sqrt(total) * np.exp(-(distance**2) / (2 * total)))

    return mean_kernel(2 * sd_x**2, 0) + mean_kernel(2 * sd_y**2, 0) - 2 * mean_kernel(sd_x**2 + sd_y**2, gap)


@pytest.mark.parametrize("dimension", [1, 3])
@pytest.mark.parametrize("bandwidth", [0.3, 1.0, 5.0])
def test_mmd2_agrees_with_the_whole_kernel_matrix(dimension: int, bandwidth: float) -> None:
    x, y = rng(37).normal(size=(70, dimension)), rng(38).normal(0.5, 2, size=(45, dimension))
    for chunk in (1, 13, 45, 500):
        assert mmd2(x, y, bandwidth, chunk=chunk) == pytest.approx(brute_mmd2(x, y, bandwidth), abs=1e-12)


def test_mmd2_of_vectors_is_that_of_columns_and_is_symmetric() -> None:
    x, y = rng(39).normal(size=80), rng(40).normal(size=60)
    assert mmd2(x, y) == mmd2(x[:, None], y[:, None])
    assert mmd2(x, y) == pytest.approx(mmd2(y, x), abs=1e-14)


def test_mmd2_is_unbiased_for_its_closed_form_and_zero_on_average_for_equal_laws() -> None:
    # 3,000 pairs of tiny samples; bounds are 4 standard errors, taken from the values themselves.
    generator = rng(41)
    for gap, sd in ((0.0, 1.0), (0.8, 0.5)):
        values = [mmd2(generator.normal(size=6), generator.normal(gap, sd, size=5)) for _ in range(3000)]
        assert np.mean(values) == pytest.approx(normal_mmd2(gap, 1.0, sd), abs=4 * np.std(values) / np.sqrt(3000))
    assert min(values) < 0


def test_a_unit_kernel_sees_little_but_the_squared_difference_of_means() -> None:
    # Posteriors of sd .02: two sds off scores .0016 = .04²; an honest one, four times too wide, a 60th of that.
    assert normal_mmd2(0.04, 0.02, 0.02) == pytest.approx(1.6e-3, rel=0.01)
    assert normal_mmd2(0.0, 0.02, 0.08) == pytest.approx(2.7e-5, rel=0.02)
    exact = stats.norm.ppf((np.arange(2000) + 0.5) / 2000)
    assert mmd2(0.02 * exact, 0.04 + 0.02 * exact) == pytest.approx(1.6e-3, rel=0.02)
    assert mmd2(0.02 * exact, 0.08 * exact) == pytest.approx(2.7e-5, abs=0.5e-5)


def test_mmd2_needs_no_matrix_of_all_pairs() -> None:
    x = rng(42).normal(size=4000)
    tracemalloc.start()
    mmd2(x, x + 1)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4000**2 * 8 / 10  # the matrix would take 128 MB


@pytest.mark.parametrize(
    ("arguments", "options", "name"),
    [
        (([1.0], [1.0, 2.0]), {}, "x"),
        (([1.0, 2.0], [1.0]), {}, "y"),
        (([1.0, 2.0], np.zeros((2, 2, 2))), {}, "y"),
        (([1.0, np.nan], [1.0, 2.0]), {}, "x"),
        ((np.zeros((3, 2)), np.zeros((3, 3))), {}, "x and y"),
        (([1.0, 2.0], [1.0, 2.0]), {"bandwidth": 0.0}, "bandwidth"),
        (([1.0, 2.0], [1.0, 2.0]), {"chunk": 0}, "chunk"),
    ],
)
def test_mmd2_names_the_argument_that_is_wrong(arguments: Any, options: Any, name: str) -> None:
    with pytest.raises(ValueError, match=f"^{name}"):
        mmd2(*arguments, **options)
