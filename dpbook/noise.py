"""The two sources of noise behind one switch: seeded NumPy for teaching, OpenDP's exact samplers for real releases.

Every function adds noise to a value or picks an index. With ``rng=None`` the noise comes from OpenDP, which samples
on integers with the system's entropy, so no output betrays its input through floating-point gaps; with a seeded
generator the noise is NumPy's: reproducible, and not safe to publish. The section on where privacy breaks shows why.
Arguments are checked by the callers.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

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


def add_laplace(
    value: NDArray[np.float64], sensitivity: float, epsilon: float, rng: np.random.Generator | None
) -> tuple[NDArray[np.float64], float]:
    """Add independent Laplace noise to every entry; the L1 sensitivity is that of all entries together.

    Parameters
    ----------
    value : ndarray
        The exact statistics.
    sensitivity : float
        Their joint L1 sensitivity.
    epsilon : float
        The privacy loss (replace-one neighbours, n public).
    rng : numpy.random.Generator or None
        Seeded teaching noise, or None for a real release.

    Returns
    -------
    tuple
        The noisy values and the noise scale.

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook.noise import add_laplace
    >>> noisy, scale = add_laplace(np.array([10.0]), 1.0, 0.5, np.random.default_rng(0))
    >>> noisy.round(3), scale
    (array([10.64]), 2.0)

    Explained in :doc:`/book/background/where-privacy-breaks`.
    """
    scale = sensitivity / epsilon
    if rng is not None:
        return value + rng.laplace(scale=scale, size=value.shape), scale
    dp = _opendp()
    space = dp.vector_domain(dp.atom_domain(T=float, nan=False)), dp.l1_distance(T=float)
    scale = _widen(scale, lambda b: dp.m.make_laplace(*space, scale=b).map(sensitivity) > epsilon)
    return _entrywise(dp.m.make_laplace(*space, scale=scale), value), scale


def add_gaussian(value: NDArray[np.float64], scale: float, rng: np.random.Generator | None) -> NDArray[np.float64]:
    """Add independent Gaussian noise of standard deviation ``scale`` to every entry.

    Parameters
    ----------
    value : ndarray
        The exact statistics.
    scale : float
        The noise's standard deviation.
    rng : numpy.random.Generator or None
        Seeded teaching noise, or None for a real release.

    Returns
    -------
    ndarray
        The noisy values.

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook.noise import add_gaussian
    >>> add_gaussian(np.array([10.0]), 2.0, np.random.default_rng(0)).round(3)
    array([10.251])

    Explained in :doc:`/book/background/where-privacy-breaks`.
    """
    if rng is not None:
        return value + rng.normal(scale=scale, size=value.shape)
    dp = _opendp()
    space = dp.vector_domain(dp.atom_domain(T=float, nan=False)), dp.l2_distance(T=float)
    return _entrywise(dp.m.make_gaussian(*space, scale=scale), value)


def _entrywise(measurement: Any, value: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.array(measurement(value.ravel().tolist()), dtype=np.float64).reshape(value.shape)


def add_laplace_to_sum(
    total: ExactSum, sensitivity: float, epsilon: float, rng: np.random.Generator | None
) -> tuple[NDArray[np.float64], float]:
    """Add Laplace noise to an exact fixed-point sum; real noise is drawn on the sum's own integer grid.

    Parameters
    ----------
    total : ExactSum
        Integer totals and their unit.
    sensitivity : float
        The joint L1 sensitivity of the rounded statistics, in the statistics' units.
    epsilon : float
        The privacy loss (replace-one neighbours, n public).
    rng : numpy.random.Generator or None
        Seeded teaching noise, or None for a real release.

    Returns
    -------
    tuple
        The noisy values and the noise scale, in the statistics' units.

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook.noise import add_laplace_to_sum
    >>> from dpbook.records import exact_sum, grid_unit
    >>> total = exact_sum([0.0, 1.0, 1.0], lambda x: x, unit=grid_unit(1.0))
    >>> noisy, scale = add_laplace_to_sum(total, 1.0, 0.5, np.random.default_rng(0))
    >>> noisy.round(3), scale
    (array([2.64]), 2.0)

    Explained in :doc:`/book/background/where-privacy-breaks`.
    """
    steps = math.ceil(sensitivity / total.unit)
    scale = steps / epsilon
    if rng is not None:
        return total.values + rng.laplace(scale=scale * total.unit, size=total.totals.shape), scale * total.unit
    dp = _opendp()
    space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l1_distance(T="i64")
    scale = _widen(scale, lambda b: dp.m.make_laplace(*space, scale=b).map(steps) > epsilon)
    noisy = dp.m.make_laplace(*space, scale=scale)(total.totals.tolist())
    return np.array(noisy, dtype=np.float64) * total.unit, scale * total.unit


def add_gaussian_to_sum(total: ExactSum, scale: float, rng: np.random.Generator | None) -> NDArray[np.float64]:
    """Add Gaussian noise of standard deviation ``scale`` to an exact fixed-point sum.

    Parameters
    ----------
    total : ExactSum
        Integer totals and their unit.
    scale : float
        The noise's standard deviation, in the statistics' units.
    rng : numpy.random.Generator or None
        Seeded teaching noise, or None for a real release, whose discrete Gaussian lives on the sum's grid.

    Returns
    -------
    ndarray
        The noisy values.

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook.noise import add_gaussian_to_sum
    >>> from dpbook.records import exact_sum, grid_unit
    >>> total = exact_sum([0.0, 1.0, 1.0], lambda x: x, unit=grid_unit(1.0))
    >>> add_gaussian_to_sum(total, 2.0, np.random.default_rng(0)).round(3)
    array([2.251])

    Explained in :doc:`/book/background/where-privacy-breaks`.
    """
    if rng is not None:
        return total.values + rng.normal(scale=scale, size=total.totals.shape)
    dp = _opendp()
    space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l2_distance(T=float)
    noisy = dp.m.make_gaussian(*space, scale=scale / total.unit)(total.totals.tolist())
    return np.array(noisy, dtype=np.float64) * total.unit


def add_geometric(
    counts: NDArray[np.int64], sensitivity: int, epsilon: float, rng: np.random.Generator | None
) -> NDArray[np.int64]:
    """Add two-sided geometric noise, the Laplace mechanism's integer twin, to every count.

    Parameters
    ----------
    counts : ndarray of int
        The exact counts.
    sensitivity : int
        Their joint L1 sensitivity.
    epsilon : float
        The privacy loss (replace-one neighbours, n public).
    rng : numpy.random.Generator or None
        Seeded teaching noise, or None for a real release.

    Returns
    -------
    ndarray of int
        The noisy counts.

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook.noise import add_geometric
    >>> add_geometric(np.array([10, 20]), 1, 0.5, np.random.default_rng(0))
    array([12, 20])

    Explained in :doc:`/book/background/mechanisms`.
    """
    if rng is not None:
        stop = -math.expm1(-epsilon / sensitivity)  # success probability 1 - e^(-ε/Δ) of each geometric
        return counts + rng.geometric(stop, counts.shape) - rng.geometric(stop, counts.shape)
    dp = _opendp()
    space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l1_distance(T="i64")
    scale = _widen(sensitivity / epsilon, lambda b: dp.m.make_laplace(*space, scale=b).map(sensitivity) > epsilon)
    noisy = dp.m.make_laplace(*space, scale=scale)(counts.ravel().tolist())
    return np.array(noisy, dtype=np.int64).reshape(counts.shape)


def choose(utilities: NDArray[np.float64], sensitivity: float, epsilon: float, rng: np.random.Generator | None) -> int:
    """Draw an index with probability proportional to ``exp(epsilon * utility / (2 sensitivity))``.

    Parameters
    ----------
    utilities : ndarray
        One number a candidate.
    sensitivity : float
        The most that any one utility can change between neighbours.
    epsilon : float
        The privacy loss (replace-one neighbours, n public).
    rng : numpy.random.Generator or None
        Seeded teaching noise, or None for a real release (OpenDP's report-noisy-max with exact Gumbel comparisons).

    Returns
    -------
    int
        The index drawn.

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook.noise import choose
    >>> choose(np.array([0.0, 50.0, 0.0]), 1.0, 1.0, np.random.default_rng(0))
    1

    Explained in :doc:`/book/background/mechanisms`.
    """
    scale = 2 * sensitivity / epsilon
    if rng is not None:
        return int(np.argmax(utilities / scale + rng.gumbel(size=utilities.shape)))
    dp = _opendp()
    space = dp.vector_domain(dp.atom_domain(T=float, nan=False)), dp.linf_distance(T=float)

    def noisy_max(b: float) -> Any:
        return dp.m.make_noisy_max(*space, dp.zero_concentrated_divergence(), scale=b)

    # The Gumbel maximum is the exponential mechanism, whose zCDP is (Δ/scale)²/2 = ε²/8.
    scale = _widen(scale, lambda b: noisy_max(b).map(sensitivity) > epsilon**2 / 8)
    return int(noisy_max(scale)(utilities.tolist()))


def flip(
    categories: NDArray[np.int64], count: int, epsilon: float, rng: np.random.Generator | None
) -> NDArray[np.int64]:
    """Keep each category with odds ``e^epsilon : (count - 1)``, otherwise report one of the others.

    Parameters
    ----------
    categories : ndarray of int
        Codes 0 … count-1, one a person.
    count : int
        How many categories there are.
    epsilon : float
        The privacy loss of each answer.
    rng : numpy.random.Generator or None
        Seeded teaching noise, or None for a real release.

    Returns
    -------
    ndarray of int
        The reported codes.

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook.noise import flip
    >>> flip(np.array([0, 1, 1, 0]), 2, 1.0, np.random.default_rng(0))
    array([0, 1, 1, 0])

    Explained in :doc:`/book/background/mechanisms`.
    """
    truth = 1 / (1 + (count - 1) * math.exp(-epsilon))
    if rng is not None:
        lie = rng.random(categories.shape) >= truth
        return np.where(lie, (categories + rng.integers(1, count, categories.shape)) % count, categories)
    dp = _opendp()

    def responder(probability: float) -> Any:
        return dp.m.make_randomized_response(list(range(count)), probability)

    for _ in range(_ULPS):
        if responder(truth).map(1) <= epsilon:
            break
        truth = math.nextafter(truth, 0.0)
    else:
        raise RuntimeError("OpenDP's privacy map rejects the probability of a true answer")
    answer = responder(truth)
    return np.array([answer(code) for code in categories.ravel().tolist()], dtype=np.int64).reshape(categories.shape)
