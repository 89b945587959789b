"""How a case is attacked: run a call on two neighbouring data sets and return the exact loss over what is allowed.

Every attack also checks that the budget is charged before anything is drawn, what is claimed, and once; that the same
data give the same looks, in whatever container; and that whatever is published is a function of the noisy numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from dp_accounting import GaussianDpEvent, NeighboringRelation, PoissonSampledDpEvent, pld
from scipy import stats

from dpbook import BudgetExceeded, Release
from guards import laws
from guards.observe import Broken, Run, observe

Factory = Callable[[], Any]
PATHS = ("seeded", "real")


@dataclass(frozen=True)
class Case:
    """A call, a data set and a neighbour of it. Data are made afresh for every call: a stream is read once."""

    call: Callable[..., Any]  # call(function, data, rng=…, budget=…, **overrides)
    data: Factory
    neighbour: Factory
    epsilon: float
    delta: float = 0.0
    same: Factory | None = None  # the records of `data` in another container
    says: Any = ""  # what hypothesis shows
    categories: int = 2  # of randomised response
    searches: bool = False  # whether a search by the sparse vector technique comes first
    may_refuse: bool = False  # whether that other container may be refused, with nothing charged
    probes: list[Any] | None = None  # what black boxes saw, run after run


@dataclass(frozen=True)
class Attack:
    """One case against one function on one path; ``charges`` says whether the function takes a budget."""

    function: Callable[..., Any]
    case: Case
    path: str
    charges: bool = True

    def run(self, data: Factory, *, budget: float = 4.0, **options: Any) -> Run:
        """Run the call under watch on the data, with a budget of so many times what it should cost."""
        case = self.case
        overrides = dict(options.pop("overrides", {}))
        room = (case.epsilon * budget, min(case.delta * budget, 0.999)) if self.charges else None
        made = overrides.pop("data") if "data" in overrides else data()
        return observe(
            lambda **given: case.call(self.function, made, **(given | overrides)),
            path=self.path,
            budget=room,
            **options,
        )

    def result(self, data: Factory, **options: Any) -> Run:
        """Run the call and raise unless it succeeds, charges first, charges once, and charges what it claims."""
        run = self.run(data, **options)
        if run.error is not None:
            raise Broken(f"{type(run.error).__name__} on data that no docstring refuses: {run.error}") from run.error
        if not run.looks:
            raise Broken("a result without any noise")
        if self.charges:
            self._charged(run)
        return run

    def _charged(self, run: Run) -> None:
        if run.events[:1] != ["charge"]:
            raise Broken(f"drawn before charged: {run.events[:3]}")
        if len(run.charges) != 1:
            raise Broken(f"{len(run.charges)} charges for one release")
        asked = (self.case.epsilon, self.case.delta)
        claimed = (run.result.epsilon, run.result.delta) if isinstance(run.result, Release) else asked
        if not run.charges[0] == asked == claimed:
            raise Broken(f"asked for {asked}, charged {run.charges[0]}, claimed {claimed}")


def allowed(ratio: float) -> float:
    """Return the ratio of loss to allowance; raise above 1."""
    if not ratio <= 1 + laws.ROUNDING:
        raise Broken(f"the privacy loss is {ratio:.6g} times the claim")
    return ratio


def by_replay(attack: Attack) -> float:
    """Attack a release all of whose looks are of a known law, one after the other."""
    first = attack.result(attack.case.data)
    check_repeatable(attack, first)
    if isinstance(first.result, Release):
        check_claims(attack, first)
    pairs = laws.pair_up(first, run_neighbour(attack, first))
    return allowed(_ratio(pairs, attack.case))


def _ratio(pairs: list[Any], case: Case) -> float:
    if case.delta:
        return laws.gaussian_ratio(pairs, case.epsilon, case.delta)
    return laws.pure_loss(pairs) / case.epsilon


def check_repeatable(attack: Attack, first: Run) -> None:
    """The same records, perhaps in another container, are seen as the same numbers and published as the same thing."""
    other = attack.case.same or attack.case.data
    if attack.case.may_refuse:
        refused = attack.run(other, replay=first.looks)
        if isinstance(refused.error, (TypeError, ValueError)) and not refused.events:
            return
    again = attack.result(other, replay=first.looks)
    if any(laws.distances(a, b).any() for a, b in laws.pair_up(first, again) if a.law not in ("softmax", "response")):
        raise Broken("the same records were seen as different numbers a second time")
    if laws.pure_loss([pair for pair in laws.pair_up(first, again) if pair[0].law in ("softmax", "response")]):
        raise Broken("the same records gave different odds a second time")
    if numbers_of(first.result) != numbers_of(again.result):
        raise Broken("the same records were published as different numbers a second time")


def run_neighbour(attack: Attack, first: Run) -> Run:
    """Run on the neighbour, repeating the outputs; everything published must be the same."""
    second = attack.result(attack.case.neighbour, replay=first.looks)
    _same_public(first, second)
    if first.told != second.told:
        raise Broken(f"warnings depend on a record: {first.told} and {second.told}")
    return second


def public(result: Any) -> Any:
    """Return what a reader sees of a result, in a form that compares bit by bit."""
    if isinstance(result, Release):
        return result.to_json()
    if isinstance(result, np.ndarray):
        return result.dtype.str, result.shape, result.tobytes()
    if isinstance(result, tuple):
        return tuple(map(public, result))
    if hasattr(result, "release_"):
        return public(result.release_)
    return repr(result)


def numbers_of(result: Any) -> Any:
    """Return the numbers of a result; a container's own public names (of columns) may be in its settings."""
    if not isinstance(result, Release):
        return public(result)
    values = {name: public(np.asarray(value)) for name, value in result.values.items()}
    return values, dict(result.scale), dict(result.sensitivity), result.epsilon, result.delta, result.n


