"""Regression on a schema: the release, its sensitivity, its law, its posterior, formulas, and what is refused."""

from __future__ import annotations

import itertools
import json
import pickle

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from scipy import stats

from dpbook import PrivacyBudget, Release, Schema, regression
from dpbook.doubts import ManyClipped
from dpbook.regression import PrivateBayesianRegression
from dpbook.regression.cell_law import CellLaw
from dpbook.regression.design import Design, design_of
from dpbook.regression.planning import designed
from dpbook.release import together
from dpbook.schema import Category, Flag, Integer, Number
from dpbook.sensitivity import moments_by_cell, second_moments

SCHEMA = Schema(
    {
        "region": Category(["north", "south", "east", "west"]),
        "age": Number(18, 80),
        "hours": Number(0, 80),
        "sex": Flag(),
        "wage": Number(0, 50),
    }
)
WITH_MISSING = Schema(dict(SCHEMA.columns), missing="category")
FORMULAS = (
    "wage ~ region",
    "wage ~ region + age + hours",
    "wage ~ region + sex + age",
    "wage ~ region * sex",
    "wage ~ region * age",
    "wage ~ age * hours",
    "wage ~ age * hours + region",
    "np.log(wage + 1) ~ np.log(age) + C(region)",
)


def people(n: int, seed: int = 1) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    region = rng.choice(["north", "south", "east", "west"], p=[0.4, 0.3, 0.2, 0.1], size=n)
    age, hours, sex = rng.uniform(20, 60, n), rng.uniform(10, 60, n), rng.random(n) < 0.4
    wage = 8 + 0.2 * age + 3 * (region == "south") - 2 * (region == "west") + sex + rng.normal(0, 4, n)
    return pd.DataFrame({"region": region, "age": age, "hours": hours, "sex": sex, "wage": wage})


def design(formula: str, schema: Schema = SCHEMA) -> Design:
    return designed(schema, None, formula, None, None)


def moved(one: Design, rows: np.ndarray, others: np.ndarray, norm: int) -> np.ndarray:
    """Return how far the statistics of records lie apart, by the very code that releases them."""
    change = np.abs(one.statistics(rows)[:, None] - one.statistics(others)[None])
    return change.sum(axis=2) if norm == 1 else np.sqrt((change**2).sum(axis=2))


def corners(one: Design, steps: int) -> np.ndarray:
    """Return coded records: all cells, and a grid of numbers and responses."""
    codes = [range(size) for size in one.sizes]
    numbers = [np.linspace(-1, 1, steps)] * len(one.numerics)
    responses = one.outcome.centre + one.outcome.unit * np.linspace(-1, 1, steps)
    return np.array(list(itertools.product(*codes, *numbers, responses)), dtype=np.float64)


# Sensitivity


@pytest.mark.parametrize("norm", [1, 2])
@pytest.mark.parametrize("formula", FORMULAS)
def test_no_pair_of_records_is_farther_apart_than_the_sensitivity_and_one_comes_close(formula, norm):
    """All pairs on a grid; exact forms are attained, searched ones within one part in a thousand."""
    one = design(formula)
    rows = corners(one, 5)
    rng = np.random.default_rng(1)
    rows = rows[rng.choice(len(rows), min(len(rows), 2500), replace=False)]
    ends = corners(one, 3)
    ends = ends[rng.choice(len(ends), min(len(ends), 600), replace=False)]
    largest = max(moved(one, ends, rows, norm).max(), moved(one, ends, ends, norm).max())
    claimed = moments_by_cell(*one.monomials, norm=norm)
    assert largest <= claimed * (1 + 1e-12)
    assert largest >= 0.9 * claimed


@pytest.mark.parametrize("norm", [1, 2])
@pytest.mark.parametrize(
    "formula", ["wage ~ region", "wage ~ region + age", "wage ~ region * age", "wage ~ age * hours"]
)
def test_the_sensitivity_is_attained(formula, norm):
    """By climbing from random pairs of records in two cells, to one part in a thousand (quarters suffice in L1)."""
    one = design(formula)
    claimed = moments_by_cell(*one.monomials, norm=norm)
    size = len(one.numerics) + 1
    grid = np.array(list(itertools.product(np.linspace(-1, 1, 33 if size < 3 else 17), repeat=size)))
    y = one.outcome.centre + one.outcome.unit * grid[:, -1:]
    last = [[size - 1 for size in one.sizes], [0 for _ in one.sizes]]
    rows, others = (np.concatenate([np.tile(codes, (len(grid), 1)), grid[:, :-1], y], axis=1) for codes in last)
    far = (grid == 1).all(axis=1)
    assert moved(one, rows[far], others, norm).max() == pytest.approx(claimed, rel=2e-3)


