"""How privacy losses add up beyond the ledger's plain sum, and how much Gaussian noise a loss asks for.

Groups, advanced composition, zCDP, Gaussian profiles and their calibration: formulas of chapter 1, each exact or an
upper bound, and each saying which. All are statements about epsilon and delta, not about data; they hold for whatever
neighbour relation the inputs are stated for.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from dpbook._late import optimize, special
from dpbook._validation import at_least, delta_value, integer, noise_arguments, positive

__all__ = [
    "advanced_composition",
    "discrete_gaussian_delta",
    "gaussian_delta",
    "gaussian_epsilon",
    "gaussian_loss",
    "gaussian_mu",
    "gaussian_rho",
    "gaussian_scale",
    "group_privacy",
    "plan_epsilon",
    "pure_composition_delta",
    "pure_mu",
    "zcdp_epsilon",
]

# Covers the root finder of the Gaussian calibration, and the discretisation where noise has 2**16 grid steps or more.
_MARGIN = 1 + 1e-9
_FINE = 2.0**16
# Below so many steps the exact profile of one statistic's discrete noise is summed, of some 80 terms per step.
_SUMMED = 2.0**10


def group_privacy(epsilon: float, size: int, *, delta: float = 0.0) -> tuple[float, float]:
    """Return the (epsilon, delta) that an (epsilon, delta)-DP mechanism gives to a group of records.

    Explained in :doc:`/book/background/unit-of-privacy`.

    Parameters
    ----------
    epsilon, delta : float
        The loss for one record.
    size : int
        How many records differ.

    Returns
    -------
    tuple of float
        ``size * epsilon`` and ``delta * (1 + e^eps + … + e^((size-1) eps))``.

    Examples
    --------
    >>> from dpbook.accounting import group_privacy
    >>> group_privacy(0.5, 4)
    (2.0, 0.0)
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

    Explained in :doc:`/book/background/composition`.

    Parameters
    ----------
    epsilon, delta : float
        The loss of each release.
    count : int
        How many releases.
    slack : float
        The extra delta that is traded for a smaller epsilon.

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
    ``Σ_l C(k,l) max(0, e^((k-l)ε) - e^(total + lε)) / (1+e^ε)^k``. No composition theorem can do better. Explained in
    :doc:`/book/background/composition`.

    Parameters
    ----------
    epsilon, count : float, int
        The loss of each release, and how many there are.
    total : float
        The epsilon at which the composition is judged.

    Returns
    -------
    float
        The smallest delta for which the composition is (total, delta)-DP.

    Examples
    --------
    >>> from dpbook.accounting import pure_composition_delta
    >>> pure_composition_delta(0.1, 10, total=1.0), round(pure_composition_delta(0.1, 10, total=0.5), 5)
    (0.0, 0.00993)
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

    Explained in :doc:`/book/background/mechanisms`.

    Parameters
    ----------
    epsilon : float
        At least 0.
    mu : float
        The L2 sensitivity divided by the noise's standard deviation.

    Returns
    -------
    float
        ``Φ(mu/2 - eps/mu) - e^eps Φ(-mu/2 - eps/mu)`` (Balle and Wang 2018), raised by its own numerical error.

    Examples
    --------
    >>> from dpbook.accounting import gaussian_delta
    >>> round(gaussian_delta(1.0, 1.0), 6)
    0.126937
    """
    epsilon, mu = at_least("epsilon", epsilon, 0.0), positive("mu", mu)
    first = special.log_ndtr(mu / 2 - epsilon / mu)
    if first == -math.inf:  # below the smallest float
        return 0.0
    second = epsilon + special.log_ndtr(-mu / 2 - epsilon / mu)
    # Both logarithms are accurate to a few ulps; their difference may cancel, so the error is added, not ignored.
    error = 8 * np.finfo(float).eps * max(1.0, abs(first), abs(second), epsilon)
    return float(min(1.0, np.exp(first) * (-np.expm1(min(second - first, 0.0)) + error)))


def gaussian_epsilon(mu: float, delta: float) -> float:
    """Return the smallest epsilon at which a Gaussian mechanism whose sensitivity is ``mu`` noise sds has this delta.

    The inverse of :func:`gaussian_delta`. Releases with mu₁, mu₂, … are together one with mu = √(mu₁² + mu₂² + …), also
    where each is chosen after seeing the answers before it, as long as mu stays within a limit that was fixed before
    (Smith and Thakurta 2022). Explained in :doc:`/book/background/composition`.

    Parameters
    ----------
    mu, delta : float
        Greater than 0; in (0, 1).

    Returns
    -------
    float
        Never too small: the root finder's error is added.

    Examples
    --------
    >>> from dpbook.accounting import gaussian_epsilon
    >>> round(gaussian_epsilon(1.0, 0.126937), 4)
    1.0
    """
    mu, delta = positive("mu", mu), delta_value("delta", delta, zero=False)
    if gaussian_delta(0.0, mu) <= delta:
        return 0.0
    high = mu**2 / 2 + mu * math.sqrt(2 * -math.log(delta))  # where the tail of the loss is at most delta

    def excess(epsilon: float) -> float:
        return math.log(max(gaussian_delta(epsilon, mu), 5e-324)) - math.log(delta)

    while excess(high) > 0:
        high *= 2
    root = float(optimize.brentq(excess, 0.0, high, xtol=1e-14 * max(1.0, high), rtol=1e-14))
    while excess(root) > 0:
        root = math.nextafter(root * (1 + 1e-13), math.inf)
    return root


def pure_mu(epsilon: float) -> float:
    """Return the mu of Gaussian differential privacy that every pure epsilon-DP mechanism has.

    The best test between two neighbours, given a pure release, has errors on two segments, from (0, 1) and from (1, 0),
    that meet where both errors are 1/(1 + e^ε). The curve of Gaussian noise with this mu goes through all three points
    and is convex, so it lies below both: whatever a test can do given the release, it can do given that noise.
    Explained in :doc:`/book/background/composition`.

    Parameters
    ----------
    epsilon : float
        Greater than 0.

    Returns
    -------
    float
        ``2 Φ⁻¹(e^ε / (1 + e^ε))``.

    Examples
    --------
    >>> from dpbook.accounting import pure_mu
    >>> round(pure_mu(0.1), 4)  # about √(π/2) epsilon
    0.1253
    """
    epsilon = positive("epsilon", epsilon)
    return float(-2 * special.ndtri_exp(-np.logaddexp(0.0, epsilon)))


def gaussian_mu(*, sensitivity: float, scale: float, unit: float | None = None) -> float | None:
    """Return the mu of Gaussian noise, or None where a grid is so coarse that its discrete noise has none.

    On a grid the noise is discrete. With a scale of S steps it is a Gaussian of √(S² - 4) steps, rounded at random (see
    :func:`gaussian_scale`), and has that Gaussian's mu. Explained in :doc:`/book/background/composition`.

    Parameters
    ----------
    sensitivity, scale : float
        The L2 sensitivity, and the noise's standard deviation.
    unit : float, optional
        The step of the grid that the noise is drawn on.

    Returns
    -------
    float or None

    Examples
    --------
    >>> from dpbook.accounting import gaussian_mu
    >>> gaussian_mu(sensitivity=1.0, scale=2.0), gaussian_mu(sensitivity=1.0, scale=2.0, unit=1.0) is None
    (0.5, True)
    """
    sensitivity, scale = positive("sensitivity", sensitivity), positive("scale", scale)
    if unit is None:
        return sensitivity / scale
    steps = scale / positive("unit", unit)
    if steps <= 2 * _MARGIN:
        return None
    return sensitivity / scale * _MARGIN / math.sqrt(1 - 4 / steps**2)


def gaussian_loss(*, sensitivity: float, scale: float, unit: float | None = None) -> dict[str, float | None]:
    """Return the rho and the mu of Gaussian noise, as :meth:`dpbook.PrivacyBudget.spend` takes them.

    Explained in :doc:`/book/background/composition`.

    Parameters
    ----------
    sensitivity, scale, unit
        As in :func:`gaussian_mu`; rho holds for discrete noise too (Canonne, Kamath and Steinke 2020).

    Returns
    -------
    dict
        With ``rho`` and ``mu``.

    Examples
    --------
    >>> from dpbook.accounting import gaussian_loss
    >>> gaussian_loss(sensitivity=1.0, scale=2.0)
    {'rho': 0.125, 'mu': 0.5}
    """
    mu = gaussian_mu(sensitivity=sensitivity, scale=scale, unit=unit)
    return {"rho": (sensitivity / scale) ** 2 / 2, "mu": mu}


def plan_epsilon(*, delta: float, pure: Sequence[float] = (), mu: Sequence[float] = ()) -> float:
    """Return a tight epsilon of a *fixed* plan of releases, by numerical composition; for reports, not for budgets.

    The loss distributions of all releases are convolved (dp-accounting, extra ``dpsgd``). That is right only for a plan
    that was fixed before the first answer was seen: where what a release costs may depend on earlier answers, this is
    no filter, and a :class:`~dpbook.PrivacyBudget` does not use it. Explained in :doc:`/book/background/composition`.

    Parameters
    ----------
    delta : float
        In (0, 1).
    pure : sequence of float
        The epsilons of pure releases, each taken as the worst of its kind.
    mu : sequence of float
        The sensitivities in noise sds of Gaussian releases.

    Returns
    -------
    float
        An upper bound, pessimistic by the discretisation of 10⁻⁴.

    Examples
    --------
    >>> from dpbook.accounting import plan_epsilon
    >>> round(plan_epsilon(delta=1e-6, pure=[0.1] * 10, mu=[0.05] * 20), 1)
    1.6
    """
    from dp_accounting.pld import common, privacy_loss_distribution

    delta = delta_value("delta", delta, zero=False)
    losses = [positive("pure", each) for each in pure], [positive("mu", each) for each in mu]
    if not losses[0] and not losses[1]:
        raise ValueError("pure or mu must hold at least one release, got none")
    step = {"value_discretization_interval": 1e-4}
    parts = [
        privacy_loss_distribution.from_privacy_parameters(common.DifferentialPrivacyParameters(each, 0.0), **step)
        for each in losses[0]
    ]
    if losses[1]:  # Gaussian releases are one, exactly
        parts.append(privacy_loss_distribution.from_gaussian_mechanism(1 / math.hypot(*losses[1]), **step))
    total = parts[0]
    for each in parts[1:]:
        total = total.compose(each)
    return float(total.get_epsilon_for_delta(delta))


def discrete_gaussian_delta(epsilon: float, shift: int, scale: float) -> float:
    """Return the exact delta at ``epsilon`` of discrete Gaussian noise on the whole numbers.

    The noise takes the value y with probability proportional to ``exp(-y² / (2 scale²))``. Where ``scale`` is large
    this is :func:`gaussian_delta` at ``shift / scale``; where it is not, the discrete noise can have several times that
    delta. A smaller shift never has a larger delta, so a sensitivity of ``shift`` steps is covered. Explained in
    :doc:`/book/background/where-privacy-breaks`.

    Parameters
    ----------
    epsilon : float
        At least 0.
    shift, scale : int, float
        By how many steps the exact value moves between neighbours, at least 1; and the noise's scale in steps.

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

    Explained in :doc:`/book/background/composition`.

    Parameters
    ----------
    mu : float
        As in :func:`gaussian_delta`.

    Returns
    -------
    float
        ``mu² / 2``; rhos of successive releases add.

    Examples
    --------
    >>> from dpbook.accounting import gaussian_rho
    >>> gaussian_rho(0.1)
    0.005000000000000001
    """
    return positive("mu", mu) ** 2 / 2


def zcdp_epsilon(rho: float, delta: float) -> float:
    """Return an epsilon such that every rho-zCDP mechanism is (epsilon, delta)-DP.

    Explained in :doc:`/book/background/composition`.

    Parameters
    ----------
    rho : float
        The zCDP parameter, greater than 0.
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


