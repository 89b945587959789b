"""The general-purpose rival: potentials learned by noisy stochastic gradients, on the curator's side.

Each step draws a batch, clips every record's gradient, adds Gaussian noise and moves the potentials. What is released
is the potentials, (epsilon, delta)-DP for replace-one neighbours, n public; chapter 5 compares them with noisy tables.
Needs the extra ``dpsgd`` (the package dp-accounting).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from dpbook import noise
from dpbook._arrays import Array
from dpbook._validation import analyst_generator, flag, positive, seeded_generator
from dpbook.budget import PrivacyBudget, charge
from dpbook.graphical.counting import Layout, layout_of, record_chunks
from dpbook.graphical.domain import POTENTIALS_MODEL, Domain, Groups, checked_groups, group_name
from dpbook.graphical.tables import NoisyTables
from dpbook.graphical.training import Training, accountants, checked_delta, cost_of_all_runs, gradient_noise
from dpbook.release import Release

__all__ = ["release_dpsgd"]

_FARTHEST = 1e8  # from 0, a potential may be: no law changes beyond, and sums stay finite


def release_dpsgd(
    data: Any,
    domain: Domain | Mapping[str, Any],
    cliques: Sequence[Any],
    *,
    epsilon: float,
    delta: float | None = None,
    training: Training | None = None,
    counts: str | None = None,
    person: str | None = None,
    null: Any = None,
    insecure: bool = False,
    rng: np.random.Generator | None = None,
    budget: PrivacyBudget | None = None,
) -> Release:
    """Release the potentials of a log-linear model, learned by differentially private stochastic gradients.

    (epsilon, delta)-DP for replace-one neighbours, n public; the unit is one row or, with ``person``, all rows of one
    person. Proof sketch: each step takes every record with probability ``sampling`` and sums their gradients, clipped
    to the norm ``clip``. A record's gradient is its indicator in each table less the model's marginals. Between
    neighbours, the sum's law moves from ``(1 - q) N(0) + q N(g)`` to ``(1 - q) N(0) + q N(h)``, with g and h no longer
    than ``clip``; the worst pair has h = -g. The noise multiplier that makes all steps together (epsilon, delta)-DP
    comes from the privacy loss distribution of that pair (dp-accounting's ``PLDAccountant`` with ``REPLACE_ONE``).

    The settings matter, and whoever tries several on the records spends epsilon for each. Say how many runs there were
    with ``Training(tuned_over=k)``: k runs, this one the last, are charged k epsilon and k delta, and that is what the
    release then promises. Proof: each run is (epsilon, delta)-DP whatever the outputs of the runs before it, so that
    all k outputs together are (k epsilon, k delta)-DP by sequential composition, which lets a run's settings depend on
    earlier outputs. A choice made from those outputs is post-processing. A choice that looks at the records again is
    not: where settings won by their exact likelihood, as in :func:`tune_dpsgd_nonprivate`, no multiple of epsilon is
    proved. (The source chooses in that way and counts one run; so does our comparison, and its numbers flatter this
    method.) Explained in :doc:`/book/graphical-models/mobility`.

    Parameters
    ----------
    data, domain, cliques, counts, person, null, budget
        As in :func:`dpbook.graphical.release`; gradients of tied cliques are averaged, not added.
    epsilon : float
        The privacy loss of one run, all steps together.
    delta : float, optional
        Of one run, at least 1e-12. By default 1/n, the source's choice. That is large: it permits publishing one
        record chosen at random.
    training : Training, optional
        Rate, clipping norm, sampling, steps, and how they were found; by default ``Training()``.
    insecure : bool, default False
        Must be True for a real release (``rng=None``): batches and clipped sums are computed in floating point, for
        which there is no safe sampler. The release says ``float_safe=False`` in any case.
    rng : numpy.random.Generator, optional
        Seeded teaching noise; None, the default, means a real release.

    Returns
    -------
    Release
        With the log-potentials of each clique as values (:func:`field_of` makes a field of them), the standard
        deviation of the noise on a step's summed gradient as ``scale``, what was charged as ``epsilon`` and ``delta``,
        and in ``settings`` the loss of one run and of all that tuning read.

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook import graphical
    >>> table = np.array([[300, 100], [100, 500]])
    >>> release = graphical.release_dpsgd(table, {"a": 2, "b": 2}, [("a", "b")], epsilon=2.0,
    ...                                   training=graphical.Training(steps=100), rng=np.random.default_rng(0))
    >>> release.delta, round(release.settings["noise_multiplier"], 2)
    (0.001, 7.22)
    >>> graphical.field_of(release).marginal(("a", "b")).round(1)
    array([[0.3, 0.1],
           [0.1, 0.5]])
    """
    known = Domain.of(domain)
    groups = checked_groups(cliques, known)
    training = with_rate(training, known, groups)
    epsilon = positive("epsilon", epsilon)
    if delta is not None:
        delta = checked_delta(delta)
    rng = seeded_generator(rng)
    if not flag("insecure", insecure) and rng is None:
        raise ValueError("insecure must be True for a real release: noisy gradients have no safe sampler")
    accountants()
    units = units_of(data, known, groups, layout_of(domain, counts, person, null))
    delta = 1 / max(units.n, 2) if delta is None else delta
    multiplier = gradient_noise(epsilon=epsilon, delta=delta, sampling=training.sampling, steps=training.steps)
    tables = empty_tables(known, groups, units.n, training.inference)
    all_runs = cost_of_all_runs(training, epsilon, delta)
    charged = all_runs if training.tuning == "uncharged" else (epsilon, delta)
    paid = charge(budget, *charged, label="noisy gradients")
    theta = descend(units, tables, training, multiplier * training.clip, analyst_generator(rng))
    names = [group_name(group) for group in groups]
    made = Release(
        values=dict(zip(names, tables.split(theta), strict=True)),
        model=POTENTIALS_MODEL,
        mechanism="gaussian",
        scale=dict.fromkeys(names, multiplier * training.clip),
        sensitivity=dict.fromkeys(names, 2 * training.clip),
        epsilon=charged[0],
        delta=charged[1],
        n=units.n,
        settings={
            "domain": known.settings,
            "cliques": groups,
            "learning_rate": training.learning_rate,
            "clip": training.clip,
            "sampling": training.sampling,
            "steps": training.steps,
            "noise_multiplier": multiplier,
            "accountant": "privacy loss distribution, replace-one",
            "tuned_over": training.tuned_over,
            "tuning": training.tuning,
            "epsilon_a_run": epsilon,
            "delta_a_run": delta,
            "epsilon_with_tuning": all_runs[0],
            "delta_with_tuning": all_runs[1],
        },
        float_safe=False,
    )
    return paid.entered(made)


def with_rate(training: Any, domain: Domain, groups: Groups) -> Training:
    """Return the settings, learning rate worked out."""
    if training is None:
        training = Training()
    if not isinstance(training, Training):
        raise TypeError(f"training must be a graphical.Training, got {type(training).__name__}")
    if training.learning_rate is not None:
        return training
    return replace(training, learning_rate=math.sqrt(float(np.mean([domain.size(group[0]) for group in groups]))))


# ---------------------------------------------------------------------------------------------------------------------
# Gradients


class Units(NamedTuple):
    """What each unit of privacy (a row, or a person) adds to the tables."""

    cells: sparse.csr_matrix  # (unit, cell): weights, within 1 a table
    shares: Array  # (unit, table): the total weight in each table, 1, or 0 where all is null
    n: int


def units_of(data: Any, domain: Domain, groups: Groups, layout: Layout) -> Units:
    """Return every unit's cells, each table's weights divided by how many of the unit's cliques count in it."""
    chunks = list(record_chunks(data, domain, groups, layout))
    if sum(int(chunk.times.sum()) for chunk in chunks) == 0:
        raise ValueError("data must hold at least one record, got none")
    codes = np.concatenate([np.repeat(chunk.codes, chunk.times, axis=0) for chunk in chunks])
    persons = chunks[0].persons
    owners = np.arange(len(codes)) if persons is None else persons
    n = int(owners.max()) + 1
    blocks, shares = [], []
    for group in groups:
        shape = domain.shape(group[0])
        block = sparse.csr_matrix((n, int(np.prod(shape))))
        for member in group:
            seen = np.ones(len(codes), dtype=bool)
            if all(name in layout.null for name in member):
                columns = [codes[:, domain.names.index(name)] == layout.null[name] for name in member]
                seen = ~np.logical_and.reduce(columns)
            cells = np.ravel_multi_index(tuple(codes[:, domain.indices(member)].T), shape)
            block = block + sparse.csr_matrix(
                (np.ones(int(seen.sum())), (owners[seen], cells[seen])), shape=(n, int(np.prod(shape)))
            )
        total = np.asarray(block.sum(axis=1)).ravel()
        blocks.append(sparse.diags(1 / np.maximum(total, 1)) @ block)
        shares.append((total > 0).astype(float))
    return Units(sparse.hstack(blocks, format="csr"), np.stack(shares, axis=1), n)


def empty_tables(domain: Domain, groups: Groups, n: int, inference: str) -> NoisyTables:
    """Return tables without counts, for inference on their graph."""
    tables = [np.zeros(domain.shape(group[0])) for group in groups]
    return NoisyTables.of(domain, groups, tables, [0.0] * len(groups), n, inference=inference)


def _clipped_sum(units: Units, means: Array, lengths: Array, ends: Sequence[int], clip: float) -> Array:
    """Return the sum of the units' gradients (cells less means, where anything was seen), each clipped.

    Squared norms come from the sparse cells: those of the cells, less twice their overlap with the means, plus the
    means' own; so no unit's dense gradient is ever made.
    """
    by_table = np.array([means[a:b] @ means[a:b] for a, b in itertools.pairwise(ends)])
    squares = lengths - 2 * (units.cells @ means) + units.shares @ by_table
    factors = np.minimum(1.0, clip / np.sqrt(np.maximum(squares, 1e-300)))
    pull = np.repeat(units.shares.T @ factors, np.diff(ends))
    return np.asarray(units.cells.T @ factors - pull * means)


def descend(units: Units, tables: NoisyTables, training: Training, noise_sd: float, rng: np.random.Generator) -> Array:
    """Take the noisy steps from potentials of zero; return their mean over the second half."""
    assert training.learning_rate is not None
    ends = [0, *np.cumsum([int(np.prod(shape)) for shape in tables.shapes]).tolist()]
    theta, total = np.zeros(ends[-1]), np.zeros(ends[-1])
    lengths = np.asarray(units.cells.multiply(units.cells).sum(axis=1)).ravel()
    sampling, steps = training.sampling, training.steps
    for step in range(steps):
        inside = rng.random(units.n) < sampling if sampling < 1 else np.ones(units.n, dtype=bool)
        batch = Units(units.cells[inside], units.shares[inside], units.n)
        gradient = _clipped_sum(batch, tables.infer(theta).means, lengths[inside], ends, training.clip)
        noisy = noise.add_gaussian(gradient, noise_sd, rng)
        theta = np.clip(theta + training.learning_rate * noisy / (sampling * units.n), -_FARTHEST, _FARTHEST)
        if step >= steps // 2:
            total += theta
    return total / (steps - steps // 2)
