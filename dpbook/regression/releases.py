"""The curator's side: noisy sufficient statistics of a linear regression, and a preview of what they would be worth.

Every release is private for replace-one neighbours, n public: a record is one row, covariates and response together.
Chapter 4 explains them.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from dpbook import noise
from dpbook._arrays import Array
from dpbook._validation import column_labels, flag, integer, privacy_loss, seeded_generator
from dpbook.budget import PrivacyBudget, charge
from dpbook.mechanisms import gaussian_scale
from dpbook.priors import NormalInverseGamma, NormalInverseWishart
from dpbook.records import as_chunks, exact_sum, grid_unit, side_by_side
from dpbook.regression.coordinates import Coordinates, column_bounds, covariate_bounds
from dpbook.regression.moments import from_normal, record_moments
from dpbook.regression.problem import Layout
from dpbook.release import Release
from dpbook.sensitivity import fourth_moments, rounded, second_moments

__all__ = ["MODEL", "Preview", "coordinates_of", "preview", "release"]

MODEL = "linear regression"
_UNIT = grid_unit(1.0)  # in coordinates no statistic exceeds 1


def release(
    X: Any,
    y: Any,
    *,
    x_bounds: Any = None,
    y_bounds: tuple[float, float] | None = None,
    epsilon: float,
    intercept: bool = True,
    moments: bool = False,
    mechanism: str = "laplace",
    delta: float = 0.0,
    rng: np.random.Generator | None = None,
    budget: PrivacyBudget | None = None,
) -> Release:
    """Release the sufficient statistics of a linear regression with noise.

    epsilon-DP (Laplace) or (epsilon, delta)-DP (Gaussian) for replace-one neighbours, n public; a record is a row of X
    with its y. Columns are clipped to their bounds, then centred and scaled to [-1, 1] (without an intercept: scaled
    only), so that the noise does not depend on the units, and the noise fits the exact joint sensitivity of the sums.
    Infinite values are clipped like all others beyond the bounds. A missing value (NaN, None, masked) or text raises
    an error, which is not private: only the curator may see it. Nothing else about the values raises.

    Parameters
    ----------
    X : array, table, iterator of chunks, or Dask collection
        The covariates, one column each, without a column of ones; one-dimensional data are one covariate.
    y : array, Series, iterator of chunks, Dask collection, str or int
        The response; or the name of the column of the tables X that holds it, or its position in the arrays X (-1 for
        the last), so that both travel together. A separate y is paired with X by position alone, row by row; an index
        plays no part (:func:`~dpbook.records.side_by_side`), and unequal lengths raise. Dask collections are paired
        partition by partition, whose lengths must agree.
    x_bounds : (low, high), list of (low, high) or mapping of str to (low, high)
        Public bounds of the covariates: one pair for all, a list with a tuple for each, or a mapping from the names of
        X's columns. They come from what is known without the data.
    y_bounds : (low, high)
        Public bounds of the response.
    epsilon : float
        The privacy loss.
    intercept : bool, default True
        Whether the regression has an intercept; then the sums of the columns themselves are released too.
    moments : bool, default False
        Whether to release the third and fourth moments of the covariates as well, in the same release, for
        ``infer(method="gibbs-noisy")``.
    mechanism : {"laplace", "gaussian"}
        The noise.
    delta : float, default 0.0
        0 for Laplace noise, greater than 0 for Gaussian noise.
    rng : numpy.random.Generator, optional
        Seeded teaching noise; None, the default, makes a real release.
    budget : PrivacyBudget, optional
        Charged before the noise is drawn.

    Returns
    -------
    Release
        With ``.values["sums"]``, the noisy sums of the products of (1, x, y) in the order of
        :class:`~dpbook.regression.problem.Layout`, in coordinates; n itself is exact and not among them. With
        ``moments=True`` also ``.values["moments"]``.

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook import regression
    >>> rng = np.random.default_rng(1)
    >>> years = rng.uniform(0, 20, size=1000)
    >>> wage = 5 + years + rng.normal(size=1000)
    >>> noisy = regression.release(years, wage, x_bounds=(0, 20), y_bounds=(0, 30), epsilon=1.0, rng=rng)
    >>> noisy["sums"].round(1)  # of x, y, x², xy, y² in [-1, 1]
    array([ -8.9,  -1.6, 336.4, 226.6, 155.3])
    >>> print(f"{noisy.sensitivity['sums']:.3f}")
    5.333

    Explained in :doc:`/book/regression/private-least-squares`.
    """
    low, high = column_bounds(x_bounds := covariate_bounds(x_bounds), y_bounds)
    intercept, moments = flag("intercept", intercept), flag("moments", moments)
    epsilon, delta = privacy_loss(epsilon, delta, mechanism)
    rng = seeded_generator(rng)
    source = join(X, y)
    box = _box_of(x_bounds, (float(low[-1]), float(high[-1])), source.labels, intercept)
    statistics = functools.partial(_statistics, response=source.response, box=box, moments=moments)
    total = exact_sum(source.data, statistics, unit=_UNIT, columns=source.columns, name=source.name)
    layout = _layout_of(len(total.totals), intercept, moments)
    inside = box.coordinates(layout.d)
    bound = _sensitivity(inside, moments, 1 if mechanism == "laplace" else 2, len(total.totals))
    scale = 0.0
    if mechanism == "laplace":
        noise.require_laplace_on_sum(_UNIT, bound, epsilon, rng)
    else:  # without an intercept nothing is centred: narrow bounds may span few steps of the grid
        size = len(total.totals)
        scale = gaussian_scale(sensitivity=bound, epsilon=epsilon, delta=delta, unit=_UNIT, statistics=size)
        noise.require_gaussian_on_sum(_UNIT, scale)
    charge(budget, epsilon, delta, label=MODEL)
    if mechanism == "laplace":
        noisy, scale = noise.add_laplace_to_sum(total, bound, epsilon, rng)
    else:
        noisy = noise.add_gaussian_to_sum(total, scale, rng)
    values = {"sums": noisy[: layout.size]} | ({"moments": noisy[layout.size :]} if moments else {})
    return Release(
        values=values,
        model=MODEL,
        mechanism=mechanism,
        scale=dict.fromkeys(values, scale),
        sensitivity=dict.fromkeys(values, bound),
        epsilon=epsilon,
        delta=delta,
        n=total.n,
        bounds=named_bounds(inside),
        settings={"d": layout.d, "intercept": intercept} | _named(source.labels),
        float_safe=rng is None,
    )


def coordinates_of(release: Release) -> Coordinates:
    """Return the map between a release's coordinates and the data's units.

    Parameters
    ----------
    release : Release
        From :func:`release`.

    Returns
    -------
    Coordinates
        Made of the release's public bounds.

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook import regression
    >>> noisy = regression.release([1.0, 2.0], [3.0, 4.0], x_bounds=(0, 10), y_bounds=(0, 4), epsilon=1.0,
    ...                            rng=np.random.default_rng(0))
    >>> regression.releases.coordinates_of(noisy).centre
    array([5., 2.])

    Explained in :doc:`/book/regression/private-least-squares`.
    """
    lower, upper = np.array([release.bounds[name] for name in _column_names(int(release.settings["d"]))]).T
    return Coordinates(lower, upper, bool(release.settings["intercept"]))


@dataclass(frozen=True)
class Preview:
    """What a release of a regression would be worth, from public numbers, before anything is spent.

    Attributes
    ----------
    sensitivity, noise_scale : float
        Of the sums, in coordinates.
    posterior_sd : tuple of float
        The expected posterior standard deviation of each coefficient, in the data's units, noise accounted for.
    nonprivate_sd : tuple of float
        The same without privacy.
    break_even_n : float
        About the n at which noise and sampling contribute alike to the slopes' variance; beyond it, privacy is the
        smaller worry.

    Examples
    --------
    >>> from dpbook import regression
    >>> look = regression.preview(n=1000, x_bounds=(0, 20), y_bounds=(0, 30), epsilon=1.0)
    >>> print(f"{look.noise_scale:.2f}")
    5.33

    Explained in :doc:`/book/regression/calibration-utility-cost`.
    """

    sensitivity: float
    noise_scale: float
    posterior_sd: tuple[float, ...]
    nonprivate_sd: tuple[float, ...]
    break_even_n: float


def preview(
    *,
    n: int,
    x_bounds: Any,
    y_bounds: tuple[float, float],
    epsilon: float,
    d: int | None = None,
    intercept: bool = True,
    moments: bool = False,
    mechanism: str = "laplace",
    delta: float = 0.0,
    prior: NormalInverseGamma | None = None,
    covariates: NormalInverseWishart | None = None,
) -> Preview:
    """Say, before anything is spent, how noisy a release would be and how much it would teach.

    A normal approximation at the centre of the priors: exact in the limit of many records, good to some ten per cent
    where the posterior is not dominated by noise. Where the noise hides the covariates' spread the posterior is
    heavy-tailed, and only :func:`infer` knows it.

    Parameters
    ----------
    n : int
        The public number of records.
    x_bounds, y_bounds, epsilon, intercept, moments, mechanism, delta
        As in :func:`release`.
    d : int, optional
        The number of covariates where ``x_bounds`` are one pair for all; by default 1.
    prior : NormalInverseGamma, optional
        The analyst's prior; by default a flat line through the middle of ``y_bounds``, worth a thousandth of a record,
        with an error sd of a quarter of their width.
    covariates : NormalInverseWishart, optional
        The prior of the covariates; by default the weak one from the bounds.

    Returns
    -------
    Preview
        The noise scale and the standard deviations.

    Examples
    --------
    >>> from dpbook import regression
    >>> look = regression.preview(n=61_395, x_bounds=(0, 20), y_bounds=(0, 30), epsilon=1.0)
    >>> [f"{sd:.4f}" for sd in (look.posterior_sd[1], look.nonprivate_sd[1])]  # of the slope
    ['0.0140', '0.0135']

    Explained in :doc:`/book/regression/calibration-utility-cost`.
    """
    n = integer("n", n, least=1)
    intercept, moments = flag("intercept", intercept), flag("moments", moments)
    epsilon, delta = privacy_loss(epsilon, delta, mechanism)
    inside = Coordinates(*column_bounds(x_bounds, y_bounds, None if d is None else integer("d", d, least=1)), intercept)
    layout = Layout(inside.d, intercept)
    count = layout.size + (len(layout.higher) if moments else 0)
    bound = _sensitivity(inside, moments, 1 if mechanism == "laplace" else 2, count)
    if mechanism == "laplace":
        scale = bound / epsilon
    else:
        scale = gaussian_scale(sensitivity=bound, epsilon=epsilon, delta=delta)
    variance = (2 if mechanism == "laplace" else 1) * scale**2
    mapped = inside.prior_in(_flat_prior(inside) if prior is None else _required(prior))
    beliefs = inside.covariates_in(covariates)
    noisy, exact = (_coefficient_cov(layout, n, added, mapped, beliefs) for added in (variance, 0.0))
    out = inside.theta_out(np.eye(layout.regressors)) - inside.theta_out(np.zeros(layout.regressors))  # the linear part
    sds = [np.sqrt(np.diag(out.T @ cov @ out)) for cov in (noisy, exact)]
    slopes = slice(int(intercept), None)
    excess = float(np.mean(np.diag(noisy)[slopes] / np.diag(exact)[slopes])) - 1
    return Preview(
        sensitivity=bound,
        noise_scale=scale,
        posterior_sd=tuple(sds[0].tolist()),
        nonprivate_sd=tuple(sds[1].tolist()),
        break_even_n=n * max(excess, 0.0),
    )


def _coefficient_cov(
    layout: Layout, n: int, noise_variance: float, prior: NormalInverseGamma, covariates: NormalInverseWishart
) -> Array:
    """Return the covariance of theta after a release, by the information of a normal with mean n mu and cov n Σ + D.

    The parameters are theta, sigma2, and the mean and covariance of x; the priors enter through their curvature.
    """
    theta, precision = prior._sized(layout.regressors, "prior")
    centre, scale = covariates._sized(layout.d, "covariates")
    sigma2 = prior.rate / (prior.shape + 1)
    cov_x = scale / (covariates.dof + layout.d + 1)
    pairs = np.triu_indices(layout.d)
    at = np.concatenate([theta, [sigma2], centre, cov_x[pairs]])

    def mean_of(parameters: Array) -> Array:
        q = layout.regressors
        spread = np.zeros((layout.d, layout.d))
        spread[pairs] = spread[pairs[1], pairs[0]] = parameters[q + 1 + layout.d :]
        _, second = record_moments(parameters[:q], parameters[q], parameters[q + 1 : q + 1 + layout.d], spread, layout)
        return layout.vector(second)

    # mu is a polynomial of low degree: central differences are exact to rounding.
    steps = 1e-4 * np.eye(at.size)
    slope = np.stack([(mean_of(at + step) - mean_of(at - step)) / 2e-4 for step in steps], axis=1)
    _, cov = from_normal(*record_moments(theta, np.asarray(sigma2), centre, cov_x, layout), layout)
    total = n * cov + (noise_variance + 1e-9) * np.eye(layout.size)
    q = layout.regressors
    information = n**2 * slope.T @ np.linalg.solve(total, slope)
    information[:q, :q] += precision / sigma2
    information[q, q] += prior.shape / sigma2**2
    inverse = np.linalg.inv(cov_x)
    information[q + 1 : q + 1 + layout.d, q + 1 : q + 1 + layout.d] += covariates.strength * inverse
    double = inverse[pairs[0]][:, pairs[0]] * inverse[pairs[1]][:, pairs[1]]
    double += inverse[pairs[0]][:, pairs[1]] * inverse[pairs[1]][:, pairs[0]]
    share = np.where(pairs[0] == pairs[1], 1.0, 2.0)
    information[q + 1 + layout.d :, q + 1 + layout.d :] += covariates.dof / 4 * double * share * share[:, None]
    return np.asarray(np.linalg.inv(information)[:q, :q])


def _flat_prior(inside: Coordinates) -> NormalInverseGamma:
    """Return a prior worth a thousandth of a record, in the data's units."""
    width = float(inside.unit[-1])
    q = inside.d + int(inside.intercept)
    mean = np.zeros(q)
    mean[0] = inside.centre[-1] if inside.intercept else 0.0
    back = inside._slopes()
    return NormalInverseGamma(mean, 1e-3 * back.T @ back, 2.0, 3 * (width / 2) ** 2)


