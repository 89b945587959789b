"""The builder of the e-book: Sphinx's own, with pages of strict XHTML and a manifest that says where formulas are.

What extensions write for browsers is forgiven there and refused by readers of e-books, which parse pages as XML.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.builders.epub3 import Epub3Builder

STYLES = {"pygments.css", "epub.css", "book.css"}
REPAIRS = (
    (r"<style scoped>.*?</style>", ""),  # of tables by pandas
    (r'<table border="1" ', "<table "),
    (r'(<t[hd][^>]*?) [hv]align="\w+"', r"\1"),
    (r"(<summary)[^>]*>\s*<p[^>]*>.*?</p>\s*</summary>", r"\1>The code</summary>"),  # of code that the pages fold
    (r' id="(?:exercise-content|solution-content|proof-content|proof)"', ""),  # the same on every one of a page
    (r' role="doc-biblioentry"', ""),
    (r'(<dd class="field-\w+">)<p>(<ul.*?</ul>\s*)</p>', r"\1\2"),  # lists of what a function returns
)


def strict(body: str) -> str:
    """Return the body of a page without what only a browser bears."""
    for pattern, replacement in REPAIRS:
        body = re.sub(pattern, replacement, body, flags=re.DOTALL)
    return body


def _clean(app: Any, page: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    context["css_files"] = [css for css in context["css_files"] if Path(str(css.filename)).name in STYLES]
    context["metatags"] = ""
    if "body" in context:
        context["body"] = strict(context["body"])


def _drop_scripts(app: Any, doctree: nodes.document, page: str) -> None:
    """Take out what answers to a reader; the figure that stands above it is the same for one setting."""
    for raw in list(doctree.findall(nodes.raw)):
        if "<script" in raw.astext():
            raw.parent.remove(raw)


class BookBuilder(Epub3Builder):
    """Sphinx's builder with two things that the format asks for and it leaves out."""

    def toc_metadata(self, level: int, navpoints: Any) -> dict[str, Any]:
        """Name the book in the old table of contents as the manifest does."""
        return super().toc_metadata(level, navpoints) | {"uid": self.config.epub_identifier}

    def build_content(self) -> None:
        """Mark the pages that hold formulas, and the cover, in the manifest."""
        super().build_content()
        manifest = Path(self.outdir, "content.opf")
        lines = manifest.read_text(encoding="utf-8")
        manifest.write_text(
            re.sub(r'(<item id="[^"]+" href="([^"]+)"[^>]*?) />', self._marked, lines), encoding="utf-8"
        )

    def _marked(self, item: re.Match[str]) -> str:
        if item[2].endswith(".xhtml") and "<math" in Path(self.outdir, item[2]).read_text(encoding="utf-8"):
            return f'{item[1]} properties="mathml" />'
        return f'{item[1]} properties="cover-image" />' if item[2] == "_static/cover.png" else item[0]


def setup(app: Any) -> dict[str, Any]:
    """Take the place of Sphinx's builder; run after the extensions that write into a page."""
    app.add_builder(BookBuilder, override=True)
    app.connect("doctree-resolved", _drop_scripts)
    app.connect("html-page-context", _clean, priority=950)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
