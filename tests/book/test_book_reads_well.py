"""Tests that read the book as a careful reader would: every section has its parts, every figure its words.

A rule is a function from a section to the list of its breaches, so that the last part of this file can show that each
rule catches what it is for.
"""

from __future__ import annotations

import ast
import json
import re
import statistics
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import nbformat
import pytest
import yaml
from nbformat import NotebookNode
from notebooks import SECONDS_ALLOWED, code_cells, find_sources, is_notebook, read_source, tags
from pybtex.database import parse_file

ROOT = Path(__file__).resolve().parents[2]
BOOK = ROOT / "book"
SECTIONS = find_sources([BOOK])
PAGES = sorted(path for path in BOOK.rglob("*.md") if not is_notebook(path))

LONGEST_CELL = 20
MEDIAN_CELL = 5
KNOWN_TAGS = {
    "full-width",
    "hide-cell",
    "hide-input",
    "hide-output",
    "margin",
    "nbval-ignore-output",
    "output_scroll",
    "raises-exception",
    "remove-cell",
    "remove-input",
    "remove-output",
}
SEEDED = {"default_rng", "SeedSequence", "PCG64", "PCG64DXSM", "Philox", "SFC64", "MT19937"}
WITHOUT_STATE = SEEDED | {"Generator", "BitGenerator"}

Rule = Callable[[NotebookNode], list[str]]


def slug(path: Path) -> str:
    """Return the name by which a test shows a file of the book."""
    return path.relative_to(BOOK).with_suffix("").as_posix()


@cache
def executed(source: Path) -> NotebookNode:
    """Return the executed notebook of a section."""
    notebook: NotebookNode = nbformat.read(source.with_suffix(".ipynb"), as_version=4)
    return notebook


def prose(notebook: NotebookNode) -> str:
    """Return the text of a section."""
    return "\n\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")


# Rules for a section ------------------------------------------------------------------------------------------------


def figures_without_words(notebook: NotebookNode) -> list[str]:
    """Every figure has a caption, a name to refer to it by, and a text for who cannot see it; one figure a cell."""
    found = []
    for number, cell in enumerate(code_cells(notebook), start=1):
        images = [kind for output in cell.outputs for kind in output.get("data", {}) if kind.startswith("image/")]
        if not images or tags(cell) & {"remove-cell", "remove-output"}:
            continue
        words = cell.metadata.get("mystnb", {})
        found += [f"code cell {number} draws {len(images)} figures: one a cell"] * (len(images) > 1)
        for group, field in (("figure", "caption"), ("figure", "name"), ("image", "alt")):
            if not str(words.get(group, {}).get(field, "")).strip():
                found.append(f"code cell {number} draws a figure without mystnb: {group}: {field}")
    return found + pictures_without_words(prose(notebook))


def pictures_without_words(text: str) -> list[str]:
    """Every picture file that a page shows has a text for who cannot see it, and a figure has a caption."""
    found = [f"{shown} has no alt text" for shown in re.findall(r"!\[\s*\]\([^)]*\)", text)]
    for fence, kind, name, body in re.findall(r"^(`{3,}|:{3,})\{(image|figure)\} *(\S*)\n(.*?)^\1", text, re.M | re.S):
        if not re.search(r"^:alt: *\S", body, re.M):
            found.append(f"{fence}{{{kind}}} {name} has no :alt:")
        if kind == "figure" and not re.sub(r"^:.*$", "", body, flags=re.M).strip():
            found.append(f"{fence}{{figure}} {name} has no caption")
    return found


def long_cells(notebook: NotebookNode) -> list[str]:
    """Cells are short: none over 20 lines, half of those that a reader sees 5 lines or fewer (imports apart)."""
    found = []
    for number, cell in enumerate(code_cells(notebook), start=1):
        length = len(cell.source.splitlines())
        found += [f"code cell {number} has {length} lines, more than {LONGEST_CELL}"] * (length > LONGEST_CELL)
    seen = [lines_to_read(cell.source) for cell in code_cells(notebook) if "remove-cell" not in tags(cell)]
    if seen and statistics.median(seen) > MEDIAN_CELL:
        found.append(f"the median code cell has {statistics.median(seen):g} lines, more than {MEDIAN_CELL}")
    return found


