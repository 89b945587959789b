"""A model of your own: a prior, and a function that turns parameters and uniform numbers into records.

Whoever can simulate a record can have a posterior. Nothing here reads data: simulated records go through the release's
own clipping and statistics, so that what was released is what is modelled.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from scipy import special

from dpbook._arrays import Array
from dpbook._late import stats
from dpbook._validation import integer
from dpbook.models.layout import Recipe

__all__ = ["Law", "Model", "Simulated", "law_of", "uniform_points"]

_SEEDS = (20190207, 20200501)  # of the two scrambles
_MOST = 2**22  # numbers in one call of a simulator, so that memory stays flat
_TRIED = (64, 128)  # prior draws and points on which a model is tried before anything is inferred
_EDGE = 1e-12  # from the ends of a bounded parameter's range, relative to it


@lru_cache(maxsize=32)
def uniform_points(size: int, dimension: int, *, second: bool = False) -> Array:
    """Return one fixed, scrambled Sobol sample inside (0, 1), as (dimension, 1, size): the same in every call."""
    points = stats.qmc.Sobol(dimension, rng=_SEEDS[1 if second else 0]).random(size)
    inside = np.clip(points, 2.0**-40, 1 - 2.0**-40).T[:, None, :]
    inside.flags.writeable = False
    return np.asarray(inside, dtype=np.float64)


@dataclass(frozen=True, eq=False)
class Model:
    """A model of a record: a prior of its parameters, and how to simulate one from uniform numbers.

    Parameters of a posterior have the names of the prior. The simulator draws nothing itself: the same uniform numbers
    give the same records. Explained in :doc:`/book/any-model/if-you-can-simulate-it`.

    Parameters
    ----------
    prior : mapping of str to prior
        For each parameter a one-dimensional proper prior: of :mod:`dpbook.priors` (``NormalPrior``, ``HalfNormal``,
        ``LogNormal``, ``Gamma``, ``Beta``, ``Uniform``, ``Cauchy``), or any object with ``draw(shape, rng)``,
        ``log_density(theta)`` and ``support``.
    simulate : callable
        ``simulate(parameters, uniforms) -> records``. ``parameters`` maps names to arrays of shape (batch, 1), and
        ``uniforms`` are so many arrays as declared, of shape (1, points) or (batch, points), with numbers inside
        (0, 1). ``records`` map every column of the schema that is released to an array (batch, points); labels are
        codes 0, 1, …, and where there is one column, its array alone will do. To sum a response out instead of
        simulating it, return ``(records, weights)`` with one more axis, the answers, over which the weights add up to
        1: shape (batch, points, answers).
    uniforms : int, default 1
        How many uniform numbers a record takes.
    log_density : callable, optional
        ``log_density(parameters, records) -> array (batch, points)``, of records *before* clipping: with it, or with
        ``update``, :func:`infer` by latent records moves parameters given records, too.
    update : callable, optional
        ``update(parameters, records, rng) -> parameters``, a draw from the parameters' posterior given records.
    name : str, optional
        For tables; by default the simulator's own name.

    Examples
    --------
    Waiting times that are 0 with a probability, else exponential:

    >>> import numpy as np
    >>> from dpbook import models
    >>> def wait(parameters, uniforms):
    ...     u, v = uniforms
    ...     return np.where(u < parameters["none"], 0.0, -parameters["mean"] * np.log(v))
    >>> model = models.Model({"none": models.Beta(1, 1), "mean": models.LogNormal(10, 1)}, wait, uniforms=2)
    >>> model.names, model.draw(3, np.random.default_rng(1))["mean"].shape
    (('none', 'mean'), (3,))
    """

    prior: Mapping[str, Any]
    simulate: Callable[..., Any]
    uniforms: int = 1
    log_density: Callable[..., Any] | None = None
    update: Callable[..., Any] | None = None
    name: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.prior, Mapping) or not self.prior:
            raise TypeError(f"prior must map names of parameters to priors, got {self.prior!r}")
        for name, each in self.prior.items():
            if not isinstance(name, str) or not name:
                raise TypeError(f"prior must have non-empty strings as names, got {name!r}")
            _check_prior(name, each)
        for what in ("simulate", "log_density", "update"):
            value = getattr(self, what)
            if not callable(value) and (value is not None or what == "simulate"):
                raise TypeError(f"{what} must be callable, got {value!r}")
        object.__setattr__(self, "uniforms", integer("uniforms", self.uniforms, least=1))
        object.__setattr__(self, "prior", dict(self.prior))
        if not self.name:
            object.__setattr__(self, "name", getattr(self.simulate, "__name__", "model"))

    @property
    def names(self) -> tuple[str, ...]:
        """The parameters, in order."""
        return tuple(self.prior)

    def draw(self, count: int, rng: np.random.Generator | None = None) -> dict[str, Array]:
        """Return ``count`` draws of each parameter from the prior, by ``rng``."""
        drawn = {name: np.asarray(each.draw(count, rng), dtype=np.float64) for name, each in self.prior.items()}
        for name, values in drawn.items():
            if values.shape != (count,) or not np.isfinite(values).all():
                raise ValueError(f"prior[{name!r}] must draw finite numbers of shape ({count},), got {values.shape}")
        return drawn


def _check_prior(name: str, prior: Any) -> None:
    if not all(hasattr(prior, each) for each in ("draw", "log_density", "support")):
        raise TypeError(
            f"prior[{name!r}] must have draw, log_density and support, as NormalPrior, Gamma and Uniform have; got "
            f"{prior!r}"
        )
    low, high = prior.support
    if not (isinstance(low, (int, float)) and isinstance(high, (int, float)) and low < high):
        raise ValueError(f"prior[{name!r}] must have a support (low, high), got {prior.support!r}")


class Coordinates:
    """Parameters and the real line: logarithms of what is bounded on one side, log odds of what is on both."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self.dim = len(model.names)

    def parameters(self, position: Array) -> dict[str, Array]:
        """Return parameters (...) by name from positions (..., dim)."""
        return {
            name: _from_line(position[..., i], *self._model.prior[name].support)
            for i, name in enumerate(self._model.names)
        }

    def position(self, parameters: Mapping[str, Array]) -> Array:
        """Return positions (..., dim) of parameters by name."""
        lines = [_to_line(parameters[name], *self._model.prior[name].support) for name in self._model.names]
        return np.stack(lines, axis=-1)

    def log_prior(self, position: Array) -> Array:
        """Return the log prior density (...) of positions."""
        total = np.zeros(position.shape[:-1])
        with np.errstate(all="ignore"):
            for i, name in enumerate(self._model.names):
                prior, z = self._model.prior[name], position[..., i]
                density = np.asarray(prior.log_density(_from_line(z, *prior.support)), dtype=np.float64)
                total = total + density + _log_slope(z, *prior.support)
        return np.where(np.isnan(total) | (np.abs(position) > 700).any(axis=-1), -np.inf, total)


