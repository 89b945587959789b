"""How private Bayes is by itself: exact privacy of posterior draws and synthetic data, chapter 6.

For two models, coins (:class:`BetaBernoulli`) and bells (:class:`NormalKnownVariance`), and four ways to release,
:func:`privacy_profile` computes the exact delta at every epsilon over the worst neighbours (replace-one, n public).
"""

from dpbook.theory.inverse import largest_m, prior_for, smallest_n
from dpbook.theory.models import BetaBernoulli, NormalKnownVariance
from dpbook.theory.profiles import (
    RELEASE_TYPES,
    WorstPair,
    epsilon_for,
    pair_profile,
    privacy_profile,
    profile_bounds,
    worst_pair,
)

__all__ = [
    "RELEASE_TYPES",
    "BetaBernoulli",
    "NormalKnownVariance",
    "WorstPair",
    "epsilon_for",
    "largest_m",
    "pair_profile",
    "prior_for",
    "privacy_profile",
    "profile_bounds",
    "smallest_n",
    "worst_pair",
]
