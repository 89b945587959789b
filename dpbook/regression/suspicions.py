"""What a posterior of a regression has to doubt: clipped responses, sums that are not normal, a prior in conflict.

All of it is read off the release and the prior; the chains themselves are looked at by :mod:`dpbook.doubts`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dpbook._arrays import Array
from dpbook.doubts import Doubt, ManyClipped, PoorApproximation, prior_conflict
from dpbook.moments import clipped_normal
from dpbook.priors import draw_normal_inverse_wishart
from dpbook.regression.layout import Layout
from dpbook.regression.task import Task

__all__: list[str] = []

CLIPPING_KNOWN = ("moments", "records", "naive")  # the last knows nothing at all, and says so
NORMAL_SUMS = ("fixed-design", "moments")
_JUDGED = ("collapsed", "exact", "moments", "records")  # methods under whose priors a release is judged
_SHARE, _SHIFT = 0.02, 1.0  # of responses clipped, and of their sum by that, in sds: above both it is said
# Of a sum of squares. To first order (Edgeworth) it moves each end's 2.5 % by skewness × 2.8 points.
_SKEWNESS = 0.5
_SIMULATED, _RECORDS = 4000, 200  # releases from the prior, and records of each
_DESIGNS = 10  # different n, noise and bounds in one batch, up to which priors are judged


def doubts_of(task: Task, methods: Sequence[Sequence[str]], rng: np.random.Generator) -> list[list[Doubt]]:
    """Return what to doubt about each release, given the methods that share its draws."""
    mean, variance, sure = _columns(task)
    found: list[list[Doubt]] = [[] for _ in methods]
    for each in (_clipped(task, methods, mean, variance, sure), _skewed(task, methods, mean, variance)):
        for i, doubt in each.items():
            found[i].append(doubt)
    if task.prior is not None and any(set(names) & set(_JUDGED) for names in methods):
        for i, conflict in _conflicts(task, rng).items():
            found[i].append(conflict)
    return found


def _columns(task: Task) -> tuple[Array, Array, NDArray[np.bool_]]:
    """Return about the mean and variance of every column (release, d + 1), and whether noise leaves the response's."""
    layout, first = task.layout, int(task.layout.intercept)
    where = layout.position
    means = task.noisy / task.n[:, None]
    columns = range(first, layout.width)
    zero = np.zeros(task.releases)
    mean = np.stack([np.clip(means[:, where[0, j]], -1, 1) if first else zero for j in columns], axis=1)
    variance = np.stack([means[:, where[j, j]] for j in columns], axis=1) - mean**2
    noise = np.sqrt(task.noise_variance * (1 + 4 * mean[:, -1] ** 2)) / task.n
    return mean, np.clip(variance, 0.0, 1.0), variance[:, -1] > 3 * noise


def _clipped(
    task: Task, methods: Sequence[Sequence[str]], mean: Array, variance: Array, sure: NDArray[np.bool_]
) -> dict[int, Doubt]:
    """Return the doubts that responses were clipped, where no method knows of it."""
    low, high = (each[:, -1] for each in task.box)
    sd = np.sqrt(np.maximum(variance[:, -1], 1e-12))
    cut = clipped_normal(mean[:, -1], sd, low, high)
    share = 1 - cut.inside
    shift = task.n * np.abs(cut.moments[0] - mean[:, -1]) / np.sqrt(task.n * sd**2 + task.noise_variance)
    lost = task.n * (1 - (cut.moments[1] - cut.moments[0] ** 2) / sd**2) * sd**2
    shift = np.maximum(shift, lost / np.sqrt(2 * task.n * sd**4 + task.noise_variance))
    found: dict[int, Doubt] = {}
    for i, names in enumerate(methods):
        if set(names) & set(CLIPPING_KNOWN) or not sure[i] or share[i] < _SHARE or shift[i] < _SHIFT:
            continue
        cause = (
            f"if responses are normal, {100 * share[i]:.0f} % or more of them were clipped, which this method ignores"
        )
        found[i] = ManyClipped(cause, 'use method="moments", or wider y_bounds in the next release', weight=share[i])
    return found


