"""The scikit-learn estimator: scikit-learn's own checks, privacy bookkeeping, and what happens without the extra."""

import subprocess
import sys
import warnings

import numpy as np
import pandas as pd
import pytest

from dpbook import BudgetExceeded, PrivacyBudget, regression
from dpbook.regression import NormalInverseGamma, NormalInverseWishart
from dpbook.regression.coordinates import Coordinates
from dpbook.regression.estimator import PrivateBayesianRegression
from dpbook.regression.weak_priors import weak_prior

sklearn = pytest.importorskip("sklearn")
pytestmark = pytest.mark.filterwarnings("ignore::dpbook.doubts.Doubt")

# Checks of scikit-learn that are expected to fail, with the reason.
EXPECTED_FAILED_CHECKS: dict[str, str] = {
    "check_estimators_nan_inf": "infinite covariates are clipped to the bounds; an error would tell of one record",
    "check_supervised_y_no_nan": "infinite responses are clipped to the bounds; NaN raises",
    "check_dtype_object": "what is no number is refused in words that name the argument",
}


def simple(**options):
    """An estimator with few draws."""
    settings = {"epsilon": 5.0, "x_bounds": (0, 10), "y_bounds": (-5, 30), "draws": 80, "chains": 4, "warm_up": 60}
    return PrivateBayesianRegression(**{**settings, "random_state": 1, **options})


@pytest.fixture(scope="module")
def line():
    rng = np.random.default_rng(1)
    x = rng.uniform(0, 10, size=(3000, 1))
    return x, 1 + 2 * x[:, 0] + rng.normal(size=3000)


def test_scikit_learn_finds_nothing_wrong():
    from sklearn.utils.estimator_checks import check_estimator

    # With a method of its own: where n is below 20 the default draws every record, some seconds each time.
    estimator = PrivateBayesianRegression(1e5, (-4, 4), (-4, 4), method="fixed-design", draws=12, chains=2, warm_up=6)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = check_estimator(estimator, on_fail=None, expected_failed_checks=EXPECTED_FAILED_CHECKS)
    assert len(results) > 40
    assert {one["check_name"] for one in results if one["status"] == "failed"} == set()
    assert {one["check_name"] for one in results if one["status"] == "xfail"} == set(EXPECTED_FAILED_CHECKS)


def test_a_fit_finds_the_line_and_says_how_sure_it_is(line):
    model = simple().fit(*line)
    assert abs(model.coef_[0] - 2) < 0.2
    assert abs(model.intercept_ - 1) < 1
    mean, sd = model.predict([[0.0], [5.0]], return_std=True)
    assert np.abs(mean - [1, 11]).max() < 1
    assert (sd > 0.5).all()
    low, high = model.predictive_interval([[5.0]], 0.9)[0]
    assert low < 11 < high
    assert model.score(*line) > 0.9
    np.testing.assert_array_equal(model.predict([[5.0]]), mean[1:])


def test_the_defaults_are_those_of_infer(line):
    """The same release gives the same draws, and what has heavy tails is told by its median."""
    model = simple(random_state=np.random.default_rng(3), y_bounds=(-40, 60)).fit(*line)
    rng = np.random.default_rng(3)
    release = regression.release(*line, x_bounds=(0, 10), y_bounds=(-40, 60), epsilon=5.0, rng=rng)
    expected = regression.infer(release, draws=80, chains=4, warm_up=60, rng=rng)
    assert model.posterior_.method == expected.method == "fixed-design"
    np.testing.assert_array_equal(model.posterior_.draws["theta"], expected.draws["theta"])
    assert list(expected.summary().columns[:3]) == ["median", "2.5%", "97.5%"]
    np.testing.assert_array_equal(model.coef_, expected.quantile(0.5, "theta")[1:])


def test_the_same_random_state_gives_the_same_fit_and_none_gives_a_real_release(line):
    one, other = simple().fit(*line), simple().fit(*line)
    np.testing.assert_array_equal(one.coef_, other.coef_)
    assert not one.release_.float_safe
    assert simple(random_state=np.random.RandomState(3)).fit(*line).coef_.shape == (1,)
    assert simple(random_state=None, draws=8, warm_up=4).fit(*line).release_.float_safe


def test_a_fit_charges_the_budget_it_is_given_and_refuses_to_overspend(line):
    budget = PrivacyBudget(8.0)
    simple(draws=8, warm_up=4).fit(*line, budget=budget)
    assert budget.remaining == pytest.approx(3.0)
    with pytest.raises(BudgetExceeded, match="3 of 8 remains"):
        simple(draws=8, warm_up=4).fit(*line, budget=budget)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"epsilon": -1}, "epsilon"),
        ({"epsilon": 1e-300}, "epsilon"),
        ({"x_bounds": None}, "x_bounds must be given: public bounds .* never from the data"),
        ({"y_bounds": None}, "y_bounds must be given: public bounds .* never from the data"),
        ({"y_bounds": (1, 0)}, "y_bounds"),
        ({"x_bounds": [(0, 1)] * 2}, "x_bounds must have one pair for each of the 1 covariates"),
        ({"x_bounds": {"a": (0, 1)}}, "x_bounds can be a mapping only"),
        ({"mechanism": "uniform"}, "mechanism"),
        ({"delta": 0.5}, "delta"),
        ({"intercept": 1}, "intercept"),
        ({"method": "bogus"}, "method must be one of"),
        ({"method": "naive", "warm_up": 5}, "method 'naive' does not take 'warm_up'"),
        ({"method": "gibbs-update"}, "method 'gibbs-update' does not take 'warm_up'"),
        ({"warm_up": -1}, "warm_up"),
        ({"draws": 0}, "draws"),
        ({"draws": 2.5}, "draws"),
        ({"chains": 0}, "chains"),
        ({"prior": 3}, "prior must be a regression.NormalInverseGamma"),
        ({"prior": NormalInverseGamma([0, 0, 0], 1, 2, 2)}, "prior must be for 2 coefficients"),
        ({"covariates": "weak", "method": "collapsed"}, "covariates must be a regression.NormalInverseWishart"),
        (
            {"covariates": NormalInverseWishart([0, 0], 1, 1, 9), "method": "exact"},
            "covariates must be for 1 covariates",
        ),
        ({"covariates": NormalInverseWishart(0, 1, 1, 9)}, "covariates can be stated only together with prior"),
        ({"method": "gibbs-prior", "warm_up": None, "covariates": NormalInverseWishart(0, 1, 1, 4)}, "dof > d"),
        ({"random_state": "seed"}, "SeedSequence"),
    ],
)
def test_wrong_settings_are_named_before_anything_is_spent(line, options, words):
    budget = PrivacyBudget(8.0)
    with pytest.raises((ValueError, TypeError), match=words):
        simple(**options).fit(*line, budget=budget)
    assert budget.ledger == ()


