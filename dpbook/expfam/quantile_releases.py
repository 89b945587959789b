"""The curator's side of quantiles: :func:`release_quantiles`, private for replace-one neighbours, n public.

The section on quantiles with intervals explains it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dpbook import noise
from dpbook._validation import interval, privacy_loss, seeded_generator
from dpbook.budget import PrivacyBudget, charge
from dpbook.expfam.described import described
from dpbook.expfam.quantile_tree import MODEL, CountTree, asked_quantiles
from dpbook.records import ExactSum, as_chunks
from dpbook.release import Release
from dpbook.schema import Schema
from dpbook.sensitivity import histogram

__all__ = ["release_quantiles"]


def release_quantiles(
    data: Any,
    q: float | ArrayLike,
    bounds: tuple[float, float] | None = None,
    *,
    epsilon: float,
    schema: Schema | None = None,
    branches: Sequence[int] = (10, 10, 10),
    mechanism: str = "laplace",
    delta: float = 0.0,
    rng: np.random.Generator | None = None,
    budget: PrivacyBudget | None = None,
) -> Release:
    """Release what quantiles need, however many: noisy counts of records in ever finer cells between the bounds.

    epsilon-DP (Laplace) or (epsilon, delta)-DP (Gaussian) for replace-one neighbours, n public. In each level of cells
    a replaced record leaves one and enters another, so that L levels have sensitivity 2L, or the root of 2L in L2.
    Records are clipped to the bounds, infinite ones too. A missing value raises, and only the curator may see that.
    Explained in :doc:`/book/exponential-families/quantiles-with-intervals`.

    Parameters
    ----------
    data : array, Series, table of one column, path, Arrow stream, iterator of chunks, or Dask collection
        The records.
    q : float or sequence of float
        Which quantiles :func:`infer` is to report, increasing, between 0 and 1. Their number costs nothing.
    bounds : (low, high), optional
        Public bounds, set without looking at the records; by default those of the schema.
    epsilon : float
        The privacy loss of all counts together.
    schema : Schema, optional
        The one column to release, of a table that may have others, and what becomes of its missing values.
    branches : sequence of int, default (10, 10, 10)
        How many cells the bounds are divided into, and each of these, and so on: by default three levels, of which the
        finest has 1,000 cells. A quantile is told to within one of these.
    mechanism : {"laplace", "gaussian"}
        The noise.
    delta : float, default 0.0
        0 for Laplace noise, greater than 0 for Gaussian noise.
    rng : numpy.random.Generator, optional
        Seeded teaching noise; None, the default, makes a real release.
    budget : PrivacyBudget, optional
        Charged before the noise is drawn.

    Returns
    -------
    Release
        With the noisy counts of all levels as ``.values["counts"]``, the coarsest first.

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook import expfam
    >>> rng = np.random.default_rng(1)
    >>> incomes = rng.lognormal(3, 0.8, 2000)
    >>> noisy = expfam.release_quantiles(incomes, [0.25, 0.5, 0.75], (0, 200), epsilon=1.0, rng=rng)
    >>> expfam.infer(noisy, rng=rng).interval(0.95, "quantiles").round()  # of 12, 20 and 34
    array([[10., 12.],
           [18., 21.],
           [31., 36.]])
    """
    data, known, *_ = described(data, schema)
    tree = CountTree(interval("bounds", known if bounds is None else bounds), tuple(branches))
    asked = asked_quantiles(q)
    epsilon, delta = privacy_loss(epsilon, delta, mechanism)
    levels, size, rng = len(tree.branches), sum(tree.sizes), seeded_generator(rng)
    bound = histogram(tables=levels, norm=1 if mechanism == "laplace" else 2)
    on_sum = noise.on_sum(mechanism, bound, epsilon, delta, rng, unit=1.0, statistics=size)
    total = _counted(data, tree)
    paid = charge(budget, epsilon, delta, label=MODEL, **on_sum.loss)
    noisy, scale = on_sum.add(total)
    made = Release(
        values={"counts": noisy},
        model=MODEL,
        mechanism=mechanism,
        scale={"counts": scale},
        sensitivity={"counts": bound},
        epsilon=epsilon,
        delta=delta,
        n=total.n,
        bounds={"x": tree.bounds},
        settings={"q": asked, "branches": tree.branches},
        float_safe=rng is None,
    )
    return paid.entered(made)


def _counted(data: Any, tree: CountTree) -> ExactSum:
    """Return the exact counts of all levels: whole numbers, so that order and chunks play no part."""
    counts, n = np.zeros(tree.cells, dtype=np.int64), 0
    for rows in as_chunks(data, infinite=True):
        if rows.shape[1] != 1:
            raise ValueError(f"data must have one column, got {rows.shape[1]}")
        counts += np.bincount(tree.codes(rows[:, 0]), minlength=tree.cells)
        n += len(rows)
    if n == 0:
        raise ValueError("data must hold at least one record, got none")
    return ExactSum(tree.levels(counts), 1.0, n)
