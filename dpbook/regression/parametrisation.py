"""Real vectors in which the samplers of a private regression move, and the parameters that they stand for.

The parameters are theta, sigma2 and the mean and covariance of the covariates. A Hamiltonian sampler wants plain real
numbers of comparable size instead, a *position*: here its entries are standard normal (or log chi) under the prior, and
the prior's log density and gradient come with them. The batch is the last axis (:mod:`dpbook._batch_last`).
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple

import numpy as np

from dpbook._arrays import Array
from dpbook._batch_last import cholesky, lower_inverse, product, solve, times
from dpbook.regression.layout import Layout
from dpbook.regression.task import Task

__all__: list[str] = []


class Natural(NamedTuple):
    """The parameters themselves, or a function's derivatives by them; the batch B is the last axis."""

    theta: Array  # (q, B)
    sigma2: Array  # (B,)
    mean_x: Array  # (d, B)
    cov_x: Array  # (d, d, B); derivatives are by its entries as d² independent numbers, and symmetric


class Forward(NamedTuple):
    """What the way from positions to parameters computes and the way back needs."""

    natural: Natural
    sigma: Array
    spread: Array  # g: theta = mean + Q (g * xi), (q, B)
    bartlett: Array  # E, lower, with L = P E^-1, (d, d, B)
    inverse: Array  # V = E^-1
    root: Array  # L, the root of cov_x
    centring: Array  # M: mean_x = mean + M zeta / sqrt(strength)


