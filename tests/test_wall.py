"""The privacy barrier as a wall: the imports of the analyst's side never reach the curator's.

What is read are import statements, wherever they stand: at the top, in a function, under ``TYPE_CHECKING``, relative
ones, and calls of ``import_module``. A name that a package's ``__init__`` hands on counts as an import of the module
that defines it, and a package taken as a whole is what its ``__init__`` gathers; otherwise these are not followed.
The curator's side is some modules of the core, every ``releases.py``, and what takes data in a chapter's package.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1] / "dpbook"
CURATOR = {"records", "noise", "mechanisms", "budget"}  # modules of the core that read data, spend or draw noise
DATA = {"data", "X"}  # what functions of a chapter call the records that they read
SHARED = {"datasets"}  # folders of the package that are no chapters
ABOVE = {"desk", "__main__"}  # what is built on the chapters, and carries out what they offer


@cache
def modules(package: Path) -> dict[str, Path]:
    """Return the files of a package by dotted name; a folder's name is its ``__init__``."""
    found = {}
    for path in package.rglob("*.py"):
        parts = path.relative_to(package.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def is_folder(package: Path, name: str) -> bool:
    """Tell whether a module is the ``__init__`` of a folder."""
    return modules(package)[name].name == "__init__.py"


@cache
def imported(package: Path, name: str) -> frozenset[str]:
    """Return the modules of the package that a module imports; "?" stands for one whose name is computed."""
    path, found = modules(package)[name], set()
    here = name.split(".") if path.name == "__init__.py" else name.split(".")[:-1]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {each.name for each in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = here[: len(here) + 1 - node.level] if node.level else []
            source = ".".join([*base, *([node.module] if node.module else [])])
            found |= set().union(*(origin(package, source, each.name) for each in node.names))
        elif isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] in ("import_module", "__import__"):
            where = node.args[0]
            found.add(where.value if isinstance(where, ast.Constant) and isinstance(where.value, str) else "?")
    return frozenset(each for each in found if each == "?" or each in modules(package))


def origin(package: Path, source: str, name: str) -> set[str]:
    """Return the modules behind ``from source import name``, through the ``__init__`` files that hand the name on."""
    if f"{source}.{name}" in modules(package):
        return {f"{source}.{name}"}
    if source not in modules(package) or not is_folder(package, source):
        return {source}
    if name == "*":
        return {source, *imported(package, source)}
    for node in ast.walk(ast.parse(modules(package)[source].read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and name in [each.asname or each.name for each in node.names]:
            inner = next(each.name for each in node.names if name == (each.asname or each.name))
            base = source.split(".")[: len(source.split(".")) + 1 - node.level] if node.level else []
            return origin(package, ".".join([*base, *([node.module] if node.module else [])]), inner)
    return {source}


def ways(package: Path, start: str) -> Iterator[tuple[str, ...]]:
    """Yield, for each module that the imports of ``start`` reach, one way there, ``start`` itself included."""
    waiting, seen = [(start,)], {start}
    while waiting:
        way = waiting.pop(0)
        yield way
        if way[-1] != "?" and not (is_folder(package, way[-1]) and len(way) > 1):
            fresh = sorted(imported(package, way[-1]) - seen)
            seen |= set(fresh)
            waiting += [(*way, each) for each in fresh]


def is_called(name: str, role: str) -> bool:
    """Tell whether a module is ``releases.py`` or ``inference.py``, or one of several: ``shape_releases.py``."""
    return name.split(".")[-1].split("_")[-1] == role


@cache
def takes_data(package: Path, name: str) -> bool:
    """Tell whether a module has a function whose first argument is sensitive data, by the names that these have."""
    body = ast.parse(modules(package)[name].read_text(encoding="utf-8")).body
    functions = [node for node in body if isinstance(node, ast.FunctionDef) and not node.name.startswith("_")]
    return any(node.args.args and node.args.args[0].arg in DATA for node in functions)


def is_curators(package: Path, name: str) -> bool:
    """Tell whether a module stands on the curator's side, or cannot be told."""
    parts = name.split(".")
    if name == "?" or is_called(name, "releases") or (len(parts) == 2 and parts[1] in CURATOR):
        return True
    if len(parts) > 2 and takes_data(package, name):
        return True
    return is_folder(package, name) and any(is_curators(package, each) for each in imported(package, name))


def breaches(package: Path) -> list[str]:
    """Return the ways by which an ``inference.py`` reaches the curator's side, the shortest for each module.

    A folder that releases, and in which nobody infers under that name, is a breach too.
    """
    analysts = sorted(name for name in modules(package) if is_called(name, "inference"))
    reached = (way for start in analysts for way in ways(package, start))
    released = {name.removesuffix(".releases") for name in modules(package) if name.endswith(".releases")}
    silent = released - {name.removesuffix(".inference") for name in analysts}
    return [
        *[" imports ".join(way) for way in reached if is_curators(package, way[-1])],
        *[f"{name}.releases has no inference beside it" for name in sorted(silent)],
    ]


def crossings(package: Path) -> list[str]:
    """Return the imports from one chapter into another, and from the core into a chapter."""
    root = package.name
    chapters = {path.parent.name for path in package.glob("*/__init__.py")} - SHARED
    found = []
    for name in sorted(modules(package)):
        own = next(iter(name.split(".")[1:2]), "")
        if own in ABOVE:
            continue
        for each in sorted(imported(package, name) - {"?", root}):
            other = each.split(".")[1]
            if other in chapters and other != own:
                found.append(f"{name} imports {each}")
    return found


def test_no_inference_reaches_the_curators_side() -> None:
    assert breaches(PACKAGE) == []


def test_chapters_do_not_import_each_other_nor_does_the_core_import_them() -> None:
    assert crossings(PACKAGE) == []


def test_the_analysts_side_is_found() -> None:
    """Each chapter in which somebody infers has a module of that name, and it is read, with what it imports."""
    names = {name for name in modules(PACKAGE) if is_called(name, "inference")}
    assert {"dpbook.aggregate.inference", "dpbook.expfam.inference", "dpbook.regression.inference"} <= names
    assert "dpbook.expfam.shape_inference" in names
    assert all(len(list(ways(PACKAGE, name))) > 3 for name in names)


# The test sees what it is for: made-up packages ---------------------------------------------------------------------


CLEAN = {
    "__init__.py": "from .budget import Budget\n",
    "budget.py": "class Budget: ...\n",
    "noise.py": "def draw(): ...\n",
    "release.py": "import json\n",
    "chapter/__init__.py": "from pkg.chapter.inference import infer\nfrom .releases import release\n",
    "chapter/model.py": "import math\n\nfrom pkg.release import json\n",
    "chapter/releases.py": "from pkg import noise\nfrom pkg.budget import Budget\n\nrelease = noise.draw\n",
    "chapter/inference.py": "from pkg.chapter.model import math\n\ninfer = math.floor\n",
    "chapter/more_releases.py": "from pkg.release import json\n",
    "chapter/more_inference.py": "import math\n",
    "chapter/counting.py": "def count(data, size): ...\n",
    "other/__init__.py": "",
    "other/tools.py": "release = 1\n",
}


def made_up(folder: Path, **changed: str) -> Path:
    """Write a small package in which some files differ from a clean one; ``chapter__model`` is chapter/model.py."""
    package = folder / "pkg"
    for name, text in (CLEAN | {f"{key.replace('__', '/')}.py": text for key, text in changed.items()}).items():
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        (package / name).write_text(text, encoding="utf-8")
    return package


def test_a_clean_package_passes_although_its_init_gathers_both_sides(tmp_path: Path) -> None:
    package = made_up(tmp_path)
    assert breaches(package) == []
    assert crossings(package) == []


STATEMENTS = [
    "from pkg.chapter.releases import release",  # direct
    "import pkg.chapter.releases as curator",
    "from pkg.chapter import releases",
    "from pkg.noise import draw",
    "from pkg import noise",
    "from .releases import release",  # relative
    "from . import releases",
    "from .more_releases import json",  # one of several, though it imports nothing of the curator's
    "from .counting import count",  # takes data, whatever it imports and is called
    "from ..noise import draw",
    "from .. import noise",
    "from ..chapter import releases as curator",
    "def infer():\n    from pkg import noise",  # in a function
    "def infer():\n    def inner():\n        from pkg.chapter.releases import release",
    "if TYPE_CHECKING:\n    from pkg.budget import Budget",
    "from pkg import Budget",  # handed on by an __init__
    "from pkg.chapter import release",
    "from . import release as curator",
    "from pkg.chapter import *",
    "import pkg.chapter",  # all that an __init__ gathers
    "from pkg import chapter",
    "import pkg",
    'importlib.import_module("pkg.noise")',  # by name
    'def infer(method):\n    return import_module(f"pkg.chapter.{method}")',
    "def infer(name):\n    return __import__(name)",
]
PLACES = {"chapter__inference": 1, "chapter__model": 2, "release": 3}  # imports from inference.py to the curator's side


@pytest.mark.parametrize(
    ("where", "statement"),
    # A relative statement is relative to the chapter's folder.
    [(where, each) for where in PLACES for each in STATEMENTS if where != "release" or not each.startswith("from .")],
)
def test_an_import_of_the_curators_side_is_caught_directly_and_two_modules_away(
    tmp_path: Path, where: str, statement: str
) -> None:
    found = breaches(made_up(tmp_path, **{where: f"{CLEAN[where.replace('__', '/') + '.py']}\n{statement}\n"}))
    assert len(found) >= 1
    assert all(way.startswith("pkg.chapter.inference imports ") for way in found)
    assert found[0].count(" imports ") == PLACES[where]


def test_an_inference_of_several_is_read_too(tmp_path: Path) -> None:
    package = made_up(tmp_path, chapter__more_inference="from pkg import noise\n")
    assert breaches(package) == ["pkg.chapter.more_inference imports pkg.noise"]


def test_a_chapter_that_releases_and_does_not_infer_is_caught(tmp_path: Path) -> None:
    package = made_up(tmp_path)
    (package / "chapter" / "inference.py").rename(package / "chapter" / "learning.py")
    assert breaches(package) == ["pkg.chapter.releases has no inference beside it"]


@pytest.mark.parametrize(
    ("where", "statement", "because"),
    [
        ("chapter__model", "from pkg.other.tools import release", "pkg.chapter.model imports pkg.other.tools"),
        ("chapter__model", "from ..other import tools", "pkg.chapter.model imports pkg.other.tools"),
        ("chapter__releases", "def f():\n    import pkg.other.tools", "pkg.chapter.releases imports pkg.other.tools"),
        ("release", "from pkg.other.tools import release", "pkg.release imports pkg.other.tools"),
        ("release", "from pkg.chapter import infer", "pkg.release imports pkg.chapter.inference"),
        ("noise", "import pkg.chapter", "pkg.noise imports pkg.chapter"),
    ],
)
def test_an_import_of_another_chapter_is_caught(tmp_path: Path, where: str, statement: str, because: str) -> None:
    package = made_up(tmp_path, **{where: f"{CLEAN[where.replace('__', '/') + '.py']}\n{statement}\n"})
    assert because in crossings(package)
