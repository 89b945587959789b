"""What a plan may ask for: for each kind of release, what it takes, what it would be worth, and how it is made."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpbook._late import pd
from dpbook.budget import PrivacyBudget
from dpbook.desk.plan import Plan, Request
from dpbook.preview import Preview
from dpbook.release import Release
from dpbook.schema import Flag, Number, Schema

__all__: list[str] = []

_WIDEST = 1e100


@dataclass(frozen=True)
class Kind:
    """One kind of release: the options that it needs and may take, and what to do with them."""

    needs: tuple[str, ...]
    takes: tuple[str, ...]
    columns: Callable[[Mapping[str, Any]], list[str]]
    preview: Callable[[Plan, Request, int], Preview]
    make: Callable[..., Release]


def kind_of(request: Request) -> Kind:
    """Return the kind that a request asks for; raise where there is none such, or its options are not its own."""
    where = f"[release.{request.name}]"
    if request.kind not in KINDS:
        raise ValueError(f"kind of {where} must be one of {', '.join(KINDS)}, got {request.kind!r}")
    kind = KINDS[request.kind]
    if absent := [name for name in kind.needs if name not in request.options]:
        raise ValueError(f"{where} needs {' and '.join(absent)}")
    allowed = {*kind.needs, *kind.takes}
    if unknown := sorted(set(request.options) - allowed):
        raise ValueError(
            f"{where} takes {', '.join(sorted(allowed))}; it does not know {', '.join(map(repr, unknown))}"
        )
    return kind


def check(plan: Plan) -> None:
    """Raise what is wrong with a plan's requests, from public numbers alone, by making each on made-up records."""
    for request in plan.requests:
        kind = kind_of(request)
        names = kind.columns(request.options)
        try:
            made_up = plan.schema(names).example(8, rng=np.random.default_rng(0))
            kind.make(plan, request, made_up, rng=np.random.default_rng(0), budget=None)
        except (TypeError, ValueError) as error:
            raise ValueError(f"[release.{request.name}]: {error}") from error


def _common(request: Request) -> dict[str, Any]:
    return {"epsilon": request.epsilon, "delta": request.delta, "mechanism": request.mechanism}


def _column(options: Mapping[str, Any]) -> list[str]:
    return [_text("column", options["column"])]


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{name} must be the name of a column, got {value!r}")
    return value


def _texts(name: str, value: Any) -> list[str]:
    if not isinstance(value, list) or not value or len(set(map(str, value))) < len(value):
        raise ValueError(f"{name} must be a list of different columns, got {value!r}")
    return [_text(name, each) for each in value]


def _mean(plan: Plan, request: Request, table: Any, **at: Any) -> Release:
    from dpbook import expfam

    name = request.options["column"]
    extra = {key: request.options[key] for key in ("bins", "shape") if key in request.options}
    schema = plan.schema([name])
    return expfam.release_mean(table, plan.bounds(name), schema=schema, **_common(request), **extra, **at)


def _preview_mean(plan: Plan, request: Request, n: int) -> Preview:
    from dpbook import expfam

    extra = {"shape": request.options["shape"]} if "shape" in request.options else {}
    return expfam.preview_mean(plan.bounds(request.options["column"]), n=n, **_common(request), **extra)


def _seeded() -> dict[str, Any]:
    return {"rng": np.random.default_rng(0), "budget": None}


def _histogram(plan: Plan, request: Request, table: Any, **at: Any) -> Release:
    from dpbook import expfam

    name, kind = request.options["column"], plan.column(request.options["column"])
    schema = plan.schema([name])
    if isinstance(kind, Number) or "bins" in request.options:
        if "bins" not in request.options:
            raise ValueError("bins must be given, a list of edges, for a column of numbers")
        return expfam.release_histogram(table, request.options["bins"], schema=schema, **_common(request), **at)
    if isinstance(kind, Flag) and name not in plan.counted:
        answers = (np.where(frame[name], "yes", "no").astype(object) for frame in _applied(schema, table))
        return expfam.release_histogram(answers, labels=["no", "yes"], **_common(request), **at)
    return expfam.release_histogram(table, schema=schema, **_common(request), **at)


def _applied(schema: Schema, table: Any) -> Iterator[pd.DataFrame]:
    """Yield frames of a schema from a table or a stream of them, none before it is asked for."""
    made = schema.apply(table)
    yield from made if isinstance(made, Iterator) else [made]


