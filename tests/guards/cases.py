"""A strategy for every guard: generated data sets, a neighbour of each, and the call that is to be attacked.

A case holds factories, not data, because a stream is read once. Arguments of a case can be overridden, so that the same
case also asks what wrong arguments cost.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow
from hypothesis import strategies as st

from dpbook import aggregate, graphical, mechanisms, models
from dpbook.expfam import (
    Beta,
    Binomial,
    CustomFamily,
    Exponential,
    Family,
    Gamma,
    Multinomial,
    NegativeBinomial,
    Normal,
    Poisson,
)
from dpbook.records import exact_sum, grid_unit
from dpbook.regression import PrivateBayesianRegression
from dpbook.schema import Category, Flag, Integer, Number, Schema
from guards import strategies as gen
from guards.attacks import Case


def call(**settings: Any) -> Callable[..., Any]:
    """Return a call of a function on data with settings, of which any can be overridden."""
    return lambda function, data, **given: function(data, **(settings | given))


# ---------------------------------------------------------------------------------------------------------------------
# Chapter 1: mechanisms, on statistics that somebody else computed, and the samplers under them


@st.composite
def moved(draw: Any, *, norm: int, whole: bool = False) -> tuple[Any, Any, float]:
    """Draw statistics, their neighbours, and the sensitivity: the exact distance between the two, or a little more."""
    size = draw(st.integers(0, 4))
    shape: tuple[int, ...] = () if size == 0 else (size,)
    step = 1 if whole else 2.0 ** draw(st.integers(-30, 30))
    value = np.array(draw(st.lists(st.integers(-(2**20), 2**20), min_size=size or 1, max_size=size or 1)))
    change = np.array(draw(st.lists(st.integers(-9, 9), min_size=len(value), max_size=len(value))))
    distance = float(np.abs(change).sum()) if norm == 1 else float(np.sqrt(float(change @ change)))
    sensitivity = max(distance, 1.0) * draw(st.sampled_from([1.0, 1.0, 1.5]))
    if whole:
        sensitivity = int(np.ceil(sensitivity))
    return (value * step).reshape(shape)[()], ((value + change) * step).reshape(shape)[()], sensitivity * step


def _given(value: Any) -> gen.Factory:
    return lambda: value


@st.composite
def statistic_cases(draw: Any, *, norm: int, whole: bool = False) -> Case:
    """Draw a call of a mechanism on a statistic."""
    value, other, sensitivity = draw(moved(norm=norm, whole=whole))
    epsilon, delta = draw(gen.epsilons), draw(gen.deltas) if norm == 2 else 0.0
    settings: dict[str, Any] = {"sensitivity": sensitivity, "epsilon": epsilon} | ({"delta": delta} if delta else {})
    same = draw(st.sampled_from([lambda: np.asarray(value).tolist(), _given(value)]))
    return Case(call(**settings), _given(value), _given(other), epsilon, delta, same, says=(value, other, settings))


@st.composite
def utility_cases(draw: Any) -> Case:
    """Draw utilities that all move by at most the sensitivity, in any directions."""
    size = draw(st.integers(1, 6))
    utilities = np.array(draw(st.lists(st.integers(-50, 50), min_size=size, max_size=size)), dtype=float)
    change = np.array(draw(st.lists(st.sampled_from([-1, 0, 1]), min_size=size, max_size=size)), dtype=float)
    sensitivity, epsilon = 2.0 ** draw(st.integers(-10, 10)), draw(gen.epsilons)

    def choose(function: Any, data: Any, **given: Any) -> Any:
        return function("abcdef"[:size], data, **({"sensitivity": sensitivity, "epsilon": epsilon} | given))

    before, after = utilities * sensitivity, (utilities + change) * sensitivity
    return Case(choose, _given(before), _given(after), epsilon, same=lambda: before.tolist(), says=(before, after))


@st.composite
def search_cases(draw: Any) -> Case:
    """Draw queries that move by at most the sensitivity; all in one direction where they are called monotone."""
    size, monotone = draw(st.integers(1, 5)), draw(st.booleans())
    queries = np.array(draw(st.lists(st.integers(-6, 6), min_size=size, max_size=size)), dtype=float)
    moves = st.sampled_from([0, 1] if monotone else [-1, 0, 1])
    change = np.array(draw(st.lists(moves, min_size=size, max_size=size)), dtype=float)
    change *= draw(st.sampled_from([-1, 1]))
    sensitivity, epsilon = 2.0 ** draw(st.integers(-10, 10)) * draw(st.sampled_from([1.0, 1.25])), draw(gen.epsilons)
    threshold = float(draw(st.integers(-3, 3)))

    def search(function: Any, data: Any, **given: Any) -> Any:
        settings = {"sensitivity": sensitivity, "epsilon": epsilon, "monotone": monotone}
        return function(data, threshold * sensitivity, **(settings | given))

    before, after = queries * sensitivity, (queries + change) * sensitivity
    return Case(
        search,
        lambda: before,
        lambda: after,
        epsilon,
        same=lambda: iter(before.tolist()),
        says=(before, after, monotone),
    )


@st.composite
def quantile_cases(draw: Any) -> Case:
    """Draw numbers, many of them tied or outside the bounds."""
    rows, other = draw(gen.neighbours(st.sampled_from([0.0, 0.1, 0.5, 0.9, 1.0, 2.0, -3.0, 0.50001, 1.7e308]), most=6))
    epsilon, q = draw(gen.epsilons), draw(st.sampled_from([0.0, 0.25, 0.5, 0.9, 1.0]))
    bounds = draw(st.sampled_from([(0.0, 1.0), (-3.0, 0.5), (0.4, 1.2)]))

    def quantile(function: Any, data: Any, **given: Any) -> Any:
        return function(data, q, **({"bounds": bounds, "epsilon": epsilon, "grid": 64} | given))

    same = draw(gen.array_of(rows))
    return Case(quantile, gen.frozen(rows), gen.frozen(other), epsilon, same=same, says=(rows, other, q, bounds))


@st.composite
def answer_cases(draw: Any) -> Case:
    """Draw coded answers of a few people."""
    categories = draw(st.integers(2, 4))
    rows, other = draw(gen.neighbours(st.integers(0, categories - 1), most=4))
    epsilon = draw(gen.epsilons)
    shapes = [lambda: np.array(rows, dtype=np.int8), gen.frozen(rows), lambda: np.array(rows)]
    return Case(
        call(epsilon=epsilon, categories=categories),
        lambda: np.array(rows),
        lambda: np.array(other),
        epsilon,
        same=draw(st.sampled_from(shapes)),
        says=(rows, other),
        categories=categories,
    )


@st.composite
def noise_cases(draw: Any, kind: str) -> Case:
    """Draw a call of a noise function: its callers check the arguments, so these are right."""
    epsilon, delta = draw(gen.epsilons), draw(gen.deltas)
    norm = 2 if "gaussian" in kind else 1
    value, other, sensitivity = draw(moved(norm=norm, whole=kind == "geometric" or kind.endswith("sum")))
    unit = 2.0 ** draw(st.integers(-20, 20))
    if kind.endswith("sum"):
        before, after = (_exact(np.atleast_1d(each), unit) for each in (value, other))
        sensitivity = sensitivity * unit
    else:
        before, after = np.asarray(value), np.asarray(other)
    if norm == 2:
        grid = {"unit": unit, "statistics": before.totals.size} if kind.endswith("sum") else {}
        scale = mechanisms.gaussian_scale(sensitivity=sensitivity, epsilon=epsilon, delta=delta, **grid)
        return Case(
            lambda function, data, rng: function(data, scale, rng),
            _given(before),
            _given(after),
            epsilon,
            delta,
            says=(value, other, scale),
        )

    def add(function: Any, data: Any, rng: Any) -> Any:
        noisy = function(data, sensitivity, epsilon, rng)
        return noisy[0] if isinstance(noisy, tuple) else noisy

    return Case(add, _given(before), _given(after), epsilon, says=(value, other, sensitivity))


def _exact(totals: np.ndarray, unit: float) -> Any:
    """Return an exact sum with these totals."""
    return exact_sum(np.zeros((1, len(totals))), lambda rows: rows, unit=grid_unit(1.0))._replace(
        totals=totals, unit=unit
    )


@st.composite
def choose_cases(draw: Any) -> Case:
    """Draw utilities for the bare exponential mechanism."""
    case = draw(utility_cases())
    sensitivity = 2.0 ** draw(st.integers(0, 3))
    before, after = case.data(), case.neighbour()
    change = max(float(np.abs(before - after).max()), 2.0**-10) * sensitivity
    return Case(
        lambda function, data, rng: function(np.asarray(data), change, case.epsilon, rng),
        case.data,
        case.neighbour,
        case.epsilon,
        says=case.says,
    )


@st.composite
def flip_cases(draw: Any) -> Case:
    """Draw codes for the bare flip."""
    case = draw(answer_cases())
    return replace(
        case, call=lambda function, data, rng: function(np.asarray(data), case.categories, case.epsilon, rng)
    )


# ---------------------------------------------------------------------------------------------------------------------
# Chapter 3: exponential families


def _custom(statistic: Callable[[Any], Any], **options: Any) -> CustomFamily:
    return CustomFamily(
        "custom",
        -1.0,
        2.0,
        (-np.inf, np.inf),
        statistic=statistic,
        log_density=lambda x, theta: -0.5 * np.log(2 * np.pi) - (x - theta) ** 2 / 2,
        conjugate=lambda prior, s, n, rng: s / n,
        prior_type=Beta,
        **options,
    )


def _square(x: Any) -> Any:
    return x**2  # not monotone on (-1, 2)


def _identity(x: Any) -> Any:
    return x


SPIKE = 0.123456789
REGIONS, LABELS = Category(["north", "south"], other="elsewhere"), ("north", "south", "?")


def _spiked(x: Any) -> Any:
    """A statistic that lies: monotone wherever a check is likely to look, a hundred times its range in one place."""
    return np.where(x == SPIKE, 300.0, x)


class Own(Family):
    """A family that a user wrote, whose statistic lies like ``_spiked``: the release's own clipping protects it."""

    name, prior_type, bounds = "own", Gamma, (-1.0, 2.0)

    def statistics(self, records: Any) -> Any:
        """Return what the family says of each record."""
        return _spiked(records)

    def mean_and_covariance(self, theta: Any, outside: str) -> Any:
        """Not needed by a release."""
        raise NotImplementedError

    def draw_parameter(self, prior: Any, sums: Any, n: Any, rng: np.random.Generator) -> Any:
        """Not needed by a release."""
        raise NotImplementedError


