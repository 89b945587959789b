"""Sample-and-aggregate: private posterior probabilities and quantiles of any model (chapter 2).

Split the records into partitions, compute each partition's posterior, average, add noise. ``release_probability`` and
``release_quantile`` read data and spend budget; ``combine`` reads a release only. The posterior may be a conjugate
regression, computed for all partitions at once, or any function that returns posterior draws.
"""

from dpbook.aggregate.bounds import (
    PrivateBounds,
    centred_bounds,
    centred_failure,
    doubled_bounds,
    doubling_failure,
)
from dpbook.aggregate.combining import (
    CombinedProbability,
    CombinedQuantile,
    aggregate_mean,
    aggregate_sd,
    combine,
    fisher_probability,
    fisher_slope,
    rescale_probability,
    residual_sd,
)
from dpbook.aggregate.regression import ConjugateRegression, SemiConjugateRegression
from dpbook.aggregate.releases import (
    ProbabilityPreview,
    QuantilePreview,
    partition_probabilities,
    partition_quantiles,
    preview_probability,
    preview_quantile,
    probability_nonprivate,
    quantile_nonprivate,
    release_probability,
    release_quantile,
)
from dpbook.aggregate.samplers import FromSampler, PartitionPosterior
from dpbook.aggregate.splitting import (
    Moments,
    count_records,
    partition_frames,
    partition_labels,
    partition_moments,
)
from dpbook.priors import Flat, IndependentPrior, NormalInverseGamma, Zellner

__all__ = [
    "CombinedProbability",
    "CombinedQuantile",
    "ConjugateRegression",
    "Flat",
    "FromSampler",
    "IndependentPrior",
    "Moments",
    "NormalInverseGamma",
    "PartitionPosterior",
    "PrivateBounds",
    "ProbabilityPreview",
    "QuantilePreview",
    "SemiConjugateRegression",
    "Zellner",
    "aggregate_mean",
    "aggregate_sd",
    "centred_bounds",
    "centred_failure",
    "combine",
    "count_records",
    "doubled_bounds",
    "doubling_failure",
    "fisher_probability",
    "fisher_slope",
    "partition_frames",
    "partition_labels",
    "partition_moments",
    "partition_probabilities",
    "partition_quantiles",
    "preview_probability",
    "preview_quantile",
    "probability_nonprivate",
    "quantile_nonprivate",
    "release_probability",
    "release_quantile",
    "rescale_probability",
    "residual_sd",
]
