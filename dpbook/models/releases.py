"""The curator's side of models of your own: noisy sums of public statistics.

Every release is private for replace-one neighbours, n public. The section "If you can simulate it" explains them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dpbook import noise
from dpbook._validation import privacy_loss, seeded_generator
from dpbook.budget import PrivacyBudget, charge
from dpbook.models.layout import MODEL, Recipe
from dpbook.models.reading import rows_of
from dpbook.models.statistics import Statistic
from dpbook.records import exact_sum, grid_unit
from dpbook.release import Release
from dpbook.schema import Schema
from dpbook.sensitivity import rounded

__all__ = ["release"]


def release(
    data: Any,
    statistics: Statistic | Sequence[Statistic],
    *,
    schema: Schema,
    epsilon: float,
    mechanism: str = "laplace",
    delta: float = 0.0,
    rng: np.random.Generator | None = None,
    budget: PrivacyBudget | None = None,
) -> Release:
    """Release the sums of public statistics of records, with noise: what a model of your own is fitted to.

    epsilon-DP (Laplace) or (epsilon, delta)-DP (Gaussian) for replace-one neighbours, n public. Every record's
    statistics are clipped to their public ranges, so that privacy rests on no promise about the data or about functions
    of your own. What the schema refuses (a missing value, an unknown label) raises, and only the curator may see that.
    Explained in :doc:`/book/any-model/if-you-can-simulate-it`.

    Parameters
    ----------
    data : DataFrame, Arrow table, list of rows, mapping of columns, array, iterator of chunks, or Dask collection
        The records, as :meth:`dpbook.schema.Schema.apply` takes them.
    statistics : Statistic or sequence of Statistic
        What is summed: :class:`Powers`, :class:`Table`, :class:`Histogram`, :class:`Indicator`, :class:`Product`,
        :class:`Own`. One noise is calibrated to the joint sensitivity of all of them.
    schema : Schema
        What a record is: columns, kinds and bounds, known without the data.
    epsilon : float
        The privacy loss of all statistics together.
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
        With the noisy sums of each statistic, scaled to its range, under its name.

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook import Schema, models
    >>> from dpbook.schema import Number
    >>> rng = np.random.default_rng(1)
    >>> schema = Schema({"wait": Number(0, 30)})
    >>> noisy = models.release(
    ...     rng.exponential(8, 150), models.Powers("wait", degree=2), schema=schema, epsilon=1.0, rng=rng)
    >>> noisy["powers of wait"].round(), round(noisy.scale["powers of wait"], 6)
    (array([-73.,  70.]), 2.25)
    """
    epsilon, delta = privacy_loss(epsilon, delta, mechanism)
    layout = Recipe.of(statistics, schema)
    norm, unit = 1 if mechanism == "laplace" else 2, grid_unit(float(layout.weights.max()))
    own, exact = layout.sensitivity(norm)
    size, rng = len(layout.weights), seeded_generator(rng)
    bound = rounded(own, size, unit, norm)
    settings = {**layout.settings(), "sensitivity": "exact" if exact else "bound"}
    on_sum = noise.on_sum(mechanism, bound, epsilon, delta, rng, unit=unit, statistics=size)
    total = exact_sum(rows_of(data, layout), layout.rows, unit=unit, name="data")
    paid = charge(budget, epsilon, delta, label="model statistics", **on_sum.loss)
    noisy, scale = on_sum.add(total)
    weight = {each.name: each.weight for each in layout.statistics}
    known = schema.bounds
    made = Release(
        values=layout.split(noisy / layout.weights),
        model=MODEL,
        mechanism=mechanism,
        scale={name: scale / each for name, each in weight.items()},
        sensitivity={name: bound / each for name, each in weight.items()},
        epsilon=epsilon,
        delta=delta,
        n=total.n,
        bounds={name: known[name] for name in layout.columns if name in known},
        settings=settings,
        float_safe=rng is None,
    )
    return paid.entered(made)
