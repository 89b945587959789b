"""The studies of hidden states: the data are what they should be, and the committed tables say what the book says."""

from __future__ import annotations

import numpy as np
import pytest
from loading import BOOK, load_study

from dpbook import Posterior, studies
from dpbook.datasets import load_iraq_sigacts

study = load_study("graphical-models", "study_hidden_states")
RESULTS = BOOK / "graphical-models" / "results"


def load(name):
    return studies.load(RESULTS / f"{name}.csv")


def test_the_table_holds_every_event_in_its_place():
    data, frame = study.events(), load_iraq_sigacts()
    row = frame[(frame["governorate"] == "Baghdad") & (frame["month"] == "2006-07-01")]
    found = data.counts[data.places.index("Baghdad"), data.months.index("2006-07")]
    np.testing.assert_array_equal(found, row[list(study.TYPES)].to_numpy()[0])
    assert data.counts.sum() == frame[list(study.TYPES)].to_numpy().sum()


def fake(emission, states):
    emission = np.asarray(emission, dtype=float)
    size = len(emission)
    return Posterior(
        {
            "emission": emission[None, None],
            "transition": np.full((1, 1, size, size), 1 / size),
            "initial": np.full((1, 1, size), 1 / size),
            "states": np.asarray(states, dtype=float)[None, None],
        }
    )


def test_comparison_ignores_the_names_of_states():
    counts = np.array([[[9, 1], [1, 9], [8, 2]]])
    one = fake([[0.9, 0.1], [0.1, 0.9]], [[0, 1, 0]])
    other = fake([[0.1, 0.9], [0.9, 0.1]], [[1, 0, 1]])
    fit = study.compare(other, one, counts)
    assert fit.distance == pytest.approx(0)
    assert fit.agreement == fit.agreement_of_events == 1
    wrong = study.compare(fake([[0.9, 0.1], [0.1, 0.9]], [[0, 1, 1]]), one, counts)
    assert wrong.agreement == pytest.approx(2 / 3)


def test_simulated_counts_have_the_activity_that_the_sampler_is_told():
    """The mean count of 600 months of activity 15 has a standard error below 0.5; six of them are allowed."""
    parameters = {
        "emission": np.full((20, 2, 3), 1 / 3),
        "transition": np.full((20, 2, 2), 0.5),
        "first": np.full((20, 2), 0.5),
    }
    world = study.simulate(parameters, np.random.default_rng(1), 1.0)
    assert abs(world.counts.sum(axis=-1).mean() - study.ACTIVITY[1]) < 3
    assert [each.n for each in world.releases] == world.counts.sum(axis=(1, 2, 3)).tolist()


def test_the_committed_private_chain_is_repeated_by_the_code():
    table = load("hmm_emissions").query("states == 2 and epsilon == 1.0 and method == 'exponential'")
    again = study.STUDIES["hmm_emissions"](cells=[(2, 1.0, "exponential")])
    np.testing.assert_allclose(table["mean"], again["mean"], rtol=1e-3)


def test_noise_is_nothing_where_the_calibration_reads_the_true_table():
    """A cell of the non-private posterior on few worlds: it asserts that the releases are the tables themselves."""
    found = study.calibration(np.inf, "non-private", trials=4, seed=1)
    assert len(found) == 11


def test_the_committed_calibration_passes_for_the_right_posteriors_and_fails_for_the_naive_one():
    table = load("hmm_calibration")
    smallest = table.groupby(["method", "epsilon"])["p"].min()
    assert smallest["non-private"].min() > 0.01
    assert smallest["noise-aware"].min() > 0.01
    assert smallest["naive"].max() < 1e-6


def test_the_committed_misfit_blames_the_model_not_the_sampler():
    """On events that the model made, noise-aware intervals hold; on Iraq's they do not."""
    table = load("hmm_misfit")
    mean = table.groupby(["events", "method", "epsilon"])[["distance", "held"]].mean()
    made, real = mean.loc["simulated"], mean.loc["Iraq"]
    assert made.loc["noise-aware", "held"].min() > 9
    assert real.loc["noise-aware", "held"].min() < 6
    noisy = [0.1, 0.3, 1.0]
    assert (made.loc["noise-aware", "distance"][noisy] < 0.5 * made.loc["naive", "distance"][noisy]).all()


def test_the_committed_utility_shows_what_each_look_at_the_data_costs():
    table = load("hmm_utility").query("states == 2")
    mean = table.groupby(["method", "epsilon"])["log_likelihood"].mean()
    best = mean["non-private"].iloc[0]
    assert mean["noise-aware", 0.1] > mean["naive", 0.1]
    assert mean["noise-aware", 1.0] > mean["exponential", 1.0]
    assert mean["naive", 10.0] > best - 0.01


def test_the_committed_paths_cover_every_place_and_month():
    table = load("hmm_paths")
    assert len(table) == 18 * 61
    probabilities = table.drop(columns=["place", "month", "events"]).to_numpy()
    assert probabilities.min() >= 0
    assert probabilities.max() <= 1
