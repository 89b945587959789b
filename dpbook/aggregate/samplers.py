"""Posteriors of any model: whatever a function of yours can draw from, fitted to all partitions side by side.

A partition whose fit raises, or whose answer is not a number, or whose worker dies, contributes a value that does not
depend on the data, and nobody is told, because an error would tell of the data. Test a fit on data that are not
sensitive with :meth:`FromSampler.try_on`, where errors show.
"""

from __future__ import annotations

import copy
import importlib
import inspect
import itertools
import threading
import warnings
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import joblib
import numpy as np
import pandas as pd
from joblib.externals.loky.backend.reduction import dumps
from joblib.parallel import get_active_backend
from numpy.typing import ArrayLike
from tqdm import tqdm

from dpbook._arrays import Array
from dpbook._columns import own_frame
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
    outside, such as a global variable or a file, you must leave alone.

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
    >>> bool(0 < aggregate.combine(release).probability < 1)
    True

    Explained in :doc:`/book/sample-and-aggregate/any-model-any-size`.
    """

    def probability(self, partition: Any, cutoff: Any) -> Any:
        """Return the posterior probability of at most ``cutoff``, given a partition.

        Parameters
        ----------
        partition : DataFrame
            Its records.
        cutoff : ndarray
            Where.

        Returns
        -------
        array
            One number a cutoff.
        """

    def quantile(self, partition: Any, p: Any, power: Any) -> Any:
        """Return posterior quantiles, given a partition, with its likelihood raised to a power.

        Parameters
        ----------
        partition : DataFrame
            Its records.
        p : ndarray
            Probabilities.
        power : float
            To which the likelihood is raised.

        Returns
        -------
        array
            One number a probability.
        """


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
        How many other parameters each partition estimates; :func:`combine` widens its intervals a little for each.
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

        Parameters
        ----------
        frame : DataFrame, optional
            Shaped like the sensitive data; read by the schema where there is one. By default, with a schema, 100
            made-up records.
        rng : numpy.random.Generator, optional
            Handed to the fit, if it takes one.

        Returns
        -------
        ndarray
            Draws of the parameter.
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
        """Return the share of draws that are at most ``cutoff``.

        Parameters
        ----------
        partition : DataFrame
            The records.
        cutoff : float or array
            Where.
        prior_power : float
            Handed to the fit, if it takes one.
        rng : numpy.random.Generator, optional
            Handed to the fit, if it takes one.

        Returns
        -------
        float or ndarray
            Of the shape of ``cutoff``.
        """
        draws = np.sort(self._draws(partition, power=1.0, prior_power=prior_power, rng=rng))
        return (np.searchsorted(draws, np.asarray(cutoff), side="right") / len(draws))[()]

    def quantile(
        self, partition: pd.DataFrame, p: ArrayLike, *, power: float = 1.0, rng: np.random.Generator | None = None
    ) -> Any:
        """Return quantiles of the draws.

        Parameters
        ----------
        partition : DataFrame
            The records.
        p : float or array
            Between 0 and 1.
        power : float
            Of the likelihood: handed to the fit, if it takes one, else the draws are rescaled.
        rng : numpy.random.Generator, optional
            Handed to the fit, if it takes one.

        Returns
        -------
        float or ndarray
            Of the shape of ``p``.
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


# ---------------------------------------------------------------------------------------------------------------------
# All partitions side by side


