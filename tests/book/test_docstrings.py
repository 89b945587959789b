"""What the package exports explains itself: NumPy style, an example, a link to the book. The rest says what it is.

Exported is what stands in ``__all__`` of a package or of a public module of the core, and its public methods; but not
the sources of noise, which leave the checks of their arguments to their callers. That the examples run is proved by
the doctests (`pytest --doctest-modules dpbook`).
"""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import dpbook

ROOT = Path(__file__).resolve().parents[2]


def public_modules() -> dict[str, bool]:
    """Return the names of all modules without an underscore, and whether what they list in ``__all__`` is exported."""
    found = {module.name: module.ispkg for module in pkgutil.walk_packages(dpbook.__path__, prefix="dpbook.")}
    return {
        name: package or (name.count(".") == 1 and name != "dpbook.noise")
        for name, package in found.items()
        if not any(part.startswith("_") for part in name.split("."))
    }


EXPORTING = [name for name, exporting in public_modules().items() if exporting]
INTERNAL = [name for name, exporting in public_modules().items() if not exporting]


def exported(module: ModuleType) -> Iterator[tuple[str, Any]]:
    """Yield the functions and classes that a package or a module of the core exports as its own."""
    for name in module.__all__:
        thing = getattr(module, name)
        home = getattr(thing, "__module__", "")
        if (inspect.isfunction(thing) or inspect.isclass(thing)) and f"{home}.".startswith(f"{module.__name__}."):
            yield name, thing


def without_a_line(module: ModuleType) -> list[str]:
    """Return the functions, classes and methods of a module that have no docstring, of those without an underscore."""
    return [each.name for each in _named(ast.parse(inspect.getsource(module)).body) if not ast.get_docstring(each)]


def _named(body: list[ast.stmt]) -> Iterator[ast.FunctionDef | ast.ClassDef]:
    for node in body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and not node.name.startswith("_"):
            if "overload" not in map(ast.unparse, node.decorator_list):
                yield node
            if isinstance(node, ast.ClassDef):
                yield from _named(node.body)


def public_methods(cls: type) -> Iterator[tuple[str, Any]]:
    """Yield the methods and properties that the class itself defines, without what a decorator wrote for it."""
    written = {node.name for node in ast.walk(ast.parse(unindented_source(cls))) if isinstance(node, ast.FunctionDef)}
    for name, thing in vars(cls).items():
        if not name.startswith("_") and name in written:
            yield name, thing.__func__ if isinstance(thing, (classmethod, staticmethod)) else thing


def unindented_source(thing: Any) -> str:
    """Return the source of a class or function, so that it parses by itself."""
    return inspect.cleandoc("\n" + inspect.getsource(thing))


def parameters(function: Any) -> list[str]:
    """Return the names that a caller may pass."""
    return [name for name in inspect.signature(function).parameters if name not in ("self", "cls")]


def section(doc: str, heading: str) -> str:
    """Return the body of a section of a NumPy-style docstring; empty where it is missing."""
    found = re.search(rf"^{heading}\n-+\n(.*?)(?=^\S[^\n]*\n-{{3,}}\n|\Z)", doc, re.M | re.S)
    return found.group(1) if found else ""


def undocumented(doc: str, names: list[str], *headings: str) -> list[str]:
    """Return the parameters that no entry of the docstring names (``lower, upper : float`` names two)."""
    entries = re.findall(r"^(\*{0,2}\w[^\n:]*?) *(?::|$)", "\n".join(section(doc, h) for h in headings), re.M)
    known = {name.strip().lstrip("*") for entry in entries for name in entry.split(",")}
    return [name for name in names if name not in known]


def breaches_of_a_function(function: Any, *, method: bool = False) -> list[str]:
    """Say what the docstring of a function lacks."""
    doc = inspect.getdoc(function) or ""
    if not doc:
        return ["has no docstring"]
    missing = undocumented(doc, parameters(function), "Parameters")
    # A method may explain its arguments in a sentence that names each, and what it returns in its first line.
    found = [f"does not document {name}" for name in missing if not (method and f"``{name}``" in doc)]
    returned = inspect.signature(function).return_annotation
    if returned not in (None, "None", "NoReturn") and not (section(doc, "Returns") or section(doc, "Yields")):
        said = method and (doc.startswith("Return") or not parameters(function))
        found += ["does not say what it returns"] * (not said)
    return found if method else found + breaches_of_example_and_link(doc)


