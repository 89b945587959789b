"""How privacy losses add up beyond the ledger's plain sum: groups, advanced composition, zCDP, Gaussian profiles.

Formulas of the composition section of chapter 1, each exact or an upper bound, and each saying which. All are
statements about epsilon and delta, not about data; they hold for whatever neighbour relation the inputs are stated for.
"""

from __future__ import annotations

import math

import numpy as np
from scipy import optimize, special

from dpbook._validation import at_least, delta_value, integer, positive

__all__ = [
    "advanced_composition",
    "discrete_gaussian_delta",
    "gaussian_delta",
    "gaussian_rho",
    "group_privacy",
    "pure_composition_delta",
    "zcdp_epsilon",
]


def group_privacy(epsilon: float, size: int, *, delta: float = 0.0) -> tuple[float, float]:
    """Return the (epsilon, delta) that an (epsilon, delta)-DP mechanism gives to a group of records.

    Parameters
    ----------
    epsilon : float
        The loss for one record.
    size : int
        How many records differ.
    delta : float, default 0.0
        The delta for one record.

    Returns
    -------
    tuple of float
        ``size * epsilon`` and ``delta * (1 + e^eps + … + e^((size-1) eps))``.

    Examples
    --------
    >>> from dpbook.accounting import group_privacy
    >>> group_privacy(0.5, 4)
    (2.0, 0.0)

    Explained in :doc:`/book/background/unit-of-privacy`.
    """
    epsilon, size, delta = positive("epsilon", epsilon), integer("size", size, least=1), delta_value("delta", delta)
    if delta == 0:
        return size * epsilon, 0.0
    # The geometric series is (e^(kε) - 1) / (e^ε - 1); in logarithms, lest it overflow.
    log_growth = (size - 1) * epsilon + _log1mexp(size * epsilon) - _log1mexp(epsilon)
    return size * epsilon, math.exp(min(0.0, math.log(delta) + log_growth))


def _log1mexp(x: float) -> float:
    """Return log(1 - e^(-x))."""
    return math.log(-math.expm1(-x))


def advanced_composition(epsilon: float, count: int, *, slack: float, delta: float = 0.0) -> tuple[float, float]:
    """Return the (epsilon, delta) of ``count`` adaptive (epsilon, delta)-DP releases by advanced composition.

    Parameters
    ----------
    epsilon : float
        The loss of each release.
    count : int
        How many releases.
    slack : float
        The extra delta that is traded for a smaller epsilon.
    delta : float, default 0.0
        The delta of each release.

    Returns
    -------
    tuple of float
        The smaller of the plain sum and ``eps √(2k ln(1/slack)) + k eps tanh(eps/2)``, with ``k delta + slack``
        (an upper bound; with the plain sum, ``k delta``).

    Examples
    --------
    >>> from dpbook.accounting import advanced_composition
    >>> total, delta = advanced_composition(0.1, 100, slack=1e-6)
    >>> round(total, 3), delta
    (5.756, 1e-06)

    Explained in :doc:`/book/background/composition`.
    """
    epsilon, count = positive("epsilon", epsilon), integer("count", count, least=1)
    slack, delta = delta_value("slack", slack, zero=False), delta_value("delta", delta)
    advanced = epsilon * math.sqrt(2 * count * math.log(1 / slack)) + count * epsilon * math.tanh(epsilon / 2)
    if count * epsilon <= advanced:
        return count * epsilon, min(1.0, count * delta)
    return advanced, min(1.0, count * delta + slack)