def _from_line(z: Array, low: float, high: float) -> Array:
    with np.errstate(all="ignore"):
        if math.isinf(low) and math.isinf(high):
            return np.asarray(z, dtype=np.float64)
        if math.isinf(high):
            return np.asarray(low + np.exp(np.clip(z, -700, 700)))
        if math.isinf(low):
            return np.asarray(high - np.exp(np.clip(z, -700, 700)))
        return np.asarray(low + (high - low) * np.clip(special.expit(z), _EDGE, 1 - _EDGE))


def _to_line(theta: Array, low: float, high: float) -> Array:
    tiny = 1e-300
    if math.isinf(low) and math.isinf(high):
        return np.asarray(theta, dtype=np.float64)
    if math.isinf(high):
        return np.asarray(np.log(np.maximum(theta - low, tiny)))
    if math.isinf(low):
        return np.asarray(np.log(np.maximum(high - theta, tiny)))
    return np.asarray(special.logit(np.clip((theta - low) / (high - low), _EDGE, 1 - _EDGE)))


def _log_slope(z: Array, low: float, high: float) -> Array:
    """Return the log derivative of the parameter by its position."""
    if math.isinf(low) and math.isinf(high):
        return np.zeros(np.shape(z))
    if math.isinf(low) or math.isinf(high):
        return np.asarray(z, dtype=np.float64)
    return np.asarray(math.log(high - low) - np.logaddexp(0, z) - np.logaddexp(0, -z))


@dataclass(frozen=True, eq=False)
class Simulated:
    """Simulated records, as a release would see them: statistics (B, P, k) or (B, P, A, k), and weights of answers."""

    statistics: Array
    weights: Array | None


