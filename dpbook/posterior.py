"""What an analyst believes after a release: draws from a posterior, and summaries of them.

A :class:`Posterior` is what every ``infer`` function returns; the Bayesian primer of chapter 1 explains how to
read one. It is immutable, it holds nothing but draws, and its convergence figures are ArviZ's, computed without it.
"""

from __future__ import annotations

import html
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpbook import _html, _mixing
from dpbook._arrays import Array
from dpbook._labels import component_labels
from dpbook._late import pd
from dpbook._validation import finite_array, fraction, one_of, positive
from dpbook.doubts import LARGEST_RHAT, Doubt, disagreement, say
from dpbook.doubts import ConvergenceWarning as ConvergenceWarning  # which has long been imported from here

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["Posterior", "warn_if_unconverged"]

# A number (np.float64) where the parameter is a scalar, an array where it is an array.
Estimate: TypeAlias = Any


@dataclass(frozen=True, eq=False, repr=False)
class Posterior:
    """Draws from the posterior distribution of some named parameters.

    Its summaries take the ``name`` of a parameter and answer in that parameter's own shape; without a name they answer
    with a dictionary of all of them. Explained in :doc:`/book/background/bayesian-primer`.

    Parameters
    ----------
    draws : mapping of str to array_like
        For each parameter its draws, of shape (chain, draw, ...): a scalar parameter has two axes, a vector of
        length d has shape (chain, draw, d). All parameters share the first two axes. Independent draws are one
        chain. The arrays are kept as read-only floats; what is writeable, or a view of such, is copied.
    method : str, optional
        How the draws were made, for tables and figures: ``"exact"``, ``"gibbs"``, ``"naive"`` ...
    labels : mapping of str to sequence of str, optional
        What the components of a vector parameter are called, such as the columns of a table; tables, plots and ArviZ's
        coordinates use them. A parameter without labels has its components numbered.
    notes : sequence of str, optional
        What the method has to say, such as why it was chosen; :meth:`summary` prints them.
    doubts : sequence of Doubt, optional
        Why it may be wrong, each with a cause and a remedy; ``infer`` warns of them, and :meth:`summary` prints them.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(1)
    >>> posterior = Posterior({"theta": rng.beta(30, 70, size=(4, 1000))}, method="exact")
    >>> posterior
    Posterior(4 chains of 1000 draws, theta: scalar, method='exact')
    >>> print(round(posterior.mean("theta"), 2), posterior.interval(0.9, "theta").round(2))
    0.3 [0.23 0.38]
    >>> print(posterior.sd("theta").round(3), posterior.quantile([0.25, 0.75], "theta").round(2))
    0.046 [0.27 0.33]
    >>> print(posterior.rhat("theta") < 1.05, posterior.ess("theta") > 3000, len(posterior.to_arviz().posterior.chain))
    True True 4
    >>> line = Posterior({"theta": rng.normal(size=(4, 500, 2))}, labels={"theta": ["(intercept)", "age"]})
    >>> line.component_labels("theta"), line.summary(0.9).columns.tolist()
    (['(intercept)', 'age'], ['mean', 'sd', '5%', '95%', 'r_hat', 'ess_bulk', 'ess_tail'])
    """

    draws: Mapping[str, NDArray[np.float64]]
    method: str = ""
    labels: Mapping[str, Sequence[str]] = field(default_factory=dict, kw_only=True)
    notes: Sequence[str] = field(default=(), kw_only=True)
    doubts: Sequence[Doubt] = field(default=(), kw_only=True)

    def __post_init__(self) -> None:
        if not isinstance(self.draws, Mapping):
            raise TypeError(f"draws must map names to arrays, got {type(self.draws).__name__}")
        if not self.draws:
            raise ValueError("draws must hold at least one parameter, got none")
        checked = {name: _checked_draws(name, value) for name, value in self.draws.items()}
        first, *others = checked
        for name in others:
            if checked[name].shape[:2] != checked[first].shape[:2]:
                raise ValueError(
                    "draws must share their (chain, draw) axes: "
                    f"{first!r} has {checked[first].shape[:2]}, {name!r} has {checked[name].shape[:2]}"
                )
        object.__setattr__(self, "draws", MappingProxyType(checked))
        object.__setattr__(self, "labels", MappingProxyType(_checked_labels(self.labels, checked)))
        if isinstance(self.notes, str) or not all(isinstance(note, str) for note in self.notes):
            raise TypeError(f"notes must be a sequence of strings, got {self.notes!r}")
        object.__setattr__(self, "notes", tuple(self.notes))
        if not all(isinstance(doubt, Doubt) for doubt in self.doubts):
            raise TypeError(f"doubts must be a sequence of Doubt, got {self.doubts!r}")
        object.__setattr__(self, "doubts", tuple(self.doubts))

    def __reduce__(self) -> tuple[Any, ...]:
        # A mapping proxy cannot be pickled; the plain dictionary can.
        held: dict[str, Any] = {each.name: getattr(self, each.name) for each in fields(self)}
        plain: dict[str, Any] = {k: dict(value) if isinstance(value, Mapping) else value for k, value in held.items()}
        return partial(type(self), **plain), ()

    def __repr__(self) -> str:
        shapes = [f"{name}: {array.shape[2:] or 'scalar'}" for name, array in self.draws.items()]
        method = [f"method={self.method!r}"] if self.method else []
        doubts = [f"doubts: {', '.join(type(doubt).__name__ for doubt in self.doubts)}"] if self.doubts else []
        return f"{type(self).__name__}({', '.join([self._size(), *shapes, *method, *doubts])})"

    def _said(self) -> tuple[str, ...]:
        """Return what a table prints below itself: notes, then doubts."""
        return (*self.notes, *(f"Doubt: {doubt}." for doubt in self.doubts))

    def _size(self) -> str:
        chains, draws = next(iter(self.draws.values())).shape[:2]
        return f"{chains} chain{'s' * (chains != 1)} of {draws} draw{'s' * (draws != 1)}"

    def _repr_html_(self) -> str:
        labels = self._labels()
        shown, left = {}, _html.MOST_ROWS  # diagnostics take a while: none for components that are not shown
        for name, array in self.draws.items():
            flat = array.reshape(*array.shape[:2], -1)[:, :, :left]
            if flat.shape[2]:
                shown[name], left = flat, left - flat.shape[2]
        summary = Posterior(shown).summary()
        rows = [[label, *row] for label, row in zip(labels, summary.to_numpy().tolist(), strict=False)]
        method = f", method {self.method}" if self.method else ""
        columns = ["parameter", *summary.columns]
        table = _html.table(f"{type(self).__name__}: {self._size()}{method}", columns, rows, total=len(labels))
        return table + "".join(f"<p>{html.escape(text)}</p>" for text in self._said())

    @overload
    def mean(self, name: str) -> Estimate: ...
    @overload
    def mean(self, name: None = None) -> dict[str, Estimate]: ...
    def mean(self, name: str | None = None) -> Estimate | dict[str, Estimate]:
        """Return the posterior mean of ``name``, or of all parameters."""
        return self._each(name, lambda pooled: pooled.mean(axis=0))

    @overload
    def sd(self, name: str) -> Estimate: ...
    @overload
    def sd(self, name: None = None) -> dict[str, Estimate]: ...
    def sd(self, name: str | None = None) -> Estimate | dict[str, Estimate]:
        """Return the posterior standard deviation of ``name``, or of all parameters; NaN for a single draw."""
        return self._each(name, _sample_sd)

    @overload
    def quantile(self, q: ArrayLike, name: str) -> Estimate: ...
    @overload
    def quantile(self, q: ArrayLike, name: None = None) -> dict[str, Estimate]: ...
    def quantile(self, q: ArrayLike, name: str | None = None) -> Estimate | dict[str, Estimate]:
        """Return posterior quantiles of ``name``, or of all parameters, at probabilities ``q`` inside (0, 1).

        For several ``q`` they are one more axis, the last.
        """
        levels = np.asarray(q)
        probabilities = np.reshape([fraction("q", level) for level in levels.ravel()], levels.shape)
        last = range(-probabilities.ndim, 0)

        def quantiles(pooled: NDArray[np.float64]) -> Estimate:
            return np.moveaxis(np.quantile(pooled, probabilities, axis=0), range(probabilities.ndim), last)[()]

        return self._each(name, quantiles)

    @overload
    def interval(self, level: float, name: str) -> Estimate: ...
    @overload
    def interval(self, level: float = 0.95, *, name: str) -> Estimate: ...
    @overload
    def interval(self, level: float = 0.95, name: None = None) -> dict[str, Estimate]: ...
    def interval(self, level: float = 0.95, name: str | None = None) -> Estimate | dict[str, Estimate]:
        """Return the central credible interval of ``name``, or of all parameters: (low, high) on the last axis.

        It holds the posterior probability ``level`` and leaves (1 - level)/2 on either side.
        """
        tail = (1 - fraction("level", level)) / 2
        return self._each(name, lambda pooled: np.stack(list(np.quantile(pooled, (tail, 1 - tail), axis=0)), axis=-1))

    @overload
    def rhat(self, name: str) -> Estimate: ...
    @overload
    def rhat(self, name: None = None) -> dict[str, Estimate]: ...
    def rhat(self, name: str | None = None) -> Estimate | dict[str, Estimate]:
        """Return ArviZ's rank-normalised split R-hat of ``name``, or of all parameters: near 1 where the chains agree.

        A single chain is compared with itself, one half against the other. A parameter that never moves, or that
        has fewer than four draws per chain (eight of a single one), has NaN.
        """
        return self._each_component(name, _mixing.rhat)

    @overload
    def ess(self, name: str, kind: str = "bulk") -> Estimate: ...
    @overload
    def ess(self, name: None = None, kind: str = "bulk") -> dict[str, Estimate]: ...
    def ess(self, name: str | None = None, kind: str = "bulk") -> Estimate | dict[str, Estimate]:
        """Return ArviZ's effective sample size of ``name``, or of all parameters: in independent draws.

        ``kind`` is ``"bulk"``, for the centre of the distribution, or ``"tail"``, for its 5 % and 95 % quantiles. NaN
        with fewer than four draws per chain.
        """
        kind = one_of("kind", kind, ("bulk", "tail"))
        return self._each_component(name, _mixing.ess_bulk if kind == "bulk" else _mixing.ess_tail)

    def summary(self, level: float = 0.95) -> pd.DataFrame:
        """Return a table with one row for each scalar component of each parameter.

        Its columns are ``mean``, ``sd``, the two ends of the central interval of probability ``level`` (named by their
        probabilities: ``2.5%`` and ``97.5%``), ``r_hat``, ``ess_bulk`` and ``ess_tail``.
        """
        from dpbook._summary_table import summary_table  # here: it loads pandas

        return summary_table(self, level, index=self._labels(), notes=self._said())

    def plot(self, name: str | None = None, *, level: float = 0.95, ax: Axes | None = None) -> Axes:
        """Draw the mean of every component, its central interval, and inside it, thicker, the central half.

        Parameters
        ----------
        name : str, optional
            A parameter; without it, all of them, which share an axis.
        level : float, default 0.95
            The posterior probability of the interval; up to 0.5 the central half is left out.
        ax : matplotlib.axes.Axes, optional
            Where to draw; without it, a new figure in the book's style.

        Returns
        -------
        matplotlib.axes.Axes
            With a row for each scalar component, in the colour of the method where the book has one for it.

        Examples
        --------
        >>> import numpy as np
        >>> from matplotlib.figure import Figure
        >>> posterior = Posterior({"theta": np.random.default_rng(1).normal(size=(4, 500, 2))})
        >>> ax = posterior.plot(ax=Figure().subplots())
        >>> [label.get_text() for label in ax.get_yticklabels()]
        ['theta[0]', 'theta[1]']
        """
        from dpbook.plotting import plot_rows

        names = tuple(self.draws) if name is None else (one_of("name", name, tuple(self.draws)),)
        labels = [label for each in names for label in self.component_labels(each)]
        middle = np.concatenate([np.ravel(self.mean(each)) for each in names])
        shares = (level, 0.5) if level > 0.5 else (level,)
        spans = [np.concatenate([self.interval(share, each).reshape(-1, 2) for each in names]) for share in shares]
        xlabel = f"posterior mean, intervals of {' and '.join(f'{100 * share:g} %' for share in shares)}"
        return plot_rows(labels, middle, spans, xlabel=xlabel, method=self.method, ax=ax)

    def to_arviz(self) -> Any:
        """Return the draws as an ArviZ ``InferenceData``, for plots and diagnostics; from ArviZ 1 on a ``DataTree``.

        It has the one group ``posterior``, whose attribute ``method`` says how the draws were made.
        """
        arviz = _arviz()
        named: dict[str, Any] = {
            "dims": {name: [f"{name}_component"] for name in self.labels},
            "coords": {f"{name}_component": list(labels) for name, labels in self.labels.items()},
        }
        if int(arviz.__version__.split(".")[0]) >= 1:
            return arviz.from_dict(
                {"posterior": dict(self.draws)}, attrs={"posterior": {"method": self.method}}, **named
            )
        with warnings.catch_warnings():
            # Many short chains are our habit, not a transposed array.
            warnings.filterwarnings("ignore", message="More chains")
            return arviz.from_dict(posterior=dict(self.draws), posterior_attrs={"method": self.method}, **named)

    def component_labels(self, name: str) -> list[str]:
        """Return what the scalar components of the parameter ``name`` are called in tables and plots.

        A label is prefixed by the parameter's name where another parameter uses it, too. Without labels it is
        ``name`` for a scalar, ``name[i, j]`` for a component.
        """
        shape = self.draws[one_of("name", name, tuple(self.draws))].shape[2:]
        if name not in self.labels:
            return component_labels(name, shape)
        others = {*self.draws}  # and what is called like a component of another parameter, labelled or numbered
        for other in self.draws.keys() - {name}:
            others |= {*self.labels.get(other, component_labels(other, self.draws[other].shape[2:]))}
        return [f"{name}[{label}]" if label in others else label for label in self.labels[name]]

    def _labels(self) -> list[str]:
        return [label for name in self.draws for label in self.component_labels(name)]

    def _each(self, name: str | None, estimate: Callable[[NDArray[np.float64]], Estimate]) -> Any:
        """Apply ``estimate`` to the draws of all chains in one axis: for one parameter, or for all in a dictionary."""
        if name is None:
            return {each: self._each(each, estimate) for each in self.draws}
        array = self.draws[one_of("name", name, tuple(self.draws))]
        return estimate(array.reshape(-1, *array.shape[2:]))

    def _each_component(self, name: str | None, figures: Callable[[Array], Array]) -> Any:
        """Apply ``figures`` to the (component, chain, draw) array of one parameter, or of all of them."""
        if name is None:
            return {each: self._each_component(each, figures) for each in self.draws}
        array = self.draws[one_of("name", name, tuple(self.draws))]
        components = np.moveaxis(array.reshape(*array.shape[:2], -1), 2, 0)
        return figures(components).reshape(array.shape[2:])[()]