@st.composite
def families(draw: Any) -> tuple[Any, st.SearchStrategy[Any]]:
    """Draw a family with bounds, and its records."""
    kinds = ["normal", "exponential", "poisson", "binomial", "multinomial", "labels", "custom", "own", "overdispersed"]
    kind = draw(st.sampled_from(kinds))
    if kind == "binomial":
        return Binomial(), st.integers(0, 1)
    if kind == "multinomial":
        k = draw(st.integers(2, 4))
        return Multinomial(k), st.integers(0, k - 1)
    if kind == "labels":
        return Multinomial(labels=REGIONS), st.sampled_from(LABELS)
    if kind == "own":
        return Own(), st.one_of(st.just(SPIKE), gen.records(Own.bounds))
    if kind == "poisson":
        low = draw(st.sampled_from([0, 2, 1000, 2**31]))
        return Poisson(low, low + draw(st.sampled_from([1, 4.5, 20]))), st.sampled_from(
            [0, 1, low, low + 1, low + 30, 2**40]
        )
    if kind == "overdispersed":
        low = draw(st.sampled_from([0, 2, 1000]))
        high = low + draw(st.sampled_from([1, 3, 20]))
        return NegativeBinomial(low, high), st.sampled_from([0, low, low + 1, high - 1, high, high + 1, 2**40])
    if kind == "custom":
        family = draw(
            st.sampled_from([_custom(_identity), _custom(_square, range_inside=(0.0, 4.0)), _custom(_spiked)])
        )
        return family, st.one_of(st.just(SPIKE), gen.records((-1.0, 2.0)))
    box = draw(gen.boxes(positive=kind == "exponential"))
    family = Exponential if kind == "exponential" else Normal
    return family(*box), gen.records(box)


