"""Posteriors from any sampler: what a fit is given, failures in silence, joblib, a Dask cluster."""

from __future__ import annotations

import joblib
import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm

from dpbook.partition import (
    ConjugateRegression,
    Flat,
    FromSampler,
    combine,
    partition_probabilities,
    partition_quantiles,
    probability_nonprivate,
    release_probability,
    release_quantile,
)
from dpbook.partition.samplers import ask_all

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
    low, high = combine(release).interval(0.99)
    assert low <= full <= high
    quantile = release_quantile(
        table, 0.5, posterior=posterior, partitions=20, epsilon=20.0, public_range=(-4, 4), rng=rng
    )
    assert combine(quantile).quantile == pytest.approx(0.5, abs=0.15)


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