def breaches_of_example_and_link(doc: str) -> list[str]:
    """Say whether a docstring lacks an example or a link to a section that exists."""
    found = [] if ">>>" in section(doc, "Examples") else ["has no example"]
    links = re.findall(r":doc:`(?:[^`<]*<)?/?(book/[^`>]+)>?`", doc)
    found += ["has no link to its section (:doc:`/book/...`)"] * (not links)
    return found + [f"links to {link}, which does not exist" for link in links if not (ROOT / f"{link}.md").exists()]


def breaches_of_a_class(cls: type) -> list[str]:
    """Say what the docstrings of a class and of its methods lack."""
    doc = inspect.getdoc(cls) or ""
    if not doc:
        return ["has no docstring"]
    found = breaches_of_example_and_link(doc)
    if issubclass(cls, BaseException):
        return [breach for breach in found if "example" not in breach]
    taken = [] if inspect.isabstract(cls) or getattr(cls, "_is_protocol", False) else parameters(cls)
    # The fields of a small record may be explained in a sentence that names each: "``rate`` is the observed share".
    # What a class inherits, the class that it inherits from documents.
    docs = [inspect.cleandoc(base.__doc__ or "") for base in cls.__mro__[:-1]]
    listed = [name for name in taken if all(undocumented(each, [name], "Parameters", "Attributes") for each in docs)]
    found += [f"does not document {name}" for name in listed if f"``{name}``" not in doc]
    for name, method in public_methods(cls):
        if isinstance(method, property):
            first = (method.__doc__ or "").split("\n")[0]
            found += [f".{name} has no docstring"] * (not first)
            found += [f".{name}: what stands before a colon in the first line is shown as a type"] * (": " in first)
        elif any(name in vars(base) for base in cls.__mro__[1:-1]):  # the base says what it takes and returns
            found += [f".{name} has no docstring"] * (not method.__doc__)
        elif inspect.isfunction(method):
            found += [f".{name} {breach}" for breach in breaches_of_a_function(method, method=True)]
            shown = section(doc, "Examples") + section(inspect.getdoc(method) or "", "Examples")
            found += [f".{name} is in no example"] * (f".{name}(" not in shown)
    return found


@pytest.mark.parametrize("name", public_modules())
def test_the_module_says_what_it_holds_and_what_is_public(name: str) -> None:
    module = importlib.import_module(name)
    assert len((module.__doc__ or "").strip()) > 60
    assert hasattr(module, "__all__")
    assert [listed for listed in module.__all__ if not hasattr(module, listed)] == []


@pytest.mark.parametrize("name", EXPORTING)
def test_everything_exported_explains_itself(name: str) -> None:
    found = []
    for label, thing in exported(importlib.import_module(name)):
        check = breaches_of_a_class if inspect.isclass(thing) else breaches_of_a_function
        found += [f"{label} {breach}" for breach in check(thing)]
    assert found == []


@pytest.mark.parametrize("name", INTERNAL)
def test_what_is_not_exported_says_in_a_line_what_it_is(name: str) -> None:
    assert without_a_line(importlib.import_module(name)) == []


def on_pages(pages: list[str], module: ModuleType) -> list[str]:
    """Say what of a module the sources of the API pages do not show, or show twice."""
    name = module.__name__
    shown = [found.group(1) for page in pages for found in re.finditer(rf"automodule:: {name}\n( +:members:)?", page)]
    if len(shown) != 1:
        return [f"{name} is on {len(shown)} pages"]
    # What is imported when it is first asked for, autodoc does not see; it is on the page by itself.
    by_itself = module.__all__ if not shown[0] else [each for each in module.__all__ if each not in vars(module)]
    return [each for each in by_itself if not any(re.search(rf"auto\w+:: dpbook\S*\.{each}\n", page) for page in pages)]


@pytest.mark.parametrize("name", EXPORTING)
def test_everything_exported_is_on_an_api_page(name: str) -> None:
    pages = [path.read_text(encoding="utf-8") for path in (ROOT / "book" / "reference" / "api").glob("*.md")]
    assert on_pages(pages, importlib.import_module(name)) == []


# The rules catch what they are for ----------------------------------------------------------------------------------