def test_six_dummies_cost_a_quarter_of_an_eighth_of_a_box():
    assert second_moments([-1] * 7, [1] * 7, intercept=True) == 35.4375
    assert moments_by_cell([[0], [1]], [[2]]) == 4.25
    assert moments_by_cell([[0], [1]], [[2]], norm=2) == 2.0


@pytest.mark.parametrize("p", [1, 2, 3, 4])
@pytest.mark.parametrize("norm", [1, 2])
def test_the_closed_form_agrees_with_the_search(p, norm):
    """The search is told of a monomial twice, once in vain, so that it does not recognise the form."""
    first = np.concatenate([np.zeros((1, p), dtype=int), np.eye(p, dtype=int)])
    second = np.array([np.eye(p, dtype=int)[i] + np.eye(p, dtype=int)[j] for i in range(p) for j in range(i, p)])
    searched = moments_by_cell(first, np.concatenate([second, np.zeros((1, p), dtype=int)]), norm=norm)
    closed = moments_by_cell(first, second, norm=norm)
    assert closed <= searched * (1 + 1e-12)
    assert searched <= closed * (1 + 2e-6)


def test_exponents_that_are_none_are_refused():
    for wrong in ([[0.5]], [[-1]], [[5]], [1, 2], [[0, 1]]):
        with pytest.raises(ValueError, match="by_cell"):
            moments_by_cell(wrong, [[2]])
    with pytest.raises(ValueError, match="norm"):
        moments_by_cell([[0], [1]], [[2]], norm=3)


# The release


@pytest.mark.parametrize("formula", FORMULAS)
def test_the_sums_without_noise_are_least_squares(formula):
    """At epsilon = 10^9 the coefficients that the sums give are those of the regressors in the data's units."""
    table = people(800)
    noisy = regression.release(table, formula=formula, schema=SCHEMA, epsilon=1e9, rng=np.random.default_rng(1))
    one = design_of(Release.from_json(noisy.to_json()))
    matrix = np.zeros((one.carriers + 1,) * 2)
    matrix[tuple(one.pairs.T)] = matrix[tuple(one.pairs[:, ::-1].T)] = noisy["sums"]
    if one.cells == 1:
        matrix[0, 0] = noisy.n
    line = one.from_carriers
    theta = np.linalg.solve(line @ matrix[:-1, :-1] @ line.T, line @ matrix[:-1, -1])
    regressors = np.column_stack([np.ones(len(table)), one.covariates(table)])
    expected = np.linalg.lstsq(regressors, one.outcome.values(table), rcond=None)[0]
    assert one.theta_out(theta) == pytest.approx(expected, rel=1e-4, abs=1e-4)


def test_the_regressors_are_those_that_formulaic_makes_of_the_records():
    import formulaic

    table = people(300).astype({"region": pd.CategoricalDtype(["north", "south", "east", "west"])})
    for formula in ("wage ~ region * age", "wage ~ age * hours + region", "wage ~ region + np.log(age)"):
        theirs = formulaic.model_matrix(formula, table).rhs
        ours = design(formula)
        found = pd.DataFrame(ours.covariates(table), columns=ours.labels[1:])
        for name in ours.labels[1:]:
            parts = {part.replace("[", "[T.") for part in name.split(":")}
            (match,) = [own for own in theirs.columns if set(own.split(":")) == parts]
            assert found[name].to_numpy() == pytest.approx(theirs[match].to_numpy(np.float64))


def test_every_container_gives_the_same_release():
    table = people(500)
    formula = "wage ~ region + age"
    made = [
        table,
        pa.table({name: table[name].tolist() for name in table}),
        iter([table.iloc[:200], table.iloc[200:]]),
        pa.Table.from_pandas(table).to_reader(max_chunksize=100),
        table.to_dict("records"),
        table.to_records(index=False),
        list(table.itertuples(index=False, name=None)),
    ]
    found = [
        regression.release(data, formula=formula, schema=SCHEMA, epsilon=1.0, rng=np.random.default_rng(3))
        for data in made
    ]
    assert all(each == found[0] for each in found)


