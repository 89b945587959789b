"""What a Hamiltonian sampler of private regressions needs to know of a posterior, and derivatives that all share.

:mod:`~dpbook.regression.collapsed` and :mod:`~dpbook.regression.exact` each hold a target.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from dpbook._arrays import Array
from dpbook._batch_last import times
from dpbook.regression.layout import Layout
from dpbook.regression.parametrisation import Natural, Parametrisation

__all__: list[str] = []


class Target(Protocol):
    """A posterior of the parameters (or of what stands for them) given the noise variances of each statistic."""

    @property
    def mixture(self) -> bool:
        """Whether Laplace noise is taken as normal given its variances, which are drawn between the moves."""
        ...

    def evaluate(self, space: Parametrisation, position: Array, variance: Array | None) -> tuple[Array, Array]:
        """Return the log density (B,) at positions (dim, B) given noise variances (k, B), and its gradient.

        Without variances Laplace noise is taken as it is; only targets that are no mixture can do that.
        """
        ...

    def value(self, space: Parametrisation, position: Array, variance: Array) -> Array:
        """Return the log density alone."""
        ...

    def noise(self, space: Parametrisation, position: Array, variance: Array, rng: np.random.Generator) -> Array:
        """Draw the noise (k, B) of each statistic given positions and noise variances; for mixtures only."""
        ...

    def spread(self, space: Parametrisation, position: Array, variance: Array) -> Array:
        """Return the covariance (k, k, B) of the noisy sums given the position."""
        ...

    def parameters(self, natural: Natural, rng: np.random.Generator) -> tuple[Array, Array]:
        """Draw theta (q, B) and sigma2 (B,) given what the position stands for."""
        ...


def by_parameters(natural: Natural, mean: Array, cov: Array, by_m: Array, by_c: Array, layout: Layout) -> Natural:
    """Carry derivatives by the mean and covariance of a record u = (w, y) to theta, sigma2 and the covariates' law."""
    q, first = layout.regressors, int(layout.intercept)
    theta, within = natural.theta, cov[:q, :q]
    across, own = by_c[:q, q], by_c[q, q]
    by_theta = by_m[q] * mean[:q] + 2 * times(within, across + own * theta)
    by_mean = by_m[:q] + by_m[q] * theta
    mixed = across[:, None] * theta[None]
    by_within = by_c[:q, :q] + mixed + np.swapaxes(mixed, 0, 1) + own * theta[:, None] * theta[None]
    return Natural(by_theta, own, by_mean[first:], by_within[first:, first:])


def refused(value: Array) -> Array:
    """Return log densities with minus infinity where they are not finite: the end of double precision is no mode."""
    return np.where(np.isfinite(value), value, -np.inf)
