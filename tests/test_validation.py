"""Checks of arguments: what they let pass, what they refuse, and that they name it."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal
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
        (lambda: check.finite_number("x", np.ma.masked), "must be finite"),
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
        (lambda: check.finite_array("x", np.array(["3", 1.0], dtype=object)), "must be numeric"),
        (
            lambda: check.finite_array("x", [[1.0, 2.0], np.ma.masked_array([1.0, 2.0], [True, False])]),
            "must be finite",
        ),
        (lambda: check.finite_array("x", [1.0, None]), "must be finite"),
        (lambda: check.whole_array("x", [1.0]), "must hold whole numbers, got dtype float64"),
        (lambda: check.whole_array("x", [True]), "must hold whole numbers, got dtype bool"),
        (lambda: check.whole_array("x", ["1"]), "must hold whole numbers, got dtype"),
        (lambda: check.whole_array("x", [1, None]), "must hold whole numbers: some entries are missing"),
        (lambda: check.whole_array("x", np.ma.masked_array([1, 2], [False, True])), "must hold .* missing"),
        (lambda: check.whole_array("x", [[1], np.ma.masked_array([1], [True])]), "must hold .* missing"),
        (lambda: check.whole_array("x", [2**63]), "must fit in signed 64-bit integers"),
        (lambda: check.whole_array("x", [-(10**400)]), "must fit in signed 64-bit integers"),
        (lambda: check.positive_array("x", [1.0, 0.0]), "must be greater than 0 everywhere"),
        (lambda: check.non_negative_array("x", [1.0, -1.0]), "must be at least 0 everywhere"),
    ],
)
def test_what_is_refused_is_named(call: Callable[[], Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=f"^x ?{message}"):
        call()


HIDDEN = np.ma.masked_array([7.0, 2.0], mask=[True, False])


@pytest.mark.parametrize(
    ("value", "floats"),
    [
        ([1, 2**64], [1.0, 2.0**64]),
        ([10**400, -(10**400), Fraction(10**400, 3)], [math.inf, -math.inf, math.inf]),
        ([Decimal("1e400"), Decimal("sNaN"), Fraction(1, 2)], [math.inf, math.nan, 0.5]),
        ([math.inf, -math.inf, math.nan, True], [math.inf, -math.inf, math.nan, 1.0]),
        (np.array(["1e4000", "-1"], dtype=np.longdouble), [math.inf, -1.0]),
        (np.array([np.bool_(True), 2, 0.5], dtype=object), [1.0, 2.0, 0.5]),
        ([None, pd.NA, pd.NaT, 1, np.ma.masked], [math.nan, math.nan, math.nan, 1.0, math.nan]),
        (HIDDEN, [math.nan, 2.0]),
        (HIDDEN.astype(int), [math.nan, 2.0]),
        (HIDDEN.astype(object), [math.nan, 2.0]),
        ([HIDDEN, [1, 2]], [[math.nan, 2.0], [1.0, 2.0]]),
        (([HIDDEN], [[1, 2]]), [[[math.nan, 2.0]], [[1.0, 2.0]]]),
        (pd.Series([1, None], dtype="Int64"), [1.0, math.nan]),
    ],
)
def test_every_form_of_a_real_number_is_a_float_by_itself(value: Any, floats: list[Any]) -> None:
    np.testing.assert_array_equal(check.real_array("x", value), floats)


@pytest.mark.parametrize(
    "value",
    [["1"], np.array([1, "1"], dtype=object), [b"1"], [1j], [{}], np.array([(1, 2)], "i,i"), HIDDEN.astype(str)],
)
def test_what_is_no_real_number_is_a_type_error(value: Any) -> None:
    with pytest.raises(TypeError, match=r"^x must be numeric \(real numbers or booleans\), got"):
        check.real_array("x", value)


def test_what_hides_nothing_is_handed_on_as_it_is() -> None:
    rows = [[1.0], [2.0]]
    array = np.arange(3.0)
    assert check.unmasked(rows) is rows
    assert check.unmasked(array) is array
    assert np.shares_memory(check.unmasked(np.ma.masked_array(array)), array)


def test_whole_numbers_of_any_type_are_64_bit_integers() -> None:
    for value in ([1, 0], np.array([1, 0], np.uint8), pd.Series([1, 0], dtype="Int64"), np.array([1, 0], object)):
        array = check.whole_array("x", value)
        assert array.dtype == np.int64
        assert array.tolist() == [1, 0]
    assert check.whole_array("x", [True, False], booleans=True).tolist() == [1, 0]


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
