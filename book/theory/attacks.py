"""Adversarial searches: each tries to refute a claim of the chapter, over wide ranges and in their corners.

An attack has ranges, and a function that computes at a point by how much the claim is violated there: the logarithm of
what is true over what is claimed. A positive value refutes the claim; a search that finds none has proved nothing, and
its result says over which ranges it looked. Each point names one pair of neighbours, so that pairs are searched too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import special

from dpbook.theory import BetaBernoulli, NormalKnownVariance, epsilon_for, pair_profile, privacy_profile

Point = Mapping[str, float]
Place = NDArray[np.float64]  # a point on the scales of the search
_WHOLE = frozenset({"n", "m", "draws"})
_NAMES = {"epsilon": "ε", "log_delta": "ln(1/δ)", "c1": "c₁", "draws": "k", "reach": "R/σ", "floor": "a₀"}
_NAMES |= {"lopsided": "β/α", "share": "the share of ones", "alpha": "α", "prior_sd": "σ₀/σ"}
_ROUNDING = 1e-8  # of a logarithm of delta
_CLIMBS = 12  # from the best starts, and as many from others


@dataclass(frozen=True)
class Attack:
    """A search for a counterexample to a claim.

    ``violation`` takes a point and returns the logarithm of what is true over what is claimed; positive refutes. Ranges
    are searched on a logarithmic scale, or on a linear one if they begin below 0. ``starts`` is how many points the
    committed search begins with; fewer where one takes long.
    """

    claim: str
    ranges: Mapping[str, tuple[float, float]]
    violation: Callable[[Point], float] = field(repr=False)
    starts: int = 4000

    @property
    def over(self) -> str:
        """The ranges in words."""
        return ", ".join(f"{_NAMES.get(k, k)} from {low:g} to {high:g}" for k, (low, high) in self.ranges.items())


class Attacked(NamedTuple):
    """What a search found: the largest violation, where, and how many points were computed."""

    worst: float
    at: dict[str, float]
    evaluations: int

    @property
    def refuted(self) -> bool:
        """Whether the violation exceeds the rounding of the profiles."""
        return self.worst > _ROUNDING


def attack(claim: str, *, starts: int | None = None, steps: int = 60, seed: int = 0) -> Attacked:
    """Search for a counterexample to a claim.

    Starts are drawn uniformly over the ranges, on their scales; every coordinate lies at an end of its range with
    probability 1/8. From the best starts, and from as many arbitrary ones, random walks with shrinking steps climb on.
    """
    if claim not in ATTACKS:
        raise ValueError(f"claim must be one of {', '.join(ATTACKS)}, got {claim!r}")
    one = ATTACKS[claim]
    starts = one.starts if starts is None else starts
    if starts < 1:
        raise ValueError(f"starts must be at least 1, got {starts}")
    rng = np.random.default_rng(seed)
    low, high = np.array([each if each[0] <= 0 else np.log(each) for each in one.ranges.values()]).T
    places = rng.uniform(low, high, (starts, len(low)))
    ends = rng.uniform(size=places.shape)
    places = np.where(ends < 1 / 16, low, np.where(ends < 1 / 8, high, places))
    values = np.array([_value(one, place) for place in places])
    # Half of the climbs begin at the best starts, which may all lie on one hill; the others at the first ones.
    chosen = np.unique(np.concatenate([np.argsort(-values)[:_CLIMBS], np.arange(min(starts, _CLIMBS))]))
    found = [_climbed(one, (values[i], places[i]), (low, high), steps, rng) for i in chosen]
    value, place = max(found, key=lambda each: each[0])
    return Attacked(float(value), _point(one, place), starts + len(found) * steps)


def _climbed(
    one: Attack, start: tuple[float, Place], box: tuple[Place, Place], steps: int, rng: np.random.Generator
) -> tuple[float, Place]:
    """Return where a random walk with shrinking steps, which only climbs, gets to from a start."""
    (value, place), (low, high) = start, box
    for step in range(steps):
        width = (high - low) * 0.2 * 0.9**step
        moved = rng.standard_normal(len(low)) * (rng.uniform(size=len(low)) < 0.6)
        trial = np.clip(place + width * moved, low, high)
        tried = _value(one, trial)
        if tried > value:
            value, place = tried, trial
    return value, place


def _point(one: Attack, place: Place) -> dict[str, float]:
    point = {}
    for (name, (low, _)), value in zip(one.ranges.items(), place, strict=True):
        there = float(value if low <= 0 else math.exp(value))
        point[name] = float(round(there)) if name in _WHOLE else there
    return point


def _value(one: Attack, place: Place) -> float:
    """Return the violation at a point; a point that the claim says nothing about counts as minus infinity."""
    found = one.violation(_point(one, place))
    if math.isnan(found):
        raise ArithmeticError(f"the violation of {one.claim} is no number at {_point(one, place)}")
    return found


# Pairs of neighbours --------------------------------------------------------------------------------------------------


def _sides(point: Point, weakest: float) -> tuple[float, float]:
    """Return (a, b) of one pair: the weaker of the two priors is given, ``lopsided`` times as strong is the other."""
    n = point["n"]
    ones = min(round(point["share"] * n) - 1, n - 1) if point["share"] * n >= 1 else 0.0
    return weakest + ones, weakest * point["lopsided"] + n - 1 - ones


def _coins(kind: str, a: float, b: float, epsilon: float, **options: Any) -> float:
    """Return log delta of Beta(a + 1, b) and Beta(a, b + 1), in the worse order.

    That is the pair of one person who says yes or no, under the prior Beta(a, b) that everybody else leaves behind.
    """
    return float(privacy_profile(kind, BetaBernoulli(a, b), 1, epsilon=epsilon, log=True, **options))


def log_gaussian_delta(shift: float, epsilon: float) -> float:
    """Return log delta of a Gaussian mechanism that moves by ``shift`` sds: one bell between two bounds."""
    return privacy_profile("sample", NormalKnownVariance(bound=shift / 2), 1, epsilon=epsilon, log=True)


def _truncated(one: float, other: float, interval: tuple[float, float], epsilon: float) -> float:
    """Return log delta of N(one, 1) against N(other, 1), both truncated to an interval."""
    bells = NormalKnownVariance(bound=2 * max(abs(one), abs(other)))
    found = pair_profile("sample", bells, [one], [other], epsilon=epsilon, truncate=interval, log=True)
    return float(found)


def _rate(c1: float, epsilon: float) -> float:
    """Return c₁ h(ε/c₁), h(u) = (1+u) ln(1+u) - u, without cancellation for small u."""
    u = epsilon / c1
    if u < 1e-3:
        return c1 * u * u * (1 / 2 - u * (1 / 6 - u * (1 / 12 - u / 20)))
    return c1 * ((1 + u) * math.log1p(u) - u)


def _log_cosh(x: float) -> float:
    return x + math.log1p(math.exp(-2 * x)) - math.log(2) if x > 0.1 else math.log1p(math.sinh(x / 2) ** 2 * 2)


# Violations -----------------------------------------------------------------------------------------------------------


def _draw(least: Callable[[Point], float]) -> Callable[[Point], float]:
    """Return the violation of a condition on the prior of one draw of coins."""

    def violation(point: Point) -> float:
        a, b = _sides(point, least(point))
        return _coins("sample", a, b, point["epsilon"]) + point["log_delta"]

    return violation


def _redrawn_condition(least: Callable[[Point], float]) -> Callable[[Point], float]:
    """Return the violation of a condition on the prior of c₁n redrawn records."""

    def violation(point: Point) -> float:
        m = math.floor(point["c1"] * point["n"] + 1e-9)
        if not 1 <= m <= 2_000_000:  # no record, or too many to list
            return -math.inf
        a, b = _sides(point, least(point))
        return _coins("synthetic-bayes", a, b, point["epsilon"], m=m) + point["log_delta"]

    return violation


def _some_constant(point: Point) -> float:
    """Return the prior that the chapter proves to be enough for ε ≤ 1, as a multiple of ln(1/δ)/ε²."""
    c1, free = point["c1"], -math.log1p(-(4.0 ** -point["c1"]))
    if point["log_delta"] <= free:
        return 1e-9  # any prior will do
    return (1 + 1 / free) / _rate(c1, 1.0) * point["log_delta"] / point["epsilon"] ** 2


def _largest_ratio(a: float, b: float, m: float, blocks: float) -> float:
    """Return the largest log ratio of m records from ``blocks`` draws: that of all ones, or of all zeros.

    Record by record, as an urn fills: the (i+1)-th one has probability (a + 1 + i)/(a + b + 1 + i) under the first law
    and (a + i)/(a + b + 1 + i) under the second.
    """
    before = np.arange(round(m / blocks))
    return float(blocks * max(np.sum(np.log1p(1 / (a + before))), np.sum(np.log1p(1 / (b + before)))))


def _pure(blocks: Callable[[Point], float], *, constant: float = 1.0, lower: bool = False) -> Callable[[Point], float]:
    """Return the violation of "enough (or, ``lower``, needed) is a prior of constant m/ε"."""

    def violation(point: Point) -> float:
        weakest = constant * point["m"] / point["epsilon"]
        if lower and point["epsilon"] > min(1.0, point["m"]):
            return -math.inf
        if not lower:
            a, b = _sides(point, weakest)
            return math.log(_largest_ratio(a, b, point["m"], blocks(point)) / point["epsilon"])
        ends = (_sides({**point, "lopsided": 1.0, "share": share}, weakest) for share in (1e-12, 1.0))
        return math.log(point["epsilon"] / max(_largest_ratio(*side, point["m"], blocks(point)) for side in ends))

    return violation


def _mode(point: Point) -> float:
    weakest = point["m"] / point["epsilon"] / (1 - math.exp(-1)) - 1
    if point["epsilon"] > point["m"]:
        return -math.inf
    a, b = _sides(point, weakest)
    return math.log(point["m"] * max(math.log1p(1 / a), math.log1p(1 / b)) / point["epsilon"])


def _half(point: Point) -> float:
    return point["m"] / 2 if point["m"] > 1 else 1.0


def _bell(shift: Callable[[Point], float]) -> Callable[[Point], float]:
    """Return the violation of a condition that allows a Gaussian mechanism the given shift."""
    return lambda point: log_gaussian_delta(shift(point), point["epsilon"]) + point["log_delta"]


def _record_shift(point: Point) -> float:
    root = math.sqrt(point["epsilon"])
    return math.sqrt(2) * point["epsilon"] / (point["log_delta"] + root)


def _restricted_record(point: Point) -> float:
    """Return the violation of c = √2 for one record truncated to [-R, R], at one centre."""
    reach = point["reach"]
    n = max(1.0, math.ceil(2 * reach / _record_shift(point) * (1 - 1e-12)))
    move = 2 * reach / n
    lower = -reach + (2 * reach - move) * point["share"]
    pairs = ((lower + move, lower), (lower, lower + move))
    return max(_truncated(*pair, (-reach, reach), point["epsilon"]) for pair in pairs) + point["log_delta"]


def _restriction(point: Point) -> float:
    """Return how much farther apart two truncated bells are than the two bells; the lower centre is at 0."""
    start, width, move = point["start"], point["width"], point["move"]
    free = log_gaussian_delta(move, point["epsilon"])
    if free < -700:
        return -math.inf
    return _truncated(move, 0.0, (start, start + width), point["epsilon"]) - free


def _truncated_pure(kind: str) -> Callable[[Point], float]:
    def violation(point: Point) -> float:
        reach, n = point["reach"], int(point["n"])
        model = NormalKnownVariance(bound=reach, prior_sd=point["prior_sd"])
        exact = epsilon_for(kind, model, n, delta=0.0, truncate=(-reach, reach))
        return math.log(exact / (4 * reach**2 / (1 if kind == "sample" else n)))

    return violation


def _exponential(point: Point) -> float:
    low = point["floor"]
    prior = BetaBernoulli(point["alpha"], point["alpha"] * point["lopsided"])
    exact = epsilon_for("sample", prior, int(point["n"]), delta=0.0, truncate=(low, 1 - low))
    return math.log(exact / (2 * math.log((1 - low) / low)))


def _kept_against_redrawn(point: Point) -> float:
    m, epsilon = int(point["m"]), point["epsilon"]
    a, b = _sides(point, point["alpha"])
    kept = _coins("synthetic-bayes", a, b, epsilon, m=m, redraw=False)
    return kept - _coins("synthetic-bayes", a, b, epsilon, m=m) if kept > -700 else -math.inf


def log_draws_delta(a: float, b: float, draws: int, epsilon: float, *, points: int = 2**14) -> float:
    """Return log delta of several draws from Beta(a + 1, b) against as many from Beta(a, b + 1), by FFT.

    The sum of the log odds is enough; its density is a convolution. Accurate to about 1e-10 of the total mass.
    """
    mean = special.digamma(a + 1) - special.digamma(b)
    sd = math.sqrt(special.polygamma(1, a + 1) + special.polygamma(1, b))
    half = 12 * sd * math.sqrt(draws) + 40 / min(a, b)
    y = np.linspace(-half, half, points, endpoint=False)
    logs = (a + 1) * (mean + y) - (a + b + 1) * np.logaddexp(0, mean + y) - special.betaln(a + 1, b)
    one = np.exp(logs) * (y[1] - y[0])
    many = np.fft.fftshift(np.fft.irfft(np.fft.rfft(np.fft.ifftshift(one / one.sum())) ** draws))
    loss = y + draws * (mean - math.log(a / b))
    total = float(many @ -np.expm1(np.minimum(epsilon - loss, 0.0)))
    return math.log(max(total, 1e-300))


def _inner_pair_of_draws(point: Point) -> float:
    """Return by how much a pair between the ends is worse than the ends, for several draws."""
    draws, epsilon, n, alpha = int(point["draws"]), point["epsilon"], point["n"], point["alpha"]
    a, b = _sides(point, alpha)
    beta = alpha * point["lopsided"]
    ends = [(alpha, beta + n - 1), (alpha + n - 1, beta)]

    def either(a: float, b: float) -> float:
        return max(log_draws_delta(a, b, draws, epsilon), log_draws_delta(b, a, draws, epsilon))

    worst = max(either(*end) for end in ends)
    if worst < math.log(1e-6):  # below, the transform's rounding would be judged
        return -math.inf
    return either(a, b) - worst


_PAIR = {"n": (1.0, 1e6), "lopsided": (1.0, 1e3), "share": (1e-6, 1.0)}
_PROMISE = {"epsilon": (1e-3, 100.0), "log_delta": (1e-4, 500.0)}
_GAUSS = {"epsilon": (1e-4, 1e6), "log_delta": (1e-4, 700.0)}
_FILE = {"m": (1.0, 1e4), "epsilon": (1e-3, 100.0)}
_ATTACKS = (
    Attack(
        "coins-II-approximate",
        {"epsilon": (1e-3, 1.0), "log_delta": (1e-4, 500.0), **_PAIR, "n": (2.0, 1e6)},
        _draw(lambda p: 6.1 * math.log(p["n"]) * p["log_delta"] / p["epsilon"] ** 2),
    ),
    Attack(
        "coins-II-mended",
        {**_PROMISE, **_PAIR},
        _draw(lambda p: p["log_delta"] / (2 * _log_cosh(p["epsilon"] / 2))),
    ),
    Attack("coins-III-pure-mode", {**_FILE, **_PAIR}, _mode),
    Attack("coins-III-pure-mean", {**_FILE, **_PAIR}, _pure(lambda p: p["m"])),
    Attack("coins-IV-pure-kept", {**_FILE, **_PAIR}, _pure(lambda p: 1.0)),
    Attack("coins-IV-pure-redrawn", {**_FILE, **_PAIR}, _pure(lambda p: p["m"])),
    Attack("coins-IV-pure-some-draws", {**_FILE, **_PAIR}, _pure(_half)),
    Attack(
        "coins-IV-lower-bound",
        {"m": (1.0, 1e4), "epsilon": (1e-3, 1.0), "n": (1.0, 1e6)},
        _pure(lambda p: 1.0, constant=0.58, lower=True),
    ),
    Attack(
        "coins-IV-lower-bound-redrawn",
        {"m": (1.0, 1e4), "epsilon": (1e-3, 1.0), "n": (1.0, 1e6)},
        _pure(lambda p: p["m"], constant=0.58, lower=True),
    ),
    Attack(
        "coins-IV-approximate",
        {"c1": (1e-3, 20.0), "epsilon": (1e-3, 1.0), "log_delta": (1e-4, 500.0), **_PAIR, "n": (2.0, 1e5)},
        _redrawn_condition(_some_constant),
    ),
    Attack(
        "coins-IV-mended",
        {"c1": (1e-3, 1e4), **_PROMISE, **_PAIR, "n": (1.0, 1e5)},
        _redrawn_condition(lambda p: (p["log_delta"] + p["epsilon"]) / _rate(p["c1"], p["epsilon"])),
    ),
    Attack(
        "coins-IV-half-epsilon",
        {"c1": (1e-3, 1e4), **_PROMISE, **_PAIR, "n": (1.0, 1e5)},
        _redrawn_condition(lambda p: (p["log_delta"] + p["epsilon"] / 2) / _rate(p["c1"], p["epsilon"])),
    ),
    Attack(
        "coins-IV-without-epsilon",
        {"c1": (1e-3, 1e4), **_PROMISE, **_PAIR, "n": (1.0, 1e5)},
        _redrawn_condition(lambda p: p["log_delta"] / _rate(p["c1"], p["epsilon"])),
    ),
    Attack(
        "coins-fewer-draws",
        {"m": (1.0, 1e4), "epsilon": (1e-3, 10.0), "alpha": (1e-3, 1e4), **_PAIR},
        _kept_against_redrawn,
    ),
    Attack(
        "coins-many-draws",
        {"draws": (1.0, 100.0), "epsilon": (1e-3, 30.0), "alpha": (0.3, 100.0), **_PAIR, "n": (2.0, 1e4)},
        _inner_pair_of_draws,
        1500,
    ),
    Attack(
        "bells-II-pure",
        {"reach": (1e-3, 100.0), "n": (1.0, 1e6), "prior_sd": (1e-3, 1e3)},
        _truncated_pure("sample"),
    ),
    Attack(
        "bells-II-approximate",
        _GAUSS,
        _bell(lambda p: p["epsilon"] * math.sqrt(4 / 2.4 / (p["log_delta"] ** 2 + p["epsilon"]))),
    ),
    Attack(
        "bells-II-constant",
        _GAUSS,
        _bell(lambda p: p["epsilon"] * math.sqrt(4 / 2.31 / (p["log_delta"] ** 2 + p["epsilon"]))),
    ),
    Attack(
        "bells-II-one-logarithm",
        _GAUSS,
        _bell(lambda p: p["epsilon"] * math.sqrt(0.5 / (p["log_delta"] + p["epsilon"]))),
    ),
    Attack(
        "bells-III-IV-pure",
        {"reach": (1e-3, 100.0), "n": (1.0, 1e6), "prior_sd": (1e-3, 1e3)},
        _truncated_pure("synthetic-plugin"),
    ),
    Attack("bells-III-IV-approximate", _GAUSS, _bell(_record_shift)),
    Attack(
        "bells-III-IV-approximate-restricted",
        {"reach": (1e-3, 1e3), "epsilon": (1e-4, 1e3), "log_delta": (1e-4, 300.0), "share": (1e-6, 1.0)},
        _restricted_record,
    ),
    Attack(
        "bells-restriction-free",
        {"move": (1e-3, 30.0), "epsilon": (1e-3, 100.0), "start": (-30.0, 30.0), "width": (1e-3, 30.0)},
        _restriction,
    ),
    Attack(
        "exponential-mechanism",
        {"floor": (1e-4, 0.49), "alpha": (1e-2, 1e3), "lopsided": (1.0, 1e3), "n": (1.0, 1e5)},
        _exponential,
        600,
    ),
)
ATTACKS: dict[str, Attack] = {each.claim: each for each in _ATTACKS}
