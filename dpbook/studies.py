"""Simulation studies: cells with generators of their own, scores of draws, tables that say how they were made.

A :class:`Study` is a grid of cells and a function that measures one. It runs in a notebook on a few cells, and as a
whole from the command line, ``python tools/study.py CHAPTER NAME``, on all cores and resumably. The studies behind the
book's figures are in ``book/<chapter>/study.py``, results beside them; they measure methods and publish nothing.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpbook import diagnostics
from dpbook._late import pd
from dpbook._validation import integer

__all__ = ["Study", "cell_rng", "corrected", "judge", "load"]


@dataclass(frozen=True)
class Study:
    """A table that is measured cell by cell. Explained in :doc:`/book/how-to-use`.

    Parameters
    ----------
    measure : callable
        ``measure(*cell, trials=..., seed=...) -> DataFrame``: the rows of one cell. It takes its randomness from
        ``cell_rng(seed, ...)``, so that a cell gives the same rows whichever others are run, in whatever order.
    cells : sequence of tuples
        The grid; ``[()]``, one cell without coordinates, for a study that is one piece.
    trials : int, default 1
        Simulated worlds per cell in the committed run.
    seed : int, default 0
        Of the committed run.
    finish : callable, optional
        What is done to the rows of all cells together, such as a correction for many tests.

    Examples
    --------
    >>> import pandas as pd
    >>> from dpbook.studies import Study, cell_rng
    >>> def spread(n, *, trials, seed):
    ...     means = cell_rng(seed, "spread", n).normal(size=(trials, n)).mean(axis=1)
    ...     return pd.DataFrame({"n": [n], "sd": [means.std().round(2)]})
    >>> study = Study(spread, [(1,), (100,)], trials=2000)
    >>> study()["sd"].tolist()
    [0.99, 0.1]
    >>> study(cells=[(100,)], trials=500)["n"].tolist()
    [100]
    >>> parts = [study.measure(*cell, trials=2000, seed=0) for cell in study.cells]  # as the runner does
    >>> study.combine(parts).equals(study())
    True
    """

    measure: Callable[..., pd.DataFrame]
    cells: Sequence[tuple[Any, ...]] = ((),)
    trials: int = 1
    seed: int = 0
    finish: Callable[[pd.DataFrame], pd.DataFrame] | None = None

    def __call__(
        self, *, cells: Sequence[tuple[Any, ...]] | None = None, trials: int | None = None, seed: int | None = None
    ) -> pd.DataFrame:
        """Measure some cells (by default all), one after the other, and return their rows as one table."""
        trials = self.trials if trials is None else integer("trials", trials, least=0)
        seed = self.seed if seed is None else integer("seed", seed, least=0)
        chosen = self.cells if cells is None else cells
        return self.combine([self.measure(*cell, trials=trials, seed=seed) for cell in chosen])

    def combine(self, parts: Sequence[pd.DataFrame]) -> pd.DataFrame:
        """Return the rows of several cells, ``parts`` in the order of the table, as one finished table."""
        table = pd.concat(list(parts), ignore_index=True)
        return table if self.finish is None else self.finish(table)


def cell_rng(seed: int, *label: object) -> np.random.Generator:
    """Return a generator of one cell's own, so that a cell gives the same numbers whichever others are run.

    Explained in :doc:`/book/how-to-use`.

    Parameters
    ----------
    seed : int
        Of the study.
    label : objects
        What names the cell; their ``repr`` is what counts.

    Returns
    -------
    numpy.random.Generator

    Examples
    --------
    >>> from dpbook.studies import cell_rng
    >>> bool(cell_rng(1, "naive", 100).random() == cell_rng(1, "naive", 100).random())
    True
    """
    return np.random.default_rng([seed, zlib.crc32(repr(label).encode())])


def judge(
    truth: NDArray[np.float64], drawn: NDArray[np.float64], independent: int, rng: np.random.Generator
) -> tuple[dict[str, float], NDArray[np.float64]]:
    """Return the scores of one scalar over all trials, and its ranks.

    Explained in :doc:`/book/exponential-families/calibration-and-utility`.

    Parameters
    ----------
    truth, drawn : array (trial,), array (trial, draw)
        The true value in each trial, and posterior draws.
    independent : int
        How many of them, spread out, are ranked as independent.
    rng : numpy.random.Generator
        Breaks ties.

    Returns
    -------
    scores : dict
        Tests of calibration, contraction, coverage of the 95 % interval, sd, RMSE, interval score, CRPS.
    ranks : array (trial,)

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook.studies import judge
    >>> rng = np.random.default_rng(1)
    >>> truth = rng.normal(size=300)
    >>> drawn = rng.normal(rng.normal(truth)[:, None] / 2, np.sqrt(0.5), size=(300, 100))
    >>> bool(judge(truth, drawn, 100, rng)[0]["p_holm"] > 0.05)
    True
    """
    calibrated = diagnostics.calibrate(
        lambda _, __: truth, lambda _, __: None, lambda _, __: drawn, len(truth), draws=independent, rng=rng
    )
    raw = calibrated.raw_p_values
    low, high = np.quantile(drawn, [0.025, 0.975], axis=1)
    # From ranks among independent draws: if a method is calibrated, few or dependent draws do not bias its coverage.
    hit = diagnostics.coverage(0.025, 0.975, calibrated.ranks["theta"])
    row = {
        "ks": calibrated.ks["theta"],
        "ks_p": raw["theta", "ks"],
        "variance": calibrated.variance["theta"],
        "variance_p": raw["theta", "variance"],
        "p_holm": min(calibrated.p_values.values()),
        "contraction": 1 - drawn.var(axis=1, ddof=1).mean() / truth.var(ddof=1),
        "coverage": hit.rate,
        "coverage_low": hit.low,
        "coverage_high": hit.high,
        "sd": drawn.std(axis=1, ddof=1).mean(),
        "rmse": math.sqrt(np.mean((drawn.mean(axis=1) - truth) ** 2)),
        "interval_score": np.mean(diagnostics.interval_score(low, high, truth, 0.95)),
        "crps": np.mean(diagnostics.crps(drawn, truth)),
    }
    return row, calibrated.ranks["theta"]


def corrected(table: pd.DataFrame) -> pd.DataFrame:
    """Return a table of :func:`judge` rows with ``p_study``: Holm's correction over all the rows of each method.

    Explained in :doc:`/book/exponential-families/calibration-and-utility`.

    Parameters
    ----------
    table : pandas.DataFrame
        With columns ``method``, ``ks_p``, ``variance_p`` and ``p_holm``.

    Returns
    -------
    pandas.DataFrame
        The same with ``p_study`` after ``p_holm``.

    Examples
    --------
    >>> import pandas as pd
    >>> from dpbook.studies import corrected
    >>> rows = pd.DataFrame({"method": "naive", "ks_p": [0.01, 0.5], "variance_p": [0.2, 0.9], "p_holm": [0.02, 1.0]})
    >>> corrected(rows)["p_study"].tolist()
    [0.04, 1.0]
    """
    adjusted = np.empty(len(table))
    for method in table["method"].unique():
        among = (table["method"] == method).to_numpy()
        p_values = table.loc[among, ["ks_p", "variance_p"]].to_numpy()
        adjusted[among] = diagnostics.holm(p_values.ravel()).reshape(-1, 2).min(axis=1)
    table = table.copy()
    table.insert(list(table.columns).index("p_holm") + 1, "p_study", adjusted)
    return table


def load(path: str | Path) -> pd.DataFrame:
    r"""Return the stored table of a study, with what its first line says of its making as ``attrs``.

    Explained in :doc:`/book/how-to-use`.

    Parameters
    ----------
    path : path
        Of a table that ``tools/study.py`` wrote, such as ``"results/calibration.csv"``.

    Returns
    -------
    pandas.DataFrame
        With ``attrs`` such as seed, trials, version, commit and seconds; missing texts are empty strings.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from dpbook.studies import load
    >>> header = "# study=toy seed=1 trials=20 version=0.1.0 commit=abc1234 seconds=0.5"
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "toy.csv"
    >>> _ = path.write_text("\n".join([header, "n,sd", "5,0.2"]))
    >>> load(path).attrs["trials"]
    20
    """
    with Path(path).open(encoding="utf-8") as file:
        first = file.readline()
    if not first.startswith("# study="):
        raise ValueError(f"path must be a table of a study, whose first line says how it was made; got {first!r}")
    table = pd.read_csv(path, comment="#")
    for column in table.columns:
        if not pd.api.types.is_numeric_dtype(table[column]):
            table[column] = table[column].fillna("")
    facts = dict(part.split("=", 1) for part in first.strip("# \n").split())
    table.attrs = {name: _KINDS.get(name, str)(value) for name, value in facts.items()}
    return table


_KINDS: dict[str, Callable[[str], Any]] = {"seed": int, "trials": int, "cases": int, "seconds": float}
