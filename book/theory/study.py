"""The tables of chapter 6 that take longer than a notebook should: the ledger of claims, and prices of privacy.

All but the searches for counterexamples are deterministic: every entry is computed from exact profiles, and ``trials``
and ``seed`` change nothing. Run them with ``python tools/study.py theory NAME``.
"""

from __future__ import annotations

import math
from typing import Any

import pandas as pd
from attacks import ATTACKS, attack
from claims import CLAIMS, claims_table

from dpbook import theory
from dpbook.studies import Study
from dpbook.theory import BetaBernoulli, NormalKnownVariance

SIZES = (100, 1000, 10_000, 100_000)
EPSILONS = (0.1, 0.5, 1.0, 3.0)
DELTA = 1e-6
MODELS: dict[str, BetaBernoulli | NormalKnownVariance] = {
    "coins": BetaBernoulli(),
    "bells": NormalKnownVariance(bound=3.0),
}
RELEASES: dict[str, tuple[str, dict[str, Any]]] = {
    "sample": ("sample", {}),
    "plug-in": ("synthetic-plugin", {"estimator": "mode"}),
    "bayes": ("synthetic-bayes", {"redraw": True}),
    "bayes, one draw": ("synthetic-bayes", {"redraw": False}),
}


def ledger(claim: str, *, trials: int, seed: int) -> pd.DataFrame:
    """Check a claim of the posters."""
    return claims_table([claim])


def attacks(claim: str, *, trials: int, seed: int) -> pd.DataFrame:
    """Search for a counterexample to a claim, from ``trials`` starts; 0 for the attack's own number."""
    found = attack(claim, starts=trials or None, seed=seed)
    row = {
        "claim": claim,
        "searched": ATTACKS[claim].over,
        "seed": seed,
        "evaluations": found.evaluations,
        "worst": found.worst,
        "refuted": found.refuted,
        "at": ", ".join(f"{key} = {value:.4g}" for key, value in found.at.items()),
    }
    return pd.DataFrame([row])


def comparison(model: str, n: int, epsilon: float, *, trials: int, seed: int) -> pd.DataFrame:
    """Compare posterior draws and synthetic data with noisy statistics at equal epsilon and delta."""
    table = theory.compare_with_noise(MODELS[model], n, epsilon=epsilon, delta=DELTA)
    for column, value in (("epsilon", epsilon), ("n", n), ("model", model)):
        table.insert(0, column, value)
    return table


def decisions(release: str, n: int, m: int, epsilon: float, delta: float, *, trials: int, seed: int) -> pd.DataFrame:
    """Find the weakest prior, the smallest alpha = beta, that a release of coins needs; a draw has m = 0."""
    kind, options = RELEASES[release]
    more = {**options, "m": m} if m else options
    found = theory.prior_for(kind, BetaBernoulli(), n, epsilon=epsilon, delta=delta, **more)
    alpha = found.alpha if isinstance(found, BetaBernoulli) else math.inf
    row = {"release": release, "n": n, "m": m, "epsilon": epsilon, "delta": delta, "alpha": alpha}
    return pd.DataFrame([row])


def looseness(n: int, alpha: float, delta: float, *, trials: int, seed: int) -> pd.DataFrame:
    """Compare the exponential mechanism's and Rényi's epsilon of a posterior draw of coins with the exact one.

    The draw is truncated to [.1, .9] for the exponential mechanism, and unrestricted for Rényi.
    """
    model, cell = BetaBernoulli(alpha, alpha), {"n": n, "alpha": alpha, "delta": delta}
    view = theory.exponential_view(model, n, truncate=(0.1, 0.9), delta=delta)
    rows = [{"view": "exponential mechanism", **cell, **view._asdict()}]
    if delta > 0:
        bound = theory.renyi_epsilon(model, n, delta=delta)
        exact = theory.epsilon_for("sample", model, n, delta=delta)
        rows.append({"view": "renyi", **cell, "bound": bound, "exact": exact, "looseness": bound / exact})
    return pd.DataFrame(rows)


def _by_view(table: pd.DataFrame) -> pd.DataFrame:
    return table.sort_values(["view", "n", "alpha", "delta"], ignore_index=True)


STUDIES = {
    "ledger": Study(ledger, [(claim.name,) for claim in CLAIMS]),
    "attacks": Study(attacks, [(name,) for name in ATTACKS], trials=0),
    "comparison": Study(comparison, [(name, n, epsilon) for name in MODELS for n in SIZES for epsilon in EPSILONS]),
    "decisions": Study(
        decisions,
        [
            (release, n, m, epsilon, delta)
            for release in RELEASES
            for n in (100, 10_000)
            for m in ((0,) if release == "sample" else (1, 100, 10_000))
            for epsilon in EPSILONS
            for delta in (0.0, DELTA)
        ],
    ),
    "looseness": Study(
        looseness,
        [(n, alpha, delta) for n in (1, 10, 100, 1000) for alpha in (1.0, 10.0, 100.0) for delta in (0.0, 1e-9, DELTA)],
        finish=_by_view,
    ),
}
