"""Exact inference for normal covariates at any n: no central limit theorem.

For normal covariates the statistics of n records have a known law. Written by what a least-squares fit would find in
the unseen records (its coefficients, its residual variance, the mean and covariance of x), that law is a product of
powers and determinants, and the conjugate priors integrate the parameters out. What is left to sample are those least-
squares quantities given the noisy sums; the parameters are then drawn by conjugacy, independently.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dpbook._arrays import Array
from dpbook._batch_last import cholesky, inverse, times
from dpbook.regression.hamiltonian import draw
from dpbook.regression.parametrisation import Natural, Parametrisation, released_moments, second_moments
from dpbook.regression.target import by_parameters, refused
from dpbook.regression.task import Draws, Task

__all__: list[str] = []

# In many dimensions the kinks of Laplace densities allow none but tiny steps. There the force that moves a proposal is
# that of a density whose kinks are rounded off; the density itself decides on acceptance, so that draws have its law.
_MANY, _ROUNDED = 20, 0.15  # statistics; in scales of the noise


def sample(
    task: Task,
    *,
    per_chain: int,
    chains: int,
    rng: np.random.Generator,
    progress: bool = False,
    warm_up: int | None = None,
) -> Draws:
    """Draw theta and sigma2 given noisy statistics, by the exact law of the statistics of normal covariates.

    Each release needs one record more than theta has entries.
    """
    least = task.layout.regressors + 1
    if task.n.min() < least:
        raise ValueError(
            f"method 'exact' needs at least {least} records (one more than theta has entries), got {task.n.min():g}"
        )
    size: dict[str, Any] = {"per_chain": per_chain, "chains": chains, "warm_up": warm_up}
    return draw(ExactTarget, task, **size, rng=rng, progress=progress, label="exact")


class ExactTarget:
    """The posterior of the least-squares fit of the unseen records, parameters integrated out.

    Let t, s², xbar and S be the coefficients, the residual variance (sum of squares over n), and the mean and
    covariance (over n) of x in n unseen records, E the mean of w w', all functions of the exact statistics. With
    ``Psi_n = scale + n S + n strength / (n + strength) (xbar - mean)(xbar - mean)'``, ``Lambda_n = precision + n E``
    and ``b_n = rate + (n s² + (t - mean)' precision Lambda_n^-1 n E (t - mean)) / 2``, their density is proportional to

        |S|^((n-d-2)/2) |E|^(1/2) (s²)^((n-q)/2-1) |Psi_n|^(-(dof+n)/2) |Lambda_n|^(-1/2) b_n^(-(shape+n/2)).
    """

    mixture = False

    def __init__(self, task: Task, chains: int) -> None:
        layout = task.layout

        def tiled(array: Array) -> Array:
            return np.tile(np.moveaxis(np.asarray(array, dtype=np.float64), 0, -1), chains)

        self._layout = task.layout
        self._noisy, self._n, self._b = tiled(task.noisy), tiled(task.n), tiled(task.scale)
        self._weight = np.where(layout.rows == layout.columns, 1.0, 0.5)
        self._place = np.where(layout.position < 0, layout.size, layout.position)
        self._many = layout.size > _MANY
        prior, covariates = task.stated(), task.covariates
        self._mean, self._precision = tiled(prior.mean), tiled(prior.precision)
        self._shape, self._rate = tiled(prior.shape), tiled(prior.rate)
        self._mean_x, self._strength = tiled(covariates.mean), tiled(covariates.strength)
        self._scale, self._dof = tiled(covariates.scale), tiled(covariates.dof)

    def evaluate(self, space: Parametrisation, position: Array, variance: Array | None) -> tuple[Array, Array]:
        """Return the log density (B,) and its gradient (dim, B).

        Laplace noise enters by its own density where ``variance`` is None: the statistics lie within the noise
        of the released ones, so that a variance that comes and goes would stretch and squeeze the posterior.
        """
        forward = space.forward(position)
        natural = forward.natural
        mean, cov, sums = released_moments(natural, self._n, self._layout)
        gap = self._noisy - sums
        value, law = self._law(natural)
        by_second = np.zeros((len(self._weight) + 1, position.shape[1]))
        pull, fit = self._fit(gap, variance)
        by_second[:-1] = self._n * pull * self._weight[:, None]
        linear = by_second[self._place]
        towards = by_parameters(natural, mean, cov, 2 * times(linear, mean), linear, self._layout)
        by = Natural(*(one + other for one, other in zip(law, towards, strict=True)))
        log_volume, gradient = space.volume_gradient(position, forward, by)
        return refused(value + log_volume + fit), gradient

    def value(self, space: Parametrisation, position: Array, variance: Array | None) -> Array:
        """Return the log density (B,)."""
        return self.evaluate(space, position, variance)[0]

    def spread(self, space: Parametrisation, position: Array, variance: Array) -> Array:
        """Return D: given the exact statistics, only the noise is left."""
        return variance[:, None] * np.eye(len(variance))[..., None]

    def _fit(self, gap: Array, variance: Array | None) -> tuple[Array, Array]:
        """Return the derivative of the noise's log density by the expected sums, (k, B), and that density, (B,)."""
        if variance is None:
            force = gap / np.sqrt(gap * gap + (_ROUNDED * self._b) ** 2) if self._many else np.sign(gap)
            return force / self._b, -(np.abs(gap) / self._b).sum(axis=0)
        return gap / variance, -0.5 * (gap * gap / variance).sum(axis=0)

    def noise(self, space: Parametrisation, position: Array, variance: Array, rng: np.random.Generator) -> Array:
        """Return the noise, which the position determines."""
        return self._noisy - released_moments(space.natural(position), self._n, self._layout)[2]

    def parameters(self, natural: Natural, rng: np.random.Generator) -> tuple[Array, Array]:
        """Draw theta and sigma2 from the conjugate posterior given the exact statistics."""
        updated = self._precision + self._n * second_moments(natural, self._layout)
        inverted, _ = inverse(updated)
        off, shrunk, rate = self._residual(natural, inverted)
        sigma2 = rate / np.maximum(rng.standard_gamma(self._shape + 0.5 * self._n), 1e-300)
        root = cholesky(updated)
        # precision^-1 = root^-T root^-1: solve root' x = z
        z = rng.standard_normal(off.shape)
        normal = times(inverted, times(root, z))
        return self._mean + off - shrunk + np.sqrt(sigma2) * normal, sigma2

    def _residual(self, natural: Natural, inverted: Array) -> tuple[Array, Array, Array]:
        """Return t - mean, h = Lambda_n^-1 precision (t - mean), and b_n."""
        off = natural.theta - self._mean
        pulled = times(self._precision, off)
        shrunk = times(inverted, pulled)
        rate = self._rate + 0.5 * (self._n * natural.sigma2 + (pulled * (off - shrunk)).sum(axis=0))
        return off, shrunk, rate

    def _law(self, natural: Natural) -> tuple[Array, Natural]:
        """Return the log density of the fit, before the release is seen, and its derivatives."""
        n, sigma2 = self._n, natural.sigma2
        layout = self._layout
        d, q, first = layout.d, layout.regressors, int(layout.intercept)
        off_x = natural.mean_x - self._mean_x
        pull = self._strength * n / (self._strength + n)
        degree, power = 0.5 * (n - d - 2), 0.5 * (self._dof + n)
        scatter_inverse, scatter_log = inverse(self._scale + n * natural.cov_x + pull * off_x[:, None] * off_x[None])
        cov_inverse, cov_log = inverse(natural.cov_x)
        by_cov = degree * cov_inverse - power * n * scatter_inverse
        by_mean = -2 * power * pull * times(scatter_inverse, off_x)
        second = second_moments(natural, self._layout)
        inverted, updated_log = inverse(self._precision + n * second)
        second_inverse, second_log = inverse(second)
        off, shrunk, rate = self._residual(natural, inverted)
        shape, exponent = self._shape + 0.5 * n, 0.5 * (n - q) - 1
        value = degree * cov_log - power * scatter_log + 0.5 * (second_log - updated_log)
        value = value - shape * np.log(rate) + exponent * np.log(sigma2)
        by_theta = -shape / rate * times(self._precision, off - shrunk)
        by_sigma2 = exponent / sigma2 - 0.5 * shape * n / rate
        by_second = 0.5 * (second_inverse - n * inverted) - 0.5 * shape / rate * n * shrunk[:, None] * shrunk[None]
        inside = by_second[first:, first:]
        by_mean = by_mean + 2 * times(inside, natural.mean_x)
        if first:
            by_mean = by_mean + 2 * by_second[0, 1:]
        return value, Natural(by_theta, by_sigma2, by_mean, by_cov + inside)
