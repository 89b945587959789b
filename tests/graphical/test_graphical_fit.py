"""Fitting fields: moments match, the naive error follows its proposition, slopes are right, odd releases do no harm."""

import itertools

import numpy as np
import pandas as pd
import pytest
from scipy import optimize

from dpbook import Release, expfam
from dpbook.graphical import (
    MarkovRandomField,
    chain,
    clique_tables,
    fit,
    fit_nonprivate,
    noise_aware_ridge,
    project_to_simplex,
    release,
    tables_of,
)
from dpbook.graphical.inference import _cell_likelihood
from dpbook.graphical.likelihood import maximum_likelihood, projected
from dpbook.latent_noise import normal_laplace_logpdf
from dpbook.sensitivity import histogram

DOMAIN = {"a": 3, "b": 4, "c": 2, "d": 3}
GRAPHS = {
    "tree": [("a", "b"), ("b", "c"), ("b", "d")],
    "ring": [("a", "b"), ("b", "c"), ("c", "d"), ("d", "a")],
    "triples": [("a", "b", "c"), ("d", "b")],
    "disconnected": [("a", "b"), ("d",)],
    "nested": [("a", "b"), ("a",), ("c",)],
}


def world(cliques, n=2000, seed=0, spread=0.8, domain=DOMAIN):
    rng = np.random.default_rng(seed)
    truth = MarkovRandomField(domain, cliques, [spread * rng.normal(size=[domain[v] for v in c]) for c in cliques])
    return truth, truth.sample(n, rng)


# Maximum likelihood


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("ridge", [0.0, 1e-6])
def test_the_marginals_of_themaximum_likelihood_fit_are_those_of_the_data(name, ridge):
    _, records = world(GRAPHS[name])
    model = fit_nonprivate(records, DOMAIN, GRAPHS[name], ridge=ridge)
    exact = clique_tables(records, DOMAIN, GRAPHS[name])
    assert model.report.converged
    for clique, table in zip(GRAPHS[name], exact.tables, strict=True):
        assert np.allclose(model.marginal(clique), table / exact.n, atol=1e-6)


def test_the_closed_form_is_used_on_junction_trees_and_agrees_with_the_optimiser():
    _, records = world(GRAPHS["tree"])
    closed = fit_nonprivate(records, DOMAIN, GRAPHS["tree"], ridge=0)
    sought = fit_nonprivate(records, DOMAIN, GRAPHS["tree"], ridge=1e-7)
    assert closed.report.iterations == 0
    assert "closed form" in closed.report.stopped
    assert sought.report.iterations > 0
    assert closed.kl(sought) < 1e-8
    assert fit_nonprivate(records, DOMAIN, GRAPHS["ring"], ridge=0).report.iterations > 0


def test_empty_cells_do_not_break_the_closed_form():
    model = fit_nonprivate(np.array([[5, 0], [0, 5]]), {"a": 2, "b": 2}, [("a", "b")], ridge=0)
    assert np.allclose(model.marginal(("a", "b")), [[0.5, 0], [0, 0.5]])


@pytest.mark.parametrize("name", ["tree", "ring"])
@pytest.mark.parametrize("project", [True, False])
def test_the_naive_fit_maximises_its_objective(name, project):
    """The slope of the source's objective, θᵀy − N A(θ) − ridge ‖θ‖², is zero but for what moves no probability."""
    _, records = world(GRAPHS[name], n=500)
    noisy = release(records, DOMAIN, GRAPHS[name], epsilon=1.0, rng=np.random.default_rng(1))
    model = fit(noisy, method="naive", ridge=0.5, project=project, tolerance=1e-9)
    problem = tables_of(noisy)
    tables = projected(problem) * problem.n if project else problem.counts

    def printed(theta):
        found = problem.infer(theta)
        value = theta @ tables - problem.n * found.log_partition - 0.5 * theta @ theta
        return -value, -(tables - problem.n * found.means - theta)

    best = optimize.minimize(printed, np.zeros(problem.counts.size), jac=True, method="L-BFGS-B", tol=1e-13)
    assert problem.field(best.x, None).kl(model) < 1e-7


