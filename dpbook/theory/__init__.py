"""How private Bayes is by itself: exact privacy of posterior draws and synthetic data, chapter 6.

For two models, coins (:class:`BetaBernoulli`) and bells (:class:`NormalKnownVariance`), and four ways to release,
:func:`privacy_profile` computes the exact delta at every epsilon over the worst neighbours (replace-one, n public).
"""

from dpbook.theory.comparisons import (
    ExponentialView,
    compare_with_noise,
    equal_information,
    exponential_view,
    renyi_divergence,
    renyi_epsilon,
    temperature_for,
)
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
    "ExponentialView",
    "NormalKnownVariance",
    "WorstPair",
    "compare_with_noise",
    "epsilon_for",
    "equal_information",
    "exponential_view",
    "largest_m",
    "pair_profile",
    "prior_for",
    "privacy_profile",
    "profile_bounds",
    "renyi_divergence",
    "renyi_epsilon",
    "smallest_n",
    "temperature_for",
    "worst_pair",
]
