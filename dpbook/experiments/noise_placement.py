"""One question, a share, answered with the noise in five places: input, objective, output, posterior draw, statistic.

Each function answers for a whole batch of data sets at once, given as counts of ones among n records, and each is
epsilon-DP per data set (replace-one neighbours, n public). They serve the study of the section on where to add the
noise: the noise is seeded and no budget is charged. For a release, use :mod:`dpbook.expfam`.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import signal, special

from dpbook import noise
from dpbook._validation import finite_array, finite_number, fraction, integer, one_of, positive
from dpbook._validation import seeded_generator as _generator_or_none
from dpbook.expfam import Beta

__all__ = [
    "PLACEMENTS",
    "asymptotic_variance",
    "compare",
    "input_perturbation",
    "main",
    "noise_aware_mean",
    "objective_perturbation",
    "output_perturbation",
    "posterior_sample",
    "posterior_sample_epsilon",
    "sufficient_statistic",
    "temperature",
]

Array = NDArray[np.float64]

PLACEMENTS = ("input", "objective", "output", "posterior sample", "sufficient statistic")
UNIFORM = Beta(1, 1)
GRID = 1 << 13  # candidates of a posterior draw
BISECTIONS = 100


def input_perturbation(successes: ArrayLike, n: int, *, epsilon: float, rng: np.random.Generator) -> Array:
    """Estimate a share from randomised responses: every record is flipped before anyone counts.

    epsilon-DP for replace-one neighbours, n public, and locally: the collector sees reports only. A report is true
    with probability ``t = e^eps / (1 + e^eps)``, and ``(reports / n - (1 - t)) / (2t - 1)`` is unbiased.

    Parameters
    ----------
    successes : int or array of int
        The number of ones in each data set.
    n : int
        The public number of records.
    epsilon : float
        The privacy loss.
    rng : numpy.random.Generator
        Seeded noise.

    Returns
    -------
    ndarray
        The estimates, of the shape of ``successes``; they may leave [0, 1].

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook.experiments.noise_placement import input_perturbation
    >>> input_perturbation([300, 300], 1000, epsilon=1.0, rng=np.random.default_rng(1)).round(3)
    array([0.305, 0.338])

    Explained in :doc:`/book/background/where-to-add-noise`.
    """
    counts, n, epsilon, rng = _study(successes, n, epsilon, rng)
    truth = _truth(epsilon)
    # The reports of n people are independent, so their sum is one binomial of true and one of false "yes" reports.
    reports = rng.binomial(counts, truth) + rng.binomial(n - counts, 1 - truth)
    return np.asarray((reports / n - (1 - truth)) / (2 * truth - 1))


def objective_perturbation(
    successes: ArrayLike, n: int, *, epsilon: float, ridge: float = 1.0, rng: np.random.Generator
) -> Array:
    """Estimate a share by maximising a log-likelihood with a random slope and a ridge.

    epsilon-DP for replace-one neighbours, n public. In the log-odds ``η`` the objective is
    ``(s + noise) η - n log(1 + e^η) - ridge η² / 2``, with Laplace noise of scale ``1 / epsilon``.

    Parameters
    ----------
    successes, n, epsilon, rng
        As in :func:`input_perturbation`.
    ridge : float, default 1.0
        The strength of the penalty, greater than 0, which makes a maximum exist whatever the noise.

    Returns
    -------
    ndarray
        The maximisers as shares ``1 / (1 + e^-η)``, of the shape of ``successes``.

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook.experiments.noise_placement import objective_perturbation
    >>> objective_perturbation([300, 300], 1000, epsilon=1.0, rng=np.random.default_rng(1)).round(3)
    array([0.301, 0.303])

    Explained in :doc:`/book/background/where-to-add-noise`.
    """
    counts, n, epsilon, rng = _study(successes, n, epsilon, rng)
    ridge = positive("ridge", ridge)
    slope, _ = noise.add_laplace(counts.astype(np.float64), 1.0, epsilon, rng)
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

    Parameters
    ----------
    successes, n, epsilon, rng
        As in :func:`input_perturbation`.
    prior : Beta, default Beta(1, 1)
        The public prior.
    of : {"share", "log-odds"}
        What the noise is added to.

    Returns
    -------
    ndarray
        Noisy posterior means, of the shape of ``successes``; with ``of="share"`` they may leave [0, 1].

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook.experiments.noise_placement import output_perturbation
    >>> output_perturbation([300, 300], 1000, epsilon=1.0, rng=np.random.default_rng(1)).round(3)
    array([0.3  , 0.303])

    Explained in :doc:`/book/background/where-to-add-noise`.
    """
    counts, n, epsilon, rng = _study(successes, n, epsilon, rng)
    total = n + prior.alpha + prior.beta
    mean: Array = (counts + prior.alpha) / np.float64(total)
    if one_of("of", of, ("share", "log-odds")) == "share":
        return noise.add_laplace(mean, 1 / total, epsilon, rng)[0]
    yes, no = prior.alpha + np.arange(n + 1.0), prior.beta + n - np.arange(n + 1.0)
    steps = np.diff(np.log(yes) - np.log(no))
    return np.asarray(special.expit(noise.add_laplace(special.logit(mean), float(steps.max()), epsilon, rng)[0]))


