"""Collective graphical models: the E-step against a generic solver, EM against the L1 projection, Stirling's count."""

import itertools

import numpy as np
import pandas as pd
import pytest
from scipy import optimize, special

from dpbook.graphical import (
    MarkovRandomField,
    NoisyTables,
    clique_tables,
    expectation,
    fit,
    log_multiplicity,
    nlbp,
    objective,
    release,
    tables_of,
)
from dpbook.graphical.junction import JunctionTree
from dpbook.graphical.loopy import LoopyGraph

TREES = {
    "edge": ({"a": 2, "b": 3}, [("a", "b")]),
    "path": ({"a": 2, "b": 2, "c": 3}, [("a", "b"), ("b", "c")]),
    "star": ({"a": 2, "b": 2, "c": 2, "d": 2}, [("a", "b"), ("a", "c"), ("a", "d")]),
    "triples": ({"a": 2, "b": 2, "c": 2, "d": 2}, [("a", "b", "c"), ("b", "c", "d")]),
}


def world(name, n=60, epsilon=0.5, seed=0):
    domain, cliques = TREES[name]
    rng = np.random.default_rng(seed)
    truth = MarkovRandomField(domain, cliques, [rng.normal(size=[domain[v] for v in c]) for c in cliques])
    noisy = release(truth.sample(n, rng), domain, cliques, epsilon=epsilon, rng=rng)
    theta = np.concatenate([table.ravel() for table in truth.potentials])
    return tables_of(noisy), theta, noisy


def vertices(problem):
    """Return the tables of every single record: the corners of the marginal polytope, one a column."""
    domain = problem.domain
    states = list(itertools.product(*(range(k) for k in domain.sizes)))
    frame = pd.DataFrame(states, columns=list(domain.names))
    cliques = [list(group) for group in problem.groups]
    corners = []
    for i in range(len(frame)):
        exact = clique_tables(frame[i : i + 1], domain, cliques)
        corners.append(np.concatenate([t.ravel() * exact.unit for t in exact.tables]))
    return np.array(corners).T


def by_generic_solver(problem, theta):
    """Maximise θᵀn + H − |y − n|/b over laws p of all records (H = entropy of p), the residual split in two parts.

    For given tables the largest entropy is the field's, so that the maximum over p is that over tables.
    """
    corners, n, y, b = vertices(problem), problem.n, problem.counts, problem.scales
    cells, laws = corners.shape

    def loss(x):
        p, up, down = x[:laws], x[laws : laws + cells], x[laws + cells :]
        value = -n * (theta * problem.copies) @ (corners @ p) - n * special.entr(p).sum() + ((up + down) / b).sum()
        slope = -n * corners.T @ (theta * problem.copies) + n * (np.log(np.maximum(p, 1e-300)) + 1)
        return value, np.concatenate([slope, 1 / b, 1 / b])

    rest = y - n * corners @ np.full(laws, 1 / laws)
    start = np.concatenate([np.full(laws, 1 / laws), np.maximum(rest, 0) + 1, np.maximum(-rest, 0) + 1])
    tables = np.hstack([n * corners, np.eye(cells), -np.eye(cells)])
    limits = [
        {"type": "eq", "fun": lambda x: tables @ x - y, "jac": lambda x: tables},
        {"type": "eq", "fun": lambda x: x[:laws].sum() - 1, "jac": lambda x: np.r_[np.ones(laws), np.zeros(2 * cells)]},
    ]
    bounds = [(1e-12, 1)] * laws + [(0, None)] * (2 * cells)
    found = optimize.minimize(
        loss,
        start,
        jac=True,
        method="SLSQP",
        bounds=bounds,
        constraints=limits,
        options={"maxiter": 1000, "ftol": 1e-12},
    )
    return -found.fun, corners @ found.x[:laws]


@pytest.mark.parametrize("name", TREES)
@pytest.mark.parametrize("epsilon", [0.2, 2.0])
def test_the_e_step_equals_a_generic_convex_solver(name, epsilon):
    problem, theta, _ = world(name, epsilon=epsilon)
    found = expectation(problem, theta, tolerance=1e-8)
    value, means = by_generic_solver(problem, theta)
    mine = objective(problem, theta, found.means)
    assert found.gap < 1e-6
    assert mine == pytest.approx(value, abs=1e-3)
    assert mine > value - 1e-4
    assert np.allclose(found.means, means, atol=5e-3)


@pytest.mark.parametrize("name", TREES)
def test_the_duality_gap_is_the_distance_to_the_optimum_or_more(name):
    problem, theta, _ = world(name, epsilon=1.0)
    best = objective(problem, theta, expectation(problem, theta, tolerance=1e-9).means)
    rough = expectation(problem, theta, tolerance=5.0)
    assert -1e-7 < best - objective(problem, theta, rough.means) <= rough.gap + 1e-7