def _skewed(task: Task, methods: Sequence[Sequence[str]], mean: Array, variance: Array) -> dict[int, Doubt]:
    """Return the doubts that sums are too skewed to be taken as normal: third moments of squares, noise included.

    The square of a normal variable has third cumulant 8 v³ + 24 v² m², and variance 2 v² + 4 v m².
    """
    third = task.n[:, None] * (8 * variance**3 + 24 * variance**2 * mean**2)
    spread = task.n[:, None] * (2 * variance**2 + 4 * variance * mean**2) + task.noise_variance[:, None]
    skewness = third / spread**1.5
    found: dict[int, Doubt] = {}
    for i, names in enumerate(methods):
        columns = slice(None) if "moments" in names else slice(-1, None)
        worst = skewness[i, columns].max()
        if set(names) & set(NORMAL_SUMS) and worst > _SKEWNESS:
            cause = f"sums of squares of {task.n[i]:.0f} records have skewness {worst:.2f}, and are taken as normal"
            found[i] = PoorApproximation(cause, 'use method="records"', weight=float(worst))
    return found


def _conflicts(task: Task, rng: np.random.Generator) -> dict[int, Doubt]:
    """Return the doubts that releases contradict their prior, unless designs are so many that it would take minutes."""
    parts = [task.part(slice(i, i + 1)) for i in range(task.releases)]
    keys = [tuple(np.concatenate([each.n, each.scale, *map(np.ravel, each.box)])) for each in parts]
    if len(set(keys)) > _DESIGNS:
        return {}
    predicted = {key: _predicted(each, rng) / each.n[0] for key, each in dict(zip(keys, parts, strict=True)).items()}
    names = [f"mean of {name}" for name in _names(task.layout)]
    doubts = (
        prior_conflict(each.noisy[0] / each.n[0], predicted[key], names=names)
        for key, each in zip(keys, parts, strict=True)
    )
    return {i: doubt for i, doubt in enumerate(doubts) if doubt is not None}


def _names(layout: Layout) -> list[str]:
    columns = [*["1"] * layout.intercept, *(f"x{j + 1}" for j in range(layout.d)), "y"]
    return [
        columns[j] if columns[i] == "1" else f"{columns[i]}²" if i == j else f"{columns[i]} {columns[j]}"
        for i, j in zip(layout.rows, layout.columns, strict=True)
    ]


def _predicted(task: Task, rng: np.random.Generator) -> Array:
    """Return noisy sums (simulated, k) that the prior predicts, in coordinates.

    At most some hundred records are drawn and their sums scaled up, which spreads them a little too widely.
    """
    prior, covariates = task.beliefs(_SIMULATED)
    size = int(min(task.n[0], _RECORDS))
    sigma2 = prior.rate / np.maximum(rng.standard_gamma(prior.shape), 1e-300)
    root = np.linalg.inv(np.linalg.cholesky(prior.precision)).swapaxes(1, 2)
    z = rng.standard_normal(prior.mean.shape) * np.sqrt(sigma2)[:, None]
    theta = prior.mean + (root @ z[..., None])[..., 0]
    mean_x, cov_x = draw_normal_inverse_wishart(*covariates, rng)
    x = rng.standard_normal((_SIMULATED, size, task.layout.d)) @ np.linalg.cholesky(cov_x).swapaxes(1, 2)
    x = x + mean_x[:, None]
    ones = np.ones((*x.shape[:2], int(task.layout.intercept)))
    y = (np.concatenate([ones, x], axis=2) @ theta[..., None])[..., 0]
    y = y + np.sqrt(sigma2)[:, None] * rng.standard_normal(y.shape)
    low, high = (each[:, None] for each in task.box)
    u = np.concatenate([ones, np.clip(np.concatenate([x, y[..., None]], axis=2), low, high)], axis=2)
    matrix = u.swapaxes(1, 2) @ u * (task.n[0] / size)
    sums = matrix[:, task.layout.rows, task.layout.columns]
    noise = rng.laplace(size=sums.shape) if task.laplace else rng.standard_normal(sums.shape)
    return np.asarray(sums + task.scale[0] * noise)