@st.composite
def family_cases(draw: Any) -> Case:
    """Draw a release of sums of a family, with either noise."""
    family, record = draw(families())
    rows, other = draw(gen.neighbours(record))
    mechanism = draw(st.sampled_from(["laplace", "gaussian"]))
    epsilon, delta = draw(gen.epsilons), draw(gen.deltas) if mechanism == "gaussian" else 0.0
    outside = draw(st.sampled_from(["clip", "redact"]))
    check = 0.0 if family.bounded else draw(st.sampled_from([0.0, 0.01, 0.1, 0.5]))
    settings = {"epsilon": epsilon, "delta": delta, "mechanism": mechanism, "outside": outside, "check": check}

    def release(function: Any, data: Any, **given: Any) -> Any:
        return function(data, family, **(settings | given))

    same = _of_objects(rows) if family.categories else draw(gen.one_column(rows))
    says = (family, rows, other, settings)
    return Case(release, lambda: np.array(rows), lambda: np.array(other), epsilon, delta, same, says)


@st.composite
def mean_cases(draw: Any) -> Case:
    """Draw a release of a mean: sum, squares and histogram together, with either noise and any division of the loss."""
    box = draw(gen.boxes())
    bins = draw(st.sampled_from([1, 2, 3, [box[0], box[0] + (box[1] - box[0]) / 64, box[1]]]))
    rows, other = draw(gen.neighbours(gen.records(box), least=3))
    shape = draw(st.sampled_from([0.01, 0.1, 0.5, 0.99]))
    return _without_family(draw, rows, other, {"bounds": box, "bins": bins, "shape": shape})


@st.composite
def gap_cases(draw: Any) -> Case:
    """Draw a release of a mean of records of which some are missing."""
    box = draw(gen.boxes())
    schema = Schema({"x": Number(*box)}, missing="category")
    rows, other = draw(gen.neighbours(st.one_of(st.just(math.nan), gen.records(box)), least=3))
    shape = draw(st.sampled_from([0.01, 0.1, 0.5, 0.99]))
    return _without_family(draw, rows, other, {"bins": draw(st.sampled_from([1, 3])), "shape": shape, "schema": schema})


@st.composite
def histogram_cases(draw: Any) -> Case:
    """Draw a release of a histogram, of bins or of labels."""
    kind = draw(st.sampled_from(["bins", "codes", "labels"]))
    if kind == "bins":
        rows, other = draw(gen.neighbours(st.sampled_from([-3.0, 0.0, 0.5, 1.0, 2.0, 7.5, 1e300])))
        return _without_family(draw, rows, other, {"bins": draw(st.sampled_from([[0, 1], [0, 0.5, 1, 2]]))})
    if kind == "labels":
        rows, other = draw(gen.neighbours(st.sampled_from(LABELS)))
        return _without_family(draw, rows, other, {"labels": REGIONS}, same=_of_objects(rows))
    rows, other = draw(gen.neighbours(st.integers(0, 2)))
    return _without_family(draw, rows, other, {"labels": [0, 1, 2]})