@pytest.mark.parametrize("name", TREES)
def test_inferred_tables_are_marginals_and_multipliers_stay_in_the_box(name):
    problem, theta, _ = world(name)
    found = expectation(problem, theta)
    assert (np.abs(found.multipliers) <= 1 / problem.scales + 1e-12).all()
    inside = problem.infer(theta + found.multipliers).means
    assert np.allclose(found.means, inside, atol=1e-12)
    held = optimize.linprog(
        np.zeros(vertices(problem).shape[1]),
        A_eq=np.vstack([vertices(problem), np.ones(vertices(problem).shape[1])]),
        b_eq=np.append(found.means, 1.0),
    )
    assert held.status == 0


@pytest.mark.parametrize("name", TREES)
def test_printed_propagation_with_decreasing_steps_or_averaged_slopes_reaches_the_e_step(name):
    problem, theta, _ = world(name, epsilon=1.0)
    best = objective(problem, theta, expectation(problem, theta, tolerance=1e-9).means)
    for rule in ("decreasing", "averaged"):
        passed = nlbp(problem, theta, rule=rule, iterations=1500)
        assert best - passed.history[-1] < 0.05
        assert max(passed.history) <= best + 1e-7


def test_a_fixed_damping_never_settles():
    """It keeps jumping across the kink: far from the optimum at damping 1, nearer but not there at 0.1."""
    problem, theta, _ = world("path", epsilon=1.0)
    best = objective(problem, theta, expectation(problem, theta, tolerance=1e-9).means)
    late = {
        d: best - np.array(nlbp(problem, theta, rule="printed", damping=d, iterations=400).history[-50:])
        for d in (1.0, 0.1)
    }
    settled = best - nlbp(problem, theta, iterations=400).history[-1]
    assert late[1.0].min() > 10 * settled
    assert late[0.1].mean() > 3 * settled
    assert late[1.0].mean() > late[0.1].mean()


def l1_projection(problem):
    """Return the least L1 distance, in units of the noise, from the noisy tables to the marginal polytope: an LP."""
    corners = problem.n * vertices(problem)
    cells, laws = corners.shape
    cost = np.concatenate([np.zeros(laws), 1 / problem.scales, 1 / problem.scales])
    equal = np.vstack([np.hstack([corners, np.eye(cells), -np.eye(cells)]), np.r_[np.ones(laws), np.zeros(2 * cells)]])
    return optimize.linprog(cost, A_eq=equal, b_eq=np.append(problem.counts, 1.0)).fun


@pytest.mark.parametrize("name", TREES)
def test_em_run_on_ends_at_the_l1_projection_of_the_noisy_tables(name):
    problem, _, noisy = world(name, n=200, epsilon=1.0, seed=3)
    model = fit(noisy, method="cgm", steps=400, gap=1e-3)
    least = l1_projection(problem)
    found = -np.array(model.report.history)
    assert found[-1] == pytest.approx(least, rel=0.01, abs=0.05)
    assert (found >= least - 1e-6).all()
    assert (np.diff(found) <= 1e-2).all()  # every step comes nearer, up to the tolerance of an E-step


def test_the_m_step_is_free():
    """The tables of an E-step are the field's own at θ + λ, so that this is the maximum of θᵀn − N A(θ)."""
    problem, theta, _ = world("path")
    found = expectation(problem, theta, tolerance=1e-9)

    def loss(x):
        there = problem.infer(x)
        return there.log_partition - x @ found.means, there.means - found.means

    sought = optimize.minimize(loss, np.zeros_like(theta), jac=True, method="L-BFGS-B", tol=1e-14)
    assert problem.infer(sought.x).means == pytest.approx(problem.infer(theta + found.multipliers).means, abs=1e-5)


def test_one_step_moves_no_log_potential_by_more_than_one_over_the_scale():
    _, _, noisy = world("star", epsilon=0.5)
    scale = noisy.scale["a,b"]
    tables = [fit(noisy, steps=k).potentials for k in range(4)]
    for before, after in itertools.pairwise(tables):
        assert max(np.abs(a - b).max() for a, b in zip(before, after, strict=True)) <= 1 / scale + 1e-9


def test_the_stopping_rule_is_explicit_and_reported():
    _, _, noisy = world("star", epsilon=0.5)
    report = fit(noisy).report
    assert report.iterations == max(1, round(noisy.scale["a,b"] / 4))
    assert report.iterations + 1 == len(report.history)  # the start is counted in
    assert f"{report.iterations} steps of EM" in report.stopped
    assert "ridge" in report.stopped
    assert report.gap <= 1e-3 * 12
    assert fit(noisy, gap=1e-4).report.gap <= 1e-4 * 12
    assert fit(noisy, steps=0).report.iterations == 0