def pure_composition_delta(epsilon: float, count: int, total: float) -> float:
    """Return the exact delta at ``total`` for ``count`` pure epsilon-DP releases in the worst case.

    The worst case is ``count`` runs of randomised response, so delta is a sum over the binomial number of lies:
    ``Σ_l C(k,l) max(0, e^((k-l)ε) - e^(total + lε)) / (1+e^ε)^k``. No composition theorem can do better.

    Parameters
    ----------
    epsilon : float
        The loss of each release.
    count : int
        How many releases.
    total : float
        The epsilon at which the composition is judged.

    Returns
    -------
    float
        The smallest delta for which the composition is (total, delta)-DP.

    Examples
    --------
    >>> from dpbook.accounting import pure_composition_delta
    >>> pure_composition_delta(0.1, 10, total=1.0)
    0.0
    >>> round(pure_composition_delta(0.1, 10, total=0.5), 5)
    0.00993

    Explained in :doc:`/book/background/composition`.
    """
    epsilon, count = positive("epsilon", epsilon), integer("count", count, least=1)
    total = at_least("total", total, 0.0)
    if math.isinf(count * epsilon):
        raise ValueError(f"epsilon must be smaller: {count} times {epsilon} exceeds the largest float")
    lies = np.arange(count + 1)
    log_choose = special.gammaln(count + 1) - special.gammaln(lies + 1) - special.gammaln(count - lies + 1)
    log_p = log_choose + (count - lies) * epsilon - count * np.logaddexp(0.0, epsilon)
    # e^((k-l)ε) - e^(total+lε) = e^((k-l)ε) (1 - e^(total-(k-2l)ε)), positive while total < (k-2l)ε.
    gap = np.minimum(total - (count - 2 * lies) * epsilon, 0.0)
    return float(np.sum(np.exp(log_p) * -np.expm1(gap)))


def gaussian_delta(epsilon: float, mu: float) -> float:
    """Return the exact delta at ``epsilon`` of a Gaussian mechanism whose sensitivity is ``mu`` noise sds.

    Parameters
    ----------
    epsilon : float
        At least 0.
    mu : float
        L2 sensitivity divided by the noise's standard deviation.

    Returns
    -------
    float
        ``Φ(mu/2 - eps/mu) - e^eps Φ(-mu/2 - eps/mu)`` (Balle and Wang 2018), raised by its own numerical error.

    Examples
    --------
    >>> from dpbook.accounting import gaussian_delta
    >>> round(gaussian_delta(1.0, 1.0), 6)
    0.126937

    Explained in :doc:`/book/background/mechanisms`.
    """
    epsilon, mu = at_least("epsilon", epsilon, 0.0), positive("mu", mu)
    first = special.log_ndtr(mu / 2 - epsilon / mu)
    if first == -math.inf:  # below the smallest float
        return 0.0
    second = epsilon + special.log_ndtr(-mu / 2 - epsilon / mu)
    # Both logarithms are accurate to a few ulps; their difference may cancel, so the error is added, not ignored.
    error = 8 * np.finfo(float).eps * max(1.0, abs(first), abs(second), epsilon)
    return float(min(1.0, np.exp(first) * (-np.expm1(min(second - first, 0.0)) + error)))


