"""Conjugate and semi-conjugate Bayesian regressions of all partitions at once.

Each class computes the posterior of one coefficient in every partition from counts, means and scatters, in batched
linear algebra: no loop over partitions, no sampling. A likelihood can be raised to a power, for quantiles, and a prior
shared between partitions, for probabilities. Chapter 2 explains why both are needed.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from dpbook._arrays import Array, times
from dpbook._validation import finite_array, flag, positive
from dpbook.aggregate.splitting import Moments, partition_moments
from dpbook.priors import Flat, IndependentPrior, NormalInverseGamma, Zellner

__all__ = [
    "ConjugateRegression",
    "SemiConjugateRegression",
]

# Smallest eigenvalue of a precision matrix scaled to a unit diagonal; below it a partition counts as rank-deficient.
_SINGULAR = 1e-10
_NODES = 65  # of the grid over log σ² of a semi-conjugate posterior
_REACH = (-7.0, 11.0)  # ends of that grid in standard deviations: the upper tail is the longer one


class _Centred(NamedTuple):
    """A partition's regression with every column measured from the partition's own mean, where there is an intercept.

    Then γ = (β₀ + x̄ᵀβ − ȳ, β), the normal equations are block diagonal, and a large mean costs no digits. With no
    intercept nothing is moved.
    """

    gram: Array  # XᵀX, (M, p, p)
    cross: Array  # Xᵀy, (M, p)
    square: Array  # yᵀy, (M,)
    shift: Array  # of y: ȳ or 0, (M,)
    back: Array  # T⁻¹ with β = T⁻¹(γ + shift e₀), (M, p, p)
    forth: Array  # T


def _centred(moments: Moments, intercept: bool) -> _Centred:
    n, mean, scatter = moments
    x, y = mean[:, :-1], mean[:, -1]
    sxx, sxy, syy = scatter[:, :-1, :-1], scatter[:, :-1, -1], scatter[:, -1, -1]
    m, k = x.shape
    if not intercept:
        gram = sxx + n[:, None, None] * x[:, :, None] * x[:, None, :]
        identity = np.broadcast_to(np.eye(k), (m, k, k))
        return _Centred(gram, sxy + (n * y)[:, None] * x, syy + n * y**2, np.zeros(m), identity, identity)
    gram, cross = np.zeros((m, k + 1, k + 1)), np.zeros((m, k + 1))
    gram[:, 0, 0], gram[:, 1:, 1:], cross[:, 1:] = n, sxx, sxy
    forth = np.tile(np.eye(k + 1), (m, 1, 1))
    back = forth.copy()
    forth[:, 0, 1:], back[:, 0, 1:] = x, -x
    return _Centred(gram, cross, syy, y, back, forth)


def _inverse(matrices: Array) -> Array:
    """Return the inverses of symmetric positive definite matrices; NaN for those that are singular or not finite."""
    k = matrices.shape[-1]
    with np.errstate(all="ignore"):
        scale = 1 / np.sqrt(np.einsum("mii->mi", matrices))
        scaled = matrices * scale[:, :, None] * scale[:, None, :]
        bad = ~np.isfinite(scaled).all(axis=(1, 2))
        if k <= 2:  # closed form: a unit diagonal, and the correlation off it
            r = scaled[:, 0, 1] if k == 2 else np.zeros(len(scaled))
            bad |= 1 - np.abs(r) < _SINGULAR
            inverse = (2 * np.eye(k) - scaled) / np.where(bad, np.nan, (1 - r) * (1 + r))[:, None, None]
            return np.asarray(inverse * scale[:, :, None] * scale[:, None, :])
        values, vectors = _lapack(_eigen, np.where(bad[:, None, None], np.eye(k), scaled))
        bad |= values[:, 0] < _SINGULAR
        inverse = np.einsum("mik,mk,mjk->mij", vectors, 1 / values, vectors)
        inverse = inverse * scale[:, :, None] * scale[:, None, :]
    inverse[bad] = np.nan
    return np.asarray(inverse)


def _eigen(matrices: Array) -> tuple[Array, ...]:
    return tuple(np.linalg.eigh(matrices))


def _eigenvalues(matrices: Array) -> tuple[Array, ...]:
    return (np.asarray(np.linalg.eigvalsh(matrices), dtype=np.float64),)


def _root(matrices: Array) -> tuple[Array, ...]:
    return (np.asarray(np.linalg.cholesky(matrices), dtype=np.float64),)


def _lapack(function: Callable[[Array], tuple[Array, ...]], matrices: Array) -> tuple[Array, ...]:
    """Factor a batch of matrices; NaN for those that cannot be factored.

    LAPACK fails for the whole batch if it fails for one. Then each matrix is factored by itself, by the same steps, so
    that what a partition gets does not depend on the others.
    """
    try:
        return function(matrices)
    except np.linalg.LinAlgError:
        shapes = function(np.eye(matrices.shape[-1])[None])
        each = [_alone(function, matrix[None], shapes) for matrix in matrices]
        return tuple(np.concatenate(parts) for parts in zip(*each, strict=True))


def _alone(
    function: Callable[[Array], tuple[Array, ...]], matrix: Array, shapes: tuple[Array, ...]
) -> tuple[Array, ...]:
    try:
        return function(matrix)
    except np.linalg.LinAlgError:
        return tuple(np.full(each.shape, np.nan) for each in shapes)


class Regression(abc.ABC):
    """What both regressions share: columns, the coefficient of interest, and one partition as a batch of one."""

    response: str
    covariates: Sequence[str]
    coefficient: str
    intercept: bool

    def _check(self) -> None:
        if isinstance(self.covariates, str) or not all(isinstance(each, str) for each in self.covariates):
            raise TypeError(f"covariates must be a sequence of column names, got {self.covariates!r}")
        object.__setattr__(self, "covariates", tuple(self.covariates))
        if not isinstance(self.response, str) or not self.covariates:
            raise ValueError("response must name a column and covariates at least one")
        names = [*self.covariates, self.response]
        if len(set(names)) != len(names):
            raise ValueError(f"covariates and response must be different columns, got {names}")
        flag("intercept", self.intercept)
        if self.coefficient not in self.names:
            raise ValueError(f"coefficient must be one of {', '.join(self.names)}, got {self.coefficient!r}")

    @property
    def names(self) -> tuple[str, ...]:
        """The coefficients in order, the intercept first where there is one."""
        return ("intercept", *self.covariates) if self.intercept else tuple(self.covariates)

    @property
    def _index(self) -> int:
        return self.names.index(self.coefficient)

    def _moments(self, data: Any, partitions: int, n: int | None, rng: np.random.Generator | None) -> Moments:
        return partition_moments(data, self.covariates, self.response, partitions=partitions, n=n, rng=rng)

    @abc.abstractmethod
    def _batch_probability(self, moments: Moments, cutoffs: Array, *, power: float, prior_power: float) -> Array:
        """Return the posterior probabilities of all partitions and cutoffs, (M, points)."""

    @abc.abstractmethod
    def _batch_quantile(self, moments: Moments, probabilities: Array, *, power: float, prior_power: float) -> Array:
        """Return the posterior quantiles of all partitions and probabilities, (M, points)."""

    def probability(self, partition: Any, cutoff: ArrayLike, *, power: float = 1.0, prior_power: float = 1.0) -> Any:
        """Return the posterior probability that the coefficient is at most ``cutoff``, given some records. Not private.

        ``partition`` holds the records, or the :class:`Moments` of many partitions, which are answered in one batch on
        a first axis; ``power`` and ``prior_power`` are those of likelihood and prior. NaN where records cannot tell.
        """
        return self._answers(self._batch_probability, partition, finite_array("cutoff", cutoff), power, prior_power)

    def quantile(self, partition: Any, p: ArrayLike, *, power: float = 1.0, prior_power: float = 1.0) -> Any:
        """Return the posterior quantile of the coefficient at ``p``, given some records. Not private.

        ``partition``, ``power``, ``prior_power`` and the shape of the answer are as in :meth:`probability`.
        """
        return self._answers(self._batch_quantile, partition, finite_array("p", p), power, prior_power)

    def _answers(self, batch: Any, partition: Any, points: Array, power: float, prior_power: float) -> Any:
        many = isinstance(partition, Moments)
        if many and partition.mean.shape[1] != len(self.covariates) + 1:
            raise ValueError(
                f"partition must hold moments of {len(self.covariates) + 1} columns, the covariates and then the "
                f"response, got {partition.mean.shape[1]}"
            )
        moments = partition if many else self._moments(partition, 1, None, None)
        options = {"power": positive("power", power), "prior_power": positive("prior_power", prior_power)}
        answers = batch(moments, points.ravel(), **options).reshape(-1, *points.shape)
        return answers if many else answers[0][()]


@dataclass(frozen=True)
class ConjugateRegression(Regression):
    """Normal linear regression with a conjugate prior: the posterior of a coefficient is a shifted, scaled t.

    Given to a release, it is computed for all partitions in one batch of small matrices. Given M partitions, each gets
    the prior to the power 1/M with respect to dβ dσ²/σ² for probabilities, so that the M posteriors multiply to the
    full one; for quantiles each gets the whole prior and the likelihood to the power M. Explained in
    :doc:`/book/sample-and-aggregate/split-compute-average`.

    Parameters
    ----------
    response : str
        Column of the response.
    covariates : sequence of str
        Columns of the covariates. An array without names has them first, in this order, and the response last.
    coefficient : str
        The one whose posterior is asked for: a covariate, or ``"intercept"``.
    intercept : bool
        Whether there is an intercept.
    prior : Zellner, Flat or NormalInverseGamma
        By default Zellner's g-prior with g the number of records in all partitions.

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook import aggregate
    >>> x = np.linspace(-1, 1, 50)
    >>> rows = np.column_stack([x, 1 + 2 * x + np.sin(40 * x)])
    >>> model = aggregate.ConjugateRegression(prior=aggregate.Flat())
    >>> print(model.probability(rows, 2.0).round(3), model.quantile(rows, [0.05, 0.95]).round(2))
    0.321 [1.79 2.37]
    >>> model.names
    ('intercept', 'x')
    """

    response: str = "y"
    covariates: Sequence[str] = ("x",)
    coefficient: str = "x"
    intercept: bool = True
    prior: Zellner | Flat | NormalInverseGamma = field(default_factory=Zellner)

    def __post_init__(self) -> None:
        self._check()
        if not isinstance(self.prior, (Zellner, Flat, NormalInverseGamma)):
            raise TypeError(f"prior must be Zellner(), Flat() or a NormalInverseGamma, got {self.prior!r}")
        if isinstance(self.prior, NormalInverseGamma):
            self.prior.sized(len(self.names), "prior")

    @property
    def least_records(self) -> int:
        """The fewest records from which a partition can be fitted."""
        return len(self.names) + (not isinstance(self.prior, NormalInverseGamma))

    def _student(self, moments: Moments, power: float, prior_power: float) -> tuple[Array, Array, Array]:
        """Return degrees of freedom, location and scale of the coefficient's posterior in each partition."""
        with np.errstate(all="ignore"):
            data = _centred(moments, self.intercept)
            p = len(self.names)
            start = np.zeros((len(moments.n), p))
            if self.intercept:
                start[:, 0] = -data.shift
            shape, rate = -p / 2, 0.0
            if isinstance(self.prior, Zellner):
                total = moments.n * power / prior_power
                g = total if self.prior.g is None else np.full_like(total, self.prior.g)
                precision = power * data.gram / g[:, None, None]
                shape += prior_power * p / 2
            elif isinstance(self.prior, NormalInverseGamma):
                prior_mean, prior_precision = self.prior.sized(p, "prior")
                precision = prior_power * np.einsum("mki,kl,mlj->mij", data.back, prior_precision, data.back)
                start = start + np.einsum("mij,j->mi", data.forth, prior_mean)
                shape += prior_power * (self.prior.shape + p / 2)
                rate = prior_power * self.prior.rate
            else:
                precision = np.zeros_like(data.gram)
            whole = precision + power * data.gram
            inverse = _inverse(whole)
            pulled = times(precision, start)
            mean = times(inverse, pulled + power * data.cross)
            square = power * data.square + (start * pulled).sum(1) - (mean * times(whole, mean)).sum(1)
            a = shape + power * moments.n / 2
            b = rate + np.maximum(square, 0.0) / 2
            row = data.back[:, self._index]
            location = (row * mean).sum(1) + row[:, 0] * data.shift
            scale = np.sqrt(b / a * (row * times(inverse, row)).sum(1))
            ok = np.isfinite(location) & np.isfinite(scale) & (a > 0) & (moments.n > 0)
        return np.where(ok, 2 * a, np.nan), np.where(ok, location, np.nan), np.where(ok, scale, np.nan)

    def _batch_probability(self, moments: Moments, cutoffs: Array, *, power: float, prior_power: float) -> Array:
        df, location, scale = (each[:, None] for each in self._student(moments, power, prior_power))
        with np.errstate(all="ignore"):
            return np.asarray(special.stdtr(df, (cutoffs - location) / scale))

    def _batch_quantile(self, moments: Moments, probabilities: Array, *, power: float, prior_power: float) -> Array:
        df, location, scale = (each[:, None] for each in self._student(moments, power, prior_power))
        with np.errstate(all="ignore"):
            return np.asarray(location + scale * special.stdtrit(df, probabilities))


