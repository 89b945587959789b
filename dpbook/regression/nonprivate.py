"""The posterior from the data themselves: not private, for comparison only."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpbook._arrays import Array
from dpbook._validation import analyst_generator, flag, integer
from dpbook.priors import NormalInverseGamma
from dpbook.regression.conjugate import draw_parameters
from dpbook.regression.coordinates import Coordinates, column_names
from dpbook.regression.posterior import RegressionPosterior
from dpbook.regression.releases import join
from dpbook.regression.task import ParameterPrior
from dpbook.regression.weak_priors import stated_prior

__all__ = ["infer_nonprivate"]


def infer_nonprivate(
    X: Any,
    y: Any,
    prior: NormalInverseGamma,
    *,
    intercept: bool = True,
    draws: int = 4000,
    chains: int = 4,
    rng: np.random.Generator | None = None,
) -> RegressionPosterior:
    """Return the posterior from the data themselves: **not private**, for comparison only.

    Parameters
    ----------
    X : array, table, iterator of chunks, or Dask collection
    y : array, Series, iterator of chunks, Dask collection, str or int
        As in :func:`~dpbook.regression.release`; nothing is clipped.
    prior : NormalInverseGamma
        Of the coefficients and the error variance.
    intercept : bool, default True
        Whether the regression has an intercept.
    draws, chains, rng
        As in :func:`~dpbook.regression.infer`; the draws are independent.

    Returns
    -------
    RegressionPosterior
        With draws of ``theta`` and ``sigma2``.

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook import regression
    >>> x = np.arange(100.0)
    >>> prior = regression.NormalInverseGamma(0, 1e-6, 2, 1)
    >>> posterior = regression.infer_nonprivate(x, 1 + 2 * x, prior, rng=np.random.default_rng(0))
    >>> posterior.mean("theta").round(1)
    array([1., 2.])

    Explained in :doc:`/book/regression/private-least-squares`.
    """
    stated_prior(prior)
    intercept = flag("intercept", intercept)
    draws, chains = integer("draws", draws, least=1), integer("chains", chains, least=1)
    inside: Coordinates | None = None
    n, total = 0, np.zeros(())
    source = join(X, y)
    for rows in source.chunks():
        if inside is None:
            names = column_names(source.labels, rows.shape[1] - 1, source.own_name)
            inside = _own_coordinates(rows, intercept, names)
        u = (rows - inside.centre) / inside.unit
        if intercept:
            u = np.concatenate([np.ones((len(u), 1)), u], axis=1)
        n, total = n + len(u), total + u.T @ u
    if inside is None:
        raise ValueError("X must hold at least one record, got none")
    mapped = inside.prior_in(prior)
    batch = ParameterPrior(*(np.asarray(getattr(mapped, f))[None] for f in ParameterPrior._fields))
    shape = (chains, -(-draws // chains))
    matrix = np.broadcast_to(total, (*shape, *total.shape))
    theta, sigma2 = draw_parameters(batch, matrix, np.asarray(float(n)), analyst_generator(rng))
    draws_out = {"theta": inside.theta_out(theta), "sigma2": inside.sigma2_out(sigma2)}
    return RegressionPosterior(draws_out, "non-private", intercept=intercept, labels={"theta": inside.labels})


def _own_coordinates(rows: Array, intercept: bool, names: tuple[str, ...]) -> Coordinates:
    """Return coordinates in which these records are of order one: for arithmetic only, any would give the answer."""
    centre = rows.mean(axis=0) if intercept else np.zeros(rows.shape[1])
    spread = np.abs(rows - centre).max(axis=0)
    half = np.where(spread > 0, spread, np.where(np.abs(centre) > 0, np.abs(centre), 1.0))
    return Coordinates(centre - half, centre + half, intercept, names)