@st.composite
def count_tree_cases(draw: Any) -> Case:
    """Draw a release of quantiles, of one, two or three levels of cells."""
    box = draw(gen.boxes())
    branches = draw(st.sampled_from([[2], [2, 3], [3, 2, 2]]))
    rows, other = draw(gen.neighbours(gen.records(box)))
    q = draw(st.sampled_from([0.5, [0.1, 0.9]]))
    return _without_family(draw, rows, other, {"q": q, "bounds": box, "branches": branches})


def _of_objects(rows: Any) -> gen.Factory:
    return lambda: pd.Series(rows, dtype=object)


def _without_family(draw: Any, rows: Any, other: Any, own: dict[str, Any], *, same: gen.Factory | None = None) -> Case:
    mechanism = draw(st.sampled_from(["laplace", "gaussian"]))
    epsilon, delta = draw(gen.epsilons), draw(gen.deltas) if mechanism == "gaussian" else 0.0
    settings = {**own, "epsilon": epsilon, "delta": delta, "mechanism": mechanism}
    same, says = same or draw(gen.one_column(rows)), (rows, other, settings)
    return Case(call(**settings), lambda: np.array(rows), lambda: np.array(other), epsilon, delta, same, says)


@st.composite
def yes_or_no_cases(draw: Any) -> Case:
    """Draw yes-or-no answers."""
    rows, other = draw(gen.neighbours(st.integers(0, 1), most=6))
    epsilon = draw(gen.epsilons)
    same = draw(gen.one_column(rows))
    return Case(
        call(epsilon=epsilon), lambda: np.array(rows), lambda: np.array(other), epsilon, same=same, says=(rows, other)
    )


@st.composite
def posterior_sample_cases(draw: Any) -> Case:
    """Draw a release of posterior samples of a one-parameter family."""
    kind = draw(st.sampled_from(["binomial", "exponential", "poisson"]))
    low = 10.0 ** draw(st.integers(-6, -1))
    if kind == "binomial":
        family, prior, support, record = Binomial(), Beta(0.5, 3), (low, 1 - low / 3), st.integers(0, 1)
    elif kind == "poisson":
        family, prior, support = Poisson(0, 6), Gamma(1, 1), (low, 100 * low)
        record = st.integers(0, 9)
    else:
        high = 10.0 ** draw(st.integers(-2, 3))
        family, prior, support = Exponential(0, high), Gamma(1, 1), (low, 100 * low)
        record = gen.records((0.0, high)).map(abs)
    rows, other = draw(gen.neighbours(record))
    epsilon = draw(gen.epsilons)
    settings = {"epsilon": epsilon, "support": support, "count": draw(st.integers(1, 3)), "grid": 50}

    def release(function: Any, data: Any, **given: Any) -> Any:
        return function(data, family, prior, **(settings | given))

    same = draw(gen.one_column(rows))
    says = (family, rows, other, settings)
    return Case(release, lambda: np.array(rows), lambda: np.array(other), epsilon, same=same, says=says)


@st.composite
def bounds_cases(draw: Any) -> Case:
    """Draw numbers whose middle is to be found."""
    case = draw(quantile_cases())
    public = case.says[3]
    return Case(
        call(public_range=public, epsilon=case.epsilon, coverage=draw(st.sampled_from([0.5, 0.95]))),
        case.data,
        case.neighbour,
        case.epsilon,
        same=case.same,
        says=case.says,
    )


# ---------------------------------------------------------------------------------------------------------------------
# Chapter 2: sample and aggregate


def fingerprint(frame: pd.DataFrame) -> tuple[Any, ...]:
    """Return everything that a function can see of a data frame: names, types, order, values, index, layout."""
    columns = [frame.iloc[:, i] for i in range(frame.shape[1])]
    return (
        tuple(map(repr, frame.columns)),
        tuple(map(_type_of, columns)),
        (type(frame.index).__name__, str(frame.index.dtype), tuple(frame.index), tuple(frame.index.names)),
        tuple(tuple((type(value).__name__, repr(value)) for value in column) for column in columns),
        tuple((column.to_numpy().strides, str(column.to_numpy().flags)) for column in columns),
        repr(frame.attrs),
    )


def _type_of(column: Any) -> str:
    categories = getattr(column, "cat", None)
    return (
        str(column.dtype)
        if categories is None
        else f"{column.dtype} {list(categories.categories)} {categories.ordered}"
    )


@dataclass
class Probe:
    """A posterior that sees all there is to see of a partition, and whose answer depends on all of it."""

    n_jobs: int = 1
    prints: list[tuple[Any, ...]] = field(default_factory=list)

    def _number(self, partition: pd.DataFrame) -> float:
        self.prints.append(fingerprint(partition))
        number = (zlib.crc32(repr(self.prints[-1]).encode()) % 10_007) / 10_006
        return min(max(3 * number - 1, 0.0), 1.0)  # two times in three at an end, where a change is largest

    def probability(self, partition: pd.DataFrame, cutoff: Any) -> Any:
        """Return a number in [0, 1] for each cutoff, and spoil what it was given."""
        number = self._number(partition)
        answer = np.full(np.shape(cutoff), number)
        _spoil(partition, cutoff)
        return answer

    def quantile(self, partition: pd.DataFrame, p: Any, power: float = 1.0) -> Any:
        """Return a number for each probability, and spoil what it was given."""
        answer = np.full(np.shape(p), 8 * self._number(partition) - 4)
        _spoil(partition, p)
        return answer


