"""Tables in HTML for notebooks: one renderer behind every ``_repr_html_`` of the package.

A table has a caption and scoped headers, which screen readers announce, and no colours of its own, so that it follows
the page's theme. All text is escaped, and dollars in it are not taken for mathematics.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from typing import Any

from dpbook._late import pd

__all__: list[str] = []

MOST_ROWS = 20  # of a body; the rest is counted
_LONGEST = 60  # characters of a cell


def number(value: float) -> str:
    """Return a number with four significant digits."""
    return f"{value:.4g}"


def several(items: Sequence[Any], most: int = 6) -> str:
    """Return the first few of some items, and how many more there are."""
    shown = ", ".join(number(each) if isinstance(each, float) else str(each) for each in items[:most])
    return shown + (f", … ({len(items)} in all)" if len(items) > most else "")


def table(
    caption: str,
    columns: Sequence[str],
    rows: Iterable[Sequence[Any]],
    *,
    total: int | None = None,
    footer: Iterable[Sequence[Any]] = (),
) -> str:
    """Return a table whose first column heads the rows; of more than ``MOST_ROWS`` rows, the first, and their number.

    ``total`` is the number of rows where ``rows`` holds the first of them only.
    """
    body = list(rows)
    total = len(body) if total is None else total
    body = body[:MOST_ROWS]
    more = f'<tr><td colspan="{len(columns)}">… and {total - len(body)} more</td></tr>' if total > len(body) else ""
    head = "".join(f'<th scope="col">{_text(name)}</th>' for name in columns)
    foot = "".join(map(_row, footer))
    return (
        '<table class="dataframe tex2jax_ignore mathjax_ignore">'
        f"<caption>{_text(caption, None)}</caption><thead><tr>{head}</tr></thead>"
        f"<tbody>{''.join(map(_row, body))}{more}</tbody>{f'<tfoot>{foot}</tfoot>' if foot else ''}</table>"
    )


def of_frame(caption: str, frame: pd.DataFrame) -> str:
    """Return a data frame of numbers as a table, its index heading the rows."""
    rows = [[name, *row] for name, row in zip(frame.index, frame.to_numpy().tolist(), strict=True)]
    return table(caption, ["", *frame.columns], rows)


def _row(cells: Sequence[Any]) -> str:
    first, *others = cells
    return f'<tr><th scope="row">{_text(first)}</th>{"".join(f"<td>{_text(each)}</td>" for each in others)}</tr>'


def _text(value: Any, longest: int | None = _LONGEST) -> str:
    text = number(value) if isinstance(value, float) else str(value)
    if longest is not None and len(text) > longest:
        text = f"{text[: longest - 1]}…"
    return html.escape(text)
