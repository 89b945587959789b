"""Posteriors of means and of histograms, with what can be asked of them: functionals, quantiles, what clipping took.

The section on a mean that assumes little explains them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from dpbook._arrays import Array
from dpbook._validation import finite_array, fraction, interval
from dpbook.doubts import Doubt, ManyClipped, speak
from dpbook.posterior import Posterior

__all__ = ["HistogramPosterior", "MeanPosterior"]

_BEYOND = 0.025  # probability that a quantile lies beyond the bins, from which on an end of its interval is made up


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
    own : array (chain, draw, cell), optional
        Draws of the shares of which each is inferred from its own noisy count.

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
    >>> print(posterior.alone().mean("probabilities")[1].round(1))  # from the noisy count of that cell only
    0.6
    """

    edges: Sequence[float] = field(default=(), kw_only=True)
    own: Array | None = field(default=None, kw_only=True)

    def alone(self) -> Posterior:
        """Return the posterior of every share given its own noisy count, and no other.

        Its intervals hold for each cell by itself, whatever the others are like: nothing is borrowed from them, or from
        the total. So the shares do not add up to 1, and intervals are wider where all cells together say more. A share
        that is exactly 0 lies below every interval.

        Returns
        -------
        Posterior
            With draws of ``probabilities``, under Jeffreys's prior of each.
        """
        if self.own is None:
            raise ValueError("alone needs draws of each share by itself, which infer gives")
        return Posterior({"probabilities": self.own}, "alone", labels=dict(self.labels))

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

    def population_quantile(self, q: float, tail: tuple[float, float] | None = None) -> Posterior:
        """Return the posterior of a quantile of the records, and of the ends of the bin that it lies in.

        The histogram tells the bin. Where in it the quantile lies follows only if records are spread evenly over each
        bin, which crowded records and whole numbers are not: ``lowest`` and ``highest`` assume nothing. Beyond the bins
        all three are the outermost edge, or the ends that you state; without such ends, the posterior doubts itself
        where the quantile may well lie out there.

        Parameters
        ----------
        q : float
            In (0, 1), such as 0.5 for the median.
        tail : (low, high), optional
            The least and the largest value that a record can have at all.

        Returns
        -------
        Posterior
            With draws of ``lowest``, ``quantile`` and ``highest``.
        """
        if not self.edges:
            raise ValueError("population_quantile needs bins of numbers: the cells of this histogram are labels")
        share, edges = fraction("q", q), np.asarray(self.edges)
        low, high = (edges[0], edges[-1]) if tail is None else _reaching(tail, self.edges)
        shares = self.draws["probabilities"]
        reached, outer = np.cumsum(shares, axis=-1)[..., :-1], np.r_[low, edges, high]  # the share below each edge
        cell = (reached <= share).sum(axis=-1)
        below = np.concatenate([np.zeros_like(reached[..., :1]), reached], axis=-1)
        before, own = (np.take_along_axis(each, cell[..., None], axis=-1)[..., 0] for each in (below, shares))
        within = np.clip((share - before) / np.maximum(own, np.finfo(float).tiny), 0.0, 1.0)
        start, end = outer[cell], outer[cell + 1]
        doubts = [] if tail is not None else _beyond_the_bins(cell, edges, share)
        drawn = {"lowest": start, "quantile": start + within * (end - start), "highest": end}
        return speak([Posterior(drawn, self.method)], [doubts], chains=False)[0]


def _reaching(tail: tuple[float, float], edges: Sequence[float]) -> tuple[float, float]:
    """Return the ends of what is possible; raise unless they hold the bins."""
    low, high = interval("tail", tail)
    if low > edges[0] or high < edges[-1]:
        ends = f"({edges[0]:g}, {edges[-1]:g})"
        raise ValueError(f"tail must reach beyond the bounds, {ends}, got ({low:g}, {high:g})")
    return low, high


def _beyond_the_bins(cell: Array, edges: Array, share: float) -> list[Doubt]:
    """Return the doubt that a quantile lies below or above the bins, where that has a probability that matters."""
    sides = {f"below {edges[0]:g}": np.mean(cell == 0), f"above {edges[-1]:g}": np.mean(cell == edges.size)}
    likely = {side: float(p) for side, p in sides.items() if p > _BEYOND}
    if not likely:
        return []
    where = " and ".join(f"{side} with probability {p:.2g}" for side, p in likely.items())
    cause = f"the quantile at {share:g} may lie beyond the bins, {where}, and is taken as the outermost edge there"
    return [ManyClipped(cause, "release bins that reach further, or state tail=", weight=max(likely.values()))]


@dataclass(frozen=True, eq=False, repr=False)
class MeanPosterior(HistogramPosterior):
    """The posterior of the mean and standard deviation of clipped records, and of their histogram.

    ``mean`` and ``sd`` are those of the population after clipping; what clipping took is bounded by :meth:`unclipped`.
    What :func:`infer` returns for :func:`release_mean`. Explained in
    :doc:`/book/exponential-families/a-mean-that-assumes-little`.

    Parameters
    ----------
    draws, method, labels, notes, edges, own
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
    [ 28. 120.]
    """

    def clipped(self) -> Posterior:
        """Return the posterior of the shares of records below and above the bounds, each from its own count.

        What the other cells say about them, through the total, is left out: it rests on the prior of the table.
        """
        shares = self.alone().draws["probabilities"]
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
            The probability that each end holds where the assumption does. A sample with more records above the bounds
            has a larger mean, too, so that the errors of mean and share add up: ends are sums of quantiles.

        Returns
        -------
        ndarray
            Lower and upper end; any mean between them agrees with the assumption.
        """
        (low, high), (first, last) = _reaching(tail, self.edges), (self.edges[0], self.edges[-1])
        outer = (1 - fraction("level", level)) / 2
        ends, shares = self.quantile((outer, 1 - outer), "mean"), self.clipped().quantile(1 - outer)
        return np.array([ends[0] - shares["below"] * (first - low), ends[1] + shares["above"] * (high - last)])
