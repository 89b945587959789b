"""How noisy gradients are run, and what noise makes them private: settings and accounting, without data.

Chapter 5 explains them. :func:`gradient_noise` needs the extra ``dpsgd`` (the package dp-accounting).
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from dpbook._validation import delta_value, integer, one_of, positive
from dpbook.accounting import gaussian_scale

__all__ = ["GRID", "Training", "gradient_noise"]

RELATION = "REPLACE_ONE"  # the library's default, adding or removing a record, would give half the noise or so

_LEAST_GUESS = 0.3  # the search for a noise multiplier starts here or above
_LEAST_DELTA = 1e-12  # the accountant cuts off tails of about 1e-15
_LARGEST_EPSILON = 500.0  # above, noise for this one is drawn: the accountant computes exp(epsilon)
_MOST_STEPS = 1_000_000
_LARGEST = 1e6  # of a rate or a norm
_TUNING = ("uncharged", "charged", "public")

# The settings that a search tries, all combinations. Rates are large because a cell's gradient is a small probability.
GRID: Mapping[str, tuple[float, ...]] = {
    "learning_rate": (3.0, 10.0, 30.0),
    "clip": (0.5, 1.5),
    "sampling": (0.05, 0.25),
    "steps": (50, 200),
}


@dataclass(frozen=True)
class Training:
    """How noisy gradients are run, and how these settings were found.

    Attributes
    ----------
    learning_rate : float, optional
        The step taken along the mean gradient, at most 10⁶; by default the square root of the mean number of cells of
        a table.
    clip : float, default 1.5
        The largest norm of a record's gradient, at most 10⁶.
    sampling : float, default 0.25
        The probability with which a record is in a batch; 1 uses all of them in every step.
    steps : int, default 100
        How many steps, at most 10⁶. The potentials released are the mean over the second half of them.
    inference : {"auto", "exact", "loopy"}
        How a step's marginals are computed, as in :class:`MarkovRandomField`.
    tuned_over : int, default 1
        How many runs on records found the settings above, the one to come included.
    tuning : {"uncharged", "charged", "public"}
        Who pays for the earlier runs. ``"uncharged"``: the run to come does, k epsilon and k delta in all.
        ``"charged"``: each was charged when it was made, and the run to come charges itself. ``"public"``: they read
        other records, which are public, and cost nothing.

    Examples
    --------
    >>> from dpbook.graphical import Training
    >>> Training(clip=0.5, steps=50).sampling
    0.25

    Explained in :doc:`/book/graphical-models/mobility`.
    """

    learning_rate: float | None = None
    clip: float = 1.5
    sampling: float = 0.25
    steps: int = 100
    inference: str = "auto"
    tuned_over: int = 1
    tuning: str = "uncharged"

    def __post_init__(self) -> None:
        most = {"learning_rate": _LARGEST, "clip": _LARGEST, "sampling": 1.0}
        for name, bound in most.items():
            if name != "learning_rate" or self.learning_rate is not None:
                object.__setattr__(self, name, at_most(name, getattr(self, name), bound))
        for name in ("steps", "tuned_over"):
            object.__setattr__(self, name, up_to_a_million(name, getattr(self, name)))
        one_of("inference", self.inference, ("auto", "exact", "loopy"))
        one_of("tuning", self.tuning, _TUNING)


def cost_of_all_runs(training: Training, epsilon: float, delta: float) -> tuple[float, float]:
    """Return what all runs cost by sequential composition; raise where that is no promise any more."""
    runs = training.tuned_over
    if training.tuning == "public":
        return epsilon, delta
    if runs * delta >= 1:
        raise ValueError(
            f"tuned_over times delta must be below 1, got {runs} runs of delta {delta:g}: name a smaller delta"
        )
    return positive("tuned_over times epsilon", runs * epsilon), runs * delta


def at_most(name: str, value: Any, most: float) -> float:
    """Return a positive number that is at most ``most``."""
    number = positive(name, value)
    if number > most:
        raise ValueError(f"{name} must be at most {most:g}, got {number}")
    return number


def up_to_a_million(name: str, value: Any) -> int:
    """Return a whole number from 1 to a million."""
    number = integer(name, value, least=1)
    if number > _MOST_STEPS:
        raise ValueError(f"{name} must be at most {_MOST_STEPS}, got a larger number")
    return number


def checked_delta(value: Any) -> float:
    """Return a delta for which the accountant is exact enough."""
    delta = delta_value("delta", value, zero=False)
    if delta < _LEAST_DELTA:
        raise ValueError(f"delta must be at least {_LEAST_DELTA:g}, where the accountant is exact enough, got {delta}")
    return delta


def gradient_noise(*, epsilon: float, delta: float, sampling: float, steps: int) -> float:
    """Return the smallest noise multiplier, noise sd over clipping norm, that makes noisy gradients private.

    (epsilon, delta)-DP for replace-one neighbours, n public, of ``steps`` steps that take each record with probability
    ``sampling``: by the privacy loss distribution, rounded up. Explained in :doc:`/book/graphical-models/mobility`.

    Parameters
    ----------
    epsilon, delta : float
        The privacy loss of all steps. Above an epsilon of 500 the noise is that of 500; delta is at least 1e-12, below
        which the accountant's own rounding shows.
    sampling, steps : float, int
        The share of the records that a step takes, in (0, 1], and how many steps there are, from 1 to 10⁶.

    Returns
    -------
    float

    Raises
    ------
    ImportError
        Where dp-accounting is not installed; it names the extra.

    Examples
    --------
    One step with all records is the Gaussian mechanism of sensitivity 2:

    >>> from dpbook.accounting import gaussian_scale
    >>> from dpbook.graphical import gradient_noise
    >>> round(gradient_noise(epsilon=1.0, delta=1e-5, sampling=1.0, steps=1), 2)
    7.46
    >>> round(gaussian_scale(sensitivity=2.0, epsilon=1.0, delta=1e-5), 2)
    7.46
    """
    epsilon, delta = min(positive("epsilon", epsilon), _LARGEST_EPSILON), checked_delta(delta)
    return _calibrated(epsilon, delta, at_most("sampling", sampling, 1), up_to_a_million("steps", steps))


@lru_cache(maxsize=256)
def _calibrated(epsilon: float, delta: float, sampling: float, steps: int) -> float:
    """Search for the multiplier; every trial is a composed privacy loss distribution, an upper bound on epsilon.

    The search starts where the steps would be one Gaussian mechanism of sensitivity ``2 q sqrt(steps)``, keeps a
    bracket, and returns its safe end, within one part in a thousand of the smallest multiplier.
    """
    if sampling < 1 and -math.expm1(steps * math.log1p(-sampling)) <= delta:
        return _LEAST_GUESS  # delta alone covers ever being drawn: no noise would do, and the search would not end
    unit = 1e-4 * max(1.0, 2 * epsilon)  # of the privacy loss's grid; a coarse one rounds upwards, on the safe side

    def excess(log_multiplier: float) -> float:
        found = _epsilon_of(math.exp(log_multiplier), delta, sampling, steps, unit)
        return math.log(max(found, 1e-300) / epsilon)

    guess = gaussian_scale(sensitivity=2 * sampling * math.sqrt(steps), epsilon=epsilon, delta=delta)
    high = low = math.log(max(guess, _LEAST_GUESS))
    above = below = excess(high)
    while above > 0:
        low, below = high, above
        high += 0.2
        above = excess(high)
    while below <= 0 and low > math.log(1e-2):
        high, above = low, below
        low -= 0.2
        below = excess(low)
    while high - low > 1e-3 and below > 0:
        # Between the secant's root and the middle, and a little on the safe side.
        root = low + (high - low) * below / (below - above) if math.isfinite(below) else (low + high) / 2
        middle = min(max(root + 4e-4, low + 0.05 * (high - low)), high - 0.05 * (high - low))
        value = excess(middle)
        if value > 0:
            low, below = middle, value
        else:
            high, above = middle, value
    return math.exp(high)


def _epsilon_of(multiplier: float, delta: float, sampling: float, steps: int, unit: float) -> float:
    dp, pld = accountants()
    accountant = pld.PLDAccountant(getattr(dp.NeighboringRelation, RELATION), value_discretization_interval=unit)
    gaussian = dp.GaussianDpEvent(multiplier)
    event = gaussian if sampling == 1 else dp.PoissonSampledDpEvent(sampling, gaussian)
    accountant.compose(event, steps)
    return float(accountant.get_epsilon(delta))


def accountants() -> tuple[Any, Any]:
    """Import dp-accounting on first use: only noisy gradients need it."""
    try:
        return importlib.import_module("dp_accounting"), importlib.import_module("dp_accounting.pld")
    except ImportError as error:
        raise ImportError("noisy gradients need the package dp-accounting: pip install dpbook[dpsgd]") from error
