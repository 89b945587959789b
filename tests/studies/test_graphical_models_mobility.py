"""The mobility study: the generator walks as taxis do, people weigh one, and the committed tables can be repeated."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from loading import BOOK, load_study

from dpbook import graphical, studies
from dpbook.datasets import load_chicago_taxi

study = load_study("graphical-models", "study_mobility")
RESULTS = BOOK / "graphical-models" / "results"
AT_HOME, CLIQUES, DOMAIN, STOPS = study.AT_HOME, study.CLIQUES, study.DOMAIN, study.STOPS


def load(name):
    return studies.load(RESULTS / f"{name}.csv")


def rng_of(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_the_chain_has_the_shares_of_the_real_table():
    chain, trips = study.taxi_chain(), load_chicago_taxi()
    from_loop = trips[trips["pickup_area"] == 32].set_index("dropoff_area")["trips"]
    assert chain.steps[31, 7] == pytest.approx(from_loop[8] / from_loop.sum())
    assert chain.start[31] == pytest.approx(from_loop.sum() / trips["trips"].sum())
    np.testing.assert_allclose(chain.steps.sum(axis=1), 1)


def test_simulated_steps_have_the_shares_of_the_chain():
    """Steps from the Loop to six areas, about 20,000 of them: 4.5 standard errors each; false alarm about 4e-5."""
    days = study.days_out(study.itineraries(20_000, rng=rng_of(1)))
    pairs = np.concatenate([days[[a, b]].to_numpy() for a, b in itertools.pairwise(STOPS)])
    ahead = pairs[pairs[:, 0] == 32, 1]
    chain = study.taxi_chain().steps[31]
    for area in (8, 28, 32, 33, 6, 76):
        share = chain[area - 1]
        assert abs((ahead == area).mean() - share) < 4.5 * np.sqrt(share * (1 - share) / len(ahead))


def test_days_at_home_are_null_and_the_others_have_six_stops():
    people = study.itineraries(2000, days=4, travel=0.5, rng=rng_of(2))
    home = (people[list(STOPS)] == AT_HOME).sum(axis=1)
    assert set(home) == {0, 6}
    assert abs((home == 6).mean() - 0.5) < 0.03  # 8,000 days: five standard errors
    assert (people.groupby("person").size() == 4).all()


def test_each_traveller_weighs_one_in_both_tables():
    people = study.itineraries(300, rng=rng_of(3))
    exact = graphical.clique_tables(people, DOMAIN, CLIQUES, person="person", null=AT_HOME)
    travellers = study.days_out(people)["person"].nunique()
    assert travellers < exact.n == 300
    for table in exact.tables:
        assert float(table.sum() * exact.unit) == pytest.approx(travellers, abs=1e-4)
    assert exact.tables[1][AT_HOME].sum() == 0


def test_a_split_keeps_the_days_of_a_person_together():
    learn, test = study.hold_out(study.itineraries(200, rng=rng_of(4)), rng_of(5))
    assert not set(learn["person"]) & set(test["person"])
    assert test["person"].nunique() == 50


def test_the_truth_is_the_generator():
    days = study.days_out(study.itineraries(50, rng=rng_of(6)))
    chain, codes = study.taxi_chain(), days[list(STOPS)].to_numpy() - 1
    exact = np.log(chain.start[codes[:, 0]]) + np.log(chain.steps[codes[:, :-1], codes[:, 1:]]).sum(axis=1)
    np.testing.assert_allclose(study.truth().log_prob(days[list(STOPS)]), exact, atol=1e-3)


def test_methods_learn_something_and_private_ones_less():
    people, tested = study.hold_out(study.itineraries(1500, rng=rng_of(7)), rng_of(8))
    found = {
        m: study.log_likelihood(study.learn(m, people, 3.0, rng_of(9)), tested)
        for m in ("non-private", "cgm", "random")
    }
    assert found["random"] < found["cgm"] < found["non-private"]


def test_the_committed_holdout_is_repeated_by_the_code():
    table = load("mobility_holdout")
    again = study.STUDIES["mobility_holdout"](cells=[("cgm", 3.0)], trials=1)
    row = table.query("method == 'cgm' and epsilon == 3.0 and trial == 0")
    assert row["log_likelihood"].iloc[0] == pytest.approx(again["log_likelihood"].item(), abs=0.01)


def test_the_committed_holdout_orders_the_methods():
    mean = load("mobility_holdout").groupby(["method", "epsilon"])["log_likelihood"].mean()
    assert mean["truth"].iloc[0] > mean["non-private"].iloc[0]
    for method in ("cgm", "penalised", "dp-sgd"):
        assert mean[method].is_monotonic_increasing
        assert (mean[method] > mean["naive"]).all()
        assert mean[method, 10.0] < mean["non-private"].iloc[0]
    assert (mean["naive, best ridge"] > mean["naive"]).all()


def test_the_committed_flows_are_shares():
    flows = load("mobility_flows").drop(columns=["from", "to"])
    assert (flows >= 0).all().all()
    assert (flows.sum() < 1).all()
    assert np.corrcoef(flows["true"], flows["cgm 1"])[0, 1] > 0.99
