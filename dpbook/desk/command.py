"""The command line: ``dpbook plan``, ``preview``, ``release``, ``infer``, ``report`` and ``audit``.

``release`` and ``audit`` are the only commands that make noise; ``release`` alone reads records, and prints of them
nothing that was not paid for. Exit codes: 0 done, 1 refused or refuted, 2 wrong call or plan, 3 files that cannot be
read or written.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import os
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from dpbook._version import __version__
from dpbook.budget import BudgetExceeded, PrivacyBudget, fingerprint
from dpbook.desk import kinds, reading
from dpbook.desk.plan import COLUMN_KINDS, Plan, Request, draft
from dpbook.release import Release
from dpbook.schema import Category, Flag

__all__ = ["main"]

DONE, REFUSED, WRONG, FILES = 0, 1, 2, 3
_AUDITED = 40  # made-up records of an audit


class Refused(Exception):
    """A command was understood and not carried out."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Carry out one command and return its exit code.

    Explained in :doc:`/book/background/composition`.

    Parameters
    ----------
    arguments : sequence of str, optional
        By default those of the process.

    Returns
    -------
    int
        0 done, 1 refused or refuted, 2 wrong call or plan, 3 files that cannot be read or written.

    Examples
    --------
    >>> from dpbook.desk.command import main
    >>> main(["infer", "nowhere.json", "--json"])
    3
    """
    parser = _parser()
    options = parser.parse_args(arguments)
    if not hasattr(options, "run"):
        parser.print_help()
        return WRONG
    run: Callable[[argparse.Namespace], int] = options.run
    try:
        return run(options)
    except (BudgetExceeded, Refused) as error:
        return _failed(REFUSED, error)
    except (OSError, reading.UnreadableData) as error:
        return _failed(FILES, error)
    except (TypeError, ValueError) as error:
        return _failed(WRONG, error)
    except KeyboardInterrupt:
        return _failed(REFUSED, "interrupted; what was charged is in the ledger")


def _failed(code: int, error: object) -> int:
    """Say in one line what went wrong."""
    print(f"dpbook: {' '.join(str(error).split())}", file=sys.stderr)
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="dpbook", description="Differentially private releases from a plan.")
    parser.add_argument("--version", action="version", version=f"dpbook {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")

    def command(name: str, run: Callable[[argparse.Namespace], int], help: str) -> argparse.ArgumentParser:
        made = commands.add_parser(name, help=help, description=help)
        made.set_defaults(run=run)
        made.add_argument("--json", action="store_true", help="print JSON instead of words")
        return made

    made = command("plan", _plan, "write a plan from the header of a table and your answers")
    made.add_argument("table", type=Path, help="a CSV or Parquet file; nothing but its header is read")
    made.add_argument("--out", type=Path, default=Path("plan.toml"), help="default: plan.toml")
    made.add_argument("--blank", action="store_true", help="ask nothing: write a plan to be filled in")
    made = command("preview", _preview, "say what every release of a plan would be worth")
    made.add_argument("plan", type=Path)
    made.add_argument("--n", type=int, required=True, help="the public number of records")
    made = command("release", _release, "make the releases of a plan, charging a ledger")
    made.add_argument("plan", type=Path)
    made.add_argument("table", type=Path, help="a CSV or Parquet file")
    made.add_argument("--ledger", type=Path, required=True, help="the project's ledger; made where there is none")
    made.add_argument("--out", type=Path, required=True, help="a folder for the releases, one JSON file each")
    made.add_argument("--only", action="append", metavar="NAME", help="this release of the plan; may be repeated")
    made.add_argument("--teaching-seed", type=int, help="seeded noise, to try things out: no private release")
    made = command("infer", _infer, "summarise the posterior of a release")
    made.add_argument("release", type=Path, help="a JSON file that `dpbook release` wrote")
    made.add_argument("--draws", type=int, default=4000)
    made.add_argument("--level", type=float, default=0.95, help="of the intervals")
    made.add_argument("--seed", type=int, help="for the same draws again")
    made = command("report", _report, "write the page about a ledger that a data-protection officer reads")
    made.add_argument("ledger", type=Path)
    made.add_argument("--html", type=Path, metavar="FILE", help="write a page of its own instead of printing Markdown")
    made = command("audit", _audit, "try to refute the releases of a plan on made-up records")
    made.add_argument("plan", type=Path)
    made.add_argument("--trials", type=int, default=5000, help="runs on each side; default: 5000")
    made.add_argument("--seed", type=int, default=0)
    return parser


# Before any record is read


def _plan(options: argparse.Namespace) -> int:
    names = reading.header(options.table)
    if options.out.exists():
        raise Refused(f"{options.out} exists already; name another file with --out")
    answers: dict[str, dict[str, Any]] = {}
    project: dict[str, Any] = {}
    if not options.blank:
        project = {
            "unit": _ask("Whose privacy is promised (one patient, one household, one visit)?", "one record"),
            "epsilon": _number(_ask("Total epsilon of the project?", "1")),
            "delta": _number(_ask("Total delta (0 for none)?", "0")),
        }
        for name in names:
            answers[name] = _asked(name)
    kept = [name for name in names if options.blank or answers[name]]
    _write(options.out, draft(kept, answers, project, options.table.name))
    words = f"{options.out}: {len(kept)} columns. Add the releases that you want."
    _say(options, {"plan": str(options.out), "columns": kept}, words)
    return DONE


def _ask(question: str, default: str) -> str:
    print(f"{question} [{default}] ", end="", file=sys.stderr, flush=True)
    answer = sys.stdin.readline()
    if not answer:
        raise ValueError("the answers ended early; --blank writes a plan without questions")
    return answer.strip() or default


def _asked(name: str) -> dict[str, Any]:
    kind = _ask(f"{name}: {', '.join(COLUMN_KINDS)}, or skip?", "skip")
    if kind == "skip":
        return {}
    if kind not in COLUMN_KINDS:
        raise ValueError(f"kind of {name!r} must be one of {', '.join(COLUMN_KINDS)} or skip, got {kind!r}")
    if kind == "category":
        labels = [label.strip() for label in _ask(f"{name}: labels, separated by commas?", "").split(",")]
        return {"kind": kind, "labels": [label for label in labels if label]}
    if kind == "flag":
        return {"kind": kind}
    low = _number(_ask(f"{name}: lowest possible value?", "0"))
    return {"kind": kind, "low": low, "high": _number(_ask(f"{name}: highest possible value?", "100"))}


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise ValueError(f"an answer must be a number, got {text!r}") from None
    return int(value) if value.is_integer() else value


def _preview(options: argparse.Namespace) -> int:
    plan = _checked(options.plan)
    found = {request.name: kinds.kind_of(request).preview(plan, request, options.n) for request in plan.requests}
    total = plan.total
    content = {
        name: {"noise_scale": look.noise_scale, "sensitivity": look.sensitivity, **look.summary().to_dict()}
        for name, look in found.items()
    }
    lines = []
    for request in plan.requests:
        look = found[request.name]
        lines += [f"{request.name} ({request.kind}, ε = {request.epsilon:g}): noise scale {look.noise_scale:.4g}"]
        lines += [f"    {line}" for line in look.summary().round(5).to_string().splitlines()]
    lines.append(f"Together ε = {total:.6g} by {plan.accounting}, of {plan.epsilon:g}.")
    _say(options, {"releases": content, "epsilon": total, "of": plan.epsilon}, "\n".join(lines))
    return DONE if total <= plan.epsilon * (1 + 1e-12) else REFUSED


def _checked(path: Path) -> Plan:
    """Return a plan whose requests can all be made."""
    plan = Plan.read(path)
    if not plan.requests:
        raise ValueError(f"{path}: the plan asks for no release; add a table [release.NAME]")
    kinds.check(plan)
    return plan


# What reads records


def _release(options: argparse.Namespace) -> int:
    plan = _checked(options.plan)
    requests = _wanted(plan, options.only)
    reading.header(options.table)  # a file that is not there must not leave a ledger behind
    taken = [request.name for request in requests if (options.out / f"{request.name}.json").exists()]
    if taken:
        raise Refused(f"{options.out} holds {', '.join(taken)} already; name other releases of the plan with --only")
    terms = {"unit": plan.unit, "accounting": plan.accounting}
    budget = PrivacyBudget.open(options.ledger, plan.epsilon, plan.delta, **terms)
    if not budget._fits(request.loss for request in requests):
        asked = " + ".join(f"{request.epsilon:g}" for request in requests)
        raise Refused(f"the plan asks for more than is left (ε = {asked}); nothing was released. {budget.afford()}")
    options.out.mkdir(parents=True, exist_ok=True)
    rng = None if options.teaching_seed is None else np.random.default_rng(options.teaching_seed)
    _look_through(plan, requests, options)
    made = {}
    for request in requests:
        columns = kinds.kind_of(request).columns(request.options)
        with budget._naming(request.name):
            release = kinds.make(plan, request, _shown(request.name, plan, columns, options), rng, budget)
        _write(options.out / f"{request.name}.json", release.to_json())
        made[request.name] = fingerprint(release)
    words = [f"{options.out / name}.json  {mark[:12]}" for name, mark in made.items()]
    content = {"releases": made, "spent": budget.spent, "left": budget.afford()}
    _say(options, content, "\n".join([*words, budget.afford()]))
    return DONE


def _look_through(plan: Plan, requests: Sequence[Request], options: argparse.Namespace) -> None:
    """Read all records once before anything is charged, so that what a schema refuses stops the whole plan."""
    wanted = {request.name: kinds.kind_of(request).columns(request.options) for request in requests}
    columns = list(dict.fromkeys(name for names in wanted.values() for name in names))
    schemas = [plan.schema([name]) for name in columns]
    for frame in _shown("a first look", plan, columns, options):
        for schema in schemas:
            schema.apply(frame)


def _shown(what: str, plan: Plan, columns: list[str], options: argparse.Namespace) -> Iterator[Any]:
    """Yield frames of a table's columns, and say on a terminal how far one is."""
    frames = reading.frames(options.table, plan, columns)
    quiet = options.json or not sys.stderr.isatty()
    total = None if quiet else reading.count(options.table)
    with tqdm(desc=what, total=total, unit=" records", disable=quiet) as bar:
        for frame in frames:
            yield frame
            bar.update(len(frame))


