"""Hamiltonian sampling of any smooth density: its target, its reversibility, what the warm-up learns."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from dpbook._arrays import Array
from dpbook.hamiltonian import Info, Kernel, State, Tuning, WarmUp, _learnt, by_chain
from dpbook.sampling import run

COVARIANCES = np.array([[[1.0, 0.9], [0.9, 1.0]], [[100.0, -0.5], [-0.5, 0.01]], [[0.2, 0.0], [0.0, 3.0]]])


def normals(chains: int) -> Kernel:
    """Three normal posteriors, with an identity for a first metric."""
    precision = np.tile(np.moveaxis(np.linalg.inv(COVARIANCES), 0, -1), chains)

    def density(position: Array) -> tuple[Array, Array]:
        pull = -(precision * position[None]).sum(axis=1)
        return 0.5 * (position * pull).sum(axis=0), pull

    return Kernel(density, Tuning.first(np.tile(np.eye(2)[..., None], 3 * chains), chains))


def sampled(chains: int, draws: int, warm_up: int, rng: np.random.Generator, thin: int = 1) -> dict[str, Array]:
    kernel = normals(chains)

    def record(_: np.random.Generator, state: State, info: Info) -> dict[str, Array]:
        return {"x": by_chain(state.position, chains), **{k: by_chain(v, chains) for k, v in info._asdict().items()}}

    start = kernel.start(rng.normal(scale=3, size=(2, 3 * chains)))
    adapt = WarmUp(warm_up)
    return run(kernel, start, per_chain=draws, burn_in=warm_up, thin=thin, adapt=adapt, record=record, rng=rng)


def test_every_posterior_of_a_batch_is_drawn_from_its_own_law() -> None:
    """500 chains of which only the last state counts: independent draws; nine KS tests at the 1e-4 level."""
    kept = sampled(500, 1, 150, np.random.default_rng(1))
    for posterior, covariance in enumerate(COVARIANCES):
        white = np.linalg.solve(np.linalg.cholesky(covariance), kept["x"][:, 0, posterior].T)
        for each in (*white, np.sqrt(0.5) * (white[0] + white[1])):
            assert stats.kstest(each, "norm").pvalue > 1e-4


def test_the_warm_up_learns_each_posterior_s_covariance_and_a_good_step() -> None:
    kernel, rng, warm_up = normals(50), np.random.default_rng(2), WarmUp(300)
    state = kernel.start(rng.normal(size=(2, 150)))
    for iteration in range(300):
        state, info = kernel(rng, state)
        kernel = warm_up(kernel, state, info, iteration)
    root = np.moveaxis(kernel.tuning.root[..., :3], -1, 0)
    np.testing.assert_allclose(
        np.diagonal(root @ np.swapaxes(root, 1, 2), axis1=1, axis2=2), [[1, 1], [100, 0.01], [0.2, 3]], rtol=0.2
    )
    rates = np.mean([kernel(rng, state)[1].acceptance.reshape(50, 3).mean(axis=0) for _ in range(20)], axis=0)
    assert ((rates > 0.65) & (rates < 0.95)).all()


def test_nothing_is_learnt_after_the_warm_up() -> None:
    calls = []

    class Counted(WarmUp):
        def __call__(self, kernel: Kernel, state: State, info: Info, iteration: int) -> Kernel:
            calls.append(iteration)
            return super().__call__(kernel, state, info, iteration)

    kernel = normals(2)
    record = lambda _, state, __: {"x": by_chain(state.position, 2)}  # noqa: E731
    run(kernel, kernel.start(np.zeros((2, 6))), per_chain=5, thin=3, burn_in=7, adapt=Counted(7), record=record)
    assert calls == list(range(7))


def test_leapfrog_keeps_the_energy_and_its_error_falls_with_the_square_of_the_step() -> None:
    """Halving the step divides the change of energy over a trajectory by about four."""
    kernel, rng = normals(2000), np.random.default_rng(3)
    root = np.tile(np.moveaxis(np.linalg.cholesky(COVARIANCES), 0, -1), 2000)
    state = kernel.start((root * rng.normal(size=(2, 6000))[None]).sum(axis=1))
    lost = []
    for size, steps in ((0.4, 4), (0.2, 8)):
        tuning = Tuning(root, np.full(3, np.log(size)), steps)
        _, info = Kernel(kernel.density, tuning)(np.random.default_rng(4), state)
        lost.append(np.mean(1 - info.acceptance))
    assert 3 < lost[0] / lost[1] < 5.5


def test_the_energy_that_a_move_tells_is_that_of_position_and_momentum() -> None:
    """In two dimensions twice its mean above the mode is 4 by equipartition: within five standard errors."""
    kept = sampled(200, 40, 150, np.random.default_rng(5), thin=3)
    energy = kept["energy"].mean(axis=(0, 1))
    assert np.abs(energy - 2).max() < 5 * np.sqrt(2 / (200 * 40 / 3))


def test_a_proposal_without_a_density_is_refused() -> None:
    """A half-normal: beyond zero the density is zero or not a number, and no chain goes there."""

    def density(position: Array) -> tuple[Array, Array]:
        value = np.where(position[0] > 0, -0.5 * position[0] ** 2, np.nan)
        return np.where(position[0] < -1, -np.inf, value), -position

    kernel = Kernel(density, Tuning.first(np.ones((1, 1, 400)), 400))
    record = lambda _, state, __: {"x": by_chain(state.position, 400)}  # noqa: E731
    start, rng = kernel.start(np.full((1, 400), 0.5)), np.random.default_rng(6)
    kept = run(kernel, start, per_chain=1, burn_in=100, adapt=WarmUp(100), record=record, rng=rng)["x"].ravel()
    assert (kept > 0).all()
    assert stats.kstest(kept, "halfnorm").pvalue > 1e-4


def test_a_singular_window_leaves_a_usable_metric() -> None:
    """Chains that never moved tell nothing: the metric stays near the old one."""
    kernel, warm_up = normals(4), WarmUp(20)
    state, info = kernel.start(np.zeros((2, 12))), Info(np.ones(12), np.zeros(12))
    for iteration in range(20):
        kernel = warm_up(kernel, state, info, iteration)
    assert np.isfinite(kernel.tuning.root).all()
    assert (np.abs(kernel.tuning.root).max(axis=1) > 0).all()


@pytest.mark.parametrize("chains", [1, 2, 3])
def test_by_chain_undoes_the_order_of_the_batch(chains: int) -> None:
    batch = np.arange(2 * 6.0).reshape(2, 6)
    found = by_chain(batch, chains)
    assert found.shape == (chains, 6 // chains, 2)
    np.testing.assert_array_equal(np.moveaxis(found, -1, 0).reshape(2, 6), batch)


def _window(covariance: Array, chains: int, each: int, seed: int = 1) -> Array:
    rng, dim = np.random.default_rng(seed), len(covariance)
    drawn = rng.normal(size=(each, chains, dim)) @ np.linalg.cholesky(covariance).T
    return np.moveaxis(drawn, 2, 1)


def test_in_many_dimensions_a_good_metric_is_kept_and_a_bad_one_is_not() -> None:
    """Twenty chains of 30 draws say little of 40 variances and 780 covariances, unless the metric is far off."""
    dim, chains = 40, 20
    good = np.tile(np.eye(dim)[..., None], chains)
    learnt = _learnt(_window(np.eye(dim), chains, 45), good, chains)[..., 0]
    off = np.linalg.eigvalsh(learnt @ learnt.T)
    sample = _window(np.eye(dim), chains, 45)[15:].swapaxes(1, 2).reshape(-1, dim)
    assert np.ptp(off) < 0.2 * np.ptp(np.linalg.eigvalsh(np.cov(sample.T)))
    wide = np.diag(np.geomspace(1e-4, 1e4, dim))
    metric = good
    for seed in range(3):  # the windows of a warm-up
        metric = _learnt(_window(wide, chains, 100, seed), metric, chains)
    root = np.linalg.solve(np.sqrt(wide), metric[..., 0])
    ratio = np.linalg.eigvalsh(root @ root.T)
    assert ratio[0] > 0.4
    assert ratio[-1] < 2.5
