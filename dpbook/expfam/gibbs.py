"""The noise-aware Gibbs sampler: parameter, latent statistics and noise variances drawn in turn, many chains at once.

Given theta the latent sums are taken as normal (the central limit theorem); given them theta is drawn by exact
conjugacy. The two views are not one joint distribution at small n, so this is a pseudo-Gibbs sampler; where a collapsed
posterior exists, prefer it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from dpbook._arrays import Array
from dpbook.expfam.family import Family
from dpbook.expfam.latent_sums import SumsLaw, chosen
from dpbook.latent_noise import draw_noise_variance

__all__ = ["GibbsState", "gibbs_start", "gibbs_step"]

_CANDIDATES = 10  # of each kind, for the start of a chain


class GibbsState(NamedTuple):
    """Chains of the sampler; every array begins with the axes (chain, release).

    ``theta`` is the parameter, ``released`` (..., k) the latent exact value of the released sums, ``noise_variance``
    (..., k) the variance of the noise on each. Explained in :doc:`/book/exponential-families/noise-aware-inference`.

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook.expfam import GibbsState
    >>> GibbsState(np.zeros((4, 1)), np.zeros((4, 1, 1)), np.ones((4, 1, 1))).theta.shape
    (4, 1)
    """

    theta: Array
    released: Array
    noise_variance: Array


def gibbs_start(
    family: Family,
    prior: Any,
    noisy: Array,
    n: Array,
    scale: Array,
    chains: int,
    rng: np.random.Generator,
    *,
    outside: str = "clip",
    several: tuple[Array, Array] | None = None,
) -> GibbsState:
    """Start chains apart but not astray: take candidates from the prior and from the release by their likelihood.

    A chain that starts far out may take thousands of sweeps to come back, since where every record is clipped the
    release says nothing of theta. So each chain takes one of twenty candidates, by the likelihood of the release.
    Explained in :doc:`/book/exponential-families/noise-aware-inference`.

    Parameters
    ----------
    family, prior : Family, object
        The model and its conjugate prior.
    noisy, n, scale : ndarray
        The released sums, (release, k); number of records and noise scale, (release,).
    chains : int
        How many chains per release.
    rng : numpy.random.Generator
    outside : {"clip", "redact"}
        What the release did to records outside the bounds.
    several : pair of ndarray, optional
        Where each release is several put together, their sums (observation, release, k) and scales (observation,
        release); ``noisy`` and ``scale`` are then of their weighted means, and ``noise_variance`` has one more axis,
        the first.

    Returns
    -------
    GibbsState
        With leading axes (chain, release).

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook.expfam import Beta, Binomial, gibbs_start
    >>> rng = np.random.default_rng(0)
    >>> noisy, n, scale = np.array([[50.0]]), np.array([100.0]), np.array([10.0])
    >>> start = gibbs_start(Binomial(), Beta(1, 1), noisy, n, scale, 4, rng)
    >>> start.released.shape
    (4, 1, 1)
    """
    batch = (_CANDIDATES, chains, len(noisy))
    spread, size = scale[:, None], np.asarray(n, dtype=float)[:, None]
    near = family.nearest_valid(noisy + rng.laplace(scale=spread, size=(*batch, family.size)), n)
    theta = np.concatenate([family.draw_parameter(prior, near, n, rng), prior.draw(batch, rng)])
    mean, variance = family.released_moments(theta, outside)
    total = size * variance + 2 * spread**2
    with np.errstate(all="ignore"):  # a hopeless candidate may overflow
        fit = -0.5 * np.sum((noisy - size * mean) ** 2 / total + np.log(total), axis=-1)
    best = np.argmax(np.where(np.isnan(fit), -np.inf, fit) + rng.gumbel(size=fit.shape), axis=0)[None]
    pick = best if theta.ndim == 3 else best[..., None]
    released = size * np.take_along_axis(mean, best[..., None], axis=0)[0]
    if several is None:
        first = rng.exponential(2 * spread**2, released.shape)
    else:
        of_parts = 2 * several[1][:, None, :, None] ** 2
        first = rng.exponential(of_parts, (len(several[1]), *released.shape))
    return GibbsState(np.take_along_axis(theta, pick, axis=0)[0], released, first)


def gibbs_step(
    family: Family,
    prior: Any,
    noisy: Array,
    n: Array,
    scale: Array,
    *,
    outside: str,
    laplace: bool,
    leap: bool = False,
    several: tuple[Array, Array] | None = None,
) -> Callable[[np.random.Generator, GibbsState], tuple[GibbsState, None]]:
    """Return the sweep of the sampler: latent sums given theta, theta given them, noise variances given the residuals.

    Explained in :doc:`/book/exponential-families/noise-aware-inference`.

    Parameters
    ----------
    family, prior, noisy, n, scale, outside, several
        As in :func:`gibbs_start`.
    laplace : bool
        Whether the noise is Laplace, a mixture of normals; otherwise it is normal with sd ``scale``.
    leap : bool, default False
        Whether each sweep begins with a Metropolis step for theta in which the latent sums are integrated out. Where
        noise hides the sums, theta and the sums hold each other fast and plain Gibbs crawls; this step does not.

    Returns
    -------
    callable
        ``step(rng, state) -> (state, info)``, for :func:`dpbook.sampling.run`.

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook.expfam import Beta, Binomial, gibbs_start, gibbs_step
    >>> rng = np.random.default_rng(0)
    >>> noisy, n, scale = np.array([[50.0]]), np.array([100.0]), np.array([10.0])
    >>> problem = (Binomial(), Beta(1, 1), noisy, n, scale)
    >>> step = gibbs_step(*problem, outside="clip", laplace=True)
    >>> state, info = step(rng, gibbs_start(*problem, 4, rng))
    >>> state.theta.shape
    (4, 1)
    """
    fixed = np.broadcast_to(scale[:, None] ** 2, noisy.shape)

    def step(rng: np.random.Generator, state: GibbsState) -> tuple[GibbsState, None]:
        law = family.law_of_sums(state.theta, n, outside)
        seen = noisy
        if several is not None:
            seen, of_mean = _weighted_mean(several[0][:, None], state.noise_variance)
            state = state._replace(noise_variance=of_mean)
        if leap:
            _, law = _leap(family, prior, state, law, seen, n, outside, rng)
        released, sufficient = law.draw(seen, state.noise_variance, rng)
        theta = family.draw_parameter(prior, sufficient, n, rng)
        if several is not None:
            variance = draw_noise_variance(several[0][:, None] - released, several[1][:, None, :, None], rng)
        elif laplace:
            variance = draw_noise_variance(noisy - released, scale[:, None], rng)
        else:
            variance = np.broadcast_to(fixed, released.shape)
        return GibbsState(theta, released, variance), None

    return step


def _weighted_mean(noisy: Array, variance: Array) -> tuple[Array, Array]:
    """Return the mean by precision, and its variance: given the variances, all that several noisy sums say."""
    precision = 1 / variance
    total = precision.sum(axis=0)
    return (precision * noisy).sum(axis=0) / total, 1 / total


def _leap(
    family: Family,
    prior: Any,
    state: GibbsState,
    law: SumsLaw,
    noisy: Array,
    n: Array,
    outside: str,
    rng: np.random.Generator,
) -> tuple[Array, SumsLaw]:
    """Move theta by a Metropolis step given the noise variances, with the latent sums integrated out.

    The proposal makes up m records from theta and updates the prior with them. As two Gibbs steps it is reversible for
    the prior, so likelihoods of the release alone decide; m, at random between 1 and n, sets the length of the leap.
    """
    count = np.floor(np.exp(rng.random(state.released.shape[:-1]) * np.log(n)))
    made_up = family.simulate_sums(state.theta, count, rng)
    if made_up is None:
        return state.theta, law
    proposal = family.draw_parameter(prior, made_up, count, rng)
    with np.errstate(all="ignore"):  # a hopeless proposal may overflow; NaN is refused below
        there = family.law_of_sums(proposal, n, outside)
        gain = there.log_density(noisy, state.noise_variance) - law.log_density(noisy, state.noise_variance)
        accepted = np.log(rng.random(gain.shape)) < gain
    return chosen(accepted, proposal, state.theta), law.switched(accepted, there)
