"""The two sources of noise behind one switch: seeded NumPy for teaching, OpenDP's exact samplers for real releases.

Every function adds noise to a value or picks an index. With ``rng=None`` the noise comes from OpenDP, which samples
on integers with the system's entropy, so no output betrays its input through floating-point gaps; with a seeded
generator the noise is NumPy's: reproducible, and not safe to publish. The section on where privacy breaks shows why.
Arguments are checked by the callers.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache, lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpbook._validation import noise_arguments
from dpbook.accounting import gaussian_loss, gaussian_scale
from dpbook.records import ExactSum

__all__ = [
    "add_gaussian",
    "add_gaussian_to_sum",
    "add_geometric",
    "add_laplace",
    "add_laplace_to_sum",
    "choose",
    "flip",
]

_ULPS = 64
# The widest noise on a sum's grid, in steps: a draw that leaves 64 bits then has a probability below e^-63.
_WIDEST = 2.0**56
_SIDE_BY_SIDE = 50_000  # entries whose noise is drawn in one call, a quarter of a second
_MOST_CATEGORIES = 2**20  # of randomised response: OpenDP draws from a list of them


@cache
def _opendp() -> Any:
    """Import OpenDP on first use: it takes over a second, and only real releases need it."""
    import opendp.prelude as dp

    dp.enable_features("contrib")
    return dp


def _widen(scale: float, too_small: Any) -> float:
    """Raise ``scale`` by single floats until OpenDP's own, upward rounded accounting accepts it."""
    for _ in range(_ULPS):
        if not too_small(scale):
            return scale
        scale = math.nextafter(scale, math.inf)
    raise RuntimeError("OpenDP's privacy map rejects the noise scale")


@lru_cache(maxsize=64)
def _laplace_measurement(sensitivity: float, epsilon: float, kind: str) -> tuple[Any, float]:
    """Return OpenDP's Laplace measurement on floats ("f64") or integers ("i64"), and its scale."""
    dp = _opendp()
    atoms = dp.atom_domain(T="f64", nan=False) if kind == "f64" else dp.atom_domain(T="i64")
    space = dp.vector_domain(atoms), dp.l1_distance(T=kind)
    scale = _widen(sensitivity / epsilon, lambda b: dp.m.make_laplace(*space, scale=b).map(sensitivity) > epsilon)
    return dp.m.make_laplace(*space, scale=scale), scale


def add_laplace(
    value: NDArray[np.float64], sensitivity: float, epsilon: float, rng: np.random.Generator | None
) -> tuple[NDArray[np.float64], float]:
    """Return every entry with independent Laplace noise, and the noise's scale.

    The sensitivity is the L1 sensitivity of all entries together; the loss is for replace-one neighbours, n public.
    """
    scale = sensitivity / epsilon
    if rng is not None:
        return value + rng.laplace(scale=scale, size=value.shape), scale
    measurement, scale = _laplace_measurement(sensitivity, epsilon, "f64")
    return _entrywise(measurement, value), scale


def add_gaussian(value: NDArray[np.float64], scale: float, rng: np.random.Generator | None) -> NDArray[np.float64]:
    """Return every entry with independent Gaussian noise of standard deviation ``scale``."""
    if rng is not None:
        return value + rng.normal(scale=scale, size=value.shape)
    dp = _opendp()
    space = dp.vector_domain(dp.atom_domain(T=float, nan=False)), dp.l2_distance(T=float)
    return _entrywise(dp.m.make_gaussian(*space, scale=scale), value)