def _spoil(*arguments: Any) -> None:
    """Write into what a function was given, as careless code does: the next partition must not notice."""
    for argument in arguments:
        try:
            if isinstance(argument, pd.DataFrame):
                argument.iloc[:, 0] = 0
            else:
                argument -= 1.0
        except (ValueError, TypeError, AttributeError):
            pass  # it was read-only, or of another type


_VALUES = st.sampled_from([0, 1, 2, 0.5, 2.0, -1, 10**6, True, "no", "yes", "HIV+", "n/a", None, float("nan"), 2**70])


@st.composite
def mixed_tables(draw: Any) -> tuple[list[Any], list[Any], Callable[[list[Any]], Any]]:
    """Draw records of numbers, or of anything, a neighbour, and the container that both come in."""
    width = draw(st.integers(1, 2))
    plain = st.sampled_from([0, 1, 2, 3]) if draw(st.booleans()) else st.sampled_from(["no", "yes"])
    rows = draw(st.lists(st.lists(plain, min_size=width, max_size=width), min_size=4, max_size=8))
    other = [list(row) for row in rows]
    place = draw(st.integers(0, len(rows) - 1))
    other[place] = draw(st.lists(_VALUES, min_size=width, max_size=width))
    names = ["y", "x"][:width]

    def frame(records: list[Any]) -> pd.DataFrame:
        return pd.DataFrame(records, columns=names)

    makers: dict[str, Callable[[list[Any]], Any]] = {
        "frame": frame,
        "category": lambda records: frame(records).astype("category"),
        "converted": lambda records: frame(records).convert_dtypes(),
        "list": lambda records: records,
        "stream": lambda records: (frame(records[i : i + 3]) for i in range(0, len(records), 3)),
    }
    return rows, other, makers[draw(st.sampled_from(sorted(makers)))]


def _schema(width: int) -> Schema:
    """Return a schema that takes whatever comes, and turns most of it into something else."""
    kinds = {"y": Number(0, 2), "x": Category(["no", "yes"], other="else")}
    return Schema(dict(list(kinds.items())[:width]), missing="category")


@st.composite
def partition_cases(draw: Any, question: str) -> Case:
    """Draw a release over partitions, of a black box that sees everything or of a built-in regression."""
    epsilon = draw(gen.epsilons)
    settings: dict[str, Any] = {"epsilon": epsilon, "partitions": 2}
    settings |= draw(st.sampled_from([{}, {}, {"spread": 0.0}, {"spread": 0.6}]))
    kind = draw(st.sampled_from(["black box", "black box with a schema", "regression"]))
    if kind != "regression":
        rows, other, container = draw(mixed_tables())
        settings |= {"schema": _schema(len(rows[0]))} if "schema" in kind else {}
        data, neighbour = (lambda: container(rows)), (lambda: container(other))
        posterior: Callable[[], Any] = Probe
    else:
        number = gen.records((-1.0, 1.0)).filter(np.isfinite)  # others are refused, as the docstring says
        pair = st.tuples(number, number)
        rows, other = draw(gen.neighbours(pair, least=8, most=14))
        data, neighbour = (lambda: np.array(rows)), (lambda: np.array(other))
        posterior = aggregate.ConjugateRegression
    point, options = draw(probability_options() if question == "probability" else quantile_options())

    def release(function: Any, given_data: Any, **given: Any) -> Any:
        probes.append(posterior())
        return function(given_data, point, **(settings | {"posterior": probes[-1]} | options | given))

    probes: list[Any] = []
    return Case(
        release,
        data,
        neighbour,
        epsilon,
        says=(rows, other, settings, options),
        probes=probes if posterior is Probe else None,
    )


@st.composite
def probability_options(draw: Any) -> tuple[Any, dict[str, Any]]:
    """Draw a cutoff and how probabilities are put together."""
    return draw(st.sampled_from([0.0, [0.0, 1.0]])), {"method": draw(st.sampled_from(["normality", "fisher"]))}


@st.composite
def quantile_options(draw: Any) -> tuple[Any, dict[str, Any]]:
    """Draw a probability and how bounds are found, except by the sparse vector technique."""
    bounds: dict[str, Any] = draw(
        st.sampled_from([{"bounds": (-1.0, 3.0)}, {"bounds": aggregate.Centred((-4.0, 4.0), resolution=8)}])
    )
    return draw(st.sampled_from([0.5, [0.1, 0.9]])), bounds


@st.composite
def doubling_release_cases(draw: Any) -> Case:
    """Draw a release of a quantile whose bounds are found by doubling."""
    case = draw(partition_cases("quantile"))
    options = {"bounds": aggregate.SparseVector(doublings=3)}
    return replace(
        case, call=lambda function, data, **given: case.call(function, data, **(options | given)), searches=True
    )


@st.composite
def centred_cases(draw: Any) -> Case:
    """Draw one number a partition, some of them missing: a partition may have failed."""
    numbers = st.sampled_from([0.0, 0.1, 0.5, 0.9, 1.0, 2.0, -3.0, float("nan"), 1.7e308])
    rows, other = draw(gen.neighbours(numbers, most=6))
    epsilon = draw(gen.epsilons)
    public_range = draw(st.sampled_from([(0.0, 1.0), (-3.0, 3.0)]))
    settings = {"search": aggregate.Centred(public_range, resolution=16), "epsilon": epsilon}
    says = (rows, other, settings)
    return Case(call(**settings), gen.frozen(rows), gen.frozen(other), epsilon, same=lambda: np.array(rows), says=says)


