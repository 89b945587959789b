"""Every promise of privacy in the package, attacked with generated neighbours; and every attack, tested on breaks.

The attacks compute exact laws from what the samplers are handed, so that a failure is a refutation and no accident: the
false-alarm rate is zero. An attack that finds nothing proves nothing; the proofs are in the book.
"""

import re
from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import dpbook
from dpbook import budget, mechanisms, regression
from guards import laws, mutants, registry, report, run
from guards.observe import Broken, Look, forget, modules
from guards.registry import EXEMPT, GUARDS, promising

CASES = 20  # of each guard on each path, in every test run
NAMES = promising()
PAIRS = [(function, path) for function, guard in GUARDS.items() for path in guard.paths]


def shown(function):
    return NAMES.get(function, str(function)).removeprefix("dpbook.")


def cases_of(function):
    return max(8, round(CASES * GUARDS[function].weight))


def test_everything_that_promises_privacy_has_a_guard():
    unguarded = [name for function, name in promising().items() if function not in GUARDS and function not in EXEMPT]
    assert not unguarded, f"without an entry in tests/guards/registry.py: {unguarded}"


def test_every_guard_and_every_exemption_is_of_something_public():
    promised = promising()
    assert not [function for function in (*GUARDS, *EXEMPT) if function not in promised]
    assert not set(GUARDS) & set(EXEMPT)
    assert all(EXEMPT.values())


@pytest.mark.parametrize("how", ["budget", "name", "annotation", "noise"])
def test_a_new_release_without_a_guard_is_noticed(monkeypatch, how):
    def with_budget(data, *, budget=None): ...

    def release_secret(data): ...

    def with_annotation(data) -> "dpbook.Release": ...

    def with_noise(data, *, epsilon, rng): ...

    new = {"budget": with_budget, "name": release_secret, "annotation": with_annotation, "noise": with_noise}[how]
    new.__module__ = "dpbook.mechanisms"
    monkeypatch.setattr(mechanisms, new.__name__, new, raising=False)
    monkeypatch.setattr(mechanisms, "__all__", [*mechanisms.__all__, new.__name__])
    with pytest.raises(AssertionError, match=new.__name__):
        test_everything_that_promises_privacy_has_a_guard()


def test_a_new_method_without_a_guard_is_noticed(monkeypatch):
    def refit(self, X, y, budget=None): ...

    refit.__module__ = "dpbook.regression.estimator"
    monkeypatch.setattr(registry.PrivateBayesianRegression, "refit", refit, raising=False)
    with pytest.raises(AssertionError, match="refit"):
        test_everything_that_promises_privacy_has_a_guard()


@pytest.mark.parametrize(("function", "path"), PAIRS, ids=[f"{shown(function)}-{path}" for function, path in PAIRS])
def test_no_neighbour_is_told_apart_better_than_claimed(function, path):
    tally = run.guarded(function, path, cases_of(function), shrink=True)
    assert tally.cases >= 8
    assert 0 < tally.worst <= 1 + laws.ROUNDING  # above 0: some case did move what is released


CHARGING = [(function, path) for function, path in PAIRS if GUARDS[function].charges]


@pytest.mark.parametrize(("function", "path"), CHARGING, ids=[f"{shown(f)}-{path}" for f, path in CHARGING])
def test_wrong_arguments_and_small_budgets_cost_nothing_and_draw_nothing(function, path):
    run.errors_charge_nothing(function, path, 3)


@pytest.mark.parametrize("function", [f for f, guard in GUARDS.items() if guard.charges], ids=shown)
def test_what_was_released_is_entered_beside_its_charge(function):
    run.ledger_knows(function, GUARDS[function].paths[0], 3)


def test_a_release_that_is_not_entered_is_noticed(monkeypatch):
    monkeypatch.setattr(budget.Paid, "entered", lambda self, release: release)
    with pytest.raises(Broken, match="the ledger does not know"):
        run.ledger_knows(regression.release, "seeded", 1)


def test_every_run_attacks_with_at_least_five_hundred_cases():
    assert sum(cases_of(function) for function, _ in PAIRS) >= 500


def test_every_guard_has_mutants_of_its_own():
    own = Counter(mutant.of for mutant in mutants.OWN)
    assert set(own) == set(GUARDS)


