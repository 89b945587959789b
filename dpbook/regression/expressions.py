"""Transforms of one column by public constants: ``np.log(wage)``, ``(age - 40) / 10``.

An expression is read as text, by its own grammar and by nothing else, so that a release that came from elsewhere can
name one safely. Every step is monotone on the bounds, so that the bounds of the result are its values at theirs. What
depends on other records, such as a mean or the knots of a spline, has no place here: one record would move it for all.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpbook._arrays import Array

__all__: list[str] = []

FUNCTIONS: dict[str, tuple[Callable[[Any], Any], float]] = {  # and the least argument that they take
    "log": (np.log, np.nextafter(0, 1)),
    "log2": (np.log2, np.nextafter(0, 1)),
    "log10": (np.log10, np.nextafter(0, 1)),
    "log1p": (np.log1p, np.nextafter(-1, 0)),
    "sqrt": (np.sqrt, 0.0),
    "exp": (np.exp, -np.inf),
}
_FROM_DATA = {
    *("scale", "center", "standardize", "bs", "cr", "cc", "cs", "poly", "hashed", "lag", "cut", "qcut", "rank"),
    *("mean", "std", "min", "max", "median", "quantile"),
}
_STEPS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: np.add,
    ast.Sub: np.subtract,
    ast.Mult: np.multiply,
    ast.Div: np.divide,
    ast.Pow: np.power,
}


@dataclass(frozen=True)
class Expression:
    """A monotone function of one column, as it was written."""

    text: str
    column: str
    steps: tuple[Callable[[Any], Any], ...]

    def __call__(self, values: Array) -> Array:
        """Return the function of some values."""
        for step in self.steps:
            values = step(values)
        return np.asarray(values, dtype=np.float64)


class _Reader:
    """Reads the tree of an expression into steps, with the bounds after each of them."""

    def __init__(self, text: str, bounds: dict[str, tuple[float, float]]) -> None:
        self.text, self.bounds = text, bounds

    def refuse(self, why: str) -> ValueError:
        return ValueError(f"formula has the term {self.text!r}, {why}")

    def read(self, node: ast.expr) -> Any:
        """Return a number, or (column, steps, low, high)."""
        if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)) and not isinstance(node.value, bool):
            return float(node.value)
        if isinstance(node, ast.Name):
            if node.id not in self.bounds:
                raise self.refuse(f"and {node.id!r} is no column with bounds in the schema: {list(self.bounds)} are")
            return node.id, (), *self.bounds[node.id]
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.UAdd)):
            inner = self.read(node.operand)
            sign = -1.0 if isinstance(node.op, ast.USub) else 1.0
            return sign * inner if isinstance(inner, float) else self.then(inner, lambda x: sign * x)
        if isinstance(node, ast.BinOp) and type(node.op) in _STEPS:
            return self.binary(node.op, self.read(node.left), self.read(node.right))
        if isinstance(node, ast.Call):
            return self.call(node)
        raise self.refuse("which is neither a column nor a transform of one by constants")

    def binary(self, kind: ast.operator, left: Any, right: Any) -> Any:
        step = _STEPS[type(kind)]
        if isinstance(left, float) and isinstance(right, float):
            with np.errstate(all="ignore"):
                return self.number(step(left, right))
        if not isinstance(left, float) and not isinstance(right, float):
            raise self.refuse("which uses columns twice. A product of two is written a:b")
        if isinstance(right, float):
            _, _, low, high = left
            whole_odd = right == round(right) and right % 2 == 1
            if isinstance(kind, ast.Pow) and low < 0 and not (right > 0 and whole_odd):
                raise self.refuse(f"a power that is not monotone between the bounds {low:g} and {high:g}")
            return self.then(left, lambda x: step(x, right))
        _, _, low, high = right
        if isinstance(kind, ast.Pow) and not left > 0:
            raise self.refuse("a power of a number that is not positive")
        if isinstance(kind, ast.Div) and low <= 0 <= high:
            raise self.refuse(f"a division by a column whose bounds {low:g} and {high:g} hold zero")
        return self.then(right, lambda x: step(left, x))

    def call(self, node: ast.Call) -> Any:
        name = ast.unparse(node.func)
        short = name.rpartition(".")[2]
        if short in _FROM_DATA:
            raise self.refuse(
                f"and {short}() takes its constants from the records: one record would move them for all. Write public "
                "constants, such as (age - 40) / 10"
            )
        if name not in FUNCTIONS and not (name.startswith(("np.", "numpy.")) and short in FUNCTIONS) and name != "I":
            raise self.refuse(f"and {name}() is not among {', '.join(FUNCTIONS)}")
        if len(node.args) != 1 or node.keywords:
            raise self.refuse(f"and {name}() takes one argument")
        inner = self.read(node.args[0])
        if name == "I":
            return inner
        function, least = FUNCTIONS[short]
        if isinstance(inner, float):
            return self.number(function(inner))
        if inner[2] < least:
            raise self.refuse(f"and {short}() is not defined at the lower bound {inner[2]:g}")
        return self.then(inner, function)

    def then(self, inner: Any, step: Callable[[Any], Any]) -> Any:
        column, steps, low, high = inner
        with np.errstate(all="ignore"):
            ends = [float(step(low)), float(step(high))]
        if not np.isfinite(ends).all() or ends[0] == ends[1]:
            raise self.refuse(f"whose bounds would be {ends[0]:g} and {ends[1]:g}")
        return column, (*steps, step), min(ends), max(ends)

    def number(self, value: Any) -> float:
        if not np.isfinite(value):
            raise self.refuse("in which a constant is not finite")
        return float(value)


def expression(text: str, bounds: dict[str, tuple[float, float]]) -> tuple[Expression, tuple[float, float]]:
    """Return a transform of one column, and the bounds of its values; raise where it is none, saying why."""
    if text in bounds:  # also a name that is no identifier
        return Expression(text, text, ()), bounds[text]
    reader = _Reader(text, bounds)
    try:
        tree = ast.parse(text.strip(), mode="eval").body
        found = reader.read(tree)
    except (SyntaxError, RecursionError, MemoryError, OverflowError, ZeroDivisionError):
        raise reader.refuse("which is neither a column nor a transform of one by constants") from None
    if isinstance(found, float):
        raise reader.refuse("a constant")
    column, steps, low, high = found
    return Expression(text, column, steps), (low, high)
