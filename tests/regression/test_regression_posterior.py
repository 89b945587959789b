"""Regression posteriors predict: means, standard deviations and intervals of new responses."""

import pickle

import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm

from dpbook import Release, regression
from dpbook.regression import RegressionPosterior


def made(d=2, intercept=True, seed=1, draws=1000):
    rng = np.random.default_rng(seed)
    theta = rng.normal(size=(4, draws, d + intercept)) * 0.5 + 1
    return RegressionPosterior({"theta": theta, "sigma2": 1 / rng.gamma(3, 1, size=(4, draws))}, "naive", intercept)


@pytest.mark.parametrize("intercept", [True, False])
def test_predictions_agree_with_simulated_responses(intercept):
    """One new response for each of 200 replications of 4,000 draws; four Monte-Carlo standard errors."""
    posterior, rng = made(intercept=intercept), np.random.default_rng(2)
    x = np.array([[0.5, -1.0], [2.0, 3.0], [0.0, 0.0]])
    w = np.column_stack([np.ones(3), x]) if intercept else x
    centres = (posterior.draws["theta"].reshape(-1, w.shape[1]) @ w.T)[:, None, :]
    sd = np.sqrt(posterior.draws["sigma2"].reshape(-1, 1, 1))
    responses = (centres + sd * rng.normal(size=(4000, 200, 3))).reshape(-1, 3)
    mean, spread = posterior.predict(x, return_std=True)
    np.testing.assert_allclose(mean, centres.mean(axis=(0, 1)), rtol=1e-9)
    np.testing.assert_allclose(spread, responses.std(axis=0), rtol=0.03)
    np.testing.assert_array_equal(posterior.predict(x), mean)
    for level in (0.5, 0.9):
        low, high = posterior.predictive_interval(x, level).T
        share = ((responses >= low) & (responses <= high)).mean(axis=0)
        np.testing.assert_allclose(share, level, atol=4 * np.sqrt(0.25 / len(responses)))
        below = (responses < low).mean(axis=0)
        np.testing.assert_allclose(below, (1 - level) / 2, atol=4 * np.sqrt(0.25 / len(responses)))


def test_an_interval_is_found_however_different_the_draws():
    """Two draws far apart, one a thousand times as wide: the quantile of the mixture, to 9 digits."""
    theta = np.array([[[0.0, 0.0], [1e6, 0.0]]])
    posterior = RegressionPosterior({"theta": theta, "sigma2": np.array([[1e-6, 1.0]])})
    low, high = posterior.predictive_interval([[3.0]], 0.9)[0]
    assert low == pytest.approx(norm.ppf(0.1) * 1e-3, rel=1e-4)
    assert high == pytest.approx(1e6 + norm.ppf(0.9), rel=1e-9)


def test_many_new_records_are_predicted_in_blocks():
    posterior = made(d=1, draws=2500)
    x = np.linspace(-3, 3, 300)
    whole = posterior.predictive_interval(x, 0.8)
    assert whole.shape == (300, 2)
    np.testing.assert_allclose(whole[[0, 150, 299]], posterior.predictive_interval(x[[0, 150, 299]], 0.8))
    assert posterior.predictive_interval(x[:0]).shape == (0, 2)


def test_it_is_a_posterior_and_survives_pickling():
    posterior = made()
    again = pickle.loads(pickle.dumps(posterior))
    assert isinstance(again, RegressionPosterior)
    assert again.intercept is True
    assert again.d == 2
    assert list(posterior.summary().index) == ["(intercept)", "x1", "x2", "sigma2"]
    assert list(made(intercept=False).summary().index) == ["x1", "x2", "sigma2"]
    assert not pickle.loads(pickle.dumps(made(intercept=False))).intercept


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda p: p.predict([1.0, 2.0]), r"X_new must have shape \(records, 2\)"),
        (lambda p: p.predict([[1.0, 2.0, 3.0]]), r"X_new must have shape \(records, 2\)"),
        (lambda p: p.predict([[np.nan, 2.0]]), "X_new must be finite"),
        (lambda p: p.predictive_interval([[1.0, 2.0]], 1.0), "level must lie strictly between 0 and 1"),
        (lambda p: RegressionPosterior({"theta": np.zeros((2, 3))}), "draws must hold theta"),
        (
            lambda p: RegressionPosterior({"theta": np.zeros((2, 3, 1)), "sigma2": np.ones((2, 3))}),
            "must hold a slope beside the intercept",
        ),
    ],
)
def test_what_is_wrong_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call(made())


def test_a_table_is_read_by_the_names_of_its_columns():
    """Order is free where the names agree; other names are refused; without names, position decides."""
    rng = np.random.default_rng(3)
    draws = {"theta": rng.normal([1.0, 2.0, 30.0], 0.1, size=(2, 50, 3)), "sigma2": np.ones((2, 50))}
    named = RegressionPosterior(draws, labels={"theta": ["(intercept)", "a", "b"]})
    table = pd.DataFrame({"a": [1.0, 2.0], "b": [3.0, 5.0]})
    expected = RegressionPosterior(draws).predict(table.to_numpy())
    arrow = pytest.importorskip("pyarrow")
    for form in (table, table[["b", "a"]], table.to_numpy(), arrow.Table.from_pandas(table[["b", "a"]])):
        np.testing.assert_allclose(named.predict(form), expected, rtol=1e-12)  # summed in another order
        np.testing.assert_allclose(named.predictive_interval(form), named.predictive_interval(table), rtol=1e-12)
    for wrong in (table.rename(columns={"a": "c"}), table.assign(c=1.0), table[["a"]]):
        with pytest.raises(ValueError, match=r"^X_new must have the columns \['a', 'b'\], in any order; got"):
            named.predict(wrong)
    assert pickle.loads(pickle.dumps(named)).columns == ("a", "b")
    with pytest.raises(ValueError, match=r"labels\['theta'\] must name the \(3,\) components"):
        RegressionPosterior(draws, labels={"theta": ["a"]})
    positional = RegressionPosterior(draws)
    np.testing.assert_array_equal(positional.predict(table), expected)


def test_a_posterior_knows_the_columns_of_the_table_that_was_released():
    rng = np.random.default_rng(4)
    table = pd.DataFrame(rng.uniform(size=(50, 3)), columns=["a", "y", "b"])
    prior = regression.NormalInverseGamma(0, 1, 2, 2)
    settings = {"x_bounds": (0, 1), "y_bounds": (0, 1), "epsilon": 1.0, "rng": rng}
    made = Release.from_json(regression.release(table, "y", **settings).to_json())
    assert regression.infer(made, prior, method="naive", rng=rng).columns == ("a", "b")
    assert regression.infer_nonprivate(table, "y", prior, rng=rng).columns == ("a", "b")
    unnamed = regression.release(table.to_numpy(), 1, **settings)
    assert regression.infer(unnamed, prior, method="naive", rng=rng).columns == ("x1", "x2")
