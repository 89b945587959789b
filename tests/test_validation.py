"""Checks of arguments: what they let pass, what they refuse, and that they name it."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import pytest

from dpbook import _validation as check


@pytest.mark.parametrize("value", [1, 1.0, np.float32(1), np.int8(1), np.array(1.0), Fraction(1)])
def test_any_one_real_number_is_a_number(value: Any) -> None:
    for checked in (check.finite_number("x", value), check.positive("x", value), check.at_least("x", value, 1)):
        assert checked == 1.0
        assert type(checked) is float


@pytest.mark.parametrize(
    "value", [[1, 2], (1.0, 2.0), np.array([1, 2], dtype=np.uint8), pd.Series([1, 2], dtype="Int64")]
)
def test_any_real_numbers_are_an_array_of_floats(value: Any) -> None:
    array = check.finite_array("x", value, ndim=1)
    assert array.tolist() == [1.0, 2.0]
    assert array.dtype == np.float64


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: check.finite_number("x", True), "must be a number"),
        (lambda: check.finite_number("x", "1"), "must be a number"),
        (lambda: check.finite_number("x", [1.0]), "must be a number"),
        (lambda: check.finite_number("x", math.nan), "must be finite"),
        (lambda: check.finite_number("x", 10**400), "must be at most the largest float"),
        (lambda: check.positive("x", 0), "must be greater than 0"),
        (lambda: check.at_least("x", 0.9, 1), "must be at least 1"),
        (lambda: check.delta_value("x", 1.0), r"must lie in \[0, 1\)"),
        (lambda: check.delta_value("x", 0.0, zero=False), r"must lie in \(0, 1\)"),
        (lambda: check.fraction("x", 0.0), "must lie strictly between 0 and 1"),
        (lambda: check.fraction("x", 1.0), "must lie strictly between 0 and 1"),
        (lambda: check.integer("x", 1.0), "must be a whole number"),
        (lambda: check.integer("x", np.bool_(True)), "must be a whole number"),
        (lambda: check.integer("x", 1, least=2), "must be at least 2"),
        (lambda: check.one_of("x", "c", ("a", "b")), "must be one of 'a', 'b'"),
        (lambda: check.flag("x", 1), "must be True or False"),
        (lambda: check.interval("x", 3), "must be a pair"),
        (lambda: check.interval("x", (1, 1)), "must have low < high"),
        (lambda: check.interval("x", (0, math.inf)), r"\[1\] must be finite"),
        (lambda: check.finite_array("x", "3"), "must be numeric"),
        (lambda: check.finite_array("x", ["3"]), "must be numeric"),
        (lambda: check.finite_array("x", [1j]), "must be numeric"),
        (lambda: check.finite_array("x", np.array([1j])), "must be numeric"),
        (lambda: check.finite_array("x", np.array(["2020-01-01"], dtype="M8[D]")), "must be numeric"),
        (lambda: check.finite_array("x", np.array([1], dtype="m8[D]")), "must be numeric"),
        (lambda: check.finite_array("x", [b"3"]), "must be numeric"),
        (lambda: check.finite_array("x", [[1.0], [1.0, 2.0]]), "must be numeric"),
        (lambda: check.finite_array("x", [1.0], ndim=2), r"must have 2 dimensions, got shape \(1,\)"),
        (lambda: check.finite_array("x", [math.inf]), "must be finite"),
        (lambda: check.finite_array("x", [10**400]), "must be finite"),
        (lambda: check.finite_array("x", np.ma.masked_array([1, 2], mask=[False, True])), "must be finite"),
        (lambda: check.finite_array("x", pd.Series([1, None], dtype="Int64")), "must be finite"),
        (lambda: check.positive_array("x", [1.0, 0.0]), "must be greater than 0 everywhere"),
        (lambda: check.non_negative_array("x", [1.0, -1.0]), "must be at least 0 everywhere"),
    ],
)
def test_what_is_refused_is_named(call: Callable[[], Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=f"^x ?{message}"):
        call()


def test_the_loss_must_fit_the_mechanism() -> None:
    assert check.privacy_loss(1, 0, "laplace") == (1.0, 0.0)
    assert check.privacy_loss(1, 1e-6, "gaussian") == (1.0, 1e-6)
    for epsilon, delta, mechanism, named in (
        (1, 1e-6, "laplace", "delta"),
        (1, 0, "gaussian", "delta"),
        (0, 0, "laplace", "epsilon"),
        (1, 0, "cauchy", "mechanism"),
    ):
        with pytest.raises(ValueError, match=f"^{named} must"):
            check.privacy_loss(epsilon, delta, mechanism)


def test_a_seed_is_no_generator() -> None:
    generator = np.random.default_rng(1)
    assert check.seeded_generator(None) is None
    assert check.seeded_generator(generator) is check.analyst_generator(generator) is generator
    assert isinstance(check.analyst_generator(None), np.random.Generator)
    for seed in (1, np.random.RandomState(1)):
        with pytest.raises(TypeError, match=r"^rng must"):
            check.seeded_generator(seed)


DECLARED = {
    "naive": {},
    "gibbs": {"burn_in": check.whole_option(0), "kind": check.choice_option("a", "b")},
    "long": {"steps": check.whole_option(1), "width": check.positive_option()},
}


def test_the_options_of_a_method_are_checked_and_returned() -> None:
    assert check.method_options("naive", {}, DECLARED) == {}
    given = {"burn_in": np.int64(3), "kind": "a"}
    assert check.method_options("gibbs", given, DECLARED) == {"burn_in": 3, "kind": "a"}


@pytest.mark.parametrize(
    ("method", "given", "error", "words"),
    [
        ("bogus", {}, ValueError, ["method", "'naive', 'gibbs', 'long'", "'bogus'"]),
        (None, {}, ValueError, ["method", "None"]),
        ("naive", {"burn_in": 5}, TypeError, ["method 'naive'", "'burn_in'", "'gibbs' would", "Its options: none"]),
        ("gibbs", {"steps": 5}, TypeError, ["'steps'", "'long' would", "burn_in: a whole number", "kind: one of"]),
        ("gibbs", {"typo": 5}, TypeError, ["'typo'.", "burn_in: a whole number of at least 0"]),
        ("gibbs", {"burn_in": -1}, ValueError, ["burn_in must be at least 0, got -1"]),
        ("gibbs", {"kind": "c"}, ValueError, ["kind must be one of 'a', 'b', got 'c'"]),
        ("long", {"width": 0.0}, ValueError, ["width must be greater than 0"]),
    ],
)
def test_an_option_that_a_method_does_not_take_is_named_with_those_it_takes(
    method: object, given: dict[str, object], error: type[Exception], words: list[str]
) -> None:
    with pytest.raises(error) as caught:
        check.method_options(method, given, DECLARED)
    assert all(word in str(caught.value) for word in words)
