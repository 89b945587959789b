"""Posteriors from any sampler: what a fit is given, failures in silence, joblib, a Dask cluster."""

from __future__ import annotations

import joblib
import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm

from dpbook import BudgetExceeded, PrivacyBudget, Schema
from dpbook.aggregate import (
    Centred,
    ConjugateRegression,
    Flat,
    FromSampler,
    infer,
    partition_probabilities,
    partition_quantiles,
    probability_nonprivate,
    quantile_nonprivate,
    release_probability,
    release_quantile,
)
from dpbook.aggregate.asking import ask_all
from dpbook.schema import Category, Integer, Number

RNG = np.random.default_rng(0)
X = RNG.normal(size=3000)
TABLE = pd.DataFrame({"x": X, "y": 1 + 2 * X + RNG.normal(size=3000)})


def rng_of(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


def normal_slope(frame, rng):
    """Posterior draws of a slope under a flat prior, from its exact t."""
    fit = sm.OLS(frame["y"].to_numpy(), sm.add_constant(frame["x"].to_numpy())).fit()
    return fit.params[1] + fit.bse[1] * rng.standard_t(len(frame) - 2, size=4000)


def test_draws_of_an_exact_posterior_give_the_answers_of_the_exact_posterior():
    """4,000 draws a partition: each share within 5 standard errors, .04; quantiles of the M-th power within .03 sds."""
    options = {"partitions": 10, "rng": rng_of(1)}
    exact = partition_probabilities(TABLE, 2.0, posterior=ConjugateRegression(prior=Flat()), **options)
    options["rng"] = rng_of(1)
    drawn = partition_probabilities(TABLE, 2.0, posterior=FromSampler(normal_slope, n_jobs=1), **options)
    assert drawn == pytest.approx(exact, abs=0.04)
    options["rng"] = rng_of(1)
    q = partition_quantiles(TABLE, [0.05, 0.5, 0.95], posterior=ConjugateRegression(prior=Flat()), **options)
    options["rng"] = rng_of(1)
    q_drawn = partition_quantiles(TABLE, [0.05, 0.5, 0.95], posterior=FromSampler(normal_slope, n_jobs=1), **options)
    assert q_drawn == pytest.approx(q, abs=0.1 * (q[:, 2] - q[:, 0]).mean())


def test_the_same_rng_gives_the_same_release_and_partitions_have_generators_of_their_own():
    posterior = FromSampler(normal_slope, n_jobs=1)
    options = {"posterior": posterior, "partitions": 6, "epsilon": 1.0}
    one, other = (release_probability(TABLE, 2.0, rng=rng_of(2), **options) for _ in range(2))
    assert one == other

    def first_number(frame, rng):
        return [rng.random()]

    seen = partition_quantiles(TABLE, 0.5, posterior=FromSampler(first_number, n_jobs=1), partitions=6, rng=rng_of(3))
    assert len(set(seen)) == 6


def test_a_fit_is_given_the_powers_that_it_names():
    def echo(frame, power, *, prior_power):
        return [power, prior_power]

    posterior = FromSampler(echo, n_jobs=1)
    p = partition_probabilities(TABLE, [0.3, 0.9, 1.0], posterior=posterior, partitions=4)
    assert p.tolist() == [[0.5, 0.5, 1.0]] * 4  # draws 1 and 1/4
    q = partition_quantiles(TABLE, [0.0001, 0.9999], posterior=posterior, partitions=4)
    assert q == pytest.approx(np.array([[1.0, 4.0]] * 4), abs=1e-3)


def test_a_fit_with_open_keywords_is_given_everything():
    def fit(frame, **options):
        assert set(options) == {"power", "prior_power", "rng"}
        return [options["power"]]

    assert partition_quantiles(TABLE, 0.5, posterior=FromSampler(fit, n_jobs=1), partitions=3).tolist() == [3.0] * 3


def test_named_draws_are_chosen_by_name():
    def fit(frame):
        return {"slope": np.array([1.0, 2.0]), "intercept": np.array([5.0, 6.0])}

    assert FromSampler(fit, parameter="slope").probability(TABLE, 1.5) == 0.5
    assert FromSampler(lambda frame: pd.DataFrame(fit(frame)), parameter="intercept").quantile(TABLE, 0.0) == 5.0
    with pytest.raises(ValueError, match="parameter must name one of"):
        FromSampler(fit).try_on(TABLE)


def test_errors_show_where_data_are_public_and_nowhere_else():
    def fit(frame):
        raise RuntimeError("no such column")

    with pytest.raises(RuntimeError, match="no such column"):
        FromSampler(fit).try_on(TABLE)
    for bad in (fit, lambda frame: [], lambda frame: [np.nan], lambda frame: "draws"):
        p = partition_probabilities(TABLE, 2.0, posterior=FromSampler(bad, n_jobs=1), partitions=3)
        assert p.tolist() == [0.5] * 3
    assert partition_quantiles(TABLE, 0.5, posterior=FromSampler(len, n_jobs=1), partitions=3).tolist() == [1000.0] * 3


def test_one_failing_partition_does_not_touch_the_others():
    def fit(frame):
        if (frame["x"] == TABLE["x"][0]).any():
            raise RuntimeError
        return [1.0, 3.0]

    q = partition_quantiles(TABLE, 0.5, posterior=FromSampler(fit, n_jobs=1), partitions=5)
    assert np.isnan(q).sum() == 1
    assert (q[~np.isnan(q)] == 2.0).all()


def test_columns_of_any_type_reach_the_fit():
    table = TABLE.assign(group=pd.Categorical(["a", "b", "c"] * 1000))

    def fit(frame):
        return frame.groupby("group", observed=True)["y"].mean().to_numpy()

    assert len(FromSampler(fit).try_on(table)) == 3
    p = partition_probabilities(table, 1.0, posterior=FromSampler(fit, n_jobs=1), partitions=4)
    assert set(np.round(3 * p, 9)) <= {0.0, 1.0, 2.0, 3.0}  # three draws each, never the 1/2 of a failure


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"fit": 3}, "fit must be a function"),
        ({"fit": len, "parameter": 3}, "parameter must be a name"),
        ({"fit": len, "least_records": 0}, "least_records must be at least 1"),
        ({"fit": len, "nuisance": -1}, "nuisance must be at least 0"),
        ({"fit": len, "n_jobs": 0}, "n_jobs must not be 0"),
        ({"fit": len, "n_jobs": 1.5}, "n_jobs must be a whole number"),
    ],
)
def test_wrong_samplers_are_refused_by_name(options, message):
    with pytest.raises((TypeError, ValueError), match=message):
        FromSampler(**options)


