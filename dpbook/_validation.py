"""Checks of arguments, in one place, so that every error names the argument, what it got and what it takes.

Each function returns the argument in the form that the caller computes with. None of them looks at
sensitive values, except :func:`finite_array`, whose error ("NaN in ...") only a curator may see.
"""

from __future__ import annotations

import functools
import math
import numbers
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = [
    "Option",
    "analyst_generator",
    "at_least",
    "choice_option",
    "delta_value",
    "finite_array",
    "finite_number",
    "flag",
    "flag_option",
    "fraction",
    "integer",
    "interval",
    "method_options",
    "non_negative_array",
    "one_of",
    "positive",
    "positive_array",
    "positive_option",
    "privacy_loss",
    "seeded_generator",
    "whole_option",
]


def finite_number(name: str, value: Any) -> float:
    """Return ``value`` as a float; raise unless it is one finite real number."""
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value.item()
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


def finite_array(name: str, value: ArrayLike, *, ndim: int | None = None) -> NDArray[np.float64]:
    """Return ``value`` as a float array; raise on what is not numeric, has another dimension, or holds NaN or inf.

    Text, dates and complex numbers, which NumPy would convert in silence, are not numeric; a masked entry is NaN.
    """
    try:
        given = np.ma.filled(value.astype(np.float64), np.nan) if isinstance(value, np.ma.MaskedArray) else value
        if np.asarray(given).dtype.kind in "cmMSU":
            raise TypeError
        array = np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError):
        raise TypeError(f"{name} must be numeric, got {type(value).__name__}") from None
    except OverflowError:
        raise ValueError(f"{name} must be finite: it holds a number beyond the largest float") from None
    if ndim is not None and array.ndim != ndim:
        raise ValueError(f"{name} must have {ndim} dimension{'s' * (ndim != 1)}, got shape {array.shape}")
    if not np.isfinite(array).all():
        raise ValueError(f"{name} must be finite: it holds NaN or infinite values")
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
