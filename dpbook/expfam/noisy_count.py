"""The exact posterior of a share after a noisy count, or after randomised responses: no approximation, no sampling.

Section "What a Bayesian should believe after a release" of chapter 1 derives both.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy import special

from dpbook._arrays import Array
from dpbook.expfam.one_parameter import BetaMixture, GridDensity, times_likelihood
from dpbook.priors import Beta
from dpbook.release import Release

__all__ = ["after_noisy_count", "after_randomized_response"]


def after_noisy_count(release: Release, prior: Beta) -> BetaMixture:
    """Return a mixture over the possible counts s, with weights proportional to C(n,s) B(alpha+s, beta+n-s) p(z|s)."""
    counts, log_weights = _log_weights(release, prior)
    weights = np.exp(log_weights - log_weights.max())
    return BetaMixture(weights, prior.alpha + counts, prior.beta + release.n - counts)


def after_randomized_response(release: Release, prior: Beta) -> GridDensity:
    """Return prior(theta) π^r (1-π)^(n-r), where π = (1-t) + (2t-1) theta is the chance of a "yes" report."""
    reports, n, truth = int(release["reports"][0]), release.n, float(release.settings["truth"])

    def log_likelihood(theta: Array) -> Array:
        yes = (1 - truth) + (2 * truth - 1) * theta
        return np.asarray(special.xlogy(reports, yes) + special.xlog1py(n - reports, -yes))

    return times_likelihood(prior, log_likelihood)


def _log_weights(release: Release, prior: Beta) -> tuple[NDArray[np.int64], Array]:
    """Return the counts whose weight is not negligible, and the logarithms of their weights, up to a constant."""
    n, gaussian, seen = release.n, release.mechanism == "gaussian", release.observations
    extremes = _log_beta_binomial(_turning_points(n, prior), n, prior)
    drop = float(np.ptp(extremes)) + 45.0  # e^-45 is below double precision
    nearest = [min(max(float(each["sum"][0]), 0.0), float(n)) for each in seen]
    reach = [1 + each.scale["sum"] * (math.sqrt(2 * drop) if gaussian else drop) for each in seen]
    ends = [(max(at - far, 0.0), min(at + far, float(n))) for at, far in zip(nearest, reach, strict=True)]
    counts = np.arange(math.floor(min(low for low, _ in ends)), math.ceil(max(high for _, high in ends)) + 1)
    log_noise = sum(_log_noise(each, at, counts) for each, at in zip(seen, nearest, strict=True))
    return counts, np.asarray(_log_beta_binomial(counts, n, prior) + log_noise)


def _log_noise(release: Release, nearest: float, counts: NDArray[np.int64]) -> Array:
    """Return the log density of the noise that each count implies, up to a constant.

    Distances are taken from the possible value nearest to y, which changes the density by a constant factor only:
    |y-s| = |y-c| + |c-s| for every count s, and likewise for squares. A far y then costs no precision.
    """
    scale = release.scale["sum"]
    distance = np.abs(nearest - counts) / scale
    pull = abs(float(release["sum"][0]) - nearest) / scale
    return np.asarray(-(0.5 * distance + pull) * distance if release.mechanism == "gaussian" else -distance)


def _turning_points(n: int, prior: Beta) -> NDArray[np.int64]:
    """Return counts among which are those of the largest and the smallest prior predictive probability.

    The ratio of successive probabilities, (n-s)(alpha+s) / ((s+1)(beta+n-s-1)), passes 1 at most once.
    """
    bend = prior.alpha + prior.beta - 2
    at = (n * (prior.alpha - 1) - (prior.beta - 1)) / bend if bend else 0.0
    middle = math.floor(min(max(at, 0.0), float(n)))
    return np.unique(np.clip([0, middle, middle + 1, n], 0, n))


def _log_beta_binomial(counts: NDArray[np.int64], n: int, prior: Beta) -> Array:
    """Log prior predictive of the count, up to a constant: log C(n,s) + log B(alpha+s, beta+n-s)."""
    return np.asarray(
        special.betaln(prior.alpha + counts, prior.beta + n - counts)
        - special.gammaln(counts + 1)
        - special.gammaln(n - counts + 1)
    )
