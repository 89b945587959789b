"""Is the family right? Releases that carry a check, what it sees, how often it is wrong, what is said without it."""

from __future__ import annotations

import itertools
import pickle
import warnings

import numpy as np
import pytest

from dpbook import PrivacyBudget, Release, expfam
from dpbook.doubts import ManyClipped, Misfit, PriorConflict
from dpbook.expfam import (
    Binomial,
    Exponential,
    Gamma,
    Multinomial,
    NegativeBinomial,
    Normal,
    NormalInverseGamma,
    Poisson,
)
from dpbook.expfam.cells import Bins
from dpbook.sensitivity import beside_histogram

FAMILIES = [Poisson(0, 20), Poisson(3, 9), Exponential(0.5, 8), Normal(-2, 5), NegativeBinomial(0, 20)]


@pytest.mark.parametrize("norm", [1, 2])
@pytest.mark.parametrize("outside", ["clip", "redact"])
@pytest.mark.parametrize("family", FAMILIES, ids=lambda each: each.name)
def test_no_pair_of_records_moves_sums_and_cells_by_more_and_some_pair_moves_them_by_all(family, outside, norm):
    low, high = family.bounds
    whole = family.name in ("poisson", "negative binomial")
    points = np.arange(0.0, high + 3) if whole else np.unique([*np.linspace(0, high + 2, 81), low, low / 2, high])
    points = points if family.name != "normal" else np.linspace(low - 1, high + 1, 129)
    weight = 0.37
    table = np.hstack([family.released(points[:, None], outside), weight * Bins(family.check_edges).indicators(points)])
    moved = max(np.linalg.norm(a - b, ord=norm) for a, b in itertools.combinations(table, 2))
    bound = beside_histogram(family.sensitivity(outside, norm), cells=weight, norm=norm)
    assert moved <= bound * (1 + 1e-12)
    if outside == "clip":
        assert moved == pytest.approx(bound, rel=0.03)  # the points are few, and the normal's pair lies between some


@pytest.mark.parametrize("mechanism", ["laplace", "gaussian"])
def test_the_check_takes_its_share_of_the_loss_and_is_named(mechanism):
    delta = 1e-6 if mechanism == "gaussian" else 0.0
    settings = {"epsilon": 2.0, "mechanism": mechanism, "delta": delta}
    counts, budget = np.random.default_rng(1).poisson(3, 500), PrivacyBudget(2.0, delta)
    alone = expfam.release(counts, Poisson(0, 20), rng=np.random.default_rng(2), **settings)
    both = expfam.release(counts, Poisson(0, 20), check=0.2, budget=budget, rng=np.random.default_rng(2), **settings)
    assert list(both.values) == ["sum", "histogram", "clipped"]
    assert both["histogram"].shape == (len(both.settings["edges"]) - 1,)
    assert budget.spent == (2.0, delta)
    share = 0.8 if mechanism == "laplace" else np.sqrt(0.8)
    assert both.scale["sum"] == pytest.approx(alone.scale["sum"] / share, rel=1e-6)
    if mechanism == "laplace":
        assert both.scale["histogram"] == both.scale["clipped"] == pytest.approx(2 / (0.2 * 2.0), rel=1e-6)
    assert Release.from_json(both.to_json()) == both


def test_with_hardly_any_noise_the_counts_are_those_of_the_records():
    records = np.array([-5.0, 0.0, 0.4, 1.0, 7.99, 8.0, 8.01, 400.0])
    noisy = expfam.release(records, Normal(0, 8), epsilon=1e6, check=0.5, rng=np.random.default_rng(3))
    assert noisy["clipped"].round(1).tolist() == [1, 2]
    assert noisy["histogram"].round(1).tolist() == [2, 1, 0, 0, 0, 0, 0, 2]


@pytest.mark.parametrize("family", [Binomial(), Multinomial(3)])
def test_a_family_whose_counts_say_all_has_no_check(family):
    with pytest.raises(ValueError, match="check must be 0"):
        expfam.release([0, 1, 1], family, epsilon=1.0, check=0.1)


