"""What a posterior of a regression has to doubt: clipped records, sums that are not normal, a prior in conflict.

All of it is read off the release, the prior and the draws; the chains themselves are looked at by
:mod:`dpbook.doubts`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from dpbook._arrays import Array
from dpbook.doubts import Doubt, ManyClipped, Misfit, PoorApproximation, prior_conflict
from dpbook.moments import clipped_normal
from dpbook.priors import draw_normal_inverse_wishart
from dpbook.regression.clipping import LEVEL, Columns, Look, look_at
from dpbook.regression.layout import Layout
from dpbook.regression.posterior import RegressionPosterior
from dpbook.regression.task import Task

__all__: list[str] = []

CLIPPING_KNOWN = ("moments", "records", "naive")  # the last knows nothing at all, and says so
NORMAL_SUMS = ("fixed-design", "moments")
_JUDGED = ("collapsed", "exact", "moments", "records")  # methods under whose priors a release is judged
_SHARE, _SHIFT = 0.02, 1.0  # of responses clipped, and of their sum by that, in sds: above both it is said
# Of a slope, in sds, if clipped covariates lay twice as far from the mean as their bound does: half is 92 % coverage.
_LEVERAGE = 0.5
_APART = 1.0  # sds between two readings of one release
# Of a sum of squares. To first order (Edgeworth) it moves each end's 2.5 % by skewness × 2.8 points.
_SKEWNESS = 0.5
_SIMULATED, _RECORDS = 4000, 200  # releases from the prior, and records of each
_DESIGNS = 10  # different n, noise and bounds in one batch, up to which priors are judged


def doubts_of(
    task: Task,
    methods: Sequence[Sequence[str]],
    posteriors: Sequence[RegressionPosterior],
    names: Sequence[Sequence[str]],
    rng: np.random.Generator,
) -> list[list[Doubt]]:
    """Return what to doubt about each release, given the methods that share its draws and its columns' names."""
    look = look_at(task)
    found: list[list[Doubt]] = [[] for _ in methods]
    lost = _lost(task, look.columns)
    for i, each in enumerate(methods):
        if "naive" in each:
            continue
        if np.isfinite(look.verdict.noise[i]):
            found[i] += _counted(task, look, i, each, posteriors[i], names[i])
        else:
            found[i] += _uncounted(look, i, each, posteriors[i], names[i], *(part[i] for part in lost))
    for i, doubt in _skewed(task, methods, look.columns.mean, look.columns.variance).items():
        found[i].append(doubt)
    if task.prior is not None and any(set(each) & set(_JUDGED) for each in methods):
        for i, conflict in _conflicts(task, rng).items():
            found[i].append(conflict)
    return found


# ---------------------------------------------------------------------------------------------------------------------
# Clipping


def _counted(
    task: Task, look: Look, i: int, methods: Sequence[str], posterior: RegressionPosterior, names: Sequence[str]
) -> Iterator[Doubt]:
    """Yield the doubts about a release that counts its clipped records, one a column."""
    verdict, columns, n = look.verdict, look.columns, float(task.n[i])
    known = set(methods) <= set(CLIPPING_KNOWN)
    parts = _weights(look, i, n)
    pulls = _slope_in_sds(posterior, 0, len(methods)) * parts[:-1]
    noise = float(np.sqrt(n * columns.variance[i, -1] + task.noise_variance[i]))
    reach = np.sqrt(n * parts[-1] * verdict.clipped[i, -1].clip(0) * columns.variance[i, -1])  # count × distance, about
    matters = np.append(pulls >= _LEVERAGE, reach >= _SHIFT * noise)
    for j, name in enumerate(names):
        count, share = verdict.clipped[i, j], verdict.clipped[i, j] / n
        if not verdict.seen[i, j]:
            if known and verdict.too_few[i, j]:
                yield Misfit(
                    f"this method takes {name} as normal, with {100 * look.normal.cut[i, j]:.0f} % of it clipped, "
                    f"but about {max(count, 0.0):.0f} of {n:.0f} records were",
                    'use method="fixed-design"',
                    weight=look.normal.cut[i, j],
                    chance=LEVEL,
                )
            continue
        if not matters[j] or (known and verdict.as_normal[i, j]):
            continue
        side = "y_bounds" if j == len(names) - 1 else f"x_bounds of {name}"
        about = f"about {count:.0f} of {n:.0f} records ({_percent(share)}) had {name} clipped"
        how = "" if verdict.as_normal[i, j] else ", not as a normal one would be"
        cause = (
            f"{about}{how}: coefficients are those of clipped responses"
            if j == len(names) - 1
            else f"{about}{how}: they carry {_percent(parts[j])} of its spread, and slopes are of clipped covariates"
        )
        if verdict.as_normal[i, j] and "moments" not in methods:
            yield ManyClipped(cause, f'use method="moments", or release with wider {side}', share, LEVEL)
        else:
            yield ManyClipped(cause, f"release with wider {side}", share, LEVEL)


def _weights(look: Look, i: int, n: float) -> Array:
    """Return the part of each column's sum of squares about its mean that clipped records make, sitting at bounds."""
    columns, sides = look.columns, look.verdict.sides[i].clip(0)
    ends = np.stack([columns.low[i] - columns.mean[i], columns.high[i] - columns.mean[i]], axis=1)
    total = n * np.maximum(columns.variance[i], columns.noise[i])
    return np.asarray(np.minimum((sides * ends**2).sum(axis=1) / np.maximum(total, 1e-12), 1.0))