def test_without_pymc_individual_records_are_refused_before_anything_is_spent(line, monkeypatch):
    monkeypatch.setitem(sys.modules, "pymc", None)
    budget = PrivacyBudget(8.0)
    with pytest.raises(ImportError, match="needs PyMC"):
        simple(method="individual").fit(*line, budget=budget)
    assert budget.ledger == ()


def test_noisy_moments_are_released_for_the_method_that_needs_them(line):
    model = simple(method="gibbs-noisy", warm_up=None, draws=8, chains=2).fit(*line)
    assert set(model.release_.values) == {"sums", "moments"}


@pytest.mark.parametrize("far", [np.inf, 1.7e308, 2**64, 10**400], ids=["inf", "largest", "2**64", "10**400"])
def test_a_record_beyond_the_bounds_counts_as_the_bound(line, far):
    x, y = line
    expected = simple(method="naive", warm_up=None).fit(np.vstack([[[10]], x]), np.append(30, y)).release_
    wide = np.array([[far], *x.tolist()], dtype=object)
    made = simple(method="naive", warm_up=None).fit(wide, np.array([far, *y], dtype=object)).release_
    assert made == expected


def test_missing_and_text_are_refused_and_masks_hide_nothing(line):
    x, y = line
    for X in (np.vstack([[[np.nan]], x[1:]]), np.ma.masked_array(x, mask=x == x[5])):
        with pytest.raises(ValueError, match="NaN"):
            simple().fit(X, y)
    with pytest.raises(TypeError, match="X must be numeric"):
        simple().fit(np.array([["1"], *x[1:].tolist()], dtype=object), y)


def test_columns_have_names_that_bounds_and_predictions_go_by(line):
    rng = np.random.default_rng(2)
    table = pd.DataFrame(rng.uniform(0, 1, size=(500, 2)), columns=["a", "b"]).assign(b=lambda t: 5 + 5 * t["b"])
    y = table["a"] + table["b"]
    settings = {"method": "naive", "warm_up": None, "epsilon": 1e6, "y_bounds": (0, 20)}
    model = simple(x_bounds={"b": (5, 10), "a": (0, 1)}, **settings).fit(table, y)
    assert dict(model.release_.bounds) == {"a": (0, 1), "b": (5, 10), "y": (0, 20)}
    assert list(model.posterior_.summary().index) == ["(intercept)", "a", "b", "sigma2"]
    np.testing.assert_allclose(model.coef_, 1, atol=0.1)
    with pytest.raises(ValueError, match="feature names"):
        model.predict(table[["b", "a"]])
    with pytest.raises(ValueError, match="feature names"):
        model.predict(table.rename(columns={"a": "c"}))
    swapped = model.posterior_.predict(table[["b", "a"]])
    np.testing.assert_array_equal(swapped, model.posterior_.predict(table))
    np.testing.assert_array_equal(swapped, model.predict(table))


def test_settings_reach_the_release_and_the_sampler(line):
    model = simple(intercept=False, mechanism="gaussian", delta=1e-6, method="naive", warm_up=None).fit(*line)
    assert model.release_.mechanism == "gaussian"
    assert model.posterior_.method == "naive"
    assert model.intercept_ == 0.0
    assert model.posterior_.draws["theta"].shape[-1] == 1


def test_a_pipeline_and_a_clone_work(line):
    from sklearn.base import clone
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import FunctionTransformer

    model = make_pipeline(FunctionTransformer(), clone(simple()))
    assert model.fit(*line).predict([[5.0]]).shape == (1,)


@pytest.mark.parametrize("intercept", [True, False])
def test_the_weak_prior_is_the_same_in_all_units(intercept):
    small = weak_prior(Coordinates(-np.ones(3), np.ones(3), intercept))
    wide = Coordinates(np.array([0.0, 20.0, -5.0]), np.array([10.0, 40.0, 5.0]), intercept)
    inside = wide.prior_in(weak_prior(wide))
    np.testing.assert_allclose(inside.mean, np.broadcast_to(small.mean, inside.mean.shape), atol=1e-12)
    np.testing.assert_allclose(inside.precision, 0.1 * np.eye(2 + intercept), atol=1e-9)
    assert inside.rate == pytest.approx(0.1)


def test_without_scikit_learn_the_module_imports_and_the_class_says_what_to_install():
    code = (
        "import sys; sys.modules['sklearn'] = None\n"
        "from dpbook.regression.estimator import PrivateBayesianRegression\n"
        "try:\n    PrivateBayesianRegression(1.0)\n"
        "except ImportError as error:\n    assert 'dpbook[sklearn]' in str(error); print('told')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "told"
