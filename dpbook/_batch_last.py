"""Small linear algebra with the batch as the *last* axis: matrices (i, j, B) and vectors (j, B).

NumPy's inner loops then run over chains and releases, and not over the few entries of a matrix: for one or two
covariates that is ten times as fast. :mod:`dpbook._arrays` has the same for a leading batch.
"""

from __future__ import annotations

import numpy as np

from dpbook._arrays import Array

__all__ = ["cholesky", "inverse", "lower_inverse", "product", "solve", "times"]

_SMALL = 6  # up to this many rows a batched product is a broadcast, beyond it a call of BLAS for each member
_BY_HAND = 16  # matrices up to this size are inverted by vector operations over the batch, larger ones by LAPACK


def product(a: Array, b: Array) -> Array:
    """Return the matrix products (i, k, B) of matrices (i, j, B) and (j, k, B)."""
    if a.shape[1] == 1:
        return a * b
    if a.shape[1] <= _SMALL:
        out = a[:, :1] * b[:1]
        for j in range(1, a.shape[1]):
            out += a[:, j : j + 1] * b[j : j + 1]
        return np.asarray(out)
    return np.moveaxis(np.moveaxis(a, -1, 0) @ np.moveaxis(b, -1, 0), 0, -1)


def times(matrix: Array, vector: Array) -> Array:
    """Return the products (i, B) of matrices (i, j, B) and vectors (j, B)."""
    if matrix.shape[1] == 1:
        return matrix[:, 0] * vector
    if matrix.shape[1] <= 2 * _SMALL:
        return np.asarray((matrix * vector[None]).sum(axis=1))
    return np.moveaxis((np.moveaxis(matrix, -1, 0) @ vector.T[..., None])[..., 0], 0, -1)


def lower_inverse(lower: Array) -> Array:
    """Return the inverses of lower triangular matrices (d, d, B), by substitution."""
    d = lower.shape[0]
    if d == 1:
        return 1 / lower
    out = np.zeros_like(lower)
    for i in range(d):
        out[i, i] = 1 / lower[i, i]
        if i:
            out[i, :i] = -out[i, i] * (lower[i, :i, None] * out[:i, :i]).sum(axis=0)
    return out


def cholesky(matrix: Array) -> Array:
    """Return lower roots of matrices (d, d, B)."""
    if matrix.shape[0] == 1:
        return np.sqrt(matrix)
    return np.moveaxis(np.asarray(np.linalg.cholesky(np.moveaxis(matrix, -1, 0)), dtype=np.float64), 0, -1)


def solve(matrix: Array, vector: Array) -> Array:
    """Solve the systems of matrices (d, d, B) and right-hand sides (d, B)."""
    solved: Array = np.asarray(np.linalg.solve(np.moveaxis(matrix, -1, 0), vector.T[..., None]), dtype=np.float64)
    return np.moveaxis(solved[..., 0], 0, -1)


def inverse(matrix: Array) -> tuple[Array, Array]:
    """Return the inverses and log determinants of positive definite matrices (k, k, B).

    Where a matrix is not positive definite (to rounding), its log determinant is NaN.
    """
    k = matrix.shape[0]
    diagonal = np.arange(k)
    unit = 1 / np.sqrt(matrix[diagonal, diagonal])
    out = matrix * unit[:, None] * unit[None]
    if k <= _BY_HAND:
        log_determinant = np.log(_sweep(out)).sum(axis=0)
    else:
        first = np.moveaxis(out, -1, 0)
        first = np.where(np.isfinite(first), first, np.eye(k))
        sign, log_determinant = np.linalg.slogdet(first)
        log_determinant = np.where(sign > 0, log_determinant, np.nan)
        first = np.where((sign == 0)[:, None, None], np.eye(k), first)  # one singular matrix must not stop the others
        out = np.moveaxis(np.asarray(np.linalg.inv(first), dtype=np.float64), 0, -1)
    return out * unit[:, None] * unit[None], log_determinant - 2 * np.log(unit).sum(axis=0)


def _sweep(matrix: Array) -> Array:
    """Invert symmetric matrices (k, k, B) in place by Gauss-Jordan sweeps; return the pivots (k, B)."""
    k = matrix.shape[0]
    pivots = np.empty((k, matrix.shape[-1]))
    for i in range(k):
        pivot = pivots[i] = matrix[i, i].copy()
        row = matrix[i] / pivot
        column = matrix[:, i].copy()
        matrix -= column[:, None] * row[None]
        matrix[i] = row
        matrix[:, i] = -column / pivot
        matrix[i, i] = 1 / pivot
    return pivots
