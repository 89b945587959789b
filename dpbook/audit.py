"""Audits: a lower confidence bound on the epsilon of any release function, from its outputs alone.

An audit runs a release many times on two neighbouring data sets, looks for an event that is much likelier
under one than under the other, and says which epsilon that event makes certain. The section on where
privacy really breaks explains it. The promise is statistical: the bound exceeds the true epsilon with
probability at most ``1 - confidence``. An audit can refute a claimed epsilon, never prove one.
"""

from __future__ import annotations

import inspect
import math
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import betainccinv, betaincinv

from dpbook._arrays import Array
from dpbook._validation import analyst_generator, at_least, delta_value, fraction, integer
from dpbook.release import Release

__all__ = ["AuditResult", "audit", "epsilon_lower_bound"]

Score = Callable[[Array], Array]  # one number for each row of outputs

BINS = (12, 48)  # resolutions of the density ratios; the held-out runs choose between them
ATOM_COUNT = 5  # a value seen this often while fitting counts as a point mass


@dataclass(frozen=True)
class AuditResult:
    """What an audit found.

    Explained in :doc:`/book/background/where-privacy-breaks`.

    Attributes
    ----------
    epsilon : float
        The lower confidence bound, at least 0.
    event : str
        The event that was tested, in words.
    likelier_under : str
        ``"data"`` or ``"neighbour"``: the data set that was expected to make the event likelier.
    hits : tuple of int
        How many of the tested runs fell in the event, for ``data`` and for ``neighbour``.
    tested : int
        Runs per data set on which the event was tested (half of ``trials``).
    trials : int
        Runs per data set altogether.
    delta : float
        The delta that was allowed.
    confidence : float
        The probability with which the bound holds, at least.
    ceiling : float
        The largest bound that this many runs can give, reached when an event always happens under one data
        set and never under the other. A bound near it says "epsilon is at least this", not "about this".

    Examples
    --------
    >>> result = audit(lambda data, rng: data, 0.0, 1.0, trials=2000)  # no noise at all
    >>> result.hits in [(1000, 0), (0, 1000)], result.epsilon == result.ceiling
    (True, True)
    >>> print(result.verdict(1.0))
    Refuted: epsilon is at least 4.88 with confidence 0.999, above the claimed 1.
    >>> print(result.verdict(6.0))
    Not refuted (which proves nothing): 2000 trials have no power against a claimed 6, only up to 4.88.
    """

    epsilon: float
    event: str
    likelier_under: str
    hits: tuple[int, int]
    tested: int
    trials: int
    delta: float
    confidence: float
    ceiling: float

    def verdict(self, claimed: float) -> str:
        """Return a sentence: whether the audit refutes the ``claimed`` epsilon. It never says that one is proved."""
        claimed = at_least("claimed", claimed, 0)
        if self.epsilon > claimed:
            return (
                f"Refuted: epsilon is at least {self.epsilon:.3g} with confidence {self.confidence:g}, "
                f"above the claimed {claimed:g}."
            )
        if self.ceiling <= claimed:
            return (
                f"Not refuted (which proves nothing): {self.trials} trials have no power against a claimed "
                f"{claimed:g}, only up to {self.ceiling:.3g}."
            )
        return (
            f"Not refuted (which proves nothing): the bound {self.epsilon:.3g} does not exceed the claimed {claimed:g}."
        )


