"""Collapsed inference, the default: the latent statistics are integrated out, the parameters move freely.

Given the parameters, sums over n records are nearly normal, N(n mu, n Sigma), and given the variances of the Laplace
noise so is the noise. Their sum, the release, is then N(n mu, n Sigma + D): no latent statistic holds a parameter fast,
as in Gibbs sampling, and a Hamiltonian sampler can move all parameters at once. Cost does not depend on n.
Where the covariates' prior would push the sums far into the tails of that normal law, the exact law takes its place.
"""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpbook._arrays import Array
from dpbook.regression._unconstrained import Natural, Unconstrained, product, times
from dpbook.regression.hamiltonian import draw, part_of, released_moments
from dpbook.regression.problem import Draws, Problem

__all__ = ["sample"]

_OVERRULED = 0.8  # of the covariates' variance: less of it is left to the release where the prior overrules it
_SHORT, _FAR_OUT = 0.06, 3.0  # on average over all directions; in standard deviations, together
_BY_HAND = 16  # matrices up to this size are inverted by vector operations over the batch, larger ones by LAPACK


def sample(
    problem: Problem,
    *,
    draws: int,
    chains: int,
    rng: np.random.Generator,
    progress: bool = False,
    warm_up: int | None = None,
) -> Draws:
    """Draw theta and sigma2 given noisy statistics, with the exact statistics integrated out.

    Releases that the prior of the covariates overrules are drawn by the exact law of the sums.

    Parameters
    ----------
    problem : Problem
        A batch of releases with their priors, in coordinates.
    draws : int
        How many draws each chain keeps.
    chains : int
        How many chains a release has.
    rng : numpy.random.Generator
        The source of randomness.
    progress : bool, default False
        Whether to show a progress bar.
    warm_up : int, optional
        Iterations before the first draw that is kept.

    Returns
    -------
    Draws
        In coordinates.

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook.regression.collapsed import sample
    >>> from dpbook.regression.problem import CovariatePrior, Layout, ParameterPrior, Problem
    >>> one = np.ones(1)
    >>> problem = Problem(
    ...     Layout(1, True), np.array([[0.0, 500.0, 100.0, 50.0, 300.0]]), one, "laplace", 1000 * one,
    ...     ParameterPrior(np.zeros((1, 2)), np.eye(2)[None], 5 * one, 0.5 * one),
    ...     CovariatePrior(np.zeros((1, 1)), one, np.ones((1, 1, 1)), 10 * one),
    ... )
    >>> drawn = sample(problem, draws=200, chains=4, rng=np.random.default_rng(1), warm_up=100)
    >>> print(drawn.theta.mean(axis=(0, 1, 2)).round(1))
    [0.5 0.5]

    Explained in :doc:`/book/regression/a-sampler-that-mixes`.
    """
    settings: dict[str, Any] = {"draws": draws, "chains": chains, "rng": rng, "warm_up": warm_up, "progress": progress}
    theta = np.empty((problem.releases, chains, draws, problem.layout.regressors))
    sigma2 = np.empty((problem.releases, chains, draws))
    strained = prior_overrules(problem)
    for which, module in ((~strained, None), (strained, "dpbook.regression.exact")):
        if which.any():
            # The exact law is imported when needed: it is built on this module.
            target = CollapsedTarget if module is None else importlib.import_module(module).ExactTarget
            theta[which], sigma2[which] = draw(target, part_of(problem, which), **settings, label="collapsed")
    return Draws(theta, sigma2)


