"""Minimisation in a box: against SciPy's L-BFGS-B, whose answer it must match, and at its edges."""

import numpy as np
import pytest
from scipy import optimize

from dpbook.graphical.boxed import minimise_in_box


def quadratic(seed, size=40):
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(size, size)) * rng.gamma(1, size=size)
    matrix, pull = root @ root.T + 0.1 * np.eye(size), rng.normal(size=size)
    return lambda x: (float(0.5 * x @ matrix @ x - pull @ x), matrix @ x - pull), np.diag(matrix)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("width", [0.01, 0.3, np.inf])
def test_it_ends_where_l_bfgs_b_ends(seed, width):
    function, curvature = quadratic(seed)
    bound = np.full(40, width)
    mine = minimise_in_box(function, np.zeros(40), bound, curvature=curvature, settled=lambda: False, iterations=3000)
    theirs = optimize.minimize(
        function,
        np.zeros(40),
        jac=True,
        method="L-BFGS-B",
        bounds=optimize.Bounds(-bound, bound),
        options={"ftol": 0, "gtol": 1e-10, "maxiter": 10_000, "maxfun": 100_000},
    )
    assert (np.abs(mine) <= bound).all()
    assert function(mine)[0] <= theirs.fun + 1e-8 * abs(theirs.fun)


def test_a_linear_function_is_minimised_at_a_corner():
    slope = np.array([1.0, -2.0, 3.0])
    corner = minimise_in_box(
        lambda x: (float(slope @ x), slope),
        np.zeros(3),
        np.ones(3),
        curvature=np.ones(3),
        settled=lambda: False,
        iterations=20,
    )
    assert corner.tolist() == [-1.0, 1.0, -1.0]


def test_the_caller_decides_when_it_is_settled():
    function, curvature = quadratic(0)
    seen = []

    def counted(x):
        seen.append(x)
        return function(x)

    minimise_in_box(
        counted, np.zeros(40), np.ones(40), curvature=curvature, settled=lambda: len(seen) >= 7, iterations=3000
    )
    assert len(seen) == 7


def test_a_bad_guess_of_the_curvature_costs_steps_not_the_answer():
    function, curvature = quadratic(3)
    rng = np.random.default_rng(0)
    right, wrong = (
        minimise_in_box(
            function, np.zeros(40), np.full(40, 0.3), curvature=guess, settled=lambda: False, iterations=5000
        )
        for guess in (curvature, np.exp(rng.normal(size=40)))
    )
    assert function(wrong)[0] == pytest.approx(function(right)[0], rel=1e-7)
