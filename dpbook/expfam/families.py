"""Families of distributions and their conjugate priors: what a record's statistic is, and how a prior is updated."""

from __future__ import annotations

from dataclasses import dataclass

from dpbook import sensitivity
from dpbook._validation import at_least, positive

__all__ = ["Beta", "Binomial"]


@dataclass(frozen=True)
class Binomial:
    """Yes-or-no records, 0 or 1; the statistic is the number of ones, of sensitivity 1.

    Examples
    --------
    >>> from dpbook.expfam import Binomial
    >>> Binomial().name, Binomial().sensitivity
    ('binomial', 1.0)

    Explained in :doc:`/book/background/after-a-release`.
    """

    @property
    def name(self) -> str:
        """The model's name in a release."""
        return "binomial"

    @property
    def bounds(self) -> tuple[float, float]:
        """The bounds of a record."""
        return (0.0, 1.0)

    @property
    def sensitivity(self) -> float:
        """The most that the sum can change when one record is replaced (n public)."""
        return sensitivity.bounded_sum(*self.bounds)


@dataclass(frozen=True)
class Beta:
    """A Beta(alpha, beta) prior for a probability.

    Parameters
    ----------
    alpha, beta : float
        Greater than 0; ``Beta(1, 1)`` is uniform.

    Examples
    --------
    >>> from dpbook.expfam import Beta
    >>> Beta(1, 3).mean
    0.25
    >>> Beta(1, 1).updated(7, 10)
    Beta(alpha=8.0, beta=4.0)

    Explained in :doc:`/book/background/bayesian-primer`.
    """

    alpha: float
    beta: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "alpha", positive("alpha", self.alpha))
        object.__setattr__(self, "beta", positive("beta", self.beta))

    @property
    def mean(self) -> float:
        """The prior mean."""
        return self.alpha / (self.alpha + self.beta)

    @property
    def variance(self) -> float:
        """The prior variance."""
        return self.mean * (1 - self.mean) / (self.alpha + self.beta + 1)

    def updated(self, successes: float, n: float) -> Beta:
        """Return the posterior after ``successes`` in ``n`` exact yes-or-no records.

        Parameters
        ----------
        successes : float
            Between 0 and n; may be a fraction, as a projected noisy count is.
        n : float
            The number of records.

        Returns
        -------
        Beta
            ``Beta(alpha + successes, beta + n - successes)``.

        Examples
        --------
        >>> from dpbook.expfam import Beta
        >>> Beta(2, 2).updated(3, 10)
        Beta(alpha=5.0, beta=9.0)

        Explained in :doc:`/book/background/bayesian-primer`.
        """
        n = at_least("n", n, 0.0)
        successes = at_least("successes", successes, 0.0)
        if successes > n:
            raise ValueError(f"successes must be at most n = {n}, got {successes}")
        return Beta(self.alpha + successes, self.beta + n - successes)