@pytest.mark.parametrize("name", GRAPHS)
def test_tables_made_consistent_agree_on_shared_variables_and_are_the_nearest_that_do(name):
    _, records = world(GRAPHS[name], n=300)
    noisy = release(records, DOMAIN, GRAPHS[name], epsilon=0.5, rng=np.random.default_rng(2))
    problem = tables_of(noisy)
    near = problem.consistent(problem.counts)
    # Every consistent set of tables is a combination of the tables of single records.
    states = list(itertools.product(*(range(k) for k in DOMAIN.values())))
    frame = pd.DataFrame(states, columns=list(DOMAIN))
    basis = []
    for position in range(len(frame)):
        tables = clique_tables(frame[position : position + 1], DOMAIN, GRAPHS[name]).tables
        basis.append(np.concatenate([t.ravel() for t in tables]))
    span = np.array(basis, dtype=float).T
    weights = np.linalg.lstsq(span, problem.counts, rcond=None)[0]
    assert np.allclose(near, span @ weights, atol=1e-8)


def test_the_projection_is_the_nearest_point_of_the_simplex():
    rng = np.random.default_rng(3)
    for _ in range(20):
        table = rng.normal(size=(3, 4))
        near = project_to_simplex(table)
        assert near.min() >= 0
        assert near.sum() == pytest.approx(1)
        # No corner of the simplex lies in a direction that comes closer (the obtuse-angle criterion).
        gap = (table - near).ravel()
        assert (gap - gap @ near.ravel()).max() <= 1e-12


# Proposition 3


def test_the_error_of_noisy_marginals_follows_proposition_3_with_sensitivity_two_a_table():
    """Mean squared errors over 600 releases; each is within 5 standard errors, and the printed value is not."""
    cliques = GRAPHS["tree"]
    truth, _ = world(cliques)
    true = np.concatenate([truth.marginal(c).ravel() for c in cliques])
    joint = truth.marginal(tuple(DOMAIN))
    for n, epsilon in ((1000, 0.5), (10_000, 0.5), (100_000, 5.0)):
        rng = np.random.default_rng(n)
        squared = []
        for _ in range(60):
            counts = rng.multinomial(n, joint.ravel()).reshape(joint.shape)
            exact = clique_tables(counts, DOMAIN, cliques).tables
            y = np.concatenate([t.ravel() for t in exact])
            scale = histogram(len(cliques)) / epsilon
            noisy = y + rng.laplace(scale=scale, size=(10, y.size))
            squared.append(((noisy / n - true) ** 2).mean(axis=1))
        squared = np.mean(squared, axis=1)
        sampling, noise = (true * (1 - true)).mean() / n, 2 * (len(cliques) / (n * epsilon)) ** 2
        se = squared.std(ddof=1) / np.sqrt(len(squared))
        assert abs(squared.mean() - (sampling + 4 * noise)) < 5 * se
        if 4 * noise > sampling:
            assert squared.mean() - (sampling + noise) > 5 * se


def test_the_error_of_naive_marginals_falls_as_one_over_n_squared_and_then_as_one_over_n():
    """From n = 10³ to 10⁶; slopes on a log-log scale within 0.25 of -2 where noise rules, of -1 where it does not."""
    domain, cliques = dict.fromkeys("abcd", 4), chain("abcd")
    truth, _ = world(cliques, domain=domain)
    true = np.concatenate([truth.marginal(c).ravel() for c in cliques])
    joint = truth.marginal(tuple("abcd"))
    sizes = (1_000, 10_000, 100_000, 1_000_000)
    errors = {}
    for epsilon, n in itertools.product((0.05, 20.0), sizes):
        rng = np.random.default_rng([n, int(100 * epsilon)])
        found = []
        for _ in range(6):
            counts = rng.multinomial(n, joint.ravel()).reshape(joint.shape)
            noisy = release(counts, domain, cliques, epsilon=epsilon, rng=rng)
            model = fit(noisy, method="naive", ridge=1.0)
            found.append(((np.concatenate([model.marginal(c).ravel() for c in cliques]) - true) ** 2).mean())
        errors[epsilon, n] = np.mean(found)
    by_noise = np.log10(errors[0.05, 10_000] / errors[0.05, 100_000])
    by_sampling = np.log10(errors[20.0, 1_000] / errors[20.0, 1_000_000]) / 3
    assert by_noise == pytest.approx(2, abs=0.25)
    assert by_sampling == pytest.approx(1, abs=0.25)


