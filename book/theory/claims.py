"""The claims of the poster on the privacy of Bayesian inference, as data: each with a check, a constant, a verdict.

A claim "there is a c such that the release is private if x ≥ c y" is judged by the smallest c that works: at each point
of a stated grid the smallest sufficient x is computed from exact profiles and divided by y. Other claims have a check
of their own. A check computes numbers, and numbers prove nothing that is said of all cases: a claim is called proved
only where the book has a proof, which it names, and otherwise not refuted, by a search of :mod:`attacks`. Neighbours
are replace-one, n public. The chapter's table is rendered from :func:`claims_table`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from attacks import ATTACKS, attack, log_gaussian_delta
from scipy import optimize

from dpbook.theory import (
    BetaBernoulli,
    NormalKnownVariance,
    epsilon_for,
    equal_information,
    exponential_view,
    prior_for,
    privacy_profile,
    smallest_n,
)

Point = Mapping[str, Any]
_SHORT = 100  # starts of a search that a check runs
VERDICTS = ("proved", "proved with a condition", "not refuted", "fails as printed", "fails")


class Finding(NamedTuple):
    """What checking a claim gave: a verdict, one sentence with the numbers, and where it fails as printed, if it does.

    "fails as printed" means that a mended form holds.
    """

    verdict: str
    evidence: str
    counterexample: str = ""


class Constant(NamedTuple):
    """The smallest constant with which a claim holds on a grid, infinite where none will do, and where it is needed."""

    value: float
    at: dict[str, Any]


@dataclass(frozen=True)
class Claim:
    """One claim of a source.

    ``statement`` says it in our words, with LaTeX between dollars; ``condition`` is what our verdict assumes. For
    "there is a c", ``ratio`` returns the c that one point of ``grid`` needs; ``largest`` says that the claim restricts
    from above (x ≤ c y). ``proof`` holds the labels of the theorems that prove it, as they stand in the book.
    """

    name: str
    source: str
    statement: str
    condition: str
    verdict: str
    test: Callable[[], Finding] = field(repr=False)
    ratio: Callable[[Point], float] | None = field(default=None, repr=False)
    grid: Mapping[str, Sequence[Any]] = field(default_factory=dict, repr=False)
    largest: bool = False
    proof: tuple[str, ...] = ()

    def check(self) -> Finding:
        """Compute the verdict anew from exact profiles; what holds is proved only if there is a proof."""
        found = self.test()
        words = "proved" if self.proof else "not refuted"
        return found._replace(verdict=found.verdict.replace("holds", words))


def _points(grid: Mapping[str, Sequence[Any]]) -> Iterable[dict[str, Any]]:
    for values in itertools.product(*grid.values()):
        yield dict(zip(grid, values, strict=True))


def smallest_constant(name: str, grid: Mapping[str, Sequence[Any]] | None = None) -> Constant:
    """Return the smallest c for which a claim "there is a c such that ..." holds on a grid, by default its own.

    For a claim that restricts from above (R/σ ≤ c √ε), the largest.
    """
    one = claim(name)
    if one.ratio is None:
        raise ValueError(f"claim must have a constant to search for; {name!r} has none")
    if grid is None:
        return _on_own_grid(name)
    if unknown := set(grid) ^ set(one.grid):
        raise ValueError(f"grid must give exactly {', '.join(one.grid)}; check {', '.join(sorted(unknown))}")
    return _search(one, grid)


def _search(one: Claim, grid: Mapping[str, Sequence[Any]]) -> Constant:
    assert one.ratio is not None
    found = [Constant(one.ratio(point), point) for point in _points(grid)]
    if not found:
        raise ValueError("grid must hold at least one point")
    return (min if one.largest else max)(found, key=lambda each: each.value)


@cache
def _on_own_grid(name: str) -> Constant:
    one = claim(name)
    return _search(one, one.grid)


# What each point of a grid needs --------------------------------------------------------------------------------------

_COINS = BetaBernoulli()


def _alpha(kind: str, n: int, epsilon: float, delta: float, **options: Any) -> float:
    found = prior_for(kind, _COINS, n, epsilon=epsilon, delta=delta, **options)
    return found.alpha if isinstance(found, BetaBernoulli) else math.inf


def _over(needed: float, printed: float) -> float:
    return needed / printed if printed > 0 else math.inf


def _coins_draw(point: Point) -> float:
    n, epsilon, delta = point["n"], point["epsilon"], point["delta"]
    return _over(_alpha("sample", n, epsilon, delta), math.log(n) * math.log(1 / delta) / epsilon**2)


def _coins_draw_mended(point: Point) -> float:
    n, epsilon, delta = point["n"], point["epsilon"], point["delta"]
    return _over(_alpha("sample", n, epsilon, delta), math.log(1 / delta) / (2 * math.log(math.cosh(epsilon / 2))))


def _coins_pure(kind: str, **options: Any) -> Callable[[Point], float]:
    def ratio(point: Point) -> float:
        m, epsilon = point["m"], point["epsilon"]
        more = {**options, "redraw": m // 2} if options.get("redraw") == "half" else options
        return _over(_alpha(kind, 50, epsilon, 0.0, m=m, **more), m / epsilon)

    return ratio


def _coins_lower(point: Point) -> float:
    """Return the constant of a lower bound: alpha must be at least this times m/epsilon."""
    return _coins_pure("synthetic-bayes", redraw=False)(point)


def _coins_synthetic(point: Point) -> float:
    n, epsilon, delta = point["n"], point["epsilon"], point["delta"]
    m = round(point["c1"] * n)
    return _over(_alpha("synthetic-bayes", n, epsilon, delta, m=m), math.log(1 / delta) / epsilon**2)


def _coins_synthetic_mended(extra: float) -> Callable[[Point], float]:
    """Return the ratio to (ln(1/δ) + extra ε)/(c₁ h(ε/c₁)): the theorem has 1 for extra, and 0 is false."""

    def ratio(point: Point) -> float:
        n, epsilon, delta, c1 = point["n"], point["epsilon"], point["delta"], point["c1"]
        u = epsilon / c1
        rate = c1 * ((1 + u) * math.log1p(u) - u)
        needed = _alpha("synthetic-bayes", n, epsilon, delta, m=round(c1 * n))
        return _over(needed, (math.log(1 / delta) + extra * epsilon) / rate)

    return ratio


def _gaussian_shift(epsilon: float, delta: float) -> float:
    """Return the largest mu of a Gaussian mechanism that is (epsilon, delta)-DP."""

    def gap(log_mu: float) -> float:
        return max(log_gaussian_delta(math.exp(log_mu), epsilon), -1e5) - math.log(delta)

    return math.exp(optimize.brentq(gap, math.log(1e-8), math.log(1e8), xtol=1e-13))


def _bells_draw(power: int) -> Callable[[Point], float]:
    def ratio(point: Point) -> float:
        epsilon, delta = point["epsilon"], point["delta"]
        needed = 4 / _gaussian_shift(epsilon, delta) ** 2  # n σ²/R²
        return float(needed * epsilon / (math.log(1 / delta) ** power / epsilon + 1))

    return ratio


def _bells_draw_pure(restriction: str) -> Callable[[Point], float]:
    def ratio(point: Point) -> float:
        reach = point["reach"]
        model = NormalKnownVariance(bound=reach)
        exact = epsilon_for("sample", model, point["n"], delta=0.0, truncate=(-reach, reach), restriction=restriction)
        return float(reach / math.sqrt(exact))

    return ratio


def _bells_point_pure(restriction: str) -> Callable[[Point], float]:
    def ratio(point: Point) -> float:
        reach, n = point["reach"], point["n"]
        model = NormalKnownVariance(bound=reach)
        exact = epsilon_for(point["release"], model, n, delta=0.0, truncate=(-reach, reach), restriction=restriction)
        return float(exact * n / reach**2)

    return ratio


def _bells_point(point: Point) -> float:
    epsilon, delta = point["epsilon"], point["delta"]
    needed = 2 / _gaussian_shift(epsilon, delta)  # n σ/R
    return float(needed * math.sqrt(epsilon) / (math.log(1 / delta) / math.sqrt(epsilon) + 1))


def _bells_point_restricted(point: Point) -> float:
    epsilon, delta, reach = point["epsilon"], point["delta"], point["reach"]
    needed = smallest_n(
        "synthetic-plugin",
        NormalKnownVariance(bound=reach),
        epsilon=epsilon,
        delta=delta,
        truncate=(-reach, reach),
    )
    return float(needed / (reach / math.sqrt(epsilon) * (math.log(1 / delta) / math.sqrt(epsilon) + 1)))


# Checks ---------------------------------------------------------------------------------------------------------------


def _show(point: Point) -> str:
    return ", ".join(f"{key} = {value:g}" if not isinstance(value, str) else value for key, value in point.items())


def _estimate() -> Finding:
    deltas = [
        privacy_profile("estimate", model, n, epsilon=50.0)
        for model in (BetaBernoulli(100, 100), NormalKnownVariance(bound=0.1))
        for n in (1, 1000)
    ]
    holds = min(deltas) == 1.0
    return Finding("holds" if holds else "fails", "neighbours give different estimates: δ = 1 at every ε")


def _unbounded_loss(kind: str, model: BetaBernoulli | NormalKnownVariance) -> Finding:
    grows = [epsilon_for(kind, model, 20, delta=10.0**-k) for k in (3, 30, 300)]
    holds = epsilon_for(kind, model, 20, delta=0.0) == math.inf and grows[0] < grows[1] < grows[2]
    shown = ", ".join(f"{each:.1f}" for each in grows)
    return Finding("holds" if holds else "fails", f"ε = {shown} at δ = 1e-3, 1e-30, 1e-300 (n = 20): no end")


def _caption() -> Finding:
    printed, neighbour = [1] * 10, [1] + [0] * 9
    apart = sum(a != b for a, b in zip(printed, neighbour, strict=True))
    return Finding(
        "fails as printed",
        "ten zeros against a one and nine zeros must be meant",
        f"ten ones and (1, 0, …, 0) differ in {apart} records",
    )


def _with_constant(name: str, mended: str = "", exception: Callable[[], str] | None = None) -> Callable[[], Finding]:
    """Return a check that a constant exists on the claim's grid, and that what must fail outside of it does."""

    def test() -> Finding:
        constant = smallest_constant(name)
        broken = exception() if exception else ""
        if not math.isfinite(constant.value):
            return Finding("fails", "no constant will do", _show(constant.at))
        verdict = ("holds with a condition" if mended == "condition" else "fails as printed") if broken else "holds"
        return Finding(verdict, f"c = {constant.value:.4g} on the grid, at {_show(constant.at)}", broken)

    return test


