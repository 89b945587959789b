"""What a notebook says does not depend on the processor: its texts are the stored ones under another's arithmetic too.

The stored outputs were made with AVX2 (see `tools/notebooks.py`). Here sections run again as on a processor of 2008:
other kernels of linear algebra, other loops of NumPy, no fused multiply-add in the mathematical library. The last digit
of a sum changes, and a long Markov chain takes another way; what is printed must not. Figures are left out. By default
a sample that covers every chapter runs, with DPBOOK_ALL_SECTIONS=1 every section (`make nightly`).
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

import nbformat
import notebooks
import pytest
from nbformat import NotebookNode

BOOK = Path(__file__).resolve().parents[2] / "book"
SAMPLE = (
    "background/where-privacy-breaks",
    "sample-and-aggregate/when-to-use-it",
    "exponential-families/information-bottleneck",
    "regression/private-covariates",
    "graphical-models/collective-graphical-models",
    "theory/four-ways-to-release",
    "any-model/moments-by-simulation",
)
ALL = [path.relative_to(BOOK).with_suffix("").as_posix() for path in sorted(BOOK.glob("*/*.ipynb"))]
SECTIONS = ALL if os.environ.get("DPBOOK_ALL_SECTIONS") == "1" else SAMPLE

X86 = platform.machine().lower() in ("x86_64", "amd64")
OLD_PROCESSOR = {
    "OPENBLAS_CORETYPE": "Prescott",
    "NPY_DISABLE_CPU_FEATURES": "X86_V3 X86_V4 AVX512_ICL AVX512_SPR",
    "GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX,-AVX2,-FMA,-AVX512F,-AVX512VL,-AVX512DQ,-AVX512BW",
}
if not X86:  # another processor already
    OLD_PROCESSOR = {}

Text = tuple[str, str]


def texts(cell: NotebookNode) -> list[Text]:
    """Return what a cell says: printed lines, results, glued values; no images."""
    found: list[Text] = []
    for output in cell.outputs:
        if output.output_type == "stream":
            found.append((output.name, output.text))
        elif output.output_type == "error":
            found.append((output.ename, output.evalue))
        else:
            found += [(kind, str(text)) for kind, text in sorted(output.data.items()) if not kind.startswith("image/")]
    return found


def changed(again: NotebookNode, stored: NotebookNode) -> list[tuple[int, list[Text], list[Text]]]:
    """Return the code cells that say something else, with both texts; real noise is different in every run."""
    found = []
    pairs = zip(notebooks.code_cells(again), notebooks.code_cells(stored), strict=True)
    for number, (new, old) in enumerate(pairs, start=1):
        if "nbval-ignore-output" not in notebooks.tags(new) and texts(new) != texts(old):
            found.append((number, texts(old), texts(new)))
    return found


@pytest.mark.parametrize("section", SECTIONS)
def test_the_section_says_the_same_on_another_processor(section: str, monkeypatch: pytest.MonkeyPatch) -> None:
    source = BOOK / f"{section}.md"
    monkeypatch.setattr(notebooks, "KERNEL_ENVIRONMENT", {**notebooks.KERNEL_ENVIRONMENT, **OLD_PROCESSOR})
    again = notebooks.read_source(source)
    notebooks.execute(again, source.parent)
    assert changed(again, nbformat.read(source.with_suffix(".ipynb"), as_version=4)) == []


def test_the_sample_covers_every_chapter() -> None:
    assert {section.split("/")[0] for section in SAMPLE} == {section.split("/")[0] for section in ALL} - {"reference"}
    assert set(SAMPLE) <= set(ALL)


# The test can fail --------------------------------------------------------------------------------------------------


@pytest.mark.skipif(not X86 or "OPENBLAS_CORETYPE" not in notebooks.KERNEL_ENVIRONMENT, reason="needs AVX2")
def test_the_other_processor_rounds_differently() -> None:
    """Linear algebra, NumPy's loops and the mathematical library: each gives other last digits somewhere."""
    code = (
        "import hashlib, math, numpy as np; rng = np.random.default_rng(1); a = rng.normal(size=(60, 60)); "
        "x = rng.normal(size=4000); say = lambda y: print(hashlib.sha256(np.asarray(y).tobytes()).hexdigest()); "
        "say(a @ a); say(np.exp(x) + np.sin(x)); say([math.exp(v) * math.sin(v) for v in x])"
    )

    def digests(**processor: str) -> list[str]:
        environment = {**os.environ, **notebooks.KERNEL_ENVIRONMENT, **processor}
        command = [sys.executable, "-c", code]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.split()

    pinned = digests()
    assert pinned == digests()
    assert all(one != other for one, other in zip(pinned, digests(**OLD_PROCESSOR), strict=True))


def test_another_digit_is_caught_and_another_picture_is_not() -> None:
    def notebook(text: str, image: str, *tags: str) -> NotebookNode:
        data = {"text/plain": text, "image/png": image}
        output = nbformat.v4.new_output("display_data", data)
        cell = nbformat.v4.new_code_cell("", outputs=[output], metadata={"tags": list(tags)})
        made: NotebookNode = nbformat.v4.new_notebook(cells=[cell])
        return made

    assert changed(notebook("1641.109", "a"), notebook("1641.109", "b")) == []
    assert changed(notebook("1641.109", "a", "nbval-ignore-output"), notebook("1355.113", "a")) == []
    assert [number for number, _, _ in changed(notebook("1641.109", "a"), notebook("1355.113", "a"))] == [1]
