"""Checks of arguments, in one place, so that every error names the argument, what it got and what it takes.

Each function returns the argument in the form that the caller computes with. None of them looks at
sensitive values, except those of arrays, whose errors (NaN, a missing entry, text) only a curator may see.
"""

from __future__ import annotations

import decimal
import functools
import math
import numbers
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpbook._late import pd

__all__ = [
    "Option",
    "analyst_generator",
    "at_least",
    "choice_option",
    "clear_chunk",
    "column_labels",
    "delta_value",
    "finite_array",
    "finite_number",
    "flag",
    "flag_option",
    "fraction",
    "has_masks",
    "integer",
    "interval",
    "method_options",
    "noise_arguments",
    "non_negative_array",
    "one_of",
    "positive",
    "positive_array",
    "positive_option",
    "present_array",
    "present_columns",
    "privacy_loss",
    "real_array",
    "seeded_generator",
    "unmasked",
    "whole_array",
    "whole_option",
]


def finite_number(name: str, value: Any) -> float:
    """Return ``value`` as a float; raise unless it is one finite real number."""
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = np.asarray(unmasked(value)).item()
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, numbers.Real):
        raise TypeError(f"{name} must be a number, got {value!r}")
    try:
        number = float(value)
    except OverflowError:
        raise ValueError(f"{name} must be at most the largest float in magnitude, got a larger number") from None
    if not math.isfinite(number):
        raise ValueError(f"{name} must be finite, got {number}")
    return number


def positive(name: str, value: Any) -> float:
    """Return ``value`` as a float; raise unless it is finite and above zero."""
    number = finite_number(name, value)
    if number <= 0:
        raise ValueError(f"{name} must be greater than 0, got {number}")
    return number


def at_least(name: str, value: Any, least: float) -> float:
    """Return ``value`` as a float; raise unless it is finite and at least ``least``."""
    number = finite_number(name, value)
    if number < least:
        raise ValueError(f"{name} must be at least {least:g}, got {number}")
    return number


def delta_value(name: str, value: Any, *, zero: bool = True) -> float:
    """Return ``value`` as a float; raise unless it is a delta: in [0, 1), or in (0, 1) when zero is refused."""
    number = finite_number(name, value)
    if not 0 <= number < 1 or (number == 0 and not zero):
        span = "[0, 1)" if zero else "(0, 1)"
        raise ValueError(f"{name} must lie in {span}, got {number}")
    return number


def fraction(name: str, value: Any) -> float:
    """Return ``value`` as a float; raise unless it lies strictly between 0 and 1."""
    number = finite_number(name, value)
    if not 0 < number < 1:
        raise ValueError(f"{name} must lie strictly between 0 and 1, got {number}")
    return number


def integer(name: str, value: Any, *, least: int | None = None) -> int:
    """Return ``value`` as an int; raise unless it is a whole number, at least ``least`` where that is given."""
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, numbers.Integral):
        raise TypeError(f"{name} must be a whole number, got {value!r}")
    if least is not None and value < least:
        raise ValueError(f"{name} must be at least {least}, got {value}")
    return int(value)


def one_of(name: str, value: Any, choices: tuple[str, ...]) -> str:
    """Return ``value``; raise unless it is one of ``choices``."""
    if not isinstance(value, str) or value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}, got {value!r}")
    return value


def flag(name: str, value: Any) -> bool:
    """Return ``value`` as a bool; raise unless it is True or False."""
    if not isinstance(value, (bool, np.bool_)):
        raise TypeError(f"{name} must be True or False, got {value!r}")
    return bool(value)


def privacy_loss(epsilon: Any, delta: Any, mechanism: Any) -> tuple[float, float]:
    """Return epsilon and delta as floats; raise unless they fit the mechanism: delta is 0 for Laplace noise alone."""
    one_of("mechanism", mechanism, ("laplace", "gaussian"))
    loss = positive("epsilon", epsilon), delta_value("delta", delta, zero=mechanism == "laplace")
    if mechanism == "laplace" and loss[1]:
        raise ValueError(f"delta must be 0 for the Laplace mechanism, which is pure; got {loss[1]}")
    return loss


