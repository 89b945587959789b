"""Chains whose steps share one table: tied potentials, itineraries of different lengths, segments of one person."""

import itertools

import numpy as np
import pandas as pd
import pytest

from dpbook.graphical import MarkovRandomField, chain, fit, fit_nonprivate, release, tables_of

NAMES = ["s0", "s1", "s2", "s3"]
DOMAIN = dict.fromkeys(NAMES, 3)
TIED = chain(NAMES, tied=True)


def truth(seed=0, spread=1.0):
    rng = np.random.default_rng(seed)
    return MarkovRandomField(DOMAIN, TIED, [spread * rng.normal(size=3), spread * rng.normal(size=(3, 3))])


def test_the_cliques_of_a_chain():
    assert chain("abcd", order=2) == [("a", "b"), ("a", "c"), ("b", "c"), ("b", "d"), ("c", "d")]
    assert chain("abc", tied=True) == [("a",), [("a", "b"), ("b", "c")]]
    assert chain("abc", order=2, tied=True) == [("a",), [("a", "b"), ("b", "c")], [("a", "c")]]
    with pytest.raises(ValueError, match="names"):
        chain("a")
    with pytest.raises(ValueError, match="order"):
        chain("abc", order=0)


def test_a_tied_chain_is_the_untied_one_with_equal_tables():
    model = truth()
    first, step = model.potentials
    untied = MarkovRandomField(DOMAIN, [("s0",), *itertools.pairwise(NAMES)], [first, step, step, step])
    assert model.kl(untied) == pytest.approx(0, abs=1e-12)
    assert model.log_partition == pytest.approx(untied.log_partition, abs=1e-12)


def test_a_tied_fit_matches_the_first_state_and_the_average_of_the_steps():
    records = truth().sample(3000, np.random.default_rng(1))
    model = fit_nonprivate(records, DOMAIN, TIED, ridge=1e-6)
    average = np.mean([model.marginal(pair) for pair in itertools.pairwise(NAMES)], axis=0)
    observed = np.mean(
        [pd.crosstab(records[a], records[b]).to_numpy() / 3000 for a, b in itertools.pairwise(NAMES)], axis=0
    )
    assert np.allclose(average, observed, atol=1e-6)
    assert np.allclose(model.marginal("s0"), records["s0"].value_counts(normalize=True).sort_index(), atol=1e-6)


def test_a_tied_fit_is_the_maximum_of_the_likelihood_of_the_records():
    """No other potentials nearby give the records a larger log probability."""
    records = truth().sample(500, np.random.default_rng(2))
    model = fit_nonprivate(records, DOMAIN, TIED, ridge=1e-7)
    best = model.log_prob(records).sum()
    rng = np.random.default_rng(3)
    for _ in range(20):
        moved = [table + 0.05 * rng.normal(size=table.shape) for table in model.potentials]
        assert model.with_potentials(moved).log_prob(records).sum() < best


def test_a_tied_release_has_two_tables_and_so_less_noise_than_an_untied_one():
    records = truth().sample(100, np.random.default_rng(4))
    tied = release(records, DOMAIN, TIED, epsilon=1.0, rng=np.random.default_rng(5))
    untied = release(records, DOMAIN, [("s0",), *itertools.pairwise(NAMES)], epsilon=1.0, rng=np.random.default_rng(5))
    assert list(tied.values) == ["s0", "s0,s1 and 2 more"]
    assert set(tied.scale.values()) == {4.0}
    assert set(untied.scale.values()) == {8.0}


@pytest.mark.parametrize("method", ["naive", "cgm", "penalised"])
def test_every_method_learns_a_tied_chain_and_tying_helps(method):
    """Mean divergence over 3 releases: near the truth, and nearer than a fit without ties to as many records."""
    model, tied, untied = truth(), [], []
    for seed in range(3):
        rng = np.random.default_rng([seed, 7])
        records = model.sample(2000, rng)
        noisy = release(records, DOMAIN, TIED, epsilon=0.5, rng=rng)
        loose = release(records, DOMAIN, [("s0",), *itertools.pairwise(NAMES)], epsilon=0.5, rng=rng)
        options = {"ridge": 1.0} if method == "naive" else {}
        tied.append(model.kl(fit(noisy, method=method, **options)))
        untied.append(model.kl(fit(loose, method=method, **options)))
    assert np.mean(tied) < 0.05
    assert np.mean(tied) < np.mean(untied)


def test_totals_that_depend_on_the_data_are_estimated_from_the_noisy_cells():
    """Two thirds of the persons are null throughout: their number is not released, and the fit does not need it."""
    states = ["-", "h", "w"]
    domain = {"s": states, "t": states}
    rng = np.random.default_rng(6)
    seen = pd.DataFrame({"s": rng.choice(["h", "w"], 2000), "t": rng.choice(["h", "w"], 2000, p=[0.8, 0.2])})
    records = pd.concat([seen, pd.DataFrame({"s": ["-"] * 4000, "t": ["-"] * 4000})], ignore_index=True)
    noisy = release(records, domain, [("s", "t")], epsilon=1.0, null="-", rng=rng)
    assert noisy.n == 6000
    assert not noisy.settings["totals known"]
    assert noisy["s,t"].sum() == pytest.approx(2000, abs=60)
    problem = tables_of(noisy)
    assert problem.counts.sum() == pytest.approx(6000)
    assert problem.scales[0] == pytest.approx(2.0 * 6000 / noisy["s,t"].sum())
    open_fit = fit_nonprivate(records, domain, [("s", "t")], null="-")
    for method in ("naive", "cgm", "penalised"):
        learned = fit(noisy, method=method, **({"ridge": 0.1} if method == "naive" else {}))
        assert learned.marginal("t")[1:] == pytest.approx([0.8, 0.2], abs=0.05)
        assert learned.marginal(("s", "t")) == pytest.approx(open_fit.marginal(("s", "t")), abs=0.03)


def test_a_tied_fit_of_persons_with_several_segments_learns_the_common_step():
    """Persons of one to five segments, each weighing one; the shared transition table is learned from them all."""
    model = truth(spread=1.5)
    rng = np.random.default_rng(8)
    who = np.repeat(np.arange(1500), rng.integers(1, 6, 1500))
    segments = model.sample(len(who), rng).assign(who=who)
    noisy = release(segments, DOMAIN, TIED, epsilon=1.0, person="who", rng=rng)
    assert noisy.n == 1500
    assert model.kl(fit(noisy)) < 0.1
