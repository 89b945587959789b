"""Simulation-based calibration of three classes of models: one that counts, one with heavy tails, one of thresholds.

Ranks of the truth are tested for uniformity, by Kolmogorov and Smirnov and by their variance; with fixed seeds, and a
false-alarm rate of 1 % per model (all of its parameters and both tests together, by Holm's correction).
"""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from scipy import special

from dpbook import Doubt, Schema, models
from dpbook.diagnostics import calibrate
from dpbook.schema import Flag, Integer, Number

TRIALS = 80


def visits(parameters, uniforms):
    """Geometric counts, of which a share is zero for another reason."""
    u, v = uniforms
    again = parameters["mean"] / (1 + parameters["mean"])
    return np.where(u < parameters["none"], 0, np.floor(np.log(v) / np.log(again)))


def heavy(parameters, uniforms):
    """Student's t with two degrees of freedom, in closed form, moved and stretched: its variance is infinite."""
    u = uniforms[0]
    t = (2 * u - 1) / np.sqrt(2 * u * (1 - u))
    return parameters["centre"] + parameters["scale"] * t


def buys(parameters, uniforms):
    """A threshold: somebody buys where the worth exceeds the price. Answers are 0 or 1: a staircase."""
    price, taste = uniforms
    worth = parameters["worth"] + special.ndtri(taste)
    return {"bought": worth > 4 * price - 2, "price": 4 * price - 2 + 0 * worth}


CASES = {
    "visits": (
        models.Model({"none": models.Beta(2, 2), "mean": models.Gamma(6, 2)}, visits, uniforms=2),
        Schema({"x": Integer(0, 30)}),
        models.Histogram("x", [1, 3, 5]),
    ),
    "heavy": (
        models.Model({"centre": models.NormalPrior(0, 2), "scale": models.LogNormal(1, 0.5)}, heavy),
        Schema({"x": Number(-15, 15)}),
        models.Histogram("x", [-3, -1, 0, 1, 3]),
    ),
    "buys": (
        models.Model({"worth": models.NormalPrior(0, 1)}, buys, uniforms=2),
        Schema({"bought": Flag(), "price": Number(-2, 2)}),
        models.Powers(["bought", "price"], degree=2),
    ),
}


def data_of(found, trial):
    return {name: np.asarray(each)[trial] for name, each in found.items()} if isinstance(found, dict) else found[trial]


@pytest.mark.parametrize(
    ("case", "n", "epsilon", "mechanism", "method", "draws"),
    [
        ("visits", 150, 1.0, "laplace", "moments", 200),
        ("heavy", 400, 0.5, "gaussian", "moments", 200),
        ("buys", 100, 2.0, "laplace", "moments", 200),
        ("visits", 20, 2.0, "laplace", "records", 400),
    ],
)
def test_ranks_of_the_truth_are_uniform(case, n, epsilon, mechanism, method, draws):
    model, schema, statistic = CASES[case]

    def release(parameters, rng):
        given = {name: each[:, None] for name, each in parameters.items()}
        found = model.simulate(given, tuple(rng.random((model.uniforms, TRIALS, n))))
        return [
            models.release(data_of(found, i), statistic, schema=schema, epsilon=epsilon, mechanism=mechanism,
                           delta=1e-5 if mechanism == "gaussian" else 0.0, rng=rng)
            for i in range(TRIALS)
        ]  # fmt: skip

    def infer(releases, rng):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Doubt)
            chains = 2 if method == "moments" else None
            return models.infer(releases, model, method=method, draws=draws, chains=chains, rng=rng)

    found = calibrate(lambda rng, trials: model.draw(trials, rng), release, infer, TRIALS,
                      rng=np.random.default_rng(20), draws=None)  # fmt: skip
    assert found.passed(0.01), found
