"""Tests of the built book: the search shows no TeX, and results of all kinds share one counter."""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from sweep import HTML, built_pages

KINDS = "Theorem|Proposition|Lemma|Corollary"


class Quiet(SimpleHTTPRequestHandler):
    """Serves files and says nothing."""

    def log_message(self, *words: Any) -> None:
        """Keep the tests' output clean."""


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serve a folder on this machine alone; excerpts need a server, because a page cannot read another file."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder)))
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()


def test_excerpts_on_the_search_page_show_signs_instead_of_tex(chromium: Any) -> None:
    built_pages()
    with served(HTML) as address:
        tab = chromium.new_context().new_page()
        tab.route("**/*", lambda route: route.continue_() if route.request.url.startswith(address) else route.abort())
        tab.goto(f"{address}/search.html?q=neighbours+posterior", wait_until="load")
        tab.wait_for_selector("#search-results p.context", timeout=20_000)
        tab.wait_for_timeout(1500)
        excerpts = tab.locator("#search-results p.context").all_inner_texts()
        tab.context.close()
    assert len(excerpts) > 5
    assert [text for text in excerpts if re.search(r"\\[A-Za-z(\[]", text)] == []
    assert any("ε" in text or "θ" in text for text in excerpts)


def numbered(page: Path) -> list[tuple[str, str]]:
    """Return the numbers of a page's results, with their kinds."""
    found = re.findall(rf'caption-number">({KINDS}) (\d+\.\d+) ', page.read_text(encoding="utf-8"))
    return [(number, kind) for kind, number in found]


def test_theorems_propositions_lemmas_and_corollaries_share_one_counter() -> None:
    results = [result for page in built_pages() for result in numbered(page)]
    times = Counter(number for number, _ in results)
    assert len({kind for _, kind in results}) == 4
    assert [number for number, count in times.items() if count > 1] == []
    for chapter in {number.split(".")[0] for number in times}:
        positions = sorted(int(number.split(".")[1]) for number in times if number.split(".")[0] == chapter)
        assert positions == list(range(1, len(positions) + 1))


@pytest.mark.parametrize(
    ("tex", "plain"),
    [
        (r"\(\Pr(M(x) \in S) \;\le\; e^{\varepsilon} + \delta\)", "Pr(M(x) ∈ S) ≤ e^ε + δ"),
        (r"\[ \tfrac{\varepsilon}{2} \BetaD(\alpha, \beta) \]", "ε/2 Beta(α, β)"),
        (r"\(\mathcal X \sim \operatorname{Laplace}\)", "X ~ Laplace"),
    ],
)
def test_tex_becomes_plain_text(chromium: Any, tex: str, plain: str, tmp_path: Path) -> None:
    script = (Path(__file__).parents[2] / "book" / "_static" / "search-excerpts.js").read_text(encoding="utf-8")
    tab = chromium.new_page()
    tab.evaluate("window.module = {}")
    tab.evaluate(script)
    assert tab.evaluate("(tex) => module.exports(tex)", tex) == plain
    tab.close()
