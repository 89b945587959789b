"""Which public callables promise privacy, and how each of them is attacked.

:data:`GUARDS` is keyed by the callable itself. :func:`promising` walks everything that the package exports and tells
what promises privacy by its signature; a test fails where the two differ, so that no new release escapes.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd
from hypothesis import strategies as st

from dpbook import (
    Release,
    aggregate,
    budget,
    exercises,
    expfam,
    graphical,
    latent_noise,
    mechanisms,
    models,
    noise,
    regression,
)
from dpbook.graphical import hmm
from dpbook.regression import PrivateBayesianRegression
from dpbook.release import together
from guards import attacks, cases, observe
from guards.attacks import Attack, Case

# ---------------------------------------------------------------------------------------------------------------------
# Which callables promise privacy


def exported() -> dict[Callable[..., Any], str]:
    """Return every function and every method of a class in an ``__all__`` of the package, with a name to show."""
    found: dict[Callable[..., Any], str] = {}
    for module in observe.modules():
        for name in getattr(module, "__all__", ()):
            value = getattr(module, name)
            owner = getattr(value, "__module__", "") or ""
            if inspect.isfunction(value) and owner.startswith("dpbook"):
                found.setdefault(value, f"{owner}.{name}")
            elif inspect.isclass(value) and owner.startswith("dpbook"):
                found |= {method: f"{owner}.{name}.{own}" for own, method in methods(value) if method not in found}
    return found


def methods(kind: type) -> list[tuple[str, Callable[..., Any]]]:
    """Return the public methods that a class of the package defines or inherits from one, and its calls."""
    members = inspect.getmembers(kind, lambda member: inspect.isfunction(member) or inspect.ismethod(member))
    plain = [(name, getattr(member, "__func__", member)) for name, member in members]
    shown = [(name, method) for name, method in plain if not name.startswith("_") or name == "__call__"]
    return [(name, method) for name, method in shown if method.__module__.startswith("dpbook")]


def promises(value: Callable[..., Any], name: str) -> bool:
    """Say whether a callable promises privacy: by a budget, by its name, by a Release, or by calibrated noise."""
    signature = inspect.signature(value)
    takes = set(signature.parameters)
    named = re.match(r"(release|private)(_|$)", name.rpartition(".")[2]) is not None
    gives = re.search(r"\bRelease\b", str(signature.return_annotation)) is not None
    noisy = "rng" in takes and bool({"epsilon", "scale"} & takes) and signature.return_annotation not in (None, "None")
    return "budget" in takes or named or gives or noisy


def promising() -> dict[Callable[..., Any], str]:
    """Return what promises privacy, with a name to show."""
    return {value: name for value, name in exported().items() if promises(value, name)}


# What looks like a promise and is none, and why.
EXEMPT: dict[Callable[..., Any], str] = {
    Release.from_json.__func__: "reads text that is public already",  # type: ignore[attr-defined]
    together: "puts releases together that are public already: reads no data",
    budget.charge: "the ledger itself: reads no data",
    graphical.tune_dpsgd_nonprivate: "not private, and called so",
    latent_noise.draw_noise_variance: "the analyst's side: reads no data",
    expfam.gibbs_start: "the analyst's side: reads no data",
    exercises.private: "audits a mechanism on two made-up data sets, and promises nothing of its own",
}


# ---------------------------------------------------------------------------------------------------------------------
# The guards


@dataclass(frozen=True)
class Guard:
    """How one callable is attacked.

    ``unit`` is what a neighbour replaces, ``observed`` how the law is seen, ``proof`` the theorem that proves the
    promise, or the section that says on whose proof it rests. ``wrong`` are arguments that must raise with nothing
    charged and nothing drawn; ``odd`` are such that may raise, and then so.
    """

    cases: st.SearchStrategy[Case]
    attack: Callable[[Attack], float]
    unit: str
    observed: str
    proof: str
    charges: bool = True
    paths: tuple[str, ...] = attacks.PATHS
    wrong: tuple[Mapping[str, Any], ...] = ()
    odd: tuple[Mapping[str, Any], ...] = ()
    weight: float = 1.0  # below where cases are dear, above where few of them come close to the claim

    def refused(self) -> tuple[Mapping[str, Any], ...]:
        """Return arguments that must raise before anything is charged: bad epsilons, a bare seed, and its own."""
        bad = (0, -1.0, float("nan"), float("inf"), "1", None, True)
        return (*({"epsilon": value} for value in bad), *self.wrong) if self.charges else self.wrong


# How a law is seen.
TOTALS = "totals handed to the sampler, change over noise scale"
CHOICE = "exact law of the choice"
OUTCOME = "exact law of the outcome"
DENSITY = "exact density (seeded), exact law on the grid (real)"
REPORTS = "exact law of every report"

# What a neighbour replaces.
GIVEN = "one record, within the given sensitivity"
PAIR = "one record, a row with its response"
ROWS = "one row, or all rows of a person"

# Arguments that must raise: of every function, of those with a sensitivity, with either noise, with partitions.
ANY = ({"rng": 7}, {"budget": 1.0})
STATISTIC = (*ANY, {"sensitivity": 0}, {"sensitivity": -1.0}, {"sensitivity": float("nan")})
NOISE = (*ANY, {"mechanism": "cauchy"}, {"mechanism": "laplace", "delta": 0.1}, {"mechanism": "gaussian", "delta": 0})
SPLIT = (*ANY, {"partitions": 1}, {"partitions": 1000}, {"posterior": object()}, {"n": -1})
EMPTY = (*ANY, {"data": []})
# Arguments at the edge of what floats can do: taken, or refused before anything is charged.
EDGE = ({"epsilon": 5e-324}, {"epsilon": 1e-308}, {"epsilon": 1e-300}, {"epsilon": 1e300})

GUARDS: dict[Callable[..., Any], Guard] = {
    # Chapter 1
    mechanisms.laplace: Guard(
        cases.statistic_cases(norm=1),
        attacks.by_replay,
        unit=GIVEN,
        observed=TOTALS,
        proof="thm-mechanisms-laplace",
        wrong=STATISTIC,
        odd=EDGE,
    ),
    mechanisms.geometric: Guard(
        cases.statistic_cases(norm=1, whole=True),
        attacks.by_replay,
        unit=GIVEN,
        observed=TOTALS,
        proof="thm-mechanisms-geometric",
        wrong=(*STATISTIC, {"sensitivity": 1.5}),
        odd=EDGE,
    ),
    mechanisms.gaussian: Guard(
        cases.statistic_cases(norm=2),
        attacks.by_replay,
        unit=GIVEN,
        observed=TOTALS,
        proof="thm-mechanisms-gaussian",
        wrong=(*STATISTIC, {"delta": 0.0}, {"delta": 1.0}),
        odd=EDGE,
    ),
    mechanisms.exponential: Guard(
        cases.utility_cases(),
        attacks.by_replay,
        unit=GIVEN,
        observed=CHOICE,
        proof="thm-mechanisms-exponential",
        wrong=STATISTIC,
        odd=EDGE,
    ),
    mechanisms.above_threshold: Guard(
        cases.search_cases(),
        attacks.by_first_success,
        unit=GIVEN,
        observed=OUTCOME,
        proof="thm-sparse-vector-and-quantiles-privacy",
        wrong=(*STATISTIC, {"monotone": 1}),
        odd=EDGE,
        weight=2.0,
    ),
    mechanisms.private_quantile: Guard(
        cases.quantile_cases(),
        attacks.by_density,
        unit="one record",
        observed=DENSITY,
        proof="thm-sparse-vector-and-quantiles-quantile",
        wrong=(*EMPTY, {"bounds": (1, 0)}, {"bounds": (0, float("inf"))}, {"grid": 1}),
        odd=EDGE,
        weight=2.0,
    ),
    mechanisms.randomized_response: Guard(
        cases.answer_cases(),
        attacks.by_flips,
        unit="one answer",
        observed=REPORTS,
        proof="thm-mechanisms-response",
        wrong=(*ANY, {"categories": 1}, {"categories": 2.0}),
        odd=EDGE,
    ),
    # The samplers under everything else: their callers check the arguments, charge the budget
    noise.choose: Guard(
        cases.choose_cases(),
        attacks.by_replay,
        unit=GIVEN,
        observed=CHOICE,
        proof="thm-mechanisms-exponential",
        charges=False,
    ),
    noise.flip: Guard(
        cases.flip_cases(),
        attacks.by_flips,
        unit="one answer",
        observed=REPORTS,
        proof="thm-mechanisms-response",
        charges=False,
    ),
    **{
        function: Guard(
            cases.noise_cases(kind), attacks.by_replay, unit=GIVEN, observed=TOTALS, proof=proof, charges=False
        )
        for function, kind, proof in (
            (noise.add_laplace, "laplace", "thm-mechanisms-laplace"),
            (noise.add_gaussian, "gaussian", "thm-mechanisms-gaussian"),
            (noise.add_geometric, "geometric", "thm-mechanisms-geometric"),
            (noise.add_laplace_to_sum, "laplace sum", "thm-where-privacy-breaks-grid"),
            (noise.add_gaussian_to_sum, "gaussian sum", "thm-where-privacy-breaks-grid"),
        )
    },
    # Chapter 2
    aggregate.release_probability: Guard(
        cases.partition_cases("probability"),
        attacks.by_partitions,
        unit="one record",
        observed="all that a black box sees of the other partitions and of their halves; totals",
        proof="thm-when-parts-differ-joint",
        wrong=(
            *SPLIT,
            {"method": "median"},
            {"method": "fisher", "p_min": 2.0},
            {"method": "normality", "p_min": 0.1},
            {"spread": 1.0},
        ),
        odd=EDGE,
        weight=0.5,
    ),
    aggregate.release_quantile: Guard(
        st.one_of(cases.partition_cases("quantile"), cases.doubling_release_cases()),
        attacks.by_partitions,
        unit="one record",
        observed="all that a black box sees of other partitions and their halves; exact law of the bounds; totals",
        proof="thm-posterior-quantiles-centred",
        wrong=(*SPLIT, {"bounds": (1, 0)}, {"bounds": "centred"}, {"bounds": aggregate.SparseVector(share=1e-12)}),
        odd=EDGE,
        weight=0.5,
    ),
    aggregate.release_bounds: Guard(
        st.one_of(cases.centred_cases(), cases.doubled_cases()),
        attacks.by_partitions,
        unit="one value",
        observed="exact law of the choice, or of the outcome",
        proof="thm-posterior-quantiles-doubling",
        wrong=(*EMPTY, {"search": "centred"}, {"search": (0.0, 1.0)}),
        odd=EDGE,
        weight=2.0,
    ),
    # Chapter 3
    expfam.release: Guard(
        cases.family_cases(),
        attacks.by_replay,
        unit="one record",
        observed=TOTALS,
        proof="thm-unbounded-statistics-sensitivity",
        wrong=(*NOISE, {"data": []}, {"outside": "drop"}, {"check": 0.6}, {"check": -0.1}, {"check": True}),
        odd=EDGE,
        weight=2.0,
    ),
    expfam.release_mean: Guard(
        st.one_of(cases.mean_cases(), cases.gap_cases()),
        attacks.by_replay,
        unit="one record",
        observed=TOTALS,
        proof="thm-a-mean-that-assumes-little-sensitivity",
        wrong=(*NOISE, {"data": []}, {"data": [1.0, 2.0]}, {"bounds": (1, 0)}, {"bins": 0}, {"shape": 0.0}),
        odd=EDGE,
        weight=2.0,
    ),
    expfam.release_histogram: Guard(
        cases.histogram_cases(),
        attacks.by_replay,
        unit="one record",
        observed=TOTALS,
        proof="thm-log-linear-models-sensitivity",
        wrong=(*NOISE, {"data": []}, {"bins": [1, 0], "labels": None}, {"bins": [0, 1], "labels": [0, 1]}),
        odd=EDGE,
    ),
    expfam.release_quantiles: Guard(
        cases.count_tree_cases(),
        attacks.by_replay,
        unit="one record",
        observed=TOTALS,
        proof="thm-quantiles-with-intervals-sensitivity",
        wrong=(*NOISE, {"data": []}, {"bounds": (1, 0)}, {"q": [0.5, 0.5]}, {"q": 1.0}, {"branches": [1, 2]}),
        odd=EDGE,
    ),
    expfam.release_randomized_response: Guard(
        cases.yes_or_no_cases(),
        attacks.by_report_count,
        unit="one answer",
        observed="exact law of the count",
        proof="thm-mechanisms-response",
        wrong=EMPTY,
        odd=EDGE,
    ),
    expfam.release_posterior_samples: Guard(
        cases.posterior_sample_cases(),
        attacks.by_replay,
        unit="one record",
        observed=CHOICE,
        proof="thm-information-bottleneck-privacy",
        wrong=(*EMPTY, {"support": (0.0, 0.5)}, {"count": 0}, {"grid": 1}),
        odd=EDGE,
    ),
    expfam.private_bounds: Guard(
        cases.bounds_cases(),
        attacks.by_density,
        unit="one record",
        observed=DENSITY,
        proof="thm-sparse-vector-and-quantiles-quantile",
        wrong=(*EMPTY, {"coverage": 1.0}, {"public_range": (1, 0)}),
        odd=EDGE,
        weight=2.0,
    ),
    # Chapter 4
    regression.release: Guard(
        st.one_of(cases.regression_cases(), cases.schema_regression_cases()),
        attacks.by_replay,
        unit=PAIR,
        observed=TOTALS,
        proof="thm-private-least-squares-privacy",
        wrong=(
            *NOISE,
            {"data": ([], [])},
            {"y_bounds": (1, 0)},
            {"x_bounds": (1, 0)},
            {"intercept": 1},
            {"moments": "yes"},
            {"check": 0.6},
            {"check": -0.1},
            {"check": True},
        ),
        odd=EDGE,
        weight=2.0,
    ),
    PrivateBayesianRegression.fit: Guard(
        cases.estimator_cases(),
        attacks.by_replay,
        unit=PAIR,
        observed=TOTALS,
        proof="thm-private-least-squares-privacy",
        wrong=(
            {"y_bounds": (1, 0)},
            {"method": "bogus"},
            {"draws": 0},
            {"chains": -1},
            {"prior": 3},
            {"covariates": 3},
            {"check": 0.6},
        ),
        odd=EDGE,
        weight=0.5,
    ),
    # Chapter 5
    graphical.release: Guard(
        cases.graphical_cases(),
        attacks.by_replay,
        unit=ROWS,
        observed=TOTALS,
        proof="thm-log-linear-models-sensitivity",
        wrong=(
            *ANY,
            *({"data": pd.DataFrame({"a": []})}, {"null": 99}, {"person": "a"}, {"counts": 3}),
            *({"cliques": [("z",)]}, {"domain": {"a": 0}}),
        ),
        odd=EDGE,
        weight=2.0,
    ),
    graphical.release_dpsgd: Guard(
        cases.gradient_cases(),
        attacks.by_gradients,
        unit=ROWS,
        observed="every step's sum of clipped gradients, given the steps before",
        proof="graphical-models/mobility",
        wrong=(*ANY, {"delta": 0.0}, {"clip": 0.0}, {"sampling": 2.0}, {"steps": 0}, {"rng": None, "insecure": False}),
        odd=EDGE,
        weight=0.5,
    ),
    hmm.release_counts: Guard(
        cases.event_cases(),
        attacks.by_replay,
        unit="one event",
        observed=TOTALS,
        proof="thm-hidden-states-once",
        wrong=(*ANY, {"data": [[[0, 0]]]}, {"data": [[[1, -1]]]}),
        odd=EDGE,
    ),
    hmm.release_gibbs: Guard(
        cases.chain_cases(),
        attacks.by_chain,
        unit="one event",
        observed="exact law of every look, given the looks before",
        proof="thm-hidden-states-chain",
        wrong=(*ANY, {"states": 1}, {"sweeps": 0}, {"floor": 0.9}, {"grid": 1}, {"rng": None, "insecure": False}),
        odd=EDGE,
        weight=2.0,
    ),
    # Chapter 7
    models.release: Guard(
        cases.model_cases(),
        attacks.by_replay,
        unit="one record",
        observed=TOTALS,
        proof="thm-if-you-can-simulate-it-privacy",
        wrong=(*NOISE, {"data": []}, {"statistics": []}, {"statistics": "mean"}, {"schema": {"x": (0, 1)}}),
        odd=EDGE,
        weight=2.0,
    ),
}