def gaussian_scale(
    *, sensitivity: float, epsilon: float, delta: float, unit: float | None = None, statistics: int = 1
) -> float:
    """Return the smallest standard deviation that makes Gaussian noise (epsilon, delta)-DP.

    The analytic calibration of Balle and Wang (2018): it solves
    ``gaussian_delta(epsilon, sensitivity / scale) = delta`` and is valid for every epsilon, large ones included. The
    result is raised by one part in 10⁹, which covers the root finder.

    Noise on a grid is not Gaussian but discrete Gaussian, and where it spans few steps its delta is larger. With
    ``unit``, the scale is raised for that, so that the discrete noise keeps the promise for every change of the totals
    by whole steps whose L2 norm is at most ``sensitivity``. Explained in :doc:`/book/background/mechanisms`.

    Parameters
    ----------
    sensitivity : float
        The statistic's L2 sensitivity.
    epsilon, delta : float
        The privacy loss: epsilon greater than 0, delta in (0, 1).
    unit : float, optional
        The step of the grid on which the noise is drawn (an :class:`~dpbook.records.ExactSum` has it); by default noise
        is drawn as finely as floats are.
    statistics : int, default 1
        How many statistics share the grid.

    Returns
    -------
    float
        The noise's standard deviation (on a grid, the scale of the discrete Gaussian).

    Notes
    -----
    Let s be the scale without a grid, all in steps. From 2¹⁶ steps on, s itself will do. Below, √(s² + 4) does, for any
    number of statistics: rounding a Gaussian of scale s at random, by a discrete Gaussian of scale 2 around it, gives
    the discrete Gaussian of scale √(s² + 4) up to a factor 1 ± 10⁻³³ per statistic, and is post-processing. So does the
    scale at which ``sensitivity² / (2 scale²)``-zCDP, which discrete noise has (Canonne, Kamath and Steinke 2020),
    gives epsilon and delta; the smaller of both is taken. For one statistic and less than 2¹⁰ steps the scale is
    lowered until :func:`discrete_gaussian_delta` reaches delta.

    Examples
    --------
    >>> from dpbook.accounting import gaussian_scale
    >>> round(gaussian_scale(sensitivity=1.0, epsilon=1.0, delta=1e-5), 4)
    3.7306
    >>> [round(gaussian_scale(sensitivity=1.0, epsilon=8.0, delta=1e-4, unit=unit), 4) for unit in (None, 1e-6, 1.0)]
    [0.5431, 0.5431, 0.5557]
    """
    sensitivity, epsilon = noise_arguments(sensitivity, epsilon, widest=1e280)
    delta, statistics = delta_value("delta", delta, zero=False), integer("statistics", statistics, least=1)
    epsilon = min(epsilon, 1e6)  # beyond, delta cannot be computed in floats; a smaller epsilon is always safe

    def excess(log_mu: float) -> float:
        return math.log(max(gaussian_delta(epsilon, math.exp(log_mu)), 5e-324)) - math.log(delta)

    low = high = 0.0
    while excess(low) > 0:
        low -= 1
        if low < -230:
            raise ValueError(f"epsilon and delta must not both be this small: {epsilon}, {delta}")
    while excess(high) < 0:
        high += 1
    mu = math.exp(optimize.brentq(excess, low, high, xtol=1e-12)) if low < high else 1.0
    scale = sensitivity / mu * _MARGIN
    return scale if unit is None else _on_grid(scale, sensitivity, epsilon, delta, positive("unit", unit), statistics)


