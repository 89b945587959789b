"""Bayesian linear regression under differential privacy: noisy sums, and posteriors that know of the noise.

``release`` reads data and spends budget; ``infer`` reads a release only, ``preview`` and
``solve_epsilon`` nothing but public numbers.
Chapter 4 explains the methods, from the naive posterior to a sampler that mixes.
"""

from typing import TYPE_CHECKING, Any

from dpbook.priors import NormalInverseGamma, NormalInverseWishart
from dpbook.regression import moments
from dpbook.regression.inference import infer
from dpbook.regression.layout import Layout
from dpbook.regression.nonprivate import infer_nonprivate
from dpbook.regression.posterior import RegressionPosterior
from dpbook.regression.previews import preview, solve_epsilon
from dpbook.regression.releases import release

if TYPE_CHECKING:
    from dpbook.regression.estimator import PrivateBayesianRegression

__all__ = [
    "Layout",
    "NormalInverseGamma",
    "NormalInverseWishart",
    "PrivateBayesianRegression",
    "RegressionPosterior",
    "infer",
    "infer_nonprivate",
    "moments",
    "preview",
    "release",
    "solve_epsilon",
]


def __getattr__(name: str) -> Any:
    """Import the estimator when it is asked for: scikit-learn takes a second to load, and is an extra."""
    if name == "PrivateBayesianRegression":
        from dpbook.regression.estimator import PrivateBayesianRegression

        return PrivateBayesianRegression
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