def _uncounted(
    look: Look,
    i: int,
    methods: Sequence[str],
    posterior: RegressionPosterior,
    names: Sequence[str],
    share: float,
    shift: float,
) -> Iterator[Doubt]:
    """Yield the doubts about a release that holds nothing but sums."""
    if set(methods) <= set(CLIPPING_KNOWN):
        return
    columns, normal = look.columns, look.normal
    slopes = _slope_in_sds(posterior, 0, len(methods))
    factor = look.steeper[i]
    steep = np.flatnonzero(columns.crowded[i, :-1] & (np.abs(factor[:-1] - 1) * slopes >= _SHIFT)).tolist()
    for j in steep:
        cause = (
            f"{names[j]} spreads more than anything with a single peak inside its bounds: if it is normal, "
            f"{_percent(normal.cut[i, j])} of it was clipped, and its slope is {factor[j]:.1f} times too steep"
        )
        yield ManyClipped(cause, _TELL.format(f"x_bounds of {names[j]}"), weight=normal.cut[i, j])
    if columns.sure[i, -1] and share >= _SHARE and shift >= _SHIFT and not columns.two_valued[i, -1]:
        if "moments" in methods:
            cause = f"if responses are normal, {_percent(share)} or more of them were clipped, and sums do not tell"
            yield ManyClipped(cause, _TELL.format("y_bounds"), weight=share)
        else:
            cause = (
                f"if responses are normal, {_percent(share)} or more of them were clipped, which this method ignores"
            )
            yield ManyClipped(cause, 'use method="moments", or wider y_bounds in the next release', weight=share)
    elif "moments" in methods and not steep and (apart := _apart(posterior, len(methods))) >= _APART:
        cause = f"a reading in which records were clipped and one in which they were not are {apart:.1f} sd apart"
        yield ManyClipped(cause, _TELL.format("bounds"), weight=share)


_TELL = 'release with check=0.1, which tells, or wider {}; if you know, say method="moments" or "fixed-design"'


def _lost(task: Task, columns: Columns) -> tuple[Array, Array]:
    """Return the share of normal responses that clipping would take, and how far that moves their sums, in sds."""
    mean, variance = columns.mean[:, -1], columns.variance[:, -1]
    sd = np.sqrt(np.maximum(variance, 1e-12))
    cut = clipped_normal(mean, sd, columns.low[:, -1], columns.high[:, -1])
    shift = task.n * np.abs(cut.moments[0] - mean) / np.sqrt(task.n * sd**2 + task.noise_variance)
    lost = task.n * (1 - (cut.moments[1] - cut.moments[0] ** 2) / sd**2) * sd**2
    return 1 - cut.inside, np.maximum(shift, lost / np.sqrt(2 * task.n * sd**4 + task.noise_variance))


def _readings(posterior: RegressionPosterior, of: int) -> list[tuple[Array, Array]]:
    """Return median and half the width of a 68 % interval of the coefficients, for each of the readings in turn."""
    draws = np.asarray(posterior.draws["theta"])
    found = []
    for first in range(of):
        flat = draws[:, first::of].reshape(-1, draws.shape[-1])
        low, middle, high = np.quantile(flat, [0.16, 0.5, 0.84], axis=0)
        found.append((middle, np.maximum((high - low) / 2, 1e-300)))
    return found


def _slope_in_sds(posterior: RegressionPosterior, reading: int, of: int) -> Array:
    """Return the slopes by one reading, in their own standard deviations."""
    middle, sd = _readings(posterior, of)[reading]
    return np.asarray(np.abs(middle / sd)[int(posterior.intercept) :])


def _apart(posterior: RegressionPosterior, of: int) -> float:
    """Return how far two readings of one release lie apart, in standard deviations, where they do most."""
    (one, its), (other, theirs) = _readings(posterior, of)
    return float(np.max(np.abs(one - other) / np.sqrt((its**2 + theirs**2) / 2)))


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %" if share < 0.095 else f"{100 * share:.0f} %"


# ---------------------------------------------------------------------------------------------------------------------
# Sums that are not normal, priors in conflict


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
        prior_conflict(
            each.noisy[0] / each.n[0],
            predicted[key],
            names=names,
            remedy=_VAST if _is_vast(each.noisy[0] / each.n[0], predicted[key], task.layout) else "",
        )
        for key, each in zip(keys, parts, strict=True)
    )
    return {i: doubt for i, doubt in enumerate(doubts) if doubt is not None}


_VAST = "narrow the prior: most records that it expects lie beyond the bounds, and these do not"


def _is_vast(released: Array, predicted: Array, layout: Layout) -> bool:
    """Tell whether a prior expects a column to crowd at its bounds, ±1, where the released one lies in the middle."""
    first = int(layout.intercept)
    low, middle, high = np.quantile(predicted, [0.05, 0.5, 0.95], axis=0)
    squares = layout.position.diagonal()[first:]
    found = (middle[squares] > 0.5) & (released[squares] < low[squares])
    if first:
        means = layout.position[0, 1:]
        found &= (low[means] <= released[means]) & (released[means] <= high[means])
    return bool(found.any())


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