def epsilon_lower_bound(
    release: Callable[..., Any],
    data: Any,
    neighbour: Any,
    *,
    trials: int,
    delta: float = 0.0,
    confidence: float = 0.999,
    batched: bool = False,
    score: Callable[[Any], Any] | None = None,
    rng: np.random.Generator | None = None,
) -> float:
    """Bound from below the epsilon of a release, as seen on one pair of neighbouring data sets.

    If ``release`` is (epsilon, delta)-differentially private for a neighbour relation that holds between ``data`` and
    ``neighbour`` (replace-one neighbours, n public, throughout the book), then the number returned is at most epsilon
    with probability at least ``confidence``. An audit can refute, never prove: a small bound may only mean too few
    runs, an innocent pair, or an event that nobody thought of.

    Half of the runs choose an event S: a threshold on the output or on an estimated likelihood ratio. The other half
    count how often S happens under each data set. With P the data set that makes S likelier, Q the other, and
    Clopper-Pearson limits, each at error ``(1 - confidence) / 2``, the bound is
    ``log((P(S)_low - delta) / Q(S)_high)``, or the same for the complement of S with P and Q exchanged. Explained in
    :doc:`/book/background/where-privacy-breaks`.

    Parameters
    ----------
    release : callable
        ``release(data, rng)`` returns one output: a number, an array, a label, None, a
        :class:`~dpbook.release.Release` (its values are looked at), or lists and mappings of these. Runs must be
        independent of one another. NaN, None and text are outcomes like any other; an exception is passed on, so to
        audit errors as outputs catch them in ``release`` and return a label. The generator is meant for seeded noise.
        To audit the noise of a real release, ignore it: ``lambda data, rng: mechanism(data, rng=None)``.
    data, neighbour : object
        Two neighbouring data sets, handed to ``release`` as they are. Take the worst pair you can think of.
    trials : int
        Runs on *each* data set, at least 4. Half of them select, half test.
    delta : float
        The delta of the claim, in [0, 1).
    confidence : float
        Probability, in (0, 1), with which the bound holds.
    batched : bool
        Whether ``release`` returns many runs at once, as an array with a run in each row (first axis). It is called as
        ``release(data, rng, trials)`` if it takes a third argument (one without a default, or one called ``trials`` or
        ``size``), else as ``release(data, rng)``, again and again until there are ``trials`` runs; rows beyond that are
        ignored.
    score : callable, optional
        Reduces the output of one run to a number; the audit then looks at that alone. The best score is the
        log-likelihood ratio of the two data sets, where it is known. By default the audit estimates that ratio, which
        works best in few dimensions. In batched mode a score that cannot take a single row is given the whole batch and
        must return a number for each row.
    rng : numpy.random.Generator, optional
        Passed on to every run; by default a fresh one.

    Returns
    -------
    float
        The lower confidence bound, at least 0 and finite: with ``trials`` runs it cannot exceed the
        ``ceiling`` of :class:`AuditResult`, about ``log(trials) - 2.7`` at confidence 0.999.

    Notes
    -----
    What 100,000 runs see of a Laplace mechanism at its worst pair, on average: from 0.92 to 0.96 of epsilon between 0.5
    and 6, 0.8 of it at 0.2 and at 9, 0.6 at 0.1. Sampling error alone costs at least ``9 / sqrt(trials)`` in epsilon,
    so a small epsilon takes many runs. Numbers are rounded to some 10^8 levels before anything is counted, so the last
    bits of floating-point noise, which leak too, stay out of sight; to audit them, pass a ``score`` that reads them.

    Examples
    --------
    A Laplace mechanism with the noise that epsilon = 1 needs, and one with half of it:

    >>> import numpy as np
    >>> def noisy(data, rng, trials):
    ...     return data + rng.laplace(scale=1.0, size=trials)
    >>> rng = np.random.default_rng(1)
    >>> bound = epsilon_lower_bound(noisy, 0.0, 1.0, trials=100_000, batched=True, rng=rng)
    >>> bool(0.9 < bound <= 1.0)
    True
    >>> def too_quiet(data, rng):
    ...     return data + rng.laplace(scale=0.5)
    >>> bool(epsilon_lower_bound(too_quiet, 0.0, 1.0, trials=5000, rng=rng) > 1.5)
    True
    """
    result = audit(
        release,
        data,
        neighbour,
        trials=trials,
        delta=delta,
        confidence=confidence,
        batched=batched,
        score=score,
        rng=rng,
    )
    return result.epsilon


