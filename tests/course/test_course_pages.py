"""The pieces of the course edition that need no built book: mathematics, Markdown, first cells, files beside it."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import pytest
from course_pages import (
    address,
    checked_answer,
    companions,
    escaped,
    expand,
    install_cell,
    notes_on,
    packages,
    split_check,
    without_bars,
)
from IPython.core.interactiveshell import InteractiveShell

from dpbook import __version__

MACROS = {"E": r"\mathbb{E}", "Bin": r"\operatorname{Binomial}", "R": r"\mathbb{R}"}


@pytest.mark.parametrize(
    ("source", "expanded"),
    [
        (r"\E X", r"\mathbb{E} X"),
        (r"\E[X] \in \R^2", r"\mathbb{E}[X] \in \mathbb{R}^2"),
        (r"\Bin(n, p) \Bigl( \Rightarrow", r"\operatorname{Binomial}(n, p) \Bigl( \Rightarrow"),
        ("a \\\\\n  b", r"a \\ b"),
    ],
)
def test_macros_are_expanded_and_formulas_stand_on_one_line(source: str, expanded: str) -> None:
    assert expand(source, MACROS) == expanded


def test_a_formula_in_a_table_has_no_bar() -> None:
    assert "|" not in without_bars(r"|x| \le \|y\|")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("5 * 3 costs $4", r"5 \* 3 costs \$4"),
        ("a_b and _c_", r"a_b and \_c\_"),
        ("x < y [1]", r"x &lt; y \[1\]"),
        ("`code`", r"\`code\`"),
    ],
)
def test_text_is_shown_as_it_is(text: str, shown: str) -> None:
    assert escaped(text) == shown


def test_an_answer_is_split_from_its_check() -> None:
    start = 'def f(x):\n    ...\n\n\ncheck("ex-a", f, student=student)'
    assert split_check(start) == ("def f(x):\n    ...", 'check("ex-a", f, student=student)')
    assert checked_answer(start) == "f"
    assert checked_answer('a, b = ..., ...\n\ncheck("ex-a", (a, b))') == "(a, b)"


def test_the_first_cell_installs_this_version_and_no_program_for_notebooks() -> None:
    assert f'"dpbook[scale,sklearn,formula]=={__version__}"' in packages()
    cell = install_cell([], "https://example.org", "1-one")
    assert "urlretrieve" not in cell
    assert "jupyterlab" not in cell


@pytest.mark.parametrize(("beside", "shelf"), [(True, ".."), (False, "https://example.org/")])
def test_the_first_cell_takes_the_package_from_beside_it_or_else_from_the_site(
    beside: bool, shelf: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of the two: pip would ask a site that it cannot reach five times for each of sixty packages."""
    (tmp_path / "1-one").mkdir()
    monkeypatch.chdir(tmp_path / "1-one")
    if beside:
        (tmp_path / f"dpbook-{__version__}-py3-none-any.whl").touch()
    make_shell: Any = InteractiveShell
    shell, asked = make_shell(), list[str]()
    shell.register_magic_function(asked.append, magic_name="pip")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    shell.run_cell(install_cell([], "https://example.org", "1-one")).raise_error()
    assert asked == [f"install --quiet --find-links {shelf} {' '.join(packages())}"]


@pytest.mark.parametrize("files", [["checks.py"], ["study.py", "results/one.csv", "results/two.csv"]])
def test_the_first_cell_fetches_the_files_that_are_missing(files: list[str]) -> None:
    cell = install_cell(files, "https://example.org", "1-one")
    assert 'urlretrieve(f"https://example.org/1-one/{name}", name)' in cell
    tree = ast.parse(cell.replace("    %pip", "    pass  # %pip"))
    (loop,) = (node for node in tree.body if isinstance(node, ast.For))
    assert ast.literal_eval(loop.iter) == files


def test_the_files_that_code_reads_go_with_it(tmp_path: Path) -> None:
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "table.csv").write_text("a\n1\n")
    (tmp_path / "study.py").write_text("from study_more import f\n")
    (tmp_path / "study_more.py").write_text('load("results/table.csv")\n')
    (tmp_path / "other.py").write_text("")
    assert companions(tmp_path, ["import study\nimport numpy"]) == ["results/table.csv", "study.py", "study_more.py"]
    assert companions(tmp_path, ["import numpy"]) == []


BOOK = Path(__file__).resolve().parents[2] / "book"


def test_every_section_of_chapter_1_has_a_note_for_the_instructor() -> None:
    for section in (BOOK / "background").glob("*.ipynb"):
        assert len(notes_on(f"book/background/{section.stem}").split()) > 30, section.stem
    assert notes_on("book/background/a-section-without-one") == ""


def test_every_note_is_on_a_section_that_exists() -> None:
    for file in (BOOK.parent / "course" / "notes").glob("*.md"):
        named = re.findall(r"^## (\S+)$", file.read_text(encoding="utf-8"), re.M)
        assert named
        for name in named:
            assert (BOOK / file.stem / f"{name}.ipynb").exists(), name
            assert len(notes_on(f"book/{file.stem}/{name}").split()) > 25, name


def test_the_book_has_an_address() -> None:
    assert address().startswith("https://")
    assert not address().endswith("/")