class _Whitened(NamedTuple):
    """Partitions in coordinates θ in which the prior is standard normal and XᵀX is diagonal with entries λ."""

    start: Array  # the prior's mean, γ at θ = 0
    basis: Array  # γ = start + basis θ
    lam: Array
    c: Array  # basisᵀXᵀ(y − X start)
    signal: Array  # ĉ² = λ θ̂²
    residual: Array  # the sum of squares at θ = 0
    rss: Array  # and at θ̂
    bad: NDArray[np.bool_]

    def log_density(self, t: Array, power: float, shape: Array, rate: float) -> Array:
        """Return the log density of t = log σ², with w the power of the likelihood and u = w/σ².

        −(wn/2 + a) t − b/σ² − ½Σ log(1 + uλ) − ½[u RSS + Σ ĉ² u/(1 + uλ)], where shape = wn/2 + a and rate = b.
        """
        u = power * np.exp(-t)
        flat = 1 + u[..., None] * self.lam[:, None, :]
        fit = u * self.rss[:, None] + (self.signal[:, None, :] * u[..., None] / flat).sum(-1)
        return np.asarray(-shape[:, None] * t - rate * np.exp(-t) - (np.log(flat).sum(-1) + fit) / 2)


@dataclass(frozen=True)
class SemiConjugateRegression(Regression):
    """Normal linear regression with independent priors on coefficients and variance.

    Given σ² the coefficient is normal, and the posterior of σ² is one-dimensional, so the posterior of the coefficient
    is computed as a fine mixture of normals: no Gibbs sampling. Explained in
    :doc:`/book/sample-and-aggregate/posterior-quantiles`.

    Parameters
    ----------
    response, covariates, coefficient, intercept
        As in :class:`ConjugateRegression`.
    prior : IndependentPrior, optional
        By default coefficients normal about 0 with sd 100 and σ² inverse-gamma(1/2, 1/2).

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook import aggregate
    >>> x = np.linspace(-1, 1, 50)
    >>> rows = np.column_stack([x, 1 + 2 * x + np.sin(40 * x)])
    >>> model = aggregate.SemiConjugateRegression()
    >>> print(model.probability(rows, 2.0).round(3), model.quantile(rows, [0.05, 0.95]).round(2))
    0.323 [1.79 2.37]
    """

    response: str = "y"
    covariates: Sequence[str] = ("x",)
    coefficient: str = "x"
    intercept: bool = True
    prior: IndependentPrior | None = None

    def __post_init__(self) -> None:
        self._check()
        if self.prior is None:
            p = len(self.names)
            object.__setattr__(self, "prior", IndependentPrior(np.zeros(p), 1e4 * np.eye(p), shape=0.5, rate=0.5))
        if not isinstance(self.prior, IndependentPrior):
            raise TypeError(f"prior must be an IndependentPrior, got {self.prior!r}")
        self.prior.sized(len(self.names), "prior")

    @property
    def least_records(self) -> int:
        """The fewest records from which a partition can be fitted."""
        return len(self.names)

    def _mixture(self, moments: Moments, power: float, prior_power: float) -> tuple[Array, Array, Array]:
        """Return weights, means and sds, (M, nodes), of the mixture over log σ² that is the coefficient's posterior."""
        with np.errstate(all="ignore"):
            data = _centred(moments, self.intercept)
            white = self._whitened(data, prior_power)
            shape = power * moments.n / 2 + prior_power * self._prior.shape
            rate = prior_power * self._prior.rate

            def log_density(t: Array) -> Array:
                return white.log_density(t, power, shape, rate)

            t, width = _peak(log_density, shape, rate, power, white.rss, white.residual)
            t = t[:, None] + width[:, None] * np.linspace(*_REACH, _NODES)
            log_weight = log_density(t)
            weight = np.exp(log_weight - log_weight.max(axis=1, keepdims=True))
            weight /= weight.sum(axis=1, keepdims=True)
            row = data.back[:, self._index]
            direction = np.einsum("mi,mik->mk", row, white.basis)
            u = power * np.exp(-t)[..., None]
            flat = 1 + u * white.lam[:, None, :]
            mean = (direction[:, None, :] * white.c[:, None, :] * u / flat).sum(-1)
            mean += ((row * white.start).sum(1) + row[:, 0] * data.shift)[:, None]
            sd = np.sqrt((direction[:, None, :] ** 2 / flat).sum(-1))
            bad = white.bad | ~np.isfinite(weight + mean + sd).all(axis=1) | (moments.n == 0)
        return tuple(np.where(bad[:, None], np.nan, each) for each in (weight, mean, sd))  # type: ignore[return-value]

    @property
    def _prior(self) -> IndependentPrior:
        assert self.prior is not None  # set by __post_init__
        return self.prior

    def _whitened(self, data: _Centred, prior_power: float) -> _Whitened:
        """Turn to coordinates θ in which the prior is standard normal and XᵀX is diagonal."""
        p = len(self.names)
        prior_mean, prior_covariance = self._prior.sized(p, "prior")
        start = np.einsum("mij,j->mi", data.forth, prior_mean)
        if self.intercept:
            start[:, 0] -= data.shift
        covariance = np.einsum("mik,kl,mjl->mij", data.forth, prior_covariance, data.forth)
        bad = ~np.isfinite(covariance).all(axis=(1, 2)) | ~np.isfinite(data.gram).all(axis=(1, 2))
        bad |= ~_positive_definite(covariance, bad)
        safe = np.where(bad[:, None, None], np.eye(p), covariance) / prior_power
        (root,) = _lapack(_root, safe)
        gram = np.where(bad[:, None, None], np.eye(p), data.gram)
        whitened = np.einsum("mki,mkl,mlj->mij", root, gram, root)
        lam, q = _lapack(_eigen, np.where(np.isfinite(whitened), whitened, 0.0))
        lam = np.maximum(lam, 0.0)
        basis = np.einsum("mij,mjk->mik", root, q)
        # What the data alone would say of θ is c/λ, where λ > 0.
        c = np.einsum("mij,mi->mj", basis, data.cross - times(gram, start))
        told = lam > 1e-12 * lam.max(axis=1, keepdims=True)
        signal = np.where(told, c**2 / np.where(told, lam, 1.0), 0.0)
        residual = data.square - 2 * (start * data.cross).sum(1) + (start * times(gram, start)).sum(1)
        return _Whitened(start, basis, lam, c, signal, residual, np.maximum(residual - signal.sum(1), 0.0), bad)

    def _batch_probability(self, moments: Moments, cutoffs: Array, *, power: float, prior_power: float) -> Array:
        mixture = self._mixture(moments, power, prior_power)
        return np.stack([_mixture_cdf(np.full(len(moments.n), cutoff), *mixture) for cutoff in cutoffs], axis=1)

    def _batch_quantile(self, moments: Moments, probabilities: Array, *, power: float, prior_power: float) -> Array:
        mixture = self._mixture(moments, power, prior_power)
        return np.stack([_mixture_quantile(p, *mixture) for p in probabilities], axis=1)