@st.composite
def doubled_cases(draw: Any) -> Case:
    """Draw one number a partition."""
    numbers = st.sampled_from([0.0, 0.5, 1.0, 1.5, 2.0, 4.0, -3.0, float("nan"), 1.7e308])
    rows, other = draw(gen.neighbours(numbers, most=6))
    epsilon = draw(gen.epsilons)
    search = aggregate.SparseVector(theta=draw(st.sampled_from([0.5, 0.95])), doublings=3)
    return Case(
        call(search=search, epsilon=epsilon),
        gen.frozen(rows),
        gen.frozen(other),
        epsilon,
        same=lambda: np.array(rows),
        says=(rows, other, search),
        searches=True,
    )


# ---------------------------------------------------------------------------------------------------------------------
# Chapter 4: regression


def _persisted(table: Any) -> tuple[Any, Any]:
    """Return the covariates, persisted, and the response of a Dask table: they have no graph in common any more."""
    return table.drop(columns="y").persist(), table["y"]


@st.composite
def regression_cases(draw: Any) -> Case:
    """Draw records of a regression in a box each side of which is its own."""
    d = draw(st.integers(1, 3))
    sides = [draw(gen.boxes()) for _ in range(d + 1)]
    rows, other = draw(gen.neighbours(st.tuples(*map(gen.records, sides)), most=4))
    mechanism = draw(st.sampled_from(["laplace", "gaussian"]))
    epsilon, delta = draw(gen.epsilons), draw(gen.deltas) if mechanism == "gaussian" else 0.0
    settings = {
        "x_bounds": sides[:-1],
        "y_bounds": sides[-1],
        "epsilon": epsilon,
        "delta": delta,
        "mechanism": mechanism,
        "intercept": draw(st.booleans()),
        "moments": d < 3 and draw(st.booleans()),
        "check": draw(st.sampled_from([0.0, 0.01, 0.1, 0.5])),
    }
    names = [f"x{j}" for j in range(d)] + ["y"]

    def release(function: Any, data: Any, **given: Any) -> Any:
        return function(*data, **(settings | given))

    array = np.array(rows)
    table, parts, others = (
        draw(gen.table_of(rows, names)),
        draw(gen.dask_frame_of(rows, names)),
        draw(gen.cuts(len(rows))),
    )
    containers: list[gen.Factory] = [
        lambda: (table(), "y"),
        lambda: (array, -1),
        lambda: (array[:, :-1], array[:, -1].tolist()),
        lambda: ((array[a:b, :-1] for a, b in others), array[:, -1]),
        lambda: (parts()[names[:-1]], parts()["y"]),
        lambda: _persisted(gen.dask_pieces(array, names, others)),
        lambda: (parts()[names[:-1]].persist(), gen.dask_pieces(array, names, others)["y"]),
    ]
    choice = draw(st.integers(0, len(containers) - 1))
    return Case(
        release,
        lambda: (array[:, :-1], array[:, -1]),
        lambda: (np.array(other)[:, :-1], np.array(other)[:, -1]),
        epsilon,
        delta,
        containers[choice],
        says=(rows, other, settings, choice),
        may_refuse=choice == len(containers) - 1,  # covariates and responses that are cut at different places
    )


FORMULAS = (
    None,
    "y ~ C(g)",
    "y ~ C(g) + a",
    "y ~ a * C(g)",
    "y ~ a * b",
    "y ~ C(g) * C(h) + a",
    "np.exp(y) ~ a + C(h)",
)


@st.composite
def schema_regression_cases(draw: Any) -> Case:
    """Draw records with labels and numbers, some of them missing, unknown or far beyond the bounds."""
    kept = draw(st.booleans())
    schema = Schema(
        {
            "g": Category(["u", "v", "w"], other="w"),
            "h": Category([0, 1]),
            "a": Number(-2.0, 3.0),
            "b": Number(0.0, 1.0),
            "y": Number(-1.0, 1.0),
        },
        missing="category" if kept else {"g": "u", "a": 0.5, "b": 0.0, "h": 0},
    )
    values = st.sampled_from([-2.0, 0.5, 3.0, 0.0, 1e300, None])
    labels = st.sampled_from(["u", "v", "w", "Atlantis", None])
    row = st.tuples(labels, st.sampled_from([0, 1]), values, values, st.sampled_from([-1.0, -0.5, 0.0, 1.0, 9.0]))
    rows, other = draw(gen.neighbours(row, most=4))
    mechanism = draw(st.sampled_from(["laplace", "gaussian"]))
    epsilon, delta = draw(gen.epsilons), draw(gen.deltas) if mechanism == "gaussian" else 0.0
    formula = draw(st.sampled_from(FORMULAS))
    settings = {"schema": schema, "formula": formula, "epsilon": epsilon, "delta": delta, "mechanism": mechanism}
    names, response = list(schema.columns), None if formula else "y"

    def release(function: Any, data: Any, **given: Any) -> Any:
        return function(*data, **(settings | given))

    def table(of: Any) -> Any:
        return pd.DataFrame(of, columns=names).astype({"g": object})

    cut = draw(st.integers(0, len(rows)))
    containers: list[gen.Factory] = [
        lambda: (
            pyarrow.table({name: list(column) for name, column in zip(names, zip(*rows, strict=True), strict=True)}),
            response,
        ),
        lambda: (iter([table(part) for part in (rows[:cut], rows[cut:]) if part]), response),
        lambda: ([dict(zip(names, each, strict=True)) for each in rows], response),
    ]
    choice = draw(st.integers(0, len(containers) - 1))
    return Case(
        release,
        lambda: (table(rows), response),
        lambda: (table(other), response),
        epsilon,
        delta,
        containers[choice],
        says=(rows, other, settings, choice),
    )