def logistic(frame, rng):
    """Draws from the normal approximation at the mode of a logistic regression."""
    fit = sm.Logit(frame["z"].to_numpy(), sm.add_constant(frame["x"].to_numpy())).fit(disp=0)
    return rng.normal(fit.params[1], fit.bse[1], size=1000)


def test_a_logistic_regression_by_statsmodels_comes_near_the_full_data_answer():
    """6,000 records in 20 partitions at ε = 5: the interval holds the full-data probability, seed 4."""
    rng = rng_of(4)
    x = rng.normal(size=6000)
    table = pd.DataFrame({"x": x, "z": (rng.random(6000) < 1 / (1 + np.exp(-0.5 * x))).astype(float)})
    posterior = FromSampler(logistic, n_jobs=1)
    full = probability_nonprivate(table, 0.5, posterior=posterior)
    release = release_probability(table, 0.5, posterior=posterior, partitions=20, epsilon=5.0, rng=rng)
    low, high = infer(release).interval(0.99, "probability")
    assert low <= full <= high
    quantile = release_quantile(
        table, 0.5, posterior=posterior, partitions=20, epsilon=20.0, bounds=Centred((-4, 4)), rng=rng
    )
    assert infer(quantile).estimate == pytest.approx(0.5, abs=0.15)


# Side by side --------------------------------------------------------------------------------------------------------


def who(frame, points):
    """The process in which a partition is fitted."""
    import os

    return np.full(points.shape, float(os.getpid()))


def ask(n_jobs=None, count=4):
    frames = [TABLE[:10]] * count
    return ask_all(who, frames, np.array([0.0]), {}, n_jobs=n_jobs, rng=rng_of(5))


def test_partitions_are_fitted_on_all_cores_by_default(monkeypatch):
    asked = {}

    class Recorded(joblib.Parallel):
        def __init__(self, n_jobs=None, **options):
            asked["n_jobs"] = n_jobs
            super().__init__(n_jobs=1, **options)

    monkeypatch.setattr(joblib, "Parallel", Recorded)
    ask()
    assert asked["n_jobs"] == -1
    with joblib.parallel_config(n_jobs=3):
        ask()
    assert asked["n_jobs"] is None  # joblib then takes the caller's
    ask(n_jobs=2)
    assert asked["n_jobs"] == 2


