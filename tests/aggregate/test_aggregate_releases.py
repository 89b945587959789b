"""Releases: the stated noise on the right aggregate, replace-one by brute force, silent failures, budget first."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from dpbook import BudgetExceeded, PrivacyBudget, Release
from dpbook.aggregate import (
    Centred,
    ConjugateRegression,
    Flat,
    FromSampler,
    SemiConjugateRegression,
    SparseVector,
    infer,
    partition_frames,
    partition_probabilities,
    partition_quantiles,
    preview_probability,
    preview_quantile,
    probability_nonprivate,
    quantile_nonprivate,
    release_bounds,
    release_probability,
    release_quantile,
    residual_sd,
)

MODEL = ConjugateRegression()
SEARCHES = {"centred": Centred((-10.0, 10.0)), "sparse-vector": SparseVector()}


def rng_of(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


def simulate(n=2000, seed=0, noise=1.0):
    rng = rng_of(seed)
    x = rng.normal(size=n)
    return np.column_stack([x, 1 + 2 * x + noise * rng.normal(size=n)])


ROWS = simulate()


def probability(data=ROWS, cutoff=2.0, seed=1, **options):
    options = {"posterior": MODEL, "partitions": 20, "epsilon": 1.0, "spread": 0, "rng": rng_of(seed)} | options
    return release_probability(data, cutoff, **options)


def quantile(data=ROWS, p=0.5, seed=1, **options):
    options = {"posterior": MODEL, "partitions": 20, "epsilon": 1.0, "spread": 0, "rng": rng_of(seed)} | options
    return release_quantile(data, p, **({"bounds": SEARCHES["centred"]} | options))


# What is released ----------------------------------------------------------------------------------------------------


def test_without_noise_the_mean_is_that_of_the_partitions():
    p = partition_probabilities(ROWS, 2.0, posterior=MODEL, partitions=20, rng=rng_of(1))
    release = probability(epsilon=1e12)
    assert list(release.values) == ["mean"]
    assert release["mean"] == pytest.approx(p.mean(), abs=1e-9)
    assert ((p >= 0) & (p <= 1)).all()


def test_without_noise_the_sum_is_that_of_clipped_logarithms():
    p = partition_probabilities(ROWS, 1.7, posterior=MODEL, partitions=20, rng=rng_of(1))
    release = probability(cutoff=1.7, epsilon=1e12, method="fisher", p_min=0.05)
    assert list(release.values) == ["sum"]
    assert (p < 0.05).any()
    assert release["sum"] == pytest.approx(np.minimum(-2 * np.log(p), -2 * np.log(0.05)).sum(), abs=1e-7)


@pytest.mark.parametrize(
    ("method", "name", "scale"), [("normality", "mean", 1 / 5), ("fisher", "sum", 4 * math.log(1000))]
)
def test_the_noise_is_laplace_of_the_stated_scale(method, name, scale):
    """400 releases at ε = .5 and M = 10, Kolmogorov–Smirnov; false alarm 0.001."""
    rows = simulate(60)
    exact = probability(rows, method=method, partitions=10, epsilon=1e12, seed=3)[name]
    releases = [
        probability(rows, method=method, partitions=10, epsilon=0.5, rng=_same_labels(3, k)) for k in range(400)
    ]
    assert releases[0].scale[name] == pytest.approx(scale, rel=1e-8)
    assert releases[0].sensitivity[name] == pytest.approx(scale / 2, rel=1e-8)
    noise = np.array([each[name] - exact for each in releases])
    assert stats.kstest(noise, stats.laplace(scale=scale).cdf).pvalue > 0.001


class _FixedLabels(np.random.Generator):
    """A generator whose first call, for the seed of the labels, always answers the same."""

    def __init__(self, labels, noise):
        super().__init__(np.random.PCG64(noise))
        self._labels = np.random.default_rng(labels)
        self._asked = False

    def integers(self, *args, **options):
        source = super() if self._asked else self._labels
        self._asked = True
        return source.integers(*args, **options)


def _same_labels(labels, noise):
    return _FixedLabels(labels, noise)


def test_several_cutoffs_share_epsilon_and_each_has_so_much_more_noise():
    one, four = probability(), probability(cutoff=[1.9, 2.0, 2.1, 2.2])
    assert four["mean"].shape == (4,)
    assert four.epsilon == one.epsilon
    assert four.scale["mean"] == pytest.approx(4 * one.scale["mean"])
    assert four.sensitivity["mean"] == pytest.approx(4 / 20)
    assert quantile(p=[0.1, 0.9]).scale["quantile"] > quantile(p=0.5).scale["quantile"]


def test_without_noise_the_quantile_is_the_mean_of_clipped_quantiles():
    q = partition_quantiles(ROWS, 0.9, posterior=MODEL, partitions=20, rng=rng_of(1))
    release = quantile(p=0.9, bounds=(1.9, 2.1), epsilon=1e12)
    assert ((q < 1.9) | (q > 2.1)).any()
    assert release["quantile"] == pytest.approx(np.clip(q, 1.9, 2.1).mean(), abs=1e-8)
    assert release.bounds["quantile"] == (1.9, 2.1)
    assert list(release.values) == ["quantile"]


@pytest.mark.parametrize("search", SEARCHES.values(), ids=list(SEARCHES))
def test_a_search_for_bounds_takes_its_share_of_epsilon(search):
    release = quantile(bounds=replace(search, share=0.25), epsilon=2.0)
    low, high = release["bounds"]
    assert release.settings["epsilon_bounds"] == pytest.approx(0.5)
    assert release.scale["quantile"] == pytest.approx((high - low) / (20 * 1.5), rel=1e-8)
    assert release.scale["bounds"] == pytest.approx(4.0)


def test_the_default_share_is_half_or_less_where_partitions_are_many():
    assert quantile(epsilon=2.0).settings["epsilon_bounds"] == pytest.approx(1.0)
    many = quantile(simulate(6000), epsilon=2.0, partitions=1000)
    assert many.settings["epsilon_bounds"] == pytest.approx(0.2)
    assert quantile(bounds=SparseVector(), epsilon=2.0, partitions=500).settings["epsilon_bounds"] == 1.0


def test_a_public_range_narrows_doubled_bounds_and_takes_over_where_they_miss_it():
    rows = ROWS * [1.0, 100.0]
    search = SparseVector(public_range=(150.0, 250.0))
    inside = quantile(rows, bounds=search, epsilon=50.0)
    assert inside["bounds"].tolist() == [150.0, 250.0]
    missed = quantile(ROWS, bounds=search, epsilon=50.0)
    assert missed["bounds"].tolist() == [150.0, 250.0]


def test_a_release_survives_json_and_says_what_it_is():
    for release in (probability(cutoff=[1.0, 2.0]), probability(method="fisher"), quantile(p=[0.1, 0.5])):
        again = Release.from_json(release.to_json())
        assert again == release
        assert release.n == 2000
        assert release.neighbours == "replace-one"
        assert not release.float_safe
        assert release.settings["parameter"] == "x"
        assert infer(again) == infer(release)
        assert infer(again).summary().equals(infer(release).summary())


def test_a_real_release_draws_its_labels_and_noise_afresh_and_is_float_safe():
    one, other = (probability(rng=None) for _ in range(2))
    assert one.float_safe
    assert one["mean"] != other["mean"]
    unit = one["mean"] * 20 / 2.0**-32
    assert unit == round(unit)  # on the grid of the exact sum
    for bounds in (*SEARCHES.values(), (0.0, 4.0)):
        assert quantile(rng=None, bounds=bounds).float_safe


# Data in any form ----------------------------------------------------------------------------------------------------


def forms(rows):
    table = pd.DataFrame(rows, columns=["x", "y"])
    yield table[["y", "x"]]
    yield iter(np.array_split(rows, 7))
    yield (table[start : start + 300] for start in range(0, len(table), 300))


def test_the_same_data_and_rng_give_the_same_release_in_any_form():
    for make in (probability, quantile, lambda data, **k: probability(data, method="fisher", **k)):
        expected = make(ROWS)
        for form in forms(ROWS):
            assert make(form, n=len(ROWS)) == expected


def test_an_arrow_table_and_a_dask_data_frame_give_the_same_release():
    pa = pytest.importorskip("pyarrow")
    dd = pytest.importorskip("dask.dataframe")
    table = pd.DataFrame(ROWS, columns=["x", "y"])
    expected = probability(ROWS)
    assert probability(pa.Table.from_pandas(table)) == expected
    found = probability(dd.from_pandas(table, npartitions=6))
    assert found["mean"] == pytest.approx(expected["mean"], abs=1e-9)  # other sums, so rounding differs
    assert found.n == 2000


def test_a_stream_of_unknown_length_is_released_too():
    release = probability(iter(np.array_split(ROWS, 5)), epsilon=1e9)
    assert release.n == 2000
    full = probability_nonprivate(ROWS, 2.0, posterior=MODEL)
    assert infer(release).estimate == pytest.approx(full, abs=0.35)


def test_other_posteriors_see_the_same_partitions_as_built_in_ones():
    class Same:
        n_jobs = 1

        def probability(self, partition, cutoff, prior_power=1.0):
            return MODEL.probability(partition, cutoff, prior_power=prior_power)

        def quantile(self, partition, p, power=1.0):
            return MODEL.quantile(partition, p, power=power)

    table = pd.DataFrame(ROWS, columns=["x", "y"])
    mine, theirs = (probability(table, posterior=each, epsilon=1e9)["mean"] for each in (MODEL, Same()))
    assert theirs == pytest.approx(mine, abs=1e-8)
    mine, theirs = (quantile(table, posterior=each, bounds=(0, 4), epsilon=1e9)["quantile"] for each in (MODEL, Same()))
    assert theirs == pytest.approx(mine, abs=1e-7)


# Replace-one ---------------------------------------------------------------------------------------------------------

RECORDS = [(0.0, 0.0), (1e6, -1e6), (-1e8, 5.0), (1e200, 1e200), (0.0, 1e160), (3.0, -40.0)]


@pytest.mark.parametrize("model", [MODEL, ConjugateRegression(prior=Flat()), SemiConjugateRegression()])
@pytest.mark.parametrize("record", RECORDS)
def test_replacing_a_record_changes_one_partition_and_the_others_not_by_a_bit(model, record):
    rows = simulate(120)
    for place in (0, 57, 119):
        other = rows.copy()
        other[place] = record
        p, p_other = (
            partition_probabilities(d, 2.0, posterior=model, partitions=8, rng=rng_of(4)) for d in (rows, other)
        )
        assert (p != p_other).sum() <= 1
        assert abs(p - p_other).sum() <= 1
        q, q_other = (partition_quantiles(d, 0.3, posterior=model, partitions=8, rng=rng_of(4)) for d in (rows, other))
        assert ((q != q_other) & ~(np.isnan(q) & np.isnan(q_other))).sum() <= 1


@pytest.mark.parametrize("method", ["normality", "fisher"])
def test_by_brute_force_no_replacement_moves_the_aggregate_by_more_than_its_sensitivity(method):
    """The released aggregate at ε = 10¹², 150 random replacements, some of them enormous, three cutoffs together."""
    rng = rng_of(5)
    rows = simulate(40)
    cutoffs = [1.5, 2.0, 2.5]
    options = {"partitions": 5, "epsilon": 1e12, "method": method}
    name = "mean" if method == "normality" else "sum"
    base = probability(rows, cutoffs, **options)
    largest = 0.0
    for _ in range(150):
        other = rows.copy()
        other[rng.integers(40)] = rng.normal(size=2) * 10.0 ** rng.integers(-2, 9)
        moved = np.abs(probability(other, cutoffs, **options)[name] - base[name]).sum()
        largest = max(largest, moved)
        assert moved <= base.sensitivity[name] * (1 + 1e-9)
    assert largest > base.sensitivity[name] / 8


def test_by_brute_force_no_replacement_moves_the_mean_quantile_by_more_than_its_sensitivity():
    rng = rng_of(6)
    rows = simulate(40)
    options = {"partitions": 5, "epsilon": 1e12, "bounds": (1.0, 3.0)}
    base = quantile(rows, [0.1, 0.9], **options)
    moves = []
    for _ in range(150):
        other = rows.copy()
        other[rng.integers(40)] = rng.normal(size=2) * 10.0 ** rng.integers(-2, 9)
        moves.append(np.abs(quantile(other, [0.1, 0.9], **options)["quantile"] - base["quantile"]).sum())
    assert base.sensitivity["quantile"] == pytest.approx(2 * 2 / 5, rel=1e-8)
    assert base.sensitivity["quantile"] / 4 < max(moves) <= base.sensitivity["quantile"] * (1 + 1e-9)


def test_where_a_record_goes_does_not_depend_on_the_records():
    table = pd.DataFrame({"x": np.arange(50.0)})
    other = table.sample(frac=1.0, random_state=1).reset_index(drop=True)

    class Places:
        n_jobs = 1

        def probability(self, partition, cutoff):
            return (partition["x"] % 2).mean()

    found = []
    for data in (table, other):
        p = partition_probabilities(data, 0.0, posterior=Places(), partitions=5, rng=rng_of(7))
        frames = partition_frames(data.assign(place=np.arange(50)), partitions=5, rng=_labels_of_a_release(7))
        found.append([tuple(frame["place"].astype(int)) for frame in frames])
        assert p == pytest.approx([(data["x"].to_numpy()[list(places)] % 2).mean() for places in found[-1]])
    assert found[0] == found[1]


def _labels_of_a_release(seed):
    return np.random.default_rng(rng_of(seed).integers(2**63, size=2))


# Failures are silent -------------------------------------------------------------------------------------------------


def test_a_rank_deficient_partition_contributes_one_half():
    rows = simulate(40)
    rows[:, 0] = 1.0
    p = partition_probabilities(rows, 2.0, posterior=MODEL, partitions=4, rng=rng_of(8))
    assert p.tolist() == [0.5] * 4
    assert probability(rows, partitions=4, epsilon=1e12)["mean"] == pytest.approx(0.5)


def test_an_overflow_in_one_partition_contributes_one_half():
    rows = simulate(40)
    rows[3] = 1e300
    p = partition_probabilities(rows, 2.0, posterior=MODEL, partitions=4, rng=rng_of(8))
    assert (p == 0.5).sum() == 1


def test_a_failed_partition_contributes_the_centre_of_the_bounds():
    rows = simulate(40)
    rows[:, 0] = 1.0
    for bounds in ((0.0, 3.0), *SEARCHES.values()):
        release = quantile(rows, partitions=4, epsilon=1e9, bounds=bounds)
        low, high = release["bounds"] if "bounds" in release.values else (0.0, 3.0)
        assert release["quantile"] == pytest.approx((low + high) / 2, abs=1e-6)


class Broken:
    """Fails on every partition, in one way or another."""

    n_jobs = 1

    def __init__(self, answer):
        self.answer = answer

    def probability(self, partition, cutoff):
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def quantile(self, partition, p, power=1.0):
        return self.probability(partition, p)


@pytest.mark.parametrize(
    "answer", [RuntimeError("secret"), np.nan, np.inf, "text", None, [0.1, 0.2, 0.3]], ids=lambda a: type(a).__name__
)
def test_whatever_a_posterior_of_yours_does_wrong_nobody_is_told(answer, recwarn):
    options = {"posterior": Broken(answer), "epsilon": 1e12, "dry_run": False}
    assert probability(**options)["mean"] == pytest.approx(0.5)
    assert quantile(bounds=(1.0, 3.0), **options)["quantile"] == pytest.approx(2.0)
    assert not [each for each in recwarn if "secret" in str(each.message)]


def test_probabilities_beyond_zero_and_one_are_clipped():
    assert probability(posterior=Broken(7.0), epsilon=1e12)["mean"] == pytest.approx(1.0)
    assert probability(posterior=Broken(-7.0), epsilon=1e12, method="fisher")["sum"] == pytest.approx(
        20 * -2 * math.log(0.001), rel=1e-8
    )


# Arguments and budget ------------------------------------------------------------------------------------------------


class NoPower:
    def quantile(self, partition, p):
        return 0.0


WRONG = [
    (probability, {"partitions": 1}, "partitions must be at least 2"),
    (probability, {"partitions": 2.5}, "partitions must be a whole number"),
    (probability, {"partitions": 700}, "partitions must leave at least 3 records"),
    (probability, {"partitions": 1500, "posterior": SemiConjugateRegression()}, "partitions must leave at least 2"),
    (probability, {"partitions": 2001, "posterior": Broken(0.1)}, "partitions must leave at least 1"),
    (probability, {"partitions": 900, "posterior": FromSampler(len, least_records=5)}, "at least 5 records"),
    (probability, {"epsilon": 0.0}, "epsilon must be greater than 0"),
    (probability, {"epsilon": math.nan}, "epsilon must be finite"),
    (probability, {"epsilon": 1e-300, "rng": None}, "epsilon must lie between"),
    (quantile, {"epsilon": 1e-9, "bounds": SparseVector()}, "epsilon must lie between"),
    (quantile, {"epsilon": 1e-6, "bounds": Centred((0.0, 1.0), share=1e-5)}, "share must leave"),
    (probability, {"cutoff": math.inf}, "cutoff must be finite"),
    (probability, {"cutoff": [[1.0]]}, "cutoff must be a number or a list"),
    (probability, {"cutoff": []}, "cutoff must be a number or a list"),
    (probability, {"method": "median"}, "method must be one of"),
    (probability, {"method": "fisher", "p_min": 0.0}, "p_min must lie strictly"),
    (probability, {"p_min": 0.01}, "p_min is an option of method 'fisher'"),
    (probability, {"posterior": object()}, "posterior must be an object with a method 'probability'"),
    (probability, {"posterior": ConjugateRegression}, "posterior must be an object"),
    (probability, {"rng": 3}, "rng must be None"),
    (probability, {"data": []}, "partitions must leave|data must hold"),
    (probability, {"data": np.array([[np.nan, 1.0]] * 100)}, "NaN"),
    (probability, {"n": 1999}, "n must be the number"),
    (quantile, {"p": 1.0}, "probability must lie strictly"),
    (quantile, {"p": [0.5, 0.0]}, "probability must lie strictly"),
    (quantile, {"bounds": (1.0, 0.0)}, "bounds must have low < high"),
    (quantile, {"bounds": "wide"}, "bounds must be Centred"),
    (quantile, {"bounds": Centred}, "bounds must be Centred"),
    (quantile, {"bounds": None}, "bounds must be Centred"),
    (quantile, {"bounds": (0.0, 1.0, 2.0)}, "bounds must be a pair"),
    (quantile, {"partitions": 1}, "partitions must be at least 2"),
    (quantile, {"posterior": FromSampler}, "posterior must be an object"),
    (quantile, {"posterior": NoPower()}, "does not take power"),
]


@pytest.mark.parametrize(("release", "options", "message"), WRONG, ids=[f"{w[2]}-{i}" for i, w in enumerate(WRONG)])
def test_arguments_that_cannot_work_are_refused_before_budget_is_spent(release, options, message):
    budget = PrivacyBudget(1.0)
    with pytest.raises((TypeError, ValueError), match=message):
        release(budget=budget, **options)
    assert budget.remaining == 1.0


@pytest.mark.parametrize("release", [probability, quantile])
def test_an_overdrawn_budget_is_refused_before_posteriors_are_computed_and_noise_is_drawn(release):
    class Witness:
        asked = False
        n_jobs = 1

        def probability(self, partition, cutoff):
            type(self).asked = True
            return 0.5

        def quantile(self, partition, p, power):
            return self.probability(partition, p)

    with pytest.raises(BudgetExceeded):
        release(posterior=Witness(), budget=PrivacyBudget(0.5))
    assert not Witness.asked
    budget = PrivacyBudget(1.5)
    release(budget=budget)
    assert budget.remaining == pytest.approx(0.5)


# Agreement with the whole, and previews ------------------------------------------------------------------------------


def test_full_data_answers_are_those_of_the_posterior():
    assert probability_nonprivate(ROWS, 2.0, posterior=MODEL) == MODEL.probability(ROWS, 2.0)
    assert quantile_nonprivate(ROWS, [0.2, 0.8], posterior=MODEL).shape == (2,)
    sampler = FromSampler(lambda frame: np.arange(10.0), n_jobs=1)
    assert probability_nonprivate(ROWS, 4.0, posterior=sampler) == 0.5


@pytest.mark.parametrize("epsilon", [1e-6, 1e9])
@pytest.mark.parametrize("partitions", [2, 3, 600])
def test_answers_stay_in_range_at_every_epsilon_and_number_of_partitions(partitions, epsilon):
    for method in ("normality", "fisher"):
        answer = infer(probability(partitions=partitions, epsilon=epsilon, method=method, cutoff=[1.0, 2.0, 3.0]))
        assert ((answer.estimate >= 0) & (answer.estimate <= 1)).all()
        assert (np.diff(answer.estimate) >= 0).all()
        assert answer.summary().to_numpy().min() >= 0
    for bounds in (*SEARCHES.values(), (0.0, 3.0)):
        answer = infer(quantile(partitions=partitions, epsilon=epsilon, bounds=bounds, p=[0.1, 0.9]))
        assert np.isfinite(answer.estimate).all()
        assert answer.estimate[0] <= answer.estimate[1]
        assert (answer.sd("quantile") > 0).all()


def test_previews_give_the_noise_of_the_release():
    plan = {"n": 2000, "partitions": 20, "epsilon": 1.0}
    for more in ({}, {"spread": 0.4}, {"spread": 0.0}):
        made = {"spread": None} | more
        look, release = preview_probability(**plan, **more), probability(**made)
        assert look.noise_scale == pytest.approx(release.scale["mean"], rel=1e-8)
        assert look.sensitivity == pytest.approx(release.sensitivity["mean"], rel=1e-8)
        fisher = preview_probability(**plan, **more, method="fisher", cutoffs=3)
        release = probability(cutoff=[1, 2, 3], method="fisher", **made)
        assert fisher.noise_scale == pytest.approx(release.scale["sum"], rel=1e-8)
        given = preview_quantile(**plan, **more, bounds=(0.0, 3.0), probabilities=2)
        release = quantile(p=[0.1, 0.9], bounds=(0.0, 3.0), **made)
        assert given.noise_scale == pytest.approx(release.scale["quantile"], rel=1e-8)
        assert given.sensitivity == pytest.approx(release.sensitivity["quantile"], rel=1e-8)
    rows = simulate(100_000)
    expected = preview_quantile(n=100_000, partitions=1000, epsilon=0.9, posterior_sd=1 / math.sqrt(1e5))
    found = np.median([quantile(rows, partitions=1000, epsilon=0.9, seed=s).scale["quantile"] for s in range(9)])
    assert 0.6 < found / expected.noise_scale < 1.7  # widths come in steps of √2
    doubled = preview_quantile(
        n=2000, partitions=20, epsilon=1.0, bounds=SparseVector(), magnitude=2.0, posterior_sd=0.02
    )
    assert doubled.noise_scale == pytest.approx(8 / (20 * 0.5 * 0.85))
    assert doubled.sensitivity == pytest.approx(8 / 20 / 0.85)


def test_previews_say_what_they_know_beside_the_noise():
    look = preview_probability(n=2000, partitions=20, epsilon=1.0, nuisance=1, spread=0.0)
    assert look.notes["records"] == 100
    assert look.sensitivity == probability().sensitivity["mean"]
    assert look.notes["residual_sd"] == pytest.approx(residual_sd(20, size=100))
    assert look.posterior_sd == pytest.approx(math.hypot(look.noise_sd, look.notes["residual_sd"]))
    assert 0 < look.notes["average_rmse"] < look.notes["rmse"] < 0.5
    assert look.summary().index.tolist() == ["z-score"]
    search = Centred((-10.0, 10.0))
    known, unknown = (preview_quantile(n=2000, partitions=20, epsilon=1.0, bounds=b) for b in (search, None))
    assert known.noise_scale == unknown.noise_scale
    assert known.notes["epsilon_bounds"] == search.spends(1.0, 20)
    assert unknown.notes["failure"] >= known.notes["failure"]
    assert unknown.notes["failure"] == search._failure(20, 0.5)
    assert "epsilon_bounds" in known._repr_html_()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: preview_probability(n=10, partitions=20, epsilon=1.0), "partitions must leave"),
        (lambda: preview_probability(n=10, partitions=2, epsilon=-1.0), "epsilon must be greater"),
        (lambda: preview_quantile(n=10, partitions=2, epsilon=1.0, bounds=SparseVector()), "magnitude must be given"),
        (lambda: preview_quantile(n=10, partitions=2, epsilon=1.0, bounds="centred"), "bounds must be Centred"),
        (lambda: preview_probability(n=10, partitions=2, epsilon=1.0, p_min=0.1), "p_min is an option"),
        (lambda: preview_quantile(n=10, partitions=2, epsilon=1.0, posterior_sd=0), "posterior_sd must be greater"),
        (lambda: preview_probability(n=10, partitions=2, epsilon=1.0, spread=1.0), "spread must be at least 0"),
    ],
)
def test_wrong_previews_are_refused_by_name(call, message):
    with pytest.raises((TypeError, ValueError), match=message):
        call()


@pytest.mark.parametrize("rng", [None, np.random.default_rng(0)], ids=["real", "seeded"])
def test_noise_that_would_not_fit_its_64_bits_is_refused_before_the_charge(rng):
    """At 2e-8 the noise on steps of 2**-32 would be cut off at 64 bits, and its law would not be the stated one."""
    budget, how = PrivacyBudget(1.0), {"posterior": ConjugateRegression(), "partitions": 20, "rng": rng}
    rows = np.random.default_rng(1).normal(size=(200, 2))
    with pytest.raises(ValueError, match="epsilon must be at least"):
        release_probability(rows, [0.0, 1.0], epsilon=2e-8, budget=budget, **how)
    with pytest.raises(ValueError, match="epsilon must be at least"):
        release_quantile(rows, 0.5, epsilon=2e-8, bounds=(-1.0, 1.0), budget=budget, **how)
    with pytest.raises(ValueError, match="epsilon must lie between"):
        release_bounds([0.5] * 9, Centred((0, 1)), epsilon=1e-300, rng=rng, budget=budget)
    assert budget.spent == (0.0, 0.0)


@pytest.mark.parametrize("bounds", [(-1e308, 1e308), (-1e308, 5e307), (0, 5e-324), (1.6e308, 1.6e308 + 1e296)])
def test_bounds_without_a_grid_cost_nothing(bounds):
    budget, rows = PrivacyBudget(1.0), np.arange(40.0).reshape(20, 2) % 7
    with pytest.raises(ValueError, match="bounds must be rescaled"):
        release_quantile(rows, 0.5, posterior=MODEL, partitions=4, epsilon=1.0, budget=budget, bounds=bounds)
    assert budget.spent == (0.0, 0.0)


@pytest.mark.parametrize(
    ("search", "options"),
    [
        (Centred, {"public_range": (-1e308, 1e308)}),
        (Centred, {"public_range": (1, 1 + 2**-50)}),
        (Centred, {"public_range": (0, 1e-300)}),
        (SparseVector, {"start": 1e-300}),
        (SparseVector, {"start": 1e290}),
    ],
)
def test_a_search_that_could_only_find_what_has_no_grid_is_refused_as_such(search, options):
    """Whatever it would find: afterwards it would cost epsilon."""
    with pytest.raises(ValueError, match="must be rescaled"):
        search(**options)
