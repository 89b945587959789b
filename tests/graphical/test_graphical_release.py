"""Releases of clique tables: exact tables in any form, the stated noise and privacy, clear errors, the budget first."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from dpbook import BudgetExceeded, PrivacyBudget, Release, graphical
from dpbook.audit import epsilon_lower_bound
from dpbook.graphical import chain, clique_tables, counting, preview, release
from dpbook.graphical.domain import checked_groups
from dpbook.sensitivity import histogram

DOMAIN = {"a": 2, "b": ["x", "y", "z"], "c": 2}
CLIQUES = [("a", "b"), ("c", "b"), ("a",)]


def people(n, seed=0):
    rng = np.random.default_rng(seed)
    letters = np.array(["x", "y", "z"])[rng.integers(0, 3, n)]
    return pd.DataFrame({"a": rng.integers(0, 2, n), "b": letters, "c": rng.integers(0, 2, n)})


def by_pandas(frame, clique):
    labels = [range(states) if isinstance(states, int) else states for states in (DOMAIN[name] for name in clique)]
    index = pd.MultiIndex.from_product(labels)
    counts = frame.value_counts(list(clique))
    return counts.reindex(index, fill_value=0).to_numpy().reshape([len(each) for each in labels])


# Exact tables


def test_tables_are_the_cross_tabulations_in_the_order_of_the_clique():
    frame = people(200)
    exact = clique_tables(frame, DOMAIN, CLIQUES)
    assert exact.n == 200
    assert exact.unit == 1.0
    for clique, table in zip(CLIQUES, exact.tables, strict=True):
        expected = by_pandas(frame, clique) if len(clique) > 1 else frame["a"].value_counts().sort_index().to_numpy()
        assert np.array_equal(table, expected)


def test_rows_chunks_weighted_rows_arrow_and_a_table_of_counts_give_the_same_release():
    frame = people(500)
    grouped = frame.value_counts().reset_index(name="times")
    full = np.zeros((2, 3, 2), dtype=int)
    codes = frame.assign(b=frame["b"].map({"x": 0, "y": 1, "z": 2}))
    np.add.at(full, tuple(codes[["a", "b", "c"]].to_numpy().T), 1)
    shuffled = frame.sample(frac=1, random_state=1)
    forms = [
        (frame, {}),
        (shuffled, {}),
        (iter([frame[:100], frame[100:]]), {}),
        (grouped, {"counts": "times"}),
        (full, {}),
    ]
    made = [release(r, DOMAIN, CLIQUES, epsilon=1.0, rng=np.random.default_rng(3), **kw) for r, kw in forms]
    assert all(each == made[0] for each in made)


def test_a_dask_table_gives_the_same_release():
    dask = pytest.importorskip("dask.dataframe")
    frame = people(50)[["a", "c"]]
    args = ({"a": 2, "c": 2}, [("a", "c")])
    one = release(frame, *args, epsilon=1.0, rng=np.random.default_rng(3))
    assert release(dask.from_pandas(frame, npartitions=3), *args, epsilon=1.0, rng=np.random.default_rng(3)) == one


def test_tied_cliques_share_a_table_to_which_each_record_gives_weight_one():
    trips = pd.DataFrame({"s": [0, 1, 2], "t": [1, 1, 0], "u": [2, 1, 0]})
    exact = clique_tables(trips, dict.fromkeys("stu", 3), chain("stu", tied=True))
    expected = np.zeros((3, 3))
    for row in trips.to_numpy():
        expected[row[0], row[1]] += 0.5
        expected[row[1], row[2]] += 0.5
    assert np.allclose(exact.tables[1] * exact.unit, expected, atol=1e-8)
    assert np.array_equal(exact.tables[0] * exact.unit, [1, 1, 1])


def test_segments_of_one_person_weigh_one_together_and_null_ones_nothing():
    """Person p has three segments, one of them null in both variables; q is null throughout; r has one."""
    rows = pd.DataFrame(
        {"who": list("pppqr"), "s": ["-", "h", "h", "-", "w"], "t": ["-", "w", "-", "-", "w"]},
    )
    states = ["-", "h", "w"]
    exact = clique_tables(rows, {"s": states, "t": states}, [("s", "t")], person="who", null="-")
    expected = np.zeros((3, 3))
    expected[1, 2] = expected[1, 0] = 0.5
    expected[2, 2] = 1.0
    assert exact.n == 3
    assert np.allclose(exact.tables[0] * exact.unit, expected, atol=1e-8)


def test_no_record_weighs_more_than_one_in_a_table_of_units_however_many_segments_it_has():
    for k in (1, 2, 3, 7, 24, 1000):
        rows = pd.DataFrame({"who": [0] * k, "s": np.arange(k) % 3, "t": np.arange(k) % 2})
        exact = clique_tables(rows, {"s": 3, "t": 2}, [("s", "t")], person="who")
        assert 1 - 1e-6 < exact.tables[0].sum() * exact.unit <= 1


# Privacy


def test_the_scale_is_two_for_each_table_over_epsilon():
    made = release(people(30), DOMAIN, CLIQUES, epsilon=0.5, rng=np.random.default_rng(0))
    assert set(made.scale.values()) == {histogram(tables=3) / 0.5} == {12.0}
    assert made.neighbours == "replace-one"
    assert made.n == 30


def test_the_noise_is_laplace_of_that_scale_on_every_cell():
    """Kolmogorov–Smirnov on 6,000 noises, false alarm 1e-4."""
    frame, rng = people(20), np.random.default_rng(5)
    exact = np.concatenate([t.ravel() for t in clique_tables(frame, DOMAIN, CLIQUES).tables])
    made = [release(frame, DOMAIN, CLIQUES, epsilon=1.0, rng=rng) for _ in range(430)]
    noise = np.concatenate([np.concatenate([v.ravel() for v in each.values.values()]) - exact for each in made])
    assert stats.kstest(noise, stats.laplace(scale=6.0).cdf).pvalue > 1e-4


def worst_pair(tables):
    """Two data sets whose one different record moves two cells of every table."""
    one = pd.DataFrame({"a": [0, 0], "b": [0, 0], "c": [0, 0]})
    other = pd.DataFrame({"a": [0, 1], "b": [0, 1], "c": [0, 1]})
    return one, other, [("a", "b"), ("b", "c"), ("a", "c")][:tables], dict.fromkeys("abc", 2)


def exact_of(data, domain, cliques):
    return np.concatenate([t.ravel() for t in clique_tables(data, domain, cliques).tables])


def log_ratio(noisy, exact):
    """Return the log likelihood ratio of Laplace noise between two data sets, up to its scale."""
    return np.abs(noisy - exact[1]).sum(axis=-1) - np.abs(noisy - exact[0]).sum(axis=-1)


def many_releases(tables, share=1.0):
    """Return releases at epsilon = 1 in batches, reduced to likelihood ratios: exact tables plus noise of the scale
    that a release states (the test above checks that its noise has that law), times a share.
    """
    one, other, cliques, domain = worst_pair(tables)
    exact = [exact_of(x, domain, cliques) for x in (one, other)]
    assert np.abs(exact[0] - exact[1]).sum() == histogram(tables=tables)

    def scored(data, rng, size):
        scale = next(iter(release(data, domain, cliques, epsilon=1.0, rng=rng).scale.values()))
        center = exact_of(data, domain, cliques)
        return log_ratio(center + rng.laplace(scale=share * scale, size=(size, center.size)), exact)

    return scored, one, other


@pytest.mark.parametrize("tables", [1, 2, 3])
def test_an_audit_does_not_refute_epsilon(tables):
    """A right release is refuted with probability at most 1e-3; the audit must also see half of epsilon."""
    scored, one, other = many_releases(tables)
    found = epsilon_lower_bound(scored, one, other, trials=60_000, batched=True, rng=np.random.default_rng(1))
    assert 0.5 < found <= 1.0


@pytest.mark.parametrize("tables", [1, 2, 3])
def test_an_audit_catches_the_printed_sensitivity_of_one_a_table(tables):
    """Noise for a sensitivity of |C| is half of what is needed; a right release is refuted with probability 1e-3."""
    scored, one, other = many_releases(tables, share=0.5)
    found = epsilon_lower_bound(scored, one, other, trials=60_000, batched=True, rng=np.random.default_rng(3))
    assert found > 1.2


@pytest.mark.parametrize("real", [False, True])
def test_an_audit_of_release_by_release_does_not_refute_epsilon_either(real):
    """With seeded and with real noise, at epsilon = 2; the real one has no seed, so its confidence is 1 - 1e-6."""
    one, other, cliques, domain = worst_pair(1)
    exact = [exact_of(x, domain, cliques) for x in (one, other)]

    def scored(data, rng):
        made = release(data, domain, cliques, epsilon=2.0, rng=None if real else rng)
        return float(log_ratio(made["a,b"].ravel(), exact))

    confidence = 1 - 1e-6 if real else 0.999
    found = epsilon_lower_bound(scored, one, other, trials=800, confidence=confidence, rng=np.random.default_rng(2))
    assert 0.4 < found <= 2.0


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("epsilon", [0.1, 1.0])
def test_real_noise_has_the_stated_scale_on_counts_and_on_weights(weighted, epsilon):
    """Mean sizes of 2,400 noises within six standard errors: a right release fails with probability 2e-9.

    Noise on whole counts is two-sided geometric, of ratio r = exp(-1/scale) and mean size 2r/(1 - r²).
    """
    names = list("abc") if weighted else list("ab")
    domain, cliques = dict.fromkeys(names, 40), [[("a", "b"), ("b", "c")] if weighted else ("a", "b"), ("a",), ("b",)]
    frame = pd.DataFrame({name: np.arange(90) % 7 for name in names})
    exact = clique_tables(frame, domain, cliques)
    assert exact.unit == (2.0**-32 if weighted else 1.0)
    made = release(frame, domain, cliques, epsilon=epsilon)
    assert made.float_safe
    assert list(made.scale.values()) == pytest.approx([6 / epsilon] * 3, rel=1e-6)
    values = np.concatenate([table.ravel() for table in made.values.values()])
    noise = np.abs(values - exact.unit * np.concatenate([table.ravel() for table in exact.tables]))
    ratio = np.exp(-epsilon / 6)
    expected = 6 / epsilon if weighted else 2 * ratio / (1 - ratio**2)
    assert abs(noise.mean() - expected) < 6 * noise.std() / np.sqrt(noise.size)
    assert noise.std() / np.sqrt(noise.size) < 0.03 * expected


def test_an_audit_catches_segments_that_are_not_normalised():
    """A person of three segments, each counted whole, moves a table by six, not two."""
    states = {"s": 2, "t": 2}
    one = pd.DataFrame({"s": [0, 0, 0, 0], "t": [0, 0, 0, 0]})
    other = pd.DataFrame({"s": [0, 1, 1, 1], "t": [0, 1, 1, 1]})

    def scored(data, rng):
        noisy = release(data, states, [("s", "t")], epsilon=1.0, rng=rng)["s,t"].ravel()
        return float(log_ratio(noisy, exact))

    exact = [exact_of(x, states, [("s", "t")]) for x in (one, other)]
    assert epsilon_lower_bound(scored, one, other, trials=500, rng=np.random.default_rng(4)) > 1.0


def test_a_real_release_is_float_safe_and_of_whole_counts():
    made = release(people(40), DOMAIN, CLIQUES, epsilon=1.0)
    assert made.float_safe
    assert all((table == np.rint(table)).all() for table in made.values.values())
    weighted = release(people(40)[["a", "c"]], {"a": 2, "c": 2}, [[("a",), ("c",)]], epsilon=1.0)
    assert weighted.float_safe


def test_a_release_survives_json():
    made = release(people(40), DOMAIN, CLIQUES, epsilon=1.0, rng=np.random.default_rng(0))
    back = Release.from_json(made.to_json())
    assert back == made
    assert graphical.fit(back).marginal(("a", "b")) == pytest.approx(graphical.fit(made).marginal(("a", "b")))


def test_a_release_charges_the_budget_once_and_refuses_to_overspend():
    budget = PrivacyBudget(1.0)
    release(people(10), DOMAIN, CLIQUES, epsilon=0.75, rng=np.random.default_rng(0), budget=budget)
    assert budget.remaining == 0.25
    rng = np.random.default_rng(0)
    before = rng.bit_generator.state
    with pytest.raises(BudgetExceeded):
        release(people(10), DOMAIN, CLIQUES, epsilon=0.5, rng=rng, budget=budget)
    assert rng.bit_generator.state == before  # nothing was drawn
    assert len(budget.ledger) == 1


# Wrong arguments

WRONG = [
    ({"domain": {**DOMAIN, "a": 1}}, ValueError, r"domain\['a'\] must have two states"),
    ({"domain": {**DOMAIN, "b": ["x", "x", "z"]}}, ValueError, "different labels"),
    ({"domain": {}}, TypeError, "domain"),
    ({"domain": {**DOMAIN, "a": 2.5}}, TypeError, r"domain\['a'\]"),
    ({"cliques": []}, ValueError, "cliques must hold at least one"),
    ({"cliques": [()]}, ValueError, r"cliques\[0\].*empty"),
    ({"cliques": [("a", "b"), ("b", "a")]}, ValueError, "occurs twice"),
    ({"cliques": [("a", "q")]}, ValueError, "'q'"),
    ({"cliques": [("a", "a")]}, ValueError, "each variable once"),
    ({"cliques": ["a"]}, TypeError, r"cliques\[0\]"),
    ({"cliques": "ab"}, TypeError, "cliques"),
    ({"cliques": [[("a", "b"), ("a", "c")]]}, ValueError, "same numbers of states"),
    ({"epsilon": 0.0}, ValueError, "epsilon"),
    ({"epsilon": np.nan}, ValueError, "epsilon"),
    ({"rng": 3}, TypeError, "rng"),
    ({"data": people(5).assign(a=7)}, ValueError, "'a'"),
    ({"data": people(5).assign(a=0.5)}, ValueError, "'a'"),
    ({"data": people(5).assign(b="q")}, ValueError, "'b'"),
    ({"data": people(5).assign(b=None)}, ValueError, "'b'"),
    ({"data": people(5).drop(columns="b")}, ValueError, "'b'"),
    ({"data": people(0)}, ValueError, "at least one record"),
    ({"data": -np.ones((2, 3, 2))}, ValueError, "negative"),
    ({"data": np.full((2, 3, 2), 0.5)}, ValueError, "whole counts"),
    ({"data": np.ones((2, 3))}, ValueError, "shape"),
    ({"data": 3}, TypeError, "data"),
    ({"data": people(5).assign(k=-1), "counts": "k"}, ValueError, "negative"),
    ({"counts": "k"}, ValueError, "'k'"),
    ({"counts": "a"}, ValueError, "counts"),
    ({"person": "k", "counts": "j"}, ValueError, "counts and person"),
    ({"data": iter([people(5)]), "person": "k"}, TypeError, "person"),
    ({"null": "nowhere"}, ValueError, "null"),
    ({"domain": {**DOMAIN, "a": {0, 1}}}, TypeError, r"domain\['a'\] must be .* a sequence of labels"),
    ({"domain": {**DOMAIN, "a": [0.0, np.inf]}}, TypeError, r"domain\['a'\].*finite"),
    ({"domain": {**DOMAIN, "a": [0, None]}}, TypeError, r"domain\['a'\]"),
    ({"cliques": None}, TypeError, "cliques"),
    ({"cliques": [("a", 1)]}, TypeError, r"cliques\[0\]"),
    ({"cliques": [[("a",), ()]]}, ValueError, r"cliques\[0\].*empty"),
    ({"epsilon": "1"}, TypeError, "epsilon"),
    ({"epsilon": np.inf}, ValueError, "epsilon"),
    ({"budget": 5}, TypeError, "budget"),
    ({"data": people(5).assign(a=np.nan)}, ValueError, "'a'"),
    ({"data": people(5).assign(a=np.inf)}, ValueError, "'a'"),
    ({"data": people(5).assign(a=-1)}, ValueError, "'a'"),
    ({"data": people(5).assign(a="0")}, TypeError, "'a'"),
    ({"data": pd.concat([people(5), people(5)[["a"]]], axis=1)}, ValueError, "one column 'a'"),
    ({"data": iter([])}, ValueError, "at least one record"),
    ({"data": iter([people(5), 3])}, TypeError, "data"),
    ({"data": [people(5)]}, TypeError, "data"),
    ({"data": np.full((2, 3, 2), np.nan)}, ValueError, "data"),
    ({"data": np.full((2, 3, 2), 2.0**62)}, ValueError, "data must number at most"),
    ({"data": np.full((2, 3, 2), 1e300)}, ValueError, "data must number at most"),
    ({"data": people(5).assign(k=[9e18, 9e18, 1, 1, 1]), "counts": "k"}, ValueError, "data must number at most"),
    ({"data": people(5).assign(k=np.nan), "counts": "k"}, ValueError, "counts"),
    ({"data": people(5).assign(k="many"), "counts": "k"}, TypeError, "counts"),
    ({"data": people(5).assign(k=0), "counts": "k"}, ValueError, "at least one record"),
    ({"data": people(5).assign(k=[1, 1, None, 2, 2]), "person": "k"}, ValueError, "'k' has a missing value"),
    ({"person": 3}, TypeError, "person"),
    ({"null": -1}, ValueError, "null"),
]


@pytest.mark.parametrize(("change", "error", "message"), WRONG)
def test_a_wrong_argument_is_named_before_anything_is_spent(change, error, message):
    budget = PrivacyBudget(1.0)
    arguments = {"data": people(5), "domain": DOMAIN, "cliques": CLIQUES, "epsilon": 1.0, **change}
    with pytest.raises(error, match=message):
        release(**{"rng": np.random.default_rng(0), "budget": budget, **arguments})
    assert budget.remaining == 1.0


def test_a_domain_made_by_hand_is_checked_as_one_from_a_mapping():
    with pytest.raises(ValueError, match=r"domain\['a'\] must have two states"):
        graphical.Domain(("a",), (1,), (None,))
    with pytest.raises(ValueError, match="a label for each"):
        graphical.Domain(("a",), (2,), (("x",),))
    with pytest.raises(ValueError, match="names must hold"):
        graphical.Domain(("a", "a"), (2, 2), (None, None))
    with pytest.raises(ValueError, match="sizes and labels"):
        graphical.Domain(("a", "b"), (2,), (None,))


def test_cliques_may_come_from_a_generator():
    lists, lazily = (
        release(people(9), DOMAIN, cliques, epsilon=1.0, rng=np.random.default_rng(0))
        for cliques in (CLIQUES, (clique for clique in CLIQUES))
    )
    assert lazily == lists
    model = graphical.fit_nonprivate(people(9), DOMAIN, (clique for clique in CLIQUES))
    assert model.cliques == CLIQUES


@pytest.mark.parametrize("kind", ["Int64", "category", "int64[pyarrow]"])
def test_codes_may_be_of_any_integer_type_that_pandas_has(kind):
    if "pyarrow" in kind:
        pytest.importorskip("pyarrow")
    frame = people(30)[["a", "c"]]
    exact, typed = (clique_tables(x, {"a": 2, "c": 2}, [("a", "c")]) for x in (frame, frame.astype(kind)))
    assert np.array_equal(typed.tables[0], exact.tables[0])


@pytest.mark.parametrize("epsilon", [1e-6, 1e6])
@pytest.mark.parametrize("real", [False, True])
def test_huge_and_tiny_epsilons_make_a_release_of_even_one_record(epsilon, real):
    made = release(people(1), DOMAIN, CLIQUES, epsilon=epsilon, rng=None if real else np.random.default_rng(0))
    assert made.scale["a"] == pytest.approx(6 / epsilon)
    assert Release.from_json(made.to_json()) == made
    if epsilon > 1:
        assert np.allclose(made["a"], clique_tables(people(1), DOMAIN, CLIQUES).tables[2], atol=1e-3)


# What has no order, what is hidden, what is not a table


@pytest.mark.parametrize(
    "cliques",
    [
        [{"a", "b"}],
        [frozenset({"a", "b"})],
        [{"a": 1, "b": 2}.keys()],
        [{"a": 1, "b": 2}],
        {("a", "b"), ("c", "b")},
        frozenset([("a", "b")]),
        {("a", "b"): 1}.keys(),
        {("a", "b"): 1},
        [{("a",), ("c",)}],
        [[{"a"}, ("c",)]],
    ],
)
def test_cliques_without_an_order_of_their_own_are_refused(cliques):
    """The order of a set of strings follows the interpreter's hash seed, and the axes of the table would with it."""
    budget = PrivacyBudget(1.0)
    with pytest.raises(TypeError, match=r"^cliques.* must have an order"):
        release(people(9), DOMAIN, cliques, epsilon=1.0, rng=np.random.default_rng(0), budget=budget)
    with pytest.raises(TypeError, match="must have an order"):
        preview(DOMAIN, cliques, n=9, epsilon=1.0)
    with pytest.raises(TypeError, match="must have an order"):
        graphical.release_dpsgd(people(9), DOMAIN, cliques, epsilon=1.0, rng=np.random.default_rng(0), budget=budget)
    assert budget.ledger == ()


