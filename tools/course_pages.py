"""A builder of the book that writes notebooks: every section in plain Markdown, for students and for instructors.

What Sphinx has resolved for the pages of the book (numbers, references, glued values) is written out as Markdown that
any notebook program shows, with links to the page online. Cells of code are those of the executed section.
"""

from __future__ import annotations

import ast
import csv
import re
import shutil
import tomllib
from collections.abc import Iterable, Iterator, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat
import yaml
from docutils import nodes
from nbformat import NotebookNode
from needed_code import needed_code
from notebooks import NOTEBOOK_METADATA
from sphinx.builders import Builder

from dpbook import __version__

HEADINGS = 4  # deeper ones would look like prose
LEVEL = re.compile(r"^(●{1,3}) (\d+) minutes$", re.M)
ROOT = Path(__file__).resolve().parent.parent


# Mathematics ---------------------------------------------------------------------------------------------------------


def expand(tex: str, macros: dict[str, str]) -> str:
    """Replace the book's own commands by what they stand for, on one line."""
    for name, meaning in macros.items():
        tex = re.sub(rf"\\{name}(?![A-Za-z])", meaning.replace("\\", r"\\"), tex)
    return " ".join(tex.split())


def without_bars(tex: str) -> str:
    """Write absolute values and norms without the character that ends a cell of a Markdown table."""
    return re.sub(r"(?<!\\)\|", r"\\vert ", tex.replace(r"\|", r"\Vert "))


def escaped(text: str) -> str:
    """Return text that Markdown shows as it is."""
    text = re.sub(r"([\\`*$])", r"\\\1", text)
    text = re.sub(r"(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])", r"\\_", text)
    return text.replace("<", "&lt;").replace("[", r"\[").replace("]", r"\]")


# One page ------------------------------------------------------------------------------------------------------------


@dataclass
class Cell:
    """A piece of a page: prose, or a code cell of the executed section (by its index there), and whom it is for."""

    text: str = ""
    code: int | None = None
    kind: str = "prose"  # prose, code, figure, exercise, solution
    label: str = ""
    start: str = ""  # of an exercise: the code with which an answer begins, its check included


