"""Sample-and-aggregate: private posterior probabilities and quantiles of any model (chapter 2).

Split the records into partitions, compute each partition's posterior, average, add noise. ``release_probability`` and
``release_quantile`` read data and spend budget; ``infer`` reads a release only. The posterior may be a conjugate
regression, computed for all partitions at once, or any function that returns posterior draws.
"""

from dpbook.aggregate.bounds import Centred, SparseVector
from dpbook.aggregate.inference import Combined, CombinedProbability, CombinedQuantile, infer
from dpbook.aggregate.laws import fisher_probability, fisher_slope, rescale_probability, residual_sd
from dpbook.aggregate.nonprivate import (
    partition_probabilities,
    partition_quantiles,
    probability_nonprivate,
    quantile_nonprivate,
)
from dpbook.aggregate.previews import preview_probability, preview_quantile
from dpbook.aggregate.regression import ConjugateRegression, SemiConjugateRegression
from dpbook.aggregate.releases import FoundBounds, release_bounds, release_probability, release_quantile
from dpbook.aggregate.samplers import FromSampler, PartitionPosterior
from dpbook.aggregate.splitting import Moments, partition_frames, partition_labels
from dpbook.priors import Flat, IndependentPrior, NormalInverseGamma, Zellner

__all__ = [
    "Centred",
    "Combined",
    "CombinedProbability",
    "CombinedQuantile",
    "ConjugateRegression",
    "Flat",
    "FoundBounds",
    "FromSampler",
    "IndependentPrior",
    "Moments",
    "NormalInverseGamma",
    "PartitionPosterior",
    "SemiConjugateRegression",
    "SparseVector",
    "Zellner",
    "fisher_probability",
    "fisher_slope",
    "infer",
    "partition_frames",
    "partition_labels",
    "partition_probabilities",
    "partition_quantiles",
    "preview_probability",
    "preview_quantile",
    "probability_nonprivate",
    "quantile_nonprivate",
    "release_bounds",
    "release_probability",
    "release_quantile",
    "rescale_probability",
    "residual_sd",
]
