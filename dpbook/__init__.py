"""Differentially private Bayesian inference: the package behind the book.

``release`` functions stand on the curator's side of the privacy barrier: they read data, spend a
:class:`PrivacyBudget` and return a public :class:`Release`. ``infer`` functions stand on the analyst's
side: they take a :class:`Release`, never data, and return a :class:`Posterior`.
"""

from dpbook._glue import glue
from dpbook._version import __version__
from dpbook.budget import BudgetExceeded, PrivacyBudget
from dpbook.posterior import Posterior
from dpbook.release import Release

__all__ = ["BudgetExceeded", "Posterior", "PrivacyBudget", "Release", "__version__", "glue"]
