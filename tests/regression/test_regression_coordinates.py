"""Coordinates: columns to [-1, 1] and back, priors with them, and results that do not depend on the units."""

import numpy as np
import pytest

from dpbook import regression
from dpbook.regression.coordinates import Coordinates, column_bounds
from dpbook.regression.weak_priors import covariates_in, weak_covariates


def random_coordinates(rng, d, intercept):
    lower = rng.normal(scale=20, size=d + 1)
    return Coordinates(lower, lower + rng.uniform(0.1, 30, size=d + 1), intercept)


def conjugate(X, y, prior, intercept):
    """The posterior's parameters by the textbook's formulas, in the data's own units."""
    w = np.column_stack([np.ones(len(X)), X]) if intercept else X
    mean, precision = prior.sized(w.shape[1], "prior")
    after = w.T @ w + precision
    centre = np.linalg.solve(after, w.T @ y + precision @ mean)
    rate = prior.rate + 0.5 * (y @ y + mean @ precision @ mean - centre @ after @ centre)
    return centre, after, prior.shape + len(y) / 2, rate


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("d", [1, 2, 3, 5, 10])
def test_the_posterior_in_coordinates_mapped_back_is_the_posterior_in_the_datas_units(d, intercept):
    """Parameter by parameter, for a random affine map: the prior is mapped in and the coefficients out exactly."""
    rng = np.random.default_rng(d)
    inside = random_coordinates(rng, d, intercept)
    X, y = rng.uniform(inside.lower[:-1], inside.upper[:-1], size=(50, d)), rng.normal(size=50)
    q = d + intercept
    root = rng.normal(size=(q, q))
    prior = regression.NormalInverseGamma(rng.normal(size=q), root @ root.T + np.eye(q), 3.0, 2.0)
    centre, after, shape, rate = conjugate(X, y, prior, intercept)
    rows = (np.column_stack([X, y]) - inside.centre) / inside.unit
    centre_in, after_in, shape_in, rate_in = conjugate(rows[:, :-1], rows[:, -1], inside.prior_in(prior), intercept)
    np.testing.assert_allclose(inside.theta_out(centre_in), centre, rtol=1e-6, atol=1e-8 * np.abs(centre).max())
    assert (shape_in, rate_in * inside.unit[-1] ** 2) == (shape, pytest.approx(rate, rel=1e-6))
    linear = inside.theta_out(np.eye(q)) - inside.theta_out(np.zeros(q))  # rows: where each unit vector goes
    cov_out = linear.T @ np.linalg.inv(after_in) @ linear / inside.unit[-1] ** 2
    np.testing.assert_allclose(cov_out, np.linalg.inv(after), rtol=1e-5, atol=1e-8 * np.abs(cov_out).max())


@pytest.mark.parametrize("intercept", [True, False])
def test_coefficients_go_in_and_come_back(intercept):
    rng = np.random.default_rng(0)
    inside = random_coordinates(rng, 3, intercept)
    theta = rng.normal(size=(7, 3 + intercept))
    np.testing.assert_allclose(inside.theta_out(inside.theta_in(theta)), theta, rtol=1e-10)


@pytest.mark.parametrize("intercept", [True, False])
def test_a_line_predicts_the_same_in_either_units(intercept):
    rng = np.random.default_rng(1)
    inside = random_coordinates(rng, 2, intercept)
    theta, x = rng.normal(size=2 + intercept), rng.normal(size=(5, 2))
    y = np.column_stack([np.ones(5), x])[:, 1 - intercept :] @ theta
    rows = (np.column_stack([x, y]) - inside.centre) / inside.unit
    w = np.column_stack([np.ones(5), rows[:, :-1]])[:, 1 - intercept :]
    np.testing.assert_allclose(w @ inside.theta_in(theta), rows[:, -1], rtol=1e-9, atol=1e-12)


def test_covariates_keep_their_prior():
    """The mean and scale of mapped draws are the mapped mean and scale."""
    inside = Coordinates(np.array([0.0, -4.0, 0.0]), np.array([10.0, 4.0, 1.0]), True)
    prior = regression.NormalInverseWishart([5.0, 1.0], 2.0, [[4.0, 1.0], [1.0, 9.0]], 6.0)
    mapped = inside.covariates_in(prior)
    np.testing.assert_allclose(mapped.mean, [0.0, 0.25])
    np.testing.assert_allclose(mapped.scale, [[4 / 25, 1 / 20], [1 / 20, 9 / 16]])
    assert (mapped.strength, mapped.dof) == (2.0, 6.0)


@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (-3.0, 5.0), (100.0, 101.0)])
def test_the_weak_prior_does_not_depend_on_the_units(low, high):
    inside = Coordinates(np.array([low, 0.0]), np.array([high, 1.0]), True)
    mapped = covariates_in(inside, None)
    np.testing.assert_allclose([mapped.mean[0], mapped.scale[0, 0], mapped.dof], [0.0, 0.25, 3.0], atol=1e-12)
    assert weak_covariates(np.array([low]), np.array([high])).strength == 1.0


def test_records_are_clipped_to_the_very_floats_of_the_box():
    """Also where scaling rounds: without an intercept the nearer bound is no round number in coordinates."""
    inside = Coordinates(np.array([0.1, -7.3]), np.array([0.3, 2.9]), False)
    low, high = inside.box
    outside = inside.records(np.array([[-1e300, -1e300], [1e300, 1e300]]))
    assert (outside == [low, high]).all()
    assert np.abs(inside.box).max(axis=0).tolist() == [1.0, 1.0]