def test_names_and_marginals_without_an_order_are_refused_too():
    with pytest.raises(TypeError, match="names must have an order"):
        chain({"a", "b", "c"})
    assert chain(DOMAIN) == chain(list(DOMAIN))
    model = graphical.fit_nonprivate(people(50), DOMAIN, [("a", "b")])
    for clique in ({"a", "b"}, {"a": 0, "b": 0}.keys()):
        with pytest.raises(TypeError, match="clique must have an order"):
            model.marginal(clique)


def a_polars_frame():
    return type("DataFrame", (), {"__module__": "polars.dataframe.frame"})()


def odd_forms():
    dask_array, dask_frame = pytest.importorskip("dask.array"), pytest.importorskip("dask.dataframe")
    dask, arrow = pytest.importorskip("dask"), pytest.importorskip("pyarrow")
    lazy = dask_frame.from_pandas(people(9), npartitions=2)
    return {
        "is a polars DataFrame, which is not read: pass its to_pandas": a_polars_frame(),
        "Array of dask; call its to_dask_dataframe": dask_array.from_array(np.ones((2, 3, 2), dtype=int)),
        "Series of dask": lazy["a"],
        "Index of dask": lazy.index,
        "Delayed of dask": dask.delayed(people)(9),
        "Int64Array of pyarrow": arrow.array([0, 1]),
        "ChunkedArray of pyarrow": arrow.chunked_array([[0, 1]]),
        "Series of pandas": people(9)["a"],
        "dict of builtins": {"a": [0]},
        "is an iterator of texts": iter(["a"]),
    }