def audit(
    release: Callable[..., Any],
    data: Any,
    neighbour: Any,
    *,
    trials: int,
    delta: float = 0.0,
    confidence: float = 0.999,
    batched: bool = False,
    score: Callable[[Any], Any] | None = None,
    rng: np.random.Generator | None = None,
) -> AuditResult:
    """Audit a release as :func:`epsilon_lower_bound` does, and say also which event was tested and how it went.

    Replace-one neighbours, n public, unless the caller's pair says otherwise. An audit can refute, never prove.
    Explained in :doc:`/book/background/where-privacy-breaks`.

    Parameters
    ----------
    release, data, neighbour, trials, delta, confidence, batched, score, rng
        As for :func:`epsilon_lower_bound`.

    Returns
    -------
    AuditResult
        The bound, the event, its counts, and the largest bound that so many runs can give.

    Examples
    --------
    Randomised response that tells the truth three times in four has epsilon = log 3 = 1.099:

    >>> import numpy as np
    >>> def respond(bit, rng, trials):
    ...     return np.where(rng.random(trials) < 0.75, bit, 1 - bit)
    >>> result = audit(respond, 0, 1, trials=100_000, batched=True, rng=np.random.default_rng(1))
    >>> bool(1.0 < result.epsilon <= np.log(3)), result.tested
    (True, 50000)
    """
    trials = integer("trials", trials, least=4)
    delta = delta_value("delta", delta)
    error = (1 - fraction("confidence", confidence)) / 2  # for each of the two Clopper-Pearson limits
    generator = analyst_generator(rng)
    runs = [_runs(release, each, generator, trials, batched, score) for each in (data, neighbour)]
    tested = trials - trials // 2
    event, encode = _select([each[: trials // 2] for each in runs], delta, error)
    hits = [int(event.contains(encode(each[trials // 2 :])).sum()) for each in runs]
    ordered = hits if event.likelier_under == "data" else hits[::-1]
    return AuditResult(
        epsilon=max(0.0, float(_bound(ordered, tested, delta, error))),
        event=f"{event.name} >= {event.threshold:.6g}",
        likelier_under=event.likelier_under,
        hits=(hits[0], hits[1]),
        tested=tested,
        trials=trials,
        delta=delta,
        confidence=float(confidence),
        ceiling=max(0.0, float(_bound((tested, 0), tested, delta, error))),
    )


# --- the bound -------------------------------------------------------------------------------------------


def _bound(hits: Sequence[Any], runs: int, delta: float, error: float) -> Array:
    """Return the lower bound on epsilon from the counts of one event, likelier under the first data set.

    With p >= low and q <= high, p <= e^eps q + delta gives eps >= log((low - delta) / high), and the
    complement, 1 - q <= e^eps (1 - p) + delta, gives eps >= log((1 - high - delta) / (1 - low)). Both follow
    from the same two confidence limits, so the larger of them costs no further error.
    """
    k, j = (np.asarray(each, dtype=np.float64) for each in hits)
    low = np.where(k > 0, betaincinv(np.maximum(k, 1e-9), runs - k + 1, error), 0.0)
    high = np.where(j < runs, betainccinv(j + 1, np.maximum(runs - j, 1e-9), error), 1.0)
    with np.errstate(divide="ignore"):
        event = np.log(np.maximum(low - delta, 0)) - np.log(high)
        complement = np.log(np.maximum(1 - high - delta, 0)) - np.log(1 - low)
    return np.asarray(np.maximum(event, complement))


# --- running the release ---------------------------------------------------------------------------------


def _runs(
    release: Callable[..., Any],
    data: Any,
    rng: np.random.Generator,
    trials: int,
    batched: bool,
    score: Callable[[Any], Any] | None,
) -> Sequence[Any]:
    """Return the outputs (or their scores) of ``trials`` independent runs."""
    if not batched:
        outputs = (release(data, rng) for _ in range(trials))
        return [output if score is None else score(output) for output in outputs]
    extra, keywords = _batch_arguments(release, trials)
    batches: list[Any] = []
    missing = trials
    while missing > 0:
        batch = release(data, rng, *extra, **keywords)
        batch = np.asarray(batch) if hasattr(batch, "__array__") else batch
        if not (isinstance(batch, (list, tuple)) or np.ndim(batch)) or len(batch) == 0:
            raise ValueError(f"release must return an array with a run in each row where batched, got {batch!r}")
        batches.append(batch[:missing])
        missing -= len(batch)
    rows = batches[0] if len(batches) == 1 else [row for batch in batches for row in batch]
    return rows if score is None else _scores_of_rows(score, rows)


def _batch_arguments(release: Callable[..., Any], trials: int) -> tuple[tuple[int, ...], dict[str, int]]:
    """Return what tells a batched release the number of runs: a third argument, a keyword, or nothing."""
    try:
        parameters = list(inspect.signature(release).parameters.values())
    except (TypeError, ValueError):  # some compiled callables do not tell
        return (), {}
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    third = [each for each in parameters[2:3] if each.kind in positional and each.default is inspect.Parameter.empty]
    if third:
        return (trials,), {}
    named = [each.name for each in parameters[2:] if each.name in ("trials", "size")]
    return (), dict.fromkeys(named[:1], trials)


def _scores_of_rows(score: Callable[[Any], Any], rows: Sequence[Any]) -> Sequence[Any]:
    """Return the score of each row: of one row after another or, where a row alone will not do, of the batch."""
    try:
        return [score(row) for row in rows]
    except (IndexError, TypeError, ValueError):
        scores = np.asarray(score(np.asarray(rows)))
    if scores.shape[:1] != (len(rows),):
        raise ValueError(f"score must return a number for each of {len(rows)} runs, got shape {scores.shape}")
    return list(scores)


# --- outputs as rows of numbers --------------------------------------------------------------------------


@dataclass(frozen=True)
class _Encoder:
    """Turns outputs into rows of numbers, in a layout that the selection runs alone have fixed.

    A row holds the numbers in an output (NaN for what is none) and, unless all selection outputs were numbers
    in one shape, a code for each: a checksum for a label, 0 for a number, -1 where the output is shorter.
    Numbers are rounded to a fine grid, lest the rounding errors of floating-point noise pass for point masses.
    (They are a leak in their own right, but not the one an audit of the noise's scale is after.)
    """

    width: int
    plain: bool
    units: Array

    @classmethod
    def fit(cls, selection: list[Sequence[Any]]) -> _Encoder:
        arrays = [_numeric(outputs) for outputs in selection]
        widths = {0 if array is None else array.shape[1] for array in arrays}
        plain = len(widths) == 1 and 0 not in widths
        if not plain:
            widths = {1} | {sum(1 for _ in _cells(output)) for outputs in selection for output in outputs}
        draft = cls(max(widths), plain, np.ones(max(widths)))
        values = np.vstack([draft._numbers_and_codes(outputs)[0] for outputs in selection])
        return cls(draft.width, plain, np.array([_grid_unit(column) for column in values.T]))

    def __call__(self, outputs: Sequence[Any]) -> Array:
        values, codes = self._numbers_and_codes(outputs)
        rounded = np.rint(values / self.units) * self.units
        return rounded if self.plain else np.hstack([rounded, codes])

    def _numbers_and_codes(self, outputs: Sequence[Any]) -> tuple[Array, Array]:
        array = _numeric(outputs) if self.plain else None
        if array is not None and array.shape[1] == self.width:
            return array, np.zeros(0)
        values, codes = np.full((len(outputs), self.width), np.nan), np.full((len(outputs), self.width), -1.0)
        for row, output in enumerate(outputs):
            for column, cell in zip(range(self.width), _cells(output), strict=False):
                values[row, column], codes[row, column] = _number_and_code(cell)
        return values, codes


def _numeric(outputs: Sequence[Any]) -> Array | None:
    """Return the outputs as a (run, cell) array of floats, or None if they are not numbers in one shape."""
    try:
        array = np.asarray(outputs)
    except ValueError:  # outputs of different shapes
        return None
    return array.reshape(len(array), -1).astype(np.float64) if array.dtype.kind in "biuf" and array.size else None


def _cells(output: Any) -> Iterator[Any]:
    """Yield the numbers and labels in an output, whatever it is nested in."""
    if isinstance(output, Release):
        output = output.values
    if isinstance(output, Mapping):
        output = list(output.values())
    elif hasattr(output, "__array__"):
        output = np.asarray(output).tolist()
    if isinstance(output, (list, tuple)):
        for each in output:
            yield from _cells(each)
    else:
        yield output


def _number_and_code(cell: Any) -> tuple[float, float]:
    """Return a cell as a number and code 0 or, for what is not a number, as NaN and a checksum of its text.

    The checksum does not depend on which labels were seen; two labels that share one are merged.
    """
    try:
        if not isinstance(cell, (str, bytes)):
            return float(cell), 0.0
    except (TypeError, ValueError, OverflowError):
        pass
    return math.nan, 1.0 + zlib.crc32(str(cell).encode())


def _grid_unit(column: Array) -> float:
    """Return a power of two well above rounding errors and well below the spread of the column."""
    finite = column[np.isfinite(column)]
    if len(finite) == 0 or not finite.any():
        return 1.0
    low, high = np.quantile(finite / 2, [0.01, 0.99])
    magnitude = np.quantile(np.abs(finite), 0.99) or np.abs(finite).max()
    return float(2.0 ** np.ceil(np.log2(max((high - low) * 2.0**-25, magnitude * 2.0**-48, 2.0**-1000))))


# --- scores: which outputs speak for data, which for neighbour --------------------------------------------


@dataclass(frozen=True)
class _DensityRatio:
    """The log ratio of two densities on a line, from counts in atoms (repeated values), quantile bins and NaN."""

    atoms: Array
    edges: Array
    log_ratio: Array  # of each atom, each bin, and NaN

    @classmethod
    def fit(cls, data: Array, neighbour: Array, bins: int) -> _DensityRatio:
        pooled = np.concatenate([data, neighbour])
        values, counts = np.unique(pooled[~np.isnan(pooled)], return_counts=True)
        often = counts >= ATOM_COUNT
        rest = np.repeat(values[~often], counts[~often])
        edges = np.unique(rest[np.arange(1, bins) * len(rest) // bins]) if len(rest) >= 10 * bins else np.empty(0)
        blank = cls(values[often], edges, np.zeros(often.sum() + len(edges) + 2))
        # Half a count more in each cell keeps the ratio finite.
        log_counts = [
            np.log(np.bincount(blank.cell(x), minlength=len(blank.log_ratio)) + 0.5) for x in (data, neighbour)
        ]
        return cls(blank.atoms, edges, log_counts[0] - log_counts[1])

    def cell(self, x: Array) -> NDArray[np.intp]:
        """Return which atom, bin or NaN each value is."""
        cell = len(self.atoms) + np.searchsorted(self.edges, x, side="right")
        if len(self.atoms):
            nearest = np.minimum(np.searchsorted(self.atoms, x), len(self.atoms) - 1)
            cell = np.where(self.atoms[nearest] == x, nearest, cell)
        return np.where(np.isnan(x), len(self.log_ratio) - 1, cell)

    def __call__(self, x: Array) -> Array:
        return self.log_ratio[self.cell(x)]


def _candidate_scores(data: Array, neighbour: Array) -> dict[str, Score]:
    """Return scores, fitted to the runs given, whose thresholds are the events to choose from."""
    scores: dict[str, Score] = {}
    width = data.shape[1]
    for bins in BINS:
        ratios = [_DensityRatio.fit(data[:, c], neighbour[:, c], bins) for c in range(width)]
        # The coordinate with the largest estimated (symmetric) Kullback-Leibler divergence.
        gains = [ratio(data[:, c]).mean() - ratio(neighbour[:, c]).mean() for c, ratio in enumerate(ratios)]
        best = int(np.argmax(gains))
        where = "output" if width == 1 else f"coordinate {best}"
        scores[f"log density ratio of {where} ({bins} bins)"] = _compose(ratios[best], _coordinate(best))
        if width > 1:
            scores[f"sum of log density ratios of coordinates ({bins} bins)"] = _sum_of_ratios(ratios)
    if width > 1:
        scores |= _joint_scores(data, neighbour)
    return scores | {where: _coordinate(best)}  # last, so that an atom's own event wins a tie


def _coordinate(column: int) -> Score:
    return lambda rows: rows[:, column]


def _compose(ratio: _DensityRatio, project: Score) -> Score:
    return lambda rows: ratio(project(rows))


def _sum_of_ratios(ratios: list[_DensityRatio]) -> Score:
    return lambda rows: sum((ratio(rows[:, c]) for c, ratio in enumerate(ratios)), np.zeros(len(rows)))


def _joint_scores(data: Array, neighbour: Array) -> dict[str, Score]:
    """Return scores of all coordinates together: the whole output as a point mass, and a ratio of two normals."""
    whole = _DensityRatio.fit(_fingerprint(data), _fingerprint(neighbour), BINS[0])
    scores: dict[str, Score] = {"log probability ratio of the whole output": _compose(whole, _fingerprint)}
    if len(data) >= 4 * data.shape[1]:
        scores["quadratic discriminant"] = _quadratic_discriminant(_finite(data), _finite(neighbour))
    return scores


def _quadratic_discriminant(data: Array, neighbour: Array) -> Score:
    """Return the log ratio of two normal densities (but for a constant), which sees shifts along any direction.

    A small ridge keeps the weight of a direction without noise finite.
    """
    pooled = np.vstack([data, neighbour])
    spread = np.where(np.ptp(pooled, axis=0) > 0, pooled.std(axis=0), 1.0)
    ridge = 1e-12 * np.eye(len(spread))
    means = [rows.mean(axis=0) / spread for rows in (data, neighbour)]
    precisions = [
        np.linalg.pinv(np.cov(rows / spread, rowvar=False) + ridge, hermitian=True) for rows in (data, neighbour)
    ]

    def score(rows: Array) -> Array:
        near, far = (_finite(rows) / spread - mean for mean in means)
        return np.asarray(((far @ precisions[1]) * far - (near @ precisions[0]) * near).sum(axis=1))

    return score


def _fingerprint(rows: Array) -> Array:
    """Return a number for each row that is the same for equal rows and, in practice, for no others."""
    weights = np.sqrt(np.arange(2, rows.shape[1] + 2)) % 1 + 0.5
    marked = np.nan_to_num(rows, nan=math.pi * 1e5, posinf=math.e * 1e5, neginf=-math.e * 1e5)
    return np.asarray((marked * weights).sum(axis=1))


def _finite(rows: Array) -> Array:
    return np.clip(np.nan_to_num(rows, nan=0.0), -1e100, 1e100)


# --- the event -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Event:
    """The event that a score reaches a threshold, and the data set under which it is expected to be likelier."""

    name: str
    score: Score
    threshold: float
    likelier_under: str

    def contains(self, rows: Array) -> NDArray[np.bool_]:
        return self.score(rows) >= self.threshold  # never true of NaN


def _select(selection: list[Sequence[Any]], delta: float, error: float) -> tuple[_Event, _Encoder]:
    """Return the event to test and the encoding of outputs that it speaks of, from the selection runs alone."""
    encode = _Encoder.fit(selection)
    data, neighbour = (encode(outputs) for outputs in selection)
    scores = _candidate_scores(data[::2], neighbour[::2])
    return _best_event(scores, (data[1::2], neighbour[1::2]), delta, error), encode


def _best_event(scores: dict[str, Score], held_out: tuple[Array, Array], delta: float, error: float) -> _Event:
    """Return the event with the largest bound on selection runs to which the scores were not fitted.

    To maximise the bound, not the raw ratio of frequencies, keeps away from rare events: the largest of many
    uncertain ratios is mostly noise.
    """
    best, event = -math.inf, None
    runs = len(held_out[0])
    for name, score in scores.items():
        values = [np.sort(np.nan_to_num(score(rows), nan=-np.inf, posinf=np.inf, neginf=-np.inf)) for rows in held_out]
        thresholds = _thresholds(np.concatenate(values))
        hits = [runs - np.searchsorted(each, thresholds) for each in values]
        for likelier_under, pair in (("data", hits), ("neighbour", hits[::-1])):
            bounds = _bound(pair, runs, delta, error)
            i = int(np.argmax(bounds))
            if event is None or bounds[i] > max(best, 1.03 * best):  # a lead of 3 %, lest extremes of the sample win
                best, event = float(bounds[i]), _Event(name, score, float(thresholds[i]), likelier_under)
    assert event is not None  # there is always a score
    return event


def _thresholds(values: Array) -> Array:
    """Return the distinct values or, of many, a few hundred of them, denser towards both ends."""
    distinct = np.unique(values)
    last = len(distinct) - 1
    tail = np.geomspace(1, last + 1, 60) - 1
    index = np.concatenate([np.linspace(0, last, 300), tail, last - tail])
    return np.asarray(distinct[np.unique(np.rint(index).astype(int))])