def lines_to_read(code: str) -> int:
    """Count the lines of a cell, without blank ones and without the imports at its head."""
    imports = r"^(?:from [^\n]* import \([^)]*\)|(?:from|import) [^\n]*)$"
    body = re.sub(imports, "", code, flags=re.MULTILINE)
    return sum(1 for line in body.splitlines() if line.strip())


def unknown_tags(notebook: NotebookNode) -> list[str]:
    """Tags are spelt right, and none keeps a cell from being run and compared."""
    strange = {tag for cell in notebook.cells for tag in tags(cell)} - KNOWN_TAGS
    return [f"unknown cell tag {tag!r}" for tag in sorted(strange)]


def careless_randomness(code: str, *, seedless_too: bool = True) -> list[str]:
    """Random numbers come from generators that are passed around, and in a notebook from seeded ones."""
    found = []
    for node in ast.walk(ast.parse("\n".join(re.sub(r"^\s*[%!].*", "", line) for line in code.splitlines()))):
        if isinstance(node, ast.Attribute) and re.fullmatch(r"(np|numpy)\.random", ast.unparse(node.value)):
            found += [f"np.random.{node.attr} uses global state"] * (node.attr[0].islower() and node.attr not in SEEDED)
        if isinstance(node, ast.Import):
            found += ["import random brings global state" for name in node.names if name.name == "random"]
        if isinstance(node, ast.ImportFrom) and node.module == "numpy.random":
            found += [f"numpy.random.{n.name} uses global state" for n in node.names if n.name not in WITHOUT_STATE]
        if isinstance(node, ast.ImportFrom) and (node.module == "random" or (node.module == "numpy")):
            found += [f"from {node.module} import {n.name}" for n in node.names if "random" in (n.name, node.module)]
        if seedless_too and isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] in SEEDED:
            seeds = [*node.args, *(keyword.value for keyword in node.keywords)]
            if not seeds or ast.unparse(seeds[0]) == "None":
                found.append(f"{ast.unparse(node)} has no seed")
    return found


def careless_randomness_in_cells(notebook: NotebookNode) -> list[str]:
    """Apply the rule on random numbers to every cell."""
    return [breach for cell in code_cells(notebook) for breach in careless_randomness(cell.source)]


def outputs_of_one_machine(notebook: NotebookNode) -> list[str]:
    """No output names a folder of the machine that ran the notebook."""
    folders = r"(/(?:home|root|Users|tmp|work)/|ipykernel_\d|[A-Z]:\\\\)"
    found = []
    for number, cell in enumerate(code_cells(notebook), start=1):
        texts = [json.dumps(kind) for out in cell.outputs for kind in (out.get("text"), without_images(out))]
        found += [
            f"the output of code cell {number} names a folder of a machine" for t in texts if re.search(folders, t)
        ]
    return found


def without_images(output: NotebookNode) -> dict[str, Any]:
    """Return the data of an output that is text."""
    return {kind: value for kind, value in output.get("data", {}).items() if not kind.startswith("image/")}


def missing_parts(notebook: NotebookNode) -> list[str]:
    """A section has one title, learning goals, two or more exercises with hidden solutions, and further reading."""
    text = prose(notebook)
    found = [] if len(re.findall(r"^# \S", text, re.M)) == 1 else ["it does not have exactly one title"]
    goals = re.search(r"^(:{3,}|`{3,})\{admonition\}[^\n]*\n:class: goals *\n(.*?)^\1", text, re.M | re.S)
    if not goals or len(re.findall(r"^[-*] \S", goals.group(2), re.M)) < 2:
        found.append("it has no admonition of class goals with two or more learning goals")
    if not re.search(r"^## Exercises$", text, re.M):
        found.append("it has no heading '## Exercises'")
    further = re.search(r"^## Further reading\n(.*)", text, re.M | re.S)
    if not further or not re.search(r"\{cite:[pt]\}|\]\(http", further.group(1)):
        found.append("it has no '## Further reading' that cites something")
    return found + unsolved_exercises(text)