@pytest.mark.parametrize("take", [release, graphical.release_dpsgd], ids=["tables", "gradients"])
def test_what_is_no_table_is_refused_by_name(take):
    budget = PrivacyBudget(1.0, 0.5)
    for name, form in odd_forms().items():
        with pytest.raises(TypeError, match=rf"got {name}|data {name}"):
            take(form, DOMAIN, CLIQUES, epsilon=1.0, rng=np.random.default_rng(0), budget=budget)
    assert budget.ledger == ()


def test_arrow_tables_batches_and_readers_are_taken():
    arrow = pytest.importorskip("pyarrow")
    frame = people(200)
    table = arrow.Table.from_pandas(frame)
    plain = release(frame, DOMAIN, CLIQUES, epsilon=1.0, rng=np.random.default_rng(3))
    for form in (
        table,
        table.to_batches()[0],
        iter(table.to_batches(max_chunksize=7)),
        table.to_reader(max_chunksize=9),
    ):
        assert release(form, DOMAIN, CLIQUES, epsilon=1.0, rng=np.random.default_rng(3)) == plain


def test_a_dask_table_keeps_each_record_s_states_and_count_together_whatever_its_index():
    """Indexes that repeat, run backwards or are unknown, empty partitions, persisted or not: rows stay rows."""
    dask_frame = pytest.importorskip("dask.dataframe")
    frame = people(60).assign(times=np.arange(60) % 4)
    parts = [frame[:20].reset_index(drop=True), frame[20:20], frame[20:50][::-1], frame[50:].set_index(np.zeros(10))]
    lazy = dask_frame.from_map(lambda i: parts[i], range(4), meta=frame[:0])
    plain = clique_tables(frame, DOMAIN, CLIQUES, counts="times")
    for form in (lazy, lazy.persist(), lazy.repartition(npartitions=2), lazy.clear_divisions()):
        found = clique_tables(form, DOMAIN, CLIQUES, counts="times")
        assert found.n == plain.n
        assert all(np.array_equal(one, other) for one, other in zip(found.tables, plain.tables, strict=True))


