"""Audits of every release at its worst neighbours, and of the source's noise, which an audit exposes.

An audit can refute, never prove. Each bound exceeds a true epsilon with probability at most 1e-3. Privacy holds for
every fixed split, so each data set is split, and its posteriors computed, once; everything after that is run anew.
"""

from __future__ import annotations

import numpy as np
import pytest

from dpbook.aggregate import Centred, ConjugateRegression, Flat, SparseVector, release_probability, release_quantile
from dpbook.aggregate import releases as module
from dpbook.audit import epsilon_lower_bound

MODEL = ConjugateRegression(prior=Flat())


def rng_of(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


@pytest.fixture(autouse=True)
def split_once(monkeypatch):
    """Let a release of data seen before start from the same split and the same answers of its partitions."""
    read, seen = module.Split.read.__func__, {}

    def remembered(data, posterior, question, partitions, *, schema, n, rng, halved):
        key = (data[0].tobytes(), len(data), question, partitions)
        if key not in seen:
            split = read(module.Split, data, posterior, question, partitions, schema=schema, n=n, rng=rng_of(5))
            seen[key] = Remembered(split)
        return seen[key]

    monkeypatch.setattr(module.Split, "read", remembered)


class Remembered:
    """A split that computes each answer once."""

    def __init__(self, split):
        self.partitions, self.n, self.public, self.halves = split.partitions, split.n, split.public, split.halves
        self.rehearse = split.rehearse
        self._split, self._answers = split, {}

    def answers(self, points):
        key = points.tobytes()
        if key not in self._answers:
            self._answers[key] = self._split.answers(points)
        return self._answers[key].copy()


def worst_pair(partitions, size=4):
    """A line of slope 2 in every partition, and one record that turns the slope of whichever holds it to -1."""
    x = np.arange(partitions * size, dtype=float)
    data = np.column_stack([x, 2 * x + 0.01 * np.sin(9 * x)])
    neighbour = data.copy()
    neighbour[0] = (1e9, -1e9)
    return data, neighbour


def normality(data, rng):
    return release_probability(data, 0.0, posterior=MODEL, partitions=2, epsilon=1.0, spread=0, rng=rng)["mean"]


def fisher(data, rng):
    return release_probability(
        data, 0.0, posterior=MODEL, partitions=2, epsilon=1.0, spread=0, method="fisher", rng=rng
    )["sum"]


def cutoffs(data, rng):
    release = release_probability(data, [-0.1, 0.0], posterior=MODEL, partitions=2, epsilon=1.0, spread=0, rng=rng)
    return release["mean"]


def given(data, rng):
    release = release_quantile(
        data, 0.5, posterior=MODEL, partitions=2, epsilon=1.0, spread=0, bounds=(-1.0, 2.0), rng=rng
    )
    return release["quantile"]


def centred(data, rng):
    release = release_quantile(
        data,
        0.5,
        posterior=MODEL,
        partitions=2,
        epsilon=1.0,
        spread=0,
        bounds=Centred((-3.0, 3.0), resolution=2),
        rng=rng,
    )
    return [*release["bounds"], float(release["quantile"])]


def doubled(data, rng):
    release = release_quantile(
        data,
        0.5,
        posterior=MODEL,
        partitions=2,
        epsilon=1.0,
        spread=0,
        bounds=SparseVector(doublings=2, theta=0.6),
        rng=rng,
    )
    return [*release["bounds"], float(release["quantile"])]


def test_the_pair_is_as_far_apart_as_the_sensitivity_allows():
    """So that an audit looks where it should."""
    data, neighbour = worst_pair(2)
    for method, name in (("normality", "mean"), ("fisher", "sum")):
        options = {"posterior": MODEL, "partitions": 2, "epsilon": 1e12, "spread": 0, "method": method}
        one, other = (release_probability(d, 0.0, rng=rng_of(0), **options) for d in (data, neighbour))
        assert abs(one[name] - other[name]) == pytest.approx(one.sensitivity[name], rel=1e-4)
    options = {"posterior": MODEL, "partitions": 2, "epsilon": 1e12, "spread": 0, "bounds": (-1.0, 2.0)}
    one, other = (release_quantile(d, 0.5, rng=rng_of(0), **options) for d in (data, neighbour))
    assert abs(one["quantile"] - other["quantile"]) == pytest.approx(one.sensitivity["quantile"], rel=0.01)


@pytest.mark.parametrize(
    ("release", "seen"),
    [(normality, 0.5), (fisher, 0.5), (cutoffs, 0.5), (given, 0.5), (centred, 0.02), (doubled, 0.1)],
)
def test_an_audit_does_not_refute_a_release_at_its_worst_neighbours(release, seen):
    """It must also see a share of epsilon: less where part of it goes to a search."""
    found = epsilon_lower_bound(release, *worst_pair(2), trials=4000, rng=rng_of(1))
    assert seen < found <= 1.0


def test_an_audit_does_not_refute_a_real_release():
    """The noise of OpenDP, which has no seed: a right release fails with a probability of about 10⁻⁶."""
    settings = {"trials": 3000, "confidence": 1 - 1e-6, "rng": rng_of(2)}
    found = epsilon_lower_bound(lambda data, _: normality(data, None), *worst_pair(2), **settings)
    assert 0.3 < found <= 1.0


@pytest.mark.parametrize("release", [normality, fisher, given])
def test_an_audit_refutes_a_sensitivity_that_is_halved(release, monkeypatch):
    bounded_sum = module.bounded_sum
    monkeypatch.setattr(module, "bounded_sum", lambda *bounds: bounded_sum(*bounds) / 2)
    assert epsilon_lower_bound(release, *worst_pair(2), trials=1500, rng=rng_of(3)) > 1.0


def test_an_audit_exposes_the_printed_noise_of_the_sum_of_logarithms(monkeypatch):
    """With the sensitivity of the sum divided by M = 1000, .25 is really 250: the audit shows over 16 times .25."""
    bounded_sum, partitions = module.bounded_sum, 1000
    data, neighbour = worst_pair(partitions)

    def release(rows, rng):
        options = {"posterior": MODEL, "partitions": partitions, "epsilon": 0.25, "method": "fisher", "spread": 0}
        return release_probability(rows, 0.0, rng=rng, **options)["sum"]

    assert epsilon_lower_bound(release, data, neighbour, trials=2000, rng=rng_of(4)) <= 0.25
    monkeypatch.setattr(module, "bounded_sum", lambda *bounds: bounded_sum(*bounds) / partitions)
    assert epsilon_lower_bound(release, data, neighbour, trials=2000, rng=rng_of(4)) > 16 * 0.25
