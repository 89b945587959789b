"""Widths of intervals over releases that are simulated from a design: of parameters, of shares, of a mean.

What :mod:`dpbook.widths` is for laws in general, here with the families' own: nothing reads data, and random numbers
are the same in every call, so that widths change smoothly with the noise. The section on how much epsilon one needs
explains it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy import interpolate, special

from dpbook._arrays import Array
from dpbook.expfam.family import Family
from dpbook.expfam.noisy_moments import NoisyMoments, draw_mean_and_sd
from dpbook.latent_noise import normal_laplace_logpdf
from dpbook.widths import OUTER, Chance, posterior_widths

__all__: list[str] = []

_ONE, _SEVERAL, _TABLES, _MEANS = 150, 60, 80, 60  # releases that are simulated, of each kind
_GRID, _REACH = 1000, 9.0  # points of one parameter, as far as sinh(9) standard deviations
_DRAWS = 500  # of each release's posterior, where it is drawn from
_AT_ONCE = 500  # parameters whose moments are held at a time: some families sum over thousands of counts
_COUNTS = 120  # points of a count's law
_VAGUE = 10.0  # sd of a coordinate of which no prior is stated
_PRIOR = 20_000  # draws of a prior, and the normal scores at which its quantiles are taken from them
_SCORES = np.linspace(-3.0, 3.0, 13)
_SEED = 20210518


class Coordinate(NamedTuple):
    """A coordinate in which a parameter may be any number, with its inverse and the inverse's log derivative."""

    to: Callable[[Array], Array]
    back: Callable[[Array], Array]
    log_slope: Callable[[Array], Array]


_LINE = Coordinate(lambda theta: theta, lambda u: u, np.zeros_like)
_HALF_LINE = Coordinate(np.log, lambda u: np.exp(np.clip(u, -690, 690)), lambda u: u)
_UNIT = Coordinate(special.logit, special.expit, lambda u: np.asarray(special.log_expit(u) + special.log_expit(-u)))


def coordinate_of(family: Family, theta: Array, j: int) -> Coordinate:
    """Return the coordinate of the j-th parameter: its logarithm or logit where the family refuses other numbers."""

    def refused(value: float) -> bool:
        try:
            family.check_parameter(np.where(np.arange(theta.size) == j, value, theta))
        except ValueError:
            return True
        return False

    if not refused(-abs(theta[j]) - 1.0):
        return _LINE
    return _UNIT if refused(1.0 + abs(theta[j])) else _HALF_LINE


def one_parameter_widths(
    family: Family, theta: Array, n: int, outside: str, prior: Any, sd: float, scale: float, laplace: bool
) -> Array:
    """Return widths (release,) of a one-parameter family, on a grid that is fine within some ``sd`` of theta."""
    change = coordinate_of(family, theta, 0)
    at = float(change.to(theta[:1])[0])
    unit = sd / np.exp(change.log_slope(np.array([at]))[0])
    if change is not _LINE:
        unit = min(unit, 3.0)  # beyond, the normal approximation has no meaning
    t = np.linspace(-_REACH, _REACH, _GRID)
    u = at + unit * np.sinh(t)
    points = change.back(u)
    with np.errstate(all="ignore"):
        log_prior = np.zeros_like(u) if prior is None else np.asarray(prior.log_density(points))
        log_prior = log_prior + change.log_slope(u) + np.log(np.cosh(t))
        mean, each = (part[..., 0] for part in family.released_moments(points, outside))
    usable = np.isfinite(mean) & np.isfinite(each) & np.isfinite(log_prior)
    mean, each = np.where(usable, mean, 0.0), np.where(usable, each, 1.0)
    [centre], [spread] = (part[0] for part in family.released_moments(theta[:1], outside))
    chance = Chance.drawn(_ONE, 1, laplace)
    low, high = family.released_range
    exact = np.clip(n * centre + np.sqrt(n * spread) * chance.sampling, n * low, n * high)
    noisy = exact + scale * chance.noise
    if laplace:
        fit = normal_laplace_logpdf(noisy, n * mean, n * each, scale)
    else:
        total = n * each + scale**2
        fit = -0.5 * ((noisy - n * mean) ** 2 / total + np.log(total))
    height = np.where(usable, fit + log_prior, -np.inf)
    cdf = np.cumsum(np.exp(height - height.max(axis=1, keepdims=True)), axis=1)
    ends = [change.back(at + unit * np.sinh([np.interp(q, row / row[-1], t) for row in cdf])) for q in OUTER]
    return np.asarray(ends[1] - ends[0])