HIDDEN = np.ma.masked_equal(np.arange(12).reshape(2, 3, 2), 7)


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (HIDDEN, ValueError),
        ([list(rows) for rows in HIDDEN], ValueError),
        (np.where(HIDDEN.mask, None, HIDDEN.data), ValueError),
        (np.where(HIDDEN.mask, "7", HIDDEN.data.astype(object)), TypeError),
        (HIDDEN.data.astype(str), TypeError),
        (np.where(HIDDEN.mask, np.nan, HIDDEN.data), ValueError),
        (np.where(HIDDEN.mask, 2**63, HIDDEN.data.astype(object)), ValueError),
        (np.where(HIDDEN.mask, 10**400, HIDDEN.data.astype(object)), ValueError),
        (people(9).assign(a=np.ma.masked_equal(np.arange(9) % 2, 0)), ValueError),
        (people(9).assign(a=[0, np.ma.masked, 1] * 3), ValueError),
        (people(9).assign(a=[0, None, 1] * 3), ValueError),
        (people(9).assign(a=pd.array([0, None, 1] * 3, dtype="Int64")), ValueError),
        (people(9).assign(a=["0", 1, 1] * 3), TypeError),
        (people(9).assign(a=[0, 2**63, 1] * 3), ValueError),
        (people(9).assign(a=[0, 10**400, 1] * 3), ValueError),
        (people(9).assign(a=[0, np.inf, 1] * 3), ValueError),
        (people(9).assign(a=[0, 2, 1] * 3), ValueError),
        (people(9).assign(a=[0, 0.5, 1] * 3), ValueError),
        (people(9).assign(a=pd.to_datetime(["2020"] * 9)), TypeError),
        (people(9).assign(b=["x", None, "y"] * 3), ValueError),
        (people(9).assign(b=["x", ["y"], "y"] * 3), ValueError),
        (people(9).assign(b=["x", "Y", "y"] * 3), ValueError),
    ],
)
@pytest.mark.parametrize("take", [release, graphical.release_dpsgd], ids=["tables", "gradients"])
def test_missing_hidden_or_foreign_values_raise_and_cost_nothing(take, data, error):
    budget = PrivacyBudget(1.0, 0.5)
    with pytest.raises(error, match="data"):
        take(data, DOMAIN, CLIQUES, epsilon=1.0, rng=np.random.default_rng(0), budget=budget)
    assert budget.ledger == ()