def _draw_exceptions() -> str:
    one = privacy_profile("sample", BetaBernoulli(1, 1), 1, epsilon=1.0)
    alpha = 6.1 * math.log(2) * math.log(1e6) / 10**2
    large = privacy_profile("sample", BetaBernoulli(alpha, alpha), 2, epsilon=10.0)
    if one <= 1e-6 or large <= 1e-6:
        return ""
    return (
        f"n = 1 makes the condition empty: α = β = 1, ε = 1 has δ = {one:.3f}; and c = 6.1 at n = 2, ε = 10 "
        f"allows α = {alpha:.2f}, where δ = {large:.1e}, not 1e-6"
    )


def _mode_exceptions() -> str:
    flat = epsilon_for("synthetic-plugin", BetaBernoulli(1, 1), 10, m=1, delta=0.0)
    far = smallest_constant("coins-III-pure-mode", {"m": [1], "epsilon": [30.0]}).value
    if flat < math.inf or far < 10:
        return ""
    return f"α = β = 1: the mode can be 0 or 1, and ε is infinite; m = 1, ε = 30 needs c = {far:.1f}"


def _lower_bound() -> Finding:
    small = min(_coins_lower({"m": m, "epsilon": e}) for m in (1, 10, 100) for e in (0.1, 0.5, 1.0))
    large = _coins_lower({"m": 10, "epsilon": 20.0})
    holds = small > 0.58 and large < 1e-6
    return Finding(
        "holds with a condition" if holds else "fails",
        f"for ε ≤ 1 at least {small:.3f} m/ε is needed; exactly m/(e^ε - 1)",
        f"m = 10, ε = 20: α = {large * 0.5:.1e} is enough, {large:.1e} of m/ε",
    )


