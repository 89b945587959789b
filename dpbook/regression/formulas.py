"""``"wage ~ age + C(region)"``: a formula, read by formulaic (extra ``formula``), as a response and terms of a schema.

formulaic reads the grammar alone; nothing of it ever sees a record, because what it would do with one (levels, means,
knots) it takes from all records together. Labels and bounds come from the schema.
"""

from __future__ import annotations

import ast
import importlib
from typing import Any

from dpbook.schema import Category, Flag, Schema

__all__: list[str] = []


def read_formula(formula: str, schema: Schema) -> tuple[str, tuple[tuple[str, ...], ...]]:
    """Return the response and the terms that a formula names; raise, saying why, on what they cannot be."""
    if not isinstance(formula, str):
        raise TypeError(f"formula must be text such as 'wage ~ age + C(region)', got {type(formula).__name__}")
    try:
        formulaic: Any = importlib.import_module("formulaic")
    except ImportError:
        raise ImportError('formula needs formulaic: pip install "dpbook[formula]"') from None
    try:
        parsed = formulaic.Formula(formula)
        left, right = [list(side) for side in (parsed.lhs, parsed.rhs)]
        sides = [[[factor.expr for factor in term.factors] for term in side] for side in (left, right)]
    except (formulaic.errors.FormulaicError, AttributeError, LookupError, TypeError, ValueError, SyntaxError) as error:
        raise ValueError(f"formula must read 'response ~ terms', got {formula!r} ({error})") from None
    if len(sides[0]) != 1 or len(sides[0][0]) != 1:
        raise ValueError(f"formula must have one response left of ~, got {formula!r}")
    if ["1"] not in sides[1]:
        raise ValueError("formula must keep the intercept: numbers are centred at the middle of their bounds")
    terms = [tuple(_factor(text, schema) for text in term) for term in sides[1] if term != ["1"]]
    if any(text.replace(".", "", 1).isdigit() for term in terms for text in term):
        raise ValueError(f"formula must not hold numbers as terms, got {formula!r}")
    return sides[0][0][0], tuple(dict.fromkeys(terms))


def _factor(text: str, schema: Schema) -> str:
    """Return the column that ``C(column)`` names, or the text as it is."""
    try:
        node = ast.parse(text, mode="eval").body
    except SyntaxError:  # a name that is no identifier, or what the design will refuse
        return text
    if not (isinstance(node, ast.Call) and ast.unparse(node.func) == "C"):
        return text
    name = ast.unparse(node.args[0]) if node.args else ""
    if len(node.args) != 1 or node.keywords:
        raise ValueError(
            f"formula has the term {text!r}: labels and their reference, the first, are those of the schema. Write "
            f"C({name}), and put the reference first in its Category"
        )
    if not isinstance(schema.columns.get(name), (Category, Flag)):
        raise ValueError(
            f"formula has the term {text!r}, but the schema does not list the labels of {name!r}: taken from the "
            "records, they would tell who is among them. Declare it as a Category"
        )
    return name
