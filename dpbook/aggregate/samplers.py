"""Posteriors of any model: whatever a function of yours can draw from, fitted to all partitions side by side.

A partition whose fit raises, or whose answer is not a number, or whose worker dies, contributes a value that does not
depend on the data, and nobody is told, because an error would tell of the data. Test a fit on data that are not
sensitive with :meth:`FromSampler.try_on`, where errors show.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike

from dpbook._arrays import Array
from dpbook._late import pd
from dpbook._validation import analyst_generator, finite_array, integer
from dpbook.schema import Schema

__all__ = ["FromSampler", "PartitionPosterior"]


@runtime_checkable
class PartitionPosterior(Protocol):
    """What a release asks of a posterior: a probability or a quantile, given one partition's records.

    An object of yours may leave out the one that you do not use. Both may take further keywords, and are given those
    that they name: ``power`` and ``prior_power`` (as in :class:`ConjugateRegression`), and ``rng``, a generator for
    this partition alone. Their answers may depend on the partition and on ``rng`` and on nothing else. To that end
    each partition is answered by a copy of the object, where it can be copied, with arguments of its own; what lies
    outside, such as a global variable or a file, you must leave alone. Explained in
    :doc:`/book/sample-and-aggregate/any-model-any-size`.

    Examples
    --------
    >>> import numpy as np
    >>> from scipy import stats
    >>> from dpbook import aggregate
    >>> class NormalMean:
    ...     def probability(self, partition, cutoff):
    ...         mean, sd = partition[0].mean(), partition[0].std() / np.sqrt(len(partition))
    ...         return stats.norm.cdf(cutoff, mean, sd)
    ...     def quantile(self, partition, p, power=1.0):
    ...         mean, sd = partition[0].mean(), partition[0].std() / np.sqrt(power * len(partition))
    ...         return stats.norm.ppf(p, mean, sd)
    >>> isinstance(NormalMean(), aggregate.PartitionPosterior)
    True
    >>> public = pd.DataFrame([1.0, 2.0, 3.0])
    >>> print(NormalMean().probability(public, 2.0), NormalMean().quantile(public, 0.5))
    0.5 2.0
    >>> rng = np.random.default_rng(0)
    >>> release = aggregate.release_probability(
    ...     rng.normal(size=2000), 0.0, posterior=NormalMean(), partitions=40, epsilon=10.0, rng=rng
    ... )
    >>> bool(0 < aggregate.infer(release).estimate < 1)
    True
    """

    def probability(self, partition: Any, cutoff: Any) -> Any:
        """Return the posterior probability of at most each ``cutoff``, given a ``partition``, a data frame."""

    def quantile(self, partition: Any, p: Any, power: Any) -> Any:
        """Return posterior quantiles at ``p`` given a ``partition``, with its likelihood raised to the ``power``."""


@dataclass(frozen=True)
class FromSampler:
    """The posterior of any model for which you have a function that returns posterior draws for a data frame.

    Parameters
    ----------
    fit : callable
        ``fit(frame)`` returns draws of the parameter: an array, or a mapping or data frame of arrays, one per name. It
        must use nothing but its arguments; a generator that several partitions share would carry news of one to the
        next. It is given by keyword what its signature names: ``rng``, a generator of this partition's own;
        ``power``, the power of the likelihood; ``prior_power``, the power of the prior. A fit that takes no
        ``prior_power`` should use a prior so weak that M copies of it do not matter.
        Where quantiles are asked of a fit without ``power``, its draws are moved towards their mean by
        the factor 1/√power, which is the same for a normal posterior under a weak prior.
    parameter : str, optional
        Which of the named draws is meant.
    least_records : int, default 1
        Fewer records than this in a partition, by n and M alone, raise before any budget is spent.
    nuisance : int, default 1
        How many other parameters each partition estimates; :func:`infer` widens its intervals a little for each.
    n_jobs : int, optional
        As in joblib; by default what a surrounding ``joblib.parallel_config`` says, else all cores. Under
        ``joblib.parallel_config(backend="dask")`` the partitions are fitted on the cluster.
    schema : Schema, optional
        What a record is, if the fit relies on it; a release then uses it as if it had been given there.

    Notes
    -----
    Records are held in memory, as they came and in the frames of the partitions. A fit that raises, returns no finite
    number, or takes its worker process down with it contributes 1/2 to a probability and the centre of the bounds to a
    quantile, in silence. The partitions that ran beside a dead worker are run again. With ``n_jobs=1`` there is no
    other process: a fit that ends its process ends yours, and nothing is released.

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook import aggregate
    >>> def fit(frame, rng):
    ...     return rng.normal(frame["y"].mean(), frame["y"].std() / np.sqrt(len(frame)), size=500)
    >>> posterior = aggregate.FromSampler(fit, n_jobs=1)
    >>> public = pd.DataFrame({"y": [1.0, 2.0, 4.0, 5.0]})
    >>> posterior.try_on(public).shape
    (500,)
    >>> bool(0.3 < posterior.probability(public, 3.0, rng=np.random.default_rng(1)) < 0.7)
    True
    >>> bool(posterior.quantile(public, 0.9, power=100.0, rng=np.random.default_rng(1)) < 3.3)
    True

    Explained in :doc:`/book/sample-and-aggregate/any-model-any-size`.
    """

    fit: Callable[..., Any]
    parameter: str | None = None
    least_records: int = 1
    nuisance: int = 1
    n_jobs: int | None = None
    schema: Schema | None = None

    def __post_init__(self) -> None:
        if not callable(self.fit):
            raise TypeError(f"fit must be a function of a data frame, got {self.fit!r}")
        if self.parameter is not None and not isinstance(self.parameter, str):
            raise TypeError(f"parameter must be a name or None, got {self.parameter!r}")
        integer("least_records", self.least_records, least=1)
        integer("nuisance", self.nuisance, least=0)
        if self.n_jobs is not None and integer("n_jobs", self.n_jobs) == 0:
            raise ValueError("n_jobs must not be 0")
        checked_schema(self.schema)

    def try_on(self, frame: Any = None, *, rng: np.random.Generator | None = None) -> Array:
        """Return the draws for a data frame, with errors shown: for public or simulated data.

        ``frame`` is shaped like the sensitive data and read by the schema where there is one; by default, with a
        schema, it is 100 made-up records. ``rng`` is handed to the fit, if it takes one.
        """
        if self.schema is not None:
            frame = self.schema.example(100, rng=analyst_generator(rng)) if frame is None else self.schema.apply(frame)
        elif frame is None:
            raise TypeError("frame must be given: without a schema nobody knows what a record looks like")
        return self._draws(frame, power=1.0, prior_power=1.0, rng=rng)

    def probability(
        self,
        partition: pd.DataFrame,
        cutoff: ArrayLike,
        *,
        prior_power: float = 1.0,
        rng: np.random.Generator | None = None,
    ) -> Any:
        """Return the share of draws given ``partition`` that are at most ``cutoff``, in its shape.

        ``prior_power`` and ``rng`` are handed to the fit, if it takes them.
        """
        draws = np.sort(self._draws(partition, power=1.0, prior_power=prior_power, rng=rng))
        return (np.searchsorted(draws, np.asarray(cutoff), side="right") / len(draws))[()]

    def quantile(
        self, partition: pd.DataFrame, p: ArrayLike, *, power: float = 1.0, rng: np.random.Generator | None = None
    ) -> Any:
        """Return quantiles of the draws given ``partition`` at the probabilities ``p``, in their shape.

        ``power``, that of the likelihood, is handed to the fit if it takes one, else the draws are rescaled; ``rng`` is
        handed to it, too.
        """
        draws = self._draws(partition, power=power, prior_power=1.0, rng=rng)
        if not takes(self.fit, "power"):
            draws = draws.mean() + (draws - draws.mean()) / np.sqrt(power)
        return np.quantile(draws, np.asarray(p))[()]

    def _draws(
        self, frame: pd.DataFrame, *, power: float, prior_power: float, rng: np.random.Generator | None
    ) -> Array:
        generator = np.random.default_rng() if rng is None else rng
        given = {"power": power, "prior_power": prior_power, "rng": generator}
        drawn = self.fit(frame, **{name: value for name, value in given.items() if takes(self.fit, name)})
        if self.parameter is not None:
            drawn = drawn[self.parameter]
        elif isinstance(drawn, (Mapping, pd.DataFrame)):
            raise ValueError(f"parameter must name one of {list(drawn)}: the fit returns several")
        draws = finite_array("the draws of the fit", drawn).ravel()
        if draws.size == 0:
            raise ValueError("the fit must return at least one draw")
        return draws


def takes(function: Callable[..., Any], name: str) -> bool:
    """Say whether a function can be given an argument by this name, its own or among ``**`` arguments."""
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):  # some compiled callables do not tell
        return False
    if name in parameters:
        return parameters[name].kind in (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return any(each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters.values())


def checked_schema(schema: Any) -> Schema | None:
    """Return a schema or None; raise on anything else."""
    if schema is not None and not isinstance(schema, Schema):
        raise TypeError(f"schema must be a dpbook.Schema, got {schema!r}")
    return schema
