"""Tests of the built book on paper: the map of methods fits on one page, the cheat sheet on two."""

from __future__ import annotations

import re
from typing import Any

import pytest
from sweep import HTML, built_pages, open_page


def printed_pages(chromium: Any, name: str) -> int:
    """Return how many pages of A4 a reference page takes in print."""
    tab = open_page(chromium, HTML / "book" / "reference" / f"{name}.html", width=1400, theme="light", said=[])
    paper = tab.pdf(format="A4", prefer_css_page_size=True)
    tab.context.close()
    return len(re.findall(rb"/Type\s*/Page[^s]", paper))


@pytest.mark.parametrize(("name", "pages"), [("map-of-methods", 1), ("cheat-sheet", 2)])
def test_the_page_fits_on_paper(chromium: Any, name: str, pages: int) -> None:
    built_pages()
    assert printed_pages(chromium, name) == pages
