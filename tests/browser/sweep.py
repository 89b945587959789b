"""Open the built book in a real browser and measure what a reader would see.

One page is opened at a time, at one width and one theme, over ``file://`` as `make book` leaves it. What is returned is
a list of sentences, each a fault: something wider than its column with no visible way to scroll, a page that scrolls
sideways, an error in the console, a link or an image that leads nowhere, text too faint to read.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

HTML = Path(os.environ.get("DPBOOK_HTML") or Path(__file__).resolve().parents[2] / "_build" / "html")
WANTED = os.environ.get("DPBOOK_BROWSER") == "1"
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
MEASURES = (Path(__file__).parent / "measures.js").read_text(encoding="utf-8")
# Solutions, proofs and folded code are measured too: everything that one click shows.
UNFOLD = """async () => {
  for (const e of document.querySelectorAll("details")) e.open = true;
  for (const e of document.querySelectorAll(".toggle-hidden")) e.classList.remove("toggle-hidden");
  window.dispatchEvent(new Event("resize"));
  await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
}"""


LINKS = {"a": "href", "link": "href", "img": "src", "script": "src", "iframe": "src", "source": "src"}


def find_browser() -> str | None:
    """Return the path of a Chromium on this machine, or None."""
    return next((path for name in BROWSERS if (path := shutil.which(name))), None)


def pages_of(html: Path) -> list[Path]:
    """Return every page of a built book that a reader can come to; not the search page's empty shell or redirects."""
    left_out = {"search.html", "genindex.html", "py-modindex.html", "prf-prf.html"}
    found = [page for page in html.rglob("*.html") if "_static" not in page.parts and page.name not in left_out]
    return sorted(page for page in found if 'http-equiv="Refresh"' not in page.read_text(encoding="utf-8")[:400])


def built_pages() -> list[Path]:
    """Return the pages of the built book; skip where it is not built, unless the browser was asked for."""
    pages = pages_of(HTML) if HTML.exists() else []
    if not pages and not WANTED:
        pytest.skip("the book is not built: run `make book` first")
    assert len(pages) > 50, "the book is not built, or not wholly"
    return pages


@contextmanager
def browser() -> Iterator[Any]:
    """Start a headless browser; close it at the end."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        running = playwright.chromium.launch(
            executable_path=find_browser(), args=ARGUMENTS, ignore_default_args=["--hide-scrollbars"]
        )
        try:
            yield running
        finally:
            running.close()


def open_page(running: Any, page: Path, *, width: int, theme: str, said: list[str]) -> Any:
    """Return a tab that shows ``page`` with its mathematics set; what the console says is put into ``said``."""
    context = running.new_context(viewport={"width": width, "height": 900}, color_scheme=theme)
    # The launch buttons and badges of the online book look for the network; here there is none.
    context.route("**/*", lambda route: route.continue_() if route.request.url.startswith("file:") else route.abort())
    context.add_init_script(
        f"try {{ localStorage.setItem('mode', '{theme}'); localStorage.setItem('theme', '{theme}') }} catch (e) {{}}"
    )
    tab = context.new_page()
    tab.on("pageerror", lambda error: said.append(f"error in a script: {error}"))
    tab.on("console", lambda message: said.append(f"console: {message.text}") if is_fault(message) else None)
    tab.goto(page.as_uri(), wait_until="load")
    tab.evaluate(
        "async () => { if (window.MathJax && MathJax.startup) await MathJax.startup.promise;"
        " await document.fonts.ready;"
        " await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))); }"
    )
    return tab


def is_fault(message: Any) -> bool:
    """Tell an error of the book from the browser's word that there is no network."""
    return message.type == "error" and "net::ERR_FAILED" not in message.text


def look_at(running: Any, page: Path, *, width: int, theme: str) -> list[str]:
    """Return the faults of one page at one width and theme."""
    said: list[str] = []
    tab = open_page(running, page, width=width, theme=theme, said=said)
    try:
        tab.evaluate(UNFOLD)
        found = tab.evaluate(MEASURES)
        if found:  # on a busy machine Chromium may lay out a long page without some bars, and add them in the next
            tab.set_viewport_size({"width": width + 40, "height": 900})
            tab.wait_for_timeout(300)
            tab.set_viewport_size({"width": width, "height": 900})
            tab.wait_for_timeout(1500)
            found = tab.evaluate(MEASURES)
    finally:
        tab.context.close()
    return said + list(found)


def dead_links(pages: list[Path], html: Path) -> list[str]:
    """Return the links and images inside the book that lead nowhere, anchors included."""
    from html.parser import HTMLParser

    class Reader(HTMLParser):
        def __init__(self) -> None:
            super().__init__()
            self.ids: set[str] = set()
            self.targets: list[str] = []

        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            for name, value in attrs:
                if value and name in ("id", "name"):
                    self.ids.add(value)
                if value and name == LINKS.get(tag):
                    self.targets.append(value)

    read: dict[Path, Reader] = {}
    for page in pages:
        read[page] = Reader()
        read[page].feed(page.read_text(encoding="utf-8"))
    found = []
    for page, reader in read.items():
        for target in sorted(set(reader.targets)):
            parts = urlsplit(target)
            if parts.scheme or parts.netloc or target == "#":
                continue
            goal = (page.parent / unquote(parts.path)).resolve() if parts.path else page
            if not goal.exists():
                found.append(f"{page.relative_to(html)}: {target} leads nowhere")
            elif parts.fragment and goal in read and unquote(parts.fragment) not in read[goal].ids:
                found.append(f"{page.relative_to(html)}: {target} has no such anchor")
    return found
