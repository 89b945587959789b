"""Inference in fields: brute-force enumeration, derivatives, samples, divergences, and loopy propagation."""

import itertools

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from dpbook.graphical import MarkovRandomField, chain
from dpbook.graphical.junction import JunctionTree

GRAPHS = {
    "single node": ({"a": 3}, [("a",)]),
    "no clique for b": ({"a": 3, "b": 2}, [("a",)]),
    "one edge": ({"a": 3, "b": 2}, [("b", "a")]),
    "tree": ({"a": 2, "b": 3, "c": 2, "d": 4}, [("a", "b"), ("b", "c"), ("d", "b")]),
    "star with its centre": ({"a": 2, "b": 3, "c": 2}, [("a",), ("b", "a"), ("a", "c")]),
    "triangle": ({"a": 2, "b": 3, "c": 2}, [("a", "b"), ("b", "c"), ("c", "a")]),
    "ring of five": (dict(zip("abcde", (2, 3, 2, 2, 3), strict=True)), [*itertools.pairwise("abcde"), ("e", "a")]),
    "triple cliques": (dict.fromkeys("abcd", 2) | {"b": 3}, [("c", "a", "b"), ("b", "d", "c")]),
    "disconnected": ({"a": 2, "b": 3, "c": 2, "d": 2, "e": 2}, [("a", "b"), ("d", "c")]),
    "complete": (dict(zip("abcd", (2, 3, 2, 2), strict=True)), list(itertools.combinations("abcd", 2))),
    "tied chain": (dict.fromkeys("abcd", 3), chain("abcd", tied=True)),
}


def random_field(name, seed=0, spread=2.0):
    domain, cliques = GRAPHS[name]
    rng = np.random.default_rng(seed)
    shapes = [tuple(domain[v] for v in (c[0] if isinstance(c, list) else c)) for c in cliques]
    return MarkovRandomField(domain, cliques, [spread * rng.normal(size=shape) for shape in shapes])


def enumerated(field):
    """Return all records and their probabilities, by adding up the potentials of each record one by one."""
    states = list(itertools.product(*(range(size) for size in field.domain.sizes)))
    weights = []
    for state in states:
        value = dict(zip(field.domain.names, state, strict=True))
        total = 0.0
        for table, group in zip(field.potentials, field.groups, strict=True):
            total += sum(table[tuple(value[v] for v in member)] for member in group)
        weights.append(total)
    weights = np.array(weights)
    log_z = np.log(np.exp(weights - weights.max()).sum()) + weights.max()
    return pd.DataFrame(states, columns=field.domain.names), np.exp(weights - log_z), log_z


def marginal_of(frame, p, field, clique):
    table = np.zeros(field.domain.shape(clique))
    np.add.at(table, tuple(frame[v].to_numpy() for v in clique), p)
    return table


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("seed", [0, 1])
def test_exact_inference_equals_enumeration(name, seed):
    field = random_field(name, seed)
    frame, p, log_z = enumerated(field)
    assert field.inference == "exact"
    assert field.log_partition == pytest.approx(log_z, abs=1e-10)
    assert np.allclose(np.exp(field.log_prob(frame)), p, atol=1e-12)
    assert field.entropy() == pytest.approx(-float((p * np.log(p)).sum()), abs=1e-10)
    names = field.domain.names
    for size in (1, 2, 3):
        for clique in itertools.permutations(names, min(size, len(names))):
            assert np.allclose(field.marginal(clique), marginal_of(frame, p, field, clique), atol=1e-12)


@pytest.mark.parametrize("name", ["tree", "ring of five", "disconnected", "complete"])
def test_extreme_potentials_neither_overflow_nor_underflow(name):
    field = random_field(name, 3, spread=400.0)
    frame, p, log_z = enumerated(field)
    assert field.log_partition == pytest.approx(log_z, rel=1e-12)
    for clique in field.cliques:
        assert np.allclose(field.marginal(clique), marginal_of(frame, p, field, clique), atol=1e-10)


def test_random_graphs_of_six_nodes_agree_with_enumeration():
    rng = np.random.default_rng(8)
    for _ in range(25):
        sizes = dict(zip("abcdef", rng.integers(2, 4, 6).tolist(), strict=True))
        cliques = [c for k in (2, 3) for c in itertools.combinations("abcdef", k) if rng.random() < 0.25 / k] or [
            ("a",)
        ]
        field = MarkovRandomField(sizes, cliques, [rng.normal(size=[sizes[v] for v in c]) for c in cliques])
        frame, p, log_z = enumerated(field)
        assert field.log_partition == pytest.approx(log_z, abs=1e-10)
        for clique in cliques:
            assert np.allclose(field.marginal(clique), marginal_of(frame, p, field, clique), atol=1e-12)