def _required(prior: Any) -> NormalInverseGamma:
    if not isinstance(prior, NormalInverseGamma):
        raise TypeError(f"prior must be a regression.NormalInverseGamma, got {prior!r}")
    return prior


class _Box(NamedTuple):
    """Public bounds, checked, while the number of covariates is not yet known."""

    x_bounds: Any
    y_bounds: tuple[float, float]
    labels: list[Any] | None
    intercept: bool

    def coordinates(self, d: int) -> Coordinates:
        return Coordinates(*column_bounds(self.x_bounds, self.y_bounds, d, self.labels), self.intercept)


def _box_of(x_bounds: Any, y_bounds: tuple[float, float], labels: list[Any] | None, intercept: bool) -> _Box:
    """Return the bounds for covariates of these names; a mapping must name them all, and needs them to have names."""
    if isinstance(x_bounds, dict):
        if labels is None:
            raise ValueError("x_bounds can be a mapping only where the columns of X have names")
        column_bounds(x_bounds, y_bounds, None, labels)
    return _Box(x_bounds, y_bounds, labels, intercept)


def _statistics(rows: Array, *, response: int, box: _Box, moments: bool) -> Array:
    """Return the unique statistics of each record, clipped and in coordinates."""
    rows = _response_last(rows, response)
    if rows.shape[1] < 2:
        raise ValueError("X must have at least one covariate beside the response")
    layout, intercept = Layout(rows.shape[1] - 1, box.intercept), box.intercept
    inside = box.coordinates(layout.d)
    u = inside.records(rows)
    x = u[:, :-1]
    if intercept:
        u = np.concatenate([np.ones((len(u), 1)), u], axis=1)
    second = u[:, layout.rows] * u[:, layout.columns]
    if not moments:
        return np.asarray(second)
    higher = np.stack([np.prod(x[:, list(factors)], axis=1) for factors in layout.higher], axis=1)
    return np.concatenate([second, higher], axis=1)