def _redrawn_lower_bound() -> Finding:
    ratios = [
        _coins_pure("synthetic-bayes")({"m": m, "epsilon": e}) for m in (1, 10, 100) for e in (0.1, 0.5, 1.0) if e <= m
    ]
    holds = min(ratios) > 0.58
    return Finding("holds" if holds else "fails", f"redrawn, at least {min(ratios):.3f} m/ε is needed for ε ≤ 1")


def _unrestricted() -> Finding:
    deltas = [
        privacy_profile(kind, NormalKnownVariance(bound=math.inf, prior_sd=sd), n, epsilon=30.0)
        for kind in ("sample", "synthetic-plugin", "synthetic-bayes")
        for n in (1, 10**6)
        for sd in (math.inf, 0.1)
    ]
    far = privacy_profile("sample", NormalKnownVariance(bound=1e6), 10**6, epsilon=30.0)
    holds = min(deltas) == 1.0 and far > 0.999999
    return Finding(
        "holds" if holds else "fails",
        f"δ tends to 1 at every ε as the bound grows: with R = 1e6 σ and n = 1e6 it is {far:.6f} at ε = 30",
    )


def _neither() -> Finding:
    model = NormalKnownVariance(bound=5)
    found = {kind: privacy_profile(kind, model, 100, epsilon=1.0) for kind in ("synthetic-plugin", "synthetic-bayes")}
    false = max(found.values()) < 1e-20
    return Finding(
        "fails as printed" if false else "holds",
        "both are Gaussian mechanisms; what fails is pure ε",
        f"R = 5, σ = 1, n = 100, one record, ε = 1: δ = {found['synthetic-plugin']:.1e} (III)",
    )


def _clamped_draw() -> Finding:
    exact = epsilon_for(
        "sample", NormalKnownVariance(bound=0.1), 1, delta=0.0, truncate=(-0.1, 0.1), restriction="clamp"
    )
    worst = smallest_constant("bells-II-pure-clamped").value
    return Finding(
        "fails" if exact > 0.04 and worst < 0.1 else "holds",
        f"clamping puts point masses at the ends; on the grid c must be {worst:.3f} or less, and it tends to 0",
        f"R/σ = 0.1, n = 1: ε = {exact:.3f}, not {4 * 0.1**2:.2f}",
    )


def _clamped_point() -> Finding:
    found = {
        reach: _bells_point_pure("clamp")({"reach": reach, "n": 1000, "release": "synthetic-plugin"}) / 4
        for reach in (0.1, 0.4, 1.0, 5.0)
    }
    fails = all(each > 1 for each in found.values())
    shown = ", ".join(f"{each:.2f} at {reach:g}" for reach, each in found.items())
    return Finding(
        "fails" if fails else "holds",
        "c = 4 is exceeded at every R/σ, without limit as R/σ falls",
        f"n = 1000: ε over 4R²/(σ²n) is {shown}",
    )