class Page:
    """The Markdown and the code cells of one resolved page, in order.

    A method ``write_<node>`` returns the Markdown of a node; a node without one is an error, so that no directive is
    lost unseen.
    """

    def __init__(self, builder: CourseBuilder, name: str, tree: nodes.document) -> None:
        self.builder, self.name = builder, name
        self.cells: list[Cell] = []
        self.depth = 0
        self.in_table = False
        self.address = builder.get_target_uri(name)
        self.numbers = builder.env.toc_fignumbers.get(name, {})
        for child in tree.children:
            self.add(child)

    # Blocks, which become cells

    def add(self, node: nodes.Node) -> None:
        """Append a block to the page."""
        kind = type(node).__name__
        if kind == "section":
            self.depth += 1
            for child in node.children:
                self.add(child)
            self.depth -= 1
        elif isinstance(node, nodes.title):
            number = self.builder.env.toc_secnumbers.get(self.name, {}).get("")
            prefix = ".".join(map(str, number)) + " " if number and self.depth == 1 else ""
            self.cells.append(Cell(f"{'#' * min(self.depth, HEADINGS)} {prefix}{self.inline(node)}"))
        elif isinstance(node, nodes.container) and node.get("nb_element") == "cell_code":
            self.add_code(node)
        elif kind.startswith("exercise"):
            self.add_exercise(node)
        elif kind == "solution_node":
            self.add_solution(node)
        else:
            self.add_prose(self.block(node))

    def add_prose(self, text: str) -> None:
        """Append to the prose above, or begin a cell."""
        if not text:
            return
        if self.cells and self.cells[-1].kind == "prose":
            self.cells[-1].text += "\n\n" + text
        else:
            self.cells.append(Cell(text))

    def add_code(self, node: nodes.Element, kind: str = "code", label: str = "") -> None:
        """Append a code cell, and below it the caption and the description of its figure."""
        self.cells.append(Cell(code=node["cell_index"], kind=kind, label=label))
        below = "solution" if kind == "solution" else "figure"
        for figure in node.findall(nodes.figure):
            self.cells.append(Cell(self.write_figure(figure), kind=below, label=label))

    def add_exercise(self, node: nodes.Element) -> None:
        """Append an exercise; a block of Python in it that checks itself is where the answer begins."""
        label = node["label"]
        number = ".".join(map(str, self.numbers.get("exercise", {}).get(label, ())))
        title = self.inline(node.children[0]).strip().removeprefix("(").removesuffix(")")
        start, parts = "", []
        for child in self.contents(node):
            if isinstance(child, nodes.literal_block) and "check(" in child.astext():
                start = child.astext()
            else:
                parts.append(self.block(child))
        text = "\n\n".join([f"### Exercise {number}: {title}", *parts])
        self.cells.append(Cell(text, kind="exercise", label=label, start=start))

    def add_solution(self, node: nodes.Element) -> None:
        """Append a solution, prose and code."""
        label, parts = node["target_label"], ["**Solution.**"]
        for child in self.contents(node):
            if isinstance(child, nodes.container) and child.get("nb_element") == "cell_code":
                self.cells += [Cell("\n\n".join(parts), kind="solution", label=label)] if parts else []
                parts = []
                self.add_code(child, kind="solution", label=label)
            else:
                parts.append(self.block(child))
        self.cells += [Cell("\n\n".join(parts), kind="solution", label=label)] if parts else []

    @staticmethod
    def contents(node: nodes.Element) -> Iterator[nodes.Node]:
        """Yield what stands in a directive below its title."""
        for child in node.children[1:]:
            if isinstance(child, nodes.section):
                yield from child.children
            else:
                yield child

    # Markdown of blocks

    def block(self, node: nodes.Node) -> str:
        """Return the Markdown of a block."""
        kind = type(node).__name__
        if kind.endswith("_node"):
            return self.write_theorem(node)
        if isinstance(node, nodes.Admonition):
            return self.write_admonition(node)
        return str(getattr(self, f"write_{kind}")(node))

    def blocks(self, children: Iterable[nodes.Node]) -> str:
        """Return the Markdown of several blocks."""
        return "\n\n".join(filter(None, (self.block(child) for child in children)))

    def write_paragraph(self, node: nodes.Element) -> str:
        text = self.inline(node)
        return re.sub(r"^(\d+)([.)]) ", r"\1\\\2 ", re.sub(r"^([#+>-])(?= )", r"\\\1", text))

    def write_math_block(self, node: nodes.Element) -> str:
        tex = self.tex(node.astext())
        number = ".".join(map(str, self.numbers.get("displaymath", {}).get(node["ids"][0], ()))) if node["ids"] else ""
        if number:
            tex += rf" \tag{{{number}}}"
        return f"$$ {tex} $$"

    def write_literal_block(self, node: nodes.Element) -> str:
        language = node.get("language", "")
        return f"```{'' if language in ('none', 'default') else language}\n{node.astext()}\n```"

    def write_bullet_list(self, node: nodes.Element) -> str:
        return "\n".join(self.item(child, "- ") for child in node.children)

    def write_enumerated_list(self, node: nodes.Element) -> str:
        first = node.get("start", 1)
        return "\n".join(self.item(child, f"{k}. ") for k, child in enumerate(node.children, start=first))

    def item(self, node: nodes.Element, mark: str) -> str:
        """Return a list item, its later lines indented."""
        return mark + self.blocks(node.children).replace("\n", "\n" + " " * len(mark))

    def write_definition_list(self, node: nodes.Element) -> str:
        return "\n".join(f"- **{self.inline(item[0])}**: {self.blocks(item[-1].children)}" for item in node.children)

    def write_block_quote(self, node: nodes.Element) -> str:
        return quoted(self.blocks(node.children))

    def write_target(self, node: nodes.Element) -> str:
        return ""

    write_comment = write_index = write_substitution_definition = write_target

    def write_admonition(self, node: nodes.Element) -> str:
        """Return a box with a title: folded where the book folds it, a quotation otherwise."""
        titled = bool(node.children) and isinstance(node.children[0], nodes.title)
        title = self.inline(node.children[0]) if titled else type(node).__name__.capitalize()
        text = self.blocks(node.children[titled:])
        if "dropdown" in node["classes"]:
            return folded(title, text)
        return quoted(f"**{title}**\n\n{text}")

    def write_theorem(self, node: nodes.Element) -> str:
        """Return a theorem, definition or algorithm with its number, or a proof."""
        kind = node.get("realtype") or type(node).__name__.removesuffix("_node")
        if kind == "proof":
            text = re.sub(r"^Proof\. *", "", self.blocks(node.children[0].children))
            return folded("Proof", text) if "dropdown" in node["classes"] else f"*Proof.* {text}"
        numbers = self.numbers.get(node.get("countertype") or kind, {})
        number = ".".join(map(str, numbers.get(node["label"], ()))) if node.get("label") else ""
        title = self.inline(node.children[0]).strip()
        head = " ".join(filter(None, [kind.capitalize(), number, title]))
        return quoted(f"**{head}.** " + self.blocks(self.contents(node)))

    def write_figure(self, node: nodes.Element) -> str:
        """Return the caption of a figure, and its description for those who cannot see it."""
        number = ".".join(map(str, self.numbers.get("figure", {}).get(node["ids"][0], ())))
        caption = next(iter(node.findall(nodes.caption)), None)
        alt = " ".join(image.get("alt", "") for image in node.findall(nodes.image)).strip()
        text = f"**Figure {number}.** {self.inline(caption) if caption else ''}"
        return f"{text}\n\n{folded('Description of the figure', escaped(alt))}" if alt else text

    def write_table(self, node: nodes.Element) -> str:
        """Return a table of one line for each row; its title above it."""
        self.in_table = True
        rows = [[self.entry(entry) for entry in row.children] for row in node.findall(nodes.row)]
        titles = [child for child in node.children if isinstance(child, nodes.title)]
        heading = [f"**{self.table_name(node)}{self.inline(titles[0])}**\n"] if titles else []
        self.in_table = False
        if next(iter(node.findall(nodes.thead)), None) is None:
            rows.insert(0, [""] * len(rows[0]))
        lines = ["| " + " | ".join(row) + " |" for row in rows]
        return "\n".join([*heading, lines[0], "|" + " --- |" * len(rows[0]), *lines[1:]])

    def table_name(self, node: nodes.Element) -> str:
        number = self.numbers.get("table", {}).get(node["ids"][0], ()) if node["ids"] else ()
        return f"Table {'.'.join(map(str, number))}. " if number else ""

    def entry(self, node: nodes.Element) -> str:
        """Return a cell of a table, on one line."""
        return self.blocks(node.children).replace("\n\n", "<br>").replace("\n", " ").replace("|", r"\|")

    def write_container(self, node: nodes.Element) -> str:
        return self.blocks(node.children)

    def write_raw(self, node: nodes.Element) -> str:
        if "html" in node["format"].split() and not re.search(
            "thebe|kernelName", node.astext()
        ):  # scripts of live cells
            raise NotImplementedError(f"{self.name}: HTML that no notebook would show: {node.astext()[:200]!r}")
        return ""

    # Markdown within a line

    def inline(self, node: nodes.Node) -> str:
        """Return the Markdown of what a paragraph or a title holds, on one line."""
        text = "".join(self.span(child) for child in node.children)
        return re.sub(r"\s*\n\s*", " ", text).strip()

    def span(self, node: nodes.Node) -> str:
        """Return the Markdown of a piece of a line."""
        if isinstance(node, nodes.Text):
            return escaped(node.astext())
        if isinstance(node, nodes.math):
            return f"${self.tex(node.astext())}$"
        if isinstance(node, nodes.literal):
            return f"`{node.astext()}`"
        if isinstance(node, nodes.emphasis):
            return f"*{self.inline(node)}*"
        if isinstance(node, nodes.strong):
            return f"**{self.inline(node)}**"
        if isinstance(node, nodes.reference):
            return self.link(node)
        if isinstance(node, nodes.raw | nodes.target | nodes.comment):
            return ""
        if isinstance(node, nodes.TextElement | nodes.Inline):  # spans that only carry a class
            return "".join(self.span(child) for child in node.children)
        raise NotImplementedError(f"{self.name}: no Markdown for {type(node).__name__}: {node.astext()[:80]!r}")

    def link(self, node: nodes.Element) -> str:
        """Return a link to the page online."""
        address = node.get("refuri") or f"{self.address}#{node['refid']}"
        if address.startswith("#"):
            address = self.address + address
        return f"[{self.inline(node)}]({address})"

    def tex(self, source: str) -> str:
        """Return a formula in the commands that every notebook program knows."""
        tex = expand(source, self.builder.macros)
        return without_bars(tex) if self.in_table else tex


