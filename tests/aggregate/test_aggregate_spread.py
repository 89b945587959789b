"""What partitions tell of how they differ: released with their answers, read by infer, spoken of in warnings."""

from __future__ import annotations

import itertools
import math
import warnings

import numpy as np
import pandas as pd
import pytest
from scipy import special, stats

from dpbook import Release
from dpbook.aggregate import (
    Centred,
    ConjugateRegression,
    FromSampler,
    SemiConjugateRegression,
    SparseVector,
    infer,
    preview_probability,
    preview_quantile,
    probability_nonprivate,
    quantile_nonprivate,
    release_probability,
    release_quantile,
)
from dpbook.aggregate.laws import HALVED, halving, score_of
from dpbook.aggregate.spread import KEPT, REVERSED, Told, _even, doubts_of_quantile, doubts_of_score, score_law
from dpbook.sensitivity import answers_and_halves

MODEL = ConjugateRegression()
NAMES = ["square", "halved", "halved_square", "failed"]


def rng_of(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


def draw(design, n, rng):
    """Records of a regression with slope 2: covariates and errors well behaved, skewed, rare, or heavy-tailed."""
    x, error = rng.normal(size=n), rng.normal(size=n)
    if design == "lognormal":
        x = np.exp(x)
    elif design == "rare":
        x = (rng.random(n) < 0.02).astype(float)
    elif design == "heavy":
        error = rng.standard_t(3, n)
    return np.column_stack([x, 1 + 2 * x + error])


ROWS = draw("normal", 4000, rng_of(0))


def probability(data=ROWS, cutoff=2.0, seed=1, **options):
    return release_probability(
        data, cutoff, **({"posterior": MODEL, "partitions": 40, "epsilon": 2.0, "rng": rng_of(seed)} | options)
    )


def quantile(data=ROWS, p=0.5, seed=1, **options):
    given = {"posterior": MODEL, "partitions": 40, "epsilon": 2.0, "bounds": (1.0, 3.0), "rng": rng_of(seed)}
    return release_quantile(data, p, **(given | options))


def inferred(release):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return infer(release)


# The release ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("halves", [0.001, 0.2, 1.0, 7.0])
@pytest.mark.parametrize("questions", [1, 2])
def test_no_pair_of_partitions_moves_the_statistics_by_more_and_the_ends_move_them_by_all(questions, halves):
    """All pairs of answers on a grid, for each question, and a partition that fails against every other."""
    grid = np.linspace(-1, 1, 9)
    one = np.array([[a, a**2 / 2, halves * d, halves * d**2 / 2] for a, d in itertools.product(grid, grid)])
    apart = np.abs(one[:, None] - one).sum(axis=-1).max()  # the questions' statistics add up
    failed = np.abs(one).sum(axis=1).max() * questions + questions * (1 + halves) / 2
    bound = answers_and_halves(questions, halves=halves)
    assert questions * apart == pytest.approx(bound, rel=1e-12)
    assert failed == pytest.approx(bound, rel=1e-12)
    with pytest.raises(ValueError, match="halves must be greater"):
        answers_and_halves(halves=0.0)


class Halves:
    """A posterior that answers with the sum of a partition's records, scaled, and fails on a mark."""

    n_jobs = 1

    def probability(self, partition, cutoff):
        total = partition[0].sum()
        return np.full(np.shape(cutoff), np.nan if total > 1e3 else special.expit(total))

    def quantile(self, partition, p, power):
        return np.full(np.shape(p), partition[0].sum() if partition[0].sum() < 1e3 else np.nan)


@pytest.mark.parametrize("release", [probability, quantile])
def test_without_noise_the_values_are_means_over_partitions_and_their_halves(release):
    """Four records in two partitions: all that can be released is a matter of which records meet."""
    records = [-0.5, 0.25, 1.5, 5000.0]
    made = release(records, 0.5, posterior=Halves(), partitions=2, epsilon=1e10, dry_run=False)
    assert made["failed"] == pytest.approx(0.5, abs=1e-6)
    found = []
    for pair in itertools.combinations(records[:3], 2):  # the partition without the mark
        if release is probability:
            whole, one, other = (2 * special.expit(each) - 1 for each in (sum(pair), *pair))
            apart = halving(whole, one, other, 0.0)
        else:
            whole, one, other = (np.clip(each - 2, -1, 1) for each in (sum(pair), *pair))
            apart = whole - (one + other) / 2
        apart = np.clip(apart, -HALVED, HALVED)
        found.append(np.array([whole, whole**2, apart, apart**2]) / 2)
    name = next(iter(made.values))
    answer = 2 * made[name] - 1 if name == "mean" else made[name] - 2
    seen = np.array([answer, *(made[each] for each in NAMES[:3])])
    assert min(np.abs(each - seen).max() for each in found) < 1e-6


@pytest.mark.parametrize("options", [{}, {"method": "fisher"}])
def test_the_noise_has_the_stated_scales_and_squares_and_failures_cost_nothing(options):
    plain, told = probability(spread=0, **options), probability(spread=0.2, **options)
    name = next(iter(plain.values))
    assert list(told.values) == [name, *NAMES]
    assert told.scale[name] == pytest.approx(plain.scale[name] / 0.8, rel=1e-8)
    assert told.scale["square"] == pytest.approx(2 * 2 / 0.8 / (40 * 2.0), rel=1e-8)
    assert told.scale["halved"] == pytest.approx(HALVED * 2 / 0.2 / (40 * 2.0), rel=1e-8)
    assert told.scale["halved_square"] == pytest.approx(HALVED**2 * 4 / 0.2 / (40 * 2.0), rel=1e-8)
    assert told.scale["failed"] == pytest.approx(4 / (40 * 2.0), rel=1e-8)
    rows = draw("normal", 400, rng_of(2))
    exact = probability(rows, epsilon=1e12, partitions=10, **options)
    many = [probability(rows, epsilon=1e-4, partitions=10, seed=k, **options) for k in range(300)]
    for value in told.values:  # at so small an ε the split hardly matters; five tests with false alarm .0002 each
        noise = np.array([(each[value] - exact[value]) / each.scale[value] for each in many])
        assert stats.kstest(noise, stats.laplace.cdf).pvalue > 0.0002


def test_by_brute_force_no_replacement_moves_the_released_statistics_by_more_than_their_joint_sensitivity():
    """What is released at ε = 10¹², weighted as the noise is, 100 replacements, some of them enormous."""
    rng, rows = rng_of(5), draw("normal", 60, rng_of(3))
    for release, options in ((probability, {}), (probability, {"method": "fisher"}), (quantile, {})):
        given = {"partitions": 5, "epsilon": 1e12, **options}
        base, largest = release(rows, [0.3, 0.6], **given), 0.0
        for _ in range(100):
            other = rows.copy()
            other[rng.integers(60)] = rng.normal(size=2) * 10.0 ** rng.integers(-2, 9)
            moved = release(other, [0.3, 0.6], **given)
            loss = sum(np.abs(moved[name] - base[name]).sum() / base.scale[name] for name in base.values) / 1e12
            largest = max(largest, loss)
        assert 0.2 < largest <= 1 + 1e-9


def test_partitions_too_small_to_be_halved_are_asked_once_and_old_releases_are_read():
    small = probability(draw("normal", 200, rng_of(4)))  # 5 records each: halves of 2 cannot be fitted
    assert small.settings["spread"] == 0.0
    assert list(small.values) == ["mean"]
    assert list(probability(draw("normal", 240, rng_of(4))).values) == ["mean", *NAMES]
    old = probability(spread=0)
    text = old.to_json().replace('"spread": 0.0, ', "").replace('"spread":0.0,', "")
    before = Release.from_json(text)
    assert infer(before).summary().equals(infer(old).summary())
    told = probability()
    assert infer(Release.from_json(told.to_json())).summary().equals(infer(told).summary())


@pytest.mark.parametrize("spread", [-0.1, 1.0, 1e-5, math.nan])
def test_a_share_that_cannot_be_is_refused_by_name(spread):
    for release in (probability, quantile):
        with pytest.raises(ValueError, match="spread must"):
            release(spread=spread)


def test_a_sampler_is_asked_for_the_same_partitions_and_halves_as_a_built_in_regression():
    class ByFrames:
        n_jobs = 1

        def probability(self, partition, cutoff, prior_power):
            return MODEL.probability(partition.to_numpy(), cutoff, prior_power=prior_power)

    one, other = probability(epsilon=1e10), probability(epsilon=1e10, posterior=ByFrames(), dry_run=False)
    for name in one.values:
        assert one[name] == pytest.approx(other[name], abs=1e-6)
    table = pd.DataFrame(ROWS, columns=["x", "y"])
    sampler = FromSampler(lambda frame, rng: rng.normal(frame["y"].mean(), 0.1, size=50), n_jobs=1)
    assert list(probability(table, posterior=sampler).values) == ["mean", *NAMES]


# The theory ----------------------------------------------------------------------------------------------------------


def test_halves_show_the_residual_of_equal_partitions():
    """Var D = Σ 2 c_k² (1 - 2^((1-k)/2)) in Hermite coefficients, beside Σ c_k²: for the mean of p within 7 %."""
    law = score_law("normality", None, 0.0, 10.0)
    assert law.variance == pytest.approx(1 / 3, rel=1e-9)
    assert law.slope == pytest.approx(1 / math.sqrt(math.pi), rel=1e-9)
    arc = 2 / math.pi * math.asin(1 / (2 * math.sqrt(2)))  # Cov(h(x), h(x₁)) for correlation 1/√2
    assert law.halved_variance == pytest.approx(2 / 3 - 2 * math.sqrt(2) * arc, rel=1e-6)
    residual = 1 / 3 - 1 / math.pi
    assert 1 < law.halved_variance / residual < 1.07
    fisher = score_law("fisher", 0.001, 0.0, 10.0)
    z = rng_of(6).normal(size=(400_000, 2))
    score = score_of("fisher", 0.001)
    apart = halving(score(z.sum(axis=1) / math.sqrt(2)), score(z[:, 0]), score(z[:, 1]), score.middle)
    assert fisher.halved_variance == pytest.approx(apart.var(), rel=0.03)
    assert fisher.mean == pytest.approx(score.middle, abs=1e-3)


@pytest.mark.parametrize("design", ["normal", "lognormal", "rare"])
def test_halves_show_what_averaging_quantiles_loses(design):
    """150 data sets, 100 partitions of 200: the variance of the mean of D against that of the mean's error.

    Their ratio is 1 where tails fall fast, and somewhat below where they do not; an F test's 1st and 99th percentile
    for 150 of each is .68 to 1.47.
    """
    rng, errors, apart = rng_of(7), [], []
    for _ in range(150):
        rows = draw(design, 20_000, rng)
        given = {"partitions": 100, "epsilon": 1e12, "rng": rng, "bounds": (0.0, 4.0)}
        made = quantile(rows, **given)
        errors.append(made["quantile"] - quantile_nonprivate(rows, 0.5, posterior=MODEL))
        apart.append(2 * made["halved"])
    assert 0.4 < np.var(apart) / np.var(errors) < 2.2


def test_what_is_not_known_follows_from_what_is_told():
    base = score_law("normality", None, 0.0, HALVED)
    scale = (1e-4, 1e-4, 1e-4, 1e-4, 1e-4)
    alike = Told(0.0, 1 / 3, 0.0, base.halved_variance + 0.003, 0.0, scale, 1000, 200, 1, HALVED)
    found = doubts_of_score(alike, "normality", None)
    assert all(len(each) == KEPT for each in found)
    assert np.median(found.slope) == pytest.approx(1.0, abs=0.04)
    assert (found.failed < 0.01).all()
    differ = doubts_of_score(
        Told(0.0, 1 / 3, 0.0, base.halved_variance + 0.06, 0.0, scale, 1000, 200, 1, HALVED), "normality", None
    )
    assert np.median(differ.variance) > 2 * np.median(found.variance)
    assert np.median(differ.slope) < 0.93
    broken = doubts_of_score(Told(0.0, 0.2, 0.0, 0.02, 0.4, scale, 1000, 200, 1, HALVED), "normality", None)
    assert np.median(broken.failed) == pytest.approx(0.4, abs=0.01)
    assert np.median(broken.slope) == pytest.approx(math.sqrt(0.6), abs=0.06)


@pytest.mark.parametrize("shape", [0.5, 1.0, 4.0])
def test_skewness_pushes_scores_by_its_third_over_the_root_of_pi_m_and_halves_show_it_reversed(shape):
    """Gamma records, skewness 2/√shape, 100,000 partitions of 200: standard errors of .0018 and .0004."""
    rng, m = rng_of(21), 200
    records = rng.gamma(shape, size=(100_000, m))

    def score(part):
        z = (shape - part.mean(axis=1)) * math.sqrt(part.shape[1]) / part.std(axis=1, ddof=1)
        return 2 * special.ndtr(z) - 1

    whole, one, other = score(records), score(records[:, : m // 2]), score(records[:, m // 2 :])
    theory = 2 / math.sqrt(shape) / (3 * math.sqrt(math.pi * m))
    assert whole.mean() == pytest.approx(theory, rel=0.1, abs=0.006)
    assert halving(whole, one, other, 0.0).mean() == pytest.approx(-theory, rel=0.25, abs=0.0015)


@pytest.mark.parametrize("sign", [-1, 1])
def test_a_push_is_taken_back_by_what_halves_show_and_is_symmetric_where_they_show_nothing(sign):
    base, fine, coarse = score_law("normality", None, 0.0, HALVED), (1e-4,) * 5, (1e-4, 1e-4, 10.0, 1e-4, 1e-4)
    told = Told(0.0, 1 / 3, -sign * 0.04, base.halved_variance + 0.003, 0.0, fine, 2000, 100, 1, HALVED)
    seen = sign * doubts_of_score(told, "normality", None).shift
    assert (seen > 0).mean() > 0.98
    assert np.quantile(seen, 0.05) < 0.04 < np.quantile(seen, 0.95)
    hidden = Told(0.0, 1 / 3, -sign * 0.04, base.halved_variance + 0.003, 0.0, coarse, 2000, 100, 1, HALVED)
    for found in (doubts_of_score(hidden, "normality", None), doubts_of_quantile(hidden)):
        assert 0.4 < (found.shift > 0).mean() < 0.6
    # The prior: Student's t with two degrees of freedom, scale .75 / √m, in sds of a partition.
    middle = np.median(np.abs(doubts_of_score(hidden, "normality", None).shift))
    assert middle == pytest.approx(stats.t.ppf(0.75, 2) * 0.075 * base.slope, rel=0.25)


def test_partitions_too_sure_of_themselves_count_for_what_they_know():
    """Estimates that scatter k = 2 times as much as posteriors say: slope and variance by a million draws."""
    k, rng = 2.0, rng_of(22)
    e = rng.normal(size=1_000_000)
    score = 2 * special.ndtr(k * e) - 1
    moved = (2 * special.ndtr(k * e + 0.05) - 1).mean() - (2 * special.ndtr(k * e - 0.05) - 1).mean()
    residual = score.var() - np.mean(score * e) ** 2
    assert score.var() == pytest.approx(2 / math.pi * math.asin(k**2 / (1 + k**2)), rel=0.01)
    law = score_law("normality", None, 0.0, HALVED)
    told = Told(0.0, score.var(), 0.0, law.halved_variance, 0.0, (1e-5,) * 5, 100_000, 10_000, 1, HALVED)
    found = doubts_of_score(told, "normality", None)
    assert np.median(found.slope) * law.slope == pytest.approx(moved / 0.1, rel=0.05)
    assert np.median(found.variance) == pytest.approx(residual, rel=0.15)
    assert np.median(found.excess) == pytest.approx(3 * score.var(), rel=0.02)


def test_the_dimensions_of_what_is_not_known_are_filled_evenly():
    """In each dimension by itself, and in each pair: 16 boxes hold 8 of 128 points, give or take 6."""
    points = np.array([_even(k) for k in range(7)])
    ratio = (points[0][1] - points[0][0]) % 1  # one over the root of x⁸ = x + 1
    assert ratio**-8 == pytest.approx(1 / ratio + 1, rel=1e-9)
    assert all(len(np.unique(np.floor(8 * each[::REVERSED]))) == 8 for each in points)  # where signs are reversed, too
    for one, other in itertools.combinations(points, 2):
        boxes = np.histogram2d(one, other, bins=4, range=[[0, 1], [0, 1]])[0]
        assert boxes.min() >= 2
        assert boxes.max() <= 14


# Coverage ------------------------------------------------------------------------------------------------------------

CELLS = [("lognormal", 100, 50), ("rare", 100, 50), ("heavy", 100, 50), ("normal", 100, 100)]


@pytest.mark.parametrize(("design", "m", "size"), CELLS)
def test_intervals_hold_where_partitions_differ(design, m, size):
    """120 data sets at ε = 8, where noise hides little. P(fewer than 102 held | .92) < .005, so is a false alarm."""
    rng, held = rng_of(11), {"probability": [], "quantile": []}
    search = Centred((-20.0, 24.0))
    for _ in range(120):
        rows = draw(design, m * size, rng)
        p = rng.uniform(0.02, 0.98)
        cut = quantile_nonprivate(rows, p, posterior=MODEL)
        given = {"posterior": MODEL, "partitions": m, "epsilon": 8.0, "rng": rng}
        low, high = inferred(release_probability(rows, cut, **given)).interval(0.95, "probability")
        held["probability"].append(low <= p <= high)
        low, high = inferred(release_quantile(rows, p, **given, bounds=search)).interval(0.95, "quantile")
        held["quantile"].append(low <= cut <= high)
    for each in held.values():
        assert sum(each) >= 102


class MeanOf:
    """The posterior of a mean, from the records of one column."""

    n_jobs, nuisance = 1, 0

    def probability(self, partition, cutoff):
        y = np.asarray(partition)[:, 0]
        return stats.t.cdf((np.asarray(cutoff) - y.mean()) * math.sqrt(len(y)) / y.std(ddof=1), len(y) - 1)


@pytest.mark.parametrize("epsilon", [1.0, 3.0])
def test_probabilities_of_a_mean_of_lognormal_records_hold_or_are_doubted(epsilon):
    """50 data sets in 50 partitions of 50; P(fewer than 40 held | .9) = .01; before, half of them held."""
    rng, held, silent = rng_of(23), 0, 0
    for _ in range(50):
        y = np.exp(rng.normal(size=2500))
        cut = y.mean() + stats.t.ppf(rng.uniform(0.05, 0.95), 2499) * y.std(ddof=1) / 50
        how = {"posterior": MeanOf(), "partitions": 50, "epsilon": epsilon, "rng": rng, "dry_run": False}
        with warnings.catch_warnings(record=True) as doubts:
            warnings.simplefilter("always")
            low, high = infer(release_probability(y, cut, **how)).interval(0.95, "probability")
        inside = low <= probability_nonprivate(y, cut, posterior=MeanOf()) <= high
        held, silent = held + inside, silent + (not inside and not doubts)
    assert held >= 40
    assert silent <= 8


def test_without_the_spread_they_do_not():
    """The same with spread=0 for a rare covariate: the quantile's interval held .49 of 80 data sets when measured."""
    rng, held = rng_of(12), []
    for _ in range(60):
        rows = draw("rare", 5000, rng)
        made = release_quantile(
            rows, 0.5, posterior=MODEL, partitions=100, epsilon=8.0, rng=rng, bounds=Centred((-20.0, 24.0)), spread=0
        )
        low, high = inferred(made).interval(0.95, "quantile")
        held.append(low <= quantile_nonprivate(rows, 0.5, posterior=MODEL) <= high)
    assert np.mean(held) < 0.8


@pytest.mark.parametrize("model", [MODEL, SemiConjugateRegression()])
@pytest.mark.parametrize("bounds", [Centred((-10.0, 14.0)), SparseVector(), (0.0, 4.0)])
def test_intervals_of_every_kind_of_bounds_hold_and_noise_is_honoured_at_extremes(model, bounds):
    rows = draw("lognormal", 3000, rng_of(13))
    for epsilon in (0.03, 1.0, 30.0):
        made = release_quantile(
            rows, [0.1, 0.9], posterior=model, partitions=30, epsilon=epsilon, bounds=bounds, rng=rng_of(14)
        )
        answer = inferred(made)
        ends = answer.interval(0.95, "quantile")
        truth = quantile_nonprivate(rows, [0.1, 0.9], posterior=model)
        assert ((ends[:, 0] <= truth) & (truth <= ends[:, 1])).all()
        assert (np.diff(answer.estimate) >= 0).all()
        assert (ends[:, 0] < ends[:, 1]).all()


# Doubts are spoken ---------------------------------------------------------------------------------------------------


def test_a_search_that_may_have_failed_is_spoken_of():
    with pytest.warns(UserWarning, match="the search for bounds may have failed.*give more epsilon"):
        answer = infer(quantile(partitions=20, epsilon=0.2, bounds=Centred((-10.0, 10.0))))
    assert np.isfinite(answer.estimate)


def test_partitions_that_failed_are_spoken_of():
    rows = draw("rare", 4000, rng_of(15))
    with pytest.warns(UserWarning, match=r"about \d\d% of the partitions failed; give fewer and larger"):
        infer(probability(rows, partitions=80, epsilon=4.0))


def test_bounds_that_clip_are_spoken_of():
    with pytest.warns(UserWarning, match="most partitions lie at or beyond an end of the bounds"):
        infer(quantile(bounds=(0.0, 1.9), epsilon=20.0))


def budgets(n, rng):
    """Records of a curve, of which one in 250 has most of the leverage and another spread."""
    x = np.where(rng.random(n) < 0.004, 8.0, rng.gamma(4.0, 0.25, n))
    return np.column_stack([x, 2 * x - 0.15 * x**2 + 0.3 * x * rng.normal(size=n)])


def test_partitions_that_a_few_records_rule_are_spoken_of():
    rng = rng_of(24)
    with pytest.warns(UserWarning, match="scatter by more than their posteriors allow.*fewer and larger partitions"):
        infer(probability(budgets(20_000, rng), 1.4, partitions=200, epsilon=8.0))


def test_a_push_that_halves_show_is_spoken_of():
    y = np.exp(rng_of(25).normal(size=20_000))
    with pytest.warns(UserWarning, match="the partitions mislead in the same direction"):
        infer(probability(y, math.exp(0.5), posterior=MeanOf(), partitions=200, epsilon=8.0, dry_run=False))


def test_a_cutoff_far_away_is_spoken_of_where_partitions_are_many_and_small_and_else_not():
    rows = draw("normal", 4000, rng_of(26))
    with pytest.warns(UserWarning, match="far outside of the posterior; it may lie there, or they may share the bias"):
        infer(probability(rows, 2.08, partitions=80, epsilon=20.0))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        infer(probability(rows, 2.08, partitions=4, epsilon=200.0))


def test_well_specified_releases_are_rarely_doubted():
    """At most 10 of 100 releases, ε from .5 to 8."""
    rng, doubted = rng_of(16), 0
    for k in range(50):
        rows = draw("normal", 5000, rng)
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            infer(probability(rows, partitions=50, epsilon=float(rng.uniform(0.5, 8)), seed=k))
            infer(quantile(rows, partitions=50, epsilon=float(rng.uniform(0.5, 8)), seed=k))
        doubted += len(seen)
    assert doubted <= 10


# Previews ------------------------------------------------------------------------------------------------------------

PLANS = [(2000, 40, 8.0), (5000, 100, 2.0), (5000, 100, 8.0), (20_000, 100, 4.0), (10_000, 20, 10.0)]


@pytest.mark.parametrize(("n", "m", "epsilon"), PLANS)
def test_previews_expect_the_intervals_that_infer_gives(n, m, epsilon):
    """Medians of 25 releases of normal records against those of 25 made-up ones: within 25 %."""
    rng, found = rng_of(27), {"probability": [], "quantile": []}
    search = Centred((-8.0, 12.0))
    for _ in range(25):
        rows = draw("normal", n, rng)
        p = rng.uniform(0.02, 0.98)
        how = {"posterior": MODEL, "partitions": m, "epsilon": epsilon, "rng": rng}
        cut = quantile_nonprivate(rows, p, posterior=MODEL)
        found["probability"].append(inferred(release_probability(rows, cut, **how)).interval(0.95, "probability"))
        found["quantile"].append(inferred(release_quantile(rows, p, **how, bounds=search)).interval(0.95, "quantile"))
    found["probability"] = np.clip(special.ndtri(found["probability"]), -9, 9)  # those of probabilities depend on p
    widths = {name: np.median(np.diff(ends)) for name, ends in found.items()}
    plan = {"n": n, "partitions": m, "epsilon": epsilon}
    assert preview_probability(**plan).width == pytest.approx(widths["probability"], rel=0.25)
    look = preview_quantile(**plan, bounds=search, posterior_sd=n**-0.5)
    assert look.width == pytest.approx(widths["quantile"], rel=0.25)
    assert look.width_low <= look.width <= look.width_high
