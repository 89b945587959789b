"""The naive posterior: noisy sums taken for the truth, moved to the nearest that data could have."""

from __future__ import annotations

import numpy as np

from dpbook.regression.conjugate import draw_parameters
from dpbook.regression.moments import nearest_valid
from dpbook.regression.task import Draws, Task

__all__: list[str] = []


def sample(task: Task, *, per_chain: int, chains: int, rng: np.random.Generator, progress: bool = False) -> Draws:
    """Draw from the conjugate posterior at the noisy sums, moved to the nearest that data could have."""
    layout = task.layout
    valid = layout.matrix(nearest_valid(task.noisy, task.n, layout), task.n)
    matrix = np.broadcast_to(valid, (chains * per_chain, *valid.shape))
    theta, sigma2 = draw_parameters(task.stated(), matrix, task.n, rng)
    shape = (chains, per_chain, task.releases)
    return Draws(np.moveaxis(theta.reshape(*shape, layout.regressors), 2, 0), np.moveaxis(sigma2.reshape(shape), 2, 0))