@pytest.mark.parametrize("name", ["tree", "ring of five", "triple cliques", "tied chain", "disconnected"])
def test_the_gradient_of_the_log_partition_is_the_marginals(name):
    """Central differences with a step of 1e-5: errors of order 1e-10."""
    field = random_field(name, 4)
    for position, group in enumerate(field.groups):
        mean = sum(field.marginal(member) for member in group)
        for cell in np.ndindex(field.potentials[position].shape):
            values = []
            for step in (1e-5, -1e-5):
                moved = [table.copy() for table in field.potentials]
                moved[position][cell] += step
                values.append(field.with_potentials(moved).log_partition)
            assert (values[0] - values[1]) / 2e-5 == pytest.approx(mean[cell], abs=1e-8)


@pytest.mark.parametrize("name", ["tree", "ring of five", "triple cliques", "disconnected"])
def test_the_tangent_is_the_derivative_of_the_marginals_and_symmetric(name):
    field = random_field(name, 5)
    rng = np.random.default_rng(6)
    tree = field.engine
    tables = [table[None] for table in field.potentials]
    one, two = ([rng.normal(size=t.shape) for t in tables] for _ in range(2))
    beliefs = tree.infer(tables)
    found = tree.tangent(beliefs, one)
    step = 1e-5
    up, down = (tree.infer([t + s * d for t, d in zip(tables, one, strict=True)]) for s in (step, -step))
    for got, a, b in zip(found, up.marginals, down.marginals, strict=True):
        assert np.allclose(got, (a - b) / (2 * step), atol=1e-8)
    other = tree.tangent(beliefs, two)
    left = sum(float((a * b).sum()) for a, b in zip(found, two, strict=True))
    right = sum(float((a * b).sum()) for a, b in zip(other, one, strict=True))
    assert left == pytest.approx(right, abs=1e-10)


def test_a_batch_of_models_gives_what_each_gives_alone():
    sizes, cliques = (2, 3, 2), [(0, 1), (1, 2), (2, 0)]
    tree, rng = JunctionTree(sizes, cliques), np.random.default_rng(1)
    tables = [rng.normal(size=(5, *(sizes[v] for v in c))) for c in cliques]
    together = tree.infer(tables)
    for i in range(5):
        alone = tree.infer([t[i : i + 1] for t in tables])
        assert together.log_partition[i] == pytest.approx(alone.log_partition[0])
        for a, b in zip(together.marginals, alone.marginals, strict=True):
            assert np.allclose(a[i], b[0])


@pytest.mark.parametrize("name", ["tree", "ring of five", "triple cliques", "disconnected", "tied chain"])
def test_samples_follow_the_joint_law(name):
    """A chi-squared test over all records with expected counts of 5 or more, false alarm 1e-4 a graph."""
    field = random_field(name, 7, spread=1.0)
    _, p, _ = enumerated(field)
    drawn = field.sample(20_000, np.random.default_rng(2))
    cells = np.ravel_multi_index(tuple(drawn[v] for v in field.domain.names), field.domain.sizes)
    counts = np.bincount(cells, minlength=len(p))
    large = 20_000 * p >= 5
    observed = np.append(counts[large], counts[~large].sum())
    expected = 20_000 * np.append(p[large], p[~large].sum())
    keep = expected > 0
    assert stats.chisquare(observed[keep], expected[keep] * observed[keep].sum() / expected[keep].sum()).pvalue > 1e-4


def test_samples_carry_labels_and_an_empty_sample_is_empty():
    field = MarkovRandomField({"a": ["no", "yes"], "b": 2}, [("a", "b")], [np.array([[0.0, 1.0], [2.0, 0.0]])])
    drawn = field.sample(50, np.random.default_rng(0))
    assert set(drawn["a"]) <= {"no", "yes"}
    assert np.isfinite(field.log_prob(drawn)).all()
    assert len(field.sample(0, np.random.default_rng(0))) == 0