def test_a_dask_table_gives_the_same_release():
    dask = pytest.importorskip("dask.dataframe")
    table = people(400)
    parts = dask.from_pandas(table, npartitions=3)
    one, other = (
        regression.release(data, "wage", schema=SCHEMA, epsilon=1.0, rng=np.random.default_rng(3))
        for data in (table, parts)
    )
    assert one == other


def test_a_separate_response_is_paired_by_position():
    table = people(400)
    narrow = Schema({name: kind for name, kind in SCHEMA.columns.items() if name != "wage"})
    X, y = table.drop(columns="wage"), table["wage"]
    settings = {"epsilon": 1.0, "schema": narrow, "y_bounds": (0, 50)}
    apart = regression.release(X, y.to_numpy(), rng=np.random.default_rng(3), **settings)
    within = regression.release(table, "wage", schema=SCHEMA, epsilon=1.0, rng=np.random.default_rng(3))
    named = regression.release(table, "wage", rng=np.random.default_rng(3), **settings)
    assert (apart["sums"] == within["sums"]).all()
    assert (named["sums"] == within["sums"]).all()
    with pytest.raises(ValueError, match="as many rows"):
        regression.release(X, y.to_numpy()[:-1], rng=np.random.default_rng(3), **settings)


@pytest.mark.filterwarnings("ignore::dpbook.doubts.Doubt")
def test_missing_labels_and_numbers_have_coefficients_of_their_own():
    table = people(3000)
    gone = np.random.default_rng(2).random(3000)
    table["region"] = table["region"].where(gone > 0.1, None)
    table["age"] = table["age"].where(gone < 0.8, np.nan)
    table["wage"] = table["wage"] + 5 * table["age"].isna()
    noisy = regression.release(
        table, formula="wage ~ region + age", schema=WITH_MISSING, epsilon=1e6, rng=np.random.default_rng(1)
    )
    posterior = regression.infer(noisy, draws=200, chains=4, rng=np.random.default_rng(1))
    assert (
        posterior.labels["theta"][-2:] == ("region[missing]", "age[missing]")
        or "age[missing]" in posterior.labels["theta"]
    )
    one = design_of(noisy)
    regressors = np.column_stack([np.ones(3000), one.covariates(table)])
    expected = np.linalg.lstsq(regressors, table["wage"], rcond=None)[0]
    sd = np.asarray(posterior.sd("theta"))
    assert (np.abs(posterior.centre - expected) < 0.5 * sd).all()
    # A missing age stands at the middle of its bounds, 49: what differs from it there is the coefficient.
    table["wage"] = np.where(gone < 0.01, None, table["wage"])
    with pytest.raises(ValueError, match="missing"):
        regression.release(
            table, formula="wage ~ region", schema=WITH_MISSING, epsilon=1.0, rng=np.random.default_rng(1)
        )


def test_the_release_says_what_it_is_of():
    noisy = regression.release(people(50), "wage", schema=SCHEMA, epsilon=1.0, rng=np.random.default_rng(1))
    assert noisy.model == "linear regression on a schema"
    assert Schema.from_json(noisy.settings["schema"]) == SCHEMA
    assert noisy.bounds["wage"] == (0, 50)
    broken = json.loads(noisy.to_json())
    broken["settings"]["terms"] = [["region"]]
    with pytest.raises(ValueError, match="sums"):
        regression.infer(Release.from_json(json.dumps(broken)))
    broken["settings"]["terms"] = [["__import__('os').system('false')"]]
    with pytest.raises(ValueError, match="design"):
        regression.infer(Release.from_json(json.dumps(broken)))


