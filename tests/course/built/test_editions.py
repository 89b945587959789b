"""The course edition works on a student's desk: plain notebooks that run from the wheel and their own folder alone.

Running them is also the test that shown code is complete: what is hidden in the book is gone, what is folded may be
skipped, and every output is that of the book.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
import threading
import zipfile
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import nbformat
import pandas as pd
import pytest
import yaml
from desk import EDITION, HERE, edition, python, run  # noqa: F401 - fixtures
from nbformat import NotebookNode
from notebooks import ROOT, code_cells, tags

from course import put_online

NOTEBOOKS = sorted(path.relative_to(EDITION / "student") for path in EDITION.glob("student/*/*.ipynb"))
CONFIG = yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8"))
MACROS = CONFIG["sphinx"]["config"]["mathjax3_config"]["tex"]["macros"]
RAW = {
    "a directive": r"^\s*(>\s*)*(:{3,}|`{3,})\{",
    "an option of a directive": r"^\s*:(class|label|name|header-rows|widths):",
    "a role": r"(?<!`)\{[a-z]+(:[a-z]+)?\}`",
    "a label": r"^\([\w-]+\)=$",
    "a placeholder": r"\{\{\s*\w+\s*\}\}|glue:text",
    "a macro": r"\\(" + "|".join(MACROS) + r")(?![A-Za-z])",
}
CHECKS = {
    "an assertion": r"^\s*assert\b",
    "a glued number": r"\bglued?\(|myst_nb",
    "a hidden test": r"\bgrad(e|ing)\b",
}


def section_of(notebook: Path) -> Path:
    """Return the section of the book that a notebook of the course was made from."""
    chapter, name = notebook.parent.name.split("-", 1)[1], notebook.stem.split("-", 1)[1]
    return ROOT / "book" / chapter / f"{name}.ipynb"


def flaws(notebook: NotebookNode) -> list[str]:
    """Say where a student's notebook shows something of the book's machinery."""
    found = []
    for cell in notebook.cells:
        for what, pattern in (RAW if cell.cell_type == "markdown" else CHECKS).items():
            seen = re.search(pattern, cell.source, re.M)
            if seen:
                found.append(f"{what}: …{cell.source[max(0, seen.start() - 30) : seen.end() + 60]!r}")
    return found


def said(cell: NotebookNode) -> list[Any]:
    """Return what a cell printed, without pictures."""
    lines: list[Any] = []
    for output in cell.outputs:
        if output.output_type == "stream":
            lines.append(output.text)
        elif output.output_type == "error":
            lines.append(output.ename)
        elif not any(kind.startswith("image/") for kind in output.get("data", {})):
            lines.append(output.data.get("text/plain"))
    return lines


def surprises(before: NotebookNode, after: NotebookNode) -> list[str]:
    """Say where a run printed something else than the book shows."""
    skipped = {"nbval-ignore-output", "install", "answer", "check"}
    return [
        f"{old.source.splitlines()[0]!r} …: the book shows {said(old)!r}, a student gets {said(new)!r}"
        for old, new in zip(code_cells(before), code_cells(after), strict=True)
        if not tags(old) & skipped and said(old) != said(new)
    ]


def student_notebook(notebook: Path) -> NotebookNode:
    read: NotebookNode = nbformat.read(EDITION / "student" / notebook, as_version=4)
    return read


# The desk ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def student(edition: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of the student's folder, alone."""
    folder = tmp_path_factory.mktemp("desk") / "student"
    shutil.copytree(edition / "student", folder)
    return folder


# What is handed out --------------------------------------------------------------------------------------------------


def test_every_section_is_a_notebook_in_both_editions(edition: Path) -> None:
    toc = yaml.safe_load((ROOT / "_toc.yml").read_text(encoding="utf-8"))
    files = [s["file"] for part in toc["parts"] for chapter in part["chapters"] for s in chapter.get("sections", [])]
    sections = {str(Path(file).with_suffix("")) for file in files if "/reference/" not in file}
    for name in ("student", "instructor"):
        made = {path.relative_to(edition / name) for path in edition.glob(f"{name}/*/*.ipynb")}
        assert {str(section_of(path).relative_to(ROOT).with_suffix("")) for path in made} == sections
    assert len(sections) > 40