def noise_arguments(sensitivity: float, epsilon: float, *, widest: float = 1e300) -> tuple[float, float]:
    """Check sensitivity and epsilon, and that the scale of the noise is a number that noise can be drawn at."""
    sensitivity, epsilon = positive("sensitivity", sensitivity), positive("epsilon", epsilon)
    if not 1e-100 <= epsilon <= 1e100:
        raise ValueError(f"epsilon must lie between 1e-100 and 1e100, got {epsilon}")
    if not 1e-300 <= sensitivity / epsilon <= widest:
        ratio = sensitivity / epsilon
        raise ValueError(f"sensitivity / epsilon must lie between 1e-300 and {widest:g}, got {ratio}")
    return sensitivity, epsilon


def interval(name: str, value: Any) -> tuple[float, float]:
    """Return ``value`` as ``(low, high)``; raise unless it is a pair of finite numbers with low < high."""
    try:
        low, high = value
    except (TypeError, ValueError):
        raise TypeError(f"{name} must be a pair (low, high), got {value!r}") from None
    low, high = finite_number(f"{name}[0]", low), finite_number(f"{name}[1]", high)
    if low >= high:
        raise ValueError(f"{name} must have low < high, got ({low}, {high})")
    return low, high


def real_array(name: str, value: Any) -> NDArray[np.float64]:
    """Return ``value`` as a float array; raise on what is no real number or boolean: text, dates, complex numbers.

    The one place where Python's and NumPy's forms of a number meet, so that no record is treated by what *others* made
    of the array's type: a missing entry (masked, None, pandas' NA) is NaN wherever it stands, an integer or fraction
    beyond the largest float is an infinity, and text is no number even if it reads like one.
    """
    value = unmasked(value)
    try:
        array = np.asarray(value)
    except ValueError:
        raise ValueError(f"{name} must be numeric, in rows of equal length, got {type(value).__name__}") from None
    if array.dtype.kind == "O" and value is not None:
        flat = [_as_float(item) for item in array.ravel()]
        if None not in flat:
            return np.array(flat, dtype=np.float64).reshape(array.shape)
    if array.dtype.kind not in "biuf":
        kind = "text or other objects" if array.dtype.kind in "OSUT" else str(array.dtype)
        raise TypeError(f"{name} must be numeric (real numbers or booleans), got {type(value).__name__} of {kind}")
    with np.errstate(all="ignore"):  # a long double may be larger than the largest float
        return np.asarray(array, dtype=np.float64)


def _as_float(item: Any) -> float | None:
    """Return one entry of an object array as a float, NaN where it is missing, or None where it is no number."""
    if item is None or item is pd.NA or item is pd.NaT or isinstance(item, np.ma.core.MaskedConstant):
        return math.nan
    if not isinstance(item, (numbers.Real, np.bool_, decimal.Decimal)):
        return None
    try:
        return float(item)
    except OverflowError:
        return math.inf if item > 0 else -math.inf  # type: ignore[operator]
    except (ValueError, ArithmeticError):  # a signalling NaN
        return math.nan


def unmasked(value: Any) -> Any:
    """Return ``value`` without masks: a masked entry, also one of a row in a list, is NaN; what has none is untouched.

    NumPy's conversions drop masks in silence and bring back the number that was hidden.
    """
    if isinstance(value, np.ma.MaskedArray):
        data = np.ma.getdata(value)
        if not np.ma.is_masked(value) or data.dtype.kind == "V":  # records of fields: real_array refuses them
            return data
        filled = data.astype(np.float64 if data.dtype.kind in "biuf" else object)
        filled[np.ma.getmaskarray(value)] = np.nan
        return filled[()]
    return [unmasked(item) for item in value] if has_masks(value) else value