def test_cgm_works_on_a_graph_with_loops_by_junction_tree_and_by_loopy_propagation():
    domain, cliques = dict.fromkeys("abcd", 3), [("a", "b"), ("b", "c"), ("c", "d"), ("d", "a")]
    rng = np.random.default_rng(1)
    truth = MarkovRandomField(domain, cliques, [0.7 * rng.normal(size=(3, 3)) for _ in cliques])
    noisy = release(truth.sample(3000, rng), domain, cliques, epsilon=2.0, rng=rng)
    exact, loopy = fit(noisy), fit(noisy, inference="loopy", tolerance=1e-4)
    assert truth.kl(exact) < 0.1
    for clique in cliques:
        assert np.allclose(exact.marginal(clique), loopy.marginal(clique), atol=0.03)


# Proposition 4


@pytest.mark.parametrize("name", ["edge", "path", "star"])
def test_the_count_of_data_sets_with_given_tables_is_exact(name):
    """Every data set of four records is counted; their tables' multiplicities must agree, each of them."""
    domain, cliques = TREES[name]
    if name == "edge":
        domain = {"a": 2, "b": 2}
    if name == "path":
        domain = dict.fromkeys("abc", 2)
    n = 4 if name != "star" else 2
    states = list(itertools.product(*(range(k) for k in domain.values())))
    frame = pd.DataFrame(states, columns=list(domain))
    single = []
    for i in range(len(frame)):
        tables = clique_tables(frame[i : i + 1], domain, cliques).tables
        single.append(np.concatenate([t.ravel() for t in tables]))
    counted = {}
    for data in itertools.product(range(len(states)), repeat=n):
        key = tuple(np.sum([single[i] for i in data], axis=0).tolist())
        counted[key] = counted.get(key, 0) + 1
    sizes = [int(np.prod([domain[v] for v in c])) for c in cliques]
    for key, count in counted.items():
        parts = np.split(np.array(key), np.cumsum(sizes)[:-1])
        tables = [p.reshape([domain[v] for v in c]) for p, c in zip(parts, cliques, strict=True)]
        exact, _ = log_multiplicity(domain, cliques, tables)
        assert exact == pytest.approx(np.log(count), abs=1e-9)


def test_stirlings_formula_is_the_entropy_and_its_error_fades_beside_it():
    """Proposition 4: the log count over n tends to the entropy of the field with these marginals, as log n / n."""
    domain, cliques = TREES["path"]
    rng = np.random.default_rng(2)
    truth = MarkovRandomField(domain, cliques, [rng.normal(size=[domain[v] for v in c]) for c in cliques])
    errors = []
    for n in (100, 10_000, 1_000_000):
        exact = clique_tables(truth.sample(n, rng), domain, cliques)
        count, stirling = log_multiplicity(domain, cliques, exact.tables)
        assert count <= stirling
        errors.append((stirling - count) / n)
    assert errors[0] > 30 * errors[1] > 900 * errors[2]
    assert stirling / 1_000_000 == pytest.approx(truth.entropy(), rel=0.01)


def test_the_count_needs_the_cliques_of_a_junction_tree():
    ring = [("a", "b"), ("b", "c"), ("c", "d"), ("d", "a")]
    with pytest.raises(ValueError, match="junction tree"):
        log_multiplicity(dict.fromkeys("abcd", 2), ring, [np.ones((2, 2))] * 4)
    problem, theta, _ = world("path")
    with pytest.raises(ValueError, match="rule"):
        nlbp(problem, theta, rule="fast")
    with pytest.raises(ValueError, match="damping"):
        nlbp(problem, theta, rule="printed", damping=0.0)
    with pytest.raises(TypeError, match=r"'decreasing' does not take 'damping' \('printed' would\)"):
        nlbp(problem, theta, damping=0.3)


def test_vectors_and_tables_of_another_length_are_refused():
    problem, theta, _ = world("path")
    for wrong in (theta[:-1], np.append(theta, 0.0)):
        for ask in (expectation, nlbp, lambda p, t: objective(p, t, theta), lambda p, t: objective(p, theta, t)):
            with pytest.raises(ValueError, match=f"one entry for each of {theta.size} cells, got {wrong.size}"):
                ask(problem, wrong)
        with pytest.raises(ValueError, match="start must have"):
            expectation(problem, theta, start=wrong)
    for wrong in ({"tolerance": 0.0}, {"iterations": 0}, {"reach": -1.0}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            expectation(problem, theta, **wrong)
    tables = problem.split(theta)
    for engine in (JunctionTree((2, 2), [(0, 1), (1,)]), LoopyGraph((2, 2), [(0, 1), (1,)])):
        for wrong in ([np.zeros((1, 2, 2))], [np.zeros((1, 2, 2)), np.zeros((1, 2)), np.zeros((1, 2))]):
            with pytest.raises(ValueError, match="one for each of 2 cliques"):
                engine.infer(wrong)
    with pytest.raises(ValueError, match="tables and scales must have one entry"):
        NoisyTables.of(problem.domain, problem.groups, tables[:-1], [1.0] * len(tables), 5)
    with pytest.raises(ValueError, match="tables must have shape"):
        NoisyTables.of(problem.domain, problem.groups, [t.ravel() for t in tables], [1.0] * len(tables), 5)