class FamilyLaw:
    """The law of a family of several parameters, in coordinates in units of about a standard deviation.

    Of the prior nothing is needed but draws.
    """

    def __init__(self, family: Family, theta: Array, outside: str, prior: Any, sd: Array) -> None:
        self.family, self.outside = family, outside
        self.dim: int = family.parameters
        self.certain = np.zeros(family.size, dtype=np.bool_)
        self._changes = [coordinate_of(family, theta, j) for j in range(theta.size)]
        self._at = np.array([float(c.to(theta[j : j + 1])[0]) for j, c in enumerate(self._changes)])
        slopes = [float(c.log_slope(np.array([u]))[0]) for c, u in zip(self._changes, self._at, strict=True)]
        most = np.array([np.inf if c is _LINE else 1.0 for c in self._changes])
        self._unit = np.minimum(np.asarray(sd) / np.exp(slopes), most)
        self._score = self._normal_scores(prior)

    def _normal_scores(self, prior: Any) -> list[_Score]:
        """Return, for each coordinate, the map to a standard normal score under the prior, from some of its draws."""
        if prior is None:
            ends = np.array([-1.0, 1.0])
            return [_Score(ends * _VAGUE / unit, ends) for unit in self._unit]
        drawn = np.asarray(prior.draw(_PRIOR, np.random.default_rng(_SEED)))
        with np.errstate(all="ignore"):
            placed = np.stack([c.to(drawn[:, j]) for j, c in enumerate(self._changes)], axis=1)
        at = np.quantile((placed - self._at) / self._unit, special.ndtr(_SCORES), axis=0)
        return [_Score(each, _SCORES) for each in at.T]

    def theta(self, position: Array) -> Array:
        """Return parameters (B, p) at positions (p, B)."""
        u = self._at[:, None] + self._unit[:, None] * position
        return np.stack([c.back(each) for c, each in zip(self._changes, u, strict=True)], axis=-1)

    def moments(self, position: Array) -> tuple[Array, Array]:
        """Return mean and covariance of the released statistics of a record."""
        k, theta = self.family.size, self.theta(position)
        starts = range(0, len(theta), _AT_ONCE)
        parts = [self.family.mean_and_covariance(theta[i : i + _AT_ONCE], self.outside) for i in starts]
        mean, cov = (np.concatenate(each) for each in zip(*parts, strict=True))
        return mean[:, :k], cov[:, :k, :k]

    def mean(self, position: Array) -> Array:
        """Return the mean of the released statistics of a record."""
        return self.moments(position)[0]

    def log_prior(self, position: Array) -> tuple[Array, Array]:
        """Return the log prior density and its gradient, coordinates taken as independent."""
        parts = [score.log_density(each) for score, each in zip(self._score, position, strict=True)]
        return np.sum([value for value, _ in parts], axis=0), np.stack([gradient for _, gradient in parts])


class _Score:
    """A smooth rising map from a coordinate to a standard normal score, by points, straight beyond the last ones."""

    def __init__(self, at: Array, scores: Array) -> None:
        self._ends = float(at[0]), float(at[-1])
        self._map = interpolate.PchipInterpolator(at, scores)
        self._slope, self._bend = self._map.derivative(), self._map.derivative(2)

    def log_density(self, u: Array) -> tuple[Array, Array]:
        """Return the log density of the coordinate, up to a constant, and its derivative."""
        inner = np.clip(u, *self._ends)
        slope = np.maximum(self._slope(inner), 1e-12)
        score = self._map(inner) + slope * (u - inner)
        bend = np.where(u == inner, self._bend(inner) / slope, 0.0)
        return -0.5 * score**2 + np.log(slope), -score * slope + bend