# The pathologies


def test_noisy_tables_leave_the_local_polytope_and_every_fit_returns_to_it():
    cliques = GRAPHS["ring"]
    _, records = world(cliques, n=100)
    noisy = release(records, DOMAIN, cliques, epsilon=0.5, rng=np.random.default_rng(4))
    tables = list(noisy.values.values())
    assert min(table.min() for table in tables) < 0
    assert np.abs(tables[0].sum(axis=0) - tables[1].sum(axis=1)).max() > 1  # two tables of b
    for method in ("naive", "cgm", "penalised"):
        model = fit(noisy, method=method)
        for clique in cliques:
            table = model.marginal(clique)
            assert table.min() >= 0
            assert table.sum() == pytest.approx(1)
            for axis, v in enumerate(clique):
                assert np.allclose(table.sum(axis=1 - axis), model.marginal(v), atol=1e-10)


def test_projection_helps_and_a_tiny_ridge_hurts_the_naive_fit():
    domain, cliques = dict.fromkeys("abcde", 5), chain("abcde")
    kl = {}
    for seed in range(3):
        truth, records = world(cliques, n=1000, seed=seed, domain=domain)
        noisy = release(records, domain, cliques, epsilon=0.5, rng=np.random.default_rng(seed))
        for key in ((0.1, True), (0.1, False), (1e-4, True), (10.0, True)):
            model = fit(noisy, method="naive", ridge=key[0], project=key[1], iterations=60)
            kl.setdefault(key, []).append(truth.kl(model))
    mean = {key: np.mean(values) for key, values in kl.items()}
    assert mean[0.1, True] < mean[0.1, False]
    assert mean[10.0, True] < mean[0.1, True] < mean[1e-4, True]


# The likelihood of noisy cells


def test_the_cell_likelihood_is_the_normal_laplace_density_and_its_slope_is_right():
    cliques = GRAPHS["tree"]
    _, records = world(cliques, n=400)
    noisy = release(records, DOMAIN, cliques, epsilon=2.0, rng=np.random.default_rng(5))
    problem = tables_of(noisy)
    rng = np.random.default_rng(6)
    found = problem.infer(rng.normal(size=problem.counts.size))
    value, slope = _cell_likelihood(problem, found)

    def at(means):
        variance = problem.n * means * (1 - means)
        return normal_laplace_logpdf(problem.counts, problem.n * means, variance, problem.scales).sum()

    assert value == pytest.approx(at(found.means), rel=1e-10)
    direction = rng.normal(size=slope.size) * found.means
    step = 1e-6
    difference = (at(found.means + step * direction) - at(found.means - step * direction)) / (2 * step)
    assert slope @ direction == pytest.approx(difference, rel=1e-5)


@pytest.mark.parametrize("name", ["tree", "ring", "tied"])
def test_the_penalised_fit_is_a_maximum_of_its_objective_wherever_it_starts(name):
    """It does not depend on when one stops: a generic optimiser from zero finds no better value nearby."""
    domain = DOMAIN if name != "tied" else dict.fromkeys("abcd", 3)
    cliques = GRAPHS.get(name) or chain("abcd", tied=True)
    source, _ = world(GRAPHS["tree"] if name != "tied" else chain("abcd"), domain=domain)
    records = source.sample(800, np.random.default_rng(1))
    noisy = release(records, domain, cliques, epsilon=1.0, rng=np.random.default_rng(7))
    model = fit(noisy, method="penalised", tolerance=1e-8)
    problem = tables_of(noisy)
    theta = np.concatenate([t.ravel() for t in model.potentials])

    def value(x):
        return _cell_likelihood(problem, problem.infer(x))[0] - 0.5 * x @ x

    assert model.report.converged
    assert value(theta) == pytest.approx(model.report.objective, rel=1e-9)
    rng = np.random.default_rng(8)
    for _ in range(5):  # the slope vanishes: central differences in random directions
        direction = rng.normal(size=theta.size)
        slope = (value(theta + 1e-5 * direction) - value(theta - 1e-5 * direction)) / 2e-5
        assert abs(slope) < 1e-3
        assert value(theta + 0.05 * direction) < value(theta)


