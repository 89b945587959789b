"""Where the bounds of a quantile come from: searched around the partitions' quantiles, or from zero, or given.

A posterior quantile has no bounds of its own, and a mean without bounds has no sensitivity. A search is a public plan:
what it may find, what it spends and how likely it is to fail follow from public numbers alone. ``releases`` carries it
out; chapter 2 has the proofs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

import numpy as np

from dpbook._arrays import Array
from dpbook._validation import fraction, integer, interval, positive

__all__ = ["Centred", "SparseVector"]

# The narrowest candidate is worth as much more than the widest as this share of all partitions.
REWARD = 0.5
# Share of the values that some candidate of the right width holds.
_HELD = 0.95
# Typical width of centred bounds in standard deviations of the partitions' quantiles.
CENTRED_WIDTH = 6.0


@dataclass(frozen=True)
class Centred:
    """Search for bounds that are centred on the values and just wide enough, within a public range.

    The exponential mechanism draws among intervals of the public range: widths R, R/√2, R/2, ... down to
    R / ``resolution``, centres an eighth of a width apart. The utility of an interval is the number of values inside,
    of sensitivity 1, plus a public reward for being narrow that grows to half of all values. For normal values with
    sd s it is largest at a width of 5 s to 7 s. NaN counts as inside no interval. Explained in
    :doc:`/book/sample-and-aggregate/posterior-quantiles`.

    Parameters
    ----------
    public_range : (low, high)
        Where the values can lie, known without the data. Pure privacy cannot do without one.
    share : float, optional
        The share of epsilon that the search spends. By default 1/2, but no more than an epsilon of 200 / M, beyond
        which better bounds hardly help.
    resolution : int, default 1024
        How many times narrower than the range the bounds may become.

    Examples
    --------
    >>> from dpbook import aggregate
    >>> search = aggregate.Centred((-10, 10))
    >>> search.spends(2.0, partitions=1000)
    0.2
    """

    public_range: tuple[float, float]
    share: float | None = None
    resolution: int = 1024

    kind: ClassVar[str] = "centred"

    def __post_init__(self) -> None:
        public_range = interval("public_range", self.public_range)
        object.__setattr__(self, "public_range", public_range)
        object.__setattr__(self, "resolution", integer("resolution", self.resolution, least=2))
        if self.share is not None:
            fraction("share", self.share)
        with np.errstate(all="ignore"):
            low, width, _ = self._candidates()
            _require_grids("public_range", low, np.minimum(low + width, public_range[1]))

    @property
    def _public(self) -> Mapping[str, tuple[float, float]]:
        """What a release says of the bounds before they are found."""
        return {"public_range": self.public_range}

    def spends(self, epsilon: float, partitions: int) -> float:
        """Return the epsilon of the search, between 0 and the ``epsilon`` of a release with M = ``partitions``."""
        return min(epsilon / 2, 200 / partitions) if self.share is None else _part(epsilon, self.share)

    def _failure(self, partitions: int, epsilon: float, *, width: float | None = None) -> float:
        """Return a bound on the probability that the bounds are so narrow (None: the narrowest), and empty of values.

        An empty candidate is drawn with odds of at most exp(-epsilon · lead / 2) against a good one, which holds 95 %
        of the values and leads by that less the reward of the empty one. The bound adds up over all candidates that
        are at least so wide.
        """
        low, high = self.public_range
        narrowing = self.resolution if width is None else (high - low) / width
        _, widths, rewards = _intervals(0.0, 1.0, self.resolution)
        seen = widths >= (1 - 1e-9) / narrowing
        lead = (_HELD - REWARD * rewards[seen]) * partitions
        return min(1.0, float(np.exp(-positive("epsilon", epsilon) * lead / 2).sum()))

    def _candidates(self) -> tuple[Array, Array, Array]:
        """Return lower ends, widths and rewards (0 for the widest to 1 for the narrowest) of all intervals."""
        return _intervals(*self.public_range, self.resolution)

    def _utilities(self, numbers: Array) -> Array:
        """Return how many of the numbers each candidate holds, with a reward for being narrow; sensitivity 1."""
        starts, widths, rewards = self._candidates()
        inside = np.sort(np.clip(numbers[~np.isnan(numbers)], *self.public_range))
        count = np.searchsorted(inside, starts + widths, side="right") - np.searchsorted(inside, starts, side="left")
        # Rewards in 1024ths, so that the sums are exact and the utility's computed sensitivity is 1.
        return np.asarray(count + np.rint(rewards * REWARD * len(numbers) * 1024) / 1024, dtype=np.float64)

    def _ends(self, best: int) -> tuple[float, float]:
        """Return the candidate with a number, within the public range."""
        starts, widths, _ = self._candidates()
        return float(starts[best]), float(min(starts[best] + widths[best], self.public_range[1]))


def _intervals(low: float, high: float, resolution: int) -> tuple[Array, Array, Array]:
    levels = 2 * math.log2(resolution)
    starts, widths, rewards = [], [], []
    for level in range(math.floor(levels) + 1):
        width = (high - low) * 2 ** (-level / 2)
        steps = math.floor(8 * (2 ** (level / 2) - 1) + 1e-9) + 1
        starts.append(low + width / 8 * np.arange(steps))
        widths.append(np.full(steps, width))
        rewards.append(np.full(steps, level / levels))
    return np.concatenate(starts), np.concatenate(widths), np.concatenate(rewards)


@dataclass(frozen=True)
class SparseVector:
    """Search for symmetric bounds ± start · 2^t by doubling: the first that hold about a share ``theta`` of the values.

    The sparse vector technique on nested counts, which are monotone (a value that moves outwards lowers all of them),
    so that Laplace noise of scale 2 / epsilon on threshold and counts suffices. The threshold is a share of the
    *partitions*. After ``doublings`` doublings the search gives up and takes the widest bounds. NaN counts as inside.

    Parameters
    ----------
    share : float, default 0.5
        The share of epsilon that the search spends.
    theta : float, default 0.95
        The share of values to hold. Keep (1 - theta) M above 4 ln(20) / epsilon, or the search overshoots.
    start : float, default 1.0
        The narrowest half-width.
    doublings : int, default 30
        The cap.
    public_range : (low, high), optional
        Where the values can lie; the bounds are cut to it.

    Examples
    --------
    >>> from dpbook import aggregate
    >>> search = aggregate.SparseVector(theta=0.95)
    >>> search.spends(0.9, partitions=1000)
    0.45

    Explained in :doc:`/book/sample-and-aggregate/posterior-quantiles`.
    """

    share: float = 0.5
    theta: float = 0.95
    start: float = 1.0
    doublings: int = 30
    public_range: tuple[float, float] | None = None

    kind: ClassVar[str] = "sparse-vector"

    def __post_init__(self) -> None:
        fraction("share", self.share)
        fraction("theta", self.theta)
        positive("start", self.start)
        object.__setattr__(self, "doublings", integer("doublings", self.doublings, least=0))
        if math.log2(self.start) + self.doublings > 1000:
            raise ValueError(
                f"doublings must keep the widest bounds finite, got {self.doublings} from start = {self.start}"
            )
        if self.public_range is not None:
            object.__setattr__(self, "public_range", interval("public_range", self.public_range))
        with np.errstate(all="ignore"):
            low, high = np.array([self._within(half) for half in self._half_widths()]).T
            _require_grids("start or public_range", low, high)

    @property
    def _public(self) -> Mapping[str, tuple[float, float]]:
        """What a release says of the bounds before they are found."""
        return {} if self.public_range is None else {"public_range": self.public_range}

    def spends(self, epsilon: float, partitions: int) -> float:
        """Return the epsilon of the search, a share of the ``epsilon`` of a release, whatever the ``partitions``."""
        return _part(epsilon, self.share)

    def _failure(self, partitions: int, epsilon: float, *, width: float | None = None) -> float:
        """Return a bound on the probability that the search stops while fewer than half of the values are inside.

        A union over the doublings of the tail of a difference of two Laplace variables; the width does not matter.
        """
        gap = (self.theta - 0.5) * partitions * positive("epsilon", epsilon) / 2
        return 1.0 if gap <= 0 else min(1.0, (self.doublings + 1) * math.exp(-gap) * (2 + gap) / 4)

    def _half_widths(self) -> list[float]:
        """Return start · 2^t for every doubling."""
        return [math.ldexp(self.start, t) for t in range(self.doublings + 1)]

    def _within(self, half: float) -> tuple[float, float]:
        """Return the symmetric bounds cut to the public range, or that range where nothing is left."""
        low, high = (-half, half) if self.public_range is None else self.public_range
        cut = max(low, -half), min(high, half)
        return cut if cut[0] < cut[1] else (low, high)


@dataclass(frozen=True)
class Given:
    """Bounds that are known without the data: nothing to search, nothing to spend."""

    low: float
    high: float

    kind: ClassVar[str] = "given"

    @property
    def _public(self) -> Mapping[str, tuple[float, float]]:
        """What a release says of the bounds."""
        return {"quantile": (self.low, self.high)}

    def spends(self, epsilon: float, partitions: int) -> float:
        """Return 0."""
        return 0.0

    def _failure(self, partitions: int, epsilon: float, *, width: float | None = None) -> float:
        """Return 0."""
        return 0.0


Plan: TypeAlias = Centred | SparseVector | Given


def plan_of(bounds: Any) -> Plan:
    """Return what ``bounds`` asks for; raise unless it is a search or a pair of numbers."""
    if isinstance(bounds, (Centred, SparseVector)):
        return bounds
    if isinstance(bounds, (str, type)) or not np.iterable(bounds):
        raise TypeError(f"bounds must be Centred(...), SparseVector(...) or a pair (low, high), got {bounds!r}")
    low, high = interval("bounds", bounds)
    with np.errstate(all="ignore"):
        _require_grids("bounds", np.array([low]), np.array([high]))
    return Given(low, high)


def _part(epsilon: float, share: float) -> float:
    spent = epsilon * share
    if min(spent, epsilon - spent) < 1e-9:
        raise ValueError(f"share must leave at least 1e-9 of epsilon = {epsilon} on both sides, got {share}")
    return spent


def _require_grids(name: str, low: Array, high: Array) -> None:
    """Raise unless all bounds that may be found have a centre and a grid: afterwards it would cost epsilon."""
    half, finite = (high - low) / 2, bool(np.isfinite(low + high).all())
    if not (finite and half.min() >= 2.0**-990 and half.max() <= 2.0**990):
        raise ValueError(
            f"{name} must be rescaled: bounds that may be found are too wide, or too narrow for floats, "
            f"with half-widths from {half.min():.3g} to {half.max():.3g}"
        )