def several_parameter_widths(law: FamilyLaw, n: int, scale: float, laplace: bool) -> Array:
    """Return widths (release, p) of a family of several parameters."""
    origin = np.zeros((law.dim, 1))
    mean, cov = law.moments(origin)
    chance = Chance.drawn(_SEVERAL, mean.shape[1], laplace)
    sums = chance.sums(mean[0], cov[0], n, scale, laplace)
    return posterior_widths(law, sums, np.repeat(origin, _SEVERAL, axis=1), law.theta, _DRAWS)


def share_widths(shares: Array, alphas: Array, weights: Array, n: int, scale: float, laplace: bool) -> Array:
    """Return widths (release, k) of the shares of k cells whose noisy counts are released.

    The prior is a mixture of Dirichlet ones (prior, k). As in :mod:`dpbook.expfam.table_counts` each count has a law of
    its own, tilted so that all add up to n; what the total says of one count is taken as normal.
    """
    k = shares.size
    chance = Chance.drawn(_TABLES, k, laplace)
    sums = chance.sums(shares, np.diag(shares) - np.outer(shares, shares), n, 0.0, laplace)
    noisy = np.maximum(sums.noisy, 0.0) + scale * chance.noise
    blocks = _Blocks.around(noisy, n, scale, laplace)
    laws = [_law_given_total(blocks, alpha, n) for alpha in alphas]
    evidence = np.log(weights)[:, None] + np.stack([each for _, each in laws])
    evidence = np.exp(evidence - evidence.max(axis=0))
    evidence /= evidence.sum(axis=0)
    mixed = np.concatenate([mass * each[:, None, None] for (mass, _), each in zip(laws, evidence, strict=True)], axis=2)
    cdf, points = np.cumsum(mixed, axis=2), blocks.h.shape[2]
    rng = np.random.default_rng(_SEED)
    uniform = (rng.permuted(np.tile(np.arange(_DRAWS), (k, 1)), axis=1) + 0.5) / _DRAWS
    widths = np.empty(noisy.shape)
    for j in range(k):
        z = rng.standard_normal((2, _DRAWS))
        at = np.stack([np.searchsorted(each, uniform[j] * each[-1]) for each in cdf[:, j]])
        which, point = np.divmod(np.minimum(at, cdf.shape[2] - 1), points)
        counts, alpha = np.take_along_axis(blocks.h[:, j], point, axis=1), alphas[which]
        own = _gamma(alpha[..., j] + counts, z[0])
        rest = _gamma(alpha.sum(axis=2) - alpha[..., j] + n - counts, z[1])
        low, high = np.quantile(own / (own + rest), OUTER, axis=1)
        widths[:, j] = high - low
    return widths


class _Blocks(NamedTuple):
    """Counts (release, k, block) that stand for blocks of whole numbers, short where noise puts them; 0 for itself."""

    first: Array
    end: Array
    h: Array
    log_noise: Array

    @classmethod
    def around(cls, noisy: Array, n: int, scale: float, laplace: bool) -> _Blocks:
        reach = 20.0 if laplace else 7.5
        nearest = np.clip(noisy, 0, n)
        low, high = (np.arcsinh(np.clip((end - nearest) / scale, -reach, reach)) for end in (0.0, float(n)))
        steps = low[..., None] + (high - low)[..., None] * np.linspace(0, 1, _COUNTS + 1)
        edges = np.rint(nearest[..., None] + scale * np.sinh(steps))
        edges[..., 1:] = np.maximum(edges[..., 1:], edges[..., :1] + 1)
        edges[..., -1] = np.minimum(edges[..., -1], n) + 1
        edges[..., 1] = np.where(edges[..., 0] == 0, 1, edges[..., 1])
        first, end = edges[..., :-1], edges[..., 1:]
        h = np.floor((first + end - 1) / 2)
        away = (noisy[..., None] - h) / scale
        return cls(first, end, h, -np.abs(away) if laplace else -0.5 * away**2)


