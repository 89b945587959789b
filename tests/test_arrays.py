"""The small functions of arrays that several chapters share."""

import numpy as np
import pytest

from dpbook._arrays import project_to_simplex


@pytest.mark.parametrize("total", [1.0, 50.0])
def test_the_projection_is_the_nearest_point_of_the_simplex(total):
    """Against bisection on the threshold: the projection is max(y - t, 0) with the t that gives the total."""
    for seed in range(20):
        y = np.random.default_rng(seed).normal(10, 40, 6)
        low, high = y.min() - total, y.max()
        for _ in range(200):
            middle = (low + high) / 2
            low, high = (middle, high) if np.maximum(y - middle, 0).sum() > total else (low, middle)
        np.testing.assert_allclose(project_to_simplex(y, total), np.maximum(y - low, 0), atol=1e-9)


def test_a_batch_is_projected_as_its_members_are_each_to_its_own_total():
    y = np.random.default_rng(1).normal(0, 3, (2, 5, 4))
    totals = np.random.default_rng(2).integers(1, 9, (2, 5))
    together = project_to_simplex(y, totals)
    alone = [[project_to_simplex(y[i, j], totals[i, j]) for j in range(5)] for i in range(2)]
    np.testing.assert_array_equal(together, alone)


def test_huge_coordinates_lose_no_digits():
    """Beyond 2**53 a total of 1 is less than the spacing of floats; differences are what counts."""
    np.testing.assert_allclose(project_to_simplex(np.array([1e17, 1e17, -1e17, 1e17])), [1 / 3, 1 / 3, 0, 1 / 3])


def test_points_of_the_simplex_stay_where_they_are():
    y = np.array([[0.5, 0.25, 0.25], [1.0, 0.0, 0.0]])
    np.testing.assert_array_equal(project_to_simplex(y), y)
