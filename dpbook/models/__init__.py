"""Models of your own under differential privacy: whoever can simulate a record can have a posterior from a release.

Chapter 7 explains them. :func:`release` reads data and spends budget: it publishes noisy sums of public statistics.
:func:`infer` reads a release only, and a :class:`Model`: a prior, and a function that simulates records.
"""

from dpbook.models.inference import infer
from dpbook.models.model import Model
from dpbook.models.posterior import LogEvidence, ModelPosterior, PredictiveCheck, compare
from dpbook.models.previews import preview
from dpbook.models.releases import release
from dpbook.models.statistics import Histogram, Indicator, Own, Powers, Product, Statistic, Table
from dpbook.priors import Beta, Cauchy, Gamma, HalfNormal, LogNormal, NormalPrior, Uniform

__all__ = [
    "Beta",
    "Cauchy",
    "Gamma",
    "HalfNormal",
    "Histogram",
    "Indicator",
    "LogEvidence",
    "LogNormal",
    "Model",
    "ModelPosterior",
    "NormalPrior",
    "Own",
    "Powers",
    "PredictiveCheck",
    "Product",
    "Statistic",
    "Table",
    "Uniform",
    "compare",
    "infer",
    "preview",
    "release",
]