@st.composite
def estimator_cases(draw: Any) -> Case:
    """Draw a fit of the estimator; its posterior is a function of the release, and cheap here."""
    rows, other = draw(gen.neighbours(st.tuples(st.floats(-3, 3), st.floats(-3, 3)), least=2, most=4))
    epsilon = draw(gen.epsilons)
    settings = {"epsilon": epsilon, "x_bounds": (-1.0, 1.0), "y_bounds": (-2.0, 2.0), "method": "naive", "draws": 8}
    settings["check"] = draw(st.sampled_from([0.0, 0.1]))

    def fit(function: Any, data: Any, *, rng: Any, budget: Any = None, **given: Any) -> Any:
        X, y = data
        model = PrivateBayesianRegression(**(settings | {"chains": 2, "random_state": rng} | given))
        return function(model, X, y, budget=budget).release_

    array = np.array(rows)
    same = draw(
        st.sampled_from(
            [lambda: (array[:, :1].tolist(), array[:, 1].tolist()), lambda: (pd.DataFrame(array[:, :1]), array[:, 1])]
        )
    )
    return Case(
        fit,
        lambda: (array[:, :1], array[:, 1]),
        lambda: (np.array(other)[:, :1], np.array(other)[:, 1]),
        epsilon,
        same=same,
        says=(rows, other),
    )


# ---------------------------------------------------------------------------------------------------------------------
# Chapter 5: graphical models


@st.composite
def tables_of_codes(draw: Any) -> tuple[Any, Any, dict[str, Any], Any]:
    """Draw rows of codes (perhaps several a person), neighbours, a domain and cliques, and further arguments."""
    count, states = draw(st.integers(2, 4)), draw(st.integers(2, 3))
    names = list("abcd"[:count])
    cliques = graphical.chain(names, tied=draw(st.booleans()), order=draw(st.integers(1, 2)))
    person, null = draw(st.booleans()), draw(st.sampled_from([None, 0]))
    row = st.lists(st.integers(0, states - 1), min_size=count, max_size=count)
    record = st.lists(row, min_size=1, max_size=4 if person else 1)
    people, others = draw(gen.neighbours(record, most=4))
    options: dict[str, Any] = {"null": null} | ({"person": "who"} if person else {})
    return people, others, {"domain": dict.fromkeys(names, states), "cliques": cliques}, options


def _people_frame(people: list[Any], names: list[str]) -> pd.DataFrame:
    rows = [[*row, who] for who, record in enumerate(people) for row in record]
    return pd.DataFrame(rows, columns=[*names, "who"])


@st.composite
def graphical_cases(draw: Any) -> Case:
    """Draw a release of clique tables."""
    people, others, model, options = draw(tables_of_codes())
    names = list(model["domain"])
    epsilon = draw(gen.epsilons)
    frame = _people_frame(people, names)
    shuffled = frame.sample(frac=1.0, random_state=draw(st.integers(0, 99)))
    places = draw(gen.cuts(len(frame)))
    containers: list[gen.Factory] = [lambda: frame.astype("Int64"), lambda: shuffled, lambda: frame.astype(np.int8)]
    if "person" not in options:
        containers += [
            lambda: (frame.iloc[a:b] for a, b in places),
            lambda: pd.DataFrame(frame.to_numpy(), columns=frame.columns, dtype="int64[pyarrow]"),
            draw(gen.dask_frame_of(frame.to_numpy(), list(frame.columns))),
            lambda: _pyarrow(frame),
            lambda: _joint_counts(frame[names], list(model["domain"].values())),
        ]

    def release(function: Any, data: Any, **given: Any) -> Any:
        return function(data, **(model | {"epsilon": epsilon} | options | given))

    return Case(
        release,
        lambda: frame,
        lambda: _people_frame(others, names),
        epsilon,
        same=draw(st.sampled_from(containers)),
        says=(people, others, model, options),
    )


def _pyarrow(frame: pd.DataFrame) -> Any:
    return pyarrow.Table.from_pandas(frame)


def _joint_counts(frame: pd.DataFrame, sizes: list[int]) -> np.ndarray:
    table = np.zeros(sizes, dtype=np.int64)
    np.add.at(table, tuple(frame.to_numpy().T), 1)
    return table


# (epsilon, delta, sampling, steps): few, because each is calibrated by a search over privacy loss distributions.
RUNS = ((1.0, 1e-3, 1.0, 1), (4.0, 1e-2, 1.0, 3), (2.0, 1e-2, 0.5, 2))


