"""For comparison only: posteriors from the data themselves, **not private**."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpbook._validation import analyst_generator, integer
from dpbook.expfam.families import require_family
from dpbook.expfam.family import Family
from dpbook.expfam.reading import coded
from dpbook.posterior import Posterior
from dpbook.records import as_chunks

__all__ = ["infer_nonprivate"]


def infer_nonprivate(
    data: Any,
    family: Family,
    prior: Any,
    *,
    draws: int = 4000,
    chains: int = 4,
    rng: np.random.Generator | None = None,
) -> Posterior:
    """Return the posterior from the data themselves: **not private**, for comparison only.

    Explained in :doc:`/book/exponential-families/naive-posterior`.

    Parameters
    ----------
    data, family
        As in :func:`release`; no record is clipped or redacted.
    prior, draws, chains, rng
        As in :func:`infer`.

    Returns
    -------
    Posterior
        With draws of ``theta``.

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook import expfam
    >>> posterior = expfam.infer_nonprivate(
    ...     [1, 0, 1], expfam.Binomial(), expfam.Beta(1, 1), rng=np.random.default_rng(0)
    ... )
    >>> round(posterior.mean("theta"), 1)
    np.float64(0.6)
    """
    require_family(family)
    family.check_prior(prior)
    draws, chains = integer("draws", draws, least=1), integer("chains", chains, least=1)
    rng = analyst_generator(rng)
    n, total = 0, np.zeros(family.size)
    for rows in as_chunks(coded(data, family), name="data"):
        if rows.shape[1] != 1:
            raise ValueError(f"data must have one column, got {rows.shape[1]}")
        family.check_records(rows)
        n, total = n + len(rows), total + family.statistics(rows).sum(axis=0)
    if n == 0:
        raise ValueError("data must hold at least one record, got none")
    shape = (chains, -(-draws // chains))
    theta = family.draw_parameter(prior, np.broadcast_to(total, (*shape, family.size)), np.asarray(n), rng)
    return Posterior({"theta": theta}, "non-private", labels={"theta": family.labels} if family.labels else {})