# Sane behaviour of every method


@pytest.mark.parametrize("method", ["naive", "cgm", "penalised"])
@pytest.mark.parametrize(("n", "epsilon"), [(1, 1.0), (5, 1e-6), (2000, 1e-3), (2000, 1e6)])
def test_no_release_breaks_a_fit(method, n, epsilon):
    truth, _ = world(GRAPHS["ring"])
    noisy = release(truth.sample(n, np.random.default_rng(0)), DOMAIN, GRAPHS["ring"], epsilon=epsilon,
                    rng=np.random.default_rng(1))  # fmt: skip
    model = fit(noisy, method=method, **({"ridge": 1.0} if method == "naive" else {}))
    assert np.isfinite(truth.kl(model))
    assert model.report.method == method
    assert model.report.evaluations > 0


ODD = {
    "one variable": ({"a": 2}, [("a",)]),
    "two parts": ({"a": 2, "b": 3, "c": 4, "d": 2}, [("a", "b"), ("c", "d")]),
    "triples": ({"a": 2, "b": 3, "c": 4, "d": 2}, [("a", "b", "c"), ("c", "d", "b")]),
    "a variable in no clique": ({"a": 2, "z": 5}, [("a",)]),
    "nested": ({"a": 2, "b": 3}, [("a", "b"), ("a",), ("b",)]),
    "tied, order 2": (dict.fromkeys("abcd", 3), chain("abcd", order=2, tied=True)),
}


@pytest.mark.parametrize("name", ODD)
@pytest.mark.parametrize(("real", "null"), [(False, None), (True, 0)])
def test_no_graph_no_noise_and_no_null_record_breaks_a_fit(name, real, null):
    """Epsilon is so small or large that cells are huge or exact; with real noise, all records are null besides.

    Small means the least that a release takes: noise of 2**53 steps of its grid, a record or 2**-32 of one.
    """
    domain, cliques = ODD[name]
    records = pd.DataFrame({variable: np.zeros(4, dtype=int) for variable in domain})
    split = null is not None or name.startswith("tied")
    least = 2 * len(cliques) * (2.0**32 if split else 1.0) / 2.0**53
    for epsilon, method in itertools.product((least, 1.0, 1e6), ("naive", "cgm", "penalised")):
        noisy = release(records, domain, cliques, epsilon=epsilon, null=null,
                        rng=None if real else np.random.default_rng(3))  # fmt: skip
        model = fit(Release.from_json(noisy.to_json()), method=method, iterations=20)
        for clique in model.cliques:
            table = model.marginal(clique)
            assert table.min() >= 0
            assert table.sum() == pytest.approx(1)
        drawn = model.sample(3, np.random.default_rng(4))
        assert list(drawn) == list(domain)
        assert np.isfinite(model.log_prob(drawn)).all()


@pytest.mark.parametrize("method", ["naive", "cgm", "penalised"])
def test_without_noise_every_method_agrees_with_the_open_fit(method):
    truth, records = world(GRAPHS["tree"], n=20_000)
    noisy = release(records, DOMAIN, GRAPHS["tree"], epsilon=1e6, rng=np.random.default_rng(1))
    open_fit = fit_nonprivate(records, DOMAIN, GRAPHS["tree"])
    assert open_fit.kl(fit(noisy, method=method)) < 2e-4
    assert truth.kl(open_fit) < 2e-3