def _wanted(plan: Plan, only: Sequence[str] | None) -> list[Request]:
    names = [request.name for request in plan.requests]
    if unknown := [name for name in only or () if name not in names]:
        raise ValueError(f"--only must name releases of the plan ({', '.join(names)}), got {', '.join(unknown)}")
    return [request for request in plan.requests if only is None or request.name in only]


# What reads releases and ledgers


def _infer(options: argparse.Namespace) -> int:
    try:
        release = Release.from_json(options.release.read_text(encoding="utf-8"))
    except UnicodeDecodeError:
        raise ValueError(f"{options.release} is not a dpbook release") from None
    rng = np.random.default_rng(options.seed)
    with warnings.catch_warnings(record=True) as spoken:
        warnings.simplefilter("always")
        summary, notes = _summary(release, options, rng)
    doubts = [" ".join(str(each.message).split()) for each in spoken if issubclass(each.category, UserWarning)]
    for doubt in doubts:
        print(f"dpbook: warning: {doubt}", file=sys.stderr)
    content = {"model": release.model, "summary": summary.to_dict(orient="index"), "warnings": doubts, "notes": notes}
    shown = summary.drop(
        columns=["r_hat", "ess_bulk", "ess_tail"], errors="ignore"
    )  # a doubt is spoken, if there is one
    _say(options, content, "\n".join([shown.to_string(float_format="{:.4g}".format), *notes]))
    return DONE