def _positive_definite(matrices: Array, bad: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Say which matrices a Cholesky factorisation will take, with room to spare."""
    (values,) = _lapack(_eigenvalues, np.where(bad[:, None, None], np.eye(matrices.shape[-1]), matrices))
    return np.asarray(values[:, 0] > 1e-14 * values[:, -1])


def _peak(
    log_density: Any, shape: Array, rate: float, power: float, rss: Array, residual: Array
) -> tuple[Array, Array]:
    """Return the mode of each log density of t = log σ², and a width there, by Newton steps within a bracket.

    The mode lies between those that the smallest and the largest possible sum of squares would give.
    """
    low = np.log((rate + power * rss / 2) / (shape + 1))
    high = np.log((rate + power * np.maximum(residual, rss) / 2) / np.maximum(shape - 1, shape / 4)) + 1.0
    for _ in range(60):  # golden-section by thirds: the density has one peak on the bracket
        left, right = low + (high - low) / 3, high - (high - low) / 3
        up = log_density(np.stack([left, right], axis=1))
        low, high = np.where(up[:, 0] < up[:, 1], left, low), np.where(up[:, 0] < up[:, 1], high, right)
    mode = (low + high) / 2
    step = 0.1 / np.sqrt(np.maximum(shape, 1.0))
    near = log_density(np.stack([mode - step, mode, mode + step], axis=1))
    curvature = (2 * near[:, 1] - near[:, 0] - near[:, 2]) / step**2
    return mode, 1 / np.sqrt(np.clip(curvature, 0.02, None))


def _mixture_cdf(x: Array, weight: Array, mean: Array, sd: Array) -> Array:
    with np.errstate(all="ignore"):
        return np.asarray((weight * special.ndtr((x[:, None] - mean) / sd)).sum(axis=1))


def _mixture_quantile(p: float, weight: Array, mean: Array, sd: Array) -> Array:
    """Return the quantile of each mixture, by halving a bracket made of its components' quantiles."""
    z = special.ndtri(p)
    low, high = (mean + z * sd).min(axis=1), (mean + z * sd).max(axis=1)
    with np.errstate(all="ignore"):
        for _ in range(55):
            middle = (low + high) / 2
            below = _mixture_cdf(middle, weight, mean, sd) < p
            low, high = np.where(below, middle, low), np.where(below, high, middle)
    return np.asarray((low + high) / 2)
