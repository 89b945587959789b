"""Priors that the public bounds suggest where an analyst states none: of coefficients, error variance and covariates.

They come from the bounds alone, never from a release, which would use the data twice.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dpbook._arrays import Array
from dpbook.priors import NormalInverseGamma, NormalInverseWishart
from dpbook.regression.coordinates import Coordinates

__all__: list[str] = []


def stated_prior(prior: Any) -> NormalInverseGamma:
    """Return the prior of coefficients and error variance that an analyst stated; raise where it is none."""
    if not isinstance(prior, NormalInverseGamma):
        raise TypeError(f"prior must be a regression.NormalInverseGamma, got {prior!r}")
    return prior


def covariates_in(inside: Coordinates, covariates: Any) -> NormalInverseWishart:
    """Return the stated prior of the covariates in coordinates, for None the weak one of their bounds."""
    if covariates is None:
        covariates = weak_covariates(inside.lower[:-1], inside.upper[:-1])
    if not isinstance(covariates, NormalInverseWishart):
        raise TypeError(f"covariates must be a regression.NormalInverseWishart or None, got {covariates!r}")
    return inside.covariates_in(covariates)


def weak_covariates(lower: Array, upper: Array) -> NormalInverseWishart:
    """Return the weak prior of covariates with these bounds.

    With h half the width of each column: mean in the middle, worth one record; scale diag(h²/4), d + 2 degrees of
    freedom. Then E[cov_x] = diag(h²/4), and 90 % of the prior puts a covariate's standard deviation between .18 h and
    .84 h.
    """
    half = (np.asarray(upper) - np.asarray(lower)) / 2
    return NormalInverseWishart(np.asarray(lower) + half, 1.0, np.diag(half**2 / 4), half.size + 2.0)


def weak_prior(inside: Coordinates) -> NormalInverseGamma:
    """Return the weak prior of coefficients and error variance, in the data's units.

    In coordinates the error variance has an inverse gamma prior with shape 2 and rate 0.1 (mean 0.1), and given it
    every coefficient has mean 0 and variance ten times the error variance, so about 1: a line through the whole box,
    up or down, is plausible, and one ten times as steep is not.
    """
    mean = inside.theta_out(np.zeros(inside.regressors))
    turn = np.stack([inside.theta_out(row) - mean for row in np.eye(inside.regressors)], axis=1)
    unit2 = float(inside.sigma2_out(np.array(1.0)))
    back = np.linalg.inv(turn)  # theta = mean + turn theta'
    precision = 0.1 * unit2 * back.T @ back
    return NormalInverseGamma(mean, (precision + precision.T) / 2, 2.0, 0.1 * unit2)


def flat_prior(inside: Coordinates) -> NormalInverseGamma:
    """Return a flat line through the middle of y's bounds, worth a thousandth of a record, in the data's units.

    The error's standard deviation is about a quarter of the bounds' width.
    """
    width = float(inside.unit[-1])
    mean = np.zeros(inside.regressors)
    mean[0] = inside.centre[-1] if inside.intercept else 0.0
    back = inside.slopes()
    return NormalInverseGamma(mean, 1e-3 * back.T @ back, 2.0, 3 * (width / 2) ** 2)