def test_workers_are_other_processes_and_answers_keep_their_order():
    import os

    pids = ask(n_jobs=2)
    assert os.getpid() not in pids
    order = ask_all(
        lambda frame, points: points + frame["x"].iloc[0],
        [TABLE[k : k + 1] for k in range(6)],
        np.array([0.0]),
        {},
        n_jobs=2,
        rng=rng_of(6),
    )
    assert order[:, 0] == pytest.approx(TABLE["x"][:6])


def test_the_callers_dask_backend_is_used():
    distributed = pytest.importorskip("distributed")

    def fit(frame):
        distributed.get_worker()  # raises anywhere but on a worker of the cluster, and then the answer would be 1/2
        return [0.0, 1.0, 2.0, 3.0]

    posterior = FromSampler(fit)
    with (
        distributed.LocalCluster(
            n_workers=1, threads_per_worker=2, processes=False, dashboard_address=None, silence_logs=50
        ) as cluster,
        distributed.Client(cluster),
        joblib.parallel_config(backend="dask"),
    ):
        p = partition_probabilities(TABLE, 2.5, posterior=posterior, partitions=6)
    assert p.tolist() == [0.75] * 6
    assert partition_probabilities(TABLE, 2.5, posterior=FromSampler(fit, n_jobs=1), partitions=2).tolist() == [0.5] * 2


# Whatever a partition does, it does alone ----------------------------------------------------------------------------

MARKED = TABLE[:200].assign(x=0.0)
MARKED.loc[7, "x"] = 1.0


def deadly(frame):
    """Ends its process where it sees the mark, as a segmentation fault or a lack of memory would."""
    import os

    if (frame["x"] > 0).any():
        os._exit(3)
    return [1.0, 3.0]


def leaving(frame):
    if (frame["x"] > 0).any():
        raise SystemExit(3)
    return [1.0, 3.0]


def check_one_failure(fit, n_jobs):
    q = partition_quantiles(MARKED, 0.5, posterior=FromSampler(fit, n_jobs=n_jobs), partitions=10, rng=rng_of(1))
    assert np.isnan(q).sum() == 1
    assert (q[~np.isnan(q)] == 2.0).all()


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_a_fit_that_leaves_the_program_fails_alone(n_jobs):
    check_one_failure(leaving, n_jobs)


def test_a_dead_worker_is_one_failed_partition():
    check_one_failure(deadly, 2)


def test_two_dead_workers_are_two_failed_partitions():
    two = pd.concat([MARKED, MARKED], ignore_index=True)
    frames = [two[start : start + 40] for start in range(0, 400, 40)]
    posterior = FromSampler(deadly)
    answers = ask_all(posterior.quantile, frames, np.array([0.5]), {}, n_jobs=2, rng=rng_of(5))[:, 0]
    assert np.isnan(answers).nonzero()[0].tolist() == [0, 5]


def test_a_dead_worker_of_a_cluster_is_one_failed_partition():
    """joblib's own Dask backend would wait for ever; the cluster is of processes, which are started again."""
    distributed = pytest.importorskip("distributed")
    dask = pytest.importorskip("dask")
    with dask.config.set({"distributed.scheduler.allowed-failures": 1}):  # a task is given up after two workers
        cluster = distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None, silence_logs=50
        )
    with cluster, distributed.Client(cluster), joblib.parallel_config(backend="dask"):
        check_one_failure(deadly, None)


def test_an_interrupt_by_the_curator_is_no_failure():
    def fit(frame):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        partition_quantiles(TABLE, 0.5, posterior=FromSampler(fit, n_jobs=1), partitions=3)


def test_what_a_fit_warns_of_is_not_told(recwarn):
    import warnings

    def fit(frame):
        warnings.warn(f"a secret: {frame['x'].max()}", stacklevel=1)
        return [0.0]

    partition_quantiles(TABLE, 0.5, posterior=FromSampler(fit, n_jobs=1), partitions=3)
    assert not list(recwarn)