def warn_if_unconverged(posterior: Posterior | Sequence[Posterior], threshold: float = LARGEST_RHAT) -> None:
    """Warn where chains disagree: name the component with the largest R-hat if that is above ``threshold``.

    Every ``infer`` function that runs chains looks at R-hat by itself (:func:`dpbook.doubts.speak`); this lets you ask.
    A low R-hat is no proof: chains that all mix slowly, or all sit in one of several modes, agree too. Explained in
    :doc:`/book/background/bayesian-primer`.

    Parameters
    ----------
    posterior : Posterior or sequence of Posterior
        What to look at. Components whose R-hat is NaN (constants) are passed over.
    threshold : float, default 1.05
        The largest R-hat that passes.

    Warns
    -----
    ConvergenceWarning

    Examples
    --------
    >>> import numpy as np
    >>> draws = np.random.default_rng(1).normal(size=(4, 500))
    >>> warn_if_unconverged(Posterior({"theta": draws}))  # chains that agree: silence
    """
    threshold = positive("threshold", threshold)
    batch = [posterior] if isinstance(posterior, Posterior) else list(posterior)
    say(
        [
            disagreement(
                np.concatenate([np.ravel(one.rhat(name)) for name in one.draws]),
                one._labels(),
                threshold,
            )
            for one in batch
        ]
    )