def unsolved_exercises(text: str) -> list[str]:
    """There are two or more exercises, and each has one solution, hidden until it is opened."""
    exercises = re.findall(r"\{exercise(?:-start)?\}[^\n]*\n(?::[^\n]*\n)*?:label: *(\S+)", text)
    solutions = re.findall(r"\{solution(?:-start)?\} *(\S+)\n((?::[^\n]*\n)*)", text)
    unlabelled = len(re.findall(r"\{exercise(?:-start)?\}", text)) - len(exercises)
    found = [f"{unlabelled} exercises have no label"] * bool(unlabelled)
    found += [f"it has {len(exercises)} exercises, fewer than 2"] * (len(exercises) < 2)
    for label in exercises:
        count = sum(solved == label for solved, _ in solutions)
        found += [f"exercise {label} has {count} solutions, not 1"] * (count != 1)
    for label, options in solutions:
        found += [f"the solution of {label} is not hidden (:class: dropdown)"] * (":class: dropdown" not in options)
    return found


RULES: list[Rule] = [
    figures_without_words,
    long_cells,
    unknown_tags,
    careless_randomness_in_cells,
    outputs_of_one_machine,
    missing_parts,
]


def rules_for(source: Path) -> list[Rule]:
    """Return the rules for a notebook: a reference page has no goals, exercises or further reading."""
    return [rule for rule in RULES if rule is not missing_parts or source.parent != BOOK / "reference"]


@pytest.mark.parametrize(
    ("source", "rule"),
    [
        pytest.param(source, rule, id=f"{slug(source)}-{rule.__name__}")
        for source in SECTIONS
        for rule in rules_for(source)
    ],
)
def test_the_section_keeps_the_rule(source: Path, rule: Rule) -> None:
    assert rule(executed(source)) == []


@pytest.mark.parametrize("page", PAGES, ids=slug)
def test_the_page_shows_no_picture_without_words(page: Path) -> None:
    assert pictures_without_words(page.read_text(encoding="utf-8")) == []


# Rules for the book as a whole --------------------------------------------------------------------------------------


def test_there_is_a_book_to_read() -> None:
    assert SECTIONS
    assert PAGES


@pytest.mark.parametrize("source", SECTIONS, ids=slug)
def test_the_section_ran_within_its_time_budget(source: Path) -> None:
    times = json.loads((BOOK / "timings.json").read_text(encoding="utf-8"))
    assert slug(source) in times, "no time recorded: run `make notebooks`"
    assert times[slug(source)] <= SECONDS_ALLOWED


def contents(entry: Any) -> Iterator[str]:
    """Yield the files that a table of contents names."""
    if isinstance(entry, list):
        for part in entry:
            yield from contents(part)
    elif isinstance(entry, dict):
        yield from (entry[key] for key in ("root", "file") if key in entry)
        for key in ("parts", "chapters", "sections"):
            yield from contents(entry.get(key, []))


def test_the_table_of_contents_names_every_section_and_page_once() -> None:
    named = Counter(contents(yaml.safe_load((ROOT / "_toc.yml").read_text(encoding="utf-8"))))
    written = [f"book/{slug(path)}.ipynb" for path in SECTIONS] + [f"book/{slug(path)}" for path in PAGES]
    assert sorted(named.elements()) == sorted(written)


def cited_keys() -> dict[str, set[str]]:
    """Return the citation keys of each file of the book, captions included."""
    found: dict[str, set[str]] = {}
    for path in [*SECTIONS, *PAGES]:
        groups = re.findall(r"\{cite(?::\w+)?\}`([^`]+)`", path.read_text(encoding="utf-8"))
        found[slug(path)] = {key.strip() for group in groups for key in group.split(",")}
    return found


def test_every_work_that_is_cited_is_in_the_bibliography() -> None:
    known = set(parse_file(str(BOOK / "references.bib")).entries)
    missing = {page: keys - known for page, keys in cited_keys().items() if keys - known}
    assert missing == {}