def _entrywise(measurement: Any, value: NDArray[Any], kind: type = np.float64) -> NDArray[Any]:
    """Return all entries with noise of their own; many are drawn in parts, on all cores at once.

    The noise of different entries is independent, so that parts have the law of the whole; OpenDP releases the
    interpreter while it draws.
    """
    flat = value.ravel()
    if flat.size <= _SIDE_BY_SIDE:
        return np.array(measurement(flat.tolist()), dtype=kind).reshape(value.shape)
    parts = np.array_split(flat, -(-flat.size // _SIDE_BY_SIDE))
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        drawn = list(pool.map(lambda part: measurement(part.tolist()), parts))
    return np.concatenate([np.array(part, dtype=kind) for part in drawn]).reshape(value.shape)


def add_laplace_to_sum(
    total: ExactSum, sensitivity: float, epsilon: float, rng: np.random.Generator | None
) -> tuple[NDArray[np.float64], float]:
    """Return an exact fixed-point sum with Laplace noise, and the noise's scale, both in the statistics' units.

    Real noise is drawn on the sum's own integer grid. The sensitivity is the joint L1 sensitivity of the rounded
    statistics.
    """
    steps = math.ceil(sensitivity / total.unit)
    scale = steps / epsilon
    if rng is not None:
        return total.values + rng.laplace(scale=scale * total.unit, size=total.totals.shape), scale * total.unit
    measurement, scale = _laplace_measurement(steps, epsilon, "i64")
    return _entrywise(measurement, total.totals) * total.unit, scale * total.unit


def require_laplace_on_sum(unit: float, sensitivity: float, epsilon: float, rng: np.random.Generator | None) -> None:
    """Raise unless :func:`add_laplace_to_sum` can draw for these public numbers: asked before a budget is charged."""
    steps = math.ceil(sensitivity / unit)
    if steps > epsilon * _WIDEST:
        raise ValueError(
            f"epsilon must be at least {steps / _WIDEST:.3g} for this sensitivity: noise is drawn in 64 bits; "
            f"got {epsilon:g}"
        )
    if steps / epsilon * unit < 1e-280:
        raise ValueError(f"epsilon must be smaller for this sensitivity: the noise has no scale; got {epsilon:g}")
    if rng is None:
        _laplace_measurement(steps, epsilon, "i64")


def require_gaussian_on_sum(unit: float, scale: float) -> None:
    """Raise unless :func:`add_gaussian_to_sum` can draw noise of this scale: asked before a budget is charged."""
    if scale > _WIDEST * unit:
        raise ValueError(
            f"epsilon or delta must be larger: noise is drawn in 64 bits, and a scale of {scale:.3g} exceeds "
            f"{_WIDEST * unit:.3g}"
        )


def add_gaussian_to_sum(total: ExactSum, scale: float, rng: np.random.Generator | None) -> NDArray[np.float64]:
    """Return an exact fixed-point sum with Gaussian noise of standard deviation ``scale``, in the statistics' units.

    Real noise is discrete Gaussian, on the sum's grid.
    """
    if rng is not None:
        return total.values + rng.normal(scale=scale, size=total.totals.shape)
    dp = _opendp()
    space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l2_distance(T=float)
    noisy = _entrywise(dp.m.make_gaussian(*space, scale=scale / total.unit), total.totals)
    return np.asarray(noisy * total.unit)


class OnSum(NamedTuple):
    """Noise for an exact sum: what adds it and tells its scale, and its loss as a charge states it beside epsilon."""

    add: Callable[[ExactSum], tuple[NDArray[np.float64], float]]
    loss: dict[str, float | None]


def on_sum(
    mechanism: str,
    sensitivity: float,
    epsilon: float,
    delta: float,
    rng: np.random.Generator | None,
    *,
    unit: float,
    statistics: int,
) -> OnSum:
    """Return a mechanism's noise for a sum; raise, before anything is charged, if it could not be drawn."""
    if mechanism == "laplace":
        require_laplace_on_sum(unit, sensitivity, epsilon, rng)
        return OnSum(lambda total: add_laplace_to_sum(total, sensitivity, epsilon, rng), {})
    scale = gaussian_scale(sensitivity=sensitivity, epsilon=epsilon, delta=delta, unit=unit, statistics=statistics)
    require_gaussian_on_sum(unit, scale)
    loss = gaussian_loss(sensitivity=sensitivity, scale=scale, unit=unit)
    return OnSum(lambda total: (add_gaussian_to_sum(total, scale, rng), scale), loss)


def add_geometric(
    counts: NDArray[np.int64], sensitivity: int, epsilon: float, rng: np.random.Generator | None
) -> NDArray[np.int64]:
    """Return every count with two-sided geometric noise, the Laplace mechanism's integer twin.

    The sensitivity is the joint L1 sensitivity. A sum that does not fit in 64 bits becomes the largest or smallest
    number that does.
    """
    if rng is not None:
        stop = -math.expm1(-epsilon / sensitivity)  # success probability 1 - e^(-ε/Δ) of each geometric
        return _saturating_sum(counts, rng.geometric(stop, counts.shape) - rng.geometric(stop, counts.shape))
    measurement, _ = _laplace_measurement(sensitivity, epsilon, "i64")
    return _entrywise(measurement, counts, np.int64)


def _saturating_sum(one: NDArray[np.int64], other: NDArray[np.int64]) -> NDArray[np.int64]:
    limits = np.iinfo(np.int64)
    with np.errstate(over="ignore"):
        total = np.add(one, other)
    wrapped = ((one ^ total) & (other ^ total)) < 0  # both have the sign that the sum has not
    return np.where(wrapped, np.where(other > 0, limits.max, limits.min), total)


def choose(utilities: NDArray[np.float64], sensitivity: float, epsilon: float, rng: np.random.Generator | None) -> int:
    """Draw an index with probability proportional to ``exp(epsilon * utility / (2 sensitivity))``.

    The sensitivity is the most that any one utility can change between neighbours. A real choice is OpenDP's
    report-noisy-max with exact Gumbel comparisons.
    """
    scale = 2 * sensitivity / epsilon
    if rng is not None:
        with np.errstate(over="ignore"):  # a candidate that is hopelessly behind may lie at -inf
            behind = (utilities - utilities.max()) / scale
        return int(np.argmax(behind + rng.gumbel(size=utilities.shape)))
    return int(_noisy_max(sensitivity, epsilon)(utilities.tolist()))


def require_choice(sensitivity: float, epsilon: float, rng: np.random.Generator | None) -> None:
    """Raise unless :func:`choose` can draw for these public numbers: asked before a budget is charged."""
    noise_arguments(sensitivity, epsilon)
    if rng is None:
        _noisy_max(sensitivity, epsilon)


@lru_cache(maxsize=64)
def _noisy_max(sensitivity: float, epsilon: float) -> Any:
    """Return OpenDP's Gumbel report-noisy-max, which is the exponential mechanism, at scale 2Δ/ε."""
    dp = _opendp()
    space = dp.vector_domain(dp.atom_domain(T="f64", nan=False)), dp.linf_distance(T="f64")

    def measurement(scale: float) -> Any:
        return dp.m.make_noisy_max(*space, dp.zero_concentrated_divergence(), scale=scale)

    # OpenDP accounts for it in zCDP, where the exponential mechanism has ρ = ε²/8.
    return measurement(_widen(2 * sensitivity / epsilon, lambda b: measurement(b).map(sensitivity) > epsilon**2 / 8))


def flip(
    categories: NDArray[np.int64], count: int, epsilon: float, rng: np.random.Generator | None
) -> NDArray[np.int64]:
    """Return codes 0 … count-1, each kept with odds ``e^epsilon : (count - 1)``, otherwise another at random.

    The privacy loss is that of each answer by itself.
    """
    if rng is not None:
        lie = rng.random(categories.shape) >= _truth(count, epsilon)
        return np.where(lie, (categories + rng.integers(1, count, categories.shape)) % count, categories)
    dp = _opendp()
    truth = _safe_truth(count, epsilon)
    if count == 2:  # all bits in one call; a bit flips with probability f/2, and 1 - truth is exact from 1/2 up
        bit_domain = dp.bitvector_domain(max(1, categories.size))
        flipper = dp.m.make_randomized_response_bitvec(bit_domain, dp.discrete_distance(), f=2 * (1 - truth))
        packed = flipper(np.packbits(categories.ravel().astype(np.uint8)).tobytes())
        bits = np.unpackbits(np.frombuffer(packed, dtype=np.uint8), count=categories.size)
        return bits.astype(np.int64).reshape(categories.shape)
    answer = dp.m.make_randomized_response(list(range(count)), truth)
    return np.array([answer(code) for code in categories.ravel().tolist()], dtype=np.int64).reshape(categories.shape)


def require_flips(count: int, epsilon: float, rng: np.random.Generator | None) -> None:
    """Raise unless :func:`flip` can draw for these public numbers: asked before a budget is charged."""
    noise_arguments(1.0, epsilon)
    if count > _MOST_CATEGORIES:
        raise ValueError(f"categories must be at most {_MOST_CATEGORIES}: a report is drawn from a list, got {count}")
    if rng is None:
        try:
            _safe_truth(count, epsilon)
        except Exception:  # OpenDP's own, of a probability that rounds to less than one in ``count``
            raise ValueError(f"epsilon must be larger for {count} categories, got {epsilon:g}") from None


def _truth(count: int, epsilon: float) -> float:
    """Return the probability of a true answer."""
    return 1 / (1 + (count - 1) * math.exp(-epsilon))


@lru_cache(maxsize=64)
def _safe_truth(count: int, epsilon: float) -> float:
    """Return the probability of a true answer, lowered by single floats until OpenDP's accounting accepts it."""
    dp, truth = _opendp(), _truth(count, epsilon)
    for _ in range(_ULPS):
        if dp.m.make_randomized_response(list(range(count)), truth).map(1) <= epsilon:
            return truth
        truth = math.nextafter(truth, 0.0)
    raise RuntimeError("OpenDP's privacy map rejects the probability of a true answer")
