"""Priors: what is believed of a model's parameters before the data. Every prior of the package is here, once.

An analyst's belief knows nothing of records, noise or budgets, and one class serves every chapter that needs it:
:class:`NormalInverseGamma` is the prior of a normal mean and variance and of a regression's coefficients and error
variance. All are given in the data's own units. ``draw`` works on whole batches, because the samplers advance many
chains at once.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from dpbook._arrays import Array
from dpbook._validation import analyst_generator, at_least, finite_array, finite_number, integer, interval, positive

__all__ = [
    "Beta",
    "Cauchy",
    "Dirichlet",
    "Flat",
    "Gamma",
    "HalfNormal",
    "IndependentPrior",
    "LogNormal",
    "MeanAndDispersion",
    "NormalInverseGamma",
    "NormalInverseWishart",
    "NormalPrior",
    "Uniform",
    "Zellner",
]


class _OfArrays:
    """What priors with array parameters share: they are equal where their numbers are, and show all of them."""

    def _numbers(self) -> dict[str, Any]:
        return {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}  # type: ignore[arg-type]

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        return type(self), tuple(self._numbers().values())  # built anew, so that its arrays are read-only again

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={np.asarray(value).tolist()}" for name, value in self._numbers().items())
        return f"{type(self).__name__}({values})"

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and repr(other) == repr(self)

    def __hash__(self) -> int:
        return hash(repr(self))


@dataclass(frozen=True)
class Beta:
    """A Beta(alpha, beta) prior for a probability. Explained in :doc:`/book/background/bayesian-primer`.

    Parameters
    ----------
    alpha, beta : float
        Greater than 0; ``Beta(1, 1)`` is uniform.

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook.priors import Beta
    >>> Beta(1, 3).mean
    0.25
    >>> Beta(1, 1).updated(7, 10)
    Beta(alpha=8.0, beta=4.0)
    >>> Beta(1, 1).log_density([0.3]), Beta(2, 2).draw(2, np.random.default_rng(0)).round(2)
    (array([0.]), array([0.41, 0.21]))
    """

    alpha: float
    beta: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "alpha", positive("alpha", self.alpha))
        object.__setattr__(self, "beta", positive("beta", self.beta))

    @property
    def mean(self) -> float:
        """The prior mean."""
        return self.alpha / (self.alpha + self.beta)

    @property
    def variance(self) -> float:
        """The prior variance."""
        return self.mean * (1 - self.mean) / (self.alpha + self.beta + 1)

    @property
    def support(self) -> tuple[float, float]:
        """Where the parameter can lie."""
        return (0.0, 1.0)

    def draw(self, shape: int | tuple[int, ...], rng: np.random.Generator | None = None) -> Array:
        """Return independent draws of the given ``shape``, by ``rng``."""
        return analyst_generator(rng).beta(self.alpha, self.beta, shape)

    def log_density(self, theta: ArrayLike) -> Array:
        """Return the logarithm of the prior density at ``theta``, in (0, 1)."""
        theta = np.asarray(theta, dtype=float)
        kernel = special.xlogy(self.alpha - 1, theta) + special.xlog1py(self.beta - 1, -theta)
        return np.asarray(kernel - special.betaln(self.alpha, self.beta))

    def updated(self, successes: float, n: float) -> Beta:
        """Return the posterior after ``successes`` in ``n`` exact yes-or-no records.

        ``successes`` may be a fraction, as a projected noisy count is.
        """
        n = at_least("n", n, 0.0)
        successes = at_least("successes", successes, 0.0)
        if successes > n:
            raise ValueError(f"successes must be at most n = {n}, got {successes}")
        return Beta(self.alpha + successes, self.beta + n - successes)


@dataclass(frozen=True)
class Gamma:
    """A Gamma(shape, rate) prior for a rate. Explained in :doc:`/book/background/bayesian-primer`.

    Parameters
    ----------
    shape, rate : float
        Greater than 0; the mean is shape / rate.

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook.priors import Gamma
    >>> Gamma(8, 2).mean, Gamma(8, 2).variance
    (4.0, 2.0)
    >>> Gamma(1, 1).log_density([2.0]), Gamma(8, 2).draw(2, np.random.default_rng(0)).round(2)
    (array([-2.]), array([4.01, 4.79]))
    """

    shape: float
    rate: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", positive("shape", self.shape))
        object.__setattr__(self, "rate", positive("rate", self.rate))

    @property
    def mean(self) -> float:
        """The prior mean."""
        return self.shape / self.rate

    @property
    def variance(self) -> float:
        """The prior variance."""
        return self.shape / self.rate**2

    @property
    def support(self) -> tuple[float, float]:
        """Where the parameter can lie."""
        return (0.0, math.inf)

    def draw(self, shape: int | tuple[int, ...], rng: np.random.Generator | None = None) -> Array:
        """Return independent draws of the given ``shape``, by ``rng``."""
        return analyst_generator(rng).gamma(self.shape, 1 / self.rate, shape)

    def log_density(self, theta: ArrayLike) -> Array:
        """Return the logarithm of the prior density at ``theta``, above 0."""
        theta = np.asarray(theta, dtype=float)
        constant = self.shape * math.log(self.rate) - special.gammaln(self.shape)
        return np.asarray(special.xlogy(self.shape - 1, theta) - self.rate * theta + constant)


@dataclass(frozen=True)
class MeanAndDispersion:
    """Independent Gamma priors of the mean and the dispersion of negative binomial counts.

    Explained in :doc:`/book/exponential-families/is-the-family-right`.

    Parameters
    ----------
    mean, dispersion : Gamma
        Of the mean, and of the dispersion, one over the size: counts have the variance mean + dispersion mean².

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook.priors import Gamma, MeanAndDispersion
    >>> prior = MeanAndDispersion(Gamma(2, 1), Gamma(1, 1))
    >>> prior.draw(3, np.random.default_rng(0)).shape, prior.log_density([2.0, 1.0]).round(2)
    ((3, 2), np.float64(-2.31))
    """

    mean: Gamma
    dispersion: Gamma

    def __post_init__(self) -> None:
        for name in ("mean", "dispersion"):
            if not isinstance(getattr(self, name), Gamma):
                raise TypeError(f"{name} must be a Gamma, got {getattr(self, name)!r}")

    def draw(self, shape: int | tuple[int, ...], rng: np.random.Generator | None = None) -> Array:
        """Return independent draws of mean and size, on a last axis after those of ``shape``, by ``rng``."""
        rng = analyst_generator(rng)
        least = np.finfo(float).tiny
        return np.stack([self.mean.draw(shape, rng), 1 / np.maximum(self.dispersion.draw(shape, rng), least)], axis=-1)

    def log_density(self, theta: ArrayLike) -> Array:
        """Return the logarithm of the prior density of mean and size at ``theta``, (..., 2)."""
        mean, size = np.moveaxis(np.asarray(theta, dtype=float), -1, 0)
        return np.asarray(self.mean.log_density(mean) + self.dispersion.log_density(1 / size) - 2 * np.log(size))


@dataclass(frozen=True)
class NormalPrior:
    """A normal prior of one number. Explained in :doc:`/book/any-model/if-you-can-simulate-it`.

    Parameters
    ----------
    mean, sd : float
        The standard deviation is greater than 0.

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook.priors import NormalPrior
    >>> NormalPrior(0, 2).log_density([0.0]).round(3), NormalPrior(0, 2).draw(2, np.random.default_rng(0)).round(2)
    (array([-1.612]), array([ 0.25, -0.26]))
    """

    mean: float
    sd: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "mean", finite_number("mean", self.mean))
        object.__setattr__(self, "sd", positive("sd", self.sd))

    @property
    def support(self) -> tuple[float, float]:
        """Where the parameter can lie."""
        return (-math.inf, math.inf)

    def draw(self, shape: int | tuple[int, ...], rng: np.random.Generator | None = None) -> Array:
        """Return independent draws of the given ``shape``, by ``rng``."""
        return analyst_generator(rng).normal(self.mean, self.sd, shape)

    def log_density(self, theta: ArrayLike) -> Array:
        """Return the logarithm of the prior density at ``theta``."""
        z = (np.asarray(theta, dtype=float) - self.mean) / self.sd
        return np.asarray(-0.5 * z**2 - math.log(self.sd) - 0.5 * math.log(2 * math.pi))


@dataclass(frozen=True)
class HalfNormal:
    """A prior of a scale: the size of a normal number. Explained in :doc:`/book/any-model/if-you-can-simulate-it`.

    Parameters
    ----------
    sd : float
        Of that normal number, greater than 0; the mean of its size is 0.8 times it.

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook.priors import HalfNormal
    >>> HalfNormal(2).log_density([0.0]).round(3), HalfNormal(2).draw(2, np.random.default_rng(0)).round(2)
    (array([-0.919]), array([0.25, 0.26]))
    """

    sd: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "sd", positive("sd", self.sd))

    @property
    def support(self) -> tuple[float, float]:
        """Where the parameter can lie."""
        return (0.0, math.inf)

    def draw(self, shape: int | tuple[int, ...], rng: np.random.Generator | None = None) -> Array:
        """Return independent draws of the given ``shape``, by ``rng``."""
        return np.abs(NormalPrior(0.0, self.sd).draw(shape, rng))

    def log_density(self, theta: ArrayLike) -> Array:
        """Return the logarithm of the prior density at ``theta``, at least 0."""
        return np.asarray(NormalPrior(0.0, self.sd).log_density(theta) + math.log(2))


@dataclass(frozen=True)
class LogNormal:
    """A prior of a number whose logarithm is normal. Explained in :doc:`/book/any-model/if-you-can-simulate-it`.

    Parameters
    ----------
    median : float
        Greater than 0.
    spread : float
        The standard deviation of the logarithm, greater than 0: with 0.7, two of three draws are within a factor of
        two of the median.

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook.priors import LogNormal
    >>> LogNormal(10, 1).log_density([10.0]).round(3), LogNormal(10, 1).draw(2, np.random.default_rng(0)).round(1)
    (array([-3.222]), array([11.3,  8.8]))
    """

    median: float
    spread: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "median", positive("median", self.median))
        object.__setattr__(self, "spread", positive("spread", self.spread))

    @property
    def support(self) -> tuple[float, float]:
        """Where the parameter can lie."""
        return (0.0, math.inf)

    def draw(self, shape: int | tuple[int, ...], rng: np.random.Generator | None = None) -> Array:
        """Return independent draws of the given ``shape``, by ``rng``."""
        return np.exp(NormalPrior(math.log(self.median), self.spread).draw(shape, rng))

    def log_density(self, theta: ArrayLike) -> Array:
        """Return the logarithm of the prior density at ``theta``, above 0."""
        log = np.log(np.asarray(theta, dtype=float))
        return np.asarray(NormalPrior(math.log(self.median), self.spread).log_density(log) - log)


@dataclass(frozen=True)
class Uniform:
    """A uniform prior of a number between two ends. Explained in :doc:`/book/any-model/if-you-can-simulate-it`.

    Parameters
    ----------
    low, high : float
        The ends, low < high.

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook.priors import Uniform
    >>> Uniform(-1, 1).log_density([0.3]).round(3), Uniform(-1, 1).draw(2, np.random.default_rng(0)).round(2)
    (array([-0.693]), array([ 0.27, -0.46]))
    """

    low: float
    high: float

    def __post_init__(self) -> None:
        low, high = interval("(low, high)", (self.low, self.high))
        object.__setattr__(self, "low", low)
        object.__setattr__(self, "high", high)

    @property
    def support(self) -> tuple[float, float]:
        """Where the parameter can lie."""
        return (self.low, self.high)

    def draw(self, shape: int | tuple[int, ...], rng: np.random.Generator | None = None) -> Array:
        """Return independent draws of the given ``shape``, by ``rng``."""
        return analyst_generator(rng).uniform(self.low, self.high, shape)

    def log_density(self, theta: ArrayLike) -> Array:
        """Return the logarithm of the prior density at ``theta``, between the ends."""
        return np.full(np.shape(theta), -math.log(self.high - self.low))


@dataclass(frozen=True)
class Cauchy:
    """A prior with heavy tails of one number. Explained in :doc:`/book/any-model/if-you-can-simulate-it`.

    Parameters
    ----------
    median, scale : float
        Half of the probability lies within one scale of the median; the scale is greater than 0.

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook.priors import Cauchy
    >>> Cauchy(0, 2).log_density([0.0]).round(3), Cauchy(0, 2).draw(2, np.random.default_rng(0)).round(2)
    (array([-1.838]), array([-1.9 , 12.21]))
    """

    median: float
    scale: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "median", finite_number("median", self.median))
        object.__setattr__(self, "scale", positive("scale", self.scale))

    @property
    def support(self) -> tuple[float, float]:
        """Where the parameter can lie."""
        return (-math.inf, math.inf)

    def draw(self, shape: int | tuple[int, ...], rng: np.random.Generator | None = None) -> Array:
        """Return independent draws of the given ``shape``, by ``rng``."""
        return self.median + self.scale * analyst_generator(rng).standard_cauchy(shape)

    def log_density(self, theta: ArrayLike) -> Array:
        """Return the logarithm of the prior density at ``theta``."""
        z = (np.asarray(theta, dtype=float) - self.median) / self.scale
        return np.asarray(-np.log1p(z**2) - math.log(math.pi * self.scale))


@dataclass(frozen=True, eq=False, repr=False)
class Dirichlet(_OfArrays):
    """A Dirichlet prior for the probabilities of k categories. Explained in :doc:`/book/background/bayesian-primer`.

    Parameters
    ----------
    alpha : sequence of float
        One pseudo-count a category, each greater than 0.

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook.priors import Dirichlet
    >>> Dirichlet([1, 1, 2]).mean, Dirichlet([1, 1, 2]).draw(5, np.random.default_rng(0)).shape
    (array([0.25, 0.25, 0.5 ]), (5, 3))
    """

    alpha: ArrayLike

    def __post_init__(self) -> None:
        alpha = finite_array("alpha", self.alpha, ndim=1)
        if alpha.size < 2 or (alpha <= 0).any():
            raise ValueError(f"alpha must hold two or more numbers greater than 0, got {alpha}")
        object.__setattr__(self, "alpha", _read_only(alpha))

    @property
    def mean(self) -> Array:
        """The prior mean."""
        alpha = np.asarray(self.alpha)
        return np.asarray(alpha / alpha.sum())

    def draw(self, shape: int | tuple[int, ...], rng: np.random.Generator | None = None) -> Array:
        """Return a batch of the given ``shape`` of independent draws, by ``rng``; the categories are one more axis."""
        return analyst_generator(rng).dirichlet(np.asarray(self.alpha), shape)


@dataclass(frozen=True, eq=False, repr=False)
class NormalInverseGamma(_OfArrays):
    """A prior of a mean and a variance: of a normal distribution, or of a regression's coefficients and errors.

    ``variance ~ InverseGamma(shape, rate)`` and, given it, ``mean ~ N(mean, variance precision^-1)``: ``precision`` is
    how many records the prior of the mean is worth, so that the mean's variance is about
    ``rate / (shape - 1) / precision``. Explained in :doc:`/book/background/bayesian-primer` and
    :doc:`/book/regression/private-least-squares`.

    Parameters
    ----------
    mean : float or sequence of float
        Of a normal distribution's mean: one number. Of a regression's coefficients, the intercept first: one number
        for each, or one that holds for all.
    precision : float, sequence of float or matrix
        One number, for a normal distribution or for all coefficients alike; one for each coefficient; or a positive
        definite matrix.
    shape, rate : float
        Of the inverse gamma distribution of the variance, greater than 0.

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook.priors import NormalInverseGamma
    >>> NormalInverseGamma(mean=120, precision=1, shape=3, rate=800)  # of a normal mean and variance
    NormalInverseGamma(mean=120.0, precision=1.0, shape=3.0, rate=800.0)
    >>> prior = NormalInverseGamma(mean=[0, 0], precision=[0.25, 0.25], shape=20, rate=0.5)  # of a line
    >>> drawn = prior.draw(1000, np.random.default_rng(1))
    >>> theta, sigma2 = drawn[:, :-1], drawn[:, -1]
    >>> theta.shape, round(float(sigma2.mean()), 3)  # rate / (shape - 1)
    ((1000, 2), 0.026)
    >>> NormalInverseGamma(0, 2, shape=20, rate=0.5).sized(2, "prior")[1].tolist()  # one number holds for all
    [[2.0, 0.0], [0.0, 2.0]]
    """

    mean: ArrayLike
    precision: ArrayLike
    shape: float
    rate: float

    def __post_init__(self) -> None:
        _set_normal(self, "precision")

    def draw(self, shape: int | tuple[int, ...], rng: np.random.Generator | None = None) -> Array:
        """Return a batch of the given ``shape`` of independent draws, by ``rng``.

        One more axis than the batch holds the mean, or each coefficient, and the variance last.
        """
        rng = analyst_generator(rng)
        variance = self.rate / rng.standard_gamma(self.shape, shape)
        if not np.ndim(self.mean) and not np.ndim(self.precision):
            mean, precision = of_one_mean(self, "prior")
            return np.stack([rng.normal(mean, np.sqrt(variance / precision)), variance], axis=-1)
        centre, matrix = self.sized(_length(self.mean, self.precision), "prior")
        z = rng.standard_normal((*variance.shape, centre.size, 1))
        spread = np.linalg.solve(np.swapaxes(np.linalg.cholesky(matrix), -1, -2), z)[..., 0]
        theta = centre + np.sqrt(variance)[..., None] * spread
        return np.concatenate([theta, variance[..., None]], axis=-1)

    def sized(self, size: int, name: str) -> tuple[Array, Array]:
        """Return mean and precision of ``size`` coefficients; raise, with ``name``, where the prior does not fit."""
        return _fit(name, self.mean, self.precision, size, "coefficients (the intercept counts)")


@dataclass(frozen=True, eq=False, repr=False)
class NormalInverseWishart(_OfArrays):
    """A prior of the mean and covariance of the covariates, seen as normal.

    ``cov_x ~ InverseWishart(scale, dof)``, whose mean is ``scale / (dof - d - 1)`` for ``dof > d + 1``; given it,
    ``mean_x ~ N(mean, cov_x / strength)``. Explained in :doc:`/book/regression/private-covariates`.

    Parameters
    ----------
    mean : float or sequence of float
        Prior mean of the covariates' mean; one number holds for all.
    strength : float
        How many records the prior of the mean is worth, greater than 0.
    scale : float, sequence of float or matrix
        One number for all covariates, one for each, or a positive definite matrix.
    dof : float
        Degrees of freedom, greater than d - 1.

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook.priors import NormalInverseWishart
    >>> covariates = NormalInverseWishart(mean=[0.0], strength=1, scale=1, dof=50)
    >>> mean_x, cov_x = covariates.draw(1000, np.random.default_rng(1))
    >>> mean_x.shape, cov_x.shape, round(float(cov_x.mean()), 3)  # 1 / (50 - 2)
    ((1000, 1), (1000, 1, 1), 0.021)
    >>> covariates.sized(1, "covariates")
    (array([0.]), array([[1.]]))
    """

    mean: ArrayLike
    strength: float
    scale: ArrayLike
    dof: float

    def __post_init__(self) -> None:
        mean, scale = _vector("mean", self.mean), _positive_definite("scale", self.scale)
        _same_length("scale", scale, mean)
        object.__setattr__(self, "mean", mean)
        object.__setattr__(self, "scale", scale)
        object.__setattr__(self, "strength", positive("strength", self.strength))
        object.__setattr__(self, "dof", positive("dof", self.dof))
        self._check_dof(_length(mean, scale))

    def draw(self, count: int, rng: np.random.Generator | None = None) -> tuple[Array, Array]:
        """Return ``count`` independent draws by ``rng``: ``mean_x``, (count, d), and ``cov_x``, (count, d, d)."""
        rng, count = analyst_generator(rng), integer("count", count, least=1)
        mean, scale = self.sized(_length(self.mean, self.scale), "covariates")
        wide = np.broadcast_to(scale, (count, *scale.shape))
        return draw_normal_inverse_wishart(mean, np.full(count, self.strength), wide, np.full(count, self.dof), rng)

    def _check_dof(self, d: int) -> None:
        if self.dof <= d - 1:
            raise ValueError(f"dof must be greater than d - 1 = {d - 1}, got {self.dof}")

    def sized(self, d: int, name: str) -> tuple[Array, Array]:
        """Return mean and scale for ``d`` covariates; raise, calling the prior ``name``, where it does not fit."""
        self._check_dof(d)
        return _fit(name, self.mean, self.scale, d, "covariates")


@dataclass(frozen=True)
class Flat:
    """The reference prior of a regression: proportional to 1/σ², flat in the coefficients.

    It is its own M-th root with respect to the measure dβ dσ²/σ², so partitions and the whole share it unchanged.
    Explained in :doc:`/book/sample-and-aggregate/split-compute-average`.

    Examples
    --------
    >>> from dpbook import aggregate
    >>> from dpbook.priors import Flat
    >>> aggregate.ConjugateRegression(prior=Flat()).prior
    Flat()
    """


@dataclass(frozen=True)
class Zellner:
    """Zellner's g-prior: coefficients normal about 0 with covariance g σ² (XᵀX)⁻¹, and 1/σ² for the variance.

    Parameters
    ----------
    g : float, optional
        By default the number of records in *all* partitions. A partition that used its own, smaller, number would
        shrink every slope towards 0: with M partitions of n records in all, by about (β/σ) M/√n full-data posterior
        standard deviations.

    Examples
    --------
    >>> from dpbook.priors import Zellner
    >>> Zellner(g=100.0)
    Zellner(g=100.0)

    Explained in :doc:`/book/sample-and-aggregate/split-compute-average`.
    """

    g: float | None = None

    def __post_init__(self) -> None:
        if self.g is not None:
            object.__setattr__(self, "g", positive("g", self.g))


@dataclass(frozen=True, eq=False, repr=False)
class IndependentPrior(_OfArrays):
    """The semi-conjugate prior of a regression: β normal and σ² inverse-gamma, independent of one another.

    Parameters
    ----------
    mean : float or sequence of float
        Prior mean of the coefficients, the intercept first; one number holds for all.
    covariance : float, sequence of float or matrix
        Their prior covariance: one variance for all coefficients, one for each, or a positive definite matrix.
    shape, rate : float
        Of the inverse-gamma law of σ².

    Examples
    --------
    >>> from dpbook.priors import IndependentPrior
    >>> IndependentPrior(0.0, 100.0, shape=0.5, rate=0.5).sized(2, "prior")[0]
    array([0., 0.])

    Explained in :doc:`/book/sample-and-aggregate/posterior-quantiles`.
    """

    mean: ArrayLike
    covariance: ArrayLike
    shape: float
    rate: float

    def __post_init__(self) -> None:
        _set_normal(self, "covariance")

    def sized(self, size: int, name: str) -> tuple[Array, Array]:
        """Return mean and covariance of ``size`` coefficients; raise, with ``name``, where the prior does not fit."""
        return _fit(name, self.mean, self.covariance, size, "coefficients (the intercept counts)")


def of_one_mean(prior: NormalInverseGamma, name: str) -> tuple[float, float]:
    """Return mean and precision of one mean; raise, naming the argument, where they are for coefficients."""
    if isinstance(prior.mean, float) and isinstance(prior.precision, float):
        return prior.mean, prior.precision
    raise ValueError(f"{name} must have one number for mean and one for precision, got {prior!r}")


def draw_normal_inverse_wishart(
    mean: Array, strength: Array, scale: Array, dof: Array, rng: np.random.Generator
) -> tuple[Array, Array]:
    """Draw (mean_x, cov_x) for a batch of parameters; the batch is ``scale``'s leading axes.

    Bartlett: with scale = L L' and a lower triangular A, independent normals below a diagonal of chis with
    dof, dof - 1, … degrees, ``cov = R R'`` with ``R = L A'^-1`` is inverse Wishart.
    """
    d = scale.shape[-1]
    batch = scale.shape[:-2]
    freedom = np.broadcast_to(dof, batch)[..., None] - np.arange(d)
    bartlett = np.sqrt(2 * rng.standard_gamma(freedom / 2))[..., None] * np.eye(d)
    if d > 1:
        below = np.tril_indices(d, -1)
        bartlett[..., below[0], below[1]] = rng.standard_normal((*batch, len(below[0])))
    root = cholesky(scale)
    # R' = A^-1 L'
    right = np.linalg.solve(bartlett, np.swapaxes(root, -1, -2)) if d > 1 else root / bartlett
    cov = np.swapaxes(right, -1, -2) @ right
    z = rng.standard_normal((*batch, 1, d)) / np.sqrt(np.broadcast_to(strength, batch))[..., None, None]
    return mean + (z @ right)[..., 0, :], np.asarray(cov, dtype=np.float64)


def cholesky(matrix: Array) -> Array:
    """Return the Cholesky factors of a batch of matrices that are positive definite but for rounding."""
    try:
        return np.asarray(np.linalg.cholesky(matrix), dtype=np.float64)
    except np.linalg.LinAlgError:
        # Sums of a billion records round at 1e-7, which may exceed a weak prior's precision.
        trace = np.trace(matrix, axis1=-2, axis2=-1)[..., None, None]
        lifted = matrix + (1e-10 * trace + 1e-250) * np.eye(matrix.shape[-1])
        return np.asarray(np.linalg.cholesky(lifted), dtype=np.float64)


def _set_normal(prior: NormalInverseGamma | IndependentPrior, matrix: str) -> None:
    """Check and store the parameters of a prior of coefficients and variance; its matrix has the given name."""
    mean, square = _vector("mean", prior.mean), _positive_definite(matrix, getattr(prior, matrix))
    _same_length(matrix, square, mean)
    object.__setattr__(prior, "mean", mean)
    object.__setattr__(prior, matrix, square)
    for name in ("shape", "rate"):
        object.__setattr__(prior, name, positive(name, getattr(prior, name)))


def _vector(name: str, value: ArrayLike) -> Array | float:
    array = finite_array(name, value)
    if array.ndim == 0:
        return finite_number(name, array.item())
    if array.ndim != 1 or not array.size:
        raise ValueError(f"{name} must be a number or a sequence of numbers, got shape {array.shape}")
    return _read_only(array)


def _positive_definite(name: str, value: ArrayLike) -> Array | float:
    array = finite_array(name, value)
    if array.ndim == 0:
        return positive(name, array.item())
    if array.ndim == 1:
        if not array.size or (array <= 0).any():
            raise ValueError(f"{name} must hold numbers greater than 0, got {array}")
        return _read_only(np.diag(array))
    if array.ndim != 2 or array.shape[0] != array.shape[1]:
        raise ValueError(f"{name} must be a number, a sequence or a square matrix, got shape {array.shape}")
    symmetric = (array + array.T) / 2
    if not np.allclose(array, symmetric, rtol=1e-8, atol=0) or not _is_positive_definite(symmetric):
        raise ValueError(f"{name} must be symmetric and positive definite, got {array.tolist()}")
    return _read_only(symmetric)


def _is_positive_definite(matrix: Array) -> bool:
    try:
        np.linalg.cholesky(matrix)
    except np.linalg.LinAlgError:
        return False
    return True


def _read_only(array: Array) -> Array:
    array = array.copy()
    array.flags.writeable = False
    return array


def _same_length(name: str, matrix: ArrayLike, mean: ArrayLike) -> None:
    if np.ndim(matrix) == 2 and np.ndim(mean) == 1 and len(np.asarray(matrix)) != np.size(mean):
        raise ValueError(
            f"{name} must have as many rows as mean has entries, got {np.shape(matrix)} and {np.size(mean)}"
        )


def _length(mean: ArrayLike, matrix: ArrayLike) -> int:
    """Return for how many coefficients or covariates a prior is, as far as it says."""
    return max(np.size(mean), len(np.atleast_1d(matrix)))


def _fit(name: str, mean: ArrayLike, matrix: ArrayLike, size: int, what: str) -> tuple[Array, Array]:
    for part in (np.atleast_1d(mean), np.atleast_1d(matrix)):
        if len(part) not in (1, size) or (len(part) == 1 and size > 1 and np.ndim(part) == 2):
            raise ValueError(f"{name} must be for {size} {what}, got one for {len(part)}")
    wide = np.broadcast_to(np.asarray(mean, dtype=np.float64), (size,))
    square = np.asarray(matrix, dtype=np.float64)
    return wide, square if square.ndim == 2 else square * np.eye(size)