def good(value: float, *, scale: float = 1.0) -> float:
    """Return a value, scaled.

    Explained in :doc:`/book/how-to-use`.

    Parameters
    ----------
    value, scale : float
        What is multiplied.

    Returns
    -------
    float
        The product.

    Examples
    --------
    >>> good(2.0)
    2.0
    """
    return value * scale


class Good:
    """A thing. Explained in :doc:`/book/how-to-use`.

    Parameters
    ----------
    size : int
        Its size.

    Examples
    --------
    >>> Good(1).grow(2)
    3
    """

    def __init__(self, size: int) -> None:
        self.size = size

    def grow(self, by: int) -> int:
        """Return a larger size.

        Parameters
        ----------
        by : int
            How much larger.

        Returns
        -------
        int
            The sum.
        """
        return self.size + by


def with_doc(old: str, new: str, doc: str | None = good.__doc__) -> Any:
    """Return a function like ``good`` with another docstring."""

    def other(value: float, *, scale: float = 1.0) -> float:
        return value * scale

    assert doc is not None
    assert old in doc
    other.__doc__ = doc.replace(old, new)
    return other


def test_a_function_that_explains_itself_is_accepted() -> None:
    assert breaches_of_a_function(good) == []


@pytest.mark.parametrize(
    ("old", "new", "because"),
    [
        ("value, scale :", "value :", "does not document scale"),
        ("Returns\n", "Notes\n", "does not say what it returns"),
        (">>> good(2.0)", "good(2.0)", "has no example"),
        (":doc:`/book/how-to-use`", "the book", "has no link"),
        ("how-to-use", "no-such-section", "does not exist"),
    ],
)
def test_a_function_that_does_not_explain_itself_is_caught(old: str, new: str, because: str) -> None:
    found = breaches_of_a_function(with_doc(old, new))
    assert len(found) == 1
    assert because in found[0]


def test_a_class_that_explains_itself_is_accepted() -> None:
    assert breaches_of_a_class(Good) == []


def test_a_method_may_explain_itself_in_a_sentence_that_names_its_arguments() -> None:
    whole = "Return the ``value`` times ``scale``."
    assert breaches_of_a_function(with_doc(str(good.__doc__), whole), method=True) == []
    assert breaches_of_a_function(with_doc(str(good.__doc__), "Return the ``value``."), method=True) == [
        "does not document scale"
    ]
    assert breaches_of_a_function(with_doc(str(good.__doc__), "Scale ``value`` by ``scale``."), method=True) == [
        "does not say what it returns"
    ]
    assert len(breaches_of_a_function(with_doc(str(good.__doc__), whole))) == 5  # a function owes all of it


def test_a_method_that_no_example_shows_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Good, "__doc__", (Good.__doc__ or "").replace(".grow(2)", ".size"))
    assert breaches_of_a_class(Good) == [".grow is in no example"]


def test_what_is_exported_is_known() -> None:
    assert {"dpbook.mechanisms", "dpbook.expfam", "dpbook.regression", "dpbook.graphical"} <= set(EXPORTING)
    assert {"dpbook.expfam.families", "dpbook.regression.gibbs"} <= set(INTERNAL)
    names = [name for name, _ in exported(importlib.import_module("dpbook.expfam"))]
    assert {"release", "infer", "preview"} <= set(names)  # though they are defined in modules of the package


def test_something_without_a_line_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (
        '"""A."""\ndef a(): ...\ndef b():\n    """B."""\ndef _c(): ...\nclass D:\n    """D."""\n    def e(self): ...\n'
    )
    (tmp_path / "made_up_module.py").write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert without_a_line(importlib.import_module("made_up_module")) == ["a", "e"]


def test_what_is_on_no_api_page_is_caught() -> None:
    budget = importlib.import_module("dpbook.budget")
    assert on_pages(["text"], budget) == ["dpbook.budget is on 0 pages"]
    assert on_pages([".. automodule:: dpbook.budget\n   :members:\n"] * 2, budget) == ["dpbook.budget is on 2 pages"]
    assert on_pages([".. automodule:: dpbook.budget\n\n.. autofunction:: dpbook.budget.charge\n"], budget) == [
        name for name in budget.__all__ if name != "charge"
    ]
    regression = importlib.import_module("dpbook.regression")
    page = ".. automodule:: dpbook.regression\n   :members:\n"
    assert on_pages([page], regression) == ["PrivateBayesianRegression"]
