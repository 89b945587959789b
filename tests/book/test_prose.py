"""The report on prose counts what it says that it counts."""

from __future__ import annotations

import prose

SECTION = """---
kernelspec: {}
---

# A title

The poster has $x$ and $y$ (both are {term}`noise`). A second sentence follows.

$$ z = 1 $$ (eq-z)

{glue:text}`a`, {glue:text}`b`, {glue:text}`c` and {glue:text}`d`.

```{code-cell} ipython3
words in code are no words
```

```{prf:proof}
LONG
```

:::{admonition} Proof
:class: dropdown
LONG
:::

:::{admonition} Note on the source
:class: dropdown
The poster says $w$.
:::

## Summary

Done.

## Exercises

Words of an exercise do not count, nor does $v$.
""".replace("LONG", "word " * 130)


def test_a_section_is_counted_without_code_proofs_folded_notes_and_exercises() -> None:
    row = prose.read(SECTION)
    assert (row.words, row.inline, row.numbers, row.source) == (19, 2, 4, 1)
    assert (row.proofs, row.summary, row.long) == ("1/2", "yes", 0)


def test_crowded_paragraphs_are_named() -> None:
    assert len(prose.crowded(SECTION)) == 1


def test_every_section_of_the_book_is_read() -> None:
    rows = {
        path: prose.read(path.read_text(encoding="utf-8"))
        for each in prose.CHAPTERS
        for path in prose.sections_of(each)
    }
    assert len(rows) > 40
    assert all(row.words > 300 for row in rows.values())