@pytest.mark.parametrize("method", ["naive", "cgm", "penalised"])
def test_tiny_epsilon_leaves_next_to_nothing_and_the_noise_aware_fits_say_so(method):
    """At epsilon = 1e-3 and n = 200 the tables are noise; noise-aware fits stay near flat, the naive one does not."""
    truth, records = world(GRAPHS["tree"], n=200)
    noisy = release(records, DOMAIN, GRAPHS["tree"], epsilon=1e-3, rng=np.random.default_rng(1))
    flat = truth.kl(truth.with_potentials([np.zeros_like(t) for t in truth.potentials]))
    found = truth.kl(fit(noisy, method=method))
    assert found > 5 * flat if method == "naive" else found < 1.5 * flat


def test_fit_reads_a_release_of_clique_tables_only_and_names_wrong_arguments():
    noisy = release(np.array([3, 4]), {"a": 2}, [("a",)], epsilon=1.0, rng=np.random.default_rng(0))
    other = expfam.release([0, 1], expfam.Binomial(), epsilon=1.0, rng=np.random.default_rng(0))
    with pytest.raises(ValueError, match="clique tables"):
        fit(other)
    with pytest.raises(TypeError, match="release"):
        fit(np.zeros(3))
    for wrong in (
        {"method": "em"},
        {"ridge": 0.0},
        {"ridge": -1.0},
        {"steps": -1},
        {"prior_sd": 0.0, "method": "penalised"},
        {"gap": 0.0},
        {"inference": "quick"},
        {"tolerance": 0.0},
        {"iterations": 0},
        {"limit": 0},
    ):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            fit(noisy, **wrong)
    with pytest.raises(TypeError, match="project"):
        fit(noisy, method="naive", project="yes")
    with pytest.raises(ValueError, match="ridge"):
        fit_nonprivate(np.array([3, 4]), {"a": 2}, [("a",)], ridge=-1)


@pytest.mark.parametrize(
    ("method", "given", "words"),
    [
        ("naive", {"prior_sd": 9.0}, ["'naive'", "'prior_sd'", "'penalised' would", "ridge:", "project:"]),
        ("naive", {"steps": 7}, ["'naive'", "'steps'", "'cgm' would"]),
        ("naive", {"gap": 0.1}, ["'naive'", "'gap'", "'cgm' would"]),
        ("cgm", {"prior_sd": 1.0}, ["'cgm'", "'prior_sd'", "ridge:", "steps:", "gap:"]),
        ("cgm", {"project": True}, ["'cgm'", "'project'", "'naive' would"]),
        ("penalised", {"ridge": None}, ["'penalised'", "'ridge'", "prior_sd: a number greater than 0"]),
        ("cgm", {"stepps": 3}, ["'cgm'", "'stepps'.", "steps: a whole number"]),
        ("penalised", {"burn_in": None}, ["'burn_in'", "prior_sd:"]),
    ],
)
def test_an_option_that_a_method_does_not_take_is_refused_with_those_it_takes_before_anything_is_read(
    method, given, words
):
    with pytest.raises(TypeError) as caught:
        fit("nothing is read", method=method, **given)
    assert all(word in str(caught.value) for word in words)


def test_options_that_a_method_takes_do_change_its_fit():
    _, records = world(GRAPHS["ring"])
    noisy = release(records, DOMAIN, GRAPHS["ring"], epsilon=0.1, rng=np.random.default_rng(1))
    for method, options in (
        ("cgm", {"ridge": 9.0}),
        ("cgm", {"steps": 9}),
        ("naive", {"ridge": 9.0}),
        ("naive", {"project": False}),
        ("penalised", {"prior_sd": 0.2}),
    ):
        assert fit(noisy, method=method, iterations=60).kl(fit(noisy, method=method, iterations=60, **options)) > 1e-6
    assert fit(noisy, gap=1e-6).report.gap < fit(noisy, gap=1.0).report.gap


def test_penalised_asks_for_exact_inference_and_the_others_do_without():
    noisy = release(np.ones((2, 2, 2), dtype=int) * 9, dict.fromkeys("abc", 2), [("a", "b"), ("b", "c"), ("c", "a")],
                    epsilon=1.0, rng=np.random.default_rng(0))  # fmt: skip
    with pytest.raises(ValueError, match="exact inference"):
        fit(noisy, method="penalised", inference="loopy")
    for method in ("naive", "cgm"):
        model = fit(noisy, method=method, inference="loopy", ridge=1.0)
        assert model.inference == "loopy"
        assert model.beliefs.converged