@st.composite
def gradient_cases(draw: Any) -> Case:
    """Draw a run of noisy gradients."""
    people, others, model, options = draw(tables_of_codes())
    names = list(model["domain"])
    epsilon, delta, sampling, steps = draw(st.sampled_from(RUNS))
    clip = draw(st.sampled_from([0.3, 1.5, 100.0]))
    training = {"sampling": sampling, "steps": steps, "clip": clip}
    settings = {"epsilon": epsilon, "delta": delta, "insecure": True}
    frame = _people_frame(people, names)

    def release(function: Any, data: Any, **given: Any) -> Any:
        chosen = graphical.Training(**(training | {name: given.pop(name) for name in training if name in given}))
        return function(data, training=chosen, **(model | settings | options | given))

    return Case(
        release,
        lambda: frame,
        lambda: _people_frame(others, names),
        epsilon,
        delta,
        same=lambda: frame.astype(np.int8),
        says=(people, others, model, options, training, settings),
    )


@st.composite
def event_tables(draw: Any, *, types: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Draw a table of events, and the same with one event moved anywhere."""
    shape = (draw(st.integers(1, 2)), draw(st.integers(1, 2)), types or draw(st.integers(2, 3)))
    size = int(np.prod(shape))
    table = np.array(draw(st.lists(st.sampled_from([0, 1, 3, 40]), min_size=size, max_size=size)))
    table[draw(st.integers(0, size - 1))] += 1
    held = np.flatnonzero(table)
    other = table.copy()
    other[held[draw(st.integers(0, len(held) - 1))]] -= 1
    other[draw(st.integers(0, size - 1))] += 1
    return table.reshape(shape), other.reshape(shape)


@st.composite
def event_cases(draw: Any) -> Case:
    """Draw a release of a table of events."""
    table, other = draw(event_tables())
    epsilon = draw(gen.epsilons)
    same = draw(st.sampled_from([table.tolist, lambda: table.astype(np.uint8), lambda: np.asfortranarray(table)]))
    return Case(call(epsilon=epsilon), lambda: table, lambda: other, epsilon, same=same, says=(table, other))


@st.composite
def chain_cases(draw: Any) -> Case:
    """Draw a private Gibbs chain."""
    table, other = draw(event_tables(types=draw(st.sampled_from([2, 2, 3]))))
    epsilon = draw(st.sampled_from([0.25, 2.0, 10.0, 40.0]))
    settings = {"epsilon": epsilon, "states": 2, "sweeps": draw(st.integers(1, 2)), "insecure": True}
    settings |= draw(st.sampled_from([{"floor": 0.1, "grid": 10}, {"floor": 0.01, "grid": 100}]))
    return Case(
        call(**settings), lambda: table, lambda: other, epsilon, same=table.tolist, says=(table, other, settings)
    )


# ---------------------------------------------------------------------------------------------------------------------
# Chapter 7: statistics for models of one's own


def _log(record: Any) -> Any:
    return np.log(record["x"])  # NaN and -inf for some records


def _refuses(record: Any) -> Any:
    if record["x"].item() > 0:
        raise ValueError("an error would tell of the record")
    return record["x"] * 1e9


@st.composite
def model_cases(draw: Any) -> Case:
    """Draw records of numbers, whole numbers, labels and flags, and statistics of every kind, failing functions too."""
    box, weights = draw(gen.boxes()), st.sampled_from([0.3, 1.0, 1.0, 4.0])
    schema = Schema({"x": Number(*box), "k": Integer(-1, 3), "c": Category([0, 1, 2], other=7), "f": Flag()})
    record = st.tuples(gen.records(box), st.integers(-3, 5), st.integers(0, 4), st.integers(0, 1))
    rows, other = draw(gen.neighbours(record, most=4))
    inner = box[0] + (box[1] - box[0]) * 0.5
    choices = [
        models.Powers("x", degree=draw(st.integers(1, 4)), weight=draw(weights)),
        models.Powers(["k", "f"], degree=draw(st.integers(1, 3)), weight=draw(weights)),
        models.Table(["c", "f"], weight=draw(weights)),
        models.Histogram("k", [0, 2], weight=draw(weights)),
        models.Indicator("c", draw(st.sampled_from([0, 7]))),
        models.Product(["x", "k"]),
        models.Own("log", _log, "x", (-2.0, 3.0), weight=draw(weights)),
        models.Own("fails", _refuses, ["x", "k"], (0.0, 1.0)),
        *([models.Histogram("x", [inner])] if box[0] < inner <= box[1] else []),
    ]
    chosen = draw(st.lists(st.sampled_from(choices), min_size=1, max_size=3, unique_by=lambda each: each.name))
    mechanism = draw(st.sampled_from(["laplace", "gaussian"]))
    epsilon, delta = draw(gen.epsilons), draw(gen.deltas) if mechanism == "gaussian" else 0.0
    settings = {
        "statistics": chosen, "schema": schema, "epsilon": epsilon, "delta": delta, "mechanism": mechanism,
    }  # fmt: skip
    same = draw(gen.table_of(rows, schema.names))
    return Case(
        call(**settings),
        lambda: np.array(rows, dtype=float),
        lambda: np.array(other, dtype=float),
        epsilon,
        delta,
        same,
        says=(rows, other, settings),
    )