def _law_given_total(blocks: _Blocks, alpha: Array, n: int) -> tuple[Array, Array]:
    """Return the masses of blocks of counts (release, k, block) given their total, and the log evidence (release,)."""
    of = alpha[:, None]

    def log_up_to(m: Array) -> Array:  # the sum of Γ(α + h)/h! over h from 0 to m - 1 is Γ(α + m)/(α Γ(m))
        with np.errstate(divide="ignore"):
            return np.where(m > 0, special.gammaln(of + m) - special.gammaln(np.maximum(m, 1)) - np.log(of), -np.inf)

    above, below = log_up_to(blocks.end), log_up_to(blocks.first)
    with np.errstate(divide="ignore"):
        log_law = blocks.log_noise + above + np.log(-np.expm1(np.minimum(below - above, 0.0)))
    mass, log_norm = _tilted_to_total(blocks.h, log_law, n)
    mean = (mass * blocks.h).sum(axis=2)
    variance = np.maximum((mass * blocks.h**2).sum(axis=2) - mean**2, 0.0)
    total = np.maximum(variance.sum(axis=1), 0.5)
    evidence = log_norm - 0.5 * ((n - mean.sum(axis=1)) ** 2 / total + np.log(total))
    evidence += special.gammaln(alpha.sum()) - special.gammaln(alpha.sum() + n) - special.gammaln(alpha).sum()
    others, spread = (each.sum(axis=1, keepdims=True) - each for each in (mean, variance))
    log_total = -0.5 * (n - blocks.h - others[..., None]) ** 2 / np.maximum(spread, 1.0)[..., None]
    mass = mass * np.exp(log_total - log_total.max(axis=2, keepdims=True))
    return mass / mass.sum(axis=2, keepdims=True), evidence


def _tilted_to_total(h: Array, log_law: Array, n: int) -> tuple[Array, Array]:
    """Return the counts' masses, tilted by bisection so that means add up to n, and the log of what norms them."""
    spread = np.maximum(np.ptp(h, axis=2).max(axis=1), 1e-9)[:, None, None]
    low, high = np.full(len(h), -60.0), np.full(len(h), 60.0)
    mass, log_norm = log_law, np.zeros(len(h))
    for _ in range(30):
        middle = (low + high) / 2
        tilt = np.sinh(middle)[:, None, None] / spread
        raised = log_law + tilt * (h - h[..., :1])
        highest = raised.max(axis=2, keepdims=True)
        mass = np.exp(raised - highest)
        norm = mass.sum(axis=2, keepdims=True)
        mass /= norm
        left = n - h[..., 0].sum(axis=1)
        log_norm = (highest + np.log(norm)).sum(axis=(1, 2)) - tilt[:, 0, 0] * left
        above = (mass * h).sum(axis=(1, 2)) > n
        low, high = np.where(above, low, middle), np.where(above, middle, high)
    return np.asarray(mass), log_norm


def _gamma(shape: Array, z: Array) -> Array:
    """Return gamma variables from normal ones, by the cube root of Wilson and Hilferty."""
    return np.asarray(np.maximum(shape * (1 - 1 / (9 * shape) + z / (3 * np.sqrt(shape))) ** 3, 1e-12 * shape))


def mean_widths(centre: float, sd: float, n: int, scales: tuple[float, float], laplace: bool) -> Array:
    """Return widths (release, 2) of mean and standard deviation of records in [-1, 1], as of normal ones."""
    cross = 2 * centre * sd**2
    cov = np.array([[sd**2, cross], [cross, 2 * sd**4 + 4 * centre**2 * sd**2]])
    chance = Chance.drawn(_MEANS, 2, laplace)
    sums = chance.sums(np.array([centre, centre**2 + sd**2]), cov, n, np.array(scales), laplace)
    each = (sums.noisy[:, 0], sums.noisy[:, 1], sums.scale[:, 0], sums.scale[:, 1], sums.n)
    drawn = draw_mean_and_sd(NoisyMoments(*each, laplace), _DRAWS, np.random.default_rng(_SEED))
    low, high = np.quantile(np.stack(drawn, axis=-1), OUTER, axis=1)
    return np.asarray(high - low)