@pytest.mark.parametrize("check", [-0.1, 0.001, 0.6, 1.0, float("nan"), True, "a tenth"])
def test_a_wrong_share_is_named_before_anything_is_spent(check):
    budget = PrivacyBudget(1.0)
    with pytest.raises((TypeError, ValueError), match="check"):
        expfam.release([1, 2, 3], Poisson(0, 9), epsilon=1.0, check=check, budget=budget)
    assert budget.spent == (0.0, 0.0)


def misfits(draw, family, prior, n, epsilon, trials, seed, **options):
    """Return in what share of trials a misfit, or any doubt, is found, and all posteriors."""
    rng = np.random.default_rng(seed)
    releases = [expfam.release(draw(rng, n), family, epsilon=epsilon, check=0.1, rng=rng) for _ in range(trials)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = expfam.infer(releases, prior, draws=400, rng=rng, **options)
    misfit = np.mean([any(isinstance(each, Misfit) for each in one.doubts) for one in found])
    return misfit, np.mean([bool(one.doubts) for one in found]), found


RIGHT = {
    "poisson": (lambda rng, n: rng.poisson(3, n), Poisson(0, 20), Gamma(1, 0.1)),
    "exponential": (lambda rng, n: rng.exponential(3.0, n), Exponential(0, 10), Gamma(1, 1)),
}


@pytest.mark.parametrize(("n", "epsilon"), [(2000, 1.0), (200, 10.0)])
@pytest.mark.parametrize("model", RIGHT)
def test_a_family_that_fits_is_doubted_in_less_than_one_case_in_ten(model, n, epsilon):
    """100 trials; a rate of .05 gives more than .12 with a probability of .002."""
    draw, family, prior = RIGHT[model]
    _, any_doubt, _ = misfits(draw, family, prior, n, epsilon, 100, 4)
    assert any_doubt <= 0.12


WRONG = {
    "too many zeros": (lambda rng, n: rng.negative_binomial(0.5, 0.15, n), Poisson(0, 30), Gamma(1, 0.1), {}),
    "a clipped tail": (
        lambda rng, n: rng.lognormal(3, 0.55, n),
        Normal(0, 30),
        NormalInverseGamma(15, 0.01, 1, 50),
        {"method": "gibbs", "chains": 4},
    ),
    "no short incomes": (lambda rng, n: rng.lognormal(3, 0.55, n), Exponential(0, 30), Gamma(1, 10), {}),
}


@pytest.mark.parametrize("design", WRONG)
def test_a_family_that_does_not_fit_is_seen(design):
    """12 trials at n = 2000, epsilon 1; at a power of .99, fewer than 11 are seen with a probability of .006."""
    draw, family, prior, options = WRONG[design]
    seen, _, found = misfits(draw, family, prior, 2000, 1.0, 12, 5, **options)
    assert seen >= 11 / 12
    doubt = next(each for one in found for each in one.doubts if isinstance(each, Misfit))
    assert "release_mean" in doubt.remedy
    assert family.name in doubt.cause
    if family.name == "poisson":
        assert "NegativeBinomial" in doubt.remedy


def test_infer_warns_and_the_posterior_remembers_through_a_pickle():
    rng = np.random.default_rng(6)
    counts = rng.negative_binomial(0.5, 0.15, 3000)
    noisy = expfam.release(counts, Poisson(0, 30), epsilon=1.0, check=0.1, rng=rng)
    with pytest.warns(Misfit, match="poisson"):
        posterior = expfam.infer(noisy, Gamma(1, 0.1), rng=rng)
    kept = pickle.loads(pickle.dumps(posterior))
    assert kept.check().p < 0.05
    assert kept.check().table.loc["[0, 1)", "z"] > 5
    assert "Doubt: " in repr(kept.summary())
    again = expfam.infer(noisy, Gamma(1, 0.1), rng=np.random.default_rng(99)).check()
    assert again.released.tolist() == posterior.check().released.tolist()


def test_without_a_check_the_summary_says_so_and_check_names_the_remedy():
    rng = np.random.default_rng(7)
    noisy = expfam.release(rng.poisson(3, 300), Poisson(0, 20), epsilon=1.0, rng=rng)
    posterior = expfam.infer(noisy, Gamma(1, 0.1), rng=rng)
    assert "unchecked" in repr(posterior.summary())
    with pytest.raises(ValueError, match=r"check=0\.1"):
        posterior.check()


def test_a_sum_that_the_prior_did_not_expect_is_said_without_a_check():
    rng = np.random.default_rng(8)
    noisy = expfam.release(rng.poisson(3, 300), Poisson(0, 20), epsilon=1.0, rng=rng)
    with pytest.warns(PriorConflict, match="sum"):
        expfam.infer(noisy, Gamma(400, 40), rng=rng)  # a mean of 10, give or take .5


def test_a_second_moment_that_the_prior_did_not_expect_is_said_without_a_check():
    rng = np.random.default_rng(9)
    noisy = expfam.release(rng.normal(0, 3.0, 500), Normal(-10, 10), epsilon=3.0, rng=rng)
    with pytest.warns(PriorConflict, match="squares"):
        expfam.infer(noisy, NormalInverseGamma(0, 1, 200, 200), draws=400, rng=rng)  # a variance of 1, where it is 9


def test_a_family_of_ones_own_without_cells_is_unchecked():
    class Delayed(Exponential):
        def cell_probabilities(self, theta, edges):
            return None

    rng = np.random.default_rng(10)
    noisy = expfam.release(rng.exponential(1, 300), Delayed(0, 5), epsilon=1.0, check=0.1, rng=rng)
    assert "unchecked" in expfam.infer(noisy, Gamma(1, 1), family=Delayed(0, 5), rng=rng).notes[0]


def beyond(family, prior, n, epsilon, trials, seed, check):
    """Return in what share of trials exponential records of mean 3 raise the doubt that the tail is assumed."""
    rng = np.random.default_rng(seed)
    made = [
        expfam.release(rng.exponential(3.0, n), family, epsilon=epsilon, check=check, rng=rng) for _ in range(trials)
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = expfam.infer(made, prior, draws=200, rng=rng)
    return np.mean([any(isinstance(doubt, ManyClipped) for doubt in each.doubts) for each in found])


def test_a_tail_that_nothing_observed_is_doubted_and_generous_bounds_never_are():
    """Bounds that clip 19 % or 1 %; 30 trials each, at epsilons from much noise to little."""
    prior = Gamma(1, 1)
    assert beyond(Exponential(0, 5), prior, 600, 1.0, 30, 11, 0.0) == 1.0
    assert beyond(Exponential(0, 5), prior, 600, 0.3, 30, 12, 0.1) >= 0.9  # a check that sees nothing
    assert beyond(Exponential(0, 5), prior, 6000, 3.0, 30, 13, 0.1) == 0.0  # one that would see it
    for epsilon in (0.03, 0.3, 3.0):
        assert beyond(Exponential(0, 14), prior, 600, epsilon, 30, 14, 0.0) == 0.0


def test_a_check_prints_a_short_table_and_says_what_it_can_see():
    rng = np.random.default_rng(15)
    noisy = expfam.release(rng.exponential(1.0, 2000), Exponential(0, 9), epsilon=1.0, check=0.1, rng=rng)
    posterior = expfam.infer(noisy, Gamma(1, 1), rng=rng)
    found = posterior.check()
    assert repr(posterior).startswith("FamilyPosterior(")
    assert repr(found).splitlines()[0].startswith("FitCheck(p = ")
    assert "array" not in repr(found)
    assert 0.01 < found.visible < 0.1
    assert "sees what moves" in posterior.notes[0]
    wrong = expfam.release(rng.normal(5, 1, 2000), Exponential(0, 9), epsilon=9.0, check=0.1, rng=rng)
    with pytest.warns(Misfit):
        seen = expfam.infer(wrong, Gamma(1, 1), rng=rng).check()
    assert seen.furthest
    assert seen.p_value.startswith("p < 0.0")


def test_swapped_arguments_are_named_and_records_are_not_shown():
    x, family = np.array([0.123456, 4.0, 2.0]), Exponential(0, 9)
    noisy = expfam.release(x, family, epsilon=1.0, rng=np.random.default_rng(1))
    for call in (
        lambda: expfam.infer(Gamma(1, 1), noisy),
        lambda: expfam.release(family, x, epsilon=1.0),
        lambda: expfam.release_mean((0, 9), x, epsilon=1.0),
        lambda: expfam.release_histogram([0, 9], x, epsilon=1.0),
    ):
        with pytest.raises((TypeError, ValueError), match=r"first|after the data") as error:
            call()
        assert "0.123456" not in str(error.value)
