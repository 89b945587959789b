"""What a release stands in for, without privacy: the full-data answer, and every partition's own.

They read data and return what they find: for comparison, and for the curator's eyes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dpbook._arrays import Array
from dpbook._validation import seeded_generator
from dpbook.aggregate.asking import Split, points_of, schema_of
from dpbook.aggregate.regression import Regression
from dpbook.aggregate.splitting import partition_frames
from dpbook.schema import Schema

__all__ = ["partition_probabilities", "partition_quantiles", "probability_nonprivate", "quantile_nonprivate"]


def probability_nonprivate(data: Any, cutoff: ArrayLike, *, posterior: Any, schema: Schema | None = None) -> Any:
    """Return the full-data posterior probability: the answer that the partitions stand in for. Not private.

    Explained in :doc:`/book/sample-and-aggregate/split-compute-average`.

    Parameters
    ----------
    data, cutoff, posterior, schema
        As in :func:`release_probability`.

    Returns
    -------
    float or ndarray
        Of the shape of ``cutoff``.

    Examples
    --------
    >>> from dpbook import aggregate
    >>> rows = [[0.0, 0.1], [1.0, 1.9], [2.0, 4.2], [3.0, 5.9]]
    >>> print(aggregate.probability_nonprivate(rows, 2.0, posterior=aggregate.ConjugateRegression()).round(3))
    0.719
    """
    return posterior.probability(_whole(data, posterior, schema), points_of("cutoff", cutoff))


def quantile_nonprivate(data: Any, probability: ArrayLike, *, posterior: Any, schema: Schema | None = None) -> Any:
    """Return the full-data posterior quantile: the answer that the partitions stand in for. Not private.

    Explained in :doc:`/book/sample-and-aggregate/posterior-quantiles`.

    Parameters
    ----------
    data, probability, posterior, schema
        As in :func:`release_quantile`.

    Returns
    -------
    float or ndarray
        Of the shape of ``probability``.

    Examples
    --------
    >>> from dpbook import aggregate
    >>> rows = [[0.0, 0.1], [1.0, 1.9], [2.0, 4.2], [3.0, 5.9]]
    >>> model = aggregate.ConjugateRegression(prior=aggregate.Flat())
    >>> print(aggregate.quantile_nonprivate(rows, 0.5, posterior=model).round(3))
    1.97
    """
    return posterior.quantile(_whole(data, posterior, schema), points_of("probability", probability), power=1.0)


def partition_probabilities(
    data: Any,
    cutoff: ArrayLike,
    *,
    posterior: Any,
    partitions: int,
    schema: Schema | None = None,
    n: int | None = None,
    rng: np.random.Generator | None = None,
) -> Array:
    """Return every partition's posterior probability: what a release averages. Not private: for the curator's eyes.

    Explained in :doc:`/book/sample-and-aggregate/split-compute-average`.

    Parameters
    ----------
    data, cutoff, posterior, partitions, schema, n
        As in :func:`release_probability`.
    rng : numpy.random.Generator, optional
        Source of the labels. The same generator gives the split of a seeded release with ``spread=0``.

    Returns
    -------
    ndarray
        Of shape (M,) for one cutoff, (M, K) for K of them; 1/2 where a partition failed.

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook import aggregate
    >>> rows = np.random.default_rng(0).normal(size=(200, 2))
    >>> aggregate.partition_probabilities(rows, 0.0, posterior=aggregate.ConjugateRegression(), partitions=4).shape
    (4,)
    """
    cutoffs = points_of("cutoff", cutoff)
    split = Split.read(data, posterior, "probability", partitions, schema=schema, n=n, rng=seeded_generator(rng))
    return split.answers(cutoffs.ravel()).reshape(-1, *cutoffs.shape)


def partition_quantiles(
    data: Any,
    probability: ArrayLike,
    *,
    posterior: Any,
    partitions: int,
    schema: Schema | None = None,
    n: int | None = None,
    rng: np.random.Generator | None = None,
) -> Array:
    """Return every partition's quantile, with its likelihood to the power M. Not private: for the curator's eyes.

    Explained in :doc:`/book/sample-and-aggregate/posterior-quantiles`.

    Parameters
    ----------
    data, probability, posterior, partitions, schema, n, rng
        As in :func:`release_quantile` and :func:`partition_probabilities`.

    Returns
    -------
    ndarray
        Of shape (M,) for one probability, (M, K) for K of them; NaN where a partition failed.

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook import aggregate
    >>> rows = np.random.default_rng(0).normal(size=(200, 2))
    >>> aggregate.partition_quantiles(rows, [0.1, 0.9], posterior=aggregate.ConjugateRegression(), partitions=4).shape
    (4, 2)
    """
    points = points_of("probability", probability)
    split = Split.read(data, posterior, "quantile", partitions, schema=schema, n=n, rng=seeded_generator(rng))
    return split.answers(points.ravel()).reshape(-1, *points.shape)


def _whole(data: Any, posterior: Any, schema: Schema | None) -> Any:
    """Return data in the form in which a posterior takes one partition that is everything."""
    known = schema_of(schema, posterior)
    if isinstance(posterior, Regression):
        return data if known is None else known.apply(data)
    return partition_frames(data, partitions=1, schema=known)[0]