@pytest.mark.parametrize(
    ("formula", "why"),
    [
        ("wage ~ scale(age)", "takes its constants from the records"),
        ("wage ~ center(age)", "takes its constants from the records"),
        ("wage ~ bs(age, df=3)", "takes its constants from the records"),
        ("wage ~ poly(age, 2)", "takes its constants from the records"),
        ("wage ~ C(age)", "Declare it as a Category"),
        ("wage ~ C(region, contr.treatment('south'))", "put the reference first"),
        ("wage ~ np.log(hours)", "not defined at the lower bound"),
        ("wage ~ {1 / hours}", "hold zero"),
        ("wage ~ {(age - 40) ** 2}", "not monotone"),
        ("wage ~ {age * hours}", "uses columns twice"),
        ("wage ~ age:region", "needs"),
        ("wage ~ 0 + age", "intercept"),
        ("wage ~ nobody", "no column"),
        ("wage ~ wage", "must not be among"),
        ("wage ~ 1", "at least one covariate"),
        ("region ~ age", "not a Category"),
        ("wage + hours ~ age", "one response"),
        ("~ age", "response"),
        ("wage ~", "formula|at least one"),
        ("wage ~ age | region", "formula"),
        ("wage ~ eval('1')", "not among"),
        ("wage ~ age:hours:sex", "needs"),
    ],
)
def test_what_a_formula_cannot_be_is_refused_with_a_reason_and_costs_nothing(formula, why):
    budget = PrivacyBudget(1.0)
    with pytest.raises(ValueError, match=why):
        regression.release(people(20), formula=formula, schema=SCHEMA, epsilon=1.0, budget=budget)
    assert budget.spent == (0, 0)


def test_wrong_arguments_are_named():
    table = people(20)
    given = {"epsilon": 1.0, "rng": np.random.default_rng(1)}
    for settings, kind, named in [
        ({"y": "wage", "schema": {}}, TypeError, "schema"),
        ({"formula": "wage ~ age"}, TypeError, "schema"),
        ({"y": "wage", "schema": SCHEMA, "x_bounds": (0, 1)}, ValueError, "x_bounds"),
        ({"y": "wage", "schema": SCHEMA, "y_bounds": (0, 1)}, ValueError, "y_bounds"),
        ({"y": "wage", "schema": SCHEMA, "formula": "wage ~ age"}, ValueError, "y and y_bounds"),
        ({"schema": SCHEMA}, TypeError, "y must"),
        ({"y": "wage", "schema": SCHEMA, "intercept": False}, ValueError, "intercept"),
        ({"y": "wage", "schema": SCHEMA, "moments": True}, ValueError, "moments"),
        ({"y": "wage", "schema": SCHEMA, "check": 0.2}, ValueError, "check"),
        ({"y": table["wage"], "schema": Schema({"age": Number(0, 1)})}, TypeError, "y_bounds"),
        ({"y": "wage", "schema": SCHEMA, "formula": 3}, ValueError, "y and y_bounds"),
        ({"schema": SCHEMA, "formula": 3}, TypeError, "formula"),
    ]:
        with pytest.raises(kind, match=named):
            regression.release(table, **settings, **given)
    many = Schema({f"c{i}": Category(range(9)) for i in range(3)} | {"y": Number(0, 1)})
    with pytest.raises(ValueError, match="cells"):
        regression.release([[0, 0, 0, 0.5]], "y", schema=many, **given)


# The law and the posterior


@pytest.mark.parametrize("schema", [SCHEMA, WITH_MISSING])
@pytest.mark.parametrize("formula", FORMULAS)
def test_the_gradient_is_that_of_the_density(formula, schema):
    law, rng = CellLaw(design(formula, schema)), np.random.default_rng(4)
    position = 0.6 * rng.normal(size=(law.dim, 2))
    k = len(law.design.pairs)
    of_mean, of_cov = rng.normal(size=(2, k)), rng.normal(size=(2, k, k))
    of_cov = of_cov + of_cov.swapaxes(1, 2)

    def value(at):
        mean, cov, _ = law.moments(at)
        return (of_mean * mean).sum(axis=1) + (of_cov * cov).sum(axis=(1, 2)) + law.log_prior(at)[0]

    mean, _, pullback = law.moments(position)
    gradient = pullback(of_mean, of_cov) + law.log_prior(position)[1]
    steps = 1e-6 * np.eye(law.dim)[:, :, None]
    numeric = np.stack([(value(position + step) - value(position - step)) / 2e-6 for step in steps])
    assert gradient == pytest.approx(numeric, rel=1e-5, abs=1e-5 * np.abs(gradient).max())
    assert law.mean(position) == pytest.approx(mean)


