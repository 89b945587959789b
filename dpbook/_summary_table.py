"""The table that a posterior's summary is: a data frame that prints all its columns, and the notes below."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from dpbook._validation import fraction

__all__: list[str] = []


class SummaryTable(pd.DataFrame):
    """A table that prints all its columns, however narrow the terminal; so do the tables made from it."""

    @property
    def _constructor(self) -> type[SummaryTable]:
        return SummaryTable

    def __repr__(self) -> str:
        with pd.option_context("display.max_columns", None, "display.expand_frame_repr", False):
            return "\n".join([super().__repr__(), *self.attrs.get("notes", ())])

    def _repr_html_(self) -> str | None:
        with pd.option_context("display.max_columns", None):
            table = str(super()._repr_html_())  # type: ignore[misc]
        return table + "".join(f"<p>{html.escape(note)}</p>" for note in self.attrs.get("notes", ()))


def summary_table(
    answer: Any, level: float, *, index: Sequence[str], notes: Sequence[str], medians: bool = False
) -> SummaryTable:
    """Return the table of what answers like a posterior; ``medians`` stand for mean and sd where tails are heavy."""
    tail = (1 - fraction("level", level)) / 2
    centre = {"median": answer.quantile(0.5)} if medians else {"mean": answer.mean(), "sd": answer.sd()}
    columns = centre | {
        f"{100 * tail:g}%": answer.quantile(tail),
        f"{100 * (1 - tail):g}%": answer.quantile(1 - tail),
        "r_hat": answer.rhat(),
        "ess_bulk": answer.ess(kind="bulk"),
        "ess_tail": answer.ess(kind="tail"),
    }
    data = {column: np.concatenate([np.ravel(v) for v in values.values()]) for column, values in columns.items()}
    table = SummaryTable(data, index=list(index))
    table.attrs["notes"] = tuple(notes)
    return table
