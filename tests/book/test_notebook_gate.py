"""Proof that the gate closes: notebooks that lie are fed to the real tool and the real `make test-notebooks`.

Each test works in a small copy of the repository: the same tool, the same conftest, the same Makefile, a book of a few
tiny sections. A section imports its numbers from a module beside it; changing that module is what a change in `dpbook`
would be: the text stays, what it computes does not.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]

SECTION = """\
---
kernelspec:
  display_name: Python 3
  language: python
  name: python3
---

# A section

```{code-cell} ipython3
from MODULE import answer
```

Some prose.

```{code-cell} ipython3
:tags: [hide-input]

print(answer())
```
"""

FIGURE = """
```{code-cell} ipython3
import matplotlib.pyplot as plt

from MODULE import line

fig, ax = plt.subplots(figsize=(1, 1))
ax.plot(line())
plt.show()
```
"""

MODULE = """\
def answer():
    return 4


def line():
    return [0, 1]
"""


def small_repository(folder: Path) -> Path:
    """Copy the gate, without the book, to ``folder``."""
    (folder / "tools").mkdir(parents=True)
    (folder / "book").mkdir()
    for name in ("Makefile", "conftest.py", "tools/notebooks.py"):
        shutil.copy(ROOT / name, folder / name)
    (folder / "pyproject.toml").write_text("[tool.pytest.ini_options]\n")
    return folder


def add_section(repository: Path, name: str, *, figure: bool = False) -> Path:
    """Write a section, with the module that it imports; return its path."""
    module = f"answers_of_{name}"
    (repository / "book" / f"{module}.py").write_text(MODULE)
    source = repository / "book" / f"{name}.md"
    source.write_text((SECTION + FIGURE * figure).replace("MODULE", module))
    return source


def run(repository: Path, *command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command in the small repository."""
    # The outer pytest's own options and worker names must not reach the inner one.
    outer = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "DPBOOK_"))}
    return subprocess.run(
        command, cwd=repository, env={**outer, **environment}, capture_output=True, text=True, check=False
    )