def temperature(epsilon: float, *, floor: float = 0.1) -> float:
    """Return the temperature at which one posterior draw is epsilon-DP.

    Replace-one neighbours, n public. On ``[floor, 1 - floor]`` a record moves the log-likelihood by at most
    ``D = log((1 - floor) / floor)``; the exponential mechanism at temperature T costs ``2 D / T``.

    Parameters
    ----------
    epsilon : float
        The privacy loss.
    floor : float, default 0.1
        The shares are restricted to ``[floor, 1 - floor]``; below one half.

    Returns
    -------
    float
        ``max(1, 2 D / epsilon)``: below 1 the draw would be from something sharper than the posterior.

    Examples
    --------
    >>> from dpbook.experiments.noise_placement import temperature
    >>> round(temperature(1.0), 3), temperature(5.0)
    (4.394, 1.0)

    Explained in :doc:`/book/background/where-to-add-noise`.
    """
    return max(1.0, 2 * _log_likelihood_sensitivity(floor) / positive("epsilon", epsilon))


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

    Parameters
    ----------
    successes, n, epsilon, rng
        As in :func:`input_perturbation`.
    prior : Beta, default Beta(1, 1)
        The public prior.
    floor : float, default 0.1
        The smallest share that the model admits, and one minus the largest; public.

    Returns
    -------
    ndarray
        One draw for each data set, of the shape of ``successes``.

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook.experiments.noise_placement import posterior_sample
    >>> posterior_sample([300, 300], 1000, epsilon=1.0, rng=np.random.default_rng(1)).round(3)
    array([0.302, 0.353])

    Explained in :doc:`/book/background/where-to-add-noise`.
    """
    counts, n, epsilon, rng = _study(successes, n, epsilon, rng)
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


def posterior_sample_epsilon(n: int, *, floor: float = 0.1, temperature: float = 1.0, prior: Beta = UNIFORM) -> float:
    """Return the exact epsilon of one posterior draw at a given temperature, for replace-one neighbours, n public.

    The log density ratio of the draws from s + 1 and from s ones is ``logit(θ)/T - log(Z_{s+1}/Z_s)``, with Z the
    normalising constants. It is largest in size at an end of ``[floor, 1 - floor]``, so epsilon is
    ``D/T + max_s |log(Z_{s+1}/Z_s)|``, at most ``2D/T``. Since log Z is convex in s, the maximum is at s = 0 or n - 1.

    Parameters
    ----------
    n : int
        The public number of records.
    floor, prior
        As in :func:`posterior_sample`.
    temperature : float, default 1.0
        The temperature.

    Returns
    -------
    float
        The smallest epsilon for which the draw is epsilon-DP.

    Examples
    --------
    >>> from dpbook.experiments.noise_placement import posterior_sample_epsilon
    >>> [round(posterior_sample_epsilon(n), 3) for n in (1, 10, 100)]
    [2.197, 3.701, 4.299]

    Explained in :doc:`/book/background/where-to-add-noise`.
    """
    n, heat = integer("n", n, least=1), positive("temperature", temperature)
    bound = _log_likelihood_sensitivity(floor)
    edges = np.linspace(floor, 1 - floor, 512 + int(n / heat))  # cells narrower than the steepest decay, T/n
    points, weights = np.polynomial.legendre.leggauss(6)
    shares = ((edges[1:] + edges[:-1])[:, None] + np.diff(edges)[:, None] * points) / 2
    log_yes, log_no = np.log(shares), np.log1p(-shares)
    base = np.log(weights) + (prior.alpha - 1) * log_yes + (prior.beta - 1) * log_no
    log_z = [special.logsumexp(base + (s * log_yes + (n - s) * log_no) / heat) for s in (0, 1, n - 1, n)]
    return float(bound / heat + max(abs(log_z[1] - log_z[0]), abs(log_z[3] - log_z[2])))


def sufficient_statistic(successes: ArrayLike, n: int, *, epsilon: float, rng: np.random.Generator) -> Array:
    """Release the count itself with Laplace noise of scale ``1 / epsilon``.

    epsilon-DP for replace-one neighbours, n public: a record moves the count by at most 1.

    Parameters
    ----------
    successes, n, epsilon, rng
        As in :func:`input_perturbation`.

    Returns
    -------
    ndarray
        The noisy counts, of the shape of ``successes``; they may leave [0, n].

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook.experiments.noise_placement import sufficient_statistic
    >>> sufficient_statistic([300, 300], 1000, epsilon=1.0, rng=np.random.default_rng(1)).round(2)
    array([300.02, 302.31])

    Explained in :doc:`/book/background/where-to-add-noise`.
    """
    counts, n, epsilon, rng = _study(successes, n, epsilon, rng)
    return noise.add_laplace(counts.astype(np.float64), 1.0, epsilon, rng)[0]


def noise_aware_mean(noisy: ArrayLike, n: int, *, epsilon: float, prior: Beta = UNIFORM) -> Array:
    """Return the exact posterior mean of the share given a noisy count: the analyst's side, so it costs nothing.

    The mean of the mixture that :func:`dpbook.expfam.posterior_density` returns, for a whole batch in time
    proportional to n plus the batch: the Laplace weights ``e^(-eps |z - s|)`` on either side of z are a recursion.

    Parameters
    ----------
    noisy : float or array
        Counts released by :func:`sufficient_statistic`.
    n : int
        The public number of records.
    epsilon : float
        The privacy loss that they were released with.
    prior : Beta, default Beta(1, 1)
        The analyst's prior.

    Returns
    -------
    ndarray
        Posterior means, of the shape of ``noisy``.

    Examples
    --------
    >>> from dpbook.experiments.noise_placement import noise_aware_mean
    >>> noise_aware_mean([-8.0, 3.0, 30.0], 10, epsilon=0.5).round(3)
    array([0.208, 0.366, 0.792])

    Explained in :doc:`/book/background/where-to-add-noise`.
    """
    n, epsilon = integer("n", n, least=1), positive("epsilon", epsilon)
    z = np.clip(finite_array("noisy", noisy), 0.0, n)  # beyond the ends the weights keep their proportions
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
    """Return the large-n variance of the estimate of a share for one placement of the noise.

    With ``V = share (1 - share)``: input ``(V + 1 / (4 sinh²(eps/2))) / n``, posterior sample ``(1 + T) V / n``, and
    objective, output and sufficient statistic alike ``V / n + 2 / (eps n)²``; ``"non-private"`` is ``V / n``.

    Parameters
    ----------
    placement : str
        One of ``PLACEMENTS``, or ``"non-private"``.
    share : float
        The true share, in (0, 1).
    n : int or array
        The number of records.
    epsilon : float or array
        The privacy loss; broadcast against ``n``.
    floor : float, default 0.1
        As in :func:`posterior_sample`.

    Returns
    -------
    ndarray
        The variances.

    Examples
    --------
    >>> from dpbook.experiments.noise_placement import asymptotic_variance
    >>> for placement in ("non-private", "input", "sufficient statistic"):
    ...     print(f"{asymptotic_variance(placement, share=0.3, n=1000, epsilon=1.0):.5f}")
    0.00021
    0.00113
    0.00021

    Explained in :doc:`/book/background/where-to-add-noise`.
    """
    placement = one_of("placement", placement, (*PLACEMENTS, "non-private"))
    spread = fraction("share", share) * (1 - share)
    size, eps = np.broadcast_arrays(finite_array("n", n), finite_array("epsilon", epsilon))
    extra: Array = np.zeros(size.shape)
    if placement == "input":
        extra = 1 / (4 * size * np.sinh(eps / 2) ** 2)
    elif placement == "posterior sample":
        extra = np.maximum(1.0, 2 * _log_likelihood_sensitivity(floor) / eps) * spread / size
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

    Parameters
    ----------
    share : float
        The true share, in (0, 1).
    n : int
        People in a survey.
    epsilon : float
        The privacy loss of each placement.
    trials : int
        The number of surveys.
    floor, prior
        As in :func:`posterior_sample`.
    rng : numpy.random.Generator
        Draws the surveys and the noise.

    Returns
    -------
    mapping of str to float
        Errors of ``"non-private"``, the five ``PLACEMENTS``, and ``"noise-aware"``.

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook.experiments.noise_placement import compare
    >>> errors = compare(0.3, 1000, epsilon=0.5, trials=500, rng=np.random.default_rng(1))
    >>> errors["sufficient statistic"] < errors["posterior sample"] < errors["input"]
    True

    Explained in :doc:`/book/background/where-to-add-noise`.
    """
    share, trials = fraction("share", share), integer("trials", trials, least=1)
    counts, n, epsilon, rng = _study(0, n, epsilon, rng)
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


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the errors of all placements for a range of survey sizes: ``python -m dpbook.experiments.noise_placement``.

    Parameters
    ----------
    arguments : sequence of str, optional
        Command-line arguments; by default those of the process.

    Examples
    --------
    >>> from dpbook.experiments.noise_placement import main
    >>> main(["--trials", "200", "--sizes", "100"])  # doctest: +ELLIPSIS
         n  non-private  input  objective  output  posterior sample  sufficient statistic  noise-aware
       100 ...

    Explained in :doc:`/book/background/where-to-add-noise`.
    """
    parser = argparse.ArgumentParser(description=main.__doc__.split("\n")[0] if main.__doc__ else None)
    parser.add_argument("--share", type=float, default=0.3, help="the true share")
    parser.add_argument("--epsilon", type=float, default=0.1, help="the privacy loss")
    parser.add_argument("--trials", type=int, default=4000, help="surveys of each size")
    parser.add_argument("--seed", type=int, default=1, help="seed of the noise")
    parser.add_argument("--sizes", type=int, nargs="+", default=[30, 100, 1000, 10_000, 100_000], help="people")
    chosen = parser.parse_args(arguments)
    rng = np.random.default_rng(chosen.seed)
    names = ("non-private", *PLACEMENTS, "noise-aware")
    print("     n  " + "  ".join(names))
    for n in chosen.sizes:
        errors = compare(chosen.share, n, epsilon=chosen.epsilon, trials=chosen.trials, rng=rng)
        print(f"{n:6d}  " + "  ".join(f"{errors[name]:{len(name)}.4f}" for name in names))


def _truth(epsilon: float) -> float:
    """Return the probability of a true report, e^ε / (1 + e^ε)."""
    return 1 / (1 + math.exp(-epsilon))


def _log_likelihood_sensitivity(floor: float) -> float:
    """Return how far a record can move the log-likelihood on [floor, 1 - floor]: log((1 - floor) / floor)."""
    if not 0 < finite_number("floor", floor) < 0.5:
        raise ValueError(f"floor must lie strictly between 0 and 1/2, got {floor}")
    return math.log((1 - floor) / floor)


def _study(
    successes: ArrayLike, n: int, epsilon: float, rng: np.random.Generator
) -> tuple[NDArray[np.int64], int, float, np.random.Generator]:
    """Check what all placements take."""
    n, epsilon = integer("n", n, least=1), positive("epsilon", epsilon)
    counts = np.asarray(successes)
    if counts.dtype.kind not in "biu":
        raise TypeError(f"successes must be whole numbers, got dtype {counts.dtype}")
    if counts.size and not (counts.min() >= 0 and counts.max() <= n):
        raise ValueError(f"successes must lie between 0 and n = {n}")
    generator = _generator_or_none(rng)
    if generator is None:
        raise TypeError(
            "rng must be a numpy.random.Generator: a study is no release; for one use dpbook.expfam.release"
        )
    return counts.astype(np.int64), n, epsilon, generator


if __name__ == "__main__":
    main()