def _sensitivity(inside: Coordinates, moments: bool, norm: int, statistics: int) -> float:
    """Return the joint sensitivity of the rounded sums, in coordinates."""
    lower, upper = (tuple(side.tolist()) for side in inside.box)
    return rounded(_unrounded(lower, upper, inside.intercept, moments, norm), statistics, _UNIT, norm)


@functools.lru_cache(maxsize=256)
def _unrounded(lower: tuple[float, ...], upper: tuple[float, ...], intercept: bool, moments: bool, norm: int) -> float:
    """Remember sensitivities: thousands of releases, one a neighbourhood, share their bounds."""
    return (fourth_moments if moments else second_moments)(lower, upper, intercept=intercept, norm=norm)


def _layout_of(count: int, intercept: bool, moments: bool) -> Layout:
    """Return the layout whose records have ``count`` statistics: d is what the columns of the data made it."""
    for d in itertools.count(1):
        size = Layout(d, intercept).size + moments * (math.comb(d + 3, 4) + intercept * math.comb(d + 2, 3))
        if size >= count:
            return Layout(d, intercept)
    raise AssertionError


def _named(labels: list[Any] | None) -> dict[str, list[str]]:
    """Return the covariates' names as a setting, where they are names."""
    named = labels is not None and all(isinstance(label, str) for label in labels)
    return {"columns": list(map(str, labels or []))} if named else {}