def refresh(repository: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Run the tool that writes the notebooks."""
    return run(repository, sys.executable, "tools/notebooks.py", *options)


def gate(repository: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the gate as `make test` does, in the environment of this very Python."""
    return run(repository, "make", "test-notebooks", "INSTALLED=", f"PY={sys.executable}", **environment)


def change_notebook(source: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Apply ``change`` to the JSON of a section's executed notebook."""
    target = source.with_suffix(".ipynb")
    notebook = json.loads(target.read_text())
    change(notebook)
    target.write_text(json.dumps(notebook, indent=1, ensure_ascii=False, sort_keys=True) + "\n")


# What re-execution rejects ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, bool], bool]:
    """Run the gate over four sections, figures compared or not; return whether each section passed."""
    repository = small_repository(tmp_path_factory.mktemp("gate"))
    for name in ("good", "raising", "drifted"):
        add_section(repository, name)
    add_section(repository, "redrawn", figure=True)
    written = refresh(repository)
    assert written.returncode == 0, written.stdout + written.stderr

    modules = {name: repository / "book" / f"answers_of_{name}.py" for name in ("raising", "drifted", "redrawn")}
    modules["raising"].write_text(MODULE.replace("return 4", "raise ValueError"))
    modules["drifted"].write_text(MODULE.replace("return 4", "return 4.001"))
    modules["redrawn"].write_text(MODULE.replace("[0, 1]", "[0, 1.5]"))

    passed = run_gate(repository, images=False)
    for name in ("raising", "drifted"):  # rejected already
        (repository / "book" / f"{name}.md").unlink()
        (repository / "book" / f"{name}.ipynb").unlink()
    return passed | run_gate(repository, images=True)


def run_gate(repository: Path, *, images: bool) -> dict[tuple[str, bool], bool]:
    """Run a gate that must close, since some section is bad; return for each section whether it passed."""
    report = repository / f"report{images:d}.xml"
    result = gate(repository, PYTEST_ADDOPTS=f"--junitxml={report}", DPBOOK_COMPARE_IMAGES=str(int(images)))
    assert result.returncode != 0
    cases = list(ET.parse(report).iter("testcase"))
    passed = {}
    for name in (path.stem for path in (repository / "book").glob("*.md")):
        own = [case for case in cases if name in case.get("classname", "")]
        assert len(own) >= 2, result.stdout
        passed[name, images] = not any(case.find("failure") is not None for case in own)
    return passed


def test_a_good_notebook_passes(outcomes: dict[tuple[str, bool], bool]) -> None:
    assert outcomes["good", False]
    assert outcomes["good", True]


def test_a_notebook_whose_cell_raises_is_rejected(outcomes: dict[tuple[str, bool], bool]) -> None:
    assert not outcomes["raising", False]


def test_a_notebook_whose_output_drifted_is_rejected(outcomes: dict[tuple[str, bool], bool]) -> None:
    assert not outcomes["drifted", False]


def test_a_notebook_whose_figure_drifted_is_rejected_when_images_are_compared(
    outcomes: dict[tuple[str, bool], bool],
) -> None:
    assert outcomes["redrawn", False]
    assert not outcomes["redrawn", True]


# What the comparison with the text rejects --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def executed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a repository of one good section, executed."""
    repository = small_repository(tmp_path_factory.mktemp("executed"))
    add_section(repository, "section")
    assert refresh(repository).returncode == 0
    return repository


@pytest.fixture
def section(executed: Path, tmp_path: Path) -> Path:
    """Give a test its own copy of the executed repository; return the section's text."""
    shutil.copytree(executed, tmp_path / "repository")
    return tmp_path / "repository" / "book" / "section.md"


def rejected_by_check(section: Path, because: str) -> bool:
    """Run the whole gate; say whether its check stopped it with a message that names the section and the reason."""
    result = gate(section.parents[1])
    return result.returncode != 0 and "book/section" in result.stdout and because in result.stdout


def test_an_executed_notebook_in_step_with_its_text_passes_the_check(section: Path) -> None:
    result = refresh(section.parents[1], "--check")
    assert result.returncode == 0, result.stdout


def test_a_notebook_never_executed_is_rejected(section: Path) -> None:
    def forget(notebook: dict[str, Any]) -> None:
        for cell in notebook["cells"]:
            if cell["cell_type"] == "code":
                cell.update(execution_count=None, outputs=[])

    change_notebook(section, forget)
    assert rejected_by_check(section, "execution count None, not 1")


def test_a_notebook_executed_out_of_order_is_rejected(section: Path) -> None:
    change_notebook(section, lambda notebook: notebook["cells"][3].update(execution_count=7))
    assert rejected_by_check(section, "execution count 7, not 2")


@pytest.mark.parametrize(
    ("old", "new", "because"),
    [
        ("Some prose.", "Other prose.", "its source differs"),
        ("print(answer())", "print(answer() + 0)", "its source differs"),
        ("[hide-input]", "[remove-cell]", "its metadata differs"),
        ("Some prose.", "Some prose.\n\n+++\n\nMore.", "5 cells in the text, 4 in the notebook"),
    ],
    ids=["prose", "code", "tags", "cells"],
)
def test_a_notebook_out_of_step_with_its_text_is_rejected(section: Path, old: str, new: str, because: str) -> None:
    text = section.read_text()
    assert old in text
    section.write_text(text.replace(old, new))
    assert rejected_by_check(section, because)


def test_a_text_without_its_notebook_is_rejected(section: Path) -> None:
    section.with_suffix(".ipynb").unlink()
    assert rejected_by_check(section, "there is no .ipynb")


def test_a_notebook_without_its_text_is_rejected(section: Path) -> None:
    section.unlink()
    assert rejected_by_check(section, "no text source")


def test_a_notebook_with_a_stored_error_is_rejected(section: Path) -> None:
    error = {"output_type": "error", "ename": "ValueError", "evalue": "no", "traceback": []}
    change_notebook(section, lambda notebook: notebook["cells"][3].update(outputs=[error]))
    assert rejected_by_check(section, "raised ValueError: no")


def test_a_notebook_with_a_stored_warning_is_rejected(section: Path) -> None:
    warning = {"output_type": "stream", "name": "stderr", "text": ["careful\n"]}
    change_notebook(section, lambda notebook: notebook["cells"][3].update(outputs=[warning]))
    assert rejected_by_check(section, "wrote to stderr: careful")


@pytest.mark.parametrize("tag", ["nbval-skip", "skip-execution"])
def test_a_cell_tagged_so_that_nothing_would_test_it_is_rejected(section: Path, tag: str) -> None:
    section.write_text(section.read_text().replace("[hide-input]", f"[{tag}]"))
    change_notebook(section, lambda notebook: notebook["cells"][3]["metadata"].update(tags=[tag]))
    assert rejected_by_check(section, "nothing would test it")


def test_a_plain_page_with_code_cells_is_rejected(section: Path) -> None:
    (section.parent / "section_page.md").write_text("# A page\n\n```{code-cell}\n1 + 1\n```\n")
    assert rejected_by_check(section, "names no kernelspec")


# What the tool writes -----------------------------------------------------------------------------------------------


def test_the_tool_refuses_to_write_a_notebook_whose_cell_raises(section: Path) -> None:
    section.with_suffix(".ipynb").unlink()
    section.write_text(section.read_text().replace("print(answer())", "raise ValueError('on purpose')"))
    result = refresh(section.parents[1])
    assert result.returncode != 0
    assert "on purpose" in result.stdout
    assert not section.with_suffix(".ipynb").exists()


def test_an_expected_error_is_stored_without_the_paths_of_this_machine(section: Path) -> None:
    text = section.read_text().replace("[hide-input]", "[raises-exception]")
    section.write_text(text.replace("print(answer())", "raise ValueError('on purpose')"))
    assert refresh(section.parents[1]).returncode == 0
    output = json.loads(section.with_suffix(".ipynb").read_text())["cells"][3]["outputs"][0]
    assert output["traceback"] == ["ValueError: on purpose"]


def test_prose_changes_are_merged_without_executing(section: Path) -> None:
    before = json.loads(section.with_suffix(".ipynb").read_text())["cells"][3]["outputs"]
    (section.parent / "answers_of_section.py").write_text("raise RuntimeError('executed')")
    section.write_text(section.read_text().replace("Some prose.", "Better prose."))
    result = refresh(section.parents[1])
    assert result.returncode == 0, result.stdout
    assert "prose updated" in result.stdout
    after = json.loads(section.with_suffix(".ipynb").read_text())["cells"]
    assert after[3]["outputs"] == before
    assert "Better prose." in after[2]["source"]


def test_executing_again_changes_no_byte(section: Path) -> None:
    written = [section.with_suffix(".ipynb"), section.parent / "timings.json"]
    before = [path.read_bytes() for path in written]
    result = refresh(section.parents[1], "--force")
    assert "executed, same outputs" in result.stdout
    assert [path.read_bytes() for path in written] == before


def test_executing_again_shows_new_results_but_keeps_real_noise(section: Path) -> None:
    text = section.read_text().replace("[hide-input]", "[nbval-ignore-output]")
    text += "\n```{code-cell} ipython3\nprint(answer())\n```\n"
    section.write_text(text)
    assert refresh(section.parents[1]).returncode == 0
    (section.parent / "answers_of_section.py").write_text(MODULE.replace("return 4", "return -52.5"))
    assert refresh(section.parents[1], "--force").returncode == 0
    cells = json.loads(section.with_suffix(".ipynb").read_text())["cells"]
    assert cells[3]["outputs"][0]["text"] == ["4\n"]
    assert cells[4]["outputs"][0]["text"] == ["-52.5\n"]


def test_the_time_that_a_section_took_is_recorded_when_it_is_executed(section: Path) -> None:
    recorded = section.parent / "timings.json"
    assert list(json.loads(recorded.read_text())) == ["section"]
    recorded.write_text('{"no longer there": 3, "section": 90}')
    assert refresh(section.parents[1]).returncode == 0
    assert json.loads(recorded.read_text())["section"] == 90  # nothing ran
    assert refresh(section.parents[1], "--force").returncode == 0
    times = json.loads(recorded.read_text())
    assert list(times) == ["section"]
    assert 1 <= times["section"] < 60