def has_masks(value: Any) -> bool:
    """Tell whether ``value`` is a masked array with an entry masked, or a list or tuple that holds one."""
    if isinstance(value, (list, tuple)):
        return any(has_masks(item) for item in value if isinstance(item, (np.ma.MaskedArray, list, tuple)))
    return isinstance(value, np.ma.MaskedArray) and bool(np.ma.is_masked(value))


def whole_array(name: str, value: Any, *, booleans: bool = False) -> NDArray[np.int64]:
    """Return ``value`` as an array of 64-bit integers; raise on other types, missing entries and larger integers."""
    array = np.asarray(unmasked(value))
    if has_masks(value) or (array.dtype.kind == "O" and any(map(_is_missing, array.ravel()))):
        raise ValueError(f"{name} must hold whole numbers: some entries are missing")
    if array.dtype.kind == "O":
        good = all(isinstance(item, numbers.Integral) and not isinstance(item, bool) for item in array.ravel())
    else:
        good = array.dtype.kind in ("biu" if booleans else "iu")
    if not good:
        raise TypeError(f"{name} must hold whole numbers, got dtype {array.dtype}")
    most = np.iinfo(np.int64)
    if array.dtype.kind in "uO" and array.size and not (array.min() >= most.min and array.max() <= most.max):
        raise ValueError(f"{name} must fit in signed 64-bit integers")
    return array.astype(np.int64)


def _is_missing(item: Any) -> bool:
    number = _as_float(item)
    return number is not None and math.isnan(number)


def present_array(name: str, value: Any, *, ndim: int | None = None) -> NDArray[np.float64]:
    """Return ``value`` as a float array in which nothing is missing; infinities stay, for bounds to clip them."""
    array = _of_dimension(name, real_array(name, value), ndim)
    if np.isnan(array).any():
        raise ValueError(f"{name} must have no missing values: it holds NaN, None or masked entries")
    return array


def finite_array(name: str, value: Any, *, ndim: int | None = None) -> NDArray[np.float64]:
    """Return ``value`` as a float array; raise on what is not numeric, has another dimension, or holds NaN or inf.

    What is numeric, :func:`real_array` says: text, dates and complex numbers are not; a masked entry is NaN.
    """
    array = _of_dimension(name, real_array(name, value), ndim)
    if not np.isfinite(array).all():
        raise ValueError(f"{name} must be finite: it holds NaN or infinite values")
    return array


def _of_dimension(name: str, array: NDArray[np.float64], ndim: int | None) -> NDArray[np.float64]:
    if ndim is not None and array.ndim != ndim:
        raise ValueError(f"{name} must have {ndim} dimension{'s' * (ndim != 1)}, got shape {array.shape}")
    return array


def positive_array(name: str, value: ArrayLike) -> NDArray[np.float64]:
    """Return ``value`` as a finite float array; raise unless every entry is above zero."""
    array = finite_array(name, value)
    if not (array > 0).all():
        raise ValueError(f"{name} must be greater than 0 everywhere, got {array.min()}")
    return array


def non_negative_array(name: str, value: ArrayLike) -> NDArray[np.float64]:
    """Return ``value`` as a finite float array; raise unless every entry is at least zero."""
    array = finite_array(name, value)
    if not (array >= 0).all():
        raise ValueError(f"{name} must be at least 0 everywhere, got {array.min()}")
    return array


def column_labels(data: Any) -> list[Any] | None:
    """Return the names of a table's columns (pandas, Dask, Arrow, polars) or of a named column; None for others."""
    if isinstance(data, pd.Series):
        return None if data.name is None else [data.name]
    for names in (getattr(data, "column_names", None), getattr(data, "columns", None)):
        if names is not None and not callable(names):
            return list(names)
    names = getattr(getattr(data, "schema", None), "names", None)
    return None if names is None else list(names)