def test_a_domain_reads_no_hidden_code():
    domain = graphical.Domain.of(DOMAIN)
    for column, name in ((np.ma.masked_equal([0, 1], 1), "a"), (np.ma.masked_equal(["x", "y"], "y"), "b")):
        with pytest.raises(ValueError, match=name):
            domain.codes(name, column)


@pytest.mark.parametrize("seeded", [True, False])
@pytest.mark.parametrize("cliques", [CLIQUES, [[("a",), ("c",)]]], ids=["counts", "weights"])
def test_noise_beyond_64_bits_is_refused_before_the_charge_and_before_anything_is_read(cliques, seeded):
    budget = PrivacyBudget(1e200)
    step = 1.0 if len(cliques) > 1 else 2.0**32
    least = 2 * len(cliques) * step / 2.0**53
    rng = np.random.default_rng(0) if seeded else None
    for epsilon in (5e-324, 1e-308, 1e-300, 1e-100, 0.99 * least, 1.01e100):
        with pytest.raises(ValueError, match="epsilon must lie between"):
            release("nothing is read", DOMAIN, cliques, epsilon=epsilon, budget=budget, rng=rng)
    assert budget.ledger == ()
    for epsilon in (least, 1e100):
        assert release(people(9), DOMAIN, cliques, epsilon=epsilon, budget=budget, rng=rng).epsilon == epsilon