@pytest.mark.parametrize("formula", ["wage ~ region + age", "wage ~ region * age", "wage ~ age * hours"])
def test_the_law_has_the_moments_of_records_with_fixed_covariates(formula):
    """Sums of 4,000 simulated tables have the mean (five standard errors) and covariance (12 %) that the law says.

    The covariates are fixed: as many records as carriers, along the axes of the law's own second moments.
    """
    one, rng = design(formula), np.random.default_rng(5)
    law = CellLaw(one)
    position = 0.4 * rng.normal(size=(law.dim, 1))
    mean, cov, _ = law.moments(position)
    theta, sigma2 = law.parameters(position)
    at, n = law.places, one.carriers
    second = np.zeros((n, n))
    second[at.rows[at.of_x], at.columns[at.of_x]] = second[at.columns[at.of_x], at.rows[at.of_x]] = mean[0, at.of_x]
    if one.cells == 1:
        second[0, 0] = 1.0
    size, axes = np.linalg.eigh(second)
    carried = (axes * np.sqrt(n * np.maximum(size, 0))).T
    y = carried @ one.from_carriers.T @ theta[0] + np.sqrt(sigma2) * rng.normal(size=(4000, n))
    sums = np.concatenate([y @ carried[:, at.carried], (y**2).sum(axis=1)[:, None]], axis=1)
    where = np.append(at.with_y, at.y_squared)
    error = sums.std(axis=0) / np.sqrt(4000)
    assert (np.abs(sums.mean(axis=0) - n * mean[0, where]) < 5 * error + 1e-12).all()
    claimed = n * cov[0][np.ix_(where, where)]
    scale = np.sqrt(np.outer(np.diag(claimed), np.diag(claimed)))
    assert (np.abs(np.cov(sums.T) - claimed) <= 0.12 * scale + 1e-12).all()


def test_much_epsilon_gives_the_posterior_of_least_squares():
    """Centres within a fifth of a standard error of least squares, spreads within a tenth: 3,000 records."""
    table = people(3000)
    noisy = regression.release(
        table, formula="wage ~ region + sex + age", schema=SCHEMA, epsilon=1e4, rng=np.random.default_rng(1)
    )
    posterior = regression.infer(noisy, rng=np.random.default_rng(2))
    one = design_of(noisy)
    w = np.column_stack([np.ones(3000), one.covariates(table)])
    theta, (rss,) = np.linalg.lstsq(w, table["wage"], rcond=None)[:2]
    sd = np.sqrt(np.diag(np.linalg.inv(w.T @ w)) * rss / (3000 - len(theta)))
    assert (np.abs(posterior.centre - theta) < 0.2 * sd).all()
    assert np.asarray(posterior.sd("theta")) == pytest.approx(sd, rel=0.1)


def test_which_label_is_the_reference_does_not_matter():
    """Group means of two codings agree to a tenth of their posterior sd: the same sums, in another order."""
    table = people(2000)
    turned = Schema({"region": Category(["west", "east", "south", "north"]), "wage": Number(0, 50)})
    means = []
    for schema in (Schema({"region": SCHEMA.columns["region"], "wage": Number(0, 50)}), turned):
        noisy = regression.release(table, "wage", schema=schema, epsilon=1e5, rng=np.random.default_rng(1))
        posterior = regression.infer(noisy, rng=np.random.default_rng(2))
        means.append(posterior.predict({"region": ["north", "south", "east", "west"]}))
    assert means[0] == pytest.approx(means[1], abs=0.03)


def test_group_means_agree_with_a_grid():
    """Two labels, Gaussian noise: the posterior of both means and of the count by quadrature over (p, means, variance).

    Quantiles of the effect agree within a twentieth of its spread: 4,000 draws and a grid.
    """
    rng = np.random.default_rng(8)
    schema = Schema({"g": Category(["a", "b"]), "y": Number(-1, 1)})
    g = rng.random(120) < 0.3
    table = {"g": np.where(g, "b", "a").tolist(), "y": (0.2 * g + 0.25 * rng.normal(size=120)).tolist()}
    noisy = regression.release(table, "y", schema=schema, epsilon=1.5, delta=1e-3, mechanism="gaussian", rng=rng)
    posterior = regression.infer(noisy, draws=8000, rng=rng)
    draws = np.asarray(posterior.draws["theta"])[..., 1].ravel()
    grid, weights = _effect_by_quadrature(noisy)
    order = np.argsort(grid)
    cumulative = np.cumsum(weights[order])
    exact = [grid[order][np.searchsorted(cumulative, q)] for q in (0.05, 0.25, 0.5, 0.75, 0.95)]
    spread = exact[-1] - exact[0]
    assert np.quantile(draws, [0.05, 0.25, 0.5, 0.75, 0.95]) == pytest.approx(exact, abs=0.05 * spread)


