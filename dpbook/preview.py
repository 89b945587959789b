"""What a release would be worth, from public numbers, before anything is spent, and what a wanted precision costs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dpbook import _html
from dpbook._late import pd
from dpbook._validation import positive

__all__ = ["EpsilonPlan", "Preview"]


@dataclass(frozen=True, eq=False)
class Preview:
    """What a release would be worth.

    Standard deviations are numbers where one quantity is estimated, and arrays, one entry per name, where several are;
    NaN where a kind of release has none. Explained in :doc:`/book/background/choosing-epsilon`.

    Attributes
    ----------
    names : tuple of str
        What is estimated: parameters, columns, or the released quantity.
    sensitivity, noise_scale : float
        Of all released statistics together, and of the noise on each of them (Laplace b, Gaussian sd).
    noise_sd, sampling_sd : float or array
        Standard deviations of each estimate: from the noise, and from sampling n records.
    posterior_sd, nonprivate_sd : float or array
        Expected after the release, noise accounted for; and without privacy.
    break_even_n : float or array
        About the n at which noise and sampling contribute alike; beyond it privacy is the smaller worry.
    width, width_low, width_high : float or array
        Of the 95 % interval after the release: the median over releases, whose noise and sampling differ, and the
        range in which eight of ten will be.
    notes : mapping of str to float
        What this kind of release has beside these.

    Examples
    --------
    >>> from dpbook.preview import Preview
    >>> look = Preview(("share",), 1.0, 10.0, noise_sd=0.014, sampling_sd=0.016, posterior_sd=0.021)
    >>> look.summary().loc["share", "noise_sd"].item()
    0.014
    """

    names: Sequence[str]
    sensitivity: float
    noise_scale: float
    noise_sd: Any = math.nan
    sampling_sd: Any = math.nan
    posterior_sd: Any = math.nan
    nonprivate_sd: Any = math.nan
    break_even_n: Any = math.nan
    width: Any = math.nan
    width_low: Any = math.nan
    width_high: Any = math.nan
    notes: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if isinstance(self.names, str) or not all(isinstance(name, str) for name in self.names):
            raise TypeError(f"names must be a sequence of strings, got {self.names!r}")
        object.__setattr__(self, "names", tuple(self.names))
        for column in _COLUMNS:
            if np.shape(getattr(self, column)) not in ((), (len(self.names),)):
                shape = np.shape(getattr(self, column))
                raise ValueError(f"{column} must be a number or have an entry for each of the names, got shape {shape}")

    def summary(self) -> pd.DataFrame:
        """Return a table with a row for each name and a column for each number that there is."""
        columns = {name: getattr(self, name) for name in _COLUMNS}
        known = {name: value for name, value in columns.items() if not np.all(np.isnan(value))}
        filled = {name: np.broadcast_to(value, len(self.names)) for name, value in known.items()}
        return pd.DataFrame(filled, index=list(self.names))

    def _repr_html_(self) -> str:
        table = self.summary()
        columns = list(table.columns) or [""]  # a release of which only the noise is known has rows of names
        rows = [[name, *(row or [""])] for name, row in zip(table.index, table.to_numpy().tolist(), strict=True)]
        facts = {"sensitivity": self.sensitivity, "noise scale": self.noise_scale, **self.notes}
        footer = [[name, float(value), *[""] * (len(columns) - 1)] for name, value in facts.items()]
        return _html.table("Preview: nothing is spent", ["estimate", *columns], rows, footer=footer)


_COLUMNS = (
    *("noise_sd", "sampling_sd", "posterior_sd", "nonprivate_sd", "break_even_n"),
    *("width", "width_low", "width_high"),
)


@dataclass(frozen=True)
class EpsilonPlan:
    """The privacy loss that a wanted precision costs: what every ``solve_epsilon`` returns.

    ``epsilon`` is the smallest loss at which the 95 % interval is expected to be as narrow as wanted; ``width`` the
    wanted width of that interval, the median of the widths to expect at this epsilon; about nine of ten releases will
    have a width between ``low`` and ``high``. Explained in :doc:`/book/background/choosing-epsilon`.

    Examples
    --------
    >>> from dpbook.preview import EpsilonPlan
    >>> EpsilonPlan(0.813, width=0.05, low=0.046, high=0.055)
    EpsilonPlan(epsilon=0.813 for a 95 % interval of width 0.05, expected between 0.046 and 0.055)
    """

    epsilon: float
    width: float
    low: float
    high: float

    def __post_init__(self) -> None:
        for name in ("epsilon", "width", "low", "high"):
            object.__setattr__(self, name, positive(name, getattr(self, name)))
        if not self.low <= self.width <= self.high:
            raise ValueError(f"width must lie between low and high, got {self.low}, {self.width}, {self.high}")

    def __repr__(self) -> str:
        epsilon, width, low, high = map(_three_digits, (self.epsilon, self.width, self.low, self.high))
        return f"EpsilonPlan(epsilon={epsilon} for a 95 % interval of width {width}, expected between {low} and {high})"


def _three_digits(value: float) -> str:
    """Return a number with three significant digits, without an exponent as long as that is readable."""
    rounded = float(f"{value:.3g}")
    return f"{rounded:,.0f}" if 1000 <= rounded < 1e9 else f"{rounded:.3g}"