def _without_epsilon() -> Finding:
    """Check the counterexample: what the condition allows at c₁ = 20, ε = 8, δ = .1 has δ = .145."""
    c1, epsilon, delta, n = 20.0, 8.0, 0.1, 2000
    u = epsilon / c1
    alpha = math.log(1 / delta) / (c1 * ((1 + u) * math.log1p(u) - u))
    found = privacy_profile("synthetic-bayes", BetaBernoulli(alpha, alpha), n, m=round(c1 * n), epsilon=epsilon)
    limit = math.exp(log_gaussian_delta(8 / math.sqrt(2 * math.log(100)), 8.0))
    return Finding(
        "fails" if found > delta and limit > 0.01 else "holds",
        f"as c₁ grows it allows a Gaussian mechanism that at ε = 8 has δ = {limit:.3f} where 0.01 is claimed",
        f"c₁ = {c1:g}, ε = {epsilon:g}, δ = {delta:g}: α = β = {alpha:.4f} is allowed, and n = {n} has δ = {found:.3f}",
    )


def _attacked(name: str) -> Finding:
    """Check a claim by a short search; the committed one is longer."""
    found = attack(name, starts=_SHORT, steps=20)
    where = _show({key: float(f"{value:.3g}") for key, value in found.at.items()})
    return Finding(
        "fails" if found.refuted else "holds",
        f"no violation in a short search from {_SHORT} starts",
        f"violated at {where}" if found.refuted else "",
    )


def _linear_ratio() -> Finding:
    z = np.linspace(-12, 12, 9)
    model = NormalKnownVariance(1, 0, 1, 5)
    spread = math.sqrt(1 + model.posterior_sd(10) ** 2)
    one, other = (model.posterior_mean(total, 10) for total in (50, 40))
    logs = -((z - one) ** 2 - (z - other) ** 2) / (2 * spread**2)
    bend = np.abs(np.diff(logs, 2)).max()
    return Finding(
        "holds" if bend < 1e-12 else "fails", f"slope {np.diff(logs)[0] / 3:.3f} per unit of z, no curvature"
    )


def _equal_information() -> Finding:
    bells = NormalKnownVariance(bound=2)
    pairs = []
    for kind in ("synthetic-plugin", "synthetic-bayes"):
        m = round(equal_information(kind, bells, 100))
        pairs.append(
            (
                epsilon_for("sample", bells, 100, delta=1e-6),
                epsilon_for(kind, bells, 100, m=m, delta=1e-6),
            )
        )
    same = max(abs(one / other - 1) for one, other in pairs) < 1e-9
    gains = {}
    for alpha in (2, 10, 50, 400):
        coins = BetaBernoulli(alpha, alpha)
        m = round(equal_information("synthetic-bayes", coins, 1000))
        draw = epsilon_for("sample", coins, 1000, delta=1e-6)
        gains[alpha] = draw / epsilon_for("synthetic-bayes", coins, 1000, m=m, delta=1e-6)
    shrinks = all(a > b > 1 for a, b in itertools.pairwise(gains.values()))
    shown = ", ".join(f"{gain:.2f} at α = {alpha}" for alpha, gain in gains.items())
    return Finding(
        "fails as printed" if same and shrinks else "fails",
        f"coins: the draw's ε is larger by a factor of {shown} (n = 1000, δ = 1e-6): lighter tails, nothing else",
        f"bells, n = 100, R = 2σ, δ = 1e-6: ε = {pairs[0][0]:.4f} for a draw and {pairs[0][1]:.4f} for 100 records",
    )


def _polynomial() -> Finding:
    grid = _points({"n": (2, 100), "epsilon": (0.1, 1.0), "delta": (1e-4, 1e-8, 1e-16)})
    ratios = [_alpha("sample", **p) * p["epsilon"] ** 2 / math.log(1 / p["delta"]) for p in grid]
    holds = max(ratios) < 4.17  # the mended bound, for ε ≤ 1
    return Finding(
        "holds" if holds else "fails",
        f"coins II: α = {min(ratios):.2f} to {max(ratios):.2f} times ln(1/δ)/ε² for ε ≤ 1 and δ down to 1e-16",
    )


def _far_from_expectation() -> Finding:
    """Check that the loss, the log odds less their value at a/b, is large only far from the centre."""
    a, b, epsilon = 10.0, 90.0, 1.0
    edges = [1 / (1 + b / a * math.exp(sign * epsilon)) for sign in (1, -1)]
    loss = [math.log(t / (1 - t) * b / a) for t in edges]
    holds = abs(abs(loss[0]) - epsilon) < 1e-12 and edges[0] < a / (a + b) < edges[1]
    return Finding(
        "holds" if holds else "fails",
        f"a = 10, b = 90: the loss is within 1 exactly for θ from {edges[0]:.3f} to {edges[1]:.3f}, around 0.1",
    )


