"""Posteriors of means and of histograms, with what can be asked of them: functionals, quantiles, what clipping took.

The section on a mean that assumes little explains them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from dpbook._arrays import Array
from dpbook._validation import finite_array, fraction, interval
from dpbook.posterior import Posterior

__all__ = ["HistogramPosterior", "MeanPosterior"]


@dataclass(frozen=True, eq=False, repr=False)
class HistogramPosterior(Posterior):
    """The posterior of a histogram's probabilities, and of anything that follows from them.

    Draws of the probabilities are labelled by the cells. What :func:`infer` returns for :func:`release_histogram`.
    Explained in :doc:`/book/exponential-families/a-mean-that-assumes-little`.

    Parameters
    ----------
    draws, method, labels, notes
        As in :class:`~dpbook.Posterior`; the draws hold ``probabilities``.
    edges : sequence of float, optional
        Edges of the bins, where the cells are such: one cell below them all, and one above.

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook import expfam
    >>> rng = np.random.default_rng(1)
    >>> noisy = expfam.release_histogram(rng.exponential(1, 1000), [0, 1, 2, 3], epsilon=1.0, rng=rng)
    >>> posterior = expfam.infer(noisy, rng=rng)
    >>> difference = posterior.functional(lambda p: p[..., 1] - p[..., 2])
    >>> print(difference.mean("functional").round(1), posterior.population_quantile(0.5).mean("quantile").round(1))
    0.4 0.8
    """

    edges: Sequence[float] = field(default=(), kw_only=True)

    @property
    def cells(self) -> tuple[str, ...]:
        """What the cells are called."""
        return tuple(self.labels["probabilities"])

    def functional(self, of: Callable[[Array], Array] | Mapping[str, float] | Sequence[float]) -> Posterior:
        """Return the posterior of a function of the probabilities.

        Parameters
        ----------
        of : callable, mapping or sequence
            A function that takes probabilities (..., cell) and returns numbers (...); or a score for each cell, by
            label or in order, of which the mean is taken.

        Returns
        -------
        Posterior
            With draws of ``functional``.
        """
        shares = self.draws["probabilities"]
        if callable(of):
            return Posterior({"functional": of(np.asarray(shares))}, self.method)
        if isinstance(of, Mapping):
            if set(of) != set(self.cells):
                raise ValueError(f"of must have a score for each cell, {list(self.cells)}; got {list(of)}")
            of = [of[cell] for cell in self.cells]
        scores = finite_array("of", of, ndim=1)
        if scores.shape != shares.shape[2:]:
            raise ValueError(f"of must have a score for each of {shares.shape[2]} cells, got {scores.size}")
        return Posterior({"functional": shares @ scores}, self.method)

    def population_quantile(self, q: float) -> Posterior:
        """Return the posterior of a quantile of the records, and of the ends of the bin that it lies in.

        The histogram tells the bin. Where in it the quantile lies follows only if records are spread evenly over each
        bin, which crowded records and whole numbers are not: ``lowest`` and ``highest`` assume nothing, and one of them
        is infinite where the quantile lies beyond the bins.

        Parameters
        ----------
        q : float
            In (0, 1), such as 0.5 for the median.

        Returns
        -------
        Posterior
            With draws of ``lowest``, ``quantile`` and ``highest``; beyond the bins ``quantile`` is the outermost edge.
        """
        if not self.edges:
            raise ValueError("population_quantile needs bins of numbers: the cells of this histogram are labels")
        share, edges = fraction("q", q), np.asarray(self.edges)
        reached = np.cumsum(self.draws["probabilities"], axis=-1)[..., :-1]  # the share below each edge
        cell, outer = (reached <= share).sum(axis=-1), np.r_[-np.inf, edges, np.inf]
        after = np.clip(cell, 1, edges.size - 1)[..., None]
        below, above = (np.take_along_axis(reached, after - step, axis=-1)[..., 0] for step in (1, 0))
        within = np.clip((share - below) / np.maximum(above - below, np.finfo(float).tiny), 0.0, 1.0)
        start, end = edges[after[..., 0] - 1], edges[after[..., 0]]
        even = start + within * (end - start)
        return Posterior({"lowest": outer[cell], "quantile": even, "highest": outer[cell + 1]}, self.method)


@dataclass(frozen=True, eq=False, repr=False)
class MeanPosterior(HistogramPosterior):
    """The posterior of the mean and standard deviation of clipped records, and of their histogram.

    ``mean`` and ``sd`` are those of the population after clipping; what clipping took is bounded by :meth:`unclipped`.
    What :func:`infer` returns for :func:`release_mean`. Explained in
    :doc:`/book/exponential-families/a-mean-that-assumes-little`.

    Parameters
    ----------
    draws, method, labels, notes, edges
        As in :class:`HistogramPosterior`; the draws hold ``mean``, ``sd`` and ``probabilities``.

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook import expfam
    >>> rng = np.random.default_rng(1)
    >>> noisy = expfam.release_mean(rng.lognormal(3, 1, 2000), (0, 100), epsilon=1.0, rng=rng)
    >>> posterior = expfam.infer(noisy, rng=rng)
    >>> print(posterior.interval(0.95, "mean").round(), posterior.clipped().mean("above").round(2))
    [28. 30.] 0.07
    >>> print(posterior.unclipped((0, 1000)).round())  # if no income is above 1000
    [ 28. 124.]
    """

    def clipped(self) -> Posterior:
        """Return the posterior of the shares of records below and above the bounds."""
        shares = self.draws["probabilities"]
        return Posterior({"below": shares[..., 0], "above": shares[..., -1]}, self.method)

    def unclipped(self, tail: tuple[float, float], level: float = 0.95) -> Array:
        """Return an interval for the mean of records before clipping, under an assumption on the tails.

        Clipping takes away the share above the bounds times their mean distance from it, and adds the same below.
        The release knows the shares; the distances are the analyst's to bound.

        Parameters
        ----------
        tail : (low, high)
            The least that the mean of records below the bounds, and the most that the mean of records above them may
            be: for example the least and the largest value that a record can have at all.
        level : float, default 0.95
            The nominal probability that the interval holds where the assumption does. Mean and shares are drawn as
            independent, with half a record of prior in each cell; where many bins are empty and noise is large, the
            share beyond the bounds is understated, and an interval at 0.95 was seen to hold in 0.84 of releases.

        Returns
        -------
        ndarray
            Lower and upper end; any mean between them agrees with the assumption.
        """
        (low, high), (first, last) = interval("tail", tail), (self.edges[0], self.edges[-1])
        if low > first or high < last:
            raise ValueError(f"tail must reach beyond the bounds, ({first:g}, {last:g}), got ({low:g}, {high:g})")
        outer = (1 - fraction("level", level)) / 2
        mean, shares = self.draws["mean"], self.draws["probabilities"]
        least, most = mean - shares[..., 0] * (first - low), mean + shares[..., -1] * (high - last)
        return np.array([np.quantile(least, outer), np.quantile(most, 1 - outer)])
