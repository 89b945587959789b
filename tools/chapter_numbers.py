"""Give each chapter the number that the book calls it by, whichever chapters are in the table of contents.

Sphinx numbers chapters in the order in which it meets them. The book's chapters have fixed numbers, which the prose and
the package refer to, so this extension replaces the first number of every section, figure, theorem,
exercise and equation of a chapter's folder by the chapter's own.
"""

from __future__ import annotations

from typing import Any

from docutils import nodes

CHAPTERS = {
    "background": 1,
    "sample-and-aggregate": 2,
    "exponential-families": 3,
    "regression": 4,
    "graphical-models": 5,
    "theory": 6,
    "any-model": 7,
}

Number = tuple[int, ...]


def chapter_of(document: str) -> int | None:
    """Return the number of the chapter that a document of the book belongs to; None for other pages."""
    parts = document.split("/")
    return CHAPTERS.get(parts[1]) if len(parts) > 2 and parts[0] == "book" else None


def renumbered(number: Number, chapter: int) -> Number:
    """Return a dotted number with the chapter's own number in front."""
    return (chapter, *number[1:])


def _renumber_documents(app: Any, env: Any) -> list[str]:
    changed = []
    for document in sorted(env.found_docs):
        chapter = chapter_of(document)
        if chapter is None or not env.toc_secnumbers.get(document):
            continue
        changed.append(document)
        numbers = env.toc_secnumbers[document]
        numbers.update({anchor: renumbered(number, chapter) for anchor, number in numbers.items() if number})
        for of_kind in env.toc_fignumbers.get(document, {}).values():
            of_kind.update({label: renumbered(number, chapter) for label, number in of_kind.items()})
        headings = [env.titles[document], *env.tocs[document].findall(nodes.reference)]
        for heading in headings:
            if heading.get("secnumber"):
                heading["secnumber"] = renumbered(heading["secnumber"], chapter)
    return changed


def setup(app: Any) -> dict[str, Any]:
    """Run after Sphinx has numbered everything, which it does on the same event."""
    app.connect("env-get-updated", _renumber_documents, priority=900)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