@dataclass(frozen=True, eq=False)
class Parametrisation:
    """A map from real vectors (dim, B) to the parameters of B = chains × releases members, with the prior's density.

    With ``Q Q' = precision^-1``, ``P P' = scale`` and star for fixed reference values,

    - ``log sigma2 = v``,
    - ``theta = mean + Q (((1 - c) sigma + c sigma*) xi)``: not centred (c = 0) where the release says little about a
      direction of theta, centred (c = 1) where it says much; without that, a chain that has to change sigma must
      change all of theta's entries in step,
    - ``cov_x = L L'`` with ``L = P E^-1``, E lower triangular (Bartlett: normal below the diagonal, chi on it),
    - ``mean_x = mean + ((1 - c) L + c L*) zeta / sqrt(strength)``, c by row.

    A position is (xi, v, zeta, the lower triangle of E row by row with logarithms on its diagonal).
    """

    layout: Layout
    theta_mean: Array  # (q, B)
    theta_root: Array  # (q, q, B), Q
    shape: Array  # (B,)
    rate: Array  # (B,)
    mean_x: Array  # (d, B)
    strength: Array  # (B,)
    root_x: Array  # (d, d, B), P, lower
    dof: Array  # (B,)
    centred_theta: Array  # (q, B), c
    centred_mean: Array  # (d, B), c
    sigma_star: Array  # (B,)
    root_star: Array  # (d, d, B), L*

    @classmethod
    def of(cls, task: Task, chains: int) -> Parametrisation:
        """Return the map for ``chains`` chains of each release, chains slowest, with nothing centred."""
        prior, covariates, d = task.stated(), task.covariates, task.layout.d
        q = task.layout.regressors
        half: Array = np.linalg.inv(np.linalg.cholesky(prior.precision))  # precision^-1 = half' half

        def tiled(array: Array) -> Array:
            return np.tile(np.moveaxis(np.asarray(array, dtype=np.float64), 0, -1), chains)

        batch = chains * task.releases
        return cls(
            task.layout,
            tiled(prior.mean),
            tiled(np.swapaxes(half, -1, -2)),
            tiled(prior.shape),
            tiled(prior.rate),
            tiled(covariates.mean),
            tiled(covariates.strength),
            tiled(np.asarray(np.linalg.cholesky(covariates.scale), dtype=np.float64)),
            tiled(covariates.dof),
            np.zeros((q, batch)),
            np.zeros((d, batch)),
            np.ones(batch),
            np.tile(np.eye(d)[..., None], batch),
        )

    def repeated(self, count: int) -> Parametrisation:
        """Return the map for ``count`` batches side by side."""
        names = [each.name for each in fields(self) if each.name != "layout"]
        tiled: dict[str, Any] = {name: np.tile(getattr(self, name), count) for name in names}
        return replace(self, **tiled)

    @property
    def dim(self) -> int:
        """Length of a position: q + 1 + d + d (d + 1) / 2, as many as there are statistics with an intercept."""
        d = self.layout.d
        return self.layout.regressors + 1 + d + d * (d + 1) // 2

    def natural(self, position: Array) -> Natural:
        """Return the parameters at positions (dim, B)."""
        return self.forward(position).natural

    def _parts(self, position: Array) -> tuple[Array, Array, Array, Array]:
        q, d = self.layout.regressors, self.layout.d
        return position[:q], position[q], position[q + 1 : q + 1 + d], position[q + 1 + d :]

    def forward(self, position: Array) -> Forward:
        """Return the parameters at positions (dim, B), with what the way back needs."""
        xi, v, zeta, entries = self._parts(position)
        d = self.layout.d
        sigma = np.exp(0.5 * v)
        spread = (1 - self.centred_theta) * sigma + self.centred_theta * self.sigma_star
        theta = self.theta_mean + times(self.theta_root, spread * xi)
        bartlett = np.zeros((d, d, position.shape[-1]))
        bartlett[np.tril_indices(d)] = entries
        diagonal = np.arange(d)
        bartlett[diagonal, diagonal] = np.exp(bartlett[diagonal, diagonal])
        inverse = lower_inverse(bartlett)
        root = product(self.root_x, inverse)
        weight = self.centred_mean[:, None]
        centring = (1 - weight) * root + weight * self.root_star
        mean_x = self.mean_x + times(centring, zeta) / np.sqrt(self.strength)
        cov_x = product(root, np.swapaxes(root, 0, 1))
        return Forward(Natural(theta, sigma**2, mean_x, cov_x), sigma, spread, bartlett, inverse, root, centring)

    def position_of(self, natural: Natural) -> Array:
        """Return the positions (dim, B) at which the parameters are these."""
        d = self.layout.d
        xi = self.theta_entries(natural.theta, natural.sigma2)
        root = cholesky(natural.cov_x)
        bartlett = product(lower_inverse(root), self.root_x)
        weight = self.centred_mean[:, None]
        centring = (1 - weight) * root + weight * self.root_star
        zeta = times(lower_inverse(centring), natural.mean_x - self.mean_x) * np.sqrt(self.strength)
        diagonal = np.arange(d)
        bartlett[diagonal, diagonal] = np.log(bartlett[diagonal, diagonal])
        return np.concatenate([xi, np.log(natural.sigma2)[None], zeta, bartlett[np.tril_indices(d)]])

    def theta_entries(self, theta: Array, sigma2: Array) -> Array:
        """Return the first q entries (q, B) of positions at which theta and sigma2 are these."""
        spread = (1 - self.centred_theta) * np.sqrt(sigma2) + self.centred_theta * self.sigma_star
        return solve(self.theta_root, theta - self.theta_mean) / spread

    def prior_draw(self, rng: np.random.Generator) -> Array:
        """Return positions drawn from the prior, (dim, B); only where nothing is centred."""
        d, batch = self.layout.d, len(self.shape)
        position = rng.standard_normal((self.dim, batch))
        position[self.layout.regressors] = np.log(self.rate / np.maximum(rng.standard_gamma(self.shape), 1e-300))
        rows, columns = np.tril_indices(d)
        first = self.layout.regressors + 1 + d
        for i, at in enumerate(first + np.flatnonzero(rows == columns)):
            chi2 = 2 * rng.standard_gamma(0.5 * (self.dof - (d - 1 - i)))
            position[at] = 0.5 * np.log(np.maximum(chi2, 1e-300))
        return position

    def log_prior(self, position: Array) -> Array:
        """Return the log density of the prior at positions (dim, B), up to a constant: shape (B,)."""
        return self._log_prior(position, self.forward(position))[0]

    def _log_prior(self, position: Array, forward: Forward) -> tuple[Array, Array, Array]:
        """Return the log prior, and with it w = L^-1 M zeta and h = g / sigma, which the gradient needs."""
        xi, v, zeta, entries = self._parts(position)
        h = forward.spread / forward.sigma
        value = -0.5 * (h * h * xi * xi).sum(axis=0) + np.log(h).sum(axis=0)
        value = value - self.shape * v - self.rate * np.exp(-v)
        w = times(lower_inverse(forward.root), times(forward.centring, zeta))
        d = self.layout.d
        diagonal = np.arange(d)
        ratio = forward.centring[diagonal, diagonal] / forward.root[diagonal, diagonal]
        value = value - 0.5 * (w * w).sum(axis=0) + np.log(ratio).sum(axis=0)
        on = forward.bartlett[diagonal, diagonal]
        rows, columns = np.tril_indices(d)
        degrees = self.dof - (d - 1 - diagonal[:, None])
        value = value - 0.5 * (entries[rows != columns] ** 2).sum(axis=0)
        value = value + (degrees * entries[rows == columns] - 0.5 * on * on).sum(axis=0)
        return value, w, h

    def gradient(
        self, position: Array, forward: Forward, by: Natural, by_root: Array | None = None
    ) -> tuple[Array, Array]:
        """Return the log prior (B,), and the gradient (dim, B) of it plus a function with derivatives ``by``.

        A function of the root L of cov_x gives its derivatives by L's entries as ``by_root``.
        """
        xi, v, zeta, _ = self._parts(position)
        q, d = self.layout.regressors, self.layout.d
        value, w, h = self._log_prior(position, forward)
        root, centring = forward.root, forward.centring
        back = times(np.swapaxes(lower_inverse(root), 0, 1), w)  # of w = L^-1 M zeta
        own = back[:, None] * (w[None] - (1 - self.centred_mean[:, None]) * zeta[None])
        by_root = own if by_root is None else own + by_root
        on = np.arange(d)
        by_root[on, on] -= self.centred_mean * self.root_star[on, on] / (root[on, on] * centring[on, on])
        out = self._carried_back(position, forward, by, by_root)
        out[:q] -= h * h * xi
        pull = -0.5 * self.centred_theta * (self.sigma_star / forward.sigma)  # dh/dv
        out[q] += ((1 / h - h * xi * xi) * pull).sum(axis=0) - self.shape + self.rate * np.exp(-v)
        out[q + 1 : q + 1 + d] -= times(np.swapaxes(centring, 0, 1), back)
        rows, columns = np.tril_indices(d)
        entries = -forward.bartlett[rows, columns]
        entries[rows == columns] *= forward.bartlett[on, on]
        entries[rows == columns] += self.dof - (d - 1 - on[:, None])
        out[q + 1 + d :] += entries
        return value, out

    def volume_gradient(self, position: Array, forward: Forward, by: Natural) -> tuple[Array, Array]:
        """Return the log volume (B,) of the map to the parameters, and the gradient of it plus a function.

        For a density of theta, sigma2, mean_x and cov_x that is not the prior.
        """
        q, d = self.layout.regressors, self.layout.d
        centring, on = forward.centring, np.arange(d)
        rows, columns = np.tril_indices(d)
        diagonal = self._parts(position)[3][rows == columns]
        powers = (2 * d - on)[:, None]
        value = np.log(forward.spread).sum(axis=0) + position[q] + np.log(centring[on, on]).sum(axis=0)
        value = value - (powers * diagonal).sum(axis=0)
        by_root = np.zeros_like(forward.root)
        by_root[on, on] = (1 - self.centred_mean) / centring[on, on]
        out = self._carried_back(position, forward, by, by_root)
        out[q] += 1 + 0.5 * forward.sigma * ((1 - self.centred_theta) / forward.spread).sum(axis=0)
        out[q + 1 + d + np.flatnonzero(rows == columns)] -= powers
        return value, out

    def _carried_back(self, position: Array, forward: Forward, by: Natural, by_root: Array) -> Array:
        """Return derivatives by the position (dim, B) from those by the parameters, and by L besides."""
        xi, _, zeta, _ = self._parts(position)
        q, d = self.layout.regressors, self.layout.d
        out = np.empty_like(position)
        by_eta = times(np.swapaxes(self.theta_root, 0, 1), by.theta)
        out[:q] = forward.spread * by_eta
        out[q] = 0.5 * forward.sigma * ((1 - self.centred_theta) * xi * by_eta).sum(axis=0)
        out[q] += forward.natural.sigma2 * by.sigma2
        by_t = by.mean_x / np.sqrt(self.strength)
        out[q + 1 : q + 1 + d] = times(np.swapaxes(forward.centring, 0, 1), by_t)
        by_root = by_root + (1 - self.centred_mean[:, None]) * by_t[:, None] * zeta[None]
        by_root += 2 * product(by.cov_x, forward.root)
        # L = P E^-1, so that dL = -L dE V
        rows, columns = np.tril_indices(d)
        lower = np.where((np.arange(d)[:, None] >= np.arange(d))[..., None], by_root, 0.0)
        by_bartlett = -product(np.swapaxes(forward.root, 0, 1), product(lower, np.swapaxes(forward.inverse, 0, 1)))
        on = np.arange(d)
        by_bartlett[on, on] *= forward.bartlett[on, on]
        out[q + 1 + d :] = by_bartlett[rows, columns]
        return out

    def prior_curvature(self, position: Array) -> Array:
        """Return the diagonal (dim, B) of the prior's information, roughly."""
        forward = self.forward(position)
        d, q = self.layout.d, self.layout.regressors
        out = np.ones_like(position)
        out[:q] = (forward.spread / forward.sigma) ** 2
        out[q] = self.shape
        out[q + 1 : q + 1 + d] = self._mean_curvature(forward)
        rows, columns = np.tril_indices(d)
        out[q + 1 + d + np.flatnonzero(rows == columns)] = 2 * (self.dof - (d - 1 - np.arange(d)[:, None]))
        return out

    def _mean_curvature(self, forward: Forward) -> Array:
        on = np.arange(self.layout.d)
        return np.asarray((forward.centring[on, on] / forward.root[on, on]) ** 2)