def _same_public(first: Run, second: Run) -> None:
    if public(first.result) != public(second.result):
        raise Broken("what is published depends on the data beyond the noisy numbers")


def check_claims(attack: Attack, first: Run) -> None:
    """The noise that a Release claims is the noise that was used: in the same unit, and sensitivity over epsilon.

    The last look is drawn once more, all others repeated: what is published must move as the noise did.
    """
    if first.looks[-1].law not in ("laplace", "gaussian"):
        return
    other = attack.result(attack.case.data, seed=1, replay=first.looks[:-1])
    used = first.looks[-1].scale
    moved = np.ravel(np.asarray(first.looks[-1].out, dtype=float) - np.asarray(other.looks[-1].out, dtype=float))
    released = first.result
    names = [name for name in released.values if name != "bounds"]
    changes = {name: np.ravel(released[name] - other.result[name]) for name in names}
    ends = np.cumsum([change.size for change in changes.values()])  # each part has its own scale
    noises = dict(zip(names, np.split(moved, ends[:-1]), strict=True)) if ends[-1] == moved.size else {}
    spent = released.epsilon - released.settings.get("epsilon_bounds", 0.0)
    for name in names:
        scale, needed = released.scale[name], released.sensitivity[name] / spent
        last_digit = 2.0**-50 * float(np.abs(released[name]).max())  # of a published float, far from zero
        published, noise = changes[name], noises.get(name, moved)
        if not np.allclose(published, noise * (scale / used), rtol=1e-6, atol=1e-6 * scale + last_digit):
            raise Broken(f"{name}: noise of scale {used * _unit(published, noise)} is claimed to be {scale}")
        # Sensitivities are rounded up to whole steps of the grid: more noise than needed, never less.
        if released.mechanism in ("laplace", "geometric") and not (1 - 1e-12) * needed <= scale <= 2 * needed:
            raise Broken(f"{name}: a scale of {scale}, where sensitivity / epsilon is {needed}")


def _unit(published: np.ndarray, moved: np.ndarray) -> float:
    return float(np.abs(published).sum() / max(np.abs(moved).sum(), 1e-300))


def by_first_success(attack: Attack) -> float:
    """Attack the sparse vector technique by the exact law of its outcome; a Release adds one more look after it."""
    first = attack.result(attack.case.data)
    check_repeatable(attack, first)
    run_neighbour(attack, first)
    one, other = (attack.result(data, force=laws.forced_low) for data in (attack.case.data, attack.case.neighbour))
    pairs = laws.pair_up(one, other)
    released = isinstance(one.result, Release)
    if released:
        check_claims(attack, first)
    search, rest = (pairs[:-1], pairs[-1:]) if released else (pairs, [])
    if len(search) < 2 or not all(look.whole for look, _ in search):
        raise Broken("a search without a noisy bar and noisy queries")
    loss = laws.first_success_loss([a for a, _ in search], [b for _, b in search])
    # The noise lives on steps of about a millionth of its scale; the law above takes it for continuous.
    return allowed((loss + laws.pure_loss(rest)) / attack.case.epsilon / (1 + 1e-5))


