"""How a ledger adds up: by plain addition, by zCDP, or by Gaussian differential privacy.

Each is a *filter*: it stays right when every release, and what it costs, is chosen after seeing the answers before
it. So the way to add up is fixed when a budget is made. To take the smallest of several sums at the end would not be
right: where an early answer decides which of them the later releases fill, their deltas add. For the same reason
numerical accounting of a fixed plan (:func:`~dpbook.accounting.plan_epsilon`) is no filter. The composition section
of chapter 1 explains them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from dpbook._late import optimize, special
from dpbook._validation import one_of
from dpbook.accounting import gaussian_epsilon, pure_mu, zcdp_epsilon

__all__: list[str] = []

NAMES = ("addition", "zcdp", "gaussian")
Cost = tuple[float, float]
_SAFE = 1 - 1e-12  # of a limit that a root finder gave


class Loss(NamedTuple):
    """What one release loses: as (epsilon, delta), and where it is known as zCDP's rho and as Gaussian DP's mu."""

    epsilon: float
    delta: float
    rho: float | None = None
    mu: float | None = None


class Accountant(Protocol):
    """A way to add up: every loss has a cost, costs add, and a sum of costs is stated as (epsilon, delta)."""

    @property
    def name(self) -> str:
        """What it is called."""
        ...

    @property
    def limit(self) -> Cost:
        """The most that may be spent."""
        ...

    def cost(self, loss: Loss) -> Cost:
        """Return what a loss costs; raise a ValueError where this way of adding up cannot count it."""
        ...

    def stated(self, cost: Cost) -> tuple[float, float]:
        """Return the (epsilon, delta) that releases of this cost together have."""
        ...

    def pure(self, room: float) -> float:
        """Return the largest epsilon of one pure release that costs no more than ``room``."""
        ...

    def gaussian(self, room: Cost, delta: float) -> float:
        """Return the largest epsilon of one Gaussian release, stated at ``delta``, that costs no more than ``room``."""
        ...


def accountant(name: str, epsilon: float, delta: float) -> Accountant:
    """Return the accountant of a name, for a total of (epsilon, delta)."""
    one_of("accounting", name, NAMES)
    if name == "addition":
        return Addition((epsilon, delta))
    if delta == 0:
        raise ValueError(f'delta must be greater than 0 with accounting="{name}", which states its total at that delta')
    return (Concentrated if name == "zcdp" else Gaussian)(epsilon, delta)


@dataclass(frozen=True)
class Addition:
    """Epsilons add, and deltas add."""

    limit: Cost
    name: str = "addition"

    def cost(self, loss: Loss) -> Cost:
        """Return epsilon and delta themselves."""
        return loss.epsilon, loss.delta

    def stated(self, cost: Cost) -> tuple[float, float]:
        """Return the sums themselves."""
        return cost

    def pure(self, room: float) -> float:
        """Return the room."""
        return room

    def gaussian(self, room: Cost, delta: float) -> float:
        """Return the room, if so much delta is left."""
        return room[0] if delta <= room[1] else 0.0


class Concentrated:
    """Rhos add (zCDP, Bun and Steinke 2016); a filter by Whitehouse et al. 2023.

    A pure release has rho = epsilon²/2; Gaussian noise, discrete or not, half the squared sensitivity in noise sds.
    """

    name = "zcdp"

    def __init__(self, epsilon: float, delta: float) -> None:
        self._delta = delta
        self.limit: Cost = (_largest(lambda rho: zcdp_epsilon(rho, delta), epsilon), 0.0)

    def cost(self, loss: Loss) -> Cost:
        """Return rho, by which everything is counted."""
        if loss.rho is not None:
            return loss.rho, 0.0
        if loss.delta > 0:
            raise ValueError(_uncounted("rho", loss))
        return loss.epsilon**2 / 2, 0.0

    def stated(self, cost: Cost) -> tuple[float, float]:
        """Return epsilon at the project's delta."""
        return (zcdp_epsilon(cost[0], self._delta), self._delta) if cost[0] > 0 else (0.0, 0.0)

    def pure(self, room: float) -> float:
        """Return the root of twice the room."""
        return math.sqrt(2 * room)

    def gaussian(self, room: Cost, delta: float) -> float:
        """Return epsilon at delta of Gaussian noise with this rho."""
        return gaussian_epsilon(math.sqrt(2 * room[0]), delta) if room[0] > 0 else 0.0


class Gaussian:
    """Squares of mu add (Gaussian DP, Dong, Roth and Su 2022), exactly; a filter by Smith and Thakurta 2022.

    A pure release has mu = 2 Φ⁻¹(e^ε / (1 + e^ε)): its trade-off between the two errors of a test is nowhere better.
    """

    name = "gaussian"

    def __init__(self, epsilon: float, delta: float) -> None:
        self._delta = delta
        most = _largest(lambda mu: gaussian_epsilon(mu, delta), epsilon)
        self.limit: Cost = (most**2, 0.0)

    def cost(self, loss: Loss) -> Cost:
        """Return mu squared, by which everything is counted."""
        if loss.mu is not None:
            return loss.mu**2, 0.0
        if loss.delta > 0:
            raise ValueError(_uncounted("mu", loss))
        return pure_mu(loss.epsilon) ** 2, 0.0

    def stated(self, cost: Cost) -> tuple[float, float]:
        """Return epsilon at the project's delta."""
        return (gaussian_epsilon(math.sqrt(cost[0]), self._delta), self._delta) if cost[0] > 0 else (0.0, 0.0)

    def pure(self, room: float) -> float:
        """Return the epsilon whose mu squared is the room."""
        half = math.sqrt(room) / 2
        return float(special.log_ndtr(half) - special.log_ndtr(-half))

    def gaussian(self, room: Cost, delta: float) -> float:
        """Return epsilon at delta of Gaussian noise with this mu."""
        return gaussian_epsilon(math.sqrt(room[0]), delta) if room[0] > 0 else 0.0


def _uncounted(name: str, loss: Loss) -> str:
    return (
        f"epsilon {loss.epsilon:g} with delta {loss.delta:g} says too little for this budget, which counts {name}: "
        "give "
        f"{name} too where it is known, as releases with Gaussian noise do. Noisy gradients, which have none, need "
        "a budget "
        'with accounting="addition"'
    )


def _largest(function: Callable[[float], float], epsilon: float) -> float:
    """Return about the largest argument at which an increasing function is at most epsilon, never a larger one."""
    low = high = 0.0
    while function(math.exp(low)) > epsilon and low > -600:
        low -= 2
    while function(math.exp(high)) < epsilon and high < 600:
        high += 2
    root = math.exp(optimize.brentq(lambda log: function(math.exp(log)) - epsilon, low, high, xtol=1e-13)) * _SAFE
    while function(root) > epsilon:
        root *= _SAFE
    return root
