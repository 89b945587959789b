"""Exponential families under differential privacy: naive and noise-aware posteriors of noisy sufficient statistics.

Chapter 1 begins with the one family whose noise-aware posterior is exact, the binomial; chapter 3 explains the others:
multinomial, exponential, Poisson, normal, and families of one's own. Functions named ``release`` read data and spend
budget; functions named ``infer`` read a release only.
"""

from dpbook.expfam.custom import CustomFamily
from dpbook.expfam.families import Binomial, Exponential, Multinomial, Normal, Poisson
from dpbook.expfam.family import Family
from dpbook.expfam.fit import FamilyPosterior, FitCheck
from dpbook.expfam.gibbs import GibbsState, gibbs_start, gibbs_step
from dpbook.expfam.inference import infer, methods_of, posterior_density
from dpbook.expfam.negative_binomial import NegativeBinomial
from dpbook.expfam.nonprivate import infer_nonprivate
from dpbook.expfam.one_parameter import BetaMixture, GridDensity, HalfLineDensity
from dpbook.expfam.previews import preview, solve_epsilon
from dpbook.expfam.quantile_previews import preview_quantiles, solve_epsilon_quantiles
from dpbook.expfam.quantile_releases import release_quantiles
from dpbook.expfam.releases import (
    PrivateBounds,
    private_bounds,
    release,
    release_posterior_samples,
    release_randomized_response,
)
from dpbook.expfam.shape_posterior import HistogramPosterior, MeanPosterior
from dpbook.expfam.shape_previews import (
    preview_histogram,
    preview_mean,
    solve_epsilon_histogram,
    solve_epsilon_mean,
)
from dpbook.expfam.shape_releases import release_histogram, release_mean
from dpbook.priors import Beta, Dirichlet, Gamma, MeanAndDispersion, NormalInverseGamma

__all__ = [
    "Beta",
    "BetaMixture",
    "Binomial",
    "CustomFamily",
    "Dirichlet",
    "Exponential",
    "Family",
    "FamilyPosterior",
    "FitCheck",
    "Gamma",
    "GibbsState",
    "GridDensity",
    "HalfLineDensity",
    "HistogramPosterior",
    "MeanAndDispersion",
    "MeanPosterior",
    "Multinomial",
    "NegativeBinomial",
    "Normal",
    "NormalInverseGamma",
    "Poisson",
    "PrivateBounds",
    "gibbs_start",
    "gibbs_step",
    "infer",
    "infer_nonprivate",
    "methods_of",
    "posterior_density",
    "preview",
    "preview_histogram",
    "preview_mean",
    "preview_quantiles",
    "private_bounds",
    "release",
    "release_histogram",
    "release_mean",
    "release_posterior_samples",
    "release_quantiles",
    "release_randomized_response",
    "solve_epsilon",
    "solve_epsilon_histogram",
    "solve_epsilon_mean",
    "solve_epsilon_quantiles",
]
