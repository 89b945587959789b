"""The e-book: formulas become MathML, pages are strict, and the file, once `make epub` has written it, holds the book.

EPUBCheck, the format's own judge, is asked where Java and its jar are found: EPUBCHECK names the jar.
"""

from __future__ import annotations

import os
import pickle
import posixpath
import re
import shutil
import subprocess
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urldefrag
from xml.etree import ElementTree

import pytest
import yaml
from docutils import nodes
from epub_pages import strict
from mathml import MATHML, M, mathml
from sphinx.errors import ExtensionError

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "_build"
FILE = BUILD / "epub" / "dpbook.epub"
X = "{http://www.w3.org/1999/xhtml}"
Pages = dict[str, ElementTree.Element]

# Formulas -------------------------------------------------------------------------------------------------------------


def shape(tex: str, display: bool = False) -> str:
    """Return a formula's MathML in short: the names of its parts around what they hold."""

    def short(node: ElementTree.Element) -> str:
        inside = (node.text or "") + " ".join(map(short, node))
        name = node.tag.removeprefix(M)
        return inside if name in ("mi", "mn", "mo", "mtext") else f"{name}({inside})"

    return short(ElementTree.fromstring(mathml(tex, {"E": r"\mathbb{E}"}, display)))


@pytest.mark.parametrize(
    ("tex", "wanted"),
    [
        (r"\E x", "math(𝔼 x)"),
        (r"\frac12", "math(mfrac(1 2))"),
        (r"\frac\mu2", "math(mfrac(μ 2))"),
        (r"\tfrac{1}{20}", "math(mstyle(mfrac(1 20)))"),
        (r"x^23", "math(msup(x 2) 3)"),
        (r"\hat\beta_j", "math(msub(mover(β ˆ) j))"),
        (r"\overline q", "math(mover(q ‾))"),
        (r"x'_i", "math(msubsup(x i ′))"),
        (r"x'^2", "math(msup(x mrow(′ 2)))"),
        (r"f''", "math(msup(f mrow(′ ′)))"),
        (r"\text{the curator's}", "math(the curator's)"),
        (r"x_1, \dots, x_n", "math(msub(x 1) , … , msub(x n))"),
        (r"x_1 + \dots + x_n", "math(msub(x 1) + ⋯ + msub(x n))"),
        (r"\big( x \big)", "math(mrow(( x )))"),
        (r"a \log a", "math(a mspace() log \u2061 a)"),
        (r"\begin{gathered} a \\ b \end{gathered}", "math(mtable(mtr(mtd(a)) mtr(mtd(b))))"),
        (r"\underbrace{a + b}_{c}", "math(munder(munder(mrow(a + b) ⏟) c))"),
    ],
)
def test_a_formula_is_written_as_tex_would_set_it(tex: str, wanted: str) -> None:
    assert shape(tex) == wanted


def test_equations_stand_in_display_style() -> None:
    tree = ElementTree.fromstring(mathml(r"\begin{aligned} a &= b \\ c &= d \end{aligned}", {}, display=True))
    assert tree.get("display") == "block"
    assert [table.get("displaystyle") for table in tree.iter(f"{M}mtable")] == ["true"]


@pytest.mark.parametrize("tex", [r"\nosuchcommand x", r"\begin{tabular} a \end{tabular}", r"\frac{1}"])
def test_a_formula_that_cannot_be_written_stops_the_build_and_is_named(tex: str) -> None:
    with pytest.raises(ExtensionError, match=re.escape(repr(tex))):
        mathml(tex, {})


def test_what_only_a_browser_bears_is_taken_out_of_a_page() -> None:
    table = '<div><style scoped>\n td {}\n</style><table border="1" class="a"><th halign="left">a</th></table></div>'
    assert strict(table) == '<div><table class="a"><th>a</th></table></div>'
    folded = '<summary aria-label="x">\n<p class="a">Show</p>\n<p class="b">Hide</p>\n</summary>'
    assert strict(folded) == "<summary>The code</summary>"
    assert strict('<div class="proof" id="proof"><p id="proof-of-it">') == '<div class="proof"><p id="proof-of-it">'


# The file -------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def book() -> Iterator[zipfile.ZipFile]:
    """The e-book that was built from the text as it is."""
    if not FILE.exists():
        pytest.skip("the e-book is not built: make epub")
    newest = max(file.stat().st_mtime for file in [ROOT / "_toc.yml", *ROOT.glob("book/**/*.md")])
    if FILE.stat().st_mtime < newest:
        pytest.skip("the e-book is older than the text: make epub")
    with zipfile.ZipFile(FILE) as file:
        yield file


@pytest.fixture(scope="module")
def pages(book: zipfile.ZipFile) -> Pages:
    """Every page, read as XML: one that is not well formed fails here, by name."""
    found = {}
    for name in book.namelist():
        if name.endswith((".xhtml", ".opf", ".ncx")):
            try:
                found[name] = ElementTree.fromstring(book.read(name))
            except ElementTree.ParseError as error:
                pytest.fail(f"{name} is not well formed: {error}")
    return found


