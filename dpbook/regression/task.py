"""What every sampler of this chapter takes and returns: a batch of releases with priors, in coordinates, and draws.

A sampler is a function ``sample(task, *, per_chain, chains, rng, progress=False) -> Draws`` that advances all releases
and chains together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpbook._arrays import Array
from dpbook.moments import NoisySums
from dpbook.priors import NormalInverseGamma, NormalInverseWishart
from dpbook.regression.coordinates import MODEL, Coordinates, coordinates_of
from dpbook.regression.layout import Layout
from dpbook.regression.weak_priors import covariates_in, stated_prior, weak_prior
from dpbook.release import Release, observations_of

__all__: list[str] = []


# Methods that need no prior: they have beliefs that are free of scale.
SCALE_FREE = ("fixed-design", "moments", "records")


class ParameterPrior(NamedTuple):
    """A batch of normal-inverse-gamma priors in coordinates, one a release.

    ``sigma2 ~ InverseGamma(shape, rate)`` and ``theta | sigma2 ~ N(mean, sigma2 precision^-1)``.
    """

    mean: Array  # (release, q)
    precision: Array  # (release, q, q)
    shape: Array  # (release,)
    rate: Array  # (release,)


class CovariatePrior(NamedTuple):
    """A batch of normal-inverse-Wishart priors of the covariates' mean and covariance, in coordinates.

    ``cov_x ~ InverseWishart(scale, dof)`` and ``mean_x | cov_x ~ N(mean, cov_x / strength)``.
    """

    mean: Array  # (release, d)
    strength: Array  # (release,)
    scale: Array  # (release, d, d)
    dof: Array  # (release,)


class Draws(NamedTuple):
    """Draws of the coefficients and of the error variance, in coordinates."""

    theta: Array  # (release, chain, draw, q)
    sigma2: Array  # (release, chain, draw)


@dataclass(frozen=True, eq=False)
class Task:
    """A batch of releases of one shape, in coordinates, with their priors: all that a sampler needs."""

    layout: Layout
    noisy: Array  # (release, k), the noisy sums
    scale: Array  # (release,), of the noise: b of Laplace noise, the standard deviation of Gaussian noise
    mechanism: str
    n: Array  # (release,), as floats
    prior: ParameterPrior | None  # None: beliefs free of scale
    covariates: CovariatePrior
    moments: Array | None = None  # (release, m), the noisy sums of Layout.higher, where they were released
    bounds: tuple[Array, Array] | None = None  # (release, d + 1), the response last; None: [-1, 1]
    checked: tuple[Array, Array] | None = None  # counts of clipped records (release, d + 1, 2), and their noise's scale
    several: tuple[Array, Array] | None = None  # where ``noisy`` are means: (observation, release, k), and their scales

    @property
    def releases(self) -> int:
        """How many releases the batch holds."""
        return len(self.noisy)

    @property
    def laplace(self) -> bool:
        """Whether the noise is Laplace (else it is Gaussian)."""
        return self.mechanism == "laplace"

    @property
    def noise_variance(self) -> Array:
        """The variance of the noise of each release's sums, shape (release,)."""
        return np.asarray((2.0 if self.laplace else 1.0) * self.scale**2)

    @property
    def box(self) -> tuple[Array, Array]:
        """The bounds of every column in coordinates, (release, d + 1), the response last."""
        ones = np.ones((self.releases, self.layout.d + 1))
        return (-ones, ones) if self.bounds is None else self.bounds

    @property
    def counts(self) -> tuple[Array, Array]:
        """How many records were clipped below and above, column by column, and the noise's scale; NaN: not counted."""
        if self.checked is not None:
            return self.checked
        return np.full((self.releases, self.layout.d + 1, 2), np.nan), np.full(self.releases, np.nan)

    @property
    def sums(self) -> NoisySums:
        """The noisy sums alone."""
        return NoisySums(self.noisy, self.scale, self.n, self.laplace, self.several)

    def stated(self) -> ParameterPrior:
        """Return the prior that an analyst stated; raise where there is none."""
        if self.prior is None:
            raise TypeError("prior must be a regression.NormalInverseGamma for this method, got None")
        return self.prior

    def beliefs(self, chains: int) -> tuple[ParameterPrior, CovariatePrior]:
        """Return the two stated priors for every chain and release, chains slowest."""

        def repeated(array: Array) -> Array:
            return np.tile(array, (chains, *[1] * (array.ndim - 1)))

        return ParameterPrior(*map(repeated, self.stated())), CovariatePrior(*map(repeated, self.covariates))

    def part(self, block: slice | NDArray[np.bool_]) -> Task:
        """Return the task of some of the releases, without their higher moments."""
        return replace(
            self,
            noisy=self.noisy[block],
            scale=self.scale[block],
            n=self.n[block],
            bounds=(self.box[0][block], self.box[1][block]),
            prior=None if self.prior is None else ParameterPrior(*(each[block] for each in self.prior)),
            covariates=CovariatePrior(*(each[block] for each in self.covariates)),
            moments=None,
            checked=None if self.checked is None else (self.checked[0][block], self.checked[1][block]),
            several=None if self.several is None else (self.several[0][:, block], self.several[1][:, block]),
        )


