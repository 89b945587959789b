"""Tests that nothing of the built book is cut off, dead or unreadable, page by page, in a real browser.

They need a built book (`make book`, or the folder that DPBOOK_HTML names) and a Chromium. Where either is missing they
are skipped with a message, except where DPBOOK_BROWSER=1 asks for them, as `.ci/run` does. DPBOOK_ALL_WIDTHS=1 opens
every page at more widths and in both themes, which takes some minutes (`make nightly`).
"""

from __future__ import annotations

import importlib
import inspect
import os
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure
from sweep import HTML, built_pages, dead_links, look_at

import dpbook

DESKTOP_AND_PHONE = [(1400, "light"), (390, "dark")]
ALL_WIDTHS = [(width, theme) for width in (1920, 1400, 1024, 768, 390, 320) for theme in ("light", "dark")]
VIEWS = ALL_WIDTHS if os.environ.get("DPBOOK_ALL_WIDTHS") == "1" else DESKTOP_AND_PHONE


@pytest.mark.parametrize(("width", "theme"), VIEWS)
def test_no_page_cuts_anything_off_or_reports_an_error(chromium: Any, width: int, theme: str) -> None:
    found = [
        f"{page.relative_to(HTML)}: {fault}"
        for page in built_pages()
        for fault in look_at(chromium, page, width=width, theme=theme)
    ]
    assert found == []


def test_no_link_image_or_anchor_inside_the_book_leads_nowhere() -> None:
    assert dead_links(built_pages(), HTML) == []


def test_every_name_that_the_package_exports_is_on_an_api_page_and_none_is_heavy() -> None:
    built_pages()
    pages = {path: path.read_text(encoding="utf-8") for path in (HTML / "book" / "reference" / "api").glob("*.html")}
    assert {path.stem for path in pages} >= {"core-curator", "core-analyst", "expfam", "regression", "graphical"}
    assert {path.name: len(text) for path, text in pages.items() if len(text.encode()) > 300_000} == {}
    anchors = {anchor for text in pages.values() for anchor in re.findall(r'<dt [^>]*\bid="([^"]+)"', text)}
    missing = [
        f"{module}.{name}"
        for module, name, home in exported_names()
        if not {f"{module}.{name}", f"{home}.{name}", f"dpbook.{name}"} & anchors
    ]
    assert missing == []


def exported_names() -> Iterator[tuple[str, str, str]]:
    """Yield what packages and public modules of the core list, the sources of noise excepted."""
    for found in pkgutil.walk_packages(dpbook.__path__, "dpbook."):
        if "._" not in found.name and found.name != "dpbook.noise" and (found.ispkg or found.name.count(".") == 1):
            module = importlib.import_module(found.name)
            for name in module.__all__:
                thing = getattr(module, name)
                if inspect.isfunction(thing) or inspect.isclass(thing):
                    yield found.name, name, thing.__module__


# The measures see what they are for -----------------------------------------------------------------------------------

BROKEN = {
    "a page that scrolls sideways": '<div style="width: 3000px">x</div>',
    "code or output is cut off": '<div class="highlight"><pre style="overflow: hidden; width: 100px">%s</pre></div>'
    % ("x" * 400),
    "a table is cut off": '<div style="overflow: hidden; width: 100px">'
    '<table style="width: 900px"><tr><td>x</td></tr></table></div>',
    "text is too faint": '<p style="color: #999">grey on white</p>',
    "error in a script": "<script>undefined_name()</script>",
    "an image does not load": '<img src="nowhere.png" alt="x">',
    "a table is cut off in a folded part": '<details><div style="overflow: hidden; width: 100px">'
    '<table style="width: 900px"><tr><td>x</td></tr></table></div></details>',
    "text is too faint beside the article": '</article><nav style="color: #999">grey on white</nav><article>',
}


@pytest.mark.parametrize("fault", BROKEN)
def test_a_broken_page_is_seen(chromium: Any, fault: str, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text(f"<!doctype html><html><body><article class='bd-article'>{BROKEN[fault]}</article></body></html>")
    found = look_at(chromium, page, width=390, theme="light")
    words = fault.removeprefix("a page that ").removesuffix(" in a folded part").removesuffix(" beside the article")
    assert any(words in sentence for sentence in found), found


WIDE_ON_A_DESKTOP = {
    "code needs scrolling": '<div class="cell_input"><pre style="overflow: auto; width: 300px">%s</pre></div>'
    % ("x" * 99),
    "output needs scrolling": '<div class="cell_output"><pre style="overflow: auto; width: 300px">%s</pre></div>'
    % ("x" * 99),
    "a figure is too small to read": '<figure><img alt="x" style="width: 100px" src="%s"></figure>',
}


@pytest.mark.parametrize("fault", WIDE_ON_A_DESKTOP)
def test_what_a_desktop_should_show_whole_is_seen(chromium: Any, fault: str, tmp_path: Path) -> None:
    Figure(figsize=(3, 2), dpi=100).savefig(tmp_path / "drawn.png")
    body = WIDE_ON_A_DESKTOP[fault].replace("%s", "drawn.png")
    page = tmp_path / "page.html"
    page.write_text(f"<!doctype html><html><body><article class='bd-article'>{body}</article></body></html>")
    found = look_at(chromium, page, width=1400, theme="light")
    assert any(fault in sentence for sentence in found), found


def test_a_sound_page_has_no_fault(chromium: Any, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text("<!doctype html><html><body><article class='bd-article'><p>Plain text.</p></article></body></html>")
    assert look_at(chromium, page, width=390, theme="light") == []


def test_a_dead_link_is_seen(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text(
        "<a href='gone.html'>x</a><a href='#none'>y</a><a href='#here' id='here'>z</a><link href='gone.css'>"
    )
    assert len(dead_links([page], tmp_path)) == 3