def _checked_draws(name: Any, value: ArrayLike) -> NDArray[np.float64]:
    if not isinstance(name, str):
        raise TypeError(f"draws must be named by strings, got {name!r}")
    array = finite_array(f"draws[{name!r}]", value)
    if array.ndim < 2 or array.size == 0:
        raise ValueError(
            f"draws[{name!r}] must have shape (chain, draw, ...) with at least one of each, got shape {array.shape}"
        )
    if not _is_read_only(array):
        array = array.copy()
        array.flags.writeable = False
        array = array.view()  # NumPy makes a view writeable again only if what it views is
    return array


def _checked_labels(labels: Any, draws: Mapping[str, NDArray[np.float64]]) -> dict[str, tuple[str, ...]]:
    if not isinstance(labels, Mapping):
        raise TypeError(f"labels must map names of parameters to labels, got {type(labels).__name__}")
    checked = {}
    for name, given in labels.items():
        shape = draws[one_of("labels", name, tuple(draws))].shape[2:]
        if isinstance(given, str) or not isinstance(given, Iterable):
            raise TypeError(f"labels[{name!r}] must be a sequence of strings, got {given!r}")
        checked[name] = given = tuple(given)
        if shape != (len(given),):
            raise ValueError(f"labels[{name!r}] must name the {shape} components of a vector, got {len(given)} labels")
        if not all(isinstance(label, str) for label in given) or len(set(given)) < len(given):
            raise ValueError(f"labels[{name!r}] must be different strings, got {list(given)!r}")
    return checked


def _is_read_only(array: Any) -> bool:
    """Say whether an array and all that it is a view of are read-only: a view alone may hide a writeable base."""
    while isinstance(array, np.ndarray):
        if array.flags.writeable:
            return False
        array = array.base
    return array is None


def _sample_sd(pooled: NDArray[np.float64]) -> Estimate:
    if len(pooled) == 1:
        return np.full(pooled.shape[1:], np.nan)[()]
    return pooled.std(axis=0, ddof=1)


def _arviz() -> Any:
    """Import ArviZ when it is first needed (it takes seconds), without the notice about its next version."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=FutureWarning)
        import arviz
    return arviz
