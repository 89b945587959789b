"""Many releases in blocks: on one core or all, on a cluster, with or without their draws, and always the same draws.

Every ``infer`` that takes a sequence of releases comes here when it is told ``n_jobs`` or ``keep``. How a batch is
divided depends on its length alone, and every block has a generator of its own, so that draws do not depend on where a
block runs.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import numpy as np
from tqdm import tqdm

from dpbook._validation import analyst_generator, integer, one_of
from dpbook.doubts import say, silently
from dpbook.kept_summary import PosteriorSummary, shared

__all__ = ["by_blocks", "in_blocks"]

T = TypeVar("T")

# What a posterior may keep: its draws, or its summaries alone.
_KEEP = ("draws", "summary")


def by_blocks(
    infer: Callable[..., Any],
    releases: Sequence[Any],
    *,
    rng: np.random.Generator | None,
    n_jobs: Any,
    keep: str = "draws",
    progress: bool = False,
    grain: int = 25,
) -> list[Any]:
    """Infer block by block; return the posteriors, or their summaries, in the order of the releases.

    Doubts are spoken once, at the end. Explained in :doc:`/book/background/bayesian-primer`.

    Parameters
    ----------
    infer : callable
        ``infer(block, rng=…) -> list of Posterior``; it can be pickled.
    releases : sequence of Release
    rng : numpy.random.Generator, optional
        Every block gets a child of it.
    n_jobs : int or executor, optional
        How many processes, -1 for one on every core; or what has ``submit``, such as a Dask client. None is 1.
    keep : {"draws", "summary"}
        Whether to return posteriors or :class:`~dpbook.kept_summary.PosteriorSummary` of them.
    progress : bool, default False
        Whether to show a bar of the blocks done.
    grain : int, default 25
        How many releases, at most, make a block: so many that another would add no speed to its batch.

    Returns
    -------
    list

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook import Posterior
    >>> from dpbook.blocks import by_blocks
    >>> def infer(block, rng):
    ...     return [Posterior({"theta": rng.normal(each, 1, size=(4, 1000))}) for each in block]
    >>> found = by_blocks(infer, [0.0, 5.0], rng=np.random.default_rng(1), n_jobs=1, keep="summary")
    >>> [round(float(each.mean("theta"))) for each in found]
    [0, 5]
    """
    keep = one_of("keep", keep, _KEEP)
    blocks = in_blocks(list(releases), grain)
    tasks = list(zip(blocks, analyst_generator(rng).spawn(len(blocks)), strict=True))
    running = _run(infer, tasks, keep, 1 if n_jobs is None else n_jobs)
    found: list[Any] = []
    for each in tqdm(running, total=len(blocks), desc="blocks", disable=not progress, leave=False):
        found += each
    say([getattr(each, "doubts", ()) for each in found])
    return shared(found) if keep == "summary" else found


def in_blocks(items: Sequence[T], grain: int) -> list[list[T]]:
    """Return a sequence in blocks of at most ``grain``, whose lengths differ by one at most.

    There are 2, 4 or a multiple of 8 of them, so that the usual numbers of cores all end together. Explained in
    :doc:`/book/background/bayesian-primer`.

    Parameters
    ----------
    items : sequence
    grain : int
        The most that a block holds.

    Returns
    -------
    list of list

    Examples
    --------
    >>> from dpbook.blocks import in_blocks
    >>> [len(block) for block in in_blocks(range(605), 250)], in_blocks("ab", 250)
    ([151, 151, 152, 151], [['a'], ['b']])
    """
    wanted = -(-len(items) // grain)
    count = min(len(items), next((few for few in (2, 4) if wanted <= few), -(-wanted // 8) * 8))
    ends = [round(i * len(items) / count) for i in range(count + 1)] if count else [0]
    return [list(items[begin:end]) for begin, end in itertools.pairwise(ends)]


def _run(infer: Callable[..., Any], tasks: Sequence[Any], keep: str, n_jobs: Any) -> Iterator[list[Any]]:
    """Yield what each block finds, in order."""
    if hasattr(n_jobs, "submit"):
        pure = {"pure": False} if hasattr(n_jobs, "scheduler_info") else {}  # Dask's; others would pass it on
        futures = [n_jobs.submit(_block, infer, block, rng, keep, **pure) for block, rng in tasks]
        return (each.result() for each in futures)
    if isinstance(n_jobs, bool) or (n_jobs := integer("n_jobs", n_jobs)) == 0:
        raise ValueError("n_jobs must be a number of processes, -1 for all cores, or an executor; got 0")
    import joblib  # here: most calls do without

    parallel = joblib.Parallel(n_jobs=n_jobs, return_as="generator", max_nbytes=None)
    found: Iterator[list[Any]] = parallel(joblib.delayed(_block)(infer, block, rng, keep) for block, rng in tasks)
    return found


def _block(infer: Callable[..., Any], block: Sequence[Any], rng: np.random.Generator, keep: str) -> list[Any]:
    with silently(), _memory_kept():
        found = infer(block, rng=rng)
        return shared([PosteriorSummary.of(each) for each in found]) if keep == "summary" else found


_TRIM, _MMAP = -1, -3  # of mallopt
_ROOM = 256 * 2**20
_THRESHOLD = 128 * 2**10  # glibc's own, from which on an array is a mapping of its own
_inside = 0
_lock = threading.Lock()


@contextlib.contextmanager
def _memory_kept() -> Iterator[None]:
    """Let the process keep freed memory while a block runs, where ``MALLOC_TRIM_THRESHOLD_`` says that it must not.

    Dask's workers set it. glibc then hands every array above 128 KiB back to the system when it is freed and gets it
    anew, page by page, for the next: a sampler, whose arrays come and go, spends most of its time so. Afterwards all is
    as before, and what was kept is given back.
    """
    global _inside
    told = os.environ.get("MALLOC_TRIM_THRESHOLD_")
    library = _glibc() if told and told.isdecimal() else None
    if library is None or told is None:
        yield
        return
    with _lock:
        _inside += 1
        library.mallopt(_MMAP, _ROOM // 8)
        library.mallopt(_TRIM, _ROOM)
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if not _inside:
                library.mallopt(_MMAP, int(os.environ.get("MALLOC_MMAP_THRESHOLD_") or _THRESHOLD))
                library.mallopt(_TRIM, int(told))
                library.malloc_trim(0)


def _glibc() -> Any:
    """Return the C library if it has glibc's two functions; else None."""
    try:
        library = ctypes.CDLL(None)
        return library if library.mallopt and library.malloc_trim else None
    except (AttributeError, OSError, TypeError):
        return None
