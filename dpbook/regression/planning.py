"""Which regression is meant: a schema, a response and terms, from what a caller says. Reads no record's values."""

from __future__ import annotations

from typing import Any

from dpbook._validation import column_labels, flag
from dpbook.regression.coordinates import INTERCEPT, RESPONSE, WHERE_FROM
from dpbook.regression.design import Design, restricted
from dpbook.regression.expressions import expression
from dpbook.regression.formulas import read_formula
from dpbook.schema import Number, Schema
from dpbook.sensitivity import check_share

__all__: list[str] = []


def designed(schema: Any, y: Any, formula: Any, x_bounds: Any, y_bounds: Any) -> Design:
    """Return the regression that a schema and a formula, or the name of the response, describe; raise on others."""
    if not isinstance(schema, Schema):
        raise TypeError(f"schema must be a Schema{' beside a formula' * (formula is not None)}, got {schema!r:.60}")
    if x_bounds is not None:
        raise ValueError("x_bounds must be left out beside a schema, which has the bounds of its columns")
    if formula is not None:
        if y is not None or y_bounds is not None:
            raise ValueError(
                "y and y_bounds must be left out beside a formula: it names the response, the schema bounds it"
            )
        response, terms = read_formula(formula, schema)
        return Design(_used(schema, response, terms), response, terms)
    response, whole = _response(schema, y, y_bounds)
    terms = tuple((name,) for name in whole.columns if name != response)
    return Design(whole, response, terms)


def by_cell_only(intercept: Any, moments: Any, check: Any) -> None:
    """Raise on what a release by cell does not have."""
    if not flag("intercept", intercept) or flag("moments", moments):
        raise ValueError("intercept must be True and moments False beside a schema: sums are by cell")
    if check_share(check):
        raise ValueError("check must be 0 beside a schema: there is no count of clipped records by cell")


def _response(schema: Schema, y: Any, y_bounds: Any) -> tuple[str, Schema]:
    """Return the response's name, and the schema with it."""
    if y is None or (isinstance(y, (int, float)) and not isinstance(y, str)):
        raise TypeError(f"y must be the name of a column or the responses themselves beside a schema, got {y!r}")
    if isinstance(y, str) and y in schema.columns:
        if y_bounds is not None:
            raise ValueError(f"y_bounds must be left out where the schema has the response, as it has {y!r}")
        return y, schema
    if y_bounds is None:
        raise TypeError(f"y_bounds must be given where the schema has no column of the response: {WHERE_FROM}")
    own = y if isinstance(y, str) else (column_labels(y) or ["y"])[0]
    name = own if isinstance(own, str) and own not in (*schema.columns, INTERCEPT) else RESPONSE
    try:
        last = Number(*y_bounds)
    except TypeError:
        raise TypeError(f"y_bounds must be a pair (low, high), got {y_bounds!r}") from None
    missing = schema.missing if isinstance(schema.missing, str) else dict(schema.missing)
    return name, Schema({**schema.columns, name: last}, missing)


def _used(schema: Schema, response: str, terms: tuple[tuple[str, ...], ...]) -> Schema:
    """Return the part of a schema that a formula uses."""
    bounds = {name: (float(low), float(high)) for name, (low, high) in schema.bounds.items()}
    names = [response, *(name for term in terms for name in term)]
    columns = [name if name in schema.columns else expression(name, bounds)[0].column for name in names]
    return restricted(schema, columns)