def ask_all(
    question: Callable[..., Any],
    frames: Sequence[pd.DataFrame],
    points: Array,
    options: Mapping[str, Any],
    *,
    n_jobs: int | None,
    rng: np.random.Generator,
) -> Array:
    """Return the answer of every partition, (M, points), through joblib or Dask; rows of NaN where one failed.

    Each partition has a generator of its own, so that no answer depends on another partition's records. Where a worker
    dies, the partitions without an answer are run again in smaller groups, down to one partition alone: what
    fails then is its own.
    """
    given = {name: value for name, value in options.items() if takes(question, name)}
    seeds = rng.integers(2**63, size=len(frames))
    own = [int(seed) if takes(question, "rng") else None for seed in seeds]
    answers = np.full((len(frames), *points.shape), np.nan)
    groups = [list(range(len(frames)))]
    with _Quiet(), tqdm(total=len(frames), desc="partitions", delay=2, disable=None) as bar:
        while groups:
            group = groups.pop()
            left = dict.fromkeys(group)
            tasks = ((place, question, frames[place], points, given, own[place]) for place in group)
            for place, answer in _finished(tasks, n_jobs):
                answers[place] = answer
                del left[place]
                bar.update()
            groups += _halves(list(left)) if len(group) > 1 else []
    return answers


def _halves(left: list[int]) -> list[list[int]]:
    middle = len(left) // 2
    return [part for part in (left[:middle], left[middle:]) if part]


def _finished(tasks: Iterator[tuple[Any, ...]], n_jobs: int | None) -> Iterator[tuple[int, Array]]:
    """Yield places and answers as they come; end, in silence, where a worker died."""
    client = _dask_client()
    try:
        if client is not None:
            yield from _on_dask(client, tasks)
        else:
            run = joblib.Parallel(n_jobs=_jobs(n_jobs), return_as="generator_unordered", max_nbytes=None)
            yield from run(joblib.delayed(_answer)(*task) for task in tasks)
    except Exception:  # of the machinery: an answer's own errors have been caught
        return


def _jobs(n_jobs: int | None) -> int | None:
    """Return joblib's argument: all cores, unless the caller or a surrounding configuration says otherwise."""
    return -1 if n_jobs is None and get_active_backend()[1] is None else n_jobs


def _dask_client() -> Any:
    return getattr(get_active_backend()[0], "client", None)


def _on_dask(client: Any, tasks: Iterator[tuple[Any, ...]]) -> Iterator[tuple[int, Array]]:
    """Yield the answers of a cluster, a few tasks ahead of its cores; nothing for a task whose workers died.

    joblib's own Dask backend would wait for such a task for ever.
    """
    running = importlib.import_module("distributed").as_completed()

    def send(count: int) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # "large graph": each task brings its records along
            for task in itertools.islice(tasks, count):
                running.add(client.submit(_answer, *task, pure=False))

    send(2 * max(1, sum(client.ncores().values())))
    for future in running:
        if future.status == "finished":
            yield future.result()
        send(1)


def _answer(
    place: int,
    question: Callable[..., Any],
    frame: pd.DataFrame,
    points: Array,
    given: Mapping[str, Any],
    seed: int | None,
) -> tuple[int, Array]:
    try:
        return place, _call(question, frame, points, given, seed)
    except KeyboardInterrupt:
        raise
    except BaseException:  # whatever it is, SystemExit too, it must not tell
        return place, np.full(points.shape, np.nan)


def _call(
    question: Callable[..., Any], frame: pd.DataFrame, points: Array, given: Mapping[str, Any], seed: int | None
) -> Array:
    """Ask one partition, by a copy of the posterior and with points of its own; nothing is shared with the next."""
    extra = {} if seed is None else {"rng": np.random.default_rng(seed)}
    with _Quiet():
        answer = _copy_of(question)(frame, points.copy(), **given, **extra)
    array = np.asarray(np.ma.filled(answer, np.nan) if np.ma.isMaskedArray(answer) else answer, dtype=np.float64)
    if array.shape not in ((), (1,), points.shape):
        raise ValueError(f"the answer must be one number per point, shape {points.shape}, got shape {array.shape}")
    return np.broadcast_to(array, points.shape).copy()


def _copy_of(question: Callable[..., Any]) -> Callable[..., Any]:
    try:
        return copy.deepcopy(question)
    except Exception:  # an object that cannot be copied: by its own nature, not by the data
        return question