def quoted(text: str) -> str:
    """Return Markdown as a quotation."""
    return "\n".join(f"> {line}".rstrip() for line in text.split("\n"))


def folded(title: str, text: str) -> str:
    """Return Markdown that opens on a click."""
    return f"<details><summary>{title}</summary>\n\n{text}\n\n</details>"


# The notebooks -------------------------------------------------------------------------------------------------------

SETUP = "# @title Set-up"
FIGURE = "# @title Code of the figure"
NO_CODE = "*Write your answer here.*"
NO_ANSWER = "# Write your answer here."
FETCH_FILES = """
for name in {files}:
    if not Path(name).exists():  # a notebook that was opened alone
        Path(name).parent.mkdir(exist_ok=True)
        urlretrieve(f"{online}/{{name}}", name)
"""
INSTALL = """# Run this cell first. It installs the package where it is missing, on Colab for example.
from importlib.util import find_spec
from pathlib import Path
{imports}
if find_spec("dpbook") is None:
    # the package lies beside the chapters; where a notebook was opened alone, it comes from the book's site
    shelf = ".." if list(Path("..").glob("dpbook-*.whl")) else "{shelf}"
    %pip install --quiet --find-links {{shelf}} {packages}
{fetch}"""


def packages() -> list[str]:
    """Return what a machine without the package installs: it, in this version, and what the extra for courses names.

    Whoever sees a notebook has a program for notebooks.
    """
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = [line for line in project["optional-dependencies"]["course"] if not line.startswith("jupyterlab")]
    own = [line for line in wanted if line.startswith("dpbook")] or ["dpbook"]
    others = [line for line in wanted if line not in own]
    return [f'"{line}=={__version__}"' for line in own] + [f'"{line}"' for line in others]


