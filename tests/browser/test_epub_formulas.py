"""Every formula of the e-book holds the same signs, in the same structure, as MathJax's for the pages."""

from __future__ import annotations

import pickle
import re
import unicodedata
from collections import Counter
from importlib.metadata import distribution
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml
from docutils import nodes
from mathml import M, mathml

ROOT = Path(__file__).resolve().parents[2]
TREES = ROOT / "_build" / "epub-doctrees"
MACROS = yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8"))["sphinx"]["config"]["mathjax3_config"][
    "tex"
]
# One sign, two characters: Greek variants, colon, minus, bars, accents, lines above and below.
ALIKE = str.maketrans("ϵϕ∶−∣∗⋅∼~ˆ∑∏⟂∖_¯―ˉ\u0304\u0305", "εφ:-|*·˜˜^ΣΠ⊥\\‾‾‾‾‾‾")
SCRIPTS = {
    **dict.fromkeys(("msub", "munder"), ("below",)),
    **dict.fromkeys(("msup", "mover"), ("above",)),
    **dict.fromkeys(("msubsup", "munderover"), ("below", "above")),
    **{name: (name,) for name in ("mfrac", "msqrt", "mroot", "mtr", "mtd")},
}


def signs(formula: str) -> tuple[str, Counter[str]]:
    """Return what a formula shows: its characters in order, and how many scripts, fractions, roots and cells it has."""
    tree = ElementTree.fromstring(formula)
    text = (
        unicodedata.normalize("NFKD", "".join(tree.itertext())).translate(ALIKE).replace("∥", "||").replace("‖", "||")
    )
    parts = Counter(part for node in tree.iter() for part in SCRIPTS.get(node.tag.removeprefix(M), ()))
    return re.sub(r"[\s\u2061-\u2064\u200b]", "", text).replace("′", "'"), parts


def formulas() -> list[tuple[str, bool]]:
    """Return the formulas of the text, each once, and whether it is displayed."""
    found = set()
    for file in TREES.rglob("*.doctree"):
        tree: nodes.document = pickle.loads(file.read_bytes())
        found |= {(node.astext(), False) for node in tree.findall(nodes.math)}
        found |= {(node.astext(), True) for node in tree.findall(nodes.math_block)}
    return sorted(found)


def test_formulas_are_those_of_the_pages(chromium: Any) -> None:
    if not TREES.exists():
        pytest.skip("the e-book is not built: make epub")
    ours = formulas()
    assert len(ours) > 1000
    script = distribution("sphinx-mathjax-offline").locate_file(
        "sphinx-mathjax-offline/static/mathjax/tex-mml-chtml.js"
    )
    page = chromium.new_page()
    page.set_content("<html><body></body></html>")
    page.evaluate("tex => { window.MathJax = {tex: tex, startup: {typeset: false}}; }", MACROS)
    page.add_script_tag(path=str(script))
    page.evaluate("MathJax.startup.promise")
    theirs = page.evaluate("all => all.map(([tex, display]) => MathJax.tex2mml(tex, {display: display}))", ours)
    page.close()
    differ = [
        tex
        for (tex, display), other in zip(ours, theirs, strict=True)
        if signs(mathml(tex, MACROS["macros"], display)) != signs(other.replace("&nbsp;", " "))
    ]
    assert differ == []