def prior_overrules(problem: Problem) -> NDArray[np.bool_]:
    """Tell for which releases the prior of the covariates overrules what the release shows of them, shape (release,).

    Sums are nearly normal about what the parameters say, within a few standard deviations. Where the bounds are far
    too wide and the noise small, the weak prior of the covariates, which comes from the bounds, holds their covariance
    up against the release: then the law of the sums is used far out in its tails, where it is not normal, and the
    spread it claims for the sums of xy is too large. This is seen beforehand, in directions v in which the noise of
    n v'Sv is smaller than its sampling spread: in one of them the released variance v'Sv is less than 80 % of the
    variance v'Cv that prior and release together settle on, or it falls short of it by more than 6 % on average over
    all directions, and by more than three standard deviations of sample variances in all.
    """
    layout, n, prior = problem.layout, problem.n, problem.covariates
    d, first = layout.d, int(layout.intercept)
    moments = layout.matrix(problem.noisy, n) / n[:, None, None]
    mean = moments[:, 0, 1 : d + 1] if first else np.zeros((problem.releases, d))
    scatter = moments[:, first : first + d, first : first + d] - mean[:, :, None] * mean[:, None, :]
    values, vectors = np.linalg.eigh(scatter)
    scatter = (vectors * np.maximum(values, 0.0)[:, None, :]) @ np.swapaxes(vectors, -1, -2)
    off = mean - prior.mean if first else mean
    weight = (prior.strength * n / (prior.strength + n))[:, None, None]
    settled = prior.scale + n[:, None, None] * scatter + weight * off[:, :, None] * off[:, None, :]
    root = np.linalg.inv(np.linalg.cholesky(settled / (n + prior.dof)[:, None, None]))
    share, turned = np.linalg.eigh(root @ scatter @ np.swapaxes(root, -1, -2))
    v = np.swapaxes(root, -1, -2) @ turned  # columns with v'Cv = 1
    squares = (v**2).sum(axis=1)
    noise = (2 if problem.laplace else 1) * problem.scale[:, None] ** 2
    noise = noise * (2 * squares**2 - (v**4).sum(axis=1) + 4 * squares * np.einsum("rij,ri->rj", v, mean) ** 2)
    told = noise < 2 * n[:, None]
    shortfall = np.where(told, np.maximum(1 - share, 0.0), 0.0)
    # The standard deviation of a sample variance is √(2/n) of it.
    far = np.sqrt(n / 2 * (shortfall**2).sum(axis=-1)) > _FAR_OUT
    overruled = (shortfall > 1 - _OVERRULED).any(axis=-1) | (far & (shortfall.mean(axis=-1) > _SHORT))
    return np.asarray(overruled & (n > 2 * layout.width))


