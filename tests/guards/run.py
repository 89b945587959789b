"""Run the guards over many generated cases, and count."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import hypothesis
from hypothesis import HealthCheck, Phase
from hypothesis.errors import FlakyFailure

from dpbook import Release
from dpbook.budget import fingerprint
from guards.attacks import Attack, Case, by_errors
from guards.observe import Broken, watching
from guards.registry import GUARDS, Guard


@dataclass
class Tally:
    """How many cases a guard has seen on a path, and the largest privacy loss over the claim."""

    cases: int = 0
    worst: float = 0.0


def generated(
    cases: Any, count: int, check: Callable[[Case], None], *, seed: int | None = None, shrink: bool = False
) -> None:
    """Call ``check`` on up to ``count`` generated cases; the same ones in every run with the same seed (or None)."""
    phases = [Phase.generate, Phase.shrink] if shrink else [Phase.generate]
    settings = hypothesis.settings(
        max_examples=count,
        database=None,
        deadline=None,
        derandomize=seed is None,
        phases=phases,
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )
    found: list[Broken] = []

    def noting(case: Case) -> None:
        try:
            check(case)
        except Broken as broken:
            found.append(broken)
            raise

    test = settings(hypothesis.given(cases)(noting))
    try:
        (test if seed is None else hypothesis.seed(seed)(test))()
    except FlakyFailure:
        raise found[0] from None  # what one call leaves behind for the next does not show twice


def guarded(
    function: Callable[..., Any],
    path: str,
    count: int,
    *,
    guard: Guard | None = None,
    seed: int | None = None,
    shrink: bool = False,
) -> Tally:
    """Attack a function on one path with generated neighbours; raise :class:`Broken` where a promise does not hold."""
    chosen = GUARDS[function] if guard is None else guard
    tally = Tally()

    def check(case: Case) -> None:
        tally.cases += 1
        tally.worst = max(tally.worst, chosen.attack(Attack(function, case, path, chosen.charges)))

    with watching():
        generated(chosen.cases, count, check, seed=seed, shrink=shrink)
    return tally


def errors_charge_nothing(function: Callable[..., Any], path: str, count: int, *, guard: Guard | None = None) -> None:
    """Give a function wrong arguments, and too small a budget; raise where anything is charged or drawn."""
    chosen = GUARDS[function] if guard is None else guard

    def check(case: Case) -> None:
        by_errors(Attack(function, case, path, chosen.charges), chosen.refused(), chosen.odd)

    with watching():
        generated(chosen.cases, count, check)


def ledger_knows(function: Callable[..., Any], path: str, count: int) -> None:
    """Release generated data; raise where the ledger does not say, beside the charge, what was released for it."""
    chosen = GUARDS[function]

    def check(case: Case) -> None:
        found = Attack(function, case, path, chosen.charges).result(case.data)
        if isinstance(found.result, Release) and found.fingerprints != [fingerprint(found.result)]:
            raise Broken(f"the ledger does not know what was released: {found.fingerprints}")

    with watching():
        generated(chosen.cases, count, check)
