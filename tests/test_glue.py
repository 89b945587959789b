from __future__ import annotations

import subprocess
import sys
from typing import Any

import IPython
import myst_nb
import pytest

from dpbook import glue


@pytest.fixture
def stored(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Any, bool]]:
    """What reaches the book's store, with a notebook's shell pretended to be there."""
    calls: list[tuple[str, Any, bool]] = []
    monkeypatch.setattr(myst_nb, "glue", lambda name, text, display: calls.append((name, text, display)))
    monkeypatch.setattr(IPython, "get_ipython", lambda: object())
    return calls


def test_a_notebook_stores_the_text_and_does_not_show_it(stored: list[tuple[str, Any, bool]]) -> None:
    glue("share", "0.32")
    assert stored == [("share", "0.32", False)]


def test_outside_a_notebook_nothing_is_stored(
    stored: list[tuple[str, Any, bool]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(IPython, "get_ipython", lambda: None)
    glue("share", "0.32")
    assert stored == []


@pytest.mark.parametrize("missing", ["myst_nb", "IPython"])
def test_without_the_tools_of_the_book_a_notebook_still_runs(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    glue("share", "0.32")
    with pytest.raises(TypeError, match="text"):
        glue("share", 0.32)  # type: ignore[arg-type]


@pytest.mark.parametrize("text", [0.32, 3, None, ["0.32"]])
def test_what_is_not_a_formatted_string_is_refused(text: Any, stored: list[tuple[str, Any, bool]]) -> None:
    with pytest.raises(TypeError, match=r"text must be a formatted string, got"):
        glue("share", text)
    assert stored == []


def test_a_name_that_is_not_a_string_is_refused(stored: list[tuple[str, Any, bool]]) -> None:
    with pytest.raises(TypeError, match=r"name must be a string, got 3"):
        glue(3, "0.32")  # type: ignore[arg-type]
    assert stored == []


IN_A_SHELL = """
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output
from dpbook import glue

glue("too-early", "0")
assert not InteractiveShell.initialized(), "a plain script must stay one"
shell = InteractiveShell.instance()
with capture_output() as shown:
    shell.run_cell("from dpbook import glue; glue('share', '0.32')")
(output,) = shown.outputs
print(output.metadata["scrapbook"]["name"], list(output.data.values()))
"""


def test_a_real_shell_publishes_what_the_page_reads_and_a_script_starts_none() -> None:
    ran = subprocess.run([sys.executable, "-c", IN_A_SHELL], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.strip() == """share ["'0.32'"]"""
