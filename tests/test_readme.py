"""What the README promises works when pasted."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_first_python_block_runs_when_pasted(tmp_path: Path) -> None:
    block = re.search(r"^```python\n(.*?)^```", README, re.M | re.S)
    assert block is not None
    script = tmp_path / "pasted.py"
    script.write_text(block.group(1), encoding="utf-8")
    result = subprocess.run([sys.executable, script], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""


def test_the_readme_names_the_two_commands() -> None:
    assert "make book" in README
    assert "make test" in README


def test_what_the_readme_links_to_exists() -> None:
    links = re.findall(r"\]\((?!https?:|#|mailto:)([^)#\s]+)", README) + re.findall(r'src="(?!https?:)([^"]+)"', README)
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_the_calls_that_the_readme_names_are_exported() -> None:
    called = re.findall(r"`((?:aggregate|expfam|graphical|regression)\.[\w.]+)`", README)
    assert len(called) > 12
    for name in called:
        package, thing = name.rsplit(".", 1)
        module = importlib.import_module(f"dpbook.{package}")
        assert thing in module.__all__
        assert callable(getattr(module, thing))


@pytest.mark.skipif(
    os.environ.get("DPBOOK_COMPARE_IMAGES") != "1", reason="images are compared where that is asked for"
)
def test_the_picture_comes_from_its_code(tmp_path: Path) -> None:
    import readme_figure

    readme_figure.draw(tmp_path / "drawn.png")
    assert (tmp_path / "drawn.png").read_bytes() == readme_figure.PICTURE.read_bytes()