def discrete_gaussian_delta(epsilon: float, shift: int, scale: float) -> float:
    """Return the exact delta at ``epsilon`` of discrete Gaussian noise on the whole numbers.

    The noise takes the value y with probability proportional to ``exp(-y² / (2 scale²))``. Where ``scale`` is large
    this is :func:`gaussian_delta` at ``shift / scale``; where it is not, the discrete noise can have several times that
    delta. A smaller shift never has a larger delta, so a sensitivity of ``shift`` steps is covered.

    Parameters
    ----------
    epsilon : float
        At least 0.
    shift : int
        By how many steps the exact value moves between neighbours, at least 1.
    scale : float
        The noise's scale in steps.

    Returns
    -------
    float
        ``Σ_{y > t} P(y) (1 - exp(-(y - t) shift / scale²))`` with ``t = epsilon scale² / shift - shift / 2`` (Canonne,
        Kamath and Steinke 2020, in one sum that cancels nothing), raised by its own numerical error.

    Examples
    --------
    >>> from dpbook.accounting import discrete_gaussian_delta, gaussian_delta
    >>> round(discrete_gaussian_delta(8.0, 1, 0.543), 6), round(gaussian_delta(8.0, 1 / 0.543), 6)
    (0.000315, 0.0001)

    Explained in :doc:`/book/background/where-privacy-breaks`.
    """
    epsilon, shift = at_least("epsilon", epsilon, 0.0), integer("shift", shift, least=1)
    scale = positive("scale", scale)
    if not 1e-100 <= scale <= 2.0**20:
        raise ValueError(f"scale must lie between 1e-100 and 2**20 steps, got {scale}")
    # Likelihood ratios exceed e^ε above the threshold; there q(y) - e^ε p(y) = q(y) (1 - e^(-(y - t) shift / scale²)).
    threshold = epsilon * scale**2 / shift - shift / 2
    reach = math.ceil(40 * scale)  # what lies farther from 0 than 40 scales has a probability below 10⁻³⁴⁷
    first = max(math.floor(threshold) + 1, -reach)
    if first > reach:
        return 0.0
    y = np.arange(first, reach + 1.0)
    weight = np.exp(-0.5 * (y / scale) ** 2)
    beyond = np.maximum(y - threshold, 0.0) * (shift / scale**2)
    # Each exponent is right to a few ulps of at most 800; y - t to an ulp of t, which matters where it is small.
    error = 16 * np.finfo(float).eps * max(1.0, abs(threshold)) * shift / scale**2 * np.exp(-beyond)
    mass = float(np.sum(weight * np.minimum(error - np.expm1(-beyond), 1.0)))
    whole = float(np.sum(np.exp(-0.5 * (np.arange(-reach, reach + 1.0) / scale) ** 2)))
    return min(1.0, mass / whole * (1 + 1e-12))


def gaussian_rho(mu: float) -> float:
    """Return the zCDP parameter rho of a Gaussian mechanism whose sensitivity is ``mu`` noise sds.

    Parameters
    ----------
    mu : float
        L2 sensitivity divided by the noise's standard deviation.

    Returns
    -------
    float
        ``mu² / 2``; rhos of successive releases add.

    Examples
    --------
    >>> from dpbook.accounting import gaussian_rho
    >>> gaussian_rho(0.1)
    0.005000000000000001

    Explained in :doc:`/book/background/composition`.
    """
    return positive("mu", mu) ** 2 / 2


def zcdp_epsilon(rho: float, delta: float) -> float:
    """Return an epsilon such that every rho-zCDP mechanism is (epsilon, delta)-DP.

    Parameters
    ----------
    rho : float
        The zCDP parameter.
    delta : float
        In (0, 1).

    Returns
    -------
    float
        ``min over α > 1 of αρ + ln(1/(αδ))/(α-1) + ln(1-1/α)``, an upper bound (Canonne, Kamath and Steinke 2020),
        never more than the plain ``ρ + 2√(ρ ln(1/δ))``.

    Examples
    --------
    >>> from dpbook.accounting import zcdp_epsilon
    >>> round(zcdp_epsilon(0.5, 1e-6), 3)
    5.222

    Explained in :doc:`/book/background/composition`.
    """
    rho, delta = positive("rho", rho), delta_value("delta", delta, zero=False)

    def bound(log_excess: float) -> float:
        excess = math.exp(log_excess)  # α - 1
        alpha = 1 + excess
        return alpha * rho - math.log(alpha * delta) / excess + math.log(excess / alpha)

    log_inverse = math.log(1 / delta) if delta > 1e-300 else -math.log(delta)  # 1 / delta may overflow
    plain = rho + 2 * math.sqrt(rho * log_inverse)
    if math.isinf(log_inverse / rho):  # so small a rho that no order can be written down
        return plain
    centre = math.log(math.sqrt(log_inverse / rho))
    found = optimize.minimize_scalar(bound, bounds=(centre - 10, centre + 10), method="bounded")
    return max(0.0, min(plain, float(found.fun)))
