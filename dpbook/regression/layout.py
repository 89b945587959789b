"""Which statistic of a record sits where: the order of the sums that a release of a regression holds.

A record in coordinates is u = (1, x, y) with an intercept and u = (x, y) without one, and its statistics are the
products ``u_i u_j`` with i at most j, all but the constant 1.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dpbook._arrays import Array

__all__ = ["Layout"]

Indices = NDArray[np.int64]


@dataclass(frozen=True)
class Layout:
    """Which statistic of a record sits where, for d covariates with or without an intercept.

    With q = d + 1 (intercept) or q = d regressors w, a record is u = (w, y) of length p = q + 1; with an intercept
    ``u[0]`` is the constant 1. The k unique statistics are the upper triangle of ``u u^T`` row by row, without the
    constant ``u[0] u[0]``: k = p (p + 1) / 2, less one with an intercept.

    Parameters
    ----------
    d : int
        Number of covariates, the intercept not counted.
    intercept : bool
        Whether the regressors begin with a constant 1.

    Examples
    --------
    One covariate and an intercept, u = (1, x, y): the statistics are x, y, x², xy, y².

    >>> import numpy as np
    >>> from dpbook.regression import Layout
    >>> layout = Layout(1, True)
    >>> layout.size, list(zip(layout.rows.tolist(), layout.columns.tolist()))
    (5, [(0, 1), (0, 2), (1, 1), (1, 2), (2, 2)])
    >>> layout.matrix([1.0, 2.0, 3.0, 4.0, 5.0], 10.0)
    array([[10.,  1.,  2.],
           [ 1.,  3.,  4.],
           [ 2.,  4.,  5.]])
    >>> layout.vector(np.arange(9.0).reshape(3, 3))
    array([1., 2., 4., 5., 8.])

    Explained in :doc:`/book/regression/private-least-squares`.
    """

    d: int
    intercept: bool

    @property
    def regressors(self) -> int:
        """q, the length of theta."""
        return self.d + int(self.intercept)

    @property
    def width(self) -> int:
        """p, the length of a record u."""
        return self.regressors + 1

    @property
    def size(self) -> int:
        """k, the number of unique statistics."""
        return self.width * (self.width + 1) // 2 - int(self.intercept)

    @cached_property
    def rows(self) -> Indices:
        """For each statistic the index i of its first factor, shape (k,)."""
        return np.triu_indices(self.width)[0][int(self.intercept) :].astype(np.int64)

    @cached_property
    def columns(self) -> Indices:
        """For each statistic the index j >= i of its second factor, shape (k,)."""
        return np.triu_indices(self.width)[1][int(self.intercept) :].astype(np.int64)

    @cached_property
    def position(self) -> Indices:
        """The statistic that holds ``u_i u_j``, shape (p, p), symmetric; -1 for the constant."""
        position = np.full((self.width, self.width), -1, dtype=np.int64)
        position[self.rows, self.columns] = position[self.columns, self.rows] = np.arange(self.size)
        return position

    @cached_property
    def of_regressors(self) -> NDArray[np.bool_]:
        """True for statistics of regressors alone (those of X'X), False where y is a factor; shape (k,)."""
        return np.asarray(self.columns < self.regressors)

    def vector(self, matrix: Array) -> Array:
        """Return the unique statistics held in symmetric matrices.

        Parameters
        ----------
        matrix : array (..., p, p)
            ``u u'``, or a sum or mean of them.

        Returns
        -------
        array (..., k)
            Its upper triangle, row by row, without the constant.
        """
        return np.asarray(matrix[..., self.rows, self.columns])

    def matrix(self, vector: Array, n: Array | float) -> Array:
        """Return the symmetric matrices of which these are the unique statistics.

        Parameters
        ----------
        vector : array (..., k)
            Statistics.
        n : array (...) or float
            The constant's entry: the number of records for sums, 1 for means.

        Returns
        -------
        array (..., p, p)
            The inverse of :meth:`vector`.
        """
        vector = np.asarray(vector, dtype=np.float64)
        matrix = vector[..., self.position]  # the constant reads position -1 and is overwritten
        if self.intercept:
            matrix[..., 0, 0] = n
        return np.asarray(matrix)

    @cached_property
    def higher(self) -> list[tuple[int, ...]]:
        """The monomials of x released beyond the second moments, each the tuple of its factors' indices in x.

        Degrees three and four with an intercept, degree four without: with the second moments they make up all
        fourth moments of the regressors w.
        """
        return [
            factors
            for degree in ((3, 4) if self.intercept else (4,))
            for factors in itertools.combinations_with_replacement(range(self.d), degree)
        ]

    @cached_property
    def fourth(self) -> Indices:
        """Where to read ``w_i w_j w_k w_l``, an index into (n, sums, higher sums) concatenated; shape (q, q, q, q)."""
        shift = int(self.intercept)
        place = {factors: 1 + self.size + at for at, factors in enumerate(self.higher)}
        index = np.empty((self.regressors,) * 4, dtype=np.int64)
        for where in itertools.product(range(self.regressors), repeat=4):
            factors = sorted(i for i in where if not (shift and i == 0))
            if not factors:
                index[where] = 0
            elif len(factors) < 3:
                first, last = (factors[0], factors[1]) if len(factors) == 2 else (0, factors[0])
                index[where] = 1 + self.position[first, last]
            else:
                index[where] = place[tuple(i - shift for i in factors)]
        return index