def clear_chunk(name: str, chunk: Any) -> Any:
    """Return what an iterator yielded; raise on a tuple of values, which is a record to some and a column to others.

    A text is refused too: it would be a record to some and the name of a file to others.
    """
    if isinstance(chunk, (str, bytes)):
        raise TypeError(
            f"{name} is an iterator of texts: pass list(...) of it, whose entries are records, or an iterator of "
            "chunks: lists, arrays, tables or pathlib.Path objects"
        )
    if isinstance(chunk, tuple) and all(np.isscalar(item) or item is None for item in chunk):
        raise TypeError(
            f"{name} is an iterator of tuples, as zip makes one; each could be one record or several: pass list(...) "
            "of it, whose entries are records, or an iterator of lists, arrays or tables, which are chunks"
        )
    return chunk


def present_columns(available: Iterable[Any], columns: list[str], name: str) -> list[str]:
    """Return ``columns``; raise unless each occurs exactly once in the table."""
    held = list(available)
    wrong = [column for column in columns if held.count(column) != 1]
    if wrong:
        raise ValueError(f"columns must each occur once in {name}: {wrong} do not; it has {held}")
    return columns


def seeded_generator(rng: Any) -> np.random.Generator | None:
    """Return ``rng``; raise unless it is None (a real release) or a :class:`numpy.random.Generator`.

    Seeds as plain integers are refused: a seed used in two calls gives both the same noise, and the
    difference of the two outputs is then exact.
    """
    if rng is not None and not isinstance(rng, np.random.Generator):
        raise TypeError(
            "rng must be None (noise for a real release) or a numpy.random.Generator such as "
            f"numpy.random.default_rng(seed), made once and passed on; got {rng!r}"
        )
    return rng


def analyst_generator(rng: Any) -> np.random.Generator:
    """Return ``rng``, or a fresh generator for None; used where no privacy is at stake (post-processing)."""
    checked = seeded_generator(rng)
    return np.random.default_rng() if checked is None else checked


class Option(NamedTuple):
    """One option of a method, as data: what it takes, in words, and the check that holds a value against that."""

    takes: str
    check: Callable[[str, Any], Any]


def whole_option(least: int) -> Option:
    """Return an option that takes whole numbers from ``least`` on."""
    return Option(f"a whole number of at least {least}", functools.partial(integer, least=least))


def positive_option() -> Option:
    """Return an option that takes numbers above zero."""
    return Option("a number greater than 0", positive)


def choice_option(*choices: str) -> Option:
    """Return an option that takes one of some words."""
    return Option(f"one of {', '.join(map(repr, choices))}", functools.partial(one_of, choices=choices))


def flag_option() -> Option:
    """Return an option that takes True or False."""
    return Option("True or False", flag)


def optional(option: Option) -> Option:
    """Return an option that takes None, too, which means the method's own default."""
    return Option(f"{option.takes}, or None", lambda name, value: None if value is None else option.check(name, value))


def method_options(
    method: Any, given: Mapping[str, Any], declared: Mapping[str, Mapping[str, Option]], *, name: str = "method"
) -> dict[str, Any]:
    """Return the options ``given`` to a method, checked; raise on an unknown method and on what it does not take.

    ``declared`` holds, by method, the options that it takes by name. The error names the option that does not apply,
    the methods that would take it, and all that the chosen method takes.
    """
    takes = declared[one_of(name, method, tuple(declared))]
    for option in given:
        if option not in takes:
            others = [repr(other) for other, options in declared.items() if option in options]
            known = "; ".join(f"{each}: {kind.takes}" for each, kind in takes.items()) or "none"
            where = f" ({', '.join(others)} would)" if others else ""
            raise TypeError(f"{name} {method!r} does not take {option!r}{where}. Its options: {known}")
    return {option: takes[option].check(option, value) for option, value in given.items()}
