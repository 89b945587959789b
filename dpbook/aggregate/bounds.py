"""Private bounds for the partitions' quantiles: found by doubling, as in the source, or centred on them.

A posterior quantile has no bounds of its own, and a mean without bounds has no sensitivity. Both searches read one
number a partition, so that replacing a record changes one of them; each proof says how much that can matter.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from dpbook import noise
from dpbook._arrays import Array
from dpbook._validation import fraction, integer, interval, positive, seeded_generator
from dpbook.budget import PrivacyBudget, charge
from dpbook.mechanisms import above_threshold

__all__ = ["PrivateBounds", "centred_bounds", "centred_failure", "doubled_bounds", "doubling_failure"]

# A candidate may be narrower than the public range by up to this factor.
RESOLUTION = 1024
# The narrowest candidate is worth as much more than the widest as this share of all partitions.
REWARD = 0.5
# Share of the values that some candidate of the right width holds.
HELD = 0.95


class PrivateBounds(NamedTuple):
    """Bounds found privately.

    Attributes
    ----------
    low, high : float
        The bounds.
    found : bool
        False where a search by doubling came to its cap and took the widest bounds.

    Examples
    --------
    >>> from dpbook.aggregate.bounds import PrivateBounds
    >>> PrivateBounds(-1.0, 1.0, True).high
    1.0

    Explained in :doc:`/book/sample-and-aggregate/posterior-quantiles`.
    """

    low: float
    high: float
    found: bool


def centred_bounds(
    values: ArrayLike,
    *,
    public_range: tuple[float, float],
    epsilon: float,
    resolution: int = RESOLUTION,
    rng: np.random.Generator | None = None,
    budget: PrivacyBudget | None = None,
) -> PrivateBounds:
    """Release bounds that are centred on the values and just wide enough, given a public range.

    epsilon-DP for replace-one neighbours, where replacing a record changes one value. The exponential mechanism draws
    among intervals of the public range: widths R, R/√2, R/2, ... down to R / ``resolution``, centres an eighth of a
    width apart. The utility of an interval is the number of values inside, of sensitivity 1, plus a public reward
    for being narrow that grows to half of all values. For normal values with sd s it is largest at a width of
    5 s to 7 s. NaN counts as inside no interval.

    Parameters
    ----------
    values : array
        One number a partition; clipped to the range.
    public_range : (low, high)
        Where the values can lie, known without the data. Pure privacy cannot do without one.
    epsilon : float
        The privacy loss.
    resolution : int, default 1024
        How many times narrower than the range the bounds may become.
    rng : numpy.random.Generator, optional
        Seeded teaching noise; None, the default, draws with a floating-point-safe sampler.
    budget : PrivacyBudget, optional
        Charged before anything is drawn.

    Returns
    -------
    PrivateBounds
        Within the range.

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook.aggregate.bounds import centred_bounds
    >>> rng = np.random.default_rng(0)
    >>> found = centred_bounds(rng.normal(2, 0.1, 1000), public_range=(-10, 10), epsilon=1.0, rng=rng)
    >>> bool(1.5 < found.low < 1.8 and 2.2 < found.high < 2.5)
    True

    Explained in :doc:`/book/sample-and-aggregate/posterior-quantiles`.
    """
    numbers = _one_dimensional(values)
    low, high = interval("public_range", public_range)
    epsilon = positive("epsilon", epsilon)
    rng = seeded_generator(rng)
    noise.require_choice(1.0, epsilon, rng)
    starts, widths, rewards = _candidates(low, high, resolution)
    charge(budget, epsilon, 0.0, label="centred bounds")
    inside = np.sort(np.clip(numbers[~np.isnan(numbers)], low, high))
    count = np.searchsorted(inside, starts + widths, side="right") - np.searchsorted(inside, starts, side="left")
    # Rewards in 1024ths, so that the sums are exact and the utility's computed sensitivity is 1.
    reward = np.rint(rewards * REWARD * len(numbers) * 1024) / 1024
    best = noise.choose(count + reward, 1.0, epsilon, rng)
    return PrivateBounds(float(starts[best]), float(min(starts[best] + widths[best], high)), True)


def _candidates(low: float, high: float, resolution: int) -> tuple[Array, Array, Array]:
    """Return lower ends, widths and rewards (0 for the widest to 1 for the narrowest) of the candidate intervals."""
    levels = 2 * math.log2(integer("resolution", resolution, least=2))
    starts, widths, rewards = [], [], []
    for level in range(math.floor(levels) + 1):
        width = (high - low) * 2 ** (-level / 2)
        steps = math.floor(8 * (2 ** (level / 2) - 1) + 1e-9) + 1
        starts.append(low + width / 8 * np.arange(steps))
        widths.append(np.full(steps, width))
        rewards.append(np.full(steps, level / levels))
    return np.concatenate(starts), np.concatenate(widths), np.concatenate(rewards)


def centred_failure(
    partitions: int, epsilon: float, *, narrowing: float = RESOLUTION, resolution: int = RESOLUTION
) -> float:
    """Return a bound on the probability that centred bounds are so narrow, and empty of values.

    An empty candidate is drawn with odds of at most exp(-epsilon · lead / 2) against a good one, which holds 95 % of
    the values and leads by that less the reward of the empty one. The bound adds up over all candidates at
    most ``narrowing`` times narrower than the range.

    Parameters
    ----------
    partitions : int
        M.
    epsilon : float
        What the search spends.
    narrowing : float
        How many times narrower than the public range; by default as far as it goes.
    resolution : int
        As in :func:`centred_bounds`.

    Returns
    -------
    float
        At most 1.

    Examples
    --------
    >>> from dpbook.aggregate.bounds import centred_failure
    >>> centred_failure(1000, 0.45) < 1e-30, centred_failure(20, 0.45), centred_failure(100, 0.45, narrowing=10) < 1e-4
    (True, 1.0, True)

    Explained in :doc:`/book/sample-and-aggregate/posterior-quantiles`.
    """
    _, widths, rewards = _candidates(0.0, 1.0, resolution)
    seen = widths >= (1 - 1e-9) / positive("narrowing", narrowing)
    lead = (HELD - REWARD * rewards[seen]) * partitions
    return min(1.0, float(np.exp(-positive("epsilon", epsilon) * lead / 2).sum()))


def doubled_bounds(
    values: ArrayLike,
    *,
    epsilon: float,
    theta: float = 0.95,
    start: float = 1.0,
    doublings: int = 30,
    rng: np.random.Generator | None = None,
    budget: PrivacyBudget | None = None,
) -> PrivateBounds:
    """Release symmetric bounds ± start · 2^t, the first that hold about a share ``theta`` of the values.

    epsilon-DP for replace-one neighbours, where replacing a record changes one value: the sparse vector technique on
    nested counts, which are monotone (a value that moves outwards lowers all of them), so that Laplace noise of scale
    2 / epsilon on threshold and counts suffices. The threshold is a share of the *partitions*. After ``doublings``
    doublings the search gives up and takes the widest bounds. NaN counts as inside.

    Parameters
    ----------
    values : array
        One number a partition.
    epsilon : float
        The privacy loss of the whole search.
    theta : float, default 0.95
        The share to hold. Keep (1 - theta) M above 4 ln(20) / epsilon, or the search overshoots.
    start : float, default 1.0
        The narrowest half-width.
    doublings : int, default 30
        The cap.
    rng, budget
        As in :func:`centred_bounds`.

    Returns
    -------
    PrivateBounds
        Symmetric about 0.

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook.aggregate.bounds import doubled_bounds
    >>> rng = np.random.default_rng(0)
    >>> doubled_bounds(rng.normal(2, 0.1, 1000), epsilon=1.0, rng=rng)
    PrivateBounds(low=-4.0, high=4.0, found=True)

    Explained in :doc:`/book/sample-and-aggregate/posterior-quantiles`.
    """
    numbers = np.abs(np.nan_to_num(_one_dimensional(values), nan=0.0))
    theta, start = fraction("theta", theta), positive("start", start)
    count = integer("doublings", doublings, least=0)
    if math.log2(start) + count > 1000:
        raise ValueError(f"doublings must keep the widest bounds finite, got {doublings} from start = {start}")
    widths = [math.ldexp(start, t) for t in range(count + 1)]
    counts = [float((numbers <= width).sum()) for width in widths]
    first = above_threshold(
        counts,
        theta * len(numbers),
        sensitivity=1.0,
        epsilon=epsilon,
        monotone=True,
        rng=rng,
        budget=budget,
        label="doubled bounds",
    )
    half = widths[-1] if first is None else widths[first]
    return PrivateBounds(-half, half, first is not None)


def doubling_failure(partitions: int, epsilon: float, *, theta: float = 0.95, doublings: int = 30) -> float:
    """Return a bound on the probability that doubled bounds stop while fewer than half of the values are inside.

    Parameters
    ----------
    partitions : int
        M.
    epsilon : float
        What the search spends.
    theta, doublings
        As in :func:`doubled_bounds`.

    Returns
    -------
    float
        At most 1: a union over the doublings of the tail of a difference of two Laplace variables.

    Examples
    --------
    >>> from dpbook.aggregate.bounds import doubling_failure
    >>> doubling_failure(1000, 0.45) < 1e-30, round(doubling_failure(100, 0.45), 4)
    (True, 0.0038)

    Explained in :doc:`/book/sample-and-aggregate/posterior-quantiles`.
    """
    gap = (theta - 0.5) * partitions * positive("epsilon", epsilon) / 2
    if gap <= 0:
        return 1.0
    return min(1.0, (doublings + 1) * math.exp(-gap) * (2 + gap) / 4)


def _one_dimensional(values: ArrayLike) -> Array:
    numbers = np.asarray(values, dtype=np.float64)
    if numbers.ndim != 1 or numbers.size == 0:
        raise ValueError(f"values must be a list of at least one number, got shape {numbers.shape}")
    return numbers