def _good_range() -> Finding:
    """Check that for bells the loss is at most ε within εσ²/(2R) of the midpoint, whatever n."""
    sizes = (10, 100, 1000)
    model = NormalKnownVariance(bound=1)
    moves = [2 * model.bound / n for n in sizes]
    half = [model.posterior_sd(n) ** 2 / move for n, move in zip(sizes, moves, strict=True)]  # 1/slope of the loss
    bad = [privacy_profile("sample", model, n, epsilon=1.0) for n in sizes]
    constant, falls = max(half) - min(half) < 1e-12, bad[0] > bad[1] > bad[2]
    return Finding(
        "fails as printed" if constant and falls else "holds",
        f"the probability of leaving it does fall: δ = {bad[0]:.1e}, {bad[1]:.1e}, {bad[2]:.1e} at n = 10, 100, 1000",
        f"bells: the range of draws with loss at most 1 has half-width {half[0]:g} σ at every n (R = σ)",
    )


def _imaginary_records() -> Finding:
    coins = BetaBernoulli(4, 4)
    mode = epsilon_for("synthetic-plugin", coins, 20, m=1, delta=0.0)
    mean = epsilon_for("synthetic-plugin", BetaBernoulli(3, 3), 20, m=1, delta=0.0, estimator="mean")
    own = epsilon_for("synthetic-plugin", coins, 20, m=1, delta=0.0, estimator="mean")
    return Finding(
        "holds with a condition" if abs(mode - mean) < 1e-12 < own * 0.9 < mode * 0.9 else "fails",
        "the mode counts α - 1 imaginary ones, the mean and every posterior draw count α",
        f"α = 4, one record: ε = {mode:.3f} from the mode, {own:.3f} from the mean",
    )


def _exponential_mechanism() -> Finding:
    views = [exponential_view(BetaBernoulli(1, 1), n, truncate=(0.1, 0.9)) for n in (1, 10, 100, 1000)]
    holds = all(view.exact <= view.bound for view in views) and views[-1].looseness < 1.01
    shown = ", ".join(f"{view.exact:.3f}" for view in views)
    return Finding(
        "holds" if holds else "fails",
        f"θ in [.1, .9], α = β = 1: exact ε = {shown} at n = 1, 10, 100, 1000; the bound is {views[0].bound:.3f}",
    )


_ZHENG, _FOULDS = "Zheng (2015)", "Foulds et al. (2016)"
_REACHES = (0.1, 0.4, 1.0, 5.0, 20.0)

