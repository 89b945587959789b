"""What is left of a posterior where its draws are not kept: its summaries, so that very many fit in memory.

``infer(…, keep="summary")`` returns one for each release. The Bayesian primer of chapter 1 explains how to read them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import numpy as np
from numpy.typing import ArrayLike

from dpbook._arrays import Array
from dpbook._validation import fraction, one_of
from dpbook.doubts import Doubt

if TYPE_CHECKING:
    import pandas as pd

    from dpbook.posterior import Posterior

__all__ = ["PosteriorSummary"]

# The probabilities whose quantiles are kept: intervals of 50, 80, 90, 95, 98 and 99 %.
PROBABILITIES = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.975, 0.99, 0.995)
_FIGURES = ("mean", "sd", "rhat", "bulk", "tail")  # of every component, before its quantiles
_NEAR = 1e-9  # a probability that was computed, such as (1 - 0.95)/2, is the one that was meant


class _Kind(NamedTuple):
    """What all posteriors of a batch share; one object, so that a hundred thousand do not hold it each."""

    method: str
    size: tuple[int, int]  # chains, draws
    shapes: dict[str, tuple[int, ...]]
    names: dict[str, list[str]]  # of the components
    medians: bool


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class PosteriorSummary:
    """The summaries of a posterior whose draws were not kept.

    It answers as a :class:`~dpbook.Posterior` does, with the numbers that the draws gave, but has no quantiles beside
    the median and the ends of the central intervals of 50, 80, 90, 95, 98 and 99 %. Explained in
    :doc:`/book/background/bayesian-primer`.

    Parameters
    ----------
    figures : array (component, 18)
        Mean, standard deviation, R-hat and both effective sizes of every scalar component, then its quantiles.
    kind : tuple
        What posteriors of one batch share: method, numbers of chains and draws, shapes and names.
    notes, doubts : tuple
        Those of the posterior.

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook import Posterior
    >>> from dpbook.kept_summary import PosteriorSummary
    >>> posterior = Posterior({"theta": np.random.default_rng(1).beta(30, 70, size=(4, 1000))}, method="exact")
    >>> kept = PosteriorSummary.of(posterior)
    >>> kept
    PosteriorSummary(of 4 chains of 1000 draws, theta: scalar, method='exact')
    >>> bool(kept.mean("theta") == posterior.mean("theta"))
    True
    >>> kept.interval(0.9, "theta").round(2).tolist(), kept.quantile(0.5, "theta").round(2).item()
    ([0.23, 0.38], 0.3)
    >>> print(kept.sd("theta").round(3), kept.rhat("theta") < 1.05, kept.ess("theta") > 3000)
    0.046 True True
    >>> kept.component_labels("theta"), kept.summary(0.9).columns.tolist()[:4]
    (['theta'], ['mean', 'sd', '5%', '95%'])
    """

    figures: Array
    kind: _Kind
    notes: tuple[str, ...] = ()
    doubts: tuple[Doubt, ...] = ()

    @classmethod
    def of(cls, posterior: Posterior) -> PosteriorSummary:
        """Return the summaries of ``posterior``."""
        each = [posterior.mean(), posterior.sd(), posterior.rhat(), posterior.ess(), posterior.ess(kind="tail")]
        stacked = [np.concatenate([np.ravel(value) for value in figure.values()]) for figure in each]
        quantiles = [
            np.reshape(value, (-1, len(PROBABILITIES))) for value in posterior.quantile(PROBABILITIES).values()
        ]
        first = next(iter(posterior.draws.values()))
        kind = _Kind(
            posterior.method,
            (int(first.shape[0]), int(first.shape[1])),
            {name: array.shape[2:] for name, array in posterior.draws.items()},
            {name: posterior.component_labels(name) for name in posterior.draws},
            bool(getattr(posterior, "heavy_tailed", False)),
        )
        figures = np.concatenate([np.stack(stacked, axis=1), np.concatenate(quantiles)], axis=1)
        return cls(figures, kind, tuple(posterior.notes), tuple(posterior.doubts))

    @property
    def method(self) -> str:
        """How the draws were made."""
        return self.kind.method

    @property
    def draws(self) -> NoReturn:
        """Were not kept, and raise an error that says so."""
        raise AttributeError("draws were not kept: call infer with keep='draws'")

    def mean(self, name: str | None = None) -> Any:
        """Return the posterior mean of ``name``, or of all parameters."""
        return self._figure("mean", name)

    def sd(self, name: str | None = None) -> Any:
        """Return the posterior standard deviation of ``name``, or of all parameters."""
        return self._figure("sd", name)

    def rhat(self, name: str | None = None) -> Any:
        """Return the rank-normalised split R-hat of ``name``, or of all parameters."""
        return self._figure("rhat", name)

    def ess(self, name: str | None = None, kind: str = "bulk") -> Any:
        """Return the effective sample size of ``name``, or of all parameters: ``kind`` is "bulk" or "tail"."""
        return self._figure(one_of("kind", kind, ("bulk", "tail")), name)

    def quantile(self, q: ArrayLike, name: str | None = None) -> Any:
        """Return quantiles ``q`` of ``name``, or of all parameters: at 0.5 and at the ends of intervals that are kept.

        For several ``q`` they are one more axis, the last.
        """
        levels = np.asarray(q)
        places = np.array([_place("q", fraction("q", level)) for level in levels.ravel()], dtype=int)
        return self._columns(len(_FIGURES) + places.reshape(levels.shape), name)

    def interval(self, level: float = 0.95, name: str | None = None) -> Any:
        """Return the central interval of probability ``level``, of ``name`` or of all: (low, high) on the last axis."""
        tail = (1 - fraction("level", level)) / 2
        return self._columns(len(_FIGURES) + np.array([_place("level", tail), _place("level", 1 - tail)]), name)

    def summary(self, level: float = 0.95) -> pd.DataFrame:
        """Return a table with a row for each scalar component, with the ends of the ``level`` interval."""
        from dpbook._summary_table import summary_table  # here: it loads pandas

        names = [label for labels in self.kind.names.values() for label in labels]
        said = (*self.notes, *(f"Doubt: {doubt}." for doubt in self.doubts))
        return summary_table(self, level, index=names, notes=said, medians=self.kind.medians)

    def component_labels(self, name: str) -> list[str]:
        """Return what the scalar components of the parameter ``name`` are called in tables."""
        return list(self.kind.names[one_of("name", name, tuple(self.kind.shapes))])

    def _figure(self, figure: str, name: str | None) -> Any:
        return self._columns(np.array(_FIGURES.index(figure)), name)

    def _columns(self, columns: Any, name: str | None) -> Any:
        """Return columns of the figures in the shapes of the parameters, the columns' axes last."""
        if name is None:
            return {each: self._columns(columns, each) for each in self.kind.shapes}
        one_of("name", name, tuple(self.kind.shapes))
        begin = 0
        for other, shape in self.kind.shapes.items():
            end = begin + math.prod(shape)
            if other == name:
                break
            begin = end
        return self.figures[begin:end][:, columns].reshape((*shape, *columns.shape))[()]

    def __repr__(self) -> str:
        chains, draws = self.kind.size
        size = f"of {chains} chain{'s' * (chains != 1)} of {draws} draw{'s' * (draws != 1)}"
        shapes = [f"{name}: {shape or 'scalar'}" for name, shape in self.kind.shapes.items()]
        method = [f"method={self.method!r}"] if self.method else []
        doubts = [f"doubts: {', '.join(type(doubt).__name__ for doubt in self.doubts)}"] if self.doubts else []
        return f"PosteriorSummary({', '.join([size, *shapes, *method, *doubts])})"


def shared(summaries: Sequence[PosteriorSummary]) -> list[PosteriorSummary]:
    """Return the summaries with one kind for all that have the same: a batch then holds its names once."""
    seen: list[_Kind] = []
    found = []
    for one in summaries:
        kind = next((other for other in seen if other == one.kind), None)
        if kind is None:
            seen.append(kind := one.kind)
        found.append(PosteriorSummary(one.figures, kind, one.notes, one.doubts))
    return found


def _place(argument: str, probability: float) -> int:
    """Return the place of a probability among those that are kept."""
    place = int(np.argmin(np.abs(np.array(PROBABILITIES) - probability)))
    if abs(PROBABILITIES[place] - probability) > _NEAR:
        kept: Mapping[str, str] = {
            "q": f"one of {', '.join(f'{each:g}' for each in PROBABILITIES)}",
            "level": "0.5, 0.8, 0.9, 0.95, 0.98 or 0.99",
        }
        raise ValueError(f"{argument} must be {kept[argument]} where draws were not kept (keep='summary')")
    return place
