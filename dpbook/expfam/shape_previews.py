"""What a mean or a histogram that assumes no family would be worth, and what a wanted precision of it costs.

Everything is computed from public numbers. The section on how much epsilon one needs explains it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from dpbook._arrays import Array
from dpbook._labels import component_labels
from dpbook._validation import finite_array, finite_number, integer, interval, one_of, positive, privacy_loss
from dpbook.expfam.previews import component_of
from dpbook.expfam.simulated import mean_widths, share_widths
from dpbook.expfam.table_counts import shared_out
from dpbook.expfam.weights import weights_for
from dpbook.preview import EpsilonPlan, Preview
from dpbook.priors import Dirichlet
from dpbook.sensitivity import histogram, mean_and_shape
from dpbook.widths import NORMAL, expected, scale_for, solved

__all__ = ["preview_histogram", "preview_mean", "solve_epsilon_histogram", "solve_epsilon_mean"]

_SPREAD = 0.2  # of records whose standard deviation is not stated, in widths of the bounds
_EVERY = 3  # of the totals that infer's default prior mixes, these are enough for a preview


def preview_mean(
    bounds: tuple[float, float],
    *,
    n: int,
    epsilon: float,
    mean: float | None = None,
    sd: float | None = None,
    shape: float = 0.1,
    mechanism: str = "laplace",
    delta: float = 0.0,
) -> Preview:
    """Say, before anything is spent, how precise the mean of :func:`release_mean` would be.

    Explained in :doc:`/book/exponential-families/how-much-epsilon`.

    Parameters
    ----------
    bounds, epsilon, shape, mechanism, delta
        As in :func:`release_mean`.
    n : int
        The public number of records, at least three.
    mean, sd : float, optional
        Guesses at the mean and standard deviation of clipped records, made without the data; by default the middle of
        the bounds, and a fifth of their width.

    Returns
    -------
    Preview
        Of ``mean`` and ``sd``, in the data's units. ``width`` is the median width of the 95 % interval over simulated
        releases, and eight of ten will be between ``width_low`` and ``width_high``.

    Examples
    --------
    >>> from dpbook import expfam
    >>> look = expfam.preview_mean((0, 200), n=2000, epsilon=1.0, mean=30, sd=25)
    >>> print(look.summary()["width"].round(1).to_dict())
    {'mean': 2.3, 'sd': 3.5}
    """
    plan = _Mean.of(bounds, n, mean, sd, shape, mechanism)
    epsilon, delta = privacy_loss(epsilon, delta, mechanism)
    scale = scale_for(plan.sensitivity, epsilon, delta, mechanism)
    each = math.sqrt(2 if plan.laplace else 1) * scale
    slope = 1 / max(plan.sd, 1e-9)
    of_mean = plan.half * each / n
    of_sd = plan.half * slope * each / n * math.hypot(1 / (2 * plan.squares), plan.mean)
    width, low, high = expected(plan.widths(scale))
    sampling = plan.half * plan.sd / math.sqrt(n) * np.array([1.0, 1 / math.sqrt(2)])
    noise = np.array([of_mean, of_sd])
    return Preview(
        ("mean", "sd"),
        plan.sensitivity,
        scale,
        noise_sd=noise,
        sampling_sd=sampling,
        posterior_sd=width / NORMAL,
        nonprivate_sd=sampling,
        break_even_n=n * (noise / sampling) ** 2,
        width=width,
        width_low=low,
        width_high=high,
    )


def solve_epsilon_mean(
    width: float,
    bounds: tuple[float, float],
    *,
    n: int,
    mean: float | None = None,
    sd: float | None = None,
    shape: float = 0.1,
    mechanism: str = "laplace",
    delta: float = 0.0,
) -> EpsilonPlan:
    """Return the privacy loss at which the mean's 95 % interval is expected to have a wanted width.

    The inverse of :func:`preview_mean`. Explained in :doc:`/book/exponential-families/how-much-epsilon`.

    Parameters
    ----------
    width : float
        Of the mean's 95 % interval, in the data's units.
    bounds, n, mean, sd, shape, mechanism, delta
        As in :func:`preview_mean`.

    Returns
    -------
    EpsilonPlan
        With ``epsilon``, and the range in which nine of ten realised widths will be.

    Examples
    --------
    >>> from dpbook import expfam
    >>> plan = expfam.solve_epsilon_mean(4.0, (0, 200), n=2000, mean=30, sd=25)
    >>> print(f"{plan.epsilon:.1f}")
    0.2
    """
    plan = _Mean.of(bounds, n, mean, sd, shape, mechanism)
    _, delta = privacy_loss(1.0, delta, mechanism)
    return solved(
        width,
        lambda scale: plan.widths(scale)[:, 0],
        sampling=plan.sd * math.sqrt(n),
        sensitivity=plan.sensitivity,
        delta=delta,
        mechanism=mechanism,
    )


class _Mean(NamedTuple):
    """A mean to be released, of records in [-1, 1], half as wide as the bounds: how they are guessed to lie."""

    half: float
    n: int
    mean: float
    sd: float
    sensitivity: float
    squares: float  # the weight of the squares
    laplace: bool

    @classmethod
    def of(cls, bounds: Any, n: Any, mean: Any, sd: Any, shape: Any, mechanism: str) -> _Mean:
        """Check all arguments and return the plan."""
        low, high = interval("bounds", bounds)
        half, n = (high - low) / 2, integer("n", n, least=3)
        one_of("mechanism", mechanism, ("laplace", "gaussian"))
        centre = (finite_number("mean", (low + high) / 2 if mean is None else mean) - (low + high) / 2) / half
        if abs(centre) >= 1:
            raise ValueError(f"mean must lie inside the bounds, ({low:g}, {high:g}), got {mean}")
        spread = 2 * _SPREAD if sd is None else positive("sd", sd) / half
        most = math.sqrt(1 - centre**2)
        if spread > most:
            raise ValueError(f"sd must be at most {most * half:g}, with this mean and these bounds; got {sd}")
        squares, cells = weights_for(shape, mechanism)
        norm = 1 if mechanism == "laplace" else 2
        return cls(half, n, centre, spread, mean_and_shape(squares=squares, cells=cells, norm=norm), squares, norm == 1)

    def widths(self, scale: float) -> Array:
        """Return the widths (release, 2) of intervals of mean and sd, over simulated releases."""
        scales = (scale, scale / self.squares)
        return self.half * mean_widths(self.mean, self.sd, self.n, scales, self.laplace)


def preview_histogram(
    probabilities: Any,
    *,
    n: int,
    epsilon: float,
    mechanism: str = "laplace",
    delta: float = 0.0,
    prior: Dirichlet | None = None,
) -> Preview:
    """Say, before anything is spent, how precise the shares of :func:`release_histogram` would be.

    Explained in :doc:`/book/exponential-families/how-much-epsilon`.

    Parameters
    ----------
    probabilities : mapping or sequence
        A guess at the share of every cell, made without the data, by label or in order; they add up to 1.
    n : int
        The public number of records.
    epsilon, mechanism, delta
        As in :func:`release_histogram`.
    prior : Dirichlet, optional
        Of the shares; by default a total of pseudo-counts, itself unknown, shared out evenly, as in :func:`infer`.

    Returns
    -------
    Preview
        Of every cell's share. ``width`` is the median width of the 95 % interval over simulated releases, and eight of
        ten will be between ``width_low`` and ``width_high``.

    Examples
    --------
    >>> from dpbook import expfam
    >>> look = expfam.preview_histogram({"yes": 0.3, "no": 0.6, "other": 0.1}, n=1000, epsilon=0.5)
    >>> print(look.summary()["width"].round(2).to_dict())
    {'yes': 0.06, 'no': 0.07, 'other': 0.04}
    """
    plan = _Cells.of(probabilities, n, mechanism, prior)
    epsilon, delta = privacy_loss(epsilon, delta, mechanism)
    scale = scale_for(plan.sensitivity, epsilon, delta, mechanism)
    noise = math.sqrt(2 if plan.laplace else 1) * scale / n
    sampling = np.sqrt(plan.shares * (1 - plan.shares) / n)
    width, low, high = expected(plan.widths(scale))
    return Preview(
        plan.names,
        plan.sensitivity,
        scale,
        noise_sd=np.full(len(plan.names), noise),
        sampling_sd=sampling,
        posterior_sd=width / NORMAL,
        nonprivate_sd=sampling,
        break_even_n=n * (noise / sampling) ** 2,
        width=width,
        width_low=low,
        width_high=high,
    )


def solve_epsilon_histogram(
    width: float,
    probabilities: Any,
    *,
    n: int,
    of: str | int | None = None,
    mechanism: str = "laplace",
    delta: float = 0.0,
    prior: Dirichlet | None = None,
) -> EpsilonPlan:
    """Return the privacy loss at which the 95 % interval of a cell's share is expected to have a wanted width.

    The inverse of :func:`preview_histogram`. Explained in :doc:`/book/exponential-families/how-much-epsilon`.

    Parameters
    ----------
    width : float
        Of the 95 % interval of a share.
    probabilities, n, mechanism, delta, prior
        As in :func:`preview_histogram`.
    of : str or int, optional
        The cell, by label or number; by default the one whose share is nearest to a half, which has the widest
        interval.

    Returns
    -------
    EpsilonPlan
        With ``epsilon``, and the range in which nine of ten realised widths will be.

    Examples
    --------
    >>> from dpbook import expfam
    >>> plan = expfam.solve_epsilon_histogram(0.07, {"yes": 0.3, "no": 0.6, "other": 0.1}, n=1000)
    >>> print(f"{plan.epsilon:.2f}")
    0.26
    """
    plan = _Cells.of(probabilities, n, mechanism, prior)
    _, delta = privacy_loss(1.0, delta, mechanism)
    which = int(np.argmin(np.abs(plan.shares - 0.5))) if of is None else component_of(plan.names, of)
    share = float(plan.shares[which])
    return solved(
        width,
        lambda scale: plan.widths(scale)[:, which],
        sampling=math.sqrt(n * share * (1 - share)),
        sensitivity=plan.sensitivity,
        delta=delta,
        mechanism=mechanism,
    )


class _Cells(NamedTuple):
    """A histogram to be released: its cells, their guessed shares, and the Dirichlet priors that are mixed."""

    names: tuple[str, ...]
    shares: Array
    n: int
    alphas: Array
    weights: Array
    sensitivity: float
    laplace: bool

    @classmethod
    def of(cls, probabilities: Any, n: Any, mechanism: str, prior: Any) -> _Cells:
        """Check all arguments and return the plan."""
        labels = tuple(map(str, probabilities)) if isinstance(probabilities, Mapping) else ()
        given = list(probabilities.values()) if isinstance(probabilities, Mapping) else probabilities
        shares = finite_array("probabilities", given, ndim=1)
        if shares.size < 2 or (shares <= 0).any() or abs(shares.sum() - 1) > 1e-6:
            raise ValueError(f"probabilities must be two or more, greater than 0, and add up to 1; got {given!r:.80}")
        if prior is not None and (not isinstance(prior, Dirichlet) or np.size(prior.alpha) != shares.size):
            raise TypeError(f"prior must be None or a Dirichlet with {shares.size} pseudo-counts; got {prior!r}")
        alphas, weights = (each[::_EVERY] for each in shared_out(shares.size))
        if prior is not None:
            alphas, weights = np.asarray(prior.alpha, dtype=float)[None], np.ones(1)
        names = labels or tuple(component_labels("probabilities", (shares.size,)))
        norm = 1 if one_of("mechanism", mechanism, ("laplace", "gaussian")) == "laplace" else 2
        return cls(names, shares, integer("n", n, least=1), alphas, weights, histogram(norm=norm), norm == 1)

    def widths(self, scale: float) -> Array:
        """Return the widths (release, k) of intervals over simulated releases."""
        return share_widths(self.shares, self.alphas, self.weights, self.n, scale, self.laplace)