def _summary(release: Release, options: argparse.Namespace, rng: np.random.Generator) -> tuple[Any, list[str]]:
    """Return the summary and the notes of a release's posterior, or the margins of a fitted field."""
    from dpbook import expfam, graphical, regression

    if release.model == "clique tables":
        import pandas as pd

        field = graphical.fit(release)
        rows = {f"{name} = {state}": share for name in field.domain.names for state, share in _margin(field, name)}
        return pd.DataFrame({"share": rows}), []
    settings: dict[str, Any] = {"draws": options.draws, "rng": rng}
    if release.model == "binomial":  # a share, whose prior is flat on no scale in particular
        posterior: Any = expfam.infer(release, expfam.Beta(0.5, 0.5), **settings)
    elif release.model == "linear regression":
        posterior = regression.infer(release, **settings)
    else:
        posterior = expfam.infer(release, **settings)
    return posterior.summary(options.level), list(posterior.notes)


def _margin(field: Any, name: str) -> Iterator[tuple[Any, float]]:
    shares = np.asarray(field.marginal(name), dtype=float).ravel()
    labels = field.domain.labels[field.domain.names.index(name)] or range(len(shares))
    yield from zip(labels, (shares / shares.sum()).tolist(), strict=True)


def _report(options: argparse.Namespace) -> int:
    budget = PrivacyBudget.open(options.ledger)
    if options.html is not None:
        _write(options.html, budget.report("html"))
    charges = [{"time": c.time, "label": c.label, "epsilon": c.epsilon, "delta": c.delta} for c in budget.ledger]
    content = {"epsilon": budget.epsilon, "delta": budget.delta, "spent": budget.spent, "charges": charges}
    _say(options, content, str(options.html) if options.html is not None else str(budget.report()))
    return DONE


