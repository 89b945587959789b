"""Mean and covariance of a record's statistics given the parameters, in closed form and for whole batches.

The statistics of a record u = (w, y), y = theta'w + e, are products ``u_i u_j``. Their mean is the second-moment matrix
E = E[u u']. For *normal* covariates u itself is normal (its constant has variance zero), and Isserlis' theorem gives

    Cov(u_a u_b, u_c u_d) = E_ac E_bd + E_ad E_bc - 2 m_a m_b m_c m_d,   m = E[u],

with no fourth-moment tensor and no automatic differentiation. For *other* covariates the covariance needs the fourth
moments of w (:func:`from_fourth_moments`). Chapter 4 derives both; :class:`~dpbook.regression.Layout` says which
product sits where.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dpbook._arrays import Array
from dpbook.regression.layout import Layout

__all__ = [
    "from_fourth_moments",
    "from_normal",
    "is_valid",
    "nearest_valid",
    "product_cov",
    "record_moments",
]


def record_moments(theta: Array, sigma2: Array, mean_x: Array, cov_x: Array, layout: Layout) -> tuple[Array, Array]:
    """Return the mean m and the second-moment matrix E of a record u, for normal or any other covariates.

    Parameters
    ----------
    theta : array (..., q)
        Coefficients, the intercept first where there is one.
    sigma2 : array (...)
        Error variance.
    mean_x : array (..., d)
    cov_x : array (..., d, d)
        Mean and covariance of the covariates.
    layout : Layout
        With or without an intercept.

    Returns
    -------
    m : array (..., p)
    E : array (..., p, p)

    Examples
    --------
    >>> import numpy as np
    >>> m, E = record_moments(np.array([1.0, 2.0]), np.array(0.5), np.array([0.0]), np.eye(1), Layout(1, True))
    >>> m, E.tolist()
    (array([1., 0., 1.]), [[1.0, 0.0, 1.0], [0.0, 1.0, 2.0], [1.0, 2.0, 5.5]])

    Explained in :doc:`/book/regression/private-covariates`.
    """
    second = cov_x + mean_x[..., :, None] * mean_x[..., None, :]
    batch = np.broadcast_shapes(theta.shape[:-1], sigma2.shape, mean_x.shape[:-1], cov_x.shape[:-2])
    q, first = layout.regressors, int(layout.intercept)
    m, e = np.empty((*batch, q + 1)), np.empty((*batch, q + 1, q + 1))
    if first:
        m[..., 0], e[..., 0, 0] = 1.0, 1.0
        e[..., 0, 1:q] = e[..., 1:q, 0] = mean_x
    m[..., first:q], e[..., first:q, first:q] = mean_x, second
    m[..., q] = (theta * m[..., :q]).sum(axis=-1)
    with_y = (e[..., :q, :q] @ theta[..., None])[..., 0]
    e[..., :q, q] = e[..., q, :q] = with_y
    e[..., q, q] = sigma2 + (theta * with_y).sum(axis=-1)
    return m, e


def from_normal(mean: Array, second: Array, layout: Layout) -> tuple[Array, Array]:
    """Return the mean and covariance of a record's statistics for a normal record, by Isserlis' theorem.

    Parameters
    ----------
    mean : array (..., p)
    second : array (..., p, p)
        Mean m and second-moment matrix E of u, from :func:`record_moments`.
    layout : Layout
        Which statistic sits where.

    Returns
    -------
    mu : array (..., k)
        E of the unique statistics.
    cov : array (..., k, k)
        Their covariance.

    Examples
    --------
    A standard normal y alone (no intercept, x of variance nearly 0): y² has mean 1 and variance 2.

    >>> import numpy as np
    >>> m, E = np.zeros(2), np.array([[1e-12, 0.0], [0.0, 1.0]])
    >>> mu, cov = from_normal(m, E, Layout(1, False))
    >>> mu[2], cov[2, 2]
    (np.float64(1.0), np.float64(2.0))

    Explained in :doc:`/book/regression/private-covariates`.
    """
    a, b = layout.rows, layout.columns
    product = mean[..., a] * mean[..., b]
    by_row, by_column = second[..., a, :], second[..., b, :]
    cov = by_row[..., a] * by_column[..., b] + by_row[..., b] * by_column[..., a]
    cov -= 2 * product[..., :, None] * product[..., None, :]
    return layout.vector(second), cov


def from_fourth_moments(theta: Array, sigma2: Array, second: Array, xi: Array, layout: Layout) -> tuple[Array, Array]:
    """Return the mean and covariance of a record's statistics for covariates of any law with given moments.

    With u = A w + e b, where A stacks the identity on theta' and b is the last unit vector, every product ``u_a u_b``
    is linear in the products of the regressors, plus what the error adds. So the covariance is xi carried along by A,
    plus terms in sigma2. In particular ``Cov(w_i y, w_j y) = sigma2 eta_ij + sum theta_k theta_l xi_(ik,jl)``.

    Parameters
    ----------
    theta : array (..., q)
    sigma2 : array (...)
        Coefficients and error variance.
    second : array (..., q, q)
        eta, the second moments of the regressors w; with an intercept ``second[0, 0]`` is 1.
    xi : array (..., j, j)
        The covariance of the regressors' unique products ``w_i w_j``, in the order of the statistics for which
        :attr:`~dpbook.regression.Layout.of_regressors` holds (:func:`product_cov`).
    layout : Layout
        Which statistic sits where.

    Returns
    -------
    mu : array (..., k)
    cov : array (..., k, k)

    Examples
    --------
    A standard normal x and y = x + e, no intercept: x² has variance 2, and y² has variance 2 (1 + sigma2)².

    >>> import numpy as np
    >>> layout, one = Layout(1, False), np.ones((1, 1))
    >>> mu, cov = from_fourth_moments(np.ones(1), np.array(1.0), one, 2 * one, layout)
    >>> mu[2], cov[2, 2]
    (np.float64(2.0), np.float64(8.0))

    Explained in :doc:`/book/regression/private-covariates`.
    """
    q = layout.regressors
    eye = np.broadcast_to(np.eye(q), (*theta.shape[:-1], q, q))
    carry = np.concatenate([eye, theta[..., None, :]], axis=-2)  # A, (..., p, q)
    a, b = layout.rows, layout.columns
    i, j = a[layout.of_regressors], b[layout.of_regressors]
    # u_a u_b = sum over unique i <= j of lift[ab, ij] w_i w_j + …
    by_a, by_b = carry[..., a, :], carry[..., b, :]
    lift = by_a[..., i] * by_b[..., j] + np.where(i == j, 0.0, by_a[..., j] * by_b[..., i])
    inner = carry @ second @ np.swapaxes(carry, -1, -2)  # E[(Aw)(Aw)'], (..., p, p)
    last_a, last_b = (a == q).astype(float), (b == q).astype(float)
    s2 = np.asarray(sigma2)[..., None, None]
    by_row, by_column = inner[..., a, :], inner[..., b, :]
    cov = lift @ xi @ np.swapaxes(lift, -1, -2) + s2 * (
        np.outer(last_b, last_b) * by_row[..., a]
        + np.outer(last_b, last_a) * by_row[..., b]
        + np.outer(last_a, last_b) * by_column[..., a]
        + np.outer(last_a, last_a) * by_column[..., b]
        + 2 * s2 * np.outer(last_a * last_b, last_a * last_b)
    )
    mu = layout.vector(inner) + np.asarray(sigma2)[..., None] * (last_a * last_b)
    return np.broadcast_to(mu, cov.shape[:-1]), cov


def product_cov(moments: Array, layout: Layout) -> Array:
    """Return xi, the covariance of the regressors' unique products, from their moments up to order four.

    Parameters
    ----------
    moments : array (..., 1 + k + m)
        1, then the mean of each statistic, then that of each monomial of
        :attr:`~dpbook.regression.Layout.higher`.
    layout : Layout
        Which statistic sits where.

    Returns
    -------
    array (..., j, j)
        ``xi_(ij,kl) = E[w_i w_j w_k w_l] - E[w_i w_j] E[w_k w_l]`` for the statistics of regressors alone.

    Examples
    --------
    Standard normal x with an intercept: Var(x) = 1, Cov(x, x²) = 0, Var(x²) = 2.

    >>> import numpy as np
    >>> product_cov(np.array([1.0, 0, 0, 1, 0, 0, 0, 3]), Layout(1, True)).tolist()  # 1; x, y, x², xy, y²; x³, x⁴
    [[1.0, 0.0], [0.0, 2.0]]

    Explained in :doc:`/book/regression/private-covariates`.
    """
    i, j = layout.rows[layout.of_regressors], layout.columns[layout.of_regressors]
    fourth = moments[..., layout.fourth[i, j][:, i, j]]
    second = moments[..., 1 + layout.position[i, j]]
    return np.asarray(fourth - second[..., :, None] * second[..., None, :])


def is_valid(sums: Array, n: Array, layout: Layout) -> NDArray[np.bool_]:
    """Tell which sums some data could have: those whose matrix ``sum u u'`` is positive definite.

    Parameters
    ----------
    sums : array (..., k)
    n : array (...)
        Statistics and numbers of records.
    layout : Layout
        Which statistic sits where.

    Returns
    -------
    array of bool (...)

    Examples
    --------
    >>> import numpy as np
    >>> sums = np.array([[0.0, 0.0, 5.0, 1.0, 2.0], [0.0, 0.0, -5.0, 1.0, 2.0]])  # the second has x² summing to -5
    >>> is_valid(sums, np.full(2, 10.0), Layout(1, True)).tolist()
    [True, False]

    Explained in :doc:`/book/regression/gibbs-samplers`.
    """
    matrix = layout.matrix(sums, n)
    valid = np.ones(matrix.shape[:-2], dtype=bool)
    for _ in range(layout.width):  # the pivots of Gaussian elimination are positive
        pivot = matrix[..., 0, 0]
        valid &= pivot > 0
        column = matrix[..., 1:, 0]
        # Once a pivot is not positive the verdict stands: stop there, since the rest would only overflow.
        scaled = np.where(valid[..., None], column / np.where(pivot > 0, pivot, 1.0)[..., None], 0.0)
        matrix = matrix[..., 1:, 1:] - scaled[..., :, None] * column[..., None, :]
    return valid


def nearest_valid(sums: Array, n: Array, layout: Layout) -> Array:
    """Move sums that no data could have to the nearest that some could, and leave the others alone.

    With an intercept only the centred scatter, ``sum (u - mean)(u - mean)'``, is projected, by setting its negative
    eigenvalues to zero; the means stay, and so does n. (Projecting the whole matrix would change n.)

    Parameters
    ----------
    sums : array (..., k)
    n : array (...)
        Statistics and numbers of records.
    layout : Layout
        Which statistic sits where.

    Returns
    -------
    array (..., k)

    Examples
    --------
    >>> import numpy as np
    >>> nearest_valid(np.array([20.0, 0.0, 5.0, 0.0, 2.0]), np.array(10.0), Layout(1, True)).round(6)
    array([20.,  0., 40.,  0.,  2.])

    Explained in :doc:`/book/regression/gibbs-samplers`.
    """
    matrix = layout.matrix(sums, n)
    first = int(layout.intercept)
    size = np.broadcast_to(np.asarray(n, dtype=np.float64), matrix.shape[:-2])[..., None, None]
    total = matrix[..., :1, 1:]
    about = np.swapaxes(total, -1, -2) * (total / size) if first else np.zeros(())
    values, vectors = np.linalg.eigh(matrix[..., first:, first:] - about)
    kept = vectors * np.maximum(values, 0.0)[..., None, :]
    matrix[..., first:, first:] = kept @ np.swapaxes(vectors, -1, -2) + about
    wrong = np.asarray((values < 0).any(axis=-1))[..., None]
    return np.where(wrong, layout.vector(matrix), sums)