@pytest.mark.filterwarnings("ignore::dpbook.doubts.Doubt")
def test_ranks_of_the_truth_are_uniform():
    """Simulation-based calibration, two labels, 120 positions from the prior, sums from the law, Laplace noise.

    Ranks of effect and error among the draws: Kolmogorov–Smirnov, and the variance of the ranks, each at 0.1 %.
    """
    rng, trials = np.random.default_rng(12), 120
    schema = Schema({"g": Category(["a", "b"]), "y": Number(-1, 1)})
    one = designed(schema, "y", None, None, None)
    law, n, scale = CellLaw(one), 400, 8.0
    at, position = law.places, np.zeros((law.dim, trials))
    position[at.height] = rng.normal(size=trials)
    position[at.slopes] = rng.standard_cauchy(trials)
    position[at.log_error] = np.log(0.1) + 2 * rng.normal(size=trials)
    share = rng.beta(0.5, 0.5, size=trials)
    position[at.logits] = np.log(share) - np.log1p(-share)
    mean, cov, _ = law.moments(position)
    size, axes = np.linalg.eigh(n * cov)
    spread = (axes @ (np.sqrt(np.maximum(size, 0)) * rng.normal(size=size.shape))[..., None])[..., 0]
    sums = n * mean + spread + rng.laplace(scale=scale, size=mean.shape)
    made = [
        Release(
            values={"sums": each}, model="linear regression on a schema", mechanism="laplace", scale={"sums": scale},
            sensitivity={"sums": 4.25}, epsilon=1.0, n=n, float_safe=False, bounds=one.bounds, settings=one.settings,
        )
        for each in sums
    ]  # fmt: skip
    found = regression.infer(made, draws=400, chains=4, rng=rng)
    theta, sigma2 = law.parameters(position)
    for truth, draws in [
        (theta[:, 1], [np.asarray(each.draws["theta"])[..., 1].ravel() for each in found]),
        (sigma2, [np.asarray(each.draws["sigma2"]).ravel() for each in found]),
    ]:
        ranks = np.array([(own < true).mean() for true, own in zip(truth, draws, strict=True)])
        assert stats.kstest(ranks, "uniform").pvalue > 1e-3
        # The variance of uniform ranks is 1/12, with standard error sqrt(1/180/trials).
        assert abs(ranks.var() - 1 / 12) < 3.3 * np.sqrt(1 / 180 / trials)


def _effect_by_quadrature(noisy: Release) -> tuple[np.ndarray, np.ndarray]:
    """Return values of the effect and their weights: importance sampling from the prior's own terms, written anew.

    p ~ Beta(1/2, 1/2); height ~ N(0, 1); log error ~ N(log 0.1, 2²); scaled slope t ~ Cauchy(1);
    effect = error t / sqrt(p (1 - p)). A million draws from a wide normal around the naive estimate.
    """
    rng, n, sd = np.random.default_rng(0), noisy.n, noisy.scale["sums"]
    counts, sums, squares = noisy["sums"][:2], noisy["sums"][2:4], noisy["sums"][4]
    size = 2_000_000
    p = np.clip(counts[1] / n + 1.2 * sd / n * rng.standard_t(5, size), 1e-9, 1 - 1e-9)
    log_q = stats.t(5, counts[1] / n, 1.2 * sd / n).logpdf(p)
    mean0, mean1 = sums / np.maximum(counts, 1)
    centre = [sums.sum() / n, mean1 - mean0, np.log(0.3)]
    widths = [0.15, 0.45, 0.5]
    draws = [c + w * rng.standard_t(5, size) for c, w in zip(centre, widths, strict=True)]
    log_q = log_q + sum(stats.t(5, c, w).logpdf(x) for c, w, x in zip(centre, widths, draws, strict=True))
    height, effect, log_error = draws
    error, sd_x = np.exp(log_error), np.sqrt(p * (1 - p))
    t = effect * sd_x / error
    log_p = stats.beta(0.5, 0.5).logpdf(p) + stats.norm.logpdf(height) + stats.norm(np.log(0.1), 2).logpdf(log_error)
    log_p = log_p + stats.cauchy.logpdf(t) + np.log(sd_x / error)
    low = height - p * effect
    m = np.stack([(1 - p) * low, p * (low + effect)])
    second, total = np.stack([1 - p, p]), (1 - p) * low**2 + p * (low + effect) ** 2
    s = error**2
    log_p = log_p + stats.norm.logpdf(counts[1], n * p, sd) + stats.norm.logpdf(counts[0], n * (1 - p), sd)
    cov = np.zeros((size, 3, 3))
    cov[:, 0, 0], cov[:, 1, 1] = n * s * second[0] + sd**2, n * s * second[1] + sd**2
    cov[:, 2, 2] = n * s * (4 * total + 2 * s) + sd**2
    cov[:, 0, 2] = cov[:, 2, 0] = 2 * n * s * m[0]
    cov[:, 1, 2] = cov[:, 2, 1] = 2 * n * s * m[1]
    gap = np.stack([sums[0] - n * m[0], sums[1] - n * m[1], squares - n * (total + s)], axis=1)
    fit = (gap * np.linalg.solve(cov, gap[..., None])[..., 0]).sum(axis=1)
    log_p = log_p - 0.5 * (fit + np.linalg.slogdet(cov)[1])
    weights = np.exp(log_p - log_q - (log_p - log_q).max())
    return effect, weights / weights.sum()