@dataclass(frozen=True, eq=False)
class SecondMoments(Parametrisation):
    """The map of a regression without an intercept, where only second moments of x are released.

    ``E[x x'] = cov_x + mean_x mean_x'`` may be known well while its two parts are not: a thin curved ridge under the
    map above. Here ``E[x x'] = R R'`` with ``R = P E^-1``, ``mean_x = R a`` and ``cov_x = R (I - a a') R'``
    with ``a = zeta / sqrt(1 + |zeta|²)``, so that the ridge is straight. Nothing about mean_x is centred.
    """

    def forward(self, position: Array) -> Forward:
        """Return the parameters at positions (dim, B), with what the way back needs."""
        plain = super().forward(position)
        zeta = self._parts(position)[2]
        second = plain.root
        size = 1 + (zeta * zeta).sum(axis=0)
        along = zeta / np.sqrt(size)
        mean_x = times(second, along)
        # (I - k a a')² = I - a a' with k = 1 / (1 + sqrt(1 - |a|²))
        shrunk = mean_x[:, None] * (along * (np.sqrt(size) / (1 + np.sqrt(size))))[None]
        root = second - shrunk
        cov_x = product(root, np.swapaxes(root, 0, 1))
        natural = plain.natural._replace(mean_x=mean_x, cov_x=cov_x)
        return plain._replace(natural=natural, root=root, centring=second)

    def position_of(self, natural: Natural) -> Array:
        """Return the positions (dim, B) at which the parameters are these."""
        d = self.layout.d
        xi = self.theta_entries(natural.theta, natural.sigma2)
        mean = natural.mean_x
        inverse = lower_inverse(cholesky(natural.cov_x + mean[:, None] * mean[None]))
        along = times(inverse, mean)
        zeta = along / np.sqrt(np.maximum(1 - (along * along).sum(axis=0), 1e-12))
        bartlett = product(inverse, self.root_x)
        on = np.arange(d)
        bartlett[on, on] = np.log(bartlett[on, on])
        return np.concatenate([xi, np.log(natural.sigma2)[None], zeta, bartlett[np.tril_indices(d)]])

    def prior_draw(self, rng: np.random.Generator) -> Array:
        """Return positions drawn from the prior, (dim, B); only where nothing is centred."""
        return self.position_of(Parametrisation.forward(self, super().prior_draw(rng)).natural)

    def _log_prior(self, position: Array, forward: Forward) -> tuple[Array, Array, Array]:
        """Return the log prior, and with it R^-1 (mean_x - mean) and h = g / sigma."""
        xi, v, zeta, entries = self._parts(position)
        d, bartlett = self.layout.d, forward.bartlett
        h = forward.spread / forward.sigma
        value = -0.5 * (h * h * xi * xi).sum(axis=0) + np.log(h).sum(axis=0)
        value = value - self.shape * v - self.rate * np.exp(-v)
        size = 1 + (zeta * zeta).sum(axis=0)
        off = zeta / np.sqrt(size) - times(bartlett, self._standard_mean())
        rows, columns = np.tril_indices(d)
        degrees = self.dof - (d - 1 - np.arange(d)[:, None])
        value = value + (degrees * entries[rows == columns]).sum(axis=0) + 0.5 * self.dof * np.log(size)
        value = value - 0.5 * ((bartlett**2).sum(axis=(0, 1)) + (_transposed_times(bartlett, zeta) ** 2).sum(axis=0))
        value = value - 0.5 * self.strength * ((off * off).sum(axis=0) + (zeta * off).sum(axis=0) ** 2)
        return value, off, h

    def gradient(
        self, position: Array, forward: Forward, by: Natural, by_root: Array | None = None
    ) -> tuple[Array, Array]:
        """Return the log prior (B,), and the gradient (dim, B) of it plus a function with derivatives ``by``."""
        assert by_root is None
        xi, v, zeta, _ = self._parts(position)
        q, d, bartlett = self.layout.regressors, self.layout.d, forward.bartlett
        value, off, h = self._log_prior(position, forward)
        out = self._carried_back(position, forward, by, np.zeros_like(forward.root))
        out[:q] -= h * h * xi
        pull = -0.5 * self.centred_theta * (self.sigma_star / forward.sigma)  # dh/dv
        out[q] += ((1 / h - h * xi * xi) * pull).sum(axis=0) - self.shape + self.rate * np.exp(-v)
        size = 1 + (zeta * zeta).sum(axis=0)
        crossed = (zeta * off).sum(axis=0)
        towards = self.strength * (off + crossed * zeta)
        turned = _transposed_times(bartlett, zeta)  # E' zeta
        own = self.dof * zeta / size - times(bartlett, turned) - self.strength * crossed * off
        out[q + 1 : q + 1 + d] += own - _by_zeta(zeta, size, towards)
        by_bartlett = towards[:, None] * self._standard_mean()[None] - bartlett - zeta[:, None] * turned[None]
        rows, columns = np.tril_indices(d)
        entries = by_bartlett[rows, columns]
        on = np.arange(d)
        entries[rows == columns] *= bartlett[on, on]
        entries[rows == columns] += self.dof - (d - 1 - on[:, None])
        out[q + 1 + d :] += entries
        return value, out

    def volume_gradient(self, position: Array, forward: Forward, by: Natural) -> tuple[Array, Array]:
        """Return the log volume (B,) of the map to the parameters, and the gradient of it plus a function."""
        q, d = self.layout.regressors, self.layout.d
        zeta, entries = self._parts(position)[2:]
        rows, columns = np.tril_indices(d)
        powers = (2 * d + 1 - np.arange(d))[:, None]
        size = 1 + (zeta * zeta).sum(axis=0)
        value = np.log(forward.spread).sum(axis=0) + position[q] - 0.5 * (d + 2) * np.log(size)
        value = value - (powers * entries[rows == columns]).sum(axis=0)
        out = self._carried_back(position, forward, by, np.zeros_like(forward.root))
        out[q] += 1 + 0.5 * forward.sigma * ((1 - self.centred_theta) / forward.spread).sum(axis=0)
        out[q + 1 : q + 1 + d] -= (d + 2) * zeta / size
        out[q + 1 + d + np.flatnonzero(rows == columns)] -= powers
        return value, out

    def _carried_back(self, position: Array, forward: Forward, by: Natural, by_root: Array) -> Array:
        """Return derivatives by the position (dim, B) from those by the parameters, and by R besides."""
        q, d = self.layout.regressors, self.layout.d
        zeta, second = self._parts(position)[2], forward.centring
        size = 1 + (zeta * zeta).sum(axis=0)
        by_mean = by.mean_x - 2 * times(by.cov_x, forward.natural.mean_x)  # cov_x = R R' - mean_x mean_x'
        by_second = by_root + by_mean[:, None] * (zeta / np.sqrt(size))[None]
        # The rest is as with an intercept, for R in L's place and no mean.
        nothing = by._replace(mean_x=np.zeros_like(by.mean_x))
        out = super()._carried_back(position, forward._replace(root=second), nothing, by_second)
        out[q + 1 : q + 1 + d] = _by_zeta(zeta, size, _transposed_times(second, by_mean))
        return out

    def _mean_curvature(self, forward: Forward) -> Array:
        return self.strength

    def _standard_mean(self) -> Array:
        """Return P^-1 times the prior mean of mean_x."""
        return times(lower_inverse(self.root_x), self.mean_x)