def _column_names(d: int) -> list[str]:
    return [*(f"x[{j}]" for j in range(d)), "y"]


def named_bounds(inside: Coordinates) -> dict[str, tuple[float, float]]:
    """Return the bounds of every column by the names they have in a release."""
    sides = zip(inside.lower.tolist(), inside.upper.tolist(), strict=True)
    return dict(zip(_column_names(inside.d), sides, strict=True))


# ---------------------------------------------------------------------------------------------------------------------
# Covariates and response, travelling together


class _Joined(NamedTuple):
    """Covariates and response as one source of rows: which columns to read, and where among them the response is."""

    data: Any
    columns: list[str] | None
    response: int
    name: str
    labels: list[Any] | None  # the covariates' names, where they have some

    def chunks(self) -> Iterator[Array]:
        """Yield blocks of finite records, the response last."""
        return (_response_last(rows, self.response) for rows in as_chunks(self.data, self.columns, self.name))


def join(X: Any, y: Any) -> _Joined:
    """Bring covariates and response together, whatever form they have, without reading more than a first chunk.

    Parameters
    ----------
    X, y
        As in :func:`release`.

    Returns
    -------
    _Joined
        One source of rows.

    Examples
    --------
    >>> [rows.tolist() for rows in join([[1.0, 2.0], [3.0, 4.0]], [5.0, 6.0]).chunks()]
    [[[1.0, 2.0, 5.0], [3.0, 4.0, 6.0]]]

    Explained in :doc:`/book/regression/private-least-squares`.
    """
    first = X
    if isinstance(X, Iterator) and not hasattr(X, "schema"):  # a reader of Arrow batches knows its columns
        first = next(X, None)
        if first is None:
            raise ValueError("X must hold at least one record, got none")
        X = itertools.chain([first], X)
    labels = column_labels(first)
    if isinstance(y, str):
        return _named_response(X, y, labels, type(first).__name__)
    if isinstance(y, (int, np.integer)) and not isinstance(y, bool):
        if labels is not None and -len(labels) <= y < len(labels):
            labels = [label for j, label in enumerate(labels) if j != y % len(labels)]
        return _Joined(X, None, int(y), "X", labels)
    return _Joined(side_by_side(X, y, right_columns=1), None, -1, "X and y", labels)


def _response_last(rows: Array, response: int) -> Array:
    """Return the rows with the response moved from its position to the end."""
    if not -rows.shape[1] <= response < rows.shape[1]:
        raise ValueError(f"y must be the position of a column of X, which has {rows.shape[1]}; got {response}")
    if response in (-1, rows.shape[1] - 1):
        return rows
    return np.concatenate([np.delete(rows, response, axis=1), rows[:, [response]]], axis=1)


def _named_response(X: Any, y: str, labels: list[Any] | None, kind: str) -> _Joined:
    """Read a table, or the tables of a stream, with the response's column last."""
    if labels is None:
        raise ValueError(f"y can name a column only of a table, and X is of type {kind}")
    if y not in labels:
        raise ValueError(f"y must be an array or the name of a column of X; {y!r} is not one of {labels}")
    others = [label for label in labels if label != y]
    return _Joined(X, [*others, y], -1, "X", others)