@pytest.mark.filterwarnings("ignore::dpbook.doubts.Doubt")
@pytest.mark.parametrize(("n", "epsilon"), [(5, 0.03), (5, 30.0), (2000, 0.03), (2000, 30.0)])
def test_extremes_are_survived(n, epsilon):
    """Five records or many, little epsilon or much: finite draws, no error."""
    settings = {"formula": "wage ~ region + age", "schema": SCHEMA, "epsilon": epsilon}
    noisy = regression.release(people(n), **settings, rng=np.random.default_rng(1))
    posterior = regression.infer(noisy, draws=80, chains=4, warm_up=100, rng=np.random.default_rng(2))
    assert np.isfinite(np.asarray(posterior.draws["theta"])).all()


def test_a_response_that_was_clipped_is_doubted():
    """Wages around 17, bounds that end at 18."""
    tight = Schema({**SCHEMA.columns, "wage": Number(10, 18)})
    noisy = regression.release(
        people(3000), formula="wage ~ region", schema=tight, epsilon=5.0, rng=np.random.default_rng(1)
    )
    with pytest.warns(ManyClipped, match="clipped"):
        regression.infer(noisy, draws=80, chains=4, warm_up=100, rng=np.random.default_rng(2))


def test_a_batch_gives_each_release_its_own_posterior():
    table = people(2000)
    settings = {"formula": "wage ~ region", "schema": SCHEMA, "epsilon": 5.0}
    made = [regression.release(table, rng=np.random.default_rng(i), **settings) for i in range(3)]
    found = regression.infer(made, draws=400, chains=4, rng=np.random.default_rng(1))
    alone = regression.infer(made[1], draws=400, chains=4, rng=np.random.default_rng(2))
    assert pickle.loads(pickle.dumps(alone)).predict({"region": ["east"]}) == alone.predict({"region": ["east"]})
    assert found[1].centre == pytest.approx(alone.centre, abs=0.4 * np.asarray(alone.sd("theta")).max())


def test_what_does_not_go_with_a_schema_is_refused_by_infer():
    noisy = regression.release(people(50), "wage", schema=SCHEMA, epsilon=1.0, rng=np.random.default_rng(1))
    with pytest.raises(ValueError, match="method"):
        regression.infer(noisy, method="collapsed")
    with pytest.raises(ValueError, match="prior"):
        regression.infer(noisy, regression.NormalInverseGamma(mean=[0], precision=1, shape=1, rate=1))


# Preview and estimator


