"""Small linear algebra with the batch last, against NumPy's with the batch first."""

from __future__ import annotations

import numpy as np
import pytest

from dpbook import _batch_last as last

SIZES = [1, 2, 3, 6, 7, 13, 17]


def matrices(rows: int, columns: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed + rows).normal(size=(5, rows, columns))


def definite(size: int) -> np.ndarray:
    root = matrices(size, size + 3) * np.exp(matrices(size, 1, 1))
    return root @ np.swapaxes(root, -1, -2)


def moved(array: np.ndarray) -> np.ndarray:
    return np.moveaxis(array, 0, -1)


@pytest.mark.parametrize("size", SIZES)
def test_products_are_those_of_every_member(size: int) -> None:
    a, b, v = matrices(4, size), matrices(size, 3), matrices(size, 1, 2)[..., 0]
    np.testing.assert_allclose(last.product(moved(a), moved(b)), moved(a @ b), atol=1e-12)
    np.testing.assert_allclose(last.times(moved(a), moved(v)), moved((a @ v[..., None])[..., 0]), atol=1e-12)


@pytest.mark.parametrize("size", SIZES)
def test_roots_and_solutions_are_those_of_every_member(size: int) -> None:
    matrix, v = definite(size), matrices(size, 1, 2)[..., 0]
    root = np.linalg.cholesky(matrix)
    np.testing.assert_allclose(last.cholesky(moved(matrix)), moved(root), rtol=1e-9)
    np.testing.assert_allclose(last.lower_inverse(moved(root)), moved(np.linalg.inv(root)), rtol=1e-6, atol=1e-9)
    expected = np.linalg.solve(matrix, v[..., None])[..., 0]
    np.testing.assert_allclose(last.solve(moved(matrix), moved(v)), moved(expected), rtol=1e-9)


@pytest.mark.parametrize("size", SIZES)
def test_inverses_and_log_determinants_are_those_of_every_member(size: int) -> None:
    matrix = definite(size)
    inverted, log_determinant = last.inverse(moved(matrix))
    np.testing.assert_allclose(np.moveaxis(inverted, -1, 0), np.linalg.inv(matrix), rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(log_determinant, np.linalg.slogdet(matrix)[1], rtol=1e-9)


@pytest.mark.parametrize("size", [3, 20])
def test_a_singular_matrix_is_refused_and_leaves_the_others_of_its_batch_alone(size: int) -> None:
    """Far out in a trajectory a covariance may lose its rank to rounding; its density is minus infinity, no error."""
    root = np.random.default_rng(1).normal(size=(size, size + 3))
    regular, singular = root @ root.T, np.ones((size, size))
    with np.errstate(all="ignore"):
        inverted, log_determinant = last.inverse(np.stack([regular, singular], axis=-1))
    np.testing.assert_allclose(inverted[..., 0], np.linalg.inv(regular), rtol=1e-6)
    assert np.isfinite(log_determinant[0])
    assert not np.isfinite(log_determinant[1])
