"""Inference with a latent record for every person: the yardstick for methods that know only sums.

Nothing is approximated: neither the law of the sums nor their noise. The price is a posterior of more than n (d + 1)
dimensions, sampled by PyMC's No-U-Turn sampler (extra ``pymc``), so that cost grows with n. The density and its
gradient are written in NumPy, since PyMC's own compiler would take longer than the sampling.
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from dpbook._arrays import Array
from dpbook.regression.collapsed import CollapsedTarget
from dpbook.regression.parametrisation import Natural, Parametrisation
from dpbook.regression.starts import information_at, start_of
from dpbook.regression.task import Draws, Task

__all__: list[str] = []


def sample(
    task: Task,
    *,
    per_chain: int,
    chains: int,
    rng: np.random.Generator,
    progress: bool = False,
    warm_up: int = 500,
) -> Draws:
    """Draw theta and sigma2 together with all unseen records, one release after the other."""
    theta = np.empty((task.releases, chains, per_chain, task.layout.regressors))
    sigma2 = np.empty((task.releases, chains, per_chain))
    for i in range(task.releases):
        one = task.part(slice(i, i + 1))
        target = RecordsTarget(one)
        first = target.start(chains, rng)
        found = _no_u_turn(target.evaluate, first, per_chain, chains, warm_up, rng, progress)  # (chain, draw, dim)
        natural = target.parameters(found.reshape(-1, found.shape[-1]))
        theta[i] = natural.theta.T.reshape(chains, per_chain, -1)
        sigma2[i] = natural.sigma2.reshape(chains, per_chain)
    return Draws(theta, sigma2)


class RecordsTarget:
    """The joint density of the parameters and of all records, given one release.

    A position is that of the parameters (``Parametrisation``), then for every record d standard normal numbers z and
    one number e: ``x = mean_x + L z`` and ``y = theta'w + sigma e``.
    """

    def __init__(self, task: Task) -> None:
        self._task = task
        self._map = Parametrisation.of(task, 1)
        self._n, layout = int(task.n[0]), task.layout
        self._unit = np.ones(self._map.dim)
        self._share = np.where(np.eye(layout.width, dtype=bool), 1.0, 0.5)

    @property
    def dim(self) -> int:
        """Length of a position."""
        return self._map.dim + self._n * (self._task.layout.d + 1)

    def start(self, chains: int, rng: np.random.Generator) -> Array:
        """Return positions (chain, dim) where the parameters fit the release and the records are theirs.

        From then on a parameter's entry is measured in units of about its standard deviation, so that one step
        size fits all.
        """
        with np.errstate(all="ignore"):
            centred, position, _ = start_of(CollapsedTarget(self._task, chains), self._task, chains, rng)
            plain = Parametrisation.of(self._task, chains)
            parameters = plain.position_of(centred.natural(position))
            noise = np.full((self._task.layout.size, chains), 2 * self._task.scale[0] ** 2)
            told = information_at(CollapsedTarget(self._task, chains), plain, self._task, parameters, noise)
        self._unit = 1 / np.sqrt(np.diagonal(told, axis1=-2, axis2=-1).mean(axis=0))
        parameters /= self._unit[:, None]
        records = rng.standard_normal((chains, self.dim - self._map.dim))
        return np.concatenate([parameters.T, records], axis=1)

    def parameters(self, positions: Array) -> Natural:
        """Return the parameters at positions (draw, dim), the draws last."""
        repeated = Parametrisation.of(self._task, len(positions))
        return repeated.natural((positions[:, : self._map.dim] * self._unit).T)

    def evaluate(self, position: Array) -> tuple[float, Array]:
        """Return the log density at a position (dim,), and its gradient."""
        with np.errstate(all="ignore"):  # the sampler refuses what overflows
            return self._evaluate(position)

    def _evaluate(self, position: Array) -> tuple[float, Array]:
        task, layout = self._task, self._task.layout
        d, q, first = layout.d, layout.regressors, int(layout.intercept)
        dim = self._map.dim
        here = (position[:dim] * self._unit)[:, None]
        forward = self._map.forward(here)
        theta, root, sigma = forward.natural.theta[:, 0], forward.root[..., 0], float(forward.sigma[0])
        noise = position[dim:].reshape(self._n, d + 1)
        z, e = noise[:, :d], noise[:, d]
        u = np.ones((self._n, layout.width))
        u[:, first:q] = forward.natural.mean_x[:, 0] + z @ root.T
        u[:, q] = u[:, :q] @ theta + sigma * e
        gap = task.noisy[0] - layout.vector(u.T @ u)
        scale = task.scale[0]
        if task.laplace:
            fit, pull = -np.abs(gap).sum() / scale, np.sign(gap) / scale
        else:
            fit, pull = -0.5 * (gap @ gap) / scale**2, gap / scale**2
        by_u = 2 * u @ (self._share * layout.matrix(pull, 0.0))
        by_y = by_u[:, q]
        by_x = by_u[:, first:q] + by_y[:, None] * theta[first:]
        by = Natural(
            (by_y @ u[:, :q])[:, None],
            np.array([by_y @ e / (2 * sigma)]),
            by_x.sum(axis=0)[:, None],
            np.zeros((d, d, 1)),
        )
        log_prior, gradient = self._map.gradient(here, forward, by, (by_x.T @ z)[..., None])
        by_noise = np.concatenate([by_x @ root, (sigma * by_y)[:, None]], axis=1) - noise
        value = float(log_prior[0]) + fit - 0.5 * float((noise * noise).sum())
        return value, np.concatenate([self._unit * gradient[:, 0], by_noise.ravel()])


def require_pymc() -> tuple[Any, Any]:
    """Return PyMC and PyTensor, or say what to install."""
    try:
        return importlib.import_module("pymc"), importlib.import_module("pytensor")
    except ImportError as error:
        raise ImportError('method "individual" needs PyMC: pip install "dpbook[pymc]"') from error


def _no_u_turn(
    density: Callable[[Array], tuple[float, Array]],
    first: Array,
    per_chain: int,
    chains: int,
    warm_up: int,
    rng: np.random.Generator,
    progress: bool,
) -> Array:
    """Hand a NumPy density to PyMC's sampler; return draws (chain, draw, dim)."""
    pymc, pytensor = require_pymc()
    graph: Any = importlib.import_module("pytensor.graph")

    class Density(graph.Op):  # type: ignore[misc]
        def make_node(self, position: Any) -> Any:
            position = pytensor.tensor.as_tensor_variable(position)
            return graph.Apply(self, [position], [pytensor.tensor.dscalar(), pytensor.tensor.dvector()])

        def perform(self, node: Any, inputs: Any, outputs: Any) -> None:
            value, gradient = density(inputs[0])
            outputs[0][0], outputs[1][0] = np.asarray(value), gradient

        def L_op(self, inputs: Any, outputs: Any, output_gradients: Any) -> Any:
            return [output_gradients[0] * outputs[1]]

    with _quiet("pymc"), pytensor.config.change_flags(mode="FAST_COMPILE"), pymc.Model():
        position = pymc.Flat("position", shape=first.shape[1])
        pymc.Potential("density", Density()(position)[0])
        trace = pymc.sample(
            draws=per_chain,
            tune=warm_up,
            chains=chains,
            cores=1,
            init="adapt_diag",
            initvals=[{"position": one} for one in first],
            random_seed=int(rng.integers(2**31)),
            progressbar=progress,
            compute_convergence_checks=False,
        )
    return np.asarray(trace.posterior["position"].values, dtype=np.float64)


@contextmanager
def _quiet(name: str) -> Iterator[None]:
    """Keep a library from reporting its progress through logging."""
    logger = logging.getLogger(name)
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)
