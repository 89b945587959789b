"""Records split and all partitions asked, side by side: what every release and every look at partitions begins with.

A built-in regression is asked in one batch of moments, any other posterior frame by frame, through joblib or Dask. A
partition that fails answers NaN, and nobody is told, because an error would tell of the data. A dry run on made-up
records, before anything is spent, finds a posterior that would fail on all of them.
"""

from __future__ import annotations

import copy
import importlib
import itertools
import threading
import warnings
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import joblib
import numpy as np
from joblib.externals.loky.backend.reduction import dumps
from joblib.parallel import get_active_backend
from numpy.typing import ArrayLike
from tqdm import tqdm

from dpbook._arrays import Array
from dpbook._columns import own_frame
from dpbook._late import pd
from dpbook._validation import finite_array, integer
from dpbook.aggregate.laws import checked_partitions
from dpbook.aggregate.regression import Regression
from dpbook.aggregate.samplers import checked_schema, takes
from dpbook.aggregate.splitting import Moments, count_records, pair_up, records_of
from dpbook.schema import Schema

__all__: list[str] = []


def points_of(name: str, value: ArrayLike) -> Array:
    """Return a number as a 0-d array, or a list of them as a 1-d array."""
    points = finite_array(name, value)
    if points.ndim > 1 or points.size == 0:
        raise ValueError(f"{name} must be a number or a list of numbers, got shape {points.shape}")
    return points


def schema_of(schema: Any, posterior: Any) -> Schema | None:
    """Return the schema of a release: its own, or the one that its posterior brings."""
    given, brought = checked_schema(schema), getattr(posterior, "schema", None)
    if not isinstance(brought, Schema):
        return given
    if given is not None and given != brought:
        raise ValueError("schema must be the one of the posterior, which brings another")
    return brought


