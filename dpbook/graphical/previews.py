"""What clique tables would be worth, from public numbers alone, before anything is spent."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dpbook._validation import integer, positive
from dpbook.graphical.domain import Domain, checked_groups, group_name
from dpbook.preview import Preview
from dpbook.sensitivity import histogram
from dpbook.widths import NORMAL

__all__ = ["preview"]


def preview(domain: Domain | Mapping[str, Any], cliques: Sequence[Any], *, n: int, epsilon: float) -> Preview:
    """Say, before anything is spent, how noisy the tables would be.

    Explained in :doc:`/book/graphical-models/learning-from-noisy-tables`.

    Parameters
    ----------
    domain, cliques, epsilon
        As in :func:`release`.
    n : int
        The public number of records.

    Returns
    -------
    Preview
        For each table the standard deviations of the count in a cell of average size, and the ``width`` of a normal
        95 % interval of it; the notes hold the number of
        ``cells`` that would be released, and the ``relative_error``, the noise's standard deviation over the average
        count in the largest table: above 1, most of its cells are noise.

    Examples
    --------
    >>> from dpbook import graphical
    >>> look = graphical.preview({"a": 10, "b": 10, "c": 2}, [("a", "b"), ("b", "c")], n=10_000, epsilon=1.0)
    >>> look.noise_scale, look.notes["cells"], round(look.notes["relative_error"], 3)
    (4.0, 120, 0.057)
    >>> look.summary()[["noise_sd", "sampling_sd"]].round(1)
         noise_sd  sampling_sd
    a,b       5.7          9.9
    b,c       5.7         21.8
    """
    known = Domain.of(domain)
    groups = checked_groups(cliques, known)
    n, epsilon = integer("n", n, least=1), positive("epsilon", epsilon)
    sizes = np.array([known.size(group[0]) for group in groups])
    share = 1 / sizes
    sensitivity = histogram(tables=len(groups))
    scale = sensitivity / epsilon
    sd = math.sqrt(2) * scale
    sampling = np.sqrt(n * share * (1 - share))
    return Preview(
        names=tuple(group_name(group) for group in groups),
        sensitivity=sensitivity,
        noise_scale=scale,
        noise_sd=np.full(len(groups), sd),
        sampling_sd=sampling,
        posterior_sd=np.hypot(sd, sampling),
        nonprivate_sd=sampling,
        break_even_n=sd**2 / (share * (1 - share)),
        width=NORMAL * np.hypot(sd, sampling),
        notes={"cells": int(sizes.sum()), "relative_error": sd / (n * float(share.min()))},
    )