def test_students_get_no_solutions_and_no_hidden_tests(edition: Path) -> None:
    names = {path.name for path in (edition / "student").rglob("*")}
    assert {"checks.py", "README.md"} <= names
    assert not names & {"grading.py", "grade.py", "steward.py", "exercises.csv"}
    assert {"grading.py", "grade.py", "steward.py", "exercises.csv"} <= {
        path.name for path in (edition / "instructor").rglob("*")
    }


@pytest.mark.parametrize("name", ["student", "instructor"])
def test_the_zip_holds_the_folder(name: str, edition: Path) -> None:
    with zipfile.ZipFile(edition / f"dpbook-{name}.zip") as archive:
        packed = {entry for entry in archive.namelist() if not entry.endswith("/")}
    folder = edition / name
    assert packed == {f"dpbook-{name}/{path.relative_to(folder)}" for path in folder.rglob("*") if path.is_file()}


def test_pip_finds_the_package_on_the_page_that_is_put_online(edition: Path, tmp_path: Path) -> None:
    """So the first cell works where a notebook was opened alone, on Colab for example; the site is a server here."""
    put_online(edition, tmp_path / "course")
    assert not [path for path in (tmp_path / "course").rglob("*") if path.name in ("grading.py", "exercises.csv")]
    serve = partial(SimpleHTTPRequestHandler, directory=str(tmp_path))
    with ThreadingHTTPServer(("127.0.0.1", 0), serve) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        shelf = f"http://127.0.0.1:{server.server_port}/course/"
        fetch = ("-m", "pip", "download", "--quiet", "--no-deps", "--no-index", "--find-links", shelf, "dpbook")
        done = run(sys.executable, *fetch, cwd=tmp_path)
        server.shutdown()
    assert done.returncode == 0, done.stderr
    assert [path.name for path in tmp_path.glob("*.whl")] == [path.name for path in edition.glob("student/*.whl")]


def test_the_instructor_has_every_solution_and_a_test_for_every_checked_exercise(edition: Path) -> None:
    listed = pd.read_csv(edition / "instructor" / "exercises.csv", keep_default_na=False)
    assert len(listed) > 140
    for name, rows in listed.groupby("notebook"):
        notebook = nbformat.read(edition / "instructor" / str(name), as_version=4)
        prose = [cell.source for cell in notebook.cells if cell.cell_type == "markdown"]
        assert sum(text.startswith("**Solution.**") for text in prose) == len(rows)
        graded = {cell.metadata.exercise for cell in code_cells(notebook) if "grade" in tags(cell)}
        assert graded == set(rows.loc[rows["answer"] != "", "exercise"])
    chapter = listed[listed["notebook"].str.startswith("1-")]
    assert (chapter["answer"] != "").sum() >= 30
    assert (chapter["level"] != "").all()
    first = nbformat.read(edition / "instructor" / chapter["notebook"].iloc[0], as_version=4)
    assert "**For the instructor**" in first.cells[1].source