@dataclass(frozen=True)
class Split:
    """The records, read and split: moments for a built-in regression, data frames for anything else."""

    posterior: Any
    question: str  # "probability" or "quantile"
    partitions: int
    n: int
    parts: Moments | list[pd.DataFrame]
    halves: Moments | list[pd.DataFrame] | None  # of partition j at j and M + j
    rng: np.random.Generator  # for the partitions' own generators; the noise has another
    schema: Schema | None = None
    header: tuple[Hashable, ...] = ()

    @classmethod
    def read(
        cls,
        data: Any,
        posterior: Any,
        question: str,
        partitions: Any,
        *,
        schema: Schema | None,
        n: int | None,
        rng: np.random.Generator | None,
        halved: bool | None = False,
    ) -> Split:
        """Check what can be checked without the data, then read and split them.

        With ``halved`` each partition is cut in half as well; None: where a half has enough records for the posterior.
        """
        least = _checked_posterior(posterior, question)
        schema = schema_of(schema, posterior)
        public = n if n is None else integer("n", n, least=1)
        known = count_records(data)
        count = checked_partitions(partitions, public if known is None else known, least)
        if known == 0:
            raise ValueError("data must hold at least one record, got none")
        if halved is None:
            size = public if known is None else known
            halved = size is None or size // (2 * count) >= least
        # Labels from a generator of their own: the noise then does not depend on how many labels were drawn.
        labels = np.random.default_rng(None if rng is None else rng.integers(2**63, size=2))
        if isinstance(posterior, Regression):
            groups = 2 * count if halved else count
            count_of = known if public is None else public
            moments = posterior._moments(data if schema is None else schema.apply(data), groups, count_of, labels)
            size = int(moments.n.sum())
            checked_partitions(count, size, least)
            parts, halves = (pair_up(moments), moments) if halved else (moments, None)
            return cls(posterior, question, count, size, parts, halves, labels)
        _check_portable(getattr(posterior, question), getattr(posterior, "n_jobs", None))
        records = records_of(data, schema)
        if halved:
            frames, cut = records.halved(count, public, labels)
        else:
            frames, cut = records.split(count, public, labels), None
        checked_partitions(count, records.n, least)
        return cls(posterior, question, count, records.n, frames, cut, labels, schema, records.header)

    @property
    def public(self) -> dict[str, Any]:
        """What a release says of its posterior: how many other parameters a partition estimates, and a name."""
        name = getattr(self.posterior, "coefficient", getattr(self.posterior, "parameter", None))
        named = {"parameter": name} if isinstance(name, str) else {}
        if isinstance(self.posterior, Regression):
            return {"nuisance": len(self.posterior.names) - 1, **named}
        return {"nuisance": integer("nuisance", getattr(self.posterior, "nuisance", 1), least=0), **named}

    def _options(self, groups: int) -> dict[str, float]:
        """Return the powers of likelihood and prior with which one of so many groups of records is asked."""
        if self.question == "probability":
            return {"power": 1.0, "prior_power": 1 / groups}
        return {"power": float(groups), "prior_power": 1.0}

    def answers(self, points: Array) -> Array:
        """Return (M, K) numbers; where a partition failed, 1/2 for its probabilities and NaN for its quantiles."""
        found = self.found(points)
        return np.where(np.isnan(found), 0.5, found) if self.question == "probability" else found

    def found(self, points: Array) -> Array:
        """Return (M, K) numbers, and rows of NaN where a partition failed."""
        return self._asked(self.parts, self.partitions, points)

    def found_by_halves(self, points: Array) -> Array:
        """Return (2, M, K) numbers, those of the halves of each partition; NaN where a half failed."""
        assert self.halves is not None
        return self._asked(self.halves, 2 * self.partitions, points).reshape(2, self.partitions, -1)

    def _asked(self, parts: Moments | list[pd.DataFrame], groups: int, points: Array) -> Array:
        ask = getattr(self.posterior, self.question)
        if isinstance(parts, Moments):
            found = np.asarray(ask(parts, points, **self._options(groups)))
        else:
            n_jobs = getattr(self.posterior, "n_jobs", None)
            found = ask_all(ask, parts, points, self._options(groups), n_jobs=n_jobs, rng=self.rng)
        failed = np.asarray(~np.isfinite(found).all(axis=1))[:, None]
        return np.where(failed, np.nan, np.clip(found, 0.0, 1.0) if self.question == "probability" else found)

    def rehearse(self, points: Array) -> None:
        """Raise, before anything is charged, where a posterior that is not built in fails on made-up records."""
        if isinstance(self.posterior, Regression) or (self.schema is None and not self.header):
            return
        size = max(1, self.n // self.partitions)
        frames = _made_up(self.header, size) if self.schema is None else _examples(self.schema, size)
        ask, n_jobs = getattr(self.posterior, self.question), getattr(self.posterior, "n_jobs", None)
        wrong = _complaints(ask, frames, points, self._options(self.partitions), n_jobs=n_jobs)
        if wrong:
            kind = "numbers under the names of the columns" if self.schema is None else "records drawn from the schema"
            hint = "Give schema= so that made-up records look like yours" if self.schema is None else "Mend it"
            raise ValueError(
                f"posterior must answer, and failed in a dry run on {kind}, {list(self.header)}: its method "
                f"{self.question!r} {wrong}. Nothing was spent. {hint}, or give dry_run=False to go on regardless"
            )


def _checked_posterior(posterior: Any, question: str) -> int:
    """Return the fewest records that a posterior needs; raise unless it can be asked the question."""
    if isinstance(posterior, type) or not callable(getattr(posterior, question, None)):
        raise TypeError(f"posterior must be an object with a method {question!r}, got {posterior!r}")
    if question == "quantile" and not takes(posterior.quantile, "power"):
        raise TypeError("posterior must have a method quantile(partition, p, power): it does not take power")
    return integer("least_records", getattr(posterior, "least_records", 1), least=1)


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


def _check_portable(question: Callable[..., Any], n_jobs: int | None) -> None:
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


def _made_up(header: Sequence[Hashable], size: int) -> Iterator[pd.DataFrame]:
    """Yield frames with the columns of the data and numbers that have nothing to do with them, of four kinds."""
    rng = np.random.default_rng(0)
    shape = (len(header), size)
    whole = rng.integers(0, 20, shape), rng.integers(0, 2, shape)
    for numbers in (rng.normal(size=shape), rng.lognormal(2.0, 1.0, shape), *whole):
        yield own_frame([list(zip(header, numbers.astype(np.float64), strict=True))], [size])


def _examples(schema: Schema, size: int) -> Iterator[pd.DataFrame]:
    """Yield frames of records drawn from a schema."""
    rng = np.random.default_rng(0)
    return (schema.example(size, rng=rng) for _ in range(4))


def _complaints(
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