def _quantiles(plan: Plan, request: Request, table: Any, **at: Any) -> Release:
    from dpbook import expfam

    name = request.options["column"]
    return expfam.release_quantiles(
        table, request.options["quantiles"], plan.bounds(name), schema=plan.schema([name]), **_common(request), **at
    )


def _preview_quantiles(plan: Plan, request: Request, n: int) -> Preview:
    from dpbook import expfam

    bounds = plan.bounds(request.options["column"])
    return expfam.preview_quantiles(request.options["quantiles"], bounds, n=n, **_common(request))


def _preview_cells(plan: Plan, request: Request, n: int) -> Preview:
    names = KINDS[request.kind].columns(request.options)
    made_up = plan.schema(names).example(8, rng=np.random.default_rng(0))
    made = KINDS[request.kind].make(plan, request, made_up, **_seeded())
    first = next(iter(made.values))
    scale = made.scale[first]
    noise = float(np.sqrt(2 if request.mechanism == "laplace" else 1) * scale / n)
    return Preview((f"share of a cell of {' × '.join(names)}",), made.sensitivity[first], scale, noise_sd=noise)


def _share(plan: Plan, request: Request, table: Any, **at: Any) -> Release:
    from dpbook import expfam

    name = request.options["column"]
    if not isinstance(plan.column(name), Flag):
        raise ValueError(f"column {name!r} must be a flag for a share; of a category release a histogram")
    return expfam.release(table, expfam.Binomial(), schema=plan.schema([name]), **_common(request), **at)


def _preview_share(plan: Plan, request: Request, n: int) -> Preview:
    from dpbook import expfam

    return expfam.preview(expfam.Binomial(), n=n, **_common(request))


def _regression_columns(options: Mapping[str, Any]) -> list[str]:
    return [*_texts("covariates", options["covariates"]), _text("response", options["response"])]


def _regression_bounds(plan: Plan, request: Request) -> dict[str, Any]:
    covariates, response = request.options["covariates"], request.options["response"]
    return {"x_bounds": {name: plan.bounds(name) for name in covariates}, "y_bounds": plan.bounds(response)}


def _regression(plan: Plan, request: Request, table: Any, **at: Any) -> Release:
    from dpbook import regression

    settings = {**_regression_bounds(plan, request), **_common(request), **at}
    names = _regression_columns(request.options)
    wide = Schema(
        {name: Number(-_WIDEST, _WIDEST) for name in names}, missing=plan.schema(names).missing
    )  # a release clips numbers itself
    rows = (frame[names] for frame in _applied(wide, table))
    return regression.release(rows, request.options["response"], **settings)


def _preview_regression(plan: Plan, request: Request, n: int) -> Preview:
    from dpbook import regression

    return regression.preview(n=n, **_regression_bounds(plan, request), **_common(request))


def _table_columns(options: Mapping[str, Any]) -> list[str]:
    cliques = options["tables"]
    if not isinstance(cliques, list) or not cliques:
        raise ValueError(f"tables must be a list of lists of columns, got {cliques!r}")
    return list(dict.fromkeys(name for clique in cliques for name in _texts("tables", clique)))


def _tables(plan: Plan, request: Request, table: Any, **at: Any) -> Release:
    from dpbook import graphical

    if request.delta:
        raise ValueError("delta must be 0 for tables, which have Laplace noise")
    names = _table_columns(request.options)
    schema = plan.schema(names)
    return graphical.release(_applied(schema, table), schema, request.options["tables"], epsilon=request.epsilon, **at)


KINDS: dict[str, Kind] = {
    "mean": Kind(("column",), ("bins", "shape"), _column, _preview_mean, _mean),
    "histogram": Kind(("column",), ("bins",), _column, _preview_cells, _histogram),
    "quantiles": Kind(("column", "quantiles"), (), _column, _preview_quantiles, _quantiles),
    "share": Kind(("column",), (), _column, _preview_share, _share),
    "regression": Kind(("response", "covariates"), (), _regression_columns, _preview_regression, _regression),
    "tables": Kind(("tables",), (), _table_columns, _preview_cells, _tables),
}


def make(
    plan: Plan, request: Request, table: Any, rng: np.random.Generator | None, budget: PrivacyBudget | None
) -> Release:
    """Make one release of a plan from the columns that it needs, in a frame or in a stream of frames."""
    return kind_of(request).make(plan, request, table, rng=rng, budget=budget)