@pytest.mark.filterwarnings("ignore::dpbook.doubts.Doubt")
def test_a_preview_says_how_wide_intervals_will_be():
    """Realised widths of eight releases of its own design lie within a fifth of what was expected, in the median."""
    schema = Schema({"g": Category(["a", "b", "c"]), "x": Number(-1, 1), "y": Number(-1, 1)})
    look = regression.preview(n=3000, schema=schema, y="y", epsilon=2.0, sd_x=0.4, sd_y=0.3, r_squared=0.2)
    rng = np.random.default_rng(3)
    made = []
    for _ in range(8):
        g, x = rng.integers(3, size=3000), np.clip(0.4 * rng.normal(size=3000), -1, 1)
        mean = 0.1 * x + np.array([-0.1, 0.05, 0.1])[g]
        y = mean + np.sqrt(0.09 - mean.var()) * rng.normal(size=3000)
        made.append(
            regression.release(
                {"g": np.array(list("abc"))[g].tolist(), "x": x, "y": y}, "y", schema=schema, epsilon=2.0, rng=rng
            )
        )
    widths = [
        np.ptp(np.asarray(each.quantile([0.025, 0.975], "theta")), axis=-1)
        for each in regression.infer(made, draws=800, rng=rng)
    ]
    expected = look.summary()["width"].to_numpy()
    assert np.median(widths, axis=0) == pytest.approx(expected, rel=0.2)


def test_solve_epsilon_inverts_the_preview():
    settings = {"n": 5000, "schema": SCHEMA, "formula": "wage ~ region", "sd_y": 5}
    plan = regression.solve_epsilon(1.5, of="region[south]", **settings)
    width = regression.preview(epsilon=plan.epsilon, **settings).summary().loc["region[south]", "width"]
    assert width == pytest.approx(1.5, rel=0.05)
    with pytest.raises(ValueError, match="left out beside a schema"):
        regression.preview(epsilon=1.0, d=2, **settings)


@pytest.mark.filterwarnings("ignore::dpbook.doubts.Doubt")
def test_the_estimator_takes_a_table_with_labels():
    table = people(2000)
    narrow = Schema({name: SCHEMA.columns[name] for name in ("region", "age")})
    model = PrivateBayesianRegression(5.0, y_bounds=(0, 50), schema=narrow, draws=200, chains=4, random_state=1)
    fitted = model.fit(table[["region", "age"]], table["wage"])
    assert fitted.coef_.shape == (4,)
    assert fitted.n_features_in_ == 2
    assert 0.1 < fitted.score(table, table["wage"]) < 0.6
    assert fitted.predictive_interval(table.head(3)).shape == (3, 2)
    budget = PrivacyBudget(9.0)
    with pytest.raises(ValueError, match="method"):
        PrivateBayesianRegression(5.0, y_bounds=(0, 50), schema=narrow, method="naive").fit(
            table, table["wage"], budget
        )
    assert budget.spent == (0, 0)


@pytest.mark.filterwarnings("ignore::dpbook.doubts.FewDraws")  # of clipping, nothing is said
def test_integers_and_flags_are_numbers_and_labels():
    schema = Schema({"visits": Integer(0, 20), "smoker": Flag(), "ill": Flag()})
    rng = np.random.default_rng(1)
    rows = [
        (int(v), bool(s), bool(rng.random() < 0.2 + 0.3 * s))
        for v, s in zip(rng.integers(0, 20, 500), rng.random(500) < 0.5, strict=True)
    ]
    noisy = regression.release(rows, "ill", schema=schema, epsilon=50.0, rng=rng)
    posterior = regression.infer(noisy, draws=200, chains=4, rng=rng)
    assert not any(isinstance(doubt, ManyClipped) for doubt in posterior.doubts)
    assert posterior.labels["theta"] == ("(intercept)", "visits", "smoker[True]")
    assert 0.15 < posterior.centre[2] < 0.45


@pytest.mark.filterwarnings("ignore::dpbook.doubts.Doubt")
def test_several_releases_of_the_same_records_are_read_together():
    """Three releases at epsilon = 1 put together: intervals narrower than those of one by a fifth or more."""
    table = people(2000)
    settings = {"formula": "wage ~ region", "schema": SCHEMA, "epsilon": 1.0}
    made = [regression.release(table, rng=np.random.default_rng(i), **settings) for i in range(3)]
    options = {"draws": 400, "chains": 4, "rng": np.random.default_rng(9)}
    widths = [
        np.ptp(np.asarray(regression.infer(each, **options).interval(0.95, "theta")), axis=-1)
        for each in (made[0], together(*made))
    ]
    assert np.median(widths[1] / widths[0]) < 0.8
