"""The tables of chapter 6 that take longer than a notebook should: the ledger of claims, and prices of privacy.

All but the searches for counterexamples are deterministic: every entry is computed from exact profiles, and ``trials``
and ``seed`` change nothing. Each study is a function that returns a table, and a command,
``python -m dpbook.experiments.theory_study NAME``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from tqdm import tqdm

from dpbook import theory
from dpbook.experiments._studies import Study, load_table, results_of, run_command
from dpbook.theory import BetaBernoulli, NormalKnownVariance

__all__ = ["RESULTS", "STUDIES", "attacks", "comparison", "decisions", "ledger", "load", "looseness", "main"]

RESULTS = results_of("theory")
SIZES = (100, 1000, 10_000, 100_000)
EPSILONS = (0.1, 0.5, 1.0, 3.0)
DELTA = 1e-6


def ledger(*, trials: int = 1, seed: int = 0) -> pd.DataFrame:
    """Check every claim of the posters.

    Parameters
    ----------
    trials, seed : int
        Not used: nothing is random.

    Returns
    -------
    pandas.DataFrame
        From :func:`dpbook.theory.claims_table`.

    Examples
    --------
    >>> from dpbook.experiments.theory_study import load
    >>> sorted(load("ledger")["verdict"].unique())
    ['fails', 'fails as printed', 'not refuted', 'proved', 'proved with a condition']

    Explained in :doc:`/book/theory/ledger-of-claims`.
    """
    return theory.claims_table()


def attacks(*, trials: int = 0, seed: int = 0, progress: bool = False) -> pd.DataFrame:
    """Search for a counterexample to every claim that can be attacked.

    Parameters
    ----------
    trials : int, default 0
        How many starts each search has; 0 for the attack's own number.
    seed : int, default 0
        Of the searches.
    progress : bool, default False
        Show a progress bar.

    Returns
    -------
    pandas.DataFrame
        Columns claim, searched (the ranges), seed, evaluations, worst (the largest logarithm of what is true over what
        is claimed), refuted and at (where).

    Examples
    --------
    >>> from dpbook.experiments.theory_study import load
    >>> load("attacks").query("refuted")["claim"].tolist()
    ['coins-IV-without-epsilon']

    Explained in :doc:`/book/theory/ledger-of-claims`.
    """
    rows = []
    for name, one in tqdm(theory.attacks.items(), disable=not progress):
        found = theory.attack(name, starts=trials or None, seed=seed)
        rows.append(
            {
                "claim": name,
                "searched": one.over,
                "seed": seed,
                "evaluations": found.evaluations,
                "worst": found.worst,
                "refuted": found.refuted,
                "at": ", ".join(f"{key} = {value:.4g}" for key, value in found.at.items()),
            }
        )
    return pd.DataFrame(rows)


def comparison(*, trials: int = 1, seed: int = 0, progress: bool = False) -> pd.DataFrame:
    """Compare posterior draws and synthetic data with noisy statistics at equal epsilon and delta.

    Parameters
    ----------
    trials, seed : int
        Not used: nothing is random.
    progress : bool, default False
        Show a progress bar.

    Returns
    -------
    pandas.DataFrame
        Rows of :func:`dpbook.theory.compare_with_noise` for coins and for bells of bound 3σ, over n and epsilon, at
        delta = 1e-6.

    Examples
    --------
    >>> from dpbook.experiments.theory_study import load
    >>> load("comparison")["model"].unique().tolist()
    ['coins', 'bells']

    Explained in :doc:`/book/theory/choosing-a-prior`.
    """
    models: dict[str, BetaBernoulli | NormalKnownVariance] = {
        "coins": BetaBernoulli(),
        "bells": NormalKnownVariance(bound=3.0),
    }
    cells = [(name, n, epsilon) for name in models for n in SIZES for epsilon in EPSILONS]
    tables = []
    for name, n, epsilon in tqdm(cells, disable=not progress):
        table = theory.compare_with_noise(models[name], n, epsilon=epsilon, delta=DELTA)
        for column, value in (("epsilon", epsilon), ("n", n), ("model", name)):
            table.insert(0, column, value)
        tables.append(table)
    return pd.concat(tables, ignore_index=True)


def decisions(*, trials: int = 1, seed: int = 0, progress: bool = False) -> pd.DataFrame:
    """Tabulate what a release of coins needs: the weakest prior, by release, size, epsilon and delta.

    Parameters
    ----------
    trials, seed : int
        Not used: nothing is random.
    progress : bool, default False
        Show a progress bar.

    Returns
    -------
    pandas.DataFrame
        Columns release, n, m, epsilon, delta and alpha, the smallest ``alpha = beta``.

    Examples
    --------
    >>> from dpbook.experiments.theory_study import load
    >>> load("decisions")["release"].unique().tolist()
    ['sample', 'plug-in', 'bayes', 'bayes, one draw']

    Explained in :doc:`/book/theory/choosing-a-prior`.
    """
    releases: dict[str, tuple[str, dict[str, Any]]] = {
        "sample": ("sample", {}),
        "plug-in": ("synthetic-plugin", {"estimator": "mode"}),
        "bayes": ("synthetic-bayes", {"redraw": True}),
        "bayes, one draw": ("synthetic-bayes", {"redraw": False}),
    }
    cells = [
        (name, n, m, epsilon, delta)
        for name in releases
        for n in (100, 10_000)
        for m in ((0,) if name == "sample" else (1, 100, 10_000))
        for epsilon in EPSILONS
        for delta in (0.0, DELTA)
    ]
    rows = []
    for name, n, m, epsilon, delta in tqdm(cells, disable=not progress):
        kind, options = releases[name]
        more = {**options, "m": m} if m else options
        found = theory.prior_for(kind, BetaBernoulli(), n, epsilon=epsilon, delta=delta, **more)
        alpha = found.alpha if isinstance(found, BetaBernoulli) else math.inf
        rows.append({"release": name, "n": n, "m": m, "epsilon": epsilon, "delta": delta, "alpha": alpha})
    return pd.DataFrame(rows)


def looseness(*, trials: int = 1, seed: int = 0, progress: bool = False) -> pd.DataFrame:
    """Compare the exponential mechanism's and Rényi's epsilon of a posterior draw of coins with the exact one.

    Parameters
    ----------
    trials, seed : int
        Not used: nothing is random.
    progress : bool, default False
        Show a progress bar.

    Returns
    -------
    pandas.DataFrame
        Columns view, n, alpha, delta, bound, exact, looseness; draws truncated to [.1, .9] for the exponential
        mechanism, unrestricted for Rényi.

    Examples
    --------
    >>> from dpbook.experiments.theory_study import load
    >>> bool((load("looseness")["looseness"] >= 1).all())
    True

    Explained in :doc:`/book/theory/beyond`.
    """
    rows = []
    cells = [
        (n, alpha, delta) for n in (1, 10, 100, 1000) for alpha in (1.0, 10.0, 100.0) for delta in (0.0, 1e-9, DELTA)
    ]
    for n, alpha, delta in tqdm(cells, disable=not progress):
        model = BetaBernoulli(alpha, alpha)
        cell = {"n": n, "alpha": alpha, "delta": delta}
        view = theory.exponential_view(model, n, truncate=(0.1, 0.9), delta=delta)
        rows.append({"view": "exponential mechanism", **cell, **view._asdict()})
        if delta > 0:
            bound, exact = (
                theory.renyi_epsilon(model, n, delta=delta),
                theory.epsilon_for("sample", model, n, delta=delta),
            )
            rows.append({"view": "renyi", **cell, "bound": bound, "exact": exact, "looseness": bound / exact})
    return pd.DataFrame(rows).sort_values(["view", "n", "alpha", "delta"], ignore_index=True)


STUDIES: Mapping[str, Study] = {
    "ledger": ledger,
    "attacks": attacks,
    "comparison": comparison,
    "decisions": decisions,
    "looseness": looseness,
}


def load(name: str, folder: str | Path = RESULTS) -> pd.DataFrame:
    """Return the committed result of a study.

    Parameters
    ----------
    name : str
        A key of ``STUDIES``.
    folder : path, optional
        Where the tables are; by default those of the book.

    Returns
    -------
    pandas.DataFrame
        With ``attrs``: version and seconds that it took; empty texts are empty strings.

    Examples
    --------
    >>> from dpbook.experiments.theory_study import load
    >>> len(load("ledger")) >= 27
    True

    Explained in :doc:`/book/theory/ledger-of-claims`.
    """
    table = load_table(name, STUDIES, folder)
    for column in table.columns:
        if not pd.api.types.is_numeric_dtype(table[column]):
            table[column] = table[column].fillna("")
    return table


def main(arguments: Sequence[str] | None = None) -> None:
    """Run studies and write their tables: ``python -m dpbook.experiments.theory_study ledger``.

    Parameters
    ----------
    arguments : sequence of str, optional
        Command-line arguments; by default those of the process.

    Examples
    --------
    >>> from dpbook.experiments.theory_study import main
    >>> main(["--help"])  # doctest: +ELLIPSIS, +SKIP
    usage: ...

    Explained in :doc:`/book/theory/ledger-of-claims`.
    """
    run_command(arguments, STUDIES, folder=RESULTS, seed=0, doc=__doc__)


if __name__ == "__main__":
    main()