class CollapsedTarget:
    """The posterior of the parameters given the noise variances D: prior times N(noisy; n mu, n Sigma + D).

    Parameters
    ----------
    problem : Problem
        The releases and priors.
    chains : int
        How many chains a release has; the batch is chains × releases, chains slowest.

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook.regression.problem import CovariatePrior, Layout, ParameterPrior, Problem
    >>> from dpbook.regression._unconstrained import Unconstrained
    >>> one = np.ones(1)
    >>> problem = Problem(
    ...     Layout(1, True), np.zeros((1, 5)), one, "laplace", 100 * one,
    ...     ParameterPrior(np.zeros((1, 2)), np.eye(2)[None], 5 * one, 0.5 * one),
    ...     CovariatePrior(np.zeros((1, 1)), one, np.ones((1, 1, 1)), 10 * one),
    ... )
    >>> target, coordinates = CollapsedTarget(problem, 3), Unconstrained.of(problem, 3)
    >>> value, gradient = target.evaluate(coordinates, np.zeros((5, 3)), np.ones((5, 3)))
    >>> value.shape, gradient.shape
    ((3,), (5, 3))

    Explained in :doc:`/book/regression/a-sampler-that-mixes`.
    """

    mixture = True

    def __init__(self, problem: Problem, chains: int) -> None:
        layout = problem.layout
        self._problem = problem
        self._noisy = np.tile(problem.noisy.T, chains)
        self._n = np.tile(problem.n, chains)
        self._weight = np.where(layout.rows == layout.columns, 1.0, 0.5)
        # The constant has no statistic: it reads a last row and column of zeros.
        self._place = np.where(layout.position < 0, layout.size, layout.position)

    def evaluate(self, coordinates: Unconstrained, position: Array, variance: Array | None) -> tuple[Array, Array]:
        """Return the log density (B,) and its gradient (dim, B)."""
        assert variance is not None  # a mixture always has variances
        forward = coordinates._forward(position)
        mean, cov, sums = released_moments(forward.natural, self._n, self._problem)
        inverse, log_determinant = inverse_of(self._covariance(mean, cov, variance))
        gap = self._noisy - sums
        pull = times(inverse, gap)
        value = -0.5 * ((gap * pull).sum(axis=0) + log_determinant)
        # d value = sum(by_cov * dSigma) + n pull' dmu
        by_cov = 0.5 * self._n * (pull[:, None] * pull[None] - inverse)
        by = self._natural_gradient(forward.natural, mean, cov, by_cov, self._n * pull)
        log_prior, gradient = coordinates.gradient(position, forward, by)
        return refused(value + log_prior), gradient

    def value(self, coordinates: Unconstrained, position: Array, variance: Array) -> Array:
        """Return the log density (B,)."""
        mean, cov, sums = released_moments(coordinates.natural(position), self._n, self._problem)
        inverse, log_determinant = inverse_of(self._covariance(mean, cov, variance))
        gap = self._noisy - sums
        fit = -0.5 * ((gap * times(inverse, gap)).sum(axis=0) + log_determinant)
        return refused(coordinates.log_prior(position) + fit)

    def spread(self, coordinates: Unconstrained, position: Array, variance: Array) -> Array:
        """Return n Sigma + D, (k, k, B)."""
        mean, cov, _ = released_moments(coordinates.natural(position), self._n, self._problem)
        return self._covariance(mean, cov, variance)

    def noise(self, coordinates: Unconstrained, position: Array, variance: Array, rng: np.random.Generator) -> Array:
        """Draw the noise given the parameters, its variances and the release, in Kalman form.

        Draw noise e* ~ N(0, D) and sums s* ~ N(n mu, n Sigma), then e = e* + D (n Sigma + D)^-1 (noisy - s* - e*).
        A root of Sigma is at hand: with R R' = Cov(u), g = R z and H = R G R', where G is symmetric with independent
        entries of variance 1 (2 on the diagonal), ``m_i g_j + g_i m_j + H_ij`` has the covariance of ``u_i u_j``.
        """
        forward = coordinates._forward(position)
        mean, cov, sums = released_moments(forward.natural, self._n, self._problem)
        inverse, _ = inverse_of(self._covariance(mean, cov, variance))
        layout, batch = self._problem.layout, position.shape[1]
        q, first = layout.regressors, int(layout.intercept)
        root = np.zeros((q + 1, q + 1, batch))
        root[first:q, first:q] = forward.root
        root[q, first:q] = times(np.swapaxes(forward.root, 0, 1), forward.natural.theta[first:])
        root[q, q] = forward.sigma
        symmetric = rng.standard_normal((q + 1, q + 1, batch))
        symmetric = (symmetric + np.swapaxes(symmetric, 0, 1)) / np.sqrt(2)
        linear = times(root, rng.standard_normal((q + 1, batch)))
        square = product(product(root, symmetric), np.swapaxes(root, 0, 1))
        i, j = layout.rows, layout.columns
        latent = sums + np.sqrt(self._n) * (mean[i] * linear[j] + linear[i] * mean[j] + square[i, j])
        noise = np.sqrt(variance) * rng.standard_normal(variance.shape)
        drawn = noise + variance * times(inverse, self._noisy - latent - noise)
        return np.where(np.isfinite(drawn), drawn, self._noisy - sums)

    def parameters(self, natural: Natural, rng: np.random.Generator) -> tuple[Array, Array]:
        """Return theta and sigma2: the position stands for the parameters themselves."""
        return natural.theta, natural.sigma2

    def _covariance(self, mean: Array, cov: Array, variance: Array) -> Array:
        """Return n Sigma + D: Cov(u_a u_b, u_c u_d) by Isserlis, in the form without cancellation."""
        a, b = self._problem.layout.rows, self._problem.layout.columns
        outer = mean[:, None] * mean[None]
        second = cov + outer
        by_a, by_b = cov[a], cov[b]
        total = by_a[:, a] * second[b][:, b]
        total += by_b[:, b] * outer[a][:, a]
        total += by_a[:, b] * second[b][:, a]
        total += by_b[:, a] * outer[a][:, b]
        total *= self._n
        diagonal = np.arange(len(a))
        total[diagonal, diagonal] += variance
        return np.asarray(total)

    def _natural_gradient(self, natural: Natural, mean: Array, cov: Array, by_cov: Array, by_mu: Array) -> Natural:
        """Carry derivatives by Sigma and mu to the mean and covariance of a record, and from there to parameters."""
        layout, place = self._problem.layout, self._place
        k, p, batch = layout.size, layout.width, mean.shape[-1]
        second = cov + mean[:, None] * mean[None]
        padded = np.zeros((k + 1, k + 1, batch))
        np.multiply(by_cov, (self._weight[:, None] * self._weight)[..., None], out=padded[:k, :k])
        by_c, by_m = np.zeros((p, p, batch)), np.zeros((p, batch))
        for i in range(p):
            tensor = padded[place[i]][:, place]  # (j, k, l, B): each unique product spread over its two orders
            by_c += (tensor * second[i][None, :, None]).sum(axis=1)
            along = (tensor * cov[:, None]).sum(axis=(0, 2))  # over j, l: (k, B)
            by_m[i] = 8 * (along * mean).sum(axis=0)
        by_second = np.zeros((k + 1, batch))
        by_second[:k] = by_mu * self._weight[:, None]
        linear = by_second[place]
        by_c = 4 * by_c + linear
        by_m += 2 * times(linear, mean)
        return by_parameters(natural, mean, cov, by_m, by_c, self._problem)