# One notebook --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=str)
def test_the_notebook_is_plain(notebook: Path) -> None:
    assert flaws(student_notebook(notebook)) == []


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=str)
def test_the_notebook_begins_with_a_link_and_the_cell_that_installs(notebook: Path) -> None:
    cells = student_notebook(notebook).cells
    assert re.match(r"# \d\.\d+ .*\n\n\*From .*\[Read this section online\]\(https://", cells[0].source)
    assert tags(code_cells(student_notebook(notebook))[0]) == {"install"}
    assert "%pip install" in cells[1].source
    assert "jupyterlab" not in cells[1].source


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=str)
def test_every_exercise_has_a_place_for_the_answer_and_no_solution(notebook: Path) -> None:
    cells = student_notebook(notebook).cells
    number = 0
    for cell, after in pairwise(cells):
        if cell.cell_type == "markdown" and cell.source.startswith("### Exercise"):
            number += 1
            assert "answer" in tags(after)
    source = section_of(notebook).read_text(encoding="utf-8")
    assert number == len(re.findall(r"`{3,}\{exercise\}", source))
    assert not [cell for cell in cells if "Solution" in cell.source]


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=str)
def test_every_figure_keeps_its_caption_and_its_description(notebook: Path) -> None:
    section = nbformat.read(section_of(notebook), as_version=4)
    cells = [cell for cell in section.cells if cell.cell_type == "code"]
    shown = " ".join(cell.source for cell in student_notebook(notebook).cells if cell.cell_type == "code")
    words = " ".join(cell.source for cell in student_notebook(notebook).cells if cell.cell_type == "markdown")
    for cell in cells:
        about = cell.metadata.get("mystnb", {})
        if "figure" in about and cell.source in shown:
            assert about["image"]["alt"].split(".")[0][:40] in words.replace("\\", "")
    assert words.count("**Figure") == words.count("<summary>Description of the figure</summary>")


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=str)
def test_every_link_leads_to_a_page_of_the_book(notebook: Path, edition: Path) -> None:
    """The pages are those of the build beside the edition; an anchor is an id on the page."""
    html = edition.parent / "html"
    if not html.exists():
        pytest.skip("the book is not built here")
    text = "\n".join(cell.source for cell in student_notebook(notebook).cells if cell.cell_type == "markdown")
    (address,) = set(re.findall(r"\*From \[.*?\]\((\S+)/\)", text))
    links = set(re.findall(rf"\]\({re.escape(address)}/([^)\s]*)\)", text)) - {""}
    assert links
    for link in links:
        page, _, anchor = unquote(link).partition("#")
        assert (html / page).exists(), link
        if anchor:
            assert f'id="{anchor}"' in (html / page).read_text(encoding="utf-8"), link


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=str)
def test_the_notebook_runs_on_a_students_desk_and_prints_what_the_book_shows(
    notebook: Path, student: Path, python: Path, tmp_path: Path
) -> None:
    target = tmp_path / "executed.ipynb"
    done = run(python, HERE / "execute.py", student / notebook, target, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-4000:]
    before, after = student_notebook(notebook), nbformat.read(target, as_version=4)
    assert surprises(before, after) == []
    for cell in code_cells(after):
        if "check" in tags(cell):
            assert "Nothing to check yet" in str(said(cell))


def test_a_student_has_jupyterlab(python: Path, tmp_path: Path) -> None:
    assert re.match(r"4\.", run(python, "-m", "jupyterlab", "--version", cwd=tmp_path).stdout)


# Grading -------------------------------------------------------------------------------------------------------------


def handed_in(notebook: NotebookNode, answers: dict[str, str]) -> str:
    """Return the text of a student's notebook with some cells of answers replaced."""
    for cell in code_cells(notebook):
        if "answer" in tags(cell) and cell.metadata.exercise in answers:
            cell.source = answers[cell.metadata.exercise]
    return str(nbformat.writes(notebook))


