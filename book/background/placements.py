"""One question, a share, answered with the noise in five places: input, objective, output, posterior draw, statistic.

Each function answers for a whole batch of data sets at once, given as counts of ones among n records, and each is
epsilon-DP per data set (replace-one neighbours, n public). They serve the section on where to add the noise: the noise
is seeded and no budget is charged. For a release, use :mod:`dpbook.expfam`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import signal, special

from dpbook.priors import Beta

Array = NDArray[np.float64]

PLACEMENTS = ("input", "objective", "output", "posterior sample", "sufficient statistic")
UNIFORM = Beta(1, 1)
GRID = 1 << 13  # candidates of a posterior draw
BISECTIONS = 100


def input_perturbation(successes: ArrayLike, n: int, *, epsilon: float, rng: np.random.Generator) -> Array:
    """Estimate a share from randomised responses: every record is flipped before anyone counts.

    epsilon-DP for replace-one neighbours, n public, and locally: the collector sees reports only. A report is true
    with probability ``t = e^eps / (1 + e^eps)``, and ``(reports / n - (1 - t)) / (2t - 1)`` is unbiased.
    """
    counts = _counts(successes, n, epsilon, rng)
    truth = _truth(epsilon)
    # The reports of n people are independent, so their sum is one binomial of true and one of false "yes" reports.
    reports = rng.binomial(counts, truth) + rng.binomial(n - counts, 1 - truth)
    return np.asarray((reports / n - (1 - truth)) / (2 * truth - 1))


def _truth(epsilon: float) -> float:
    """Return the probability of a true report, e^ε / (1 + e^ε)."""
    return 1 / (1 + math.exp(-epsilon))


def objective_perturbation(
    successes: ArrayLike, n: int, *, epsilon: float, ridge: float = 1.0, rng: np.random.Generator
) -> Array:
    """Estimate a share by maximising a log-likelihood with a random slope and a ridge.

    epsilon-DP for replace-one neighbours, n public. In the log-odds ``η`` the objective is
    ``(s + noise) η - n log(1 + e^η) - ridge η² / 2``, with Laplace noise of scale ``1 / epsilon``; the ridge makes a
    maximum exist whatever the noise.
    """
    if not ridge > 0:
        raise ValueError(f"ridge must be greater than 0, got {ridge}")
    slope = sufficient_statistic(successes, n, epsilon=epsilon, rng=rng)
    # The maximum solves n σ(η) + ridge η = slope. The left side increases, and n σ lies between 0 and n.
    low, high = (slope - n) / ridge, slope / ridge
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        below = n * special.expit(middle) + ridge * middle < slope
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return np.asarray(special.expit((low + high) / 2))


def output_perturbation(
    successes: ArrayLike,
    n: int,
    *,
    epsilon: float,
    prior: Beta = UNIFORM,
    of: str = "share",
    rng: np.random.Generator,
) -> Array:
    """Compute the posterior mean of a share, then add Laplace noise to it, or to its log-odds.

    epsilon-DP for replace-one neighbours, n public. With ``N = n + alpha + beta`` the posterior mean ``(s + alpha)/N``
    moves by exactly ``1/N`` between neighbours that differ in the answer. Its log-odds move the most between the
    counts 0 and 1, or n - 1 and n, by an amount that does not shrink as n grows.
    """
    counts = _counts(successes, n, epsilon, rng)
    total = n + prior.alpha + prior.beta
    mean: Array = (counts + prior.alpha) / np.float64(total)
    if of == "share":
        return _with_laplace(mean, 1 / total, epsilon, rng)
    if of != "log-odds":
        raise ValueError(f"of must be 'share' or 'log-odds', got {of!r}")
    yes, no = prior.alpha + np.arange(n + 1.0), prior.beta + n - np.arange(n + 1.0)
    steps = np.diff(np.log(yes) - np.log(no))
    return np.asarray(special.expit(_with_laplace(special.logit(mean), float(steps.max()), epsilon, rng)))


def temperature(epsilon: float, *, floor: float = 0.1) -> float:
    """Return the temperature at which one posterior draw is epsilon-DP (replace-one neighbours, n public).

    On ``[floor, 1 - floor]`` a record moves the log-likelihood by at most ``D = log((1 - floor) / floor)``; the
    exponential mechanism at temperature T costs ``2 D / T``. Below T = 1 the draw would be from something sharper than
    the posterior.
    """
    return max(1.0, 2 * math.log((1 - floor) / floor) / epsilon)


def posterior_sample(
    successes: ArrayLike,
    n: int,
    *,
    epsilon: float,
    prior: Beta = UNIFORM,
    floor: float = 0.1,
    rng: np.random.Generator,
) -> Array:
    """Release one draw from a flattened posterior of the share, restricted to ``[floor, 1 - floor]``.

    epsilon-DP for replace-one neighbours, n public: the exponential mechanism with the log-likelihood as utility, the
    prior as base measure, and the temperature of :func:`temperature`, over a public grid of 8192 shares.
    """
    counts = _counts(successes, n, epsilon, rng)
    heat = temperature(epsilon, floor=floor)
    shares = floor + (1 - 2 * floor) * (np.arange(GRID) + 0.5) / GRID
    log_yes, log_no = np.log(shares), np.log1p(-shares)
    base = (prior.alpha - 1) * log_yes + (prior.beta - 1) * log_no
    place = rng.random(counts.shape)
    drawn = np.empty(counts.shape)
    for count in np.unique(counts):  # data sets with the same count share one distribution
        logits = base + (count * log_yes + (n - count) * log_no) / heat
        cdf = np.cumsum(np.exp(logits - logits.max()))
        same = counts == count
        drawn[same] = shares[np.minimum(np.searchsorted(cdf, place[same] * cdf[-1]), GRID - 1)]
    return drawn


def sufficient_statistic(successes: ArrayLike, n: int, *, epsilon: float, rng: np.random.Generator) -> Array:
    """Release the count itself with Laplace noise of scale ``1 / epsilon``; it may leave [0, n].

    epsilon-DP for replace-one neighbours, n public: a record moves the count by at most 1.
    """
    counts = _counts(successes, n, epsilon, rng)
    return _with_laplace(counts.astype(np.float64), 1.0, epsilon, rng)


def _with_laplace(value: Array, sensitivity: float, epsilon: float, rng: np.random.Generator) -> Array:
    return value + rng.laplace(scale=sensitivity / epsilon, size=value.shape)


def noise_aware_mean(noisy: ArrayLike, n: int, *, epsilon: float, prior: Beta = UNIFORM) -> Array:
    """Return the exact posterior mean of the share given a noisy count: the analyst's side, so it costs nothing.

    The mean of the mixture that :func:`dpbook.expfam.posterior_density` returns, for a whole batch in time
    proportional to n plus the batch: the Laplace weights ``e^(-eps |z - s|)`` on either side of z are a recursion.
    """
    z = np.clip(np.asarray(noisy, dtype=float), 0.0, n)  # beyond the ends the weights keep their proportions
    counts = np.arange(n + 1.0)
    log_weights = special.betaln(prior.alpha + counts, prior.beta + n - counts)
    log_weights -= special.gammaln(counts + 1) + special.gammaln(n - counts + 1)
    weights = np.exp(log_weights - log_weights.max())
    means = (prior.alpha + counts) / (n + prior.alpha + prior.beta)
    whole = np.minimum(np.floor(z), n - 1).astype(int)
    left, right = np.exp(-epsilon * (z - whole)), np.exp(-epsilon * (whole + 1 - z))

    def smoothed(values: Array) -> Array:
        below = signal.lfilter([1.0], [1.0, -math.exp(-epsilon)], values)
        above = signal.lfilter([1.0], [1.0, -math.exp(-epsilon)], values[::-1])[::-1]
        return np.asarray(left * below[whole] + right * above[whole + 1])

    return smoothed(weights * means) / smoothed(weights)


def asymptotic_variance(
    placement: str, *, share: float, n: ArrayLike, epsilon: ArrayLike, floor: float = 0.1
) -> NDArray[np.float64]:
    """Return the large-n variance of the estimate of a share for one of the placements, or ``"non-private"``.

    With ``V = share (1 - share)``: input ``(V + 1 / (4 sinh²(eps/2))) / n``, posterior sample ``(1 + T) V / n``, and
    objective, output and sufficient statistic alike ``V / n + 2 / (eps n)²``; without privacy ``V / n``.
    """
    if placement not in (*PLACEMENTS, "non-private"):
        raise ValueError(f"placement must be one of {PLACEMENTS} or 'non-private', got {placement!r}")
    spread = share * (1 - share)
    size, eps = np.broadcast_arrays(np.asarray(n, dtype=float), np.asarray(epsilon, dtype=float))
    extra: Array = np.zeros(size.shape)
    if placement == "input":
        extra = 1 / (4 * size * np.sinh(eps / 2) ** 2)
    elif placement == "posterior sample":
        extra = np.maximum(1.0, 2 * math.log((1 - floor) / floor) / eps) * spread / size
    elif placement != "non-private":
        extra = 2 / (eps * size) ** 2
    return np.asarray(spread / size + extra)


def compare(
    share: float,
    n: int,
    *,
    epsilon: float,
    trials: int,
    floor: float = 0.1,
    prior: Beta = UNIFORM,
    rng: np.random.Generator,
) -> Mapping[str, float]:
    """Simulate surveys of n people and return the root mean squared error of each placement's estimate of the share.

    Estimates are clipped to [0, 1]. The sufficient statistic is judged twice: with the posterior mean that takes the
    noisy count for exact (``"sufficient statistic"``), and with the one that knows of the noise (``"noise-aware"``).
    """
    counts = rng.binomial(n, share, size=trials)
    total = n + prior.alpha + prior.beta
    noisy = sufficient_statistic(counts, n, epsilon=epsilon, rng=rng)
    estimates = {
        "non-private": (counts + prior.alpha) / total,
        "input": input_perturbation(counts, n, epsilon=epsilon, rng=rng),
        "objective": objective_perturbation(counts, n, epsilon=epsilon, rng=rng),
        "output": output_perturbation(counts, n, epsilon=epsilon, prior=prior, rng=rng),
        "posterior sample": posterior_sample(counts, n, epsilon=epsilon, prior=prior, floor=floor, rng=rng),
        "sufficient statistic": (noisy + prior.alpha) / total,
        "noise-aware": noise_aware_mean(noisy, n, epsilon=epsilon, prior=prior),
    }
    return {name: math.sqrt(np.mean((np.clip(value, 0, 1) - share) ** 2)) for name, value in estimates.items()}


def _counts(successes: ArrayLike, n: int, epsilon: float, rng: np.random.Generator) -> NDArray[np.int64]:
    """Check what all placements take, and return the counts as an array."""
    counts = np.asarray(successes)
    if n < 1 or counts.dtype.kind not in "biu" or not np.all((counts >= 0) & (counts <= n)):
        raise ValueError(f"successes must be whole numbers between 0 and n = {n}, and n at least 1")
    if not epsilon > 0:
        raise ValueError(f"epsilon must be greater than 0, got {epsilon}")
    if not isinstance(rng, np.random.Generator):
        raise TypeError("rng must be a numpy.random.Generator: this is no release; for one use dpbook.expfam.release")
    return counts.astype(np.int64)
