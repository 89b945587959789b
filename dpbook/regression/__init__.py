"""Bayesian linear regression under differential privacy: noisy sums, and posteriors that know of the noise.

``release`` reads data and spends budget; ``infer`` reads a release only, ``preview`` nothing but public numbers.
Chapter 4 explains the methods, from the naive posterior to a sampler that mixes.
"""

from dpbook.regression.inference import infer, infer_nonprivate
from dpbook.regression.posterior import RegressionPosterior
from dpbook.regression.priors import NormalInverseGamma, NormalInverseWishart
from dpbook.regression.releases import Preview, preview, release

__all__ = [
    "NormalInverseGamma",
    "NormalInverseWishart",
    "Preview",
    "RegressionPosterior",
    "infer",
    "infer_nonprivate",
    "preview",
    "release",
]