def parametrisation_of(task: Task, chains: int) -> Parametrisation:
    """Return the map that suits a task: with an intercept, or without one."""
    return (Parametrisation if task.layout.intercept else SecondMoments).of(task, chains)


def released_moments(natural: Natural, n: Array, layout: Layout) -> tuple[Array, Array, Array]:
    """Return the mean (p, B) of a record u = (w, y), its covariance (p, p, B), and the expected sums (k, B).

    The covariance of the constant is 0; the sums are n (C + m m') at the unique statistics.
    """
    q, first, batch = layout.regressors, int(layout.intercept), natural.theta.shape[-1]
    mean, cov = np.empty((q + 1, batch)), np.zeros((q + 1, q + 1, batch))
    mean[:first], mean[first:q] = 1.0, natural.mean_x
    mean[q] = (natural.theta * mean[:q]).sum(axis=0)
    slope = natural.theta[first:]
    cov[first:q, first:q] = natural.cov_x
    with_y = times(natural.cov_x, slope)
    cov[first:q, q] = cov[q, first:q] = with_y
    cov[q, q] = natural.sigma2 + (slope * with_y).sum(axis=0)
    rows, columns = layout.rows, layout.columns
    return mean, cov, n * (cov[rows, columns] + mean[rows] * mean[columns])


def second_moments(natural: Natural, layout: Layout) -> Array:
    """Return E, the second moments (q, q, B) of the regressors w."""
    q, first, mean = layout.regressors, int(layout.intercept), natural.mean_x
    second = np.empty((q, q, mean.shape[-1]))
    second[first:, first:] = natural.cov_x + mean[:, None] * mean[None]
    if first:
        second[0, 0] = 1.0
        second[0, 1:] = second[1:, 0] = mean
    return second


def _transposed_times(matrix: Array, vector: Array) -> Array:
    return times(np.swapaxes(matrix, 0, 1), vector)


def _by_zeta(zeta: Array, size: Array, by_along: Array) -> Array:
    """Carry derivatives by a = zeta / sqrt(size), size = 1 + |zeta|², to zeta."""
    return np.asarray((by_along - zeta * ((zeta * by_along).sum(axis=0) / size)) / np.sqrt(size))