def by_density(attack: Attack) -> float:
    """Attack a seeded quantile, drawn evenly within a gap that depends on the data, by its exact density.

    Each gap is forced in turn, which shows where it begins and ends; with the gaps' odds that is the density.
    """
    if attack.path == "real":
        return by_replay(attack)
    densities = [_densities(attack, data) for data in (attack.case.data, attack.case.neighbour)]
    again = _densities(attack, attack.case.same or attack.case.data)
    if again != densities[0]:
        raise Broken("the same records gave another density a second time")
    return allowed(sum(map(_density_loss, *densities)) / attack.case.epsilon)


Piece = tuple[float, float, float]


def _densities(attack: Attack, data: Factory) -> list[list[Piece]]:
    """Return the density of each draw as pieces (from, to, log density)."""
    first = attack.result(data)
    chances = [np.asarray(look.seen - np.logaddexp.reduce(look.seen)) for look in first.looks]
    found: list[list[Piece]] = [[] for _ in chances]
    for gap in range(len(chances[0])):
        if not all(np.isfinite(chance[gap]) for chance in chances):
            continue
        forced = attack.result(data, force=lambda _, seen, gap=gap: np.where(np.arange(seen.size) == gap, 0.0, -np.inf))
        for pieces, chance, (low, high) in zip(found, chances, forced.spans, strict=True):
            pieces.append((low, high, float(chance[gap] - math.log(high - low))))
    return found


def _density_loss(one: list[Piece], other: list[Piece]) -> float:
    worst = 0.0
    for low, high, here in one:
        for start, end, there in other:
            if min(high, end) > max(low, start):
                worst = max(worst, abs(here - there))
    ends = [(min(p[0] for p in each), max(p[1] for p in each)) for each in (one, other)]
    return worst if ends[0] == ends[1] else math.inf


def by_flips(attack: Attack) -> float:
    """Attack randomised response by the exact law of every report, lie after lie."""
    if attack.path == "real":
        return by_replay(attack)
    one, other = (_report_laws(attack, data) for data in (attack.case.data, attack.case.neighbour))
    with np.errstate(divide="ignore", invalid="ignore"):
        changes = np.nan_to_num(np.log(one) - np.log(other), nan=0.0)
    if ((one > 0) != (other > 0)).any():
        raise Broken("a report that is possible under one answer only")
    return allowed(float(np.abs(changes).max(axis=1).sum()) / attack.case.epsilon)


def _report_laws(attack: Attack, data: Factory) -> np.ndarray:
    """Return P(report of person i is r) for all persons and reports, from runs in which all lie alike, or nobody."""
    honest = attack.result(data, force=lambda _, __: np.zeros(np.shape(data()), dtype=bool))
    truth = float(honest.looks[0].seen)
    count = attack.case.categories
    chances = np.zeros((np.size(honest.result), count))
    people = np.arange(len(chances))
    np.add.at(chances, (people, honest.result), truth)
    for offset in range(1, count):
        lie = attack.result(data, force=lambda _, __: np.ones(np.shape(data()), dtype=bool), offset=offset)
        np.add.at(chances, (people, lie.result), (1 - truth) / (count - 1))
    if not np.allclose(chances.sum(axis=1), 1.0):
        raise Broken("the chances of a report do not add up to 1")
    return chances


def by_report_count(attack: Attack) -> float:
    """Attack the number of flipped answers by its exact law, a sum of two binomials."""
    loss, log_laws = 0.0, []
    if attack.path == "real":
        first = attack.result(attack.case.data)
        check_repeatable(attack, first)
        run_neighbour(attack, first)
    for data in (attack.case.data, attack.case.neighbour):
        if attack.path == "seeded":
            honest = attack.result(data, force=lambda _, __: np.False_)
            yes, truth = int(honest.result["reports"][0]), float(honest.looks[0].seen)
            lying = attack.result(data, force=lambda _, __: np.True_)
            if int(lying.result["reports"][0]) != honest.result.n - yes:
                raise Broken("where all lie, the reports must be those of the others")
        else:
            honest = attack.result(data)
            yes, truth = int(honest.looks[0].seen[0].sum()), honest.looks[0].scale
        n = honest.result.n
        ones, zeros = (
            np.exp(stats.binom.logpmf(np.arange(k + 1), k, p)) for k, p in ((yes, truth), (n - yes, 1 - truth))
        )
        log_laws.append(np.log(np.convolve(ones, zeros)))
    loss = float(np.abs(log_laws[0] - log_laws[1]).max())
    return allowed(loss / attack.case.epsilon)