def _on_grid(scale: float, sensitivity: float, epsilon: float, delta: float, unit: float, statistics: int) -> float:
    """Raise the scale of Gaussian noise so that discrete Gaussian noise on a grid is (epsilon, delta)-DP."""
    steps = scale / unit
    if steps >= _FINE:
        return scale
    enough = min(math.hypot(steps, 2.0), _zcdp_steps(float(Fraction(sensitivity) / Fraction(unit)), epsilon, delta))
    if statistics == 1 and steps < _SUMMED:
        shift = max(1, math.floor(Fraction(sensitivity) / Fraction(unit)))
        enough = _summed_steps(steps, enough, shift, epsilon, delta)
    return enough * unit


def _zcdp_steps(sensitivity: float, epsilon: float, delta: float) -> float:
    """Return a scale at which discrete Gaussian noise is (epsilon, delta)-DP by its zCDP parameter Δ² / (2 scale²)."""

    def excess(log_rho: float) -> float:
        return zcdp_epsilon(math.exp(log_rho), delta) - epsilon

    low = high = 0.0
    while excess(low) > 0:
        low -= 4
    while excess(high) < 0:
        high += 4
    rho = math.exp(optimize.brentq(excess, low, high, xtol=1e-9) - 2e-9)
    return sensitivity / math.sqrt(2 * rho) if excess(math.log(rho)) <= 0 else math.inf


def _summed_steps(low: float, enough: float, shift: int, epsilon: float, delta: float) -> float:
    """Return a scale between ``low`` and ``enough`` at which the exact delta is at most ``delta``, by bisection.

    The exact delta need not fall everywhere as the scale grows, so the scale returned is one that was tried.
    """
    if discrete_gaussian_delta(epsilon, shift, low) <= delta:
        return low
    while enough - low > 1e-9 * enough:
        middle = (low + enough) / 2
        if discrete_gaussian_delta(epsilon, shift, middle) <= delta:
            enough = middle
        else:
            low = middle
    return enough
