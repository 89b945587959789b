"""Latent records by PyMC: the density and its gradient, and agreement with the exact and collapsed samplers."""

import importlib

import numpy as np
import pytest
from scipy import stats

from dpbook.regression import collapsed, exact, individual
from dpbook.regression.individual import RecordsTarget
from dpbook.regression.layout import Layout
from dpbook.regression.task import CovariatePrior, ParameterPrior, Task

pytest.importorskip("pymc")


def small_task(n, scale, rng, *, d=1, intercept=True, mechanism="laplace"):
    """A release of the sums of a few records."""
    layout, one = Layout(d, intercept), np.ones(1)
    q = layout.regressors
    x = rng.normal(0, 0.4, size=(n, d))
    w = np.column_stack([np.ones(n), x]) if intercept else x
    u = np.column_stack([w, w @ np.full(q, 0.4) + rng.normal(0, 0.2, size=n)])
    sums = layout.vector(u.T @ u)
    return Task(
        layout,
        (sums + rng.laplace(scale=scale, size=sums.shape))[None],
        scale * one,
        mechanism,
        n * one,
        ParameterPrior(np.zeros((1, q)), np.eye(q)[None], 5 * one, 0.3 * one),
        CovariatePrior(np.zeros((1, d)), one, 0.5 * np.eye(d)[None], (d + 5) * one),
    )


@pytest.mark.parametrize(
    ("d", "intercept", "mechanism"), [(1, True, "laplace"), (2, False, "gaussian"), (3, True, "laplace")]
)
def test_the_gradient_is_that_of_the_density(d, intercept, mechanism):
    rng = np.random.default_rng(d)
    target = RecordsTarget(small_task(6, 1.0, rng, d=d, intercept=intercept, mechanism=mechanism))
    target.start(2, rng)
    position = 0.5 * rng.normal(size=target.dim)
    _, gradient = target.evaluate(position)
    for i, step in enumerate(1e-6 * np.eye(target.dim)):
        rise = target.evaluate(position + step)[0] - target.evaluate(position - step)[0]
        assert abs(gradient[i] - rise / 2e-6) < 1e-4 * (1 + abs(gradient[i]))


def test_the_density_is_prior_times_records_times_noise():
    # Differences of the log density between two positions, by the textbook densities of SciPy.
    rng = np.random.default_rng(2)
    task = small_task(4, 1.0, rng)
    target = RecordsTarget(task)
    first, second = 0.5 * rng.normal(size=(2, target.dim))

    def by_the_book(position):
        natural = target.parameters(position[None])
        z, e = position[5:].reshape(4, 2).T
        x = natural.mean_x[0, 0] + np.sqrt(natural.cov_x[0, 0, 0]) * z
        y = natural.theta[0, 0] + natural.theta[1, 0] * x + np.sqrt(natural.sigma2[0]) * e
        sums = np.array([x.sum(), y.sum(), x @ x, x @ y, y @ y])
        noise = stats.laplace.logpdf(task.noisy[0] - sums).sum()
        return noise + stats.norm.logpdf(np.r_[z, e]).sum() + target._map.log_prior(position[:5, None])[0]

    difference = target.evaluate(first)[0] - target.evaluate(second)[0]
    assert abs(difference - (by_the_book(first) - by_the_book(second))) < 1e-9


def test_latent_records_agree_with_the_exact_law_at_ten_records_and_with_the_collapsed_one_nearly():
    # 2 chains of 150 draws: at least 60 effective draws. 4.5 standard errors of a mean, and of a log sd.
    rng = np.random.default_rng(5)
    task = small_task(10, 1.0, rng)
    ours = individual.sample(task, per_chain=150, chains=2, rng=rng, warm_up=200)
    gold = exact.sample(task, per_chain=200, chains=10, rng=rng, warm_up=200)
    nearly = collapsed.sample(task, per_chain=200, chains=10, rng=rng, warm_up=200)
    assert ours.theta.shape == (1, 2, 150, 2)
    for pick in (lambda d: d.theta[..., 0], lambda d: d.theta[..., 1], lambda d: np.log(d.sigma2)):
        for other in (gold, nearly):
            sd = pick(other).std()
            assert abs(pick(ours).mean() - pick(other).mean()) < 4.5 * sd / np.sqrt(60)
            assert abs(np.log(pick(ours).std() / sd)) < 4.5 / np.sqrt(2 * 60)


def test_without_pymc_the_error_says_what_to_install(monkeypatch):
    def refuse(name, *args, **options):
        if name.split(".")[0] in ("pymc", "pytensor"):
            raise ImportError(name)
        return found(name, *args, **options)

    found = importlib.import_module
    monkeypatch.setattr(importlib, "import_module", refuse)
    task = small_task(3, 1.0, np.random.default_rng(0))
    with pytest.raises(ImportError, match=r"dpbook\[pymc\]"):
        individual.sample(task, per_chain=1, chains=1, rng=np.random.default_rng(0), warm_up=1)
