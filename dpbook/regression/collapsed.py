"""Collapsed inference, the default: the latent statistics are integrated out, the parameters move freely.

Given the parameters, sums over n records are nearly normal, N(n mu, n Sigma), and given the variances of the Laplace
noise so is the noise. Their sum, the release, is then N(n mu, n Sigma + D): no latent statistic holds a parameter fast,
as in Gibbs sampling, and a Hamiltonian sampler can move all parameters at once. Cost does not depend on n.
Where the covariates' prior would push the sums far into the tails of that normal law, the exact law takes its place.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpbook._arrays import Array
from dpbook._batch_last import inverse, product, times
from dpbook.regression.exact import ExactTarget
from dpbook.regression.hamiltonian import draw
from dpbook.regression.parametrisation import Natural, Parametrisation, released_moments
from dpbook.regression.target import Target, by_parameters, refused
from dpbook.regression.task import Draws, Task

__all__: list[str] = []

_OVERRULED = 0.8  # of the covariates' variance: less of it is left to the release where the prior overrules it
_SHORT, _FAR_OUT = 0.06, 3.0  # on average over all directions; in standard deviations, together


def sample(
    task: Task,
    *,
    per_chain: int,
    chains: int,
    rng: np.random.Generator,
    progress: bool = False,
    warm_up: int | None = None,
) -> Draws:
    """Draw theta and sigma2 given noisy statistics, with the exact statistics integrated out.

    Releases that the prior of the covariates overrules are drawn by the exact law of the sums.
    """
    size: dict[str, Any] = {"per_chain": per_chain, "chains": chains, "warm_up": warm_up}
    theta = np.empty((task.releases, chains, per_chain, task.layout.regressors))
    sigma2 = np.empty((task.releases, chains, per_chain))
    strained = prior_overrules(task)
    targets: tuple[tuple[Any, type[Target]], ...] = ((~strained, CollapsedTarget), (strained, ExactTarget))
    for which, target in targets:
        if which.any():
            theta[which], sigma2[which] = draw(
                target, task.part(which), **size, rng=rng, progress=progress, label="collapsed"
            )
    return Draws(theta, sigma2)


def prior_overrules(task: Task) -> NDArray[np.bool_]:
    """Tell for which releases the prior of the covariates overrules what the release shows of them, shape (release,).

    Sums are nearly normal about what the parameters say, within a few standard deviations. Where the bounds are far
    too wide and the noise small, the weak prior of the covariates, which comes from the bounds, holds their covariance
    up against the release: then the law of the sums is used far out in its tails, where it is not normal, and the
    spread it claims for the sums of xy is too large. This is seen beforehand, in directions v in which the noise of
    n v'Sv is smaller than its sampling spread: in one of them the released variance v'Sv is less than 80 % of the
    variance v'Cv that prior and release together settle on, or it falls short of it by more than 6 % on average over
    all directions, and by more than three standard deviations of sample variances in all.
    """
    layout, n, prior = task.layout, task.n, task.covariates
    d, first = layout.d, int(layout.intercept)
    moments = layout.matrix(task.noisy, n) / n[:, None, None]
    mean = moments[:, 0, 1 : d + 1] if first else np.zeros((task.releases, d))
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
    noise = (2 if task.laplace else 1) * task.scale[:, None] ** 2
    noise = noise * (2 * squares**2 - (v**4).sum(axis=1) + 4 * squares * np.einsum("rij,ri->rj", v, mean) ** 2)
    told = noise < 2 * n[:, None]
    shortfall = np.where(told, np.maximum(1 - share, 0.0), 0.0)
    # The standard deviation of a sample variance is √(2/n) of it.
    far = np.sqrt(n / 2 * (shortfall**2).sum(axis=-1)) > _FAR_OUT
    overruled = (shortfall > 1 - _OVERRULED).any(axis=-1) | (far & (shortfall.mean(axis=-1) > _SHORT))
    return np.asarray(overruled & (n > 2 * layout.width))


class CollapsedTarget:
    """The posterior of the parameters given the noise variances D: prior times N(noisy; n mu, n Sigma + D).

    The batch is chains × releases, chains slowest.
    """

    mixture = True

    def __init__(self, task: Task, chains: int) -> None:
        layout = task.layout
        self._layout = task.layout
        self._noisy = np.tile(task.noisy.T, chains)
        self._n = np.tile(task.n, chains)
        self._weight = np.where(layout.rows == layout.columns, 1.0, 0.5)
        # The constant has no statistic: it reads a last row and column of zeros.
        self._place = np.where(layout.position < 0, layout.size, layout.position)

    def evaluate(self, space: Parametrisation, position: Array, variance: Array | None) -> tuple[Array, Array]:
        """Return the log density (B,) and its gradient (dim, B)."""
        assert variance is not None  # a mixture always has variances
        forward = space.forward(position)
        mean, cov, sums = released_moments(forward.natural, self._n, self._layout)
        inverted, log_determinant = inverse(self._covariance(mean, cov, variance))
        gap = self._noisy - sums
        pull = times(inverted, gap)
        value = -0.5 * ((gap * pull).sum(axis=0) + log_determinant)
        # d value = sum(by_cov * dSigma) + n pull' dmu
        by_cov = 0.5 * self._n * (pull[:, None] * pull[None] - inverted)
        by = self._natural_gradient(forward.natural, mean, cov, by_cov, self._n * pull)
        log_prior, gradient = space.gradient(position, forward, by)
        return refused(value + log_prior), gradient

    def value(self, space: Parametrisation, position: Array, variance: Array) -> Array:
        """Return the log density (B,)."""
        mean, cov, sums = released_moments(space.natural(position), self._n, self._layout)
        inverted, log_determinant = inverse(self._covariance(mean, cov, variance))
        gap = self._noisy - sums
        fit = -0.5 * ((gap * times(inverted, gap)).sum(axis=0) + log_determinant)
        return refused(space.log_prior(position) + fit)

    def spread(self, space: Parametrisation, position: Array, variance: Array) -> Array:
        """Return n Sigma + D, (k, k, B)."""
        mean, cov, _ = released_moments(space.natural(position), self._n, self._layout)
        return self._covariance(mean, cov, variance)

    def noise(self, space: Parametrisation, position: Array, variance: Array, rng: np.random.Generator) -> Array:
        """Draw the noise given the parameters, its variances and the release, in Kalman form.

        Draw noise e* ~ N(0, D) and sums s* ~ N(n mu, n Sigma), then e = e* + D (n Sigma + D)^-1 (noisy - s* - e*).
        A root of Sigma is at hand: with R R' = Cov(u), g = R z and H = R G R', where G is symmetric with independent
        entries of variance 1 (2 on the diagonal), ``m_i g_j + g_i m_j + H_ij`` has the covariance of ``u_i u_j``.
        """
        forward = space.forward(position)
        mean, cov, sums = released_moments(forward.natural, self._n, self._layout)
        inverted, _ = inverse(self._covariance(mean, cov, variance))
        layout, batch = self._layout, position.shape[1]
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
        drawn = noise + variance * times(inverted, self._noisy - latent - noise)
        return np.where(np.isfinite(drawn), drawn, self._noisy - sums)

    def parameters(self, natural: Natural, rng: np.random.Generator) -> tuple[Array, Array]:
        """Return theta and sigma2: the position stands for the parameters themselves."""
        return natural.theta, natural.sigma2

    def _covariance(self, mean: Array, cov: Array, variance: Array) -> Array:
        """Return n Sigma + D: Cov(u_a u_b, u_c u_d) by Isserlis, in the form without cancellation."""
        a, b = self._layout.rows, self._layout.columns
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
        layout, place = self._layout, self._place
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
        return by_parameters(natural, mean, cov, by_m, by_c, self._layout)
