"""Unconstrained coordinates of all parameters of a private regression, in which its samplers move.

The parameters are theta, sigma2 and the mean and covariance of the covariates. A Hamiltonian sampler wants plain real
numbers of comparable size instead: here they are standard normal (or log chi) under the prior, and their log density
and its gradient come with them. Arrays keep the batch **last**, so that NumPy's inner loops run over chains and
releases and not over the few entries of a matrix: that makes one covariate ten times as fast.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple

import numpy as np

from dpbook._arrays import Array
from dpbook.regression.problem import Layout, Problem

__all__ = ["Natural", "SecondMoments", "Unconstrained", "coordinates_for", "product", "times"]

_SMALL = 6  # up to this many rows a batched product is a broadcast, beyond it a call of BLAS for each member


class Natural(NamedTuple):
    """The parameters themselves, or a function's derivatives by them; the batch B is the last axis.

    Attributes
    ----------
    theta : array (q, B)
        Coefficients.
    sigma2 : array (B,)
        Error variance.
    mean_x : array (d, B)
        Mean of the covariates.
    cov_x : array (d, d, B)
        Their covariance; derivatives are by its entries as d² independent numbers, and symmetric.

    Examples
    --------
    >>> import numpy as np
    >>> Natural(np.zeros((2, 7)), np.ones(7), np.zeros((1, 7)), np.ones((1, 1, 7))).sigma2.shape
    (7,)

    Explained in :doc:`/book/regression/a-sampler-that-mixes`.
    """

    theta: Array
    sigma2: Array
    mean_x: Array
    cov_x: Array


class _Forward(NamedTuple):
    """What the way from coordinates to parameters computes and the way back needs."""

    natural: Natural
    sigma: Array
    spread: Array  # g: theta = mean + Q (g * xi), (q, B)
    bartlett: Array  # E, lower, with L = P E^-1, (d, d, B)
    inverse: Array  # V = E^-1
    root: Array  # L, the root of cov_x
    centring: Array  # M: mean_x = mean + M zeta / sqrt(strength)


@dataclass(frozen=True, eq=False)
class Unconstrained:
    """A map from real vectors (dim, B) to the parameters of B = chains × releases members, with the prior's density.

    With ``Q Q' = precision^-1``, ``P P' = scale`` and star for fixed reference values,

    - ``log sigma2 = v``,
    - ``theta = mean + Q (((1 - c) sigma + c sigma*) xi)``: not centred (c = 0) where the release says little about a
      direction of theta, centred (c = 1) where it says much; without that, a chain that has to change sigma must
      change all of theta's coordinates in step,
    - ``cov_x = L L'`` with ``L = P E^-1``, E lower triangular (Bartlett: normal below the diagonal, chi on it),
    - ``mean_x = mean + ((1 - c) L + c L*) zeta / sqrt(strength)``, c by row.

    A position is (xi, v, zeta, the lower triangle of E row by row with logarithms on its diagonal).

    Parameters
    ----------
    layout : Layout
        With or without an intercept.
    theta_mean : array (q, B)
    theta_root : array (q, q, B)
        Prior mean of theta and Q.
    shape, rate : array (B,)
        Of the prior of sigma2.
    mean_x : array (d, B)
    strength : array (B,)
    root_x : array (d, d, B)
        P, the lower root of the prior scale of cov_x.
    dof : array (B,)
    centred_theta : array (q, B)
    centred_mean : array (d, B)
        The weights c, between 0 and 1.
    sigma_star : array (B,)
    root_star : array (d, d, B)
        The reference values.

    Examples
    --------
    >>> import numpy as np
    >>> one = np.ones(1)
    >>> coordinates = Unconstrained(
    ...     Layout(1, True), np.zeros((2, 1)), np.eye(2)[..., None], 20 * one, 0.5 * one, np.zeros((1, 1)), one,
    ...     np.ones((1, 1, 1)), 50 * one, np.zeros((2, 1)), np.zeros((1, 1)), one, np.ones((1, 1, 1)),
    ... )
    >>> coordinates.natural(np.zeros((coordinates.dim, 1))).sigma2
    array([1.])

    Explained in :doc:`/book/regression/a-sampler-that-mixes`.
    """

    layout: Layout
    theta_mean: Array
    theta_root: Array
    shape: Array
    rate: Array
    mean_x: Array
    strength: Array
    root_x: Array
    dof: Array
    centred_theta: Array
    centred_mean: Array
    sigma_star: Array
    root_star: Array

    @classmethod
    def of(cls, problem: Problem, chains: int) -> Unconstrained:
        """Return coordinates of ``chains`` chains for each release, chains slowest, with nothing centred."""
        prior, covariates, d = problem.prior, problem.covariates, problem.layout.d
        q = problem.layout.regressors
        half: Array = np.linalg.inv(np.linalg.cholesky(prior.precision))  # precision^-1 = half' half

        def tiled(array: Array) -> Array:
            return np.tile(np.moveaxis(np.asarray(array, dtype=np.float64), 0, -1), chains)

        batch = chains * problem.releases
        return cls(
            problem.layout,
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

    def repeated(self, count: int) -> Unconstrained:
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
        return self._forward(position).natural

    def _parts(self, position: Array) -> tuple[Array, Array, Array, Array]:
        q, d = self.layout.regressors, self.layout.d
        return position[:q], position[q], position[q + 1 : q + 1 + d], position[q + 1 + d :]

    def _forward(self, position: Array) -> _Forward:
        xi, v, zeta, entries = self._parts(position)
        d = self.layout.d
        sigma = np.exp(0.5 * v)
        spread = (1 - self.centred_theta) * sigma + self.centred_theta * self.sigma_star
        theta = self.theta_mean + times(self.theta_root, spread * xi)
        bartlett = np.zeros((d, d, position.shape[-1]))
        bartlett[np.tril_indices(d)] = entries
        diagonal = np.arange(d)
        bartlett[diagonal, diagonal] = np.exp(bartlett[diagonal, diagonal])
        inverse = _lower_inverse(bartlett)
        root = product(self.root_x, inverse)
        weight = self.centred_mean[:, None]
        centring = (1 - weight) * root + weight * self.root_star
        mean_x = self.mean_x + times(centring, zeta) / np.sqrt(self.strength)
        cov_x = product(root, np.swapaxes(root, 0, 1))
        return _Forward(Natural(theta, sigma**2, mean_x, cov_x), sigma, spread, bartlett, inverse, root, centring)

    def position_of(self, natural: Natural) -> Array:
        """Return the positions (dim, B) at which the parameters are these."""
        d = self.layout.d
        xi = self.theta_coordinates(natural.theta, natural.sigma2)
        root = _cholesky(natural.cov_x)
        bartlett = product(_lower_inverse(root), self.root_x)
        weight = self.centred_mean[:, None]
        centring = (1 - weight) * root + weight * self.root_star
        zeta = times(_lower_inverse(centring), natural.mean_x - self.mean_x) * np.sqrt(self.strength)
        diagonal = np.arange(d)
        bartlett[diagonal, diagonal] = np.log(bartlett[diagonal, diagonal])
        return np.concatenate([xi, np.log(natural.sigma2)[None], zeta, bartlett[np.tril_indices(d)]])

    def theta_coordinates(self, theta: Array, sigma2: Array) -> Array:
        """Return the first q coordinates (q, B) at which theta and sigma2 are these."""
        spread = (1 - self.centred_theta) * np.sqrt(sigma2) + self.centred_theta * self.sigma_star
        return _solve(self.theta_root, theta - self.theta_mean) / spread

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
        return self._log_prior(position, self._forward(position))[0]

    def _log_prior(self, position: Array, forward: _Forward) -> tuple[Array, Array, Array]:
        """Return the log prior, and with it w = L^-1 M zeta and h = g / sigma, which the gradient needs."""
        xi, v, zeta, entries = self._parts(position)
        h = forward.spread / forward.sigma
        value = -0.5 * (h * h * xi * xi).sum(axis=0) + np.log(h).sum(axis=0)
        value = value - self.shape * v - self.rate * np.exp(-v)
        w = times(_lower_inverse(forward.root), times(forward.centring, zeta))
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
        self, position: Array, forward: _Forward, by: Natural, by_root: Array | None = None
    ) -> tuple[Array, Array]:
        """Return the log prior (B,), and the gradient (dim, B) of it plus a function with derivatives ``by``.

        A function of the root L of cov_x gives its derivatives by L's entries as ``by_root``.
        """
        xi, v, zeta, _ = self._parts(position)
        q, d = self.layout.regressors, self.layout.d
        value, w, h = self._log_prior(position, forward)
        root, centring = forward.root, forward.centring
        back = times(np.swapaxes(_lower_inverse(root), 0, 1), w)  # of w = L^-1 M zeta
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

    def volume_gradient(self, position: Array, forward: _Forward, by: Natural) -> tuple[Array, Array]:
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

    def _carried_back(self, position: Array, forward: _Forward, by: Natural, by_root: Array) -> Array:
        """Return derivatives by the coordinates (dim, B) from those by the parameters, and by L besides."""
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
        forward = self._forward(position)
        d, q = self.layout.d, self.layout.regressors
        out = np.ones_like(position)
        out[:q] = (forward.spread / forward.sigma) ** 2
        out[q] = self.shape
        diagonal = np.arange(d)
        ratio = forward.centring[diagonal, diagonal] / forward.root[diagonal, diagonal]
        out[q + 1 : q + 1 + d] = ratio**2
        rows, columns = np.tril_indices(d)
        out[q + 1 + d + np.flatnonzero(rows == columns)] = 2 * (self.dof - (d - 1 - diagonal[:, None]))
        return out


@dataclass(frozen=True, eq=False)
class SecondMoments(Unconstrained):
    """The coordinates of a regression without an intercept, where only second moments of x are released.

    ``E[x x'] = cov_x + mean_x mean_x'`` may be known well while its two parts are not: a thin curved ridge in the
    coordinates above. Here ``E[x x'] = R R'`` with ``R = P E^-1``, ``mean_x = R a`` and ``cov_x = R (I - a a') R'``
    with ``a = zeta / sqrt(1 + |zeta|²)``, so that the ridge is straight. Nothing about mean_x is centred.
    """

    def _forward(self, position: Array) -> _Forward:
        plain = super()._forward(position)
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
        xi = self.theta_coordinates(natural.theta, natural.sigma2)
        mean = natural.mean_x
        inverse = _lower_inverse(_cholesky(natural.cov_x + mean[:, None] * mean[None]))
        along = times(inverse, mean)
        zeta = along / np.sqrt(np.maximum(1 - (along * along).sum(axis=0), 1e-12))
        bartlett = product(inverse, self.root_x)
        on = np.arange(d)
        bartlett[on, on] = np.log(bartlett[on, on])
        return np.concatenate([xi, np.log(natural.sigma2)[None], zeta, bartlett[np.tril_indices(d)]])

    def prior_draw(self, rng: np.random.Generator) -> Array:
        """Return positions drawn from the prior, (dim, B); only where nothing is centred."""
        return self.position_of(Unconstrained._forward(self, super().prior_draw(rng)).natural)

    def _log_prior(self, position: Array, forward: _Forward) -> tuple[Array, Array, Array]:
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
        self, position: Array, forward: _Forward, by: Natural, by_root: Array | None = None
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

    def volume_gradient(self, position: Array, forward: _Forward, by: Natural) -> tuple[Array, Array]:
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

    def _carried_back(self, position: Array, forward: _Forward, by: Natural, by_root: Array) -> Array:
        """Return derivatives by the coordinates (dim, B) from those by the parameters, and by R besides."""
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

    def prior_curvature(self, position: Array) -> Array:
        """Return the diagonal (dim, B) of the prior's information, roughly."""
        forward = self._forward(position)
        d, q = self.layout.d, self.layout.regressors
        out = np.ones_like(position)
        out[:q] = (forward.spread / forward.sigma) ** 2
        out[q] = self.shape
        out[q + 1 : q + 1 + d] = self.strength
        rows, columns = np.tril_indices(d)
        out[q + 1 + d + np.flatnonzero(rows == columns)] = 2 * (self.dof - (d - 1 - np.arange(d)[:, None]))
        return out

    def _standard_mean(self) -> Array:
        """Return P^-1 times the prior mean of mean_x."""
        return times(_lower_inverse(self.root_x), self.mean_x)


def coordinates_for(problem: Problem, chains: int) -> Unconstrained:
    """Return the coordinates that suit a problem: with an intercept, or without one."""
    return (Unconstrained if problem.layout.intercept else SecondMoments).of(problem, chains)


def _transposed_times(matrix: Array, vector: Array) -> Array:
    return times(np.swapaxes(matrix, 0, 1), vector)


def _by_zeta(zeta: Array, size: Array, by_along: Array) -> Array:
    """Carry derivatives by a = zeta / sqrt(size), size = 1 + |zeta|², to zeta."""
    return np.asarray((by_along - zeta * ((zeta * by_along).sum(axis=0) / size)) / np.sqrt(size))


def product(a: Array, b: Array) -> Array:
    """Return the matrix products of two batches with the batch last.

    Parameters
    ----------
    a : array (i, j, B)
    b : array (j, k, B)

    Returns
    -------
    array (i, k, B)

    Examples
    --------
    >>> import numpy as np
    >>> product(np.ones((2, 3, 5)), np.ones((3, 2, 5)))[..., 0]
    array([[3., 3.],
           [3., 3.]])

    Explained in :doc:`/book/regression/a-sampler-that-mixes`.
    """
    if a.shape[1] == 1:
        return a * b
    if a.shape[1] <= _SMALL:
        out = a[:, :1] * b[:1]
        for j in range(1, a.shape[1]):
            out += a[:, j : j + 1] * b[j : j + 1]
        return np.asarray(out)
    return np.moveaxis(np.moveaxis(a, -1, 0) @ np.moveaxis(b, -1, 0), 0, -1)


def times(matrix: Array, vector: Array) -> Array:
    """Return the products of matrices (i, j, B) and vectors (j, B)."""
    if matrix.shape[1] == 1:
        return matrix[:, 0] * vector
    if matrix.shape[1] <= 2 * _SMALL:
        return np.asarray((matrix * vector[None]).sum(axis=1))
    return np.moveaxis((np.moveaxis(matrix, -1, 0) @ vector.T[..., None])[..., 0], 0, -1)


def _lower_inverse(lower: Array) -> Array:
    """Return the inverses of lower triangular matrices (d, d, B), by substitution."""
    d = lower.shape[0]
    if d == 1:
        return 1 / lower
    out = np.zeros_like(lower)
    for i in range(d):
        out[i, i] = 1 / lower[i, i]
        if i:
            out[i, :i] = -out[i, i] * (lower[i, :i, None] * out[:i, :i]).sum(axis=0)
    return out


def _cholesky(matrix: Array) -> Array:
    """Return lower roots of matrices (d, d, B)."""
    if matrix.shape[0] == 1:
        return np.sqrt(matrix)
    return np.moveaxis(np.asarray(np.linalg.cholesky(np.moveaxis(matrix, -1, 0)), dtype=np.float64), 0, -1)


def _solve(matrix: Array, vector: Array) -> Array:
    """Solve the systems of matrices (d, d, B) and right-hand sides (d, B)."""
    solved: Array = np.asarray(np.linalg.solve(np.moveaxis(matrix, -1, 0), vector.T[..., None]), dtype=np.float64)
    return np.moveaxis(solved[..., 0], 0, -1)
