"""What a release of a regression would be worth, from public numbers, before anything is spent.

Chapter 4 explains the normal approximation behind it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from dpbook._arrays import Array
from dpbook._validation import flag, integer, privacy_loss
from dpbook.accounting import gaussian_scale
from dpbook.preview import Preview
from dpbook.priors import NormalInverseGamma, NormalInverseWishart
from dpbook.regression.coordinates import Coordinates, column_bounds, column_names
from dpbook.regression.layout import Layout
from dpbook.regression.moments import from_normal, record_moments
from dpbook.regression.sensitivities import sensitivity_of
from dpbook.regression.weak_priors import covariates_in, flat_prior, stated_prior

__all__ = ["preview"]


def preview(
    *,
    n: int,
    x_bounds: Any,
    y_bounds: tuple[float, float],
    epsilon: float,
    d: int | None = None,
    intercept: bool = True,
    moments: bool = False,
    mechanism: str = "laplace",
    delta: float = 0.0,
    prior: NormalInverseGamma | None = None,
    covariates: NormalInverseWishart | None = None,
) -> Preview:
    """Say, before anything is spent, how noisy a release would be and how much it would teach.

    A normal approximation at the centre of the priors: exact in the limit of many records, good to some ten per cent
    where the posterior is not dominated by noise. Where the noise hides the covariates' spread the posterior is
    heavy-tailed, and only :func:`infer` knows it.

    Parameters
    ----------
    n : int
        The public number of records.
    x_bounds, y_bounds, epsilon, intercept, moments, mechanism, delta
        As in :func:`release`.
    d : int, optional
        The number of covariates where ``x_bounds`` are one pair for all; by default 1.
    prior : NormalInverseGamma, optional
        The analyst's prior; by default a flat line through the middle of ``y_bounds``, worth a thousandth of a record,
        with an error sd of a quarter of their width.
    covariates : NormalInverseWishart, optional
        The prior of the covariates; by default the weak one from the bounds.

    Returns
    -------
    Preview
        Of the coefficients, the intercept first: ``posterior_sd`` and ``nonprivate_sd`` in the data's units, and
        beside them the sensitivity and noise scale of the sums (in [-1, 1]) and ``break_even_n``, about the n at which
        noise and sampling contribute alike to the slopes' variance.

    Examples
    --------
    >>> from dpbook import regression
    >>> look = regression.preview(n=61_395, x_bounds={"years": (0, 20)}, y_bounds=(0, 30), epsilon=1.0)
    >>> look.summary().loc["years", ["posterior_sd", "nonprivate_sd"]].round(4).tolist()
    [0.014, 0.0135]

    Explained in :doc:`/book/regression/calibration-utility-cost`.
    """
    n = integer("n", n, least=1)
    intercept, moments = flag("intercept", intercept), flag("moments", moments)
    epsilon, delta = privacy_loss(epsilon, delta, mechanism)
    inside = _inside(x_bounds, y_bounds, None if d is None else integer("d", d, least=1), intercept)
    layout = Layout(inside.d, intercept)
    bound = sensitivity_of(inside, moments, mechanism, layout.size + (len(layout.higher) if moments else 0))
    if mechanism == "laplace":
        scale = bound / epsilon
    else:
        scale = gaussian_scale(sensitivity=bound, epsilon=epsilon, delta=delta)
    variance = (2 if mechanism == "laplace" else 1) * scale**2
    mapped = inside.prior_in(flat_prior(inside) if prior is None else stated_prior(prior))
    beliefs = covariates_in(inside, covariates)
    noisy, exact = (_coefficient_cov(layout, n, added, mapped, beliefs) for added in (variance, 0.0))
    out = inside.theta_out(np.eye(layout.regressors)) - inside.theta_out(np.zeros(layout.regressors))  # the linear part
    posterior_sd, nonprivate_sd = (np.sqrt(np.diag(out.T @ cov @ out)) for cov in (noisy, exact))
    slopes = slice(int(intercept), None)
    excess = float(np.mean(np.diag(noisy)[slopes] / np.diag(exact)[slopes])) - 1
    return Preview(
        inside.labels,
        bound,
        scale,
        posterior_sd=posterior_sd,
        nonprivate_sd=nonprivate_sd,
        break_even_n=n * max(excess, 0.0),
    )


def _inside(x_bounds: Any, y_bounds: Any, d: int | None, intercept: bool) -> Coordinates:
    """Return the coordinates of a release to come; covariates have names where their bounds do."""
    lower, upper = column_bounds(x_bounds, y_bounds, d)
    named = list(x_bounds) if isinstance(x_bounds, Mapping) else None
    return Coordinates(lower, upper, intercept, column_names(named, len(lower) - 1))


def _coefficient_cov(
    layout: Layout, n: int, noise_variance: float, prior: NormalInverseGamma, covariates: NormalInverseWishart
) -> Array:
    """Return the covariance of theta after a release, by the information of a normal with mean n mu and cov n Σ + D.

    The parameters are theta, sigma2, and the mean and covariance of x; the priors enter through their curvature.
    """
    theta, precision = prior.sized(layout.regressors, "prior")
    centre, scale = covariates.sized(layout.d, "covariates")
    sigma2 = prior.rate / (prior.shape + 1)
    cov_x = scale / (covariates.dof + layout.d + 1)
    pairs = np.triu_indices(layout.d)
    at = np.concatenate([theta, [sigma2], centre, cov_x[pairs]])

    def mean_of(parameters: Array) -> Array:
        q = layout.regressors
        spread = np.zeros((layout.d, layout.d))
        spread[pairs] = spread[pairs[1], pairs[0]] = parameters[q + 1 + layout.d :]
        _, second = record_moments(parameters[:q], parameters[q], parameters[q + 1 : q + 1 + layout.d], spread, layout)
        return layout.vector(second)

    # mu is a polynomial of low degree: central differences are exact to rounding.
    steps = 1e-4 * np.eye(at.size)
    slope = np.stack([(mean_of(at + step) - mean_of(at - step)) / 2e-4 for step in steps], axis=1)
    _, cov = from_normal(*record_moments(theta, np.asarray(sigma2), centre, cov_x, layout), layout)
    total = n * cov + (noise_variance + 1e-9) * np.eye(layout.size)
    q = layout.regressors
    information = n**2 * slope.T @ np.linalg.solve(total, slope)
    information[:q, :q] += precision / sigma2
    information[q, q] += prior.shape / sigma2**2
    inverse = np.linalg.inv(cov_x)
    information[q + 1 : q + 1 + layout.d, q + 1 : q + 1 + layout.d] += covariates.strength * inverse
    double = inverse[pairs[0]][:, pairs[0]] * inverse[pairs[1]][:, pairs[1]]
    double += inverse[pairs[0]][:, pairs[1]] * inverse[pairs[1]][:, pairs[0]]
    share = np.where(pairs[0] == pairs[1], 1.0, 2.0)
    information[q + 1 + layout.d :, q + 1 + layout.d :] += covariates.dof / 4 * double * share * share[:, None]
    return np.asarray(np.linalg.inv(information)[:q, :q])
