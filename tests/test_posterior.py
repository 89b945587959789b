from __future__ import annotations

import copy
import os
import pickle
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from matplotlib import pyplot as plt
from matplotlib.figure import Figure
from numpy.typing import NDArray

from dpbook.plotting import METHODS
from dpbook.posterior import ConvergenceWarning, Posterior, warn_if_unconverged


@pytest.fixture(scope="module")
def posterior() -> Posterior:
    """Four chains of 500 draws of a scalar, a vector of two and a 2 × 3 matrix."""
    rng = np.random.default_rng(7)
    draws = {
        "theta": rng.beta(3, 7, size=(4, 500)),
        "beta": rng.normal([1.0, -2.0], [1.0, 3.0], size=(4, 500, 2)),
        "table": rng.normal(size=(4, 500, 2, 3)),
    }
    return Posterior(draws, method="gibbs")


def test_estimates_pool_all_chains_and_keep_the_shape_of_the_parameter(posterior: Posterior) -> None:
    beta = posterior.draws["beta"].reshape(2000, 2)
    np.testing.assert_allclose(posterior.mean("beta"), beta.sum(axis=0) / 2000)
    np.testing.assert_allclose(posterior.sd("beta"), np.sqrt(((beta - beta.mean(axis=0)) ** 2).sum(axis=0) / 1999))
    np.testing.assert_allclose(posterior.quantile(0.3, "beta"), np.quantile(beta, 0.3, axis=0))
    assert posterior.mean("table").shape == posterior.sd("table").shape == (2, 3)
    assert isinstance(posterior.mean("theta"), np.float64)
    assert isinstance(posterior.quantile(0.5, "theta"), np.float64)


def test_without_a_name_an_estimate_is_a_dictionary_over_parameters(posterior: Posterior) -> None:
    calls: list[Any] = [posterior.mean, posterior.sd, posterior.rhat, posterior.ess, posterior.interval]
    for call in calls:
        every = call()
        assert list(every) == ["theta", "beta", "table"]
        np.testing.assert_array_equal(every["beta"], call(name="beta"))
    np.testing.assert_array_equal(posterior.quantile(0.2)["table"], posterior.quantile(0.2, "table"))


def test_several_quantiles_and_the_ends_of_an_interval_are_the_last_axis(posterior: Posterior) -> None:
    assert posterior.quantile([0.1, 0.5, 0.9], "theta").shape == (3,)
    quantiles = posterior.quantile([[0.1, 0.5], [0.6, 0.9]], "table")
    assert quantiles.shape == (2, 3, 2, 2)
    np.testing.assert_array_equal(quantiles[..., 1, 0], posterior.quantile(0.6, "table"))
    interval = posterior.interval(0.9, "table")
    assert interval.shape == (2, 3, 2)
    np.testing.assert_allclose(interval[..., 0], posterior.quantile(0.05, "table"))
    np.testing.assert_allclose(interval[..., 1], posterior.quantile(0.95, "table"))


def test_the_default_interval_is_central_and_holds_95_percent() -> None:
    np.testing.assert_allclose(Posterior({"x": np.arange(1001.0)[None]}).interval(name="x"), [25, 975])


def test_summary_agrees_with_arviz(posterior: Posterior) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import arviz as az

        theirs: Any = az.summary(posterior.to_arviz(), round_to="none")
    ours = posterior.summary()
    assert list(ours.index) == ["theta", "beta[0]", "beta[1]", *_table_labels()]
    theirs = theirs.loc[list(ours.index)]
    assert list(ours.columns) == ["mean", "sd", "2.5%", "97.5%", "r_hat", "ess_bulk", "ess_tail"]
    for column in ["mean", "sd", "r_hat", "ess_bulk", "ess_tail"]:
        np.testing.assert_allclose(ours[column], theirs[column], rtol=1e-12)
    np.testing.assert_allclose(ours[["2.5%", "97.5%"]].to_numpy()[0], posterior.interval(0.95, "theta"))


def _table_labels() -> list[str]:
    return [f"table[{i}, {j}]" for i in range(2) for j in range(3)]


def test_summary_names_the_ends_of_its_intervals_by_their_probabilities(posterior: Posterior) -> None:
    table = posterior.summary(level=0.9)
    assert {"5%", "95%"} < set(table.columns)
    assert table["5%"].to_numpy()[0] == pytest.approx(posterior.quantile(0.05, "theta"))