class Law:
    """The law of a record's released statistics as a function of positions: simulated on fixed points."""

    def __init__(self, model: Model, layout: Recipe) -> None:
        self.model, self.layout = model, layout
        self.coordinates = Coordinates(model)
        self.dim = self.coordinates.dim

    def simulated(self, position: Array, uniforms: Array) -> Simulated:
        """Return the statistics of records made of uniforms (dimension, 1 or B, P) at positions (B, dim)."""
        columns, weights = self.columns(position, uniforms)
        with np.errstate(all="ignore"):
            shape = (len(position), *np.broadcast_shapes(*(np.shape(each)[1:] for each in columns.values())))
            records = {
                name: np.broadcast_to(self.layout.clipped(name, np.asarray(each, dtype=np.float64)), shape)
                for name, each in columns.items()
            }
            values = self.layout.values(records)
        broken = np.any([np.isnan(each) for each in records.values()], axis=0)
        values = np.where(broken[..., None], np.nan, values) if broken.any() else values
        return Simulated(values, None if weights is None else np.broadcast_to(weights, shape))

    def columns(self, position: Array, uniforms: Array) -> tuple[dict[str, Any], Array | None]:
        """Return simulated records by column, before clipping, and the weights of their answers, if there are any."""
        parameters = {name: each[:, None] for name, each in self.coordinates.parameters(position).items()}
        with np.errstate(all="ignore"):
            return self._columns(self.model.simulate(parameters, tuple(uniforms)))

    def _columns(self, found: Any) -> tuple[dict[str, Any], Array | None]:
        records, weights = found if isinstance(found, tuple) else (found, None)
        if not isinstance(records, Mapping):
            if len(self.layout.columns) != 1:
                wanted = list(self.layout.columns)
                raise ValueError(
                    f"simulate must return a mapping of the columns {wanted}, got {type(records).__name__}"
                )
            records = {self.layout.columns[0]: records}
        missing = [name for name in self.layout.columns if name not in records]
        if missing:
            raise ValueError(f"simulate must return every column that is released: {missing} are not in its records")
        return {name: records[name] for name in self.layout.columns}, weights

    def moments(self, position: Array, size: int, *, second: bool = False) -> tuple[Array, Array]:
        """Return mean (B, k) and covariance (B, k, k) of a record's statistics on ``size`` fixed points."""
        points = uniform_points(size, self.model.uniforms, second=second)
        k = len(self.layout.weights)
        rows = max(1, _MOST // (size * (k + self.model.uniforms)))
        parts = [self._moments(position[at : at + rows], points) for at in range(0, len(position), rows)]
        return np.concatenate([mean for mean, _ in parts]), np.concatenate([cov for _, cov in parts])

    def _moments(self, position: Array, points: Array) -> tuple[Array, Array]:
        found = self.simulated(position, points)
        values, share = found.statistics, 1 / points.shape[-1]
        if found.weights is not None:
            weights = found.weights * share
            mean = np.einsum("bpa,bpak->bk", weights, values)
            gap = (values - mean[:, None, None]) * np.sqrt(np.maximum(weights, 0.0))[..., None]
            gap = gap.reshape(len(gap), -1, gap.shape[-1])
            return mean, np.asarray(gap.swapaxes(1, 2) @ gap)
        mean = values.mean(axis=1)
        gap = values - mean[:, None]
        return mean, np.asarray(gap.swapaxes(1, 2) @ gap) * share

    def check(self) -> None:
        """Try the simulator on draws from the prior; raise, saying what is wrong, before anything is inferred."""
        count, size = _TRIED
        drawn = self.model.draw(count, np.random.default_rng(_SEEDS[0]))
        position, points = self.coordinates.position(drawn), uniform_points(size, self.model.uniforms)
        if not np.isfinite(self.coordinates.log_prior(position)).all():
            raise ValueError("prior must have a finite log density wherever it draws")
        columns, weights = self.columns(position, points)
        shapes = {name: np.shape(each) for name, each in columns.items()}
        axes = 2 if weights is None else 3
        for name, shape in shapes.items():
            if len(shape) != axes or shape[0] not in (1, count) or shape[1] != size:
                wanted = f"({count}, {size})" if weights is None else f"({count}, {size}, answers)"
                raise ValueError(
                    f"simulate must return arrays of shape (batch, points), here {wanted}, for column {name!r}; got "
                    f"{shape}"
                )
            values = np.asarray(columns[name], dtype=np.float64)
            if np.isnan(values).any():
                where = np.argwhere(np.isnan(np.broadcast_to(values, (count, *shape[1:])).reshape(count, -1)))[0][0]
                at = ", ".join(f"{each} = {drawn[each][where]:.4g}" for each in drawn)
                raise ValueError(f"simulate must return numbers: column {name!r} holds NaN at {at}")
        if weights is not None:
            _check_weights(np.asarray(weights, dtype=np.float64))
        if self.simulated(position[:2], points).statistics.shape[-1] != len(self.layout.weights):
            raise ValueError("statistics must have as many components as the release")


def _check_weights(weights: Array) -> None:
    if weights.ndim != 3 or np.isnan(weights).any() or (weights < -1e-9).any():
        raise ValueError("simulate must return weights of shape (batch, points, answers), none of them negative or NaN")
    if np.abs(weights.sum(axis=2) - 1).max() > 1e-6:
        raise ValueError("simulate must return weights that add up to 1 over the answers, the last axis")


def law_of(model: Any, layout: Recipe) -> Law:
    """Return the law of a model's statistics; raise where the model does not work."""
    if not isinstance(model, Model):
        raise TypeError(f"model must be a Model, got {model!r}")
    law = Law(model, layout)
    law.check()
    return law