def test_without_an_intercept_nothing_is_centred():
    inside = Coordinates(np.array([1.0, 10.0]), np.array([2.0, 20.0]), False)
    assert inside.records(np.array([[1.0, 10.0]])).tolist() == [[0.5, 0.5]]


def test_bounds_may_be_one_pair_for_all_covariates_or_one_for_each_or_one_by_name():
    def sides(*arguments, **names):
        lower, upper = column_bounds(*arguments, **names)
        return list(zip(lower.tolist(), upper.tolist(), strict=True))

    assert sides((0, 1), (5, 6), 3) == [(0, 1)] * 3 + [(5, 6)]
    assert sides([(0, 1), (5, 10)], (5, 6), 2) == [(0, 1), (5, 10), (5, 6)]  # not (0, 5) and (1, 10)
    assert sides(np.array([[0, 1], [5, 10], [2, 3]]), (5, 6)) == [(0, 1), (5, 10), (2, 3), (5, 6)]
    assert sides(zip([0, 5, 2], [1, 10, 3], strict=True), (5, 6), 3) == [(0, 1), (5, 10), (2, 3), (5, 6)]
    by_name = {"b": (5, 10), "a": (0, 1)}
    assert sides(by_name, (5, 6), 2, ["a", "b"]) == [(0, 1), (5, 10), (5, 6)]
    assert sides(by_name, (5, 6)) == [(5, 10), (0, 1), (5, 6)]


@pytest.mark.parametrize(
    ("x_bounds", "y_bounds", "d", "error", "message"),
    [
        (3, (0, 1), None, TypeError, "x_bounds must be a pair"),
        ((1, 0), (0, 1), None, ValueError, "x_bounds must have low < high"),
        ([(0, 1), (2, 2)], (0, 1), None, ValueError, "x_bounds of covariate 1 must have low < high"),
        ((0, np.nan), (0, 1), None, ValueError, r"x_bounds\[1\] must be finite"),
        ([(0, 1), (0, 1)], (0, 1), 3, ValueError, "x_bounds must have one pair for each of the 3 covariates, got 2"),
        ((0, 1), (1, 1), None, ValueError, "y_bounds must have low < high"),
        ((0, 1), 4, None, TypeError, "y_bounds must be a pair"),
        (("a", "b"), (0, 1), None, TypeError, r"x_bounds\[0\] must be a number"),
        (([0, 5], [1, 10]), (0, 1), 2, ValueError, r"x_bounds can be read in two ways.*list\(zip\(lows, highs\)\)"),
        (((0, 1), (5, 10)), (0, 1), 2, ValueError, "x_bounds can be read in two ways"),
        ([[0, 1], [5, 10]], (0, 1), 2, ValueError, "x_bounds can be read in two ways"),
        (np.array([[0, 1], [5, 10]]), (0, 1), 2, ValueError, "x_bounds can be read in two ways"),
        (([0, 0, 0], [1, 1, 1]), (0, 1), 3, ValueError, "x_bounds can be read in two ways"),
        ((0, [1, 2]), (0, 1), 2, ValueError, "x_bounds can be read in two ways"),
        ([(0, 0, 0), (1, 1, 1)], (0, 1), 3, TypeError, "x_bounds of covariate 0 must be a pair"),
        ({}, (0, 1), None, ValueError, "x_bounds must have a pair"),
        ({"a": (1, 0)}, (0, 1), None, ValueError, r"x_bounds\['a'\] must have low < high"),
        ((0, 5e-324), (0, 1), None, ValueError, r"x_bounds must be at least 2\*\*-990 apart"),
        ((0, 1), (-1.7e308, 1.7e308), None, ValueError, "y_bounds must be .* at most the largest float"),
        (
            None,
            (0, 1),
            None,
            TypeError,
            "x_bounds must be given: public bounds .* never from the data; .*private_bounds",
        ),
        (
            (0, 1),
            None,
            None,
            TypeError,
            "y_bounds must be given: public bounds .* never from the data; .*private_bounds",
        ),
    ],
)
def test_wrong_bounds_are_named(x_bounds, y_bounds, d, error, message):
    with pytest.raises(error, match=message):
        column_bounds(x_bounds, y_bounds, d)


def test_bounds_by_name_must_name_the_columns():
    with pytest.raises(
        ValueError, match=r"x_bounds must name the columns of X, which are \['a', 'b'\]; .*\['a', 'c'\]"
    ):
        column_bounds({"a": (0, 1), "c": (0, 1)}, (0, 1), 2, ["a", "b"])


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("far", [np.inf, 1.7e308, 1e9])
def test_records_beyond_the_bounds_are_at_the_bounds_however_far_and_in_silence(far, intercept):
    bounds = np.array([[-1.7e308, 0.0, -1e-290, -5.0], [-1.6e308, 1.0, 1e-290, 7.0]])
    box = Coordinates(*bounds, intercept).box
    rows = np.array([np.full(4, far), np.full(4, -far)])
    with np.errstate(over="ignore", invalid="raise", divide="raise"):
        inside = Coordinates(*bounds, intercept).records(rows)
    np.testing.assert_array_equal(inside[:, 1:], [box[1][1:], box[0][1:]])
    assert ((box[0] <= inside) & (inside <= box[1])).all()
