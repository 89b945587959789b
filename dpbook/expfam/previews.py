"""What a release would be worth: noise scale and expected posterior spread, before anything is spent.

Everything here is computed from public numbers: the family with its bounds, n, epsilon, and a guess at the parameter
that was made without the data. Chapter 1 explains how to choose epsilon with it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dpbook._arrays import Array
from dpbook._validation import finite_array, fraction, integer, one_of, privacy_loss
from dpbook.expfam.families import OUTSIDE, Binomial, Family, Multinomial
from dpbook.expfam.releases import _require_family, _require_prior
from dpbook.mechanisms import gaussian_scale
from dpbook.priors import Beta, Dirichlet, NormalInverseGamma

__all__ = ["Preview", "preview"]


@dataclass(frozen=True)
class Preview:
    """What a release would be worth, computed from public numbers before anything is spent.

    Standard deviations are floats for a family of one parameter, and arrays, one entry a parameter, for the others.

    Attributes
    ----------
    noise_scale : float
        The scale of the noise on each released sum (Laplace b, Gaussian sd).
    noise_sd, sampling_sd : float or ndarray
        Standard deviations of the parameter's estimate from the released sums: from the noise, and from sampling n
        people.
    posterior_sd : float or ndarray
        The expected posterior sd of theta after the release, noise accounted for.
    nonprivate_sd : float or ndarray
        The same without privacy, from the records' own sufficient statistics.
    break_even_n : float or ndarray
        The n at which the noise's sd equals the sampling sd; beyond it, privacy is the smaller worry.

    Examples
    --------
    >>> from dpbook import expfam
    >>> expfam.preview(expfam.Binomial(), n=1000, epsilon=0.1).noise_scale
    10.0

    Explained in :doc:`/book/background/choosing-epsilon`.
    """

    noise_scale: float
    noise_sd: Any
    sampling_sd: Any
    posterior_sd: Any
    nonprivate_sd: Any
    break_even_n: Any


def preview(
    family: Family,
    *,
    n: int,
    epsilon: float,
    mechanism: str = "laplace",
    delta: float = 0.0,
    outside: str = "clip",
    theta: ArrayLike | None = None,
    proportion: float = 0.5,
    prior: Any = None,
) -> Preview:
    """Say, before anything is spent, how noisy a release would be and how much it would teach.

    Normal approximations (the delta method): good to a few per cent where the posterior is narrow and far from the
    edges of the parameter's range; :func:`infer` makes none of them.

    Parameters
    ----------
    family : Family
        The model, with its public bounds.
    n : int
        The public number of records.
    epsilon, mechanism, delta, outside
        As in :func:`release`.
    theta : float or array, optional
        A guess at the parameter, made without the data; needed for every family but Binomial.
    proportion : float, default 0.5
        The guess for Binomial; 0.5 is the most pessimistic for the sampling error.
    prior : object, optional
        The analyst's prior, of the family's kind. Default: Beta(1, 1) for Binomial, none for the others.

    Returns
    -------
    Preview
        The noise scale and the standard deviations.

    Examples
    --------
    >>> from dpbook import expfam
    >>> look = expfam.preview(expfam.Binomial(), n=6366, epsilon=0.1, proportion=0.3)
    >>> round(look.noise_sd, 4), round(look.sampling_sd, 4), round(look.break_even_n)
    (0.0022, 0.0057, 952)
    >>> look = expfam.preview(expfam.Exponential(0, 2), n=500, epsilon=0.5, theta=1.5)
    >>> round(look.posterior_sd, 3), round(look.nonprivate_sd, 3)
    (0.077, 0.067)

    Explained in :doc:`/book/background/choosing-epsilon`.
    """
    _require_family(family)
    n = integer("n", n, least=1)
    epsilon, delta = privacy_loss(epsilon, delta, mechanism)
    one_of("outside", outside, OUTSIDE)
    guess = _guess(family, theta, proportion)
    if prior is None and isinstance(family, Binomial):
        prior = Beta(1, 1)
    if prior is not None:
        _require_prior(prior, family)
    if mechanism == "laplace":
        scale = family.sensitivity(outside) / epsilon
        noise_variance = 2 * scale**2
    else:
        scale = gaussian_scale(sensitivity=family.sensitivity(outside, 2), epsilon=epsilon, delta=delta)
        noise_variance = scale**2
    free = _free_directions(family)
    slope, spread = _slope_and_spread(family, guess, outside)
    released, own = slice(0, family.size), slice(spread.shape[0] - family.size, None)
    belief = _prior_precision(prior, free)

    def sds(information: Array) -> Any:
        return _plain(np.sqrt(np.diag(free @ np.linalg.inv(information) @ free.T)), family)

    def information(rows: slice, covariance: Array) -> Array:
        gradient = n * slope[rows] @ free
        return np.asarray(gradient.T @ np.linalg.pinv(covariance, hermitian=True) @ gradient)

    noise = noise_variance * np.eye(family.size)
    sampling = information(released, n * spread[released, released])
    noise_only = sds(information(released, noise))
    sampling_only = sds(sampling)
    return Preview(
        noise_scale=scale,
        noise_sd=noise_only,
        sampling_sd=sampling_only,
        posterior_sd=sds(information(released, n * spread[released, released] + noise) + belief),
        nonprivate_sd=sds(information(own, n * spread[own, own]) + belief),
        break_even_n=n * (noise_only / sampling_only) ** 2,
    )


def _guess(family: Family, theta: ArrayLike | None, proportion: float) -> Array:
    """Return the guessed parameter as an array of its entries."""
    if theta is None:
        if not isinstance(family, Binomial):
            raise TypeError(f"theta must be given for {family!r}: a guess at the parameter, made without the data")
        return np.array([fraction("proportion", proportion)])
    guess = np.atleast_1d(finite_array("theta", theta))
    if guess.shape != (family.parameters,):
        raise ValueError(f"theta must have {family.parameters} entries for {family!r}, got shape {guess.shape}")
    if isinstance(family, Binomial) and not 0 < guess[0] < 1:
        raise ValueError(f"theta must lie strictly between 0 and 1, got {guess[0]}")
    if isinstance(family, Multinomial) and (guess.min() <= 0 or abs(guess.sum() - 1) > 1e-9):
        raise ValueError(f"theta must hold probabilities greater than 0 that add up to 1, got {guess}")
    if family.name in ("exponential", "poisson") and guess[0] <= 0:
        raise ValueError(f"theta must be greater than 0, got {guess[0]}")
    if family.name == "normal" and guess[1] <= 0:
        raise ValueError(f"theta must have a variance greater than 0 as its second entry, got {guess[1]}")
    return guess


def _free_directions(family: Family) -> Array:
    """Return an orthonormal basis of the directions in which the parameter may move, as columns."""
    if not isinstance(family, Multinomial):
        return np.eye(family.parameters)
    around_the_sum = np.eye(family.k) - 1 / family.k
    return np.linalg.svd(around_the_sum)[0][:, : family.k - 1]


def _slope_and_spread(family: Family, guess: Array, outside: str) -> tuple[Array, Array]:
    """Return the derivative of a record's mean statistics by each parameter, and their covariance."""
    scalar = family.parameters == 1
    columns = []
    for j, value in enumerate(guess):
        step = 1e-5 * max(abs(value), 1e-3)
        shift = step * np.eye(guess.size)[j]
        ends = [family.moments(point[0] if scalar else point, outside)[0] for point in (guess - shift, guess + shift)]
        columns.append((ends[1] - ends[0]) / (2 * step))
    return np.stack(columns, axis=-1), family.moments(guess[0] if scalar else guess, outside)[1]


def _prior_precision(prior: Any, free: Array) -> Array:
    """Return the prior's precision along the free directions; 0 where its variance is infinite or there is none."""
    if prior is None:
        return np.zeros((free.shape[1],) * 2)
    if isinstance(prior, Dirichlet):
        mean = prior.mean
        cov = (np.diag(mean) - np.outer(mean, mean)) / (np.sum(prior.alpha) + 1)
        return np.asarray(np.linalg.inv(free.T @ cov @ free))
    if isinstance(prior, NormalInverseGamma):
        variance = prior.rate / (prior.shape - 1) if prior.shape > 1 else math.inf
        of_variance = variance**2 / (prior.shape - 2) if prior.shape > 2 else math.inf
        return np.diag([prior._alone("prior")[1] / variance, 1 / of_variance])
    return np.array([[1 / prior.variance]])


def _plain(values: Array, family: Family) -> Any:
    return float(values[0]) if family.parameters == 1 else values