def by_parameters(natural: Natural, mean: Array, cov: Array, by_m: Array, by_c: Array, problem: Problem) -> Natural:
    """Carry derivatives by the mean and covariance of a record u = (w, y) to theta, sigma2 and the covariates' law."""
    q, first = problem.layout.regressors, int(problem.layout.intercept)
    theta, within = natural.theta, cov[:q, :q]
    across, own = by_c[:q, q], by_c[q, q]
    by_theta = by_m[q] * mean[:q] + 2 * times(within, across + own * theta)
    by_mean = by_m[:q] + by_m[q] * theta
    mixed = across[:, None] * theta[None]
    by_within = by_c[:q, :q] + mixed + np.swapaxes(mixed, 0, 1) + own * theta[:, None] * theta[None]
    return Natural(by_theta, own, by_mean[first:], by_within[first:, first:])


def inverse_of(matrix: Array) -> tuple[Array, Array]:
    """Return the inverses and log determinants of positive definite matrices (k, k, B).

    Where a matrix is not positive definite (to rounding), its log determinant is NaN.
    """
    k = matrix.shape[0]
    diagonal = np.arange(k)
    unit = 1 / np.sqrt(matrix[diagonal, diagonal])
    inverse = matrix * unit[:, None] * unit[None]
    if k <= _BY_HAND:
        pivots = _sweep(inverse)
        log_determinant = np.log(pivots).sum(axis=0)
    else:
        first = np.moveaxis(inverse, -1, 0)
        first = np.where(np.isfinite(first), first, np.eye(k))
        sign, log_determinant = np.linalg.slogdet(first)
        log_determinant = np.where(sign > 0, log_determinant, np.nan)
        first = np.where((sign == 0)[:, None, None], np.eye(k), first)  # one singular matrix must not stop the others
        inverse = np.moveaxis(np.asarray(np.linalg.inv(first), dtype=np.float64), 0, -1)
    inverse = inverse * unit[:, None] * unit[None]
    return inverse, log_determinant - 2 * np.log(unit).sum(axis=0)


def refused(value: Array) -> Array:
    """Return log densities with minus infinity where they are not finite: the end of double precision is no mode."""
    return np.where(np.isfinite(value), value, -np.inf)


def _sweep(matrix: Array) -> Array:
    """Invert symmetric matrices (k, k, B) in place by Gauss-Jordan sweeps; return the pivots (k, B)."""
    k = matrix.shape[0]
    pivots = np.empty((k, matrix.shape[-1]))
    for i in range(k):
        pivot = pivots[i] = matrix[i, i].copy()
        row = matrix[i] / pivot
        column = matrix[:, i].copy()
        matrix -= column[:, None] * row[None]
        matrix[i] = row
        matrix[:, i] = -column / pivot
        matrix[i, i] = 1 / pivot
    return pivots