CLAIMS: tuple[Claim, ...] = (
    Claim(
        "estimate-not-private",
        _ZHENG,
        "I: releasing the most likely parameter is never differentially private.",
        "",
        "proved",
        _estimate,
        proof=("thm-four-ways-to-release-deterministic",),
    ),
    Claim(
        "coins-II-not-pure",
        _ZHENG,
        r"Coins, II: a posterior draw is not $\varepsilon$-DP.",
        "",
        "proved",
        lambda: _unbounded_loss("sample", BetaBernoulli(2, 2)),
        proof=("thm-coins-draw",),
    ),
    Claim(
        "coins-picture",
        _ZHENG,
        r"First picture: $1^{10}$ and $(1, 0^9)$ are neighbours.",
        "ten zeros in place of ten ones",
        "fails as printed",
        _caption,
    ),
    Claim(
        "coins-II-approximate",
        _ZHENG,
        r"Coins, II: $(\varepsilon, \delta)$-DP if $\alpha, \beta \ge c\,\varepsilon^{-2} \ln n \ln(1/\delta)$.",
        r"$n \ge 2$ and $\varepsilon \le 1$",
        "fails as printed",
        _with_constant("coins-II-approximate", exception=_draw_exceptions),
        _coins_draw,
        {"n": (2, 10, 10**6), "epsilon": (0.1, 0.5, 1.0), "delta": (1e-2, 1e-6, 1e-12, 1e-250)},
    ),
    Claim(
        "coins-II-mended",
        "this book",
        r"Coins, II: $(\varepsilon, \delta)$-DP if $\alpha, \beta \ge \ln(1/\delta)/(2\ln\cosh(\varepsilon/2))$.",
        "",
        "proved",
        lambda: _at_most_one("coins-II-mended"),
        _coins_draw_mended,
        {"n": (1, 100, 10**6), "epsilon": (0.1, 1.0, 10.0), "delta": (0.3, 1e-2, 1e-6, 1e-250)},
        proof=("thm-coins-sufficient",),
    ),
    Claim(
        "coins-key-point",
        _ZHENG,
        r"Coins, II: the loss is at most $\varepsilon$ as long as $\theta$ is close to its expectation.",
        "",
        "proved",
        _far_from_expectation,
        proof=("thm-coins-draw",),
    ),
    Claim(
        "coins-imaginary-records",
        _ZHENG,
        r"A $\mathrm{Beta}(\alpha, \beta)$ prior is worth $\alpha - 1$ ones and $\beta - 1$ zeros.",
        "for the mode",
        "proved with a condition",
        _imaginary_records,
        proof=("thm-coins-pure",),
    ),
    Claim(
        "coins-III-pure-mode",
        _ZHENG,
        r"Coins, III: $\varepsilon$-DP if $\alpha, \beta \ge cm/\varepsilon$ (most likely value).",
        r"$\alpha, \beta > 1$ and $\varepsilon \le m$",
        "proved with a condition",
        _with_constant("coins-III-pure-mode", "condition", _mode_exceptions),
        _coins_pure("synthetic-plugin", estimator="mode"),
        {"m": (1, 10, 1000), "epsilon": (0.01, 0.1, 0.5, 1.0)},
        proof=("thm-coins-pure",),
    ),
    Claim(
        "coins-III-pure-mean",
        _ZHENG,
        r"Coins, III: $\varepsilon$-DP if $\alpha, \beta \ge cm/\varepsilon$ (posterior mean).",
        "with the mean for the mode",
        "proved",
        lambda: _at_most_one("coins-III-pure-mean"),
        _coins_pure("synthetic-plugin", estimator="mean"),
        {"m": (1, 10, 1000), "epsilon": (0.01, 0.1, 1.0, 10.0, 100.0)},
        proof=("thm-coins-pure",),
    ),
    Claim(
        "coins-IV-pure-kept",
        _ZHENG,
        r"Coins, IV, one draw: $\varepsilon$-DP if $\alpha, \beta \ge cm/\varepsilon$.",
        "",
        "proved",
        lambda: _at_most_one("coins-IV-pure-kept"),
        _coins_pure("synthetic-bayes", redraw=False),
        {"m": (1, 10, 1000), "epsilon": (0.01, 0.1, 1.0, 10.0, 100.0)},
        proof=("thm-coins-pure",),
    ),
    Claim(
        "coins-IV-pure-redrawn",
        _ZHENG,
        r"Coins, IV, redrawn: $\varepsilon$-DP if $\alpha, \beta \ge cm/\varepsilon$.",
        "",
        "proved",
        lambda: _at_most_one("coins-IV-pure-redrawn"),
        _coins_pure("synthetic-bayes"),
        {"m": (1, 10, 1000), "epsilon": (0.01, 0.1, 1.0, 10.0, 100.0)},
        proof=("thm-coins-pure",),
    ),
    Claim(
        "coins-IV-pure-some-draws",
        _ZHENG,
        r"Coins, IV, $k$ draws with $m/k$ records each: $\varepsilon$-DP if $\alpha, \beta \ge cm/\varepsilon$.",
        "",
        "proved",
        lambda: _at_most_one("coins-IV-pure-some-draws"),
        _coins_pure("synthetic-bayes", redraw="half"),
        {"m": (4, 10, 1000), "epsilon": (0.01, 0.1, 1.0, 10.0, 100.0)},
        proof=("thm-coins-pure",),
    ),
    Claim(
        "coins-IV-lower-bound",
        _ZHENG,
        r"Coins, IV, one draw: $\alpha, \beta \ge cm/\varepsilon$ is also necessary.",
        r"$\varepsilon \le 1$",
        "proved with a condition",
        _lower_bound,
        proof=("thm-coins-pure",),
    ),
    Claim(
        "coins-IV-lower-bound-redrawn",
        "this book",
        r"Coins, IV, redrawn: for $\varepsilon \le 1$ it is necessary too.",
        "",
        "proved",
        _redrawn_lower_bound,
        proof=("thm-coins-pure",),
    ),
    Claim(
        "coins-IV-approximate",
        _ZHENG,
        r"Coins, IV, redrawn, $c_1 n$ records, large $n$: $(\varepsilon, \delta)$-DP if "
        r"$\alpha, \beta \ge c\,\varepsilon^{-2}\ln(1/\delta)$.",
        r"$\varepsilon \le 1$; $c$ depends on $c_1$",
        "proved",
        _with_constant("coins-IV-approximate"),
        _coins_synthetic,
        {"c1": (0.25, 1.0, 4.0), "n": (10**5,), "epsilon": (0.1, 1.0), "delta": (0.1, 1e-3, 1e-6)},
        proof=("thm-coins-poisson",),
    ),
    Claim(
        "coins-IV-mended",
        "this book",
        r"Coins, IV, redrawn, at most $c_1 n$ records: $(\varepsilon, \delta)$-DP for every $n$ if $\alpha, \beta \ge "
        r"(\ln(1/\delta) + \varepsilon)/(c_1 h(\varepsilon/c_1))$, $h(u) = (1+u)\ln(1+u) - u$.",
        "",
        "proved",
        lambda: _at_most_one("coins-IV-mended"),
        _coins_synthetic_mended(1.0),
        {"c1": (0.25, 4.0, 20.0), "n": (1000,), "epsilon": (0.1, 1.0, 8.0), "delta": (0.3, 1e-6, 1e-12)},
        proof=("thm-coins-poisson",),
    ),
    Claim(
        "coins-IV-half-epsilon",
        "this book",
        r"Coins, IV, redrawn: the same with $\ln(1/\delta) + \varepsilon/2$ in place of $\ln(1/\delta) + \varepsilon$.",
        "",
        "not refuted",
        lambda: _attacked("coins-IV-half-epsilon"),
    ),
    Claim(
        "coins-IV-without-epsilon",
        "this book, withdrawn",
        r"Coins, IV, redrawn: the same with $\ln(1/\delta)$ in place of $\ln(1/\delta) + \varepsilon$.",
        "",
        "fails",
        _without_epsilon,
        _coins_synthetic_mended(0.0),
        {"c1": (1.0, 20.0), "n": (2000,), "epsilon": (1.0, 8.0, 16.0), "delta": (0.1, 1e-3)},
    ),
    Claim(
        "coins-fewer-draws",
        "this book",
        r"Coins, IV: records from one kept draw are at least as private as redrawn ones, at every $\varepsilon$.",
        "",
        "proved",
        lambda: _attacked("coins-fewer-draws"),
        proof=("thm-four-ways-to-release-urn",),
    ),
    Claim(
        "coins-many-draws",
        "this book",
        r"Coins, several posterior draws: the worst neighbours are those of one draw.",
        "",
        "not refuted",
        lambda: _attacked("coins-many-draws"),
    ),
    Claim(
        "bells-unrestricted-data",
        _ZHENG,
        r"Bells: unrestricted data cannot be private, neither $\varepsilon$ nor $(\varepsilon, \delta)$.",
        "",
        "proved",
        _unrestricted,
        proof=("thm-bells-gaussian",),
    ),
    Claim(
        "bells-II-not-pure",
        _ZHENG,
        r"Bells, II: an unrestricted draw of $\mu$ is not $\varepsilon$-DP.",
        "",
        "proved",
        lambda: _unbounded_loss("sample", NormalKnownVariance()),
        proof=("thm-bells-gaussian",),
    ),
    Claim(
        "bells-II-pure",
        _ZHENG,
        r"Bells, II: with $\mu$ restricted to $[-R, R]$, $\varepsilon$-DP if $R/\sigma \le c\sqrt\varepsilon$.",
        "restricting by rejection",
        "proved with a condition",
        lambda: _sharp("bells-II-pure", 0.5, "clamping breaks it: see bells-II-pure-clamped"),
        _bells_draw_pure("reject"),
        {"reach": _REACHES, "n": (1, 10, 1000, 10**5)},
        True,
        proof=("thm-bells-truncated",),
    ),
    Claim(
        "bells-II-pure-clamped",
        _ZHENG,
        r"Bells, II: the same, with $\mu$ clamped to $[-R, R]$.",
        "",
        "fails",
        _clamped_draw,
        _bells_draw_pure("clamp"),
        {"reach": (0.001, 0.01, 0.1, 1.0), "n": (1, 100)},
        True,
    ),
    Claim(
        "bells-II-approximate",
        _ZHENG,
        r"Bells, II: $(\varepsilon, \delta)$-DP if "
        r"$n \ge cR^2\sigma^{-2}\varepsilon^{-1}(\varepsilon^{-1}\ln^2(1/\delta) + 1)$.",
        "",
        "proved",
        _with_constant("bells-II-approximate"),
        _bells_draw(2),
        {"epsilon": (0.01, 0.1, 1.0, 10.0, 100.0, 1e4), "delta": (0.5, 0.3, 0.2, 0.15, 0.1, 0.05, 1e-2, 1e-4, 1e-8)},
        proof=("thm-bells-poster",),
    ),
    Claim(
        "bells-II-constant",
        "this book",
        r"Bells, II: in the poster's condition $c = 2.31$ is enough.",
        "",
        "not refuted",
        lambda: _attacked("bells-II-constant"),
    ),
    Claim(
        "bells-II-one-logarithm",
        "this book",
        r"Bells, II: one logarithm is enough, "
        r"$n \ge 8R^2\sigma^{-2}\varepsilon^{-1}(\varepsilon^{-1}\ln(1/\delta)+1)$.",
        "",
        "proved",
        lambda: _sharp("bells-II-one-logarithm", 8.0, ""),
        _bells_draw(1),
        {"epsilon": (0.01, 0.1, 1.0, 10.0, 100.0, 1e4), "delta": (0.5, 0.1, 1e-2, 1e-4, 1e-12, 1e-100, 1e-300)},
        proof=("thm-bells-enough",),
    ),
    Claim(
        "bells-III-IV-neither",
        _ZHENG,
        r"Bells: neither III nor IV is $(\varepsilon, \delta)$-DP.",
        r"read $\varepsilon$ for $(\varepsilon, \delta)$",
        "fails as printed",
        _neither,
    ),
    Claim(
        "bells-III-IV-not-pure",
        "this book",
        r"Bells: neither III nor IV is $\varepsilon$-DP without a restriction.",
        "",
        "proved",
        lambda: _unbounded_loss("synthetic-bayes", NormalKnownVariance()),
        proof=("thm-bells-gaussian",),
    ),
    Claim(
        "bells-picture",
        _ZHENG,
        r"Second picture: the log ratio of the densities of $z$ is linear.",
        "",
        "proved",
        _linear_ratio,
        proof=("thm-bells-gaussian",),
    ),
    Claim(
        "bells-III-IV-pure",
        _ZHENG,
        r"Bells, III and IV: one record restricted to $[-R, R]$ is $\varepsilon$-DP if "
        r"$n \ge cR^2/(\sigma^2\varepsilon)$.",
        "restricting by rejection",
        "proved with a condition",
        lambda: _sharp("bells-III-IV-pure", 4.0, "clamping breaks it: see bells-III-IV-pure-clamped"),
        _bells_point_pure("reject"),
        {
            "reach": (*_REACHES, 200.0),
            "n": (1, 10, 1000, 10**5),
            "release": ("synthetic-plugin", "synthetic-bayes"),
        },
        proof=("thm-bells-truncated",),
    ),
    Claim(
        "bells-III-IV-pure-clamped",
        _ZHENG,
        r"Bells, III and IV: the same, with $z$ clamped to $[-R, R]$.",
        "",
        "fails",
        _clamped_point,
        _bells_point_pure("clamp"),
        {"reach": (0.01, 0.1, 1.0, 5.0), "n": (10, 1000), "release": ("synthetic-plugin", "synthetic-bayes")},
    ),
    Claim(
        "bells-III-IV-approximate",
        _ZHENG,
        r"Bells, III and IV: $(\varepsilon, \delta)$-DP for one restricted record and large $n$ if "
        r"$n \ge cR\sigma^{-1}\varepsilon^{-1/2}(\varepsilon^{-1/2}\ln(1/\delta)+1)$.",
        "restricting is not needed",
        "proved",
        lambda: _sharp("bells-III-IV-approximate", math.sqrt(2), ""),
        _bells_point,
        {"epsilon": (0.01, 0.1, 1.0, 10.0, 100.0, 1e4, 1e6), "delta": (0.5, 0.1, 1e-2, 1e-4, 1e-8, 1e-12)},
        proof=("thm-bells-poster",),
    ),
    Claim(
        "bells-III-IV-approximate-restricted",
        _ZHENG,
        r"Bells, III: the same with the record restricted by rejection.",
        "",
        "proved",
        _with_constant("bells-III-IV-approximate-restricted"),
        _bells_point_restricted,
        {"reach": (2.0, 20.0), "epsilon": (1.0,), "delta": (1e-2, 1e-6)},
        proof=(
            "thm-bells-poster",
            "thm-bells-restricted",
        ),
    ),
    Claim(
        "bells-restriction-free",
        "this book",
        r"Bells: truncating an output, to any interval, never makes its $\delta$ larger, at any $\varepsilon$.",
        "",
        "proved",
        lambda: _attacked("bells-restriction-free"),
        proof=("thm-bells-restricted",),
    ),
    Claim(
        "polynomial-bounds",
        _ZHENG,
        r"Conclusion: what is needed is polynomial in $1/\varepsilon$ and $\ln(1/\delta)$.",
        "",
        "proved",
        _polynomial,
        proof=(
            "thm-coins-sufficient",
            "thm-coins-poisson",
            "thm-bells-enough",
        ),
    ),
    Claim(
        "synthetic-more-private",
        _ZHENG,
        "Conclusion: synthetic data are more private than the parameter.",
        "at equal information",
        "fails as printed",
        _equal_information,
    ),
    Claim(
        "good-range-shrinks",
        _ZHENG,
        "Conclusion: the range of good parameters shrinks with more data, and so does the probability of leaving it.",
        "",
        "fails as printed",
        _good_range,
    ),
    Claim(
        "exponential-mechanism",
        _FOULDS,
        r"A posterior draw is $2\Delta$-DP, $\Delta$ the largest change of the log likelihood on the support.",
        "",
        "proved",
        _exponential_mechanism,
        proof=("thm-where-ops",),
    ),
)