def install_cell(files: list[str], shelf: str, chapter: str) -> str:
    """Return the code of the first cell: the package where it is missing, and the files that belong to the notebook.

    Both come from the shelf, the folder of the edition online; the files from its folder of the chapter.
    """
    fetch = FETCH_FILES.format(files=listed(files), online=f"{shelf}/{chapter}") if files else ""
    imports = "from urllib.request import urlretrieve\n" if files else ""
    wanted = " ".join(packages())
    return INSTALL.format(imports=imports, shelf=f"{shelf}/", packages=wanted, fetch=fetch).rstrip("\n")


def listed(names: list[str]) -> str:
    """Return the Python of a list of names, one in a line where there are several."""
    if len(names) == 1:
        return f'["{names[0]}"]'
    return "\n".join(["[", *(f'    "{name}",' for name in names), "]"])


def split_check(start: str) -> tuple[str, str]:
    """Split the code with which an answer begins from the check that ends it."""
    answer, _, check = start.rstrip().rpartition("\ncheck(")
    return answer.rstrip(), "check(" + check


def checked_answer(start: str) -> str:
    """Return the expression that a check is given, such as the name of a function."""
    (call,) = ast.parse(split_check(start)[1], mode="exec").body
    assert isinstance(call, ast.Expr)
    assert isinstance(call.value, ast.Call)
    return ast.unparse(call.value.args[1])


