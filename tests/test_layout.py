"""Tests are found where one looks for them: a folder per package, names that say whose they are, none twice."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = sorted({path.parent.name for path in (ROOT / "dpbook").glob("*/__init__.py")} - {"datasets"})
CHAPTERS = sorted({path.parent.name for path in (ROOT / "book").glob("*/*.py")})  # with code beside their notebooks


def files_in(folder: str) -> list[str]:
    return sorted(path.name for path in (ROOT / "tests" / folder).glob("test_*.py"))


@pytest.mark.parametrize("package", PACKAGES)
def test_the_tests_of_a_package_are_in_its_folder_and_named_after_it(package: str) -> None:
    assert files_in(package)
    assert [name for name in files_in(package) if not name.startswith(f"test_{package}_")] == []


def test_the_tests_of_studies_are_named_after_their_chapter() -> None:
    begin = tuple(f"test_{chapter.replace('-', '_')}_" for chapter in CHAPTERS)
    assert [name for name in files_in("studies") if not name.startswith(begin)] == []
    assert [chapter for chapter in begin if not any(name.startswith(chapter) for name in files_in("studies"))] == []


def test_every_module_of_the_core_has_a_test() -> None:
    modules = sorted(path.stem for path in (ROOT / "dpbook").glob("*.py") if not path.stem.startswith("_"))
    assert [name for name in modules if f"test_{name}.py" not in files_in("")] == []


def test_no_two_tests_have_the_same_name() -> None:
    """Folders of tests are no packages, so pytest takes two files of one name for the same module."""
    counted = Counter(path.name for path in (ROOT / "tests").rglob("test_*.py"))
    assert [name for name, times in counted.items() if times > 1] == []
