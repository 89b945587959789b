"""The two models of chapter 6: coins with a Beta prior, and normal data of known spread with a normal prior.

A model says what is fixed in public: the prior, the spread, the bound on the data. Profiles are computed for it in
:mod:`dpbook.theory.profiles`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from dpbook._validation import finite_number, positive

__all__ = ["BetaBernoulli", "NormalKnownVariance"]


def _positive_or_infinite(name: str, value: Any) -> float:
    return math.inf if isinstance(value, float) and value == math.inf else positive(name, value)


@dataclass(frozen=True)
class BetaBernoulli:
    """Yes-or-no records with a Beta prior on the probability of a yes. Explained in :doc:`/book/theory/coins`.

    Parameters
    ----------
    alpha, beta : float, default 1.0
        The prior's parameters, greater than 0: the posterior after s ones among n records is
        Beta(alpha + s, beta + n - s).

    Examples
    --------
    >>> from dpbook import theory
    >>> theory.BetaBernoulli(2, 2)
    BetaBernoulli(alpha=2.0, beta=2.0)
    """

    alpha: float = 1.0
    beta: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "alpha", positive("alpha", self.alpha))
        object.__setattr__(self, "beta", positive("beta", self.beta))


@dataclass(frozen=True)
class NormalKnownVariance:
    """Normal records of known standard deviation in a bounded range, with a normal prior on their mean.

    Explained in :doc:`/book/theory/bells`.

    Parameters
    ----------
    sigma : float, default 1.0
        The standard deviation of a record.
    prior_mean, prior_sd : float, default 0 and infinite
        The prior's mean and standard deviation; infinite for a flat prior.
    bound : float, default 1.0
        Records lie in [-bound, bound]; infinite for unrestricted data, which nothing here keeps private.

    Examples
    --------
    >>> from dpbook import theory
    >>> bells = theory.NormalKnownVariance(sigma=1, bound=5)
    >>> bells.posterior_mean(250.0, 100), bells.posterior_sd(100)
    (2.5, 0.1)
    """

    sigma: float = 1.0
    prior_mean: float = 0.0
    prior_sd: float = math.inf
    bound: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "sigma", positive("sigma", self.sigma))
        object.__setattr__(self, "prior_mean", finite_number("prior_mean", self.prior_mean))
        object.__setattr__(self, "prior_sd", _positive_or_infinite("prior_sd", self.prior_sd))
        object.__setattr__(self, "bound", _positive_or_infinite("bound", self.bound))

    def posterior_sd(self, n: int) -> float:
        """Return the standard deviation of the posterior after ``n`` records, ``sigma / √(n + sigma²/prior_sd²)``."""
        return self.sigma / math.sqrt(n + (self.sigma / self.prior_sd) ** 2)

    def posterior_mean(self, total: float, n: int) -> float:
        """Return the mean of the posterior after ``n`` records that sum to ``total``.

        It is their mean, pulled towards the prior's as by ``sigma²/prior_sd²`` records of that value.
        """
        strength = (self.sigma / self.prior_sd) ** 2
        return (strength * self.prior_mean + total) * self._weight(n)

    def _weight(self, n: int) -> float:
        """Return how far the posterior mean moves when the sum of the records moves by 1."""
        return 1 / (n + (self.sigma / self.prior_sd) ** 2)
