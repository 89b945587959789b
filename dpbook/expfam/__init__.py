"""Exponential families under differential privacy: naive and noise-aware posteriors of noisy sufficient statistics.

Chapter 1 begins here with the one family whose noise-aware posterior is exact: the binomial, under the Laplace or
Gaussian mechanism and under randomised response. Functions named ``release`` read data and spend budget; functions
named ``infer`` read a release only.
"""

from dpbook.expfam.families import Beta, Binomial
from dpbook.expfam.inference import infer, infer_nonprivate, posterior_density
from dpbook.expfam.one_parameter import BetaMixture, GridDensity
from dpbook.expfam.releases import Preview, preview, release, release_randomized_response

__all__ = [
    "Beta",
    "BetaMixture",
    "Binomial",
    "GridDensity",
    "Preview",
    "infer",
    "infer_nonprivate",
    "posterior_density",
    "preview",
    "release",
    "release_randomized_response",
]
