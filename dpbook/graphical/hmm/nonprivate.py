"""The comparator of hidden states, which reads the true table and protects nobody."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from dpbook._validation import flag, integer, method_options
from dpbook.graphical.hmm.model import Prior, checked_prior
from dpbook.graphical.hmm.releases import count_table
from dpbook.graphical.hmm.sampler import OPTIONS, Exact, Settings, sample
from dpbook.posterior import Posterior

__all__ = ["infer_nonprivate"]


def infer_nonprivate(
    data: ArrayLike,
    *,
    states: int = 2,
    prior: Prior | None = None,
    order_by: int = 0,
    draws: int = 1000,
    chains: int = 4,
    burn_in: int | None = None,
    paths: bool = True,
    rng: np.random.Generator | None = None,
    progress: bool = False,
) -> Posterior:
    """Infer emissions, transitions and hidden states from the true table: the comparator, which is not private.

    Parameters
    ----------
    data : array of int, shape (places, months, types)
        The true table.
    states, prior, order_by, draws, chains, burn_in, paths, rng, progress
        As in :func:`infer`.

    Returns
    -------
    Posterior
        As from :func:`infer`.

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook.graphical import hmm
    >>> table = np.array([[[45, 5]] * 5 + [[10, 40]] * 5])
    >>> hmm.infer_nonprivate(table, draws=400, rng=np.random.default_rng(2)).mean("emission").round(1)
    array([[0.2, 0.8],
           [0.9, 0.1]])

    Explained in :doc:`/book/graphical-models/hidden-states`.
    """
    order_by, paths = integer("order_by", order_by, least=0), flag("paths", paths)
    given = {"states": states, "prior": prior, "draws": draws, "chains": chains, "burn_in": burn_in}
    settings = Settings(**method_options("sampler", given | {"rng": rng, "progress": progress}, {"sampler": OPTIONS}))
    observed = Exact(count_table(data).astype(float)[None], checked_prior(settings.prior))
    return sample(observed, settings, order_by=order_by, paths=paths, method="non-private")[0]
