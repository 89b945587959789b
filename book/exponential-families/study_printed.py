"""The truncated Gibbs sampler as its source prints it, for comparison only, and with each of its faults alone.

Faults: line 10 redraws the released sum without looking at the release; the sums over the three regions are taken as
independent; read literally, a region's mean is n q. An exponential rate, redacted.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy import special
from study_worlds import Array, Sampler, World, package_sampler

from dpbook.expfam import GibbsState
from dpbook.latent_noise import draw_noise_variance

VARIANTS = ("corrected", "line 10 only", "independent regions only", "as printed", "literal m = nq")


def printed_sampler(world: World, variant: str) -> Sampler:
    """Return the sampler with the faults of one variant; it starts as the package's does."""
    start, step = package_sampler(world, "redact")
    if variant == "corrected":
        return Sampler(start, step)
    noisy, scale = world.noisy["redact"], world.scale["redact"]
    independent, redraw = variant != "line 10 only", variant != "independent regions only"
    literal = variant == "literal m = nq"
    n = np.asarray(float(world.n))

    def faulty(rng: np.random.Generator, state: GibbsState) -> tuple[GibbsState, None]:
        tail, centre = regions(world, state.theta, literal)
        middle, spread = _product(centre, noisy[:, 0], state.noise_variance[..., 0])
        # As printed, only the total must be positive; the corrected sampler asks it of the released sum too.
        whole = independent and redraw
        released = rng.normal(middle, np.sqrt(spread)) if whole else _above_zero(middle, spread, rng)
        gain = 0.0 if independent else tail.covariance / centre.variance
        left = np.maximum(tail.variance - gain * tail.covariance, 0.0)
        if independent:
            left = left + tail.dependence
        total = _above_zero(released + tail.mean + gain * (released - centre.mean), left, rng)
        theta = world.model.family.draw_parameter(world.model.prior, total[..., None], n, rng)
        if redraw:  # line 10: from N(m, V) at the new theta, as if nothing had been released
            _, centre = regions(world, theta, literal)
            released = rng.normal(centre.mean, np.sqrt(centre.variance))
        variance = draw_noise_variance(noisy - released[..., None], scale, rng)
        return GibbsState(theta, released[..., None], variance), None

    return Sampler(start, faulty)


class Tail(NamedTuple):
    """Moments of the sum outside the bounds."""

    mean: Array
    variance: Array
    covariance: Array  # with the centre's sum
    dependence: Array  # what the variance gains if the two tails are taken as independent


class Centre(NamedTuple):
    """Moments of the sum inside the bounds."""

    mean: Array
    variance: Array


def regions(world: World, theta: Array, literal: bool) -> tuple[Tail, Centre]:
    """Return moments of the sums below, inside and above the bounds: m = n I1, V = n (I2 - I1²), Cov = -n I1 I1'."""
    n = float(world.n)
    # E[x^k; x < c] = k! P(k + 1, θc) / θ^k for an exponential variable, P the regularised incomplete gamma function.
    edges = [special.gammainc(k + 1, theta * bound) for bound in world.model.family.bounds for k in range(3)]
    scale = [math.factorial(k) / theta**k for k in range(3)]
    low = [scale[k] * edges[k] for k in range(3)]
    mid = [scale[k] * (edges[3 + k] - edges[k]) for k in range(3)]
    high = [scale[k] * (1 - edges[3 + k]) for k in range(3)]
    order = 0 if literal else 1
    tail = Tail(
        mean=n * (low[order] + high[order]),
        variance=n * (low[2] - low[1] ** 2 + high[2] - high[1] ** 2 - 2 * low[1] * high[1]),
        covariance=-n * mid[1] * (low[1] + high[1]),
        dependence=2 * n * low[1] * high[1],
    )
    return tail, Centre(n * mid[order], n * (mid[2] - mid[1] ** 2))


def _product(centre: Centre, noisy: Array, noise: Array) -> tuple[Array, Array]:
    gain = centre.variance / (centre.variance + noise)
    return centre.mean + gain * (noisy - centre.mean), centre.variance * (1 - gain)


def _above_zero(mean: Array, variance: Array, rng: np.random.Generator) -> Array:
    """Draw normals given that they are positive, by the inverse of the upper tail, in logarithms."""
    sd = np.sqrt(np.maximum(variance, np.finfo(float).tiny))
    tail = np.log1p(-rng.random(mean.shape)) + special.log_ndtr(mean / sd)
    return np.asarray(np.maximum(mean - sd * special.ndtri_exp(tail), 0.0))