def drawn(parameters: Callable[[Array], tuple[Array, Array]], position: Array) -> Draws:
    """Return the draws that positions (chain, draw, release, dim) stand for."""
    shape = position.shape[:3]
    theta, sigma2 = parameters(np.moveaxis(position, -1, 0).reshape(position.shape[-1], -1))
    return Draws(np.moveaxis(theta.reshape(*shape, -1), 2, 0), np.moveaxis(sigma2.reshape(shape), 2, 0))


def task_of(
    releases: Sequence[Release],
    prior: NormalInverseGamma | None,
    covariates: NormalInverseWishart | None = None,
    *,
    method: str = "collapsed",
) -> Task:
    """Gather releases and priors into one batch; raise, naming what does not fit."""
    inside = _same_kind(releases, several=method in SCALE_FREE)
    first = releases[0]
    if prior is not None or method not in SCALE_FREE:
        stated_prior(prior)
    if prior is not None and method == "fixed-design":
        raise ValueError("prior must be left out for method 'fixed-design', which has beliefs of its own")
    if prior is None and covariates is not None:
        raise ValueError("covariates can be stated only together with prior: beliefs free of scale cover both")
    if method == "gibbs-noisy" and "moments" not in first.values:
        raise ValueError("release must hold moments for method 'gibbs-noisy': make it with release(..., moments=True)")
    beliefs = _beliefs(releases, inside, prior, covariates, method)
    return Task(
        layout=Layout(inside[0].d, inside[0].intercept),
        noisy=np.stack([each["sums"] for each in releases]),
        scale=np.array([each.scale["sums"] for each in releases]),
        mechanism=first.mechanism,
        n=np.array([float(each.n) for each in releases]),
        bounds=(np.stack([at.box[0] for at in inside]), np.stack([at.box[1] for at in inside])),
        prior=None
        if prior is None
        else ParameterPrior(*_stacked([each for each, _ in beliefs], ParameterPrior._fields)),
        covariates=CovariatePrior(*_stacked([each for _, each in beliefs], CovariatePrior._fields)),
        moments=np.stack([each["moments"] for each in releases]) if "moments" in first.values else None,
        checked=_counted(releases, inside[0].d),
        several=observations_of(releases, "sums"),
    )


def _same_kind(releases: Sequence[Release], *, several: bool) -> list[Coordinates]:
    """Return the coordinates of releases that can be sampled as one batch; raise where they cannot."""
    for each in releases:
        if not isinstance(each, Release):
            raise TypeError(f"release must hold Release objects, got {type(each).__name__}")
        each.require(model=MODEL, mechanisms=("laplace", "gaussian"), several=several or None)
    inside = [coordinates_of(each) for each in releases]
    kinds = {
        (at.d, at.intercept, each.mechanism, "moments" in each.values)
        for at, each in zip(inside, releases, strict=True)
    }
    if len(kinds) > 1:
        raise ValueError(
            "release must be a sequence of one number of covariates, one mechanism, all with an intercept "
            "or none, all with moments or none"
        )
    size = Layout(inside[0].d, inside[0].intercept).size
    for each in releases:
        shapes = {name: value.shape for name, value in each.values.items()}
        if shapes.get("sums") != (size,):
            raise ValueError(f"release must hold {size} sums for {inside[0].d} covariates, got {shapes}")
        if "clipped" in shapes and (shapes["clipped"], shapes.get("inside")) != ((inside[0].d + 1, 2), (1,)):
            raise ValueError(f"release must hold two counts of clipped records for each column, got {shapes}")
    return inside


def _counted(releases: Sequence[Release], d: int) -> tuple[Array, Array]:
    """Return counts of clipped records and the scale of their noise; NaN where a release has none.

    All counts of a release, those of records that were not clipped included, add up to n: what their noise adds up to
    is taken off them in equal parts, which is least squares.
    """
    counts, scale = np.full((len(releases), d + 1, 2), np.nan), np.full(len(releases), np.nan)
    for i, each in enumerate(releases):
        if "clipped" in each.values:
            over = each["clipped"].sum() + each["inside"].sum() - each.n
            cells = each["clipped"].size + 1
            counts[i] = each["clipped"] - over / cells
            scale[i] = each.scale["clipped"] * np.sqrt(1 - 1 / cells)
    return counts, scale


def _beliefs(
    releases: Sequence[Release],
    inside: Sequence[Coordinates],
    prior: NormalInverseGamma | None,
    covariates: NormalInverseWishart | None,
    method: str,
) -> list[tuple[NormalInverseGamma, NormalInverseWishart]]:
    """Return the two priors of each release in coordinates, computed once where releases share their bounds."""
    mapped: dict[Any, tuple[NormalInverseGamma, NormalInverseWishart]] = {}
    keys = [tuple(each.bounds.items()) for each in releases]
    for key, at in zip(keys, inside, strict=True):
        if key in mapped:
            continue
        of_covariates = covariates_in(at, covariates)
        if covariates is None and method == "gibbs-prior":  # which needs fourth moments: d + 6 degrees of freedom
            scale = 5 * np.asarray(of_covariates.scale)
            of_covariates = NormalInverseWishart(of_covariates.mean, 1.0, scale, at.d + 6.0)
        mapped[key] = at.prior_in(weak_prior(at) if prior is None else prior), of_covariates
    return [mapped[key] for key in keys]


def _stacked(priors: Sequence[Any], names: Sequence[str]) -> list[Array]:
    return [np.stack([np.asarray(getattr(each, name)) for each in priors]) for name in names]
