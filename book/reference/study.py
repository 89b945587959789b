"""How often a doubt is raised though nothing is wrong: parameters from the prior, records from the model, defaults.

Run it with ``python tools/study.py reference doubts``. The gauntlet of real data is in ``study_gauntlet.py``.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import study_gauntlet

from dpbook import Posterior, Release, doubts, expfam, regression, together
from dpbook.studies import Study, cell_rng

SEED = 15
TRIALS = 80
KINDS = ("ConvergenceWarning", "FewDraws", "PriorConflict", "ManyClipped", "PoorApproximation", "Misfit")
Posteriors = Sequence[Posterior]


class Case(NamedTuple):
    """A model in which nothing is wrong: how a release of n records at epsilon is made, and how it is read."""

    release: Callable[[int, float, np.random.Generator], Release]
    infer: Callable[[Sequence[Release], np.random.Generator], Posteriors]


def _family(family: Any, prior: Any, records: Callable[..., Any], **options: Any) -> Case:
    """Return the case of a family whose parameters come from the very prior that ``infer`` is told."""

    def release(n: int, epsilon: float, rng: np.random.Generator) -> Release:
        theta = prior.draw(1, rng)[0]
        return expfam.release(records(theta, n, rng), family, epsilon=epsilon, rng=rng, **options)

    return Case(release, lambda made, rng: expfam.infer(list(made), prior, rng=rng))


def _mean(n: int, epsilon: float, rng: np.random.Generator) -> Release:
    return expfam.release_mean(rng.gamma(4.0, 5.0, n), (0, 100), epsilon=epsilon, rng=rng)


def _twice(n: int, epsilon: float, rng: np.random.Generator) -> Release:
    data = rng.poisson(expfam.Gamma(4, 1).draw(1, rng)[0], n)
    family = expfam.Poisson(0, 25)
    return together(*(expfam.release(data, family, epsilon=epsilon / 2, rng=rng) for _ in range(2)))


def _line(n: int, epsilon: float, rng: np.random.Generator) -> Release:
    x = rng.normal(size=(n, 2)) @ np.array([[1.0, 0.3], [0.0, 1.0]])
    y = 1 + x @ rng.normal(size=2) + rng.normal(size=n)
    return regression.release(x, y, x_bounds=(-5, 5), y_bounds=(-12, 14), epsilon=epsilon, rng=rng)


STATED = regression.NormalInverseGamma(mean=[0.0, 0.0], precision=1.0, shape=4, rate=3)


def _stated(n: int, epsilon: float, rng: np.random.Generator) -> Release:
    *theta, sigma2 = STATED.draw(1, rng)[0]
    x = rng.uniform(-2, 2, size=n)
    y = theta[0] + theta[1] * x + np.sqrt(sigma2) * rng.normal(size=n)
    return regression.release(x, y, x_bounds=(-3, 3), y_bounds=(-15, 15), epsilon=epsilon, rng=rng)


CASES: dict[str, Case] = {
    "binomial": _family(expfam.Binomial(), expfam.Beta(2, 3), lambda t, n, rng: rng.random(n) < t),
    "multinomial": _family(
        expfam.Multinomial(4), expfam.Dirichlet([1.0, 1.0, 2.0, 3.0]), lambda t, n, rng: rng.choice(4, n, p=t)
    ),
    "poisson, checked": _family(
        expfam.Poisson(0, 25), expfam.Gamma(4, 1), lambda t, n, rng: rng.poisson(t, n), check=0.1
    ),
    "poisson, two releases": Case(_twice, lambda made, rng: expfam.infer(list(made), expfam.Gamma(4, 1), rng=rng)),
    "exponential, checked": _family(
        expfam.Exponential(0, 60), expfam.Gamma(5, 25), lambda t, n, rng: rng.exponential(1 / t, n), check=0.1
    ),
    "normal": _family(
        expfam.Normal(-10, 10),
        expfam.NormalInverseGamma(0.0, 1.0, 4.0, 6.0),
        lambda t, n, rng: rng.normal(t[0], np.sqrt(t[1]), n),
    ),
    "mean, no family": Case(_mean, lambda made, rng: expfam.infer(list(made), rng=rng)),
    "regression": Case(_line, lambda made, rng: regression.infer(list(made), rng=rng)),
    "regression, own prior": Case(_stated, lambda made, rng: regression.infer(list(made), STATED, rng=rng)),
}
CELLS = [(name, n, epsilon) for name in CASES for n, epsilon in ((100, 0.5), (1000, 1.0))]


def measure(name: str, n: int, epsilon: float, *, trials: int, seed: int) -> pd.DataFrame:
    """Return the share of releases that raise a doubt, and of each kind, though nothing is wrong."""
    rng = cell_rng(seed, name, n, epsilon)
    made = [CASES[name].release(n, epsilon, rng) for _ in range(trials)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", doubts.Doubt)
        found = CASES[name].infer(made, rng)
    raised = [{type(doubt).__name__ for doubt in each.doubts} for each in found]
    row: dict[str, Any] = {"case": name, "n": n, "epsilon": epsilon, "trials": trials}
    row["any"] = np.mean([bool(each) for each in raised])
    return pd.DataFrame([row | {kind: np.mean([kind in each for each in raised]) for kind in KINDS}])


STUDIES = {"doubts": Study(measure, CELLS, trials=TRIALS, seed=SEED), **study_gauntlet.STUDIES}