def test_the_divergence_equals_enumeration_also_between_different_graphs():
    rng = np.random.default_rng(9)
    domain = dict(zip("abcd", (2, 3, 2, 2), strict=True))
    graphs = [[*itertools.pairwise("abcd")], [("a", "c"), ("b", "d")], [("a", "b", "c"), ("d",)], [("d", "a")]]
    fields = [MarkovRandomField(domain, g, [rng.normal(size=[domain[v] for v in c]) for c in g]) for g in graphs]
    for one, other in itertools.product(fields, fields):
        frame, p, _ = enumerated(one)
        q = np.exp(other.log_prob(frame))
        assert one.kl(other) == pytest.approx(float((p * np.log(p / q)).sum()), abs=1e-10)


def test_the_divergence_does_not_mind_the_order_of_the_variables():
    rng = np.random.default_rng(2)
    one = MarkovRandomField({"a": 2, "b": 3}, [("a", "b")], [rng.normal(size=(2, 3))])
    other = MarkovRandomField({"b": 3, "a": 2}, [("b", "a")], [one.potentials[0].T])
    assert one.kl(other) == pytest.approx(0, abs=1e-12)
    with pytest.raises(ValueError, match="same variables"):
        one.kl(MarkovRandomField({"a": 2}, [("a",)], [np.zeros(2)]))


# Loopy belief propagation


@pytest.mark.parametrize("name", ["single node", "tree", "star with its centre", "disconnected", "no clique for b"])
def test_loopy_propagation_is_exact_on_trees(name):
    exact = random_field(name, 1)
    loopy = MarkovRandomField(exact.domain, GRAPHS[name][1], exact.potentials, inference="loopy")
    assert loopy.inference == "loopy"
    assert loopy.beliefs.converged
    assert loopy.log_partition == pytest.approx(exact.log_partition, abs=1e-6)
    for clique in exact.cliques:
        assert np.allclose(loopy.marginal(clique), exact.marginal(clique), atol=1e-7)


@pytest.mark.parametrize("name", ["triangle", "ring of five", "complete"])
def test_loopy_marginals_lie_in_the_local_polytope_and_near_the_exact_ones_for_weak_potentials(name):
    exact = random_field(name, 1, spread=0.3)
    loopy = MarkovRandomField(exact.domain, GRAPHS[name][1], exact.potentials, inference="loopy")
    assert loopy.beliefs.converged
    assert loopy.beliefs.iterations < 500
    for clique in exact.cliques:
        table = loopy.marginal(clique)
        assert table.sum() == pytest.approx(1)
        for axis, v in enumerate(clique):
            other = tuple(a for a in range(len(clique)) if a != axis)
            assert np.allclose(table.sum(axis=other), loopy.marginal(v), atol=1e-7)
        assert np.allclose(table, exact.marginal(clique), atol=0.02)


def test_loopy_propagation_reports_when_it_did_not_settle():
    exact = random_field("ring of five", 1)
    field = MarkovRandomField(exact.domain, GRAPHS["ring of five"][1], exact.potentials, inference="loopy")
    field.engine.iterations = 3
    assert not field.beliefs.converged
    assert field.beliefs.residual > 0


def test_gibbs_samples_of_a_loopy_field_agree_with_exact_marginals():
    """Each cell within five standard errors of 4,000 independent chains."""
    exact = random_field("ring of five", 1, spread=0.5)
    loopy = MarkovRandomField(exact.domain, GRAPHS["ring of five"][1], exact.potentials, inference="loopy")
    drawn = loopy.sample(4000, np.random.default_rng(3))
    for clique in exact.cliques:
        p = exact.marginal(clique)
        share = np.zeros_like(p)
        np.add.at(share, tuple(drawn[v] for v in clique), 1 / 4000)
        assert (np.abs(share - p) < 5 * np.sqrt(p * (1 - p) / 4000)).all()


def test_a_graph_too_entangled_is_refused_with_the_size_of_its_table_or_goes_to_loopy_propagation():
    domain = {f"x{i}": 10 for i in range(12)}
    cliques = list(itertools.combinations(domain, 2))
    zeros = [np.zeros((10, 10))] * len(cliques)
    with pytest.raises(ValueError, match=r"1,000,000,000,000 entries \(12 variables"):
        MarkovRandomField(domain, cliques, zeros, inference="exact")
    assert MarkovRandomField(domain, cliques, zeros).inference == "loopy"
    with pytest.raises(ValueError, match="within a clique"):
        MarkovRandomField(domain, cliques, zeros).marginal(("x0", "x1", "x2"))