def test_every_work_in_the_bibliography_can_be_found_by_a_doi_or_an_address() -> None:
    works = parse_file(str(BOOK / "references.bib")).entries
    found = [key for key, work in works.items() if not {"doi", "url"} & set(work.fields)]
    assert found == []
    broken = [
        key for key, work in works.items() if not re.match(r"10\.\d{4,}/\S+$", work.fields.get("doi", "10.1000/x"))
    ]
    assert broken == []


@pytest.mark.parametrize("source", SECTIONS, ids=slug)
def test_the_section_glues_each_number_once_and_uses_it(source: Path) -> None:
    notebook = read_source(source)
    glued = [name for cell in code_cells(notebook) for name in re.findall(r"\bglue\(\s*f?[\"']([^\"']+)", cell.source)]
    captions = " ".join(str(cell.metadata.get("mystnb", "")) for cell in notebook.cells)
    used = set(re.findall(r"\{glue:\w*\}`([^`:]+)", prose(notebook) + captions))
    assert [name for name, times in Counter(glued).items() if times > 1] == []
    assert {name for name in glued if "{" not in name} - used == set(), "glued but not used"


@pytest.mark.parametrize("source", SECTIONS, ids=slug)
def test_what_the_section_glues_is_finished_text(source: Path) -> None:
    """A number would be rounded by whoever shows it; rounding is a decision of the section."""
    stored = nbformat.read(source.with_suffix(".ipynb"), as_version=4)
    outputs = [
        output for cell in code_cells(stored) for output in cell.outputs if "scrapbook" in output.get("metadata", {})
    ]
    assert [
        each.metadata["scrapbook"]["name"] for each in outputs if next(iter(each.data.values()))[0] not in "'\""
    ] == []


def test_no_two_figures_share_a_name() -> None:
    names = Counter(
        cell.metadata["mystnb"]["figure"]["name"]
        for source in SECTIONS
        for cell in code_cells(read_source(source))
        if "name" in cell.metadata.get("mystnb", {}).get("figure", {})
    )
    assert [name for name, times in names.items() if times > 1] == []


@pytest.mark.parametrize("module", sorted((ROOT / "dpbook").rglob("*.py")), ids=lambda path: path.stem)
def test_the_package_uses_no_global_random_state(module: Path) -> None:
    assert careless_randomness(module.read_text(encoding="utf-8"), seedless_too=False) == []


# The rules catch what they are for ----------------------------------------------------------------------------------


def notebook_of(code: str = "", *, text: str = "", image: bool = False, **metadata: Any) -> NotebookNode:
    """Return a notebook of one text cell and one code cell."""
    data = {"image/png": "iVBO", "text/plain": "<Figure>"} if image else {"text/plain": "1"}
    output = nbformat.v4.new_output("display_data", data=data)
    cell = nbformat.v4.new_code_cell(code, outputs=[output], metadata=metadata)
    notebook: NotebookNode = nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell(text), cell])
    return notebook


WORDS = {"figure": {"caption": "A line.", "name": "fig-line"}, "image": {"alt": "A rising line."}}


def test_a_figure_with_caption_name_and_alt_text_is_accepted() -> None:
    assert figures_without_words(notebook_of(image=True, mystnb=WORDS)) == []


@pytest.mark.parametrize(
    ("group", "field"), [("figure", "caption"), ("figure", "name"), ("image", "alt")], ids=["caption", "name", "alt"]
)
def test_a_figure_that_lacks_its_words_is_caught(group: str, field: str) -> None:
    words = {name: dict(fields) for name, fields in WORDS.items()}
    words[group][field] = " "
    assert len(figures_without_words(notebook_of(image=True, mystnb=words))) == 1


@pytest.mark.parametrize(
    "text",
    ["![](picture.svg)", "```{image} picture.svg\n```\n", "```{figure} picture.svg\n:alt: Words.\n```\n"],
    ids=["markdown", "image", "figure without caption"],
)
def test_a_picture_that_lacks_its_words_is_caught(text: str) -> None:
    assert len(pictures_without_words(text)) == 1