def _audit(options: argparse.Namespace) -> int:
    """Compare made-up neighbours at the corners of what the plan allows; a loss above the claim is a refutation."""
    from dpbook.audit import epsilon_lower_bound

    plan = _checked(options.plan)
    found = {}
    for request in tqdm(plan.requests, desc="audits", disable=options.json or not sys.stderr.isatty()):
        data, neighbour = _neighbours(plan, request, options.seed)

        def released(frame: Any, rng: np.random.Generator, request: Request = request) -> Any:
            made = kinds.make(plan, request, frame, rng, None)
            return np.concatenate([np.ravel(value).astype(float) for value in made.values.values()])

        exact = [_without_noise(plan, request, frame) for frame in (data, neighbour)]
        towards = exact[1] - exact[0]
        found[request.name] = epsilon_lower_bound(
            released,
            data,
            neighbour,
            trials=options.trials,
            delta=request.delta,
            score=functools.partial(_along, towards),
            rng=np.random.default_rng(options.seed),
        )
    claims = {request.name: request.epsilon for request in plan.requests}
    refuted = [name for name, least in found.items() if least > claims[name]]
    words = [
        f"{name}: ε = {claims[name]:g} claimed, at least {least:.3g} found: "
        + ("REFUTED" if name in refuted else "not refuted, which proves nothing")
        for name, least in found.items()
    ]
    _say(options, {"found": found, "claimed": claims, "refuted": refuted}, "\n".join(words))
    return REFUSED if refuted else DONE


def _along(direction: Any, value: Any) -> float:
    return float(np.asarray(value) @ direction)


def _neighbours(plan: Plan, request: Request, seed: int) -> tuple[Any, Any]:
    """Return made-up records and the same with one moved from one corner of what is allowed to the other."""
    names = kinds.kind_of(request).columns(request.options)
    schema = plan.schema(names)
    data = schema.example(_AUDITED, rng=np.random.default_rng(seed))
    rows = data.to_dict(orient="records")
    low, high = ({name: _corner(plan, name, end) for name in names} for end in (0, -1))
    return schema.apply([low, *rows[1:]]), schema.apply([high, *rows[1:]])


def _corner(plan: Plan, name: str, end: int) -> Any:
    kind = plan.columns[name]
    if isinstance(kind, Category):
        return kind.labels[end]
    return (False, True)[end] if isinstance(kind, Flag) else (kind.low, kind.high)[end]


def _without_noise(plan: Plan, request: Request, frame: Any) -> Any:
    loud = Request(request.name, request.kind, 1e9, request.delta, request.options)
    made = kinds.make(plan, loud, frame, np.random.default_rng(0), None)
    return np.concatenate([np.ravel(value).astype(float) for value in made.values.values()])


def _say(options: argparse.Namespace, content: dict[str, Any], words: str) -> None:
    print(json.dumps(content, default=float) if options.json else words)


def _write(path: Path, text: str) -> None:
    """Write a file whole or not at all, so that nobody reads half a release."""
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(name, 0o644)
        os.replace(name, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise


if __name__ == "__main__":
    sys.exit(main())
