"""The study of synthetic people: the regression, the combining rules, the replicates, and what the tables say."""

from __future__ import annotations

import importlib

import numpy as np
import pandas as pd
import pytest

from dpbook import graphical
from dpbook.experiments import synthetic_people as study
from dpbook.experiments.synthetic_people import CLIQUES, DOMAIN, combine, load, people, regress


def rng_of(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


def noisy(epsilon: float, seed: int):
    return graphical.release(people(), DOMAIN, CLIQUES, epsilon=epsilon, rng=rng_of(seed))


def test_the_regression_is_that_of_statsmodels():
    api = pytest.importorskip("statsmodels.discrete.discrete_model")
    frame = people()
    design = np.column_stack([np.ones(len(frame)), frame[["education", "age", "sex", "married"]].to_numpy()])
    fitted = api.Logit((frame["income"] >= 2).astype(int).to_numpy(), design).fit(disp=False)
    found = regress(frame)
    np.testing.assert_allclose(found.coefficients, fitted.params, atol=1e-5)
    np.testing.assert_allclose(np.sqrt(found.variances), fitted.bse, rtol=1e-4)


def test_a_field_and_its_table_have_one_regression():
    field = study._population()
    table = field.marginal(study.REGRESSED)
    np.testing.assert_allclose(regress(field, n=500).coefficients, regress(500 * table).coefficients)


def test_the_regression_survives_separation():
    table = np.zeros(study._SHAPE)
    table[0, 0, 0, 0, 0], table[4, 3, 1, 1, 3] = 10, 10
    assert np.isfinite(regress(table).coefficients).all()


def test_the_fully_synthetic_rule_estimates_the_variance_that_it_should():
    """A world of normals: the truth is 0, the estimate N(0, 1), fields N(estimate, 1), sets N(field, u)."""
    rng, m, u = rng_of(1), 10, 0.2
    estimate = rng.normal(size=20_000)
    sets = rng.normal(estimate, np.sqrt(1 + u), size=(m, 20_000))
    found = combine(sets, np.full((m, 20_000), u))
    assert found.variance.mean() == pytest.approx(found.estimate.var(), rel=0.03)
    held = ((found.lower < 0) & (found.upper > 0)).mean()
    assert 0.94 < held < 0.98  # the rule's degrees of freedom are on the careful side
    trusting = combine(sets, np.full((m, 20_000), u), rule="partially synthetic")
    assert ((trusting.lower < 0) & (trusting.upper > 0)).mean() < 0.75


@pytest.mark.parametrize(
    ("estimates", "variances", "rule", "named"),
    [
        (np.ones((1, 2)), np.ones((1, 2)), "fully synthetic", "estimates"),
        (np.ones((3, 2)), np.ones((2, 2)), "fully synthetic", "estimates"),
        (np.ones((3, 2)), np.ones((3, 2)), "half synthetic", "rule"),
    ],
)
def test_bad_arguments_of_the_rules_are_named(estimates, variances, rule, named):
    with pytest.raises(ValueError, match=named):
        combine(estimates, variances, rule=rule)


def test_replicates_scatter_around_the_released_field():
    """Their mean misses the field by less than six of its standard errors, in every coefficient."""
    release = noisy(3.0, 2)
    field = study.learn(release, "ridge")
    found = np.array([regress(each).coefficients for each in study.replicates(release, field, "ridge", 6, rng_of(3))])
    spread = found.std(axis=0, ddof=1)
    assert (spread > 0).all()
    assert (np.abs(found.mean(axis=0) - regress(field).coefficients) < 6 * spread / np.sqrt(6)).all()


def test_synthetic_sets_have_the_size_asked_for_and_differ_more_where_noise_is_known():
    release = noisy(1.0, 4)
    rng = rng_of(5)
    same = study.synthetic_sets(release, "ridge", 4, rng, noise_aware=False, size=40_000)
    own = study.synthetic_sets(release, "ridge", 4, rng, size=40_000)
    assert {len(each) for each in (*same, *own)} == {40_000}
    spread = [np.array([regress(each).coefficients for each in sets]).std(axis=0).mean() for sets in (same, own)]
    assert spread[1] > 1.3 * spread[0]


def test_mbi_that_is_missing_is_named_and_skipped(monkeypatch, capsys):
    real = importlib.import_module

    def absent(name, *rest):
        if name.startswith("mbi"):
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(importlib, "import_module", absent)
    with pytest.raises(ImportError, match=r"dpbook\[compare\]"):
        study.fit_mbi(noisy(1.0, 6))
    assert not study._has_mbi()
    assert "left out" in capsys.readouterr().out


def test_the_committed_quality_is_repeated_by_the_code():
    table = load("people_quality")
    field, _ = study._fields(table.attrs["seed"], 3.0, 0, ["ridge"])["ridge"]
    row = table.query("method == 'ridge' and epsilon == 3.0 and trial == 0").iloc[0]
    np.testing.assert_allclose(row[list(study._MEASURES)].astype(float), study._judge(field), rtol=0.02, atol=1e-4)


def test_the_committed_quality_grows_with_epsilon_and_the_graph_matters():
    table = load("people_quality")
    mean = table.groupby(["method", "epsilon"])["divergence"].mean()
    for method in ("ridge", "cgm", "penalised"):
        assert mean[method].is_monotonic_decreasing
    regression = table.set_index("method")["regression"]
    assert regression["non-private, first graph"] > 2 * regression["non-private"]


def test_the_committed_coverage_shows_that_plain_intervals_fall_short():
    """100 repetitions: a coverage of 0.95 has a standard error of 0.022, its mean over five coefficients less."""
    table = load("people_coverage")
    mean = table.groupby(["analysis", "epsilon"])["coverage"].mean()
    assert (mean["survey"] > 0.9).all()
    assert (mean["plain"][[0.3, 1.0]] < 0.8).all()
    assert (mean["one field"][[0.3, 1.0]] < 0.8).all()
    assert (mean["noise-aware"] > 0.88).all()


def test_the_committed_comparison_with_private_pgm_is_on_the_same_tables():
    table = load("people_mbi")
    ours = table.query("method in ('ridge', 'cgm', 'penalised')")
    theirs = table.query("method == 'mbi'")
    assert len(theirs) == 20
    assert theirs["trial"].nunique() == 10
    for epsilon in (0.3, 3.0):
        both = pd.concat([ours, theirs])
        pair = both[both["epsilon"] == epsilon].groupby("method")["released"].mean()
        assert (pair / pair.min()).max() < 1.1


def test_the_committed_intervals_hold_a_row_for_every_coefficient():
    table = load("people_intervals")
    assert len(table) == 5 * (1 + 3 * 3)
    assert (table["lower"] < table["upper"]).all()
    width = (table["upper"] - table["lower"]).groupby([table["analysis"], table["epsilon"]]).mean()
    assert (width["noise-aware"] > width["plain"]).all()


def test_the_committed_marginals_hold_all_pairs():
    table = load("people_marginals")
    assert table.groupby("pair")["survey"].sum().to_numpy() == pytest.approx(np.ones(28), abs=0.01)
