"""What a release would be worth: noise scale and expected posterior spread, before anything is spent.

Everything here is computed from public numbers: the family with its bounds, n, epsilon, and a guess at the parameter
that was made without the data. Chapter 1 explains how to choose epsilon with it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dpbook._arrays import Array
from dpbook._labels import component_labels
from dpbook._validation import integer, one_of, privacy_loss
from dpbook.accounting import gaussian_scale
from dpbook.expfam.families import require_family
from dpbook.expfam.family import OUTSIDE, Family
from dpbook.preview import Preview

__all__ = ["preview"]


def preview(
    family: Family,
    *,
    n: int,
    epsilon: float,
    mechanism: str = "laplace",
    delta: float = 0.0,
    outside: str = "clip",
    theta: ArrayLike | None = None,
    prior: Any = None,
) -> Preview:
    """Say, before anything is spent, how noisy a release would be and how much it would teach.

    Normal approximations (the delta method): good to a few per cent where the posterior is narrow and far from the
    edges of the parameter's range; :func:`infer` makes none of them. Explained in
    :doc:`/book/background/choosing-epsilon`.

    Parameters
    ----------
    family : Family
        The model, with its public bounds.
    n : int
        The public number of records.
    epsilon, mechanism, delta, outside
        As in :func:`release`.
    theta : float or array, optional
        A guess at the parameter, made without the data. Default: one half for Binomial, the most pessimistic for the
        sampling error; the other families need a guess.
    prior : object, optional
        The analyst's prior, of the family's kind. Default: Beta(1, 1) for Binomial, none for the others.

    Returns
    -------
    Preview
        Standard deviations of theta, numbers for a family of one parameter, else one entry per component;
        ``sampling_sd`` and ``noise_sd`` are those of the estimate from the released sums.

    Examples
    --------
    >>> from dpbook import expfam
    >>> look = expfam.preview(expfam.Binomial(), n=6366, epsilon=0.1, theta=0.3)
    >>> round(look.noise_sd, 4), round(look.sampling_sd, 4), round(look.break_even_n)
    (0.0022, 0.0057, 952)
    """
    require_family(family)
    n = integer("n", n, least=1)
    epsilon, delta = privacy_loss(epsilon, delta, mechanism)
    one_of("outside", outside, OUTSIDE)
    slope, spread = _slope_and_spread(family, _guess(family, theta), outside)
    change, scale, noise_variance = _noise(family, outside, mechanism, epsilon, delta)
    free, belief = family.free_directions, _belief(family, prior)
    released, own = slice(0, family.size), slice(spread.shape[0] - family.size, None)

    def sds(statistics: slice, covariance: Array, prior_information: Array | float = 0.0) -> Any:
        gradient = n * slope[statistics] @ free
        information = gradient.T @ np.linalg.pinv(covariance, hermitian=True) @ gradient + prior_information
        found = np.sqrt(np.diag(free @ np.linalg.inv(information) @ free.T))
        return float(found[0]) if family.parameters == 1 else found

    sampling, noise = n * spread[released, released], noise_variance * np.eye(family.size)
    noise_sd, sampling_sd = sds(released, noise), sds(released, sampling)
    return Preview(
        names=family.labels or component_labels("theta", () if family.parameters == 1 else (family.parameters,)),
        sensitivity=change,
        noise_scale=scale,
        noise_sd=noise_sd,
        sampling_sd=sampling_sd,
        posterior_sd=sds(released, sampling + noise, belief),
        nonprivate_sd=sds(own, n * spread[own, own], belief),
        break_even_n=n * (noise_sd / sampling_sd) ** 2,
    )


def _belief(family: Family, prior: Any) -> Array | float:
    """Return the precision of the prior, or of the family's own where none is given, along the free directions."""
    prior = family.default_prior if prior is None else prior
    if prior is None:
        return 0.0
    family.check_prior(prior)
    return family.prior_information(prior)


def _noise(family: Family, outside: str, mechanism: str, epsilon: float, delta: float) -> tuple[float, float, float]:
    """Return the sensitivity, the scale of the noise and its variance."""
    if mechanism == "laplace":
        change = family.sensitivity(outside)
        scale = change / epsilon
        return change, scale, 2 * scale**2
    change = family.sensitivity(outside, 2)
    scale = gaussian_scale(sensitivity=change, epsilon=epsilon, delta=delta)
    return change, scale, scale**2


def _guess(family: Family, theta: ArrayLike | None) -> Array:
    """Return the guessed parameter as an array of its entries."""
    theta = family.cautious_theta if theta is None else theta
    if theta is None:
        raise TypeError(f"theta must be given for {family!r}: a guess at the parameter, made without the data")
    return family.check_parameter(theta)


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