class _Quiet:
    """Silence warnings, which can tell of the data, while any thread of the process is inside.

    Filters belong to the process, not to a thread: the first to enter replaces them, the last to leave restores them.
    """

    _lock = threading.Lock()
    _inside = 0
    _filters: Any = None

    def __enter__(self) -> None:
        with _Quiet._lock:
            if _Quiet._inside == 0:
                _Quiet._filters = warnings.catch_warnings()
                _Quiet._filters.__enter__()
                warnings.simplefilter("ignore")
            _Quiet._inside += 1

    def __exit__(self, *_: object) -> None:
        with _Quiet._lock:
            _Quiet._inside -= 1
            if _Quiet._inside == 0:
                _Quiet._filters.__exit__(None, None, None)


def check_portable(question: Callable[..., Any], n_jobs: int | None) -> None:
    """Raise where a posterior is to be sent to other processes and cannot be: it would fail for every partition."""
    shared = getattr(get_active_backend()[0], "supports_sharedmem", False)
    if _dask_client() is None and (shared or joblib.effective_n_jobs(_jobs(n_jobs)) == 1):
        return
    try:
        dumps(question)
    except Exception as error:
        raise TypeError(
            "posterior must be picklable, to be sent to other processes; where it cannot be, give it n_jobs = 1: "
            f"{type(error).__name__}: {error}"
        ) from None


# ---------------------------------------------------------------------------------------------------------------------
# The dry run


def made_up(header: Sequence[Hashable], size: int) -> Iterator[pd.DataFrame]:
    """Yield frames with the columns of the data and numbers that have nothing to do with them, of four kinds."""
    rng = np.random.default_rng(0)
    shape = (len(header), size)
    whole = rng.integers(0, 20, shape), rng.integers(0, 2, shape)
    for numbers in (rng.normal(size=shape), rng.lognormal(2.0, 1.0, shape), *whole):
        yield own_frame([list(zip(header, numbers.astype(np.float64), strict=True))], [size])


def examples(schema: Schema, size: int) -> Iterator[pd.DataFrame]:
    """Yield frames of records drawn from a schema."""
    rng = np.random.default_rng(0)
    return (schema.example(size, rng=rng) for _ in range(4))


def rehearse(
    question: Callable[..., Any],
    frames: Iterator[pd.DataFrame],
    points: Array,
    options: Mapping[str, Any],
    *,
    n_jobs: int | None,
) -> str:
    """Ask a posterior about made-up frames, as partitions will be asked; say what is wrong if it never answers.

    Returns "" at the first answer. Its generators are its own: the caller's does not move.
    """
    given = {name: value for name, value in options.items() if takes(question, name)}
    seed = 0 if takes(question, "rng") else None
    wrong = ""
    for frame in frames:
        found = _rehearsed(question, frame, points, given, seed, n_jobs)
        if not found:
            return ""
        wrong = wrong or found
    return wrong


def _rehearsed(
    question: Callable[..., Any],
    frame: pd.DataFrame,
    points: Array,
    given: Mapping[str, Any],
    seed: int | None,
    n_jobs: int | None,
) -> str:
    client, task = _dask_client(), (question, frame, points, given, seed)
    try:
        if client is not None:
            return str(client.submit(_complaint, *task, pure=False).result())
        return str(joblib.Parallel(n_jobs=_jobs(n_jobs), max_nbytes=None)([joblib.delayed(_complaint)(*task)])[0])
    except Exception as error:
        return f"took its worker down ({type(error).__name__})"


def _complaint(
    question: Callable[..., Any], frame: pd.DataFrame, points: Array, given: Mapping[str, Any], seed: int | None
) -> str:
    try:
        answer = _call(question, frame, points, given, seed)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # of made-up records: it may tell
        return f"raised {type(error).__name__}: {error}"
    return "" if np.isfinite(answer).all() else f"returned {answer.tolist()}, which is not finite"