def test_the_file_says_first_and_plainly_what_it_is(book: zipfile.ZipFile) -> None:
    first = book.infolist()[0]
    assert (first.filename, first.compress_type) == ("mimetype", zipfile.ZIP_STORED)
    assert book.read("mimetype") == b"application/epub+zip"
    assert book.testzip() is None


def test_title_author_language_and_name_are_those_of_the_book(pages: Pages) -> None:
    config = yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8"))
    about = {node.tag.rsplit("}")[-1]: node.text for node in pages["content.opf"].iter() if "purl.org/dc" in node.tag}
    wanted = {"title": config["title"], "creator": config["author"], "language": "en"}
    assert {name: about[name] for name in wanted} == wanted
    assert about["identifier"] == config["repository"]["url"]


def sections() -> list[str]:
    """Return the pages of the table of contents, in order."""
    contents = yaml.safe_load((ROOT / "_toc.yml").read_text(encoding="utf-8"))

    def files(entry: Any) -> Iterator[str]:
        if isinstance(entry, list):
            for one in entry:
                yield from files(one)
        elif isinstance(entry, dict):
            yield from [entry["file"]] if "file" in entry else []
            yield from files([entry.get(name) for name in ("parts", "chapters", "sections")])

    return [f"{name.removesuffix('.ipynb')}.xhtml" for name in [contents["root"], *files(contents)]]


def test_the_pages_follow_each_other_as_in_the_book(pages: Pages) -> None:
    opf = "{http://www.idpf.org/2007/opf}"
    files = {item.get("id"): item.get("href") for item in pages["content.opf"].iter(f"{opf}item")}
    spine = [
        files[item.get("idref")] for item in pages["content.opf"].iter(f"{opf}itemref") if item.get("linear") != "no"
    ]
    assert [name for name in spine if name != "epub-cover.xhtml"] == sections()


def test_links_and_pictures_lead_to_something_in_the_file(book: zipfile.ZipFile, pages: Pages) -> None:
    names = set(book.namelist())
    ids = {name: {node.get("id") for node in tree.iter()} for name, tree in pages.items()}
    broken = []
    for page, tree in pages.items():
        for address in [a for node in tree.iter() for a in (node.get("href"), node.get("src")) if a]:
            if re.match(r"[a-z]+:", address):
                continue
            path, anchor = urldefrag(unquote(address))
            target = posixpath.normpath(posixpath.join(posixpath.dirname(page), path)) if path else page
            if target not in names or (anchor and anchor not in ids[target]):
                broken.append(f"{page}: {address}")
    assert broken == []


def test_no_script_and_no_address_that_a_page_would_fetch(pages: Pages) -> None:
    for name, tree in pages.items():
        assert not [node.tag for node in tree.iter() if node.tag in (f"{X}script", f"{X}iframe", f"{X}input")], name
        assert not [node.get("src") for node in tree.iter() if (node.get("src") or "").startswith("http")], name


def prose(node: ElementTree.Element) -> Iterator[str]:
    """Yield the text of a page without code and formulas."""
    if node.tag in (f"{X}pre", f"{X}code", f"{M}math"):
        return
    yield node.text or ""
    for child in node:
        yield from prose(child)
        yield child.tail or ""


def test_no_tex_is_left(pages: Pages) -> None:
    for name, tree in pages.items():
        found = re.search(r"\\[(\[A-Za-z]|\$\$|\{glue", "".join(prose(tree)))
        assert found is None, f"{name}: {found}"
        for formula in tree.iter(f"{{{MATHML}}}math"):
            text = "".join(formula.itertext())
            assert text.strip(), f"{name}: an empty formula"
            assert "glue:" not in text, f"{name}: {text}"
            assert not re.search(r"\\[A-Za-z]", text), f"{name}: {text}"
            assert next(formula.iter(f"{M}merror"), None) is None, f"{name}: {text}"


def shown_formulas(node: ElementTree.Element) -> int:
    """Count the formulas of a page outside links, which repeat the titles of other pages."""
    if node.tag == f"{X}a":
        return 0
    return (node.tag == f"{M}math") + sum(map(shown_formulas, node))


def test_every_formula_of_the_text_is_there(pages: Pages) -> None:
    for name in sections():
        stored = (BUILD / "epub-doctrees" / name).with_suffix(".doctree").read_bytes()
        tree: nodes.document = pickle.loads(stored)
        written = [
            node
            for node in tree.findall(lambda node: isinstance(node, nodes.math | nodes.math_block))
            if not isinstance(node.parent, nodes.reference)
        ]
        assert shown_formulas(pages[name]) == len(written), name


def test_epubcheck_finds_no_fault(book: zipfile.ZipFile) -> None:
    jar, java = os.environ.get("EPUBCHECK", ""), shutil.which("java")
    if not jar or java is None:
        pytest.skip("no EPUBCheck: set EPUBCHECK to its jar, and install Java")
    done = subprocess.run([java, "-jar", jar, str(FILE)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
