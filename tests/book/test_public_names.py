"""Studies and sections use what the package exports, as a reader could: no private name, no inner module."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
FILES = [*sorted(ROOT.glob("book/*/*.py")), *sorted(ROOT.glob("book/*/*.md"))]
COMMANDS = {"dpbook.desk.command"}  # the command line: its words are what is public
OF_NAMED_TUPLES = {"_asdict", "_fields", "_make", "_replace"}  # public, though they begin with an underscore


def code_of(path: Path) -> str:
    """Return a module's text, or the code cells of a section."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        return text
    cells = re.findall(r"^```\{code-cell\}[^\n]*\n(.*?)^```", text, re.M | re.S)
    lines = "\n".join(re.sub(r"\A---\n.*?^---\n", "", cell, flags=re.M | re.S) for cell in cells).split("\n")
    return "\n".join(line for line in lines if not line.startswith((":tags:", ":label:", "%", "!")))


def is_public(module: str) -> bool:
    """Say whether a module is for users: a package, one of the core, or one that its package exports."""
    if module in COMMANDS:
        return True
    found, (package, _, name) = importlib.util.find_spec(module), module.rpartition(".")
    if found is None or "._" in module:
        return False
    if module.count(".") < 2 or found.submodule_search_locations:
        return True
    return name in importlib.import_module(package).__all__


def is_exported(module: ModuleType, name: str) -> bool:
    """Say whether a user may take a name from a module."""
    if name in getattr(module, "__all__", ()) or re.fullmatch(r"__\w+__", name):
        return True
    inner = f"{module.__name__}.{name}"
    return hasattr(module, "__path__") and importlib.util.find_spec(inner) is not None and is_public(inner)


def taken(tree: ast.AST) -> Iterator[tuple[str, str, str]]:
    """Yield what a file imports from the package: the module, the name there, and the name here; "" for a module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and f"{node.module}.".startswith("dpbook."):
            yield from ((str(node.module), each.name, each.asname or each.name) for each in node.names)
        elif isinstance(node, ast.Import):
            yield from ((e.name, "", e.asname or e.name) for e in node.names if f"{e.name}.".startswith("dpbook."))


def modules_here(tree: ast.AST) -> dict[str, ModuleType]:
    """Return the modules of the package that a file has under a name."""
    found = {}
    for module, name, here in taken(tree):
        inner = f"{module}.{name}".rstrip(".")
        # A function may have the name of its module: what an import gives is the attribute.
        thing = getattr(importlib.import_module(module), name, None) if name else importlib.import_module(module)
        if isinstance(thing, ModuleType) or (thing is None and importlib.util.find_spec(inner)):
            found[here] = importlib.import_module(inner)
    return found


def breaches(code: str) -> list[str]:
    """Return the names of the package that a file uses and the package does not export."""
    tree = ast.parse(code)
    found = [module for module, _, _ in taken(tree) if not is_public(module)]
    for module, name, _ in taken(tree):
        if name and is_public(module) and not is_exported(importlib.import_module(module), name):
            found.append(f"{module}.{name}")
    known = modules_here(tree)
    for node in ast.walk(tree):
        if not isinstance(node, ast.Attribute):
            continue
        if (whole := known.get(ast.unparse(node.value))) and not is_exported(whole, node.attr):
            found.append(f"{whole.__name__}.{node.attr}")
        elif re.match(r"_(?!_)", node.attr) and node.attr not in OF_NAMED_TUPLES and ast.unparse(node.value) != "self":
            found.append(ast.unparse(node))
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_only_exported_names_are_used(path: Path) -> None:
    assert breaches(code_of(path)) == []


def test_studies_and_sections_are_found() -> None:
    using = [path for path in FILES if list(taken(ast.parse(code_of(path))))]
    assert len([path for path in using if path.suffix == ".py"]) > 10
    assert len([path for path in using if path.suffix == ".md"]) > 30


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("from dpbook.expfam.gibbs import gibbs_step", "dpbook.expfam.gibbs"),
        ("import dpbook.regression.starts", "dpbook.regression.starts"),
        ("from dpbook._validation import positive", "dpbook._validation"),
        ("from dpbook.accounting import _log1mexp", "dpbook.accounting._log1mexp"),
        ("from dpbook.regression import task", "dpbook.regression.task"),
        ("from dpbook import graphical\ngraphical.tables.NoisyTables", "dpbook.graphical.tables"),
        ("import dpbook.accounting as a\na._SUMMED", "dpbook.accounting._SUMMED"),
        ("from dpbook import Release\nRelease._checked(1)", "Release._checked"),
    ],
)
def test_a_name_that_is_not_exported_is_caught(code: str, found: str) -> None:
    assert breaches(code) == [found]


def test_what_is_exported_is_accepted() -> None:
    code = "import dpbook\nfrom dpbook import audit, expfam, graphical\nfrom dpbook.audit import audit as a\n"
    code += "from dpbook.regression.moments import is_valid\n"
    code += "expfam.release\ngraphical.hmm.infer\naudit.audit\ndpbook.__version__\nrow._replace(n=1)\n"
    assert breaches(code) == []