def test_a_fitted_field_does_not_depend_on_the_order_of_the_cliques():
    _, records = world(GRAPHS["ring"], n=500)
    exact = clique_tables(records, DOMAIN, GRAPHS["ring"]).tables
    models = []
    for order in ([0, 1, 2, 3], [2, 0, 3, 1]):
        cliques = [GRAPHS["ring"][i] for i in order]
        made = release(records, DOMAIN, cliques, epsilon=1.0, rng=np.random.default_rng(1))
        same = Release(
            values={",".join(c): exact[i] + 3.0 * (-1) ** np.indices(exact[i].shape).sum(axis=0) for i, c in
                    zip(order, cliques, strict=True)},
            model=made.model, mechanism=made.mechanism, scale=made.scale, sensitivity=made.sensitivity,
            epsilon=1.0, n=500, settings=made.settings, float_safe=False,
        )  # fmt: skip
        models.append(fit(same, tolerance=1e-9, gap=1e-6))
    assert models[0].kl(models[1]) < 1e-6


def test_the_noise_aware_ridge_grows_with_the_noise_and_shrinks_with_n():
    values = {}
    for n, epsilon in ((100, 1.0), (1000, 1.0), (1000, 0.1)):
        noisy = release(np.array([n // 2, n // 2]), {"a": 2}, [("a",)], epsilon=epsilon, rng=np.random.default_rng(0))
        values[n, epsilon] = noise_aware_ridge(tables_of(noisy))
    assert values[1000, 0.1] > values[100, 1.0] > values[1000, 1.0] > 0.5
    assert values[1000, 0.1] == pytest.approx(0.5 + 2 * 20**2 * 2 / 1000)


def test_the_default_cgm_beats_the_untuned_naive_fit_and_comes_near_the_best_ridge():
    """Chains of four variables, 4 populations: on average better than ridge 1e-4 and within 15 % of the best ridge.

    In one release the two may tie, where no noisy cell comes near zero: then cgm is behind by at most 0.001 nats.
    """
    domain, cliques = dict.fromkeys("abcd", 4), chain("abcd")
    for n, epsilon in ((1000, 0.5), (10_000, 1.0)):
        found = {}
        for seed in range(4):
            rng = np.random.default_rng([seed, n])
            truth, _ = world(cliques, n=1, seed=seed, spread=1.2, domain=domain)
            joint = truth.marginal(tuple("abcd"))
            counts = rng.multinomial(n, joint.ravel()).reshape(joint.shape)
            noisy = release(counts, domain, cliques, epsilon=epsilon, rng=rng)
            for ridge in (1e-4, 1.0, 10.0, 100.0):
                model = fit(noisy, method="naive", ridge=ridge, iterations=60)
                found.setdefault(ridge, []).append(truth.kl(model))
            for method in ("cgm", "penalised"):
                found.setdefault(method, []).append(truth.kl(fit(noisy, method=method)))
        best = min(np.mean(found[ridge]) for ridge in (1.0, 10.0, 100.0))
        assert np.mean(found["cgm"]) < np.mean(found[1e-4])
        assert (np.array(found["cgm"]) <= np.array(found[1e-4]) + 1e-3).all()
        assert np.mean(found["cgm"]) < 1.15 * best
        assert np.mean(found["penalised"]) < 1.25 * best


def test_the_optimiser_reports_when_it_ran_out_of_iterations():
    _, records = world(GRAPHS["tree"], n=300)
    noisy = release(records, DOMAIN, GRAPHS["tree"], epsilon=0.5, rng=np.random.default_rng(2))
    assert not fit(noisy, method="naive", iterations=2).report.converged
    best = maximum_likelihood(tables_of(noisy), projected(tables_of(noisy)), 1.0, tolerance=1e-8, iterations=500)
    assert best.converged
    assert best.slope <= 1e-8