def _at_most_one(name: str) -> Finding:
    constant = smallest_constant(name)
    holds = constant.value <= 1 + 1e-9
    return Finding(
        "holds" if holds else "fails", f"c = 1; {constant.value:.4g} needed on the grid, {_show(constant.at)}"
    )


def _sharp(name: str, limit: float, otherwise: str) -> Finding:
    """Check that a constant is enough on the grid, and that the grid comes within 5 % of needing it."""
    constant = smallest_constant(name)
    ratio = limit / constant.value if claim(name).largest else constant.value / limit
    verdict = "holds with a condition" if otherwise else "holds"
    return Finding(
        verdict if 0.95 <= ratio <= 1 + 1e-9 else "fails",
        f"c = {limit:.4g} is sharp; {constant.value:.4g} on the grid, at {_show(constant.at)}",
        otherwise,
    )


def claim(name: str) -> Claim:
    """Return a claim by its name."""
    for each in CLAIMS:
        if each.name == name:
            return each
    raise ValueError(f"claim must be one of {', '.join(each.name for each in CLAIMS)}, got {name!r}")


def claims_table(names: Sequence[str] | None = None) -> pd.DataFrame:
    """Check claims, by default all, and return the ledger: a row per claim.

    ``verdict`` is as computed, ``proof`` holds labels of theorems, ``searched`` the ranges of the attack on the claim,
    ``constant`` what the claim's own grid needs (NaN where there is none).
    """
    rows = []
    for each in CLAIMS if names is None else [claim(name) for name in names]:
        finding = each.check()
        rows.append(
            {
                "claim": each.name,
                "source": each.source,
                "statement": each.statement,
                "condition": each.condition,
                "verdict": finding.verdict,
                "proof": " ".join(each.proof),
                "searched": ATTACKS[each.name].over if each.name in ATTACKS else "",
                "constant": smallest_constant(each.name).value if each.ratio else math.nan,
                "evidence": finding.evidence,
                "counterexample": finding.counterexample,
            }
        )
    return pd.DataFrame(rows)