def test_a_figure_directive_with_its_words_is_accepted() -> None:
    assert pictures_without_words("```{figure} p.svg\n:alt: Words.\n:name: fig\n\nA caption.\n```\n") == []


def test_a_cell_of_21_lines_is_caught() -> None:
    assert long_cells(notebook_of("x = 1\n" * 21, tags=["remove-cell"])) == ["code cell 1 has 21 lines, more than 20"]


def test_a_notebook_of_long_cells_is_caught() -> None:
    assert long_cells(notebook_of("x = 1\n" * 6)) == ["the median code cell has 6 lines, more than 5"]
    assert long_cells(notebook_of("x = 1\n" * 5)) == []


def test_a_misspelt_tag_is_caught() -> None:
    assert unknown_tags(notebook_of(tags=["hide_input"])) == ["unknown cell tag 'hide_input'"]


@pytest.mark.parametrize(
    "code",
    [
        "np.random.seed(1)",
        "x = 2 * numpy.random.normal()",
        "import random",
        "from random import gauss",
        "from numpy import random",
        "from numpy.random import normal",
        "rng = np.random.default_rng()",
        "rng = default_rng(None)",
        "rng = np.random.Generator(np.random.PCG64())",
        "rng = np.random.default_rng(seed=None)",
    ],
)
def test_careless_random_numbers_are_caught(code: str) -> None:
    assert careless_randomness(code)


@pytest.mark.parametrize(
    "code",
    [
        "rng = np.random.default_rng(1)",
        "from numpy.random import default_rng\nrng = default_rng(seed=3)",
        "def f(rng: np.random.Generator) -> float:\n    return rng.random()",
        "%matplotlib inline\nx = 1",
    ],
)
def test_careful_random_numbers_are_accepted(code: str) -> None:
    assert careless_randomness(code) == []


def test_an_output_that_names_a_folder_is_caught() -> None:
    notebook = notebook_of()
    notebook.cells[1].outputs = [nbformat.v4.new_output("stream", text="read /home/me/data.csv")]
    assert len(outputs_of_one_machine(notebook)) == 1


GOOD_TEXT = """\
# Title

:::{admonition} In this section you will
:class: goals

- learn;
- practise.
:::

## Exercises

```{exercise} One
:label: ex-one
```

```{solution} ex-one
:class: dropdown
```

```{exercise}
:label: ex-two
```

```{solution-start} ex-two
:class: dropdown
```

```{solution-end}
```

## Further reading

{cite:t}`Dwork2006`.
"""


def test_only_a_reference_page_may_do_without_the_parts_of_a_section() -> None:
    assert missing_parts in rules_for(BOOK / "background" / "definition.md")
    assert rules_for(BOOK / "reference" / "errata.md") == [rule for rule in RULES if rule is not missing_parts]


def test_a_section_with_all_its_parts_is_accepted() -> None:
    assert missing_parts(notebook_of(text=GOOD_TEXT)) == []


@pytest.mark.parametrize(
    ("old", "new", "because"),
    [
        ("# Title\n", "\n", "title"),
        (":class: goals", ":class: note", "goals"),
        ("- practise.\n", "", "goals"),
        ("## Exercises", "## Questions", "Exercises"),
        (":label: ex-one\n", "", "no label"),
        ("{solution} ex-one\n", "{note}\n", "exercise ex-one has 0 solutions"),
        ("ex-two\n:class: dropdown", "ex-two", "not hidden"),
        ("{cite:t}`Dwork2006`", "Nothing", "Further reading"),
        ("```{exercise}\n:label: ex-two\n```", "", "fewer than 2"),
    ],
)
def test_a_section_that_lacks_a_part_is_caught(old: str, new: str, because: str) -> None:
    assert old in GOOD_TEXT
    found = missing_parts(notebook_of(text=GOOD_TEXT.replace(old, new)))
    assert any(because in breach for breach in found), found