def by_partitions(attack: Attack) -> float:
    """Attack a release over partitions: by its noise, and by what a black box saw of the other partitions."""
    ratio = (by_first_success if attack.case.searches else by_replay)(attack)
    if attack.case.probes is None:
        return ratio
    prints = []
    for data in (attack.case.data, attack.case.neighbour):
        partitions = attack.result(data).result.settings["partitions"]
        prints.append(attack.case.probes[-1].prints)
    # Partition after partition, and then their halves, in the same order twice.
    changed = {place % partitions for place, pair in enumerate(zip(*prints, strict=False)) if pair[0] != pair[1]}
    if len(changed) > 1 or len(prints[0]) != len(prints[1]):
        raise Broken(f"one replaced record changed {len(changed)} partitions of {partitions}")
    return ratio


def by_gradients(attack: Attack) -> float:
    """Attack noisy gradients, step by step given the steps before; batches are those of the first run.

    With all records in every batch the steps are Gaussian looks and delta is exact. With a sample of them a step's
    sum may move by twice the clipping norm, and the noise for that is checked against another accountant's epsilon.
    """
    first = attack.result(attack.case.data)
    check_repeatable(attack, first)
    second = run_neighbour(attack, first)
    pairs = laws.pair_up(first, second)
    settings = first.result.settings
    steps = [pair for pair in pairs if pair[0].law == "gaussian"]
    if len(steps) != settings["steps"]:
        raise Broken(f"{len(steps)} noisy steps, {settings['steps']} claimed")
    if settings["sampling"] == 1:
        return allowed(laws.gaussian_ratio(pairs, attack.case.epsilon, attack.case.delta))
    clip, multiplier = settings["clip"], settings["noise_multiplier"]
    if not all(np.isclose(one.scale, multiplier * clip) for one, _ in steps):
        raise Broken("the noise of a step is not the multiplier times the clipping norm")
    spent = accounted(multiplier, attack.case.delta, settings["sampling"], settings["steps"])
    largest = max(float(np.linalg.norm(laws.distances(*pair))) for pair in steps) / (2 * clip)
    return allowed(max(largest, spent / attack.case.epsilon))


_ACCOUNTED: dict[tuple[float, ...], float] = {}


def accounted(multiplier: float, delta: float, sampling: float, steps: int) -> float:
    """Return the epsilon of noisy steps by dp-accounting's privacy loss distributions, on a grid of our own."""
    key = (multiplier, delta, sampling, steps)
    if key not in _ACCOUNTED:
        accountant = pld.PLDAccountant(NeighboringRelation.REPLACE_ONE, value_discretization_interval=1e-4)
        accountant.compose(PoissonSampledDpEvent(sampling, GaussianDpEvent(multiplier)), steps)
        _ACCOUNTED[key] = float(accountant.get_epsilon(delta))
    return _ACCOUNTED[key]


def by_chain(attack: Attack) -> float:
    """Attack a chain: each look given all before it; of three types at the values drawn, of two over all values."""
    first = attack.result(attack.case.data)
    check_repeatable(attack, first)
    pairs = laws.pair_up(first, run_neighbour(attack, first))
    emission = [pair for pair in pairs if pair[0].law == "softmax"]
    states = [pair for pair in pairs if pair[0].law == "uniform"]
    loss = laws.pure_loss(states)
    if np.shape(first.result["emission"])[-1] == 2:
        largest = laws.pure_loss(emission)
    else:
        largest = abs(laws.realised_loss(emission))
    return allowed((abs(loss) + largest) / attack.case.epsilon)


def by_errors(attack: Attack, refused: Iterable[Mapping[str, Any]], odd: Iterable[Mapping[str, Any]] = ()) -> None:
    """Raise unless wrong arguments raise with nothing charged and nothing drawn; odd ones may be taken."""
    for overrides, must in [*((each, True) for each in refused), *((each, False) for each in odd)]:
        run = attack.run(attack.case.data, overrides=overrides, budget=1e301 / attack.case.epsilon)
        if run.error is None and must:
            raise Broken(f"{overrides} was taken")
        if run.error is not None and run.events:
            raise Broken(f"{overrides} raised after {run.events[0]}: {run.error}") from run.error
    short = attack.run(attack.case.data, budget=0.5)
    if attack.charges and (not isinstance(short.error, BudgetExceeded) or short.events):
        raise Broken(f"half of the budget that is needed gave {short.error!r} and {short.events}")