def test_what_students_hand_in_is_graded(edition: Path, python: Path, tmp_path: Path) -> None:
    """One hands in the solutions, one the empty notebook, one a mistake in one answer and a cell that fails."""
    place = next(path for path in NOTEBOOKS if path.stem.endswith("unit-of-privacy"))
    right = {
        "ex-unit-of-privacy-club": "sensitivity = 12 * 30",
        "ex-unit-of-privacy-caption": "factor = np.exp(2.7)",
        "ex-unit-of-privacy-wifi": "def per_user(epsilon, delta, days):\n"
        "    return days * epsilon, delta * np.expm1(days * epsilon) / np.expm1(epsilon)",
    }
    wrong = right | {"ex-unit-of-privacy-club": "sensitivity = 30", "ex-unit-of-privacy-caption": "factor = 1 / 0"}
    for student, answers in {"ada": right, "bob": {}, "eve": wrong}.items():
        desk = tmp_path / "submissions" / student
        desk.mkdir(parents=True)
        (desk / place.name).write_text(handed_in(student_notebook(place), answers), encoding="utf-8")
    done = run(python, edition / "instructor" / "grade.py", "submissions", "--secret", "11", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    marks = pd.read_csv(tmp_path / "marks.csv")
    assert marks.groupby("student")["points"].sum().to_dict() == {"ada": 4, "bob": 0, "eve": 2}
    assert set(marks["out of"]) == {1, 2}
    eve = marks[marks["student"] == "eve"].set_index("exercise")["message"]
    assert "one visit" in eve["ex-unit-of-privacy-club"]
    assert "Nothing to check yet" in eve["ex-unit-of-privacy-caption"]


def test_a_folder_without_notebooks_is_named(edition: Path, python: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    done = run(python, edition / "instructor" / "grade.py", "empty", cwd=tmp_path)
    assert done.returncode == 1
    assert "no notebook of the course below empty" in done.stderr
    done = run(python, edition / "instructor" / "grade.py", "nowhere", cwd=tmp_path)
    assert "submissions must be a folder, got nowhere" in done.stderr


# The rules catch what they are for -----------------------------------------------------------------------------------


def notebook_of(*cells: tuple[str, str]) -> NotebookNode:
    """Return a notebook of cells, given as their kind and text; a folded one is code."""
    made = []
    for kind, text in cells:
        about = {"jupyter": {"source_hidden": True}} if kind == "folded" else {}
        if kind == "markdown":
            made.append(nbformat.v4.new_markdown_cell(text))
        else:
            made.append(nbformat.v4.new_code_cell(text, metadata=about))
    notebook: NotebookNode = nbformat.v4.new_notebook(cells=made)
    return notebook


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("markdown", "```{note}\nWell.\n```"),
        ("markdown", "> :::{admonition} Title"),
        ("markdown", "the {term}`budget`"),
        ("markdown", "see {prf:ref}`thm-one`"),
        ("markdown", "(a-label)=\n## Title"),
        ("markdown", "it is {{ repository }}"),
        ("markdown", r"$\E X$ and $\BetaD(1, 1)$"),
        ("code", "x = 1\nassert x == 1"),
        ("code", "for x in y:\n    assert x"),
        ("code", 'glue("a", "1")'),
        ("code", "from grading import grade"),
    ],
)
def test_what_is_of_the_book_is_seen(kind: str, text: str) -> None:
    assert len(flaws(notebook_of((kind, text)))) >= 1


@pytest.mark.parametrize(
    "text", [r"$\mathbb{E} X$, $\Bigl($, $\Rightarrow$", "a `{dict}` and {1, 2}", "**Theorem 1.2.**"]
)
def test_plain_markdown_is_accepted(text: str) -> None:
    assert flaws(notebook_of(("markdown", text))) == []


def test_folded_code_that_moves_a_generator_is_seen(python: Path, tmp_path: Path) -> None:
    """Stored are the numbers of a run with the folded cell; whoever skips it would see others."""

    def run_of(folded: str) -> NotebookNode:
        start = "import numpy as np\nrng = np.random.default_rng(1)"
        nbformat.write(
            notebook_of(("code", start), ("folded", folded), ("code", "rng.random()")), tmp_path / "made.ipynb"
        )
        assert run(python, HERE / "execute.py", "made.ipynb", "ran.ipynb", cwd=tmp_path).returncode == 0
        ran: NotebookNode = nbformat.read(tmp_path / "ran.ipynb", as_version=4)
        return ran

    harmless, harmful = run_of("x = 1"), run_of("rng.random();")
    stored = json.loads(json.dumps(harmless))
    assert surprises(nbformat.from_dict(stored), harmful) == []  # the run gives what a reader gets who skips it
    stored["cells"][2]["outputs"][0]["data"]["text/plain"] = "0.9504636963259353"  # the second number of the generator
    assert len(surprises(nbformat.from_dict(stored), harmful)) == 1