def test_to_arviz_carries_the_draws_and_the_method(posterior: Posterior) -> None:
    group = posterior.to_arviz().posterior
    np.testing.assert_array_equal(group["table"].values, posterior.draws["table"])
    assert group["table"].dims[:2] == ("chain", "draw")
    assert group.attrs["method"] == "gibbs"


def test_many_short_chains_go_to_arviz_without_a_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert Posterior({"x": np.zeros((50, 2))}).to_arviz().posterior["x"].shape == (50, 2)


def test_importing_the_module_does_not_import_arviz() -> None:
    code = "import sys, dpbook.posterior; sys.exit('arviz' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_first_use_of_arviz_is_silent(tmp_path: Path) -> None:
    """ArviZ announces its next version at its first import of a day, as noted in a cache: here an empty one."""
    code = (
        "import numpy as np; from dpbook.posterior import Posterior;"
        "Posterior({'x': np.random.default_rng(1).normal(size=(2, 50))}).summary()"
    )
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path), "MPLCONFIGDIR": mpl.get_cachedir()}
    command = [sys.executable, "-W", "error", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_draws_cannot_be_changed_through_the_posterior_or_behind_its_back() -> None:
    array = np.zeros((2, 3))
    given = {"x": array}
    posterior = Posterior(given)
    array[:] = 9
    given["y"] = array
    assert list(posterior.draws) == ["x"]
    assert (posterior.draws["x"] == 0).all()
    with pytest.raises(ValueError, match="read-only"):
        posterior.draws["x"][0, 0] = 1
    with pytest.raises(TypeError):
        posterior.draws["x"] = array  # type: ignore[index]
    with pytest.raises(AttributeError):
        posterior.method = "other"  # type: ignore[misc]


def test_a_read_only_view_of_a_writeable_array_is_copied_and_a_read_only_array_is_not() -> None:
    array = np.zeros(3)
    posterior = Posterior({"x": np.broadcast_to(array, (2, 3))})
    array[:] = 9
    assert (posterior.draws["x"] == 0).all()
    with pytest.raises(ValueError, match="WRITEABLE"):
        posterior.draws["x"].flags.writeable = True
    frozen = np.zeros((4, 2, 3))
    frozen.flags.writeable = False
    assert np.shares_memory(Posterior({"x": frozen[1]}).draws["x"], frozen)


def test_a_posterior_survives_pickling_and_copying(posterior: Posterior) -> None:
    for twin in (pickle.loads(pickle.dumps(posterior)), copy.deepcopy(posterior)):
        assert twin.method == "gibbs"
        np.testing.assert_array_equal(twin.draws["table"], posterior.draws["table"])
        assert not twin.draws["table"].flags.writeable


def test_repr_says_the_size_and_not_the_numbers(posterior: Posterior) -> None:
    expected = "Posterior(4 chains of 500 draws, theta: scalar, beta: (2,), table: (2, 3), method='gibbs')"
    assert repr(posterior) == expected


def test_a_single_chain_of_independent_draws_has_r_hat_near_one_and_full_size() -> None:
    """The 1 % band is over ten times what R-hat of 4 × 1,000 independent draws strays from 1."""
    one = Posterior({"x": np.random.default_rng(3).normal(size=(1, 4000))})
    assert abs(one.rhat("x") - 1) < 0.01
    assert 3000 < one.ess("x") < 5000


def test_a_single_chain_that_drifts_is_caught_by_comparing_its_halves() -> None:
    drift = np.linspace(0, 3, 1000) + np.random.default_rng(3).normal(size=1000)
    assert Posterior({"x": drift[None]}).rhat("x") > 1.2


@pytest.mark.parametrize("shape", [(1, 1), (1, 2), (1, 7), (3, 1), (3, 3)])
def test_figures_that_too_few_draws_cannot_give_are_nan_and_silent(
    shape: tuple[int, int], capfd: pytest.CaptureFixture[str]
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        few = Posterior({"x": np.random.default_rng(1).normal(size=shape)})
        table = few.summary()
    assert np.isnan(few.rhat("x"))
    assert np.isnan(few.sd("x")) == (shape == (1, 1))
    assert table["mean"].notna().all()
    assert capfd.readouterr().err == ""


def test_effective_size_sees_correlation_and_has_a_tail_kind() -> None:
    """An AR(1) chain with coefficient .9 is worth (1 - .9)/(1 + .9) = 1/19 of its length."""
    rng = np.random.default_rng(5)
    chain = np.zeros((4, 5000))
    for t in range(1, 5000):
        chain[:, t] = 0.9 * chain[:, t - 1] + rng.normal(size=4)
    posterior = Posterior({"x": chain})
    assert 0.7 * 20_000 / 19 < posterior.ess("x") < 1.4 * 20_000 / 19
    assert posterior.ess("x", kind="tail") != posterior.ess("x")
    with pytest.raises(ValueError, match="kind"):
        posterior.ess("x", kind="middle")


def _stuck(shift: float = 5.0) -> dict[str, NDArray[np.float64]]:
    """Three components of which only the second has chains that disagree."""
    draws = np.random.default_rng(2).normal(size=(2, 400, 3))
    draws[1, :, 1] += shift
    return {"good": draws[:, :, 0], "pair": draws[:, :, 1:]}


def test_unconverged_chains_warn_with_the_name_of_the_worst_component() -> None:
    with pytest.warns(ConvergenceWarning, match=r"R-hat of pair\[0\] is .* \(1 of 3 components"):
        warn_if_unconverged(Posterior(_stuck()))


def test_in_a_batch_the_warning_says_which_posterior() -> None:
    batch = [Posterior(_stuck(0.0)), Posterior(_stuck(2.0)), Posterior(_stuck(9.0))]
    with pytest.warns(ConvergenceWarning, match=r"^in 2 of 3 releases, such as release\[2\]: .*pair\[0\] is"):
        warn_if_unconverged(batch)


def test_chains_that_never_move_but_differ_warn_and_constants_do_not() -> None:
    moving = np.random.default_rng(1).normal(size=(2, 100))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_if_unconverged(Posterior({"constant": np.ones((2, 100)), "x": moving}))
    with pytest.warns(ConvergenceWarning, match="stuck"):
        warn_if_unconverged(Posterior({"stuck": np.repeat([[0.0], [1.0]], 100, axis=1)}))


def test_the_threshold_decides() -> None:
    posterior = Posterior(_stuck(1.0))
    rhat = float(posterior.rhat("pair")[0])
    assert rhat > 1.05
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_if_unconverged(posterior, threshold=rhat)
    with pytest.warns(ConvergenceWarning):
        warn_if_unconverged(posterior, threshold=rhat - 1e-6)
    with pytest.raises(ValueError, match="threshold"):
        warn_if_unconverged(posterior, threshold=0)


def test_the_warning_points_at_the_line_that_asked() -> None:
    with pytest.warns(ConvergenceWarning) as caught:
        warn_if_unconverged(Posterior(_stuck()))
    assert caught[0].filename == __file__
    assert "warn_if_unconverged(" in Path(__file__).read_text().splitlines()[caught[0].lineno - 1]


@pytest.mark.parametrize(
    ("draws", "error", "message"),
    [
        ({}, ValueError, "draws"),
        (np.zeros((2, 3)), TypeError, "draws must map"),
        ({"x": [1.0, 2.0]}, ValueError, r"draws\['x'\] .* \(chain, draw"),
        ({"x": np.zeros((2, 0))}, ValueError, r"draws\['x'\]"),
        ({"x": np.zeros((0, 4))}, ValueError, r"draws\['x'\]"),
        ({"x": [[1.0, np.nan]]}, ValueError, r"draws\['x'\] must be finite"),
        ({"x": [[1.0, np.inf]]}, ValueError, r"draws\['x'\] must be finite"),
        ({"x": [["a", "b"]]}, TypeError, r"draws\['x'\] must be numeric"),
        ({"x": [["1", "2"]]}, TypeError, r"draws\['x'\] must be numeric"),
        ({"x": np.zeros((1, 2), dtype=complex)}, TypeError, r"draws\['x'\] must be numeric"),
        ({"x": np.ma.masked_array([[1.0, 2.0]], mask=[[False, True]])}, ValueError, r"draws\['x'\] must be finite"),
        ({3: np.zeros((2, 3))}, TypeError, "draws must be named"),
        ({"x": np.zeros((2, 3)), "y": np.zeros((2, 4))}, ValueError, "'x' has .* 'y' has"),
        ({"x": np.zeros((2, 3)), "y": np.zeros((3, 3))}, ValueError, "'x' has .* 'y' has"),
    ],
)
def test_draws_of_a_wrong_form_are_refused_by_name(draws: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        Posterior(draws)


def test_wrong_levels_and_names_are_refused_by_name(posterior: Posterior) -> None:
    with pytest.raises(ValueError, match="name must be one of 'theta', 'beta', 'table'"):
        posterior.mean("gamma")
    with pytest.raises(ValueError, match="level"):
        posterior.interval(95)
    with pytest.raises(ValueError, match="level"):
        posterior.summary(1.0)
    with pytest.raises(ValueError, match="q must"):
        posterior.quantile([0.5, 1.5])


@pytest.mark.parametrize("width", [20, 80, 300])
def test_the_summary_prints_all_its_columns_at_any_width(posterior: Posterior, width: int) -> None:
    """As in a terminal: there pandas leaves out the columns that do not fit, or breaks the table in two."""
    with pd.option_context("display.width", width, "display.max_columns", 3):
        for table in (posterior.summary(), posterior.summary().round(2), posterior.summary().iloc[:1]):
            header, *rows = repr(table).splitlines()
            assert header.split() == list(table.columns)
            assert len(rows) == len(table)
            assert all(f"<th>{column}</th>" in table._repr_html_() for column in table.columns)


def test_the_summary_remains_a_frame_that_can_be_pickled(posterior: Posterior) -> None:
    summary = posterior.summary()
    assert isinstance(summary, pd.DataFrame)
    pd.testing.assert_frame_equal(pickle.loads(pickle.dumps(summary)), summary)


def test_plot_draws_means_and_intervals_of_every_component() -> None:
    draws = np.random.default_rng(3).normal(size=(2, 200, 3))
    posterior = Posterior({"beta": draws, "s$x$": draws[:, :, 0]}, method="naive")
    ax = posterior.plot(level=0.9, ax=Figure().subplots())
    assert [each.get_text() for each in ax.get_yticklabels()] == ["beta[0]", "beta[1]", "beta[2]", r"s\$x\$"]
    assert ax.get_xlabel() == "posterior mean, intervals of 90 % and 50 %"
    outer, inner = (np.array(lines.get_segments())[:, :, 0] for lines in ax.collections)
    np.testing.assert_allclose(outer[:3], posterior.interval(0.9, "beta"))
    np.testing.assert_allclose(inner[:3], posterior.interval(0.5, "beta"))
    np.testing.assert_allclose(ax.lines[0].get_xdata()[:3], posterior.mean("beta"))
    assert ax.lines[0].get_color() == METHODS["naive"].color
    low, high = ax.get_ylim()
    assert low > high  # the first component on top


def test_plot_takes_one_parameter_and_makes_a_figure_without_changing_defaults() -> None:
    plt.figure()  # chooses a backend, once
    before = mpl.rcParams.copy()
    ax = Posterior({"theta": [[0.1, 0.2]], "sigma": [[1.0, 2.0]]}).plot("sigma", level=0.4)
    plt.close("all")
    assert [each.get_text() for each in ax.get_yticklabels()] == ["sigma"]
    assert ax.get_xlabel() == "posterior mean, intervals of 40 %"
    assert not ax.spines["top"].get_visible()
    assert mpl.rcParams == before
    with pytest.raises(ValueError, match="name must be one of"):
        Posterior({"theta": [[0.1]]}).plot("beta")


# Labels of components -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def labelled() -> Posterior:
    """Two chains of coefficients that are called like columns, and a scalar."""
    rng = np.random.default_rng(8)
    draws = {"theta": rng.normal([0.0, 1.0, 2.0], size=(2, 300, 3)), "sigma2": rng.gamma(2.0, size=(2, 300))}
    return Posterior(draws, method="collapsed", labels={"theta": ["(intercept)", "age", "pay"]})


def test_a_table_calls_components_by_their_labels(labelled: Posterior) -> None:
    table = labelled.summary()
    assert list(table.index) == ["(intercept)", "age", "pay", "sigma2"]
    np.testing.assert_allclose(table.loc["age", "mean"], labelled.draws["theta"][:, :, 1].mean())
    assert labelled.draws["theta"].shape == (2, 300, 3)  # one array all the same
    assert labelled.labels == {"theta": ("(intercept)", "age", "pay")}


def test_a_plot_and_a_notebook_call_components_by_their_labels(labelled: Posterior) -> None:
    ax = labelled.plot("theta", ax=Figure().subplots())
    assert [each.get_text() for each in ax.get_yticklabels()] == ["(intercept)", "age", "pay"]
    assert '<th scope="row">age</th>' in labelled._repr_html_()


def test_labels_become_coordinates_of_arviz(labelled: Posterior) -> None:
    theta = labelled.to_arviz().posterior["theta"]
    assert theta.dims == ("chain", "draw", "theta_component")
    np.testing.assert_array_equal(theta.sel(theta_component="pay"), labelled.draws["theta"][:, :, 2])


def test_a_warning_names_the_label() -> None:
    draws = np.random.default_rng(1).normal(size=(4, 100, 2))
    draws[0, :, 1] += 50
    with pytest.warns(ConvergenceWarning, match="R-hat of age is"):
        warn_if_unconverged(Posterior({"theta": draws}, labels={"theta": ["(intercept)", "age"]}))


def test_labels_survive_pickling_and_copying(labelled: Posterior) -> None:
    for again in (pickle.loads(pickle.dumps(labelled)), copy.copy(labelled), copy.deepcopy(labelled)):
        assert again.labels == labelled.labels
        assert again.method == "collapsed"
        assert list(again.summary().index) == list(labelled.summary().index)


def test_labels_cannot_be_changed(labelled: Posterior) -> None:
    with pytest.raises(TypeError):
        labelled.labels["theta"] = ("a", "b", "c")  # type: ignore[index]
    with pytest.raises(AttributeError):
        labelled.labels = {}  # type: ignore[misc]


@pytest.mark.parametrize(
    "others",
    [
        ({"gamma": 2}, {"gamma": ["age", "b"]}),  # a label of another parameter
        ({"age": 0}, {}),  # another parameter itself
    ],
)
def test_a_label_that_another_parameter_uses_too_says_whose_it_is(
    others: tuple[dict[str, int], dict[str, list[str]]],
) -> None:
    shapes, labels = others
    draws = {name: np.zeros((1, 5, size) if size else (1, 5)) for name, size in {"theta": 2, **shapes}.items()}
    posterior = Posterior(draws, labels={"theta": ["age", "pay"], **labels})
    assert posterior.component_labels("theta") == ["theta[age]", "pay"]
    assert posterior.summary().index.is_unique


def test_a_label_like_the_number_of_a_component_says_whose_it_is() -> None:
    posterior = Posterior({"theta": np.zeros((1, 5, 1)), "b": np.zeros((1, 5, 2))}, labels={"theta": ["b[1]"]})
    assert list(posterior.summary().index) == ["theta[b[1]]", "b[0]", "b[1]"]


@pytest.mark.parametrize(
    ("labels", "error", "because"),
    [
        (["a", "b"], TypeError, "labels must map"),
        ({"alpha": ["a", "b"]}, ValueError, "labels must be one of 'theta', 'tau'"),
        ({"theta": "ab"}, TypeError, r"labels\['theta'\] must be a sequence"),
        ({"theta": 2}, TypeError, r"labels\['theta'\] must be a sequence"),
        ({"theta": ["a"]}, ValueError, r"labels\['theta'\] must name the \(2,\) components of a vector, got 1 labels"),
        ({"theta": ["a", "a"]}, ValueError, r"labels\['theta'\] must be different strings"),
        ({"theta": ["a", 2]}, ValueError, r"labels\['theta'\] must be different strings"),
        ({"tau": ["a"]}, ValueError, r"labels\['tau'\] must name the \(\) components"),
    ],
)
def test_labels_that_do_not_fit_are_refused(labels: Any, error: type[Exception], because: str) -> None:
    with pytest.raises(error, match=because):
        Posterior({"theta": np.zeros((1, 5, 2)), "tau": np.zeros((1, 5))}, labels=labels)