def test_a_column_of_counts_has_no_place_beside_an_array_of_them():
    with pytest.raises(ValueError, match="counts names a column"):
        clique_tables(np.ones((2, 3, 2), dtype=int), DOMAIN, CLIQUES, counts="times")


def test_a_preview_tells_the_scale_of_the_release_and_refuses_what_the_release_refuses():
    look = preview(DOMAIN, CLIQUES, n=100, epsilon=0.5)
    assert (
        look.noise_scale == release(people(100), DOMAIN, CLIQUES, epsilon=0.5, rng=np.random.default_rng(0)).scale["a"]
    )
    assert look.notes["cells"] == 6 + 6 + 2
    assert list(look.summary().index) == ["a,b", "c,b", "a"]
    for table, even_n in enumerate(look.break_even_n):
        even = preview(DOMAIN, CLIQUES, n=round(even_n), epsilon=0.5)
        assert even.noise_sd[table] == pytest.approx(even.sampling_sd[table], rel=0.01)
        assert even.posterior_sd[table] == pytest.approx(np.sqrt(2) * even.nonprivate_sd[table], rel=0.01)
    assert look.notes["relative_error"] == pytest.approx(look.noise_sd[0] / (100 / 6))
    with pytest.raises(ValueError, match="n must be"):
        preview(DOMAIN, CLIQUES, n=0, epsilon=1.0)


def test_a_dask_table_is_reduced_where_it_is_and_few_tables_travel():
    dask = pytest.importorskip("dask.dataframe")
    frame = people(200)
    domain = graphical.Domain.of(DOMAIN)
    groups, layout = checked_groups(CLIQUES, domain), counting.layout_of(domain, None, None, None)
    lazy = dask.from_pandas(frame, npartitions=20)
    parts = counting._on_workers(lazy, domain, groups, layout)
    assert len(parts) <= counting._AT_ONCE
    whole, summed = counting._tables_of(frame, domain, groups, layout), counting._added(parts)
    assert whole.n == summed.n == len(frame)
    for one, other in zip(whole.tables, summed.tables, strict=True):
        np.testing.assert_array_equal(one, other)