class Edition:
    """One section as a notebook, for students or, with solutions, notes and the tests that grade, for instructors."""

    def __init__(self, page: Page, section: NotebookNode, *, instructor: bool, notes: str = "") -> None:
        self.page, self.section, self.instructor, self.notes = page, section, instructor, notes
        self.shown = {cell.code for cell in page.cells if cell.code is not None and self.is_for_us(cell)}
        self.code = self.needed_sources()
        self.cells: list[NotebookNode] = []

    def is_for_us(self, cell: Cell) -> bool:
        return self.instructor or cell.kind != "solution"

    def needed_sources(self) -> dict[int, str]:
        """Return the code to keep of every cell of the section, by its index."""
        code = [(k, cell) for k, cell in enumerate(self.section.cells) if cell.cell_type == "code"]
        kept = needed_code([(cell.source, k in self.shown) for k, cell in code])
        return {k: source for (k, _), source in zip(code, kept, strict=True) if source}

    def notebook(self, install: str) -> NotebookNode:
        """Return the notebook: the title, the first cell to run, then the page in its order."""
        done = -1  # the last cell of the section whose hidden code was taken over
        for number, cell in enumerate(self.page.cells):
            if not self.is_for_us(cell):
                continue
            if cell.code is not None:
                self.add_shown(cell.code, self.hidden_between(done, cell.code))
                done = cell.code
            else:
                self.add_prose(cell)
            if number == 0:
                self.open(install)
            if self.instructor and cell.kind == "solution":
                self.add_grade(number)
        return self.named()

    def open(self, install: str) -> None:
        """Add to the title where the section is online, the instructor's notes, and the first cell to run."""
        head, builder = self.cells[0], self.page.builder
        title, _, rest = head.source.partition("\n")
        book = f"[{builder.config.html_title}]({builder.address}/)"
        head.source = f"{title}\n\n*From {book}. [Read this section online]({self.page.address}).*"
        if self.notes:
            self.cells.append(nbformat.v4.new_markdown_cell(quoted(f"**For the instructor**\n\n{self.notes}")))
        self.add_code(install, "install")
        if rest.strip():
            self.cells.append(nbformat.v4.new_markdown_cell(rest.strip()))

    def hidden_between(self, done: int, index: int) -> str:
        """Return what hidden cells define and shown ones need, from the cells between two shown ones."""
        between = [self.code[k] for k in range(done + 1, index) if k in self.code and k not in self.shown]
        return "\n".join(between)

    def add_shown(self, index: int, needs: str) -> None:
        """Add a cell of the section, with its outputs; the code of a figure is folded, and what it needs with it."""
        cell = self.section.cells[index]
        tags = set(cell.metadata.get("tags", []))
        folds = bool(tags & {"hide-input", "hide-cell", "remove-input"})
        source = cell.source
        if folds:
            source = FIGURE + "\n" + "\n\n\n".join(filter(None, [needs, source]))
        elif needs:
            self.add_code(f"{SETUP}\n{needs}", "set-up", hidden=True)
        if self.instructor and source.startswith("from checks import"):
            source += "\nfrom grading import grade"
        self.add_code(source, *sorted(tags - {"hide-input"}), hidden=folds, outputs=cell.outputs)

    def add_prose(self, cell: Cell) -> None:
        """Add prose; below an exercise a place for the answer, and its check."""
        self.cells.append(nbformat.v4.new_markdown_cell(cell.text))
        if cell.kind != "exercise" or self.instructor:
            return
        if cell.start:
            answer, check = split_check(cell.start)
            self.add_code(answer, "answer", exercise=cell.label)
            self.add_code(check, "check", exercise=cell.label)
        elif self.has_code(cell.label):
            self.add_code(NO_ANSWER, "answer", exercise=cell.label)
        else:
            self.cells.append(nbformat.v4.new_markdown_cell(NO_CODE, metadata={"tags": ["answer"]}))

    def add_grade(self, number: int) -> None:
        """Add, after the cell of a solution that checks an answer, the hidden tests on the same answer."""
        index = self.page.cells[number].code
        found = re.search(r'check\("(ex-[\w-]+)"', self.section.cells[index].source) if index is not None else None
        if found is None:
            return
        for cell in self.section.cells:
            graded = re.search(rf'assert (grade\("{found.group(1)}".*\))\.passed', cell.source)
            if graded is not None:
                self.add_code(graded.group(1), "grade", exercise=found.group(1))

    def has_code(self, label: str) -> bool:
        """Say whether the solution of an exercise holds code."""
        return any(
            cell.label == label and cell.kind == "solution" and cell.code is not None for cell in self.page.cells
        )

    def add_code(self, source: str, *tags: str, hidden: bool = False, outputs: Any = (), **metadata: str) -> None:
        """Add a code cell; a hidden one is folded by JupyterLab and by Colab."""
        about: dict[str, Any] = dict(metadata)
        if tags:
            about["tags"] = list(tags)
        if hidden:
            about |= {"jupyter": {"source_hidden": True}, "cellView": "form"}
        self.cells.append(nbformat.v4.new_code_cell(source, metadata=about, outputs=list(outputs)))

    def named(self) -> NotebookNode:
        """Return the cells as a notebook, each with an id that stays the same from build to build."""
        for number, cell in enumerate(self.cells):
            cell.id = f"{Path(self.page.name).name[:50]}-{number:03d}"
            for output in cell.get("outputs", []):
                output.pop("execution_count", None)
                if output.output_type == "execute_result":
                    output["execution_count"] = None
        about = {"cells": self.cells, "metadata": NOTEBOOK_METADATA, "nbformat_minor": 5}
        notebook: NotebookNode = nbformat.v4.new_notebook(**about)
        return notebook