def attack_with_all(function, guard, kind):
    if kind == "charge before check":
        run.errors_charge_nothing(function, "seeded", 1, guard=guard)
    for path in guard.paths:
        run.guarded(function, path, 400, guard=guard)


@pytest.fixture
def fresh_caches():
    """A remembered sensitivity is no broken one, and a broken one must not be remembered."""
    forget(*modules())
    yield
    forget(*modules())


@pytest.mark.usefixtures("fresh_caches")
@pytest.mark.parametrize("mutant", mutants.MUTANTS, ids=lambda each: f"{shown(each.of)}-{each.kind}".replace(" ", "-"))
def test_the_guard_fails_under_a_deliberate_break(monkeypatch, mutant):
    function = mutant.make(monkeypatch, mutant.of)
    guard = GUARDS[mutant.of]
    with pytest.raises(Broken):
        attack_with_all(function, guard, mutant.kind)


def test_the_law_of_a_search_agrees_with_one_computed_by_counting():
    """Two queries and a bar with Laplace noise: 400,000 simulated outcomes; false-alarm rate below 1e-6."""
    looks = [
        Look("laplace", np.array([value]), scale, None, whole=True) for value, scale in ((0, 10), (5, 20), (-3, 20))
    ]
    queries = np.array([5.0, -3.0]) / 10
    law = np.exp(laws._outcomes(queries, np.array([2.0, 2.0]), np.unique([0.0, *queries])))
    rng = np.random.default_rng(0)
    bar, first, second = (rng.laplace(look.seen[0], look.scale, 400_000) for look in looks)
    outcome = np.where(first >= bar, 0, np.where(second >= bar, 1, 2))
    assert abs(law.sum() - 1) < 1e-9
    assert np.abs(np.bincount(outcome) / 400_000 - law).max() < 5 * 0.5 / np.sqrt(400_000)


def test_the_delta_of_discrete_noise_is_that_of_its_definition_and_tends_to_that_of_the_normal():
    for moves, sd in (((3,), 0.7), ((1, -2), 1.3), ((0, 2, 1), 0.9)):
        steps = np.arange(-30, 31)
        grid = np.stack(np.meshgrid(*[steps] * len(moves)), axis=-1).reshape(-1, len(moves))
        here, there = (np.exp(-((grid - shift) ** 2).sum(axis=1) / (2 * sd**2)) for shift in (0, np.array(moves)))
        defined = np.maximum(here - np.e**0.8 * there, 0).sum() / here.sum()
        assert laws.discrete_gaussian_delta(np.array(moves), sd, 0.8) == pytest.approx(defined, rel=1e-9)
    fine = laws.discrete_gaussian_delta(np.array([14_000]), 60_000.0, 0.5)
    assert fine == pytest.approx(laws.gaussian_delta(7 / 30, 0.5), rel=1e-9)


RESULTS = Path(__file__).parents[2] / "book" / "reference" / "results"


def test_the_books_table_of_guards_is_up_to_date():
    committed = pd.read_csv(RESULTS / "guards_table.csv", comment="#", keep_default_na=False)
    pd.testing.assert_frame_equal(committed, report.guards_table(), obj="run `python tools/attack.py --table`")


def test_the_committed_run_attacked_every_guard_ten_thousand_times_in_all():
    found = pd.read_csv(RESULTS / "guards.csv", comment="#")
    expected = {(report.name_of(function), path) for function, path in PAIRS}
    assert set(zip(found["release"], found["path"], strict=True)) == expected, "run `python tools/attack.py`"
    assert found["cases"].sum() >= 10_000
    assert found["cases"].min() >= 50
    assert found["worst"].between(0, 1 + laws.ROUNDING, inclusive="right").all()


def test_every_proof_that_a_guard_names_is_in_the_book():
    book = RESULTS.parents[1]
    proved = {
        label for page in book.rglob("*.md") for label in re.findall(r"^:label: (thm-\S+)$", page.read_text(), re.M)
    }
    named = {guard.proof for guard in GUARDS.values()}
    assert not [each for each in named if each not in proved and not (book / f"{each}.ipynb").exists()]