def test_what_a_fit_warns_of_is_not_told_from_a_thread_either(recwarn):
    import threading
    import warnings

    def fit(frame):
        warnings.warn(f"a secret: {frame['x'].max()}", stacklevel=1)
        return [0.0]

    def release():
        partition_quantiles(TABLE, 0.5, posterior=FromSampler(fit, n_jobs=1), partitions=3)

    threads = [threading.Thread(target=release) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not list(recwarn)
    with pytest.warns(UserWarning, match="heard again"):
        warnings.warn("heard again", stacklevel=1)


@pytest.mark.parametrize("first", [{"x": 1.0}, {"z": 1.0}, {}, 3.0], ids=str)
def test_no_record_decides_about_the_dry_run_of_a_list_of_rows(first):
    """A list has no header: the form of its first record is that record's own, and must not raise before the charge."""
    rows = [first, *({"x": float(i)} for i in range(29))]
    posterior = FromSampler(lambda frame: frame["x"].astype(float).to_numpy(), n_jobs=1)
    release = release_probability(rows, 0.5, posterior=posterior, partitions=3, epsilon=1.0, rng=rng_of(0))
    assert release.n == 30


def test_a_posterior_that_cannot_be_sent_is_refused_before_it_is_needed():
    import threading

    lock = threading.Lock()
    posterior = FromSampler(lambda frame: [float(lock.locked())], n_jobs=2)
    budget = PrivacyBudget(1.0)
    with pytest.raises(TypeError, match="posterior must be picklable"):
        release_probability(TABLE, 0.5, posterior=posterior, partitions=3, epsilon=1.0, budget=budget)
    assert budget.remaining == 1.0
    alone = FromSampler(posterior.fit, n_jobs=1)
    assert partition_probabilities(TABLE, 0.5, posterior=alone, partitions=3).tolist() == [1.0] * 3


# The dry run ---------------------------------------------------------------------------------------------------------

SCHEMA = Schema({"x": Number(-5, 5), "y": Number(-20, 20)})


def mistyped(frame):
    return frame["z"].to_numpy()


def named(frame):
    return {"slope": frame["x"].to_numpy(), "level": frame["y"].to_numpy()}


MISTAKES = {
    "a mistyped column": (FromSampler(mistyped, n_jobs=1), "raised KeyError: 'z'"),
    "a parameter that is not there": (FromSampler(named, parameter="slop", n_jobs=1), "raised KeyError: 'slop'"),
    "a parameter that is not given": (FromSampler(named, n_jobs=1), "parameter must name one of"),
    "always an error": (FromSampler(lambda frame: 1 / 0, n_jobs=1), "raised ZeroDivisionError"),
    "always an exit": (FromSampler(lambda frame: exit(3), n_jobs=1), "raised SystemExit"),
    "never finite": (FromSampler(lambda frame: [np.nan], n_jobs=1), "must be finite"),
    "no draws": (FromSampler(lambda frame: [], n_jobs=1), "at least one draw"),
    "an argument too many": (FromSampler(lambda frame, steps: [0.0], n_jobs=1), "missing 1 required"),
}


class WrongShape:
    n_jobs = 1

    def probability(self, partition, cutoff):
        return partition["x"].to_numpy()

    def quantile(self, partition, p, power):
        return np.full(p.shape, np.inf)


MISTAKES["wrong shape, or infinite"] = WrongShape(), "must be one number per point|is not finite"


@pytest.mark.parametrize("schema", [None, SCHEMA], ids=["names", "schema"])
@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_told_and_nothing_is_spent(mistake, schema):
    posterior, message = MISTAKES[mistake]
    options = {"posterior": posterior, "partitions": 5, "epsilon": 1.0, "schema": schema}
    for release, point, more in (
        (release_probability, 2.0, {}),
        (release_quantile, 0.5, {"bounds": Centred((-9.0, 9.0))}),
    ):
        budget = PrivacyBudget(1.0)
        with pytest.raises(ValueError, match=message) as caught:
            release(TABLE, point, **options, **more, budget=budget)
        assert "posterior" in str(caught.value)
        assert "dry_run=False" in str(caught.value)
        assert budget.remaining == 1.0
        release(TABLE, point, **options, **more, budget=budget, dry_run=False)
        assert budget.remaining == 0.0


def test_a_fit_that_always_ends_its_worker_is_told_too():
    budget = PrivacyBudget(1.0)
    posterior = FromSampler(lambda frame: __import__("os")._exit(3), n_jobs=2)
    with pytest.raises(ValueError, match="took its worker down"):
        release_probability(TABLE, 2.0, posterior=posterior, partitions=5, epsilon=1.0, budget=budget)
    assert budget.remaining == 1.0


def test_a_dry_run_sees_no_record_and_moves_no_generator():
    seen = []

    def fit(frame, rng):
        seen.append(frame)
        return rng.normal(size=20)

    options = {"posterior": FromSampler(fit, n_jobs=1), "partitions": 5, "epsilon": 1.0, "spread": 0}
    data = pd.DataFrame({"x": np.full(50, 77.0), "y": np.full(50, 77.0)})
    rng, other = rng_of(1), rng_of(1)
    with pytest.raises(BudgetExceeded):
        release_probability(data, 0.0, budget=PrivacyBudget(0.5), **options)
    assert not seen  # an empty purse ends everything
    one = release_probability(data, 0.0, rng=rng, **options)
    assert [(frame == 77).any(axis=None) for frame in seen] == [False] + [True] * 5
    assert seen[0].columns.tolist() == ["x", "y"]
    assert len(seen[0]) == 10
    del seen[:]
    assert one == release_probability(data, 0.0, rng=other, dry_run=False, **options)
    assert len(seen) == 5
    assert rng.bit_generator.state == other.bit_generator.state


def test_a_fit_that_fails_on_some_made_up_tables_is_let_through():
    def counts_only(frame):
        if (frame["x"] != frame["x"].round()).any():
            raise ValueError("counts, please")
        return [frame["x"].mean()]

    table = TABLE.round()
    release_probability(table, 0.0, posterior=FromSampler(counts_only, n_jobs=1), partitions=5, epsilon=1.0)


def test_a_schema_lets_a_fit_rely_on_its_types():
    schema = Schema({"x": Integer(0, 2), "c": Category(["f", "m"])})
    table = pd.DataFrame({"x": [0, 1, 2, 5] * 50, "c": ["f", "m"] * 100})

    def fit(frame):
        counts = np.bincount(frame["x"].to_numpy(), minlength=3)  # of integers alone
        assert pd.get_dummies(frame["c"]).shape[1] == 2
        return counts.astype(float)

    for options in ({"posterior": FromSampler(fit, n_jobs=1), "schema": schema},
                    {"posterior": FromSampler(fit, n_jobs=1, schema=schema)}):  # fmt: skip
        budget = PrivacyBudget(1.0)
        release_probability(table, 3.0, partitions=5, epsilon=1.0, budget=budget, **options)
        assert budget.remaining == 0.0
        p = partition_probabilities(table, 1e9, partitions=5, **options)
        assert p.tolist() == [1.0] * 5  # none failed
        assert probability_nonprivate(table, 1e9, **options) == 1.0
        assert quantile_nonprivate(table, 0.5, **options) > 0
    with pytest.raises(ValueError, match=r"failed in a dry run.*schema="):
        release_probability(table, 3.0, posterior=FromSampler(fit, n_jobs=1), partitions=5, epsilon=1.0)
    assert len(FromSampler(fit, schema=schema).try_on()) == 3
    with pytest.raises(TypeError, match="frame must be given"):
        FromSampler(fit).try_on()
    with pytest.raises(ValueError, match="schema must be the one of the posterior"):
        partition_probabilities(
            table, 3.0, partitions=5, posterior=FromSampler(fit, n_jobs=1, schema=schema), schema=SCHEMA
        )
    for wrong in ({"x": 3}, "schema"):
        with pytest.raises(TypeError, match=r"schema must be a dpbook\.Schema"):
            partition_probabilities(table, 3.0, partitions=5, posterior=FromSampler(fit), schema=wrong)
        with pytest.raises(TypeError, match=r"schema must be a dpbook\.Schema"):
            FromSampler(fit, schema=wrong)


def test_a_schema_clips_fills_and_refuses_for_a_built_in_regression_too():
    table = TABLE.copy()
    table.loc[3, "x"] = np.inf
    table.loc[4, "y"] = np.nan
    options = {"posterior": ConjugateRegression(), "partitions": 5, "epsilon": 1.0}
    budget = PrivacyBudget(1.0)
    for wrong in ({}, {"schema": SCHEMA}):
        with pytest.raises(ValueError, match=r"finite|no missing values in column 'y'"):
            release_probability(table, 2.0, budget=budget, **options, **wrong)
    assert budget.remaining == 1.0
    filled = Schema(dict(SCHEMA.columns), missing={"y": 0.0})
    expected = release_probability(filled.apply(table), 2.0, rng=rng_of(2), **options)
    forms = [table, table.to_dict("list"), iter([table[:1000], table[1000:]]), [table[:9], table[9:]]]
    forms += [table[["x", "y"]].to_records(index=False), table.to_dict("records")]
    for form in forms:
        assert release_probability(form, 2.0, rng=rng_of(2), schema=filled, n=3000, **options) == expected
    plain = release_probability(TABLE, 2.0, rng=rng_of(2), **options)
    for form in (TABLE.to_dict("list"), [TABLE[:9], TABLE[9:]], TABLE.to_records(index=False)):
        assert release_probability(form, 2.0, rng=rng_of(2), **options) == plain