def test_a_marginal_too_large_for_a_table_is_refused_with_its_size():
    domain = {f"x{i}": 10 for i in range(8)}
    field = MarkovRandomField(domain, chain(list(domain)), [np.zeros((10, 10))] * 7)
    with pytest.raises(ValueError, match="100,000,000 entries"):
        field.marginal(tuple(domain))


@pytest.mark.parametrize(
    ("clique", "error", "message"),
    [
        ("q", ValueError, r"^clique must name variables .*'q'"),
        ((), ValueError, "^clique must name at least one"),
        (("a", "a"), ValueError, "^clique must name each variable once"),
        (("a", 3), TypeError, "^clique must be"),
        (3, TypeError, "^clique must be"),
        (None, TypeError, "^clique must be"),
    ],
)
@pytest.mark.parametrize("inference", ["exact", "loopy"])
def test_a_wrong_clique_of_a_marginal_is_named(clique, error, message, inference):
    field = MarkovRandomField({"a": 2, "b": 2}, [("a", "b")], [np.zeros((2, 2))], inference=inference)
    with pytest.raises(error, match=message):
        field.marginal(clique)


@pytest.mark.parametrize("inference", ["exact", "loopy"])
def test_what_a_field_hands_out_or_was_given_can_be_changed_without_changing_the_field(inference):
    given = [np.zeros((2, 2)), np.zeros((2, 2))]
    field = MarkovRandomField(dict.fromkeys("abc", 2), [("a", "b"), ("b", "c")], given, inference=inference)
    given[0][0, 0] = 9.0
    for clique in ("a", ("a", "b"), ("b", "a")):
        field.marginal(clique)[...] = 7.0
        assert np.allclose(field.marginal(clique), 0.5 ** (1 if clique == "a" else 2))
    assert field.log_partition == pytest.approx(np.log(8))


WRONG = [
    ({"potentials": [np.zeros(2)]}, ValueError, "shape"),
    ({"potentials": []}, ValueError, "a table for each"),
    ({"potentials": [np.full((2, 2), np.nan)]}, ValueError, "finite"),
    ({"potentials": {"q": np.zeros((2, 2))}}, ValueError, "names of the cliques"),
    ({"inference": "exactly"}, ValueError, "inference"),
    ({"cliques": [("a", "z")]}, ValueError, "'z'"),
    ({"limit": 0}, ValueError, "limit"),
    ({"limit": "large"}, TypeError, "limit"),
]


@pytest.mark.parametrize(("change", "error", "message"), WRONG, ids=str)
def test_a_wrong_argument_of_a_field_is_named(change, error, message):
    arguments = {"domain": {"a": 2, "b": 2}, "cliques": [("a", "b")], "potentials": [np.zeros((2, 2))], **change}
    with pytest.raises(error, match=message):
        MarkovRandomField(**arguments)


def test_log_prob_names_missing_columns_and_states_outside_the_domain():
    field = random_field("one edge")
    with pytest.raises(ValueError, match="'b'"):
        field.log_prob(pd.DataFrame({"a": [0]}))
    with pytest.raises(ValueError, match="'a'"):
        field.log_prob(pd.DataFrame({"a": [9], "b": [0]}))
    with pytest.raises(TypeError, match="DataFrame"):
        field.log_prob([[0, 1]])
    for bad in (-1, 0.5, np.nan, np.inf):
        with pytest.raises(ValueError, match="'a'"):
            field.log_prob(pd.DataFrame({"a": [bad], "b": [0]}))
    with pytest.raises(TypeError, match="'a'"):
        field.log_prob(pd.DataFrame({"a": ["0"], "b": [0]}))
    with pytest.raises(ValueError, match="one column 'a'"):
        field.log_prob(pd.DataFrame([[0, 0, 0]], columns=["a", "b", "a"]))
    assert field.log_prob(pd.DataFrame({"a": [], "b": []})).shape == (0,)


def test_wrong_arguments_of_a_sample_and_of_a_divergence_are_named():
    field = random_field("one edge")
    for n, error in ((-1, ValueError), (2.0, TypeError), (True, TypeError)):
        with pytest.raises(error, match="n must be"):
            field.sample(n, np.random.default_rng(0))
    with pytest.raises(TypeError, match="rng"):
        field.sample(2, 5)
    with pytest.raises(TypeError, match="other"):
        field.kl("field")
