"""What a release of events would be worth, from public numbers alone, before anything is spent."""

from __future__ import annotations

import math
from collections.abc import Sequence

from dpbook._validation import integer, positive
from dpbook.graphical.hmm.temperatures import emission_loss, lattice_of
from dpbook.preview import Preview
from dpbook.sensitivity import histogram

__all__ = ["preview"]


def preview(
    shape: tuple[int, int, int],
    *,
    n: int,
    epsilon: float,
    sweeps: int = 20,
    floor: float = 0.01,
    grid: int = 200,
) -> Preview:
    """Say, before anything is spent, how noisy the table would be and how hot the private Gibbs sampler.

    Explained in :doc:`/book/graphical-models/hidden-states`.

    Parameters
    ----------
    shape : (places, months, types)
        Of the table.
    n : int
        The public number of events.
    epsilon, sweeps, floor, grid
        As in :func:`release_gibbs`.

    Returns
    -------
    Preview
        The noise on a cell when the table is noised once, beside the chance in a count of average size. The notes
        hold the public mean count of a cell, ``events_a_cell``; the ``temperature`` of the emission draws, when every
        update is an exponential mechanism; and ``effective_events``, n over the temperature: how many events those
        updates listen to.

    Examples
    --------
    >>> from dpbook.graphical import hmm
    >>> look = hmm.preview((18, 61, 5), n=160_000, epsilon=0.1)
    >>> round(look.noise_sd, 1), round(look.notes["events_a_cell"], 1)
    (28.3, 29.1)
    >>> round(look.notes["temperature"]), round(look.notes["effective_events"])
    (3651, 44)
    """
    if not isinstance(shape, Sequence) or len(shape) != 3:
        raise TypeError(f"shape must be (places, months, types), got {shape!r}")
    places, months, types = (integer("shape", size, least=1) for size in shape)
    n, epsilon = integer("n", n, least=1), positive("epsilon", epsilon)
    least, grid = lattice_of(floor, grid, integer("shape", types, least=2))
    sensitivity = int(histogram())
    ratio = math.exp(-epsilon / sensitivity)
    temperature = max(1.0, emission_loss(least, grid, types) * 2 * integer("sweeps", sweeps, least=1) / epsilon)
    events = n / (places * months * types)
    return Preview(
        names=("count of a cell",),
        sensitivity=float(sensitivity),
        noise_scale=sensitivity / epsilon,
        noise_sd=math.sqrt(2 * ratio) / -math.expm1(-epsilon / sensitivity),
        sampling_sd=math.sqrt(events),
        notes={"events_a_cell": events, "temperature": temperature, "effective_events": n / temperature},
    )