def companions(folder: Path, sources: Iterable[str]) -> list[str]:
    """Return the files of a chapter's folder that code reads: its modules, those that they import, and its tables."""
    found: set[str] = set()
    todo = list(sources)
    while todo:
        source = todo.pop()
        names = set(re.findall(r"^\s*(?:from|import) (\w+)", source, re.M))
        new = {f"{name}.py" for name in names if (folder / f"{name}.py").exists()} - found
        if "results" in source:
            found |= {f"results/{table.name}" for table in folder.glob("results/*.csv")}
        todo += [(folder / name).read_text(encoding="utf-8") for name in sorted(new)]
        found |= new
    return sorted(found)


def notes_on(docname: str) -> str:
    """Return what an instructor should know about a section; nothing where nothing is written."""
    chapter, section = Path(docname).parts[-2:]
    file = ROOT / "course" / "notes" / f"{chapter}.md"
    if not file.exists():
        return ""
    parts = re.split(r"^## (\S+)\n", file.read_text(encoding="utf-8"), flags=re.M)
    notes = dict(zip(parts[1::2], parts[2::2], strict=True))
    return " ".join(notes.get(section, "").split())


class CourseBuilder(Builder):
    """Write ``<chapter>/<section>.ipynb`` below ``student`` and ``instructor`` for every section of a chapter."""

    name = "course"
    format = "ipynb"

    def init(self) -> None:
        """Read the macros of the book's mathematics and the address of the book."""
        self.supported_image_types = ["image/png"]
        macros = self.config.mathjax3_config["tex"]["macros"]
        if not all(isinstance(meaning, str) for meaning in macros.values()):
            raise NotImplementedError("a macro with arguments: expand() must learn them")
        self.macros: dict[str, str] = macros
        self.address = address()
        self.exercises: list[dict[str, Any]] = []

    def get_outdated_docs(self) -> Set[str]:
        """Write every page, every time."""
        return self.env.found_docs

    def get_target_uri(self, docname: str, typ: str | None = None) -> str:
        """Return the address of a page online, to which all links go."""
        return f"{self.address}/{docname}.html"

    def get_relative_uri(self, from_: str, to: str, typ: str | None = None) -> str:
        """Return the same: a notebook has no place relative to the pages."""
        return self.get_target_uri(to)

    def prepare_writing(self, docnames: Set[str]) -> None:
        """Nothing is needed before the first page."""

    def place_of(self, docname: str) -> Path:
        """Return where a section lies in the course: chapter and section in the order of the book."""
        folder, name = Path(docname).parts[-2:]
        number = self.env.toc_secnumbers[docname][""]
        return Path(f"{number[0]}-{folder}", f"{number[1]:02d}-{name}.ipynb")

    def write_doc(self, docname: str, doctree: nodes.document) -> None:
        """Write the two editions of a section; pages without code, and those outside the chapters, stay online."""
        source = Path(self.env.doc2path(docname))
        if source.suffix != ".ipynb" or not self.env.toc_secnumbers.get(docname):
            return
        place, page = self.place_of(docname), Page(self, docname, doctree)
        self.list_exercises(page, place)
        for name in ("student", "instructor"):
            section = nbformat.read(source, as_version=4)
            notes = notes_on(docname) if name == "instructor" else ""
            edition = Edition(page, section, instructor=name == "instructor", notes=notes)
            files = companions(source.parent, edition.code.values())
            # what grades is handed from hand to hand: online is the student's edition alone
            notebook = edition.notebook(install_cell(files, f"{self.address}/course", place.parent.as_posix()))
            if name == "instructor" and "checks.py" in files:
                files = sorted({*files, "grading.py"})
            target = Path(self.outdir, name, place)
            target.parent.mkdir(parents=True, exist_ok=True)
            nbformat.write(notebook, target)
            for file in files:
                (target.parent / file).parent.mkdir(exist_ok=True)
                shutil.copyfile(source.parent / file, target.parent / file)

    def list_exercises(self, page: Page, place: Path) -> None:
        """Enter the exercises of a page in the instructor's list."""
        for cell in page.cells:
            if cell.kind == "exercise":
                level = LEVEL.search(cell.text)
                row = {"notebook": place.as_posix(), "exercise": cell.label}
                row["title"] = cell.text.split("\n")[0].removeprefix("### ")
                row["level"], row["minutes"] = (str(len(level[1])), level[2]) if level else ("", "")
                row["answer"] = checked_answer(cell.start) if cell.start else ""
                self.exercises.append(row)

    def finish(self) -> None:
        """Write the list of exercises."""
        rows = sorted(self.exercises, key=lambda row: str(row["notebook"]))
        with Path(self.outdir, "instructor", "exercises.csv").open("w", encoding="utf-8", newline="") as file:
            table = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
            table.writeheader()
            table.writerows(rows)


def address() -> str:
    """Return where the book is online: the address that is set, or the pages of the repository."""
    config = yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8"))
    owner, name = config["repository"]["url"].rstrip("/").split("/")[-2:]
    return str(config["html"].get("baseurl") or f"https://{owner}.github.io/{name}").rstrip("/")


def _keep_outputs(app: Any, config: Any) -> None:
    """Tell MyST-NB which form of an output to keep for this builder, which takes outputs from the notebook itself."""
    forms = ("image/png", "text/html", "text/markdown", "text/plain")
    ours = tuple((CourseBuilder.name, form, rank) for rank, form in enumerate(forms))
    config.nb_mime_priority_overrides = (*config.nb_mime_priority_overrides, *ours)


def setup(app: Any) -> dict[str, Any]:
    """Register the builder."""
    app.add_builder(CourseBuilder)
    app.connect("config-inited", _keep_outputs)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
