"""What an analyst believes of a regression after a release: draws of coefficients and error variance, and predictions.

A :class:`RegressionPosterior` is a :class:`~dpbook.posterior.Posterior` in the data's units that can also predict.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal, overload

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from dpbook._arrays import Array
from dpbook._late import pd
from dpbook._validation import column_labels, finite_array, fraction
from dpbook.posterior import Posterior
from dpbook.regression.coordinates import INTERCEPT, column_names
from dpbook.regression.design import Design

__all__ = ["RegressionPosterior"]

_ENOUGH = 1e-6  # in probability; the Newton step after it leaves the square of that
_ONE_SD = 0.6827  # of a normal variable lies within one standard deviation
_BLOCK = 2_000_000  # draws times new records in one NumPy call


@dataclass(frozen=True, eq=False, repr=False)
class RegressionPosterior(Posterior):
    """Draws of ``theta`` (the intercept first) and ``sigma2``, in the data's units, with predictions.

    Parameters
    ----------
    draws : mapping of str to array_like
        ``theta`` of shape (chain, draw, coefficients) and ``sigma2`` of shape (chain, draw).
    method : str, optional
        How the draws were made.
    intercept : bool, default True
        Whether the first coefficient is an intercept.
    labels : mapping of str to sequence of str, optional
        ``labels["theta"]``, what the coefficients are called: the names of the columns, from which a table of new
        covariates is read, after "(intercept)". By default "(intercept)", "x1", "x2", …
    heavy_tailed : bool, default False
        Whether tails are so heavy that means and standard deviations say little (a slope whose covariate may hardly
        spread): tables and predictions then have medians.
    design : Design, optional
        Of a release on a schema: new records are then a table with the schema's columns, labels among them.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(1)
    >>> theta = np.array([1.0, 2.0]) + 0.1 * rng.normal(size=(4, 1000, 2))
    >>> posterior = RegressionPosterior({"theta": theta, "sigma2": np.ones((4, 1000))})
    >>> posterior.predict([0.0, 1.0]).round(1)
    array([1., 3.])
    >>> posterior.predictive_interval([0.0], 0.95).round(1)  # 1 ± 1.96, and a little for theta
    array([[-1.,  3.]])

    Explained in :doc:`/book/regression/case-cirrhosis`.
    """

    intercept: bool = True
    heavy_tailed: bool = field(default=False, kw_only=True)
    design: Design | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        shapes = {name: array.shape for name, array in self.draws.items()}
        if set(shapes) != {"theta", "sigma2"} or len(shapes["theta"]) != 3 or len(shapes["sigma2"]) != 2:
            raise ValueError(f"draws must hold theta (chain, draw, q) and sigma2 (chain, draw), got {shapes}")
        if shapes["theta"][2] <= int(self.intercept):
            raise ValueError("draws['theta'] must hold a slope beside the intercept")
        if "theta" not in self.labels:
            first = (INTERCEPT,) * self.intercept
            named = {"theta": (*first, *column_names(None, self.d)[:-1]), **self.labels}
            object.__setattr__(self, "labels", MappingProxyType(named))

    @property
    def d(self) -> int:
        """The number of covariates."""
        return int(self.draws["theta"].shape[2]) - int(self.intercept)

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the covariates."""
        return tuple(self.labels["theta"][int(self.intercept) :])

    def summary(self, level: float = 0.95) -> pd.DataFrame:
        """Return a table as :meth:`dpbook.Posterior.summary` does; with heavy tails medians stand for mean and sd."""
        from dpbook._summary_table import summary_table  # here: it loads pandas

        return summary_table(self, level, index=self._labels(), notes=self._said(), medians=self.heavy_tailed)

    @property
    def centre(self) -> Array:
        """The means of the coefficients, or their medians where tails are heavy."""
        return np.asarray(self.quantile(0.5, "theta") if self.heavy_tailed else self.mean("theta"))

    @overload
    def predict(self, X_new: ArrayLike) -> Array: ...
    @overload
    def predict(self, X_new: ArrayLike, *, return_std: Literal[False]) -> Array: ...
    @overload
    def predict(self, X_new: ArrayLike, *, return_std: Literal[True]) -> tuple[Array, Array]: ...
    @overload
    def predict(self, X_new: ArrayLike, *, return_std: bool) -> Array | tuple[Array, Array]: ...
    def predict(self, X_new: ArrayLike, *, return_std: bool = False) -> Array | tuple[Array, Array]:
        """Return the predictive mean of new responses, and with ``return_std`` their predictive standard deviation.

        With heavy tails it is the line of the medians, and half the width of the central interval of 68 %.

        Parameters
        ----------
        X_new : array (records, d) or table
            Covariates without a column of ones; for one covariate a plain sequence will do. Of a table, where the
            covariates have names, the columns are taken by name, in any order; other names raise.
        return_std : bool, default False
            Whether to return the standard deviation of a new response as well: error and coefficients' uncertainty.

        Returns
        -------
        array (records,), or a pair of them
            The mean, and the standard deviation.
        """
        regressors = self._regressors(X_new)
        theta = self._pooled("theta")
        mean = regressors @ self.centre
        if not return_std:
            return np.asarray(mean)
        if self.heavy_tailed:
            low, high = self.predictive_interval(X_new, _ONE_SD).T
            return np.asarray(mean), np.asarray((high - low) / 2)
        spread = np.atleast_2d(np.cov(theta.T, ddof=0))
        variance = self._pooled("sigma2").mean() + ((regressors @ spread) * regressors).sum(axis=1)
        return np.asarray(mean), np.sqrt(variance)

    def predictive_interval(self, X_new: ArrayLike, level: float = 0.95) -> Array:
        """Return central predictive intervals of new responses.

        The predictive law is the mixture over draws of N(theta'w, sigma2); its quantiles are found by Newton's method,
        so that they carry no further Monte-Carlo error.

        Parameters
        ----------
        X_new : array (records, d) or table
            As in :meth:`predict`.
        level : float, default 0.95
            The predictive probability that each interval holds.

        Returns
        -------
        array (records, 2)
            Low and high.
        """
        tail = (1 - fraction("level", level)) / 2
        regressors = self._regressors(X_new)
        theta, sd = self._pooled("theta"), np.sqrt(self._pooled("sigma2"))
        step = max(1, _BLOCK // len(sd))
        blocks = [
            np.stack([_mixture_quantile(centres, sd, q) for q in (tail, 1 - tail)], axis=1)
            for centres in (regressors[i : i + step] @ theta.T for i in range(0, len(regressors), step))
        ]
        return np.concatenate(blocks) if blocks else np.empty((0, 2))

    def _pooled(self, name: str) -> Array:
        array = self.draws[name]
        return array.reshape(-1, *array.shape[2:])

    def _regressors(self, X_new: ArrayLike) -> Array:
        if self.design is not None:
            X_new = self.design.covariates(X_new)
        rows = finite_array("X_new", self._in_order(X_new))
        if rows.ndim == 1 and self.d == 1:
            rows = rows[:, None]
        if rows.ndim != 2 or rows.shape[1] != self.d:
            raise ValueError(f"X_new must have shape (records, {self.d}), got {rows.shape}")
        return np.concatenate([np.ones((len(rows), 1)), rows], axis=1) if self.intercept else rows

    def _in_order(self, X_new: Any) -> Any:
        """Return a table's columns in the order of the coefficients; what has no names stays as it is."""
        labels, columns = column_labels(X_new), list(self.columns)
        if labels is None or labels == columns:
            return X_new
        if sorted(map(str, labels)) != sorted(columns):
            if columns == list(column_names(None, self.d)[:-1]):  # the records had no names: position decides
                return X_new
            raise ValueError(f"X_new must have the columns {columns}, in any order; got {labels}")
        return X_new.select(columns) if hasattr(X_new, "column_names") else X_new[columns]  # Arrow, or pandas and kin


def _mixture_quantile(centres: Array, sd: Array, probability: float) -> Array:
    """Return the quantile of each row's equal mixture of N(centres[row, draw], sd[draw]²), by guarded Newton steps."""
    single = centres + sd * special.ndtri(probability)
    low, high = single.min(axis=1), single.max(axis=1)  # the mixture's quantile lies between its members'
    total = np.sqrt(centres.var(axis=1) + np.mean(sd**2))
    at = np.clip(centres.mean(axis=1) + total * special.ndtri(probability), low, high)
    rows = np.arange(len(at))
    for _ in range(100):
        z = (at[rows, None] - centres[rows]) / sd
        excess = special.ndtr(z).mean(axis=1) - probability
        slope = (np.exp(-0.5 * z**2) / sd).mean(axis=1) / np.sqrt(2 * np.pi)
        low[rows] = np.where(excess < 0, at[rows], low[rows])
        high[rows] = np.where(excess > 0, at[rows], high[rows])
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            newton = at[rows] - excess / slope
        middle = (low[rows] + high[rows]) / 2
        at[rows] = np.where((newton >= low[rows]) & (newton <= high[rows]), newton, middle)
        rows = rows[np.abs(excess) > _ENOUGH]
        if not rows.size:
            break
    return np.asarray(at)
