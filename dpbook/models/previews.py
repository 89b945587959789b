"""What a release of statistics would be worth to a model, before anything is spent: from public numbers alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dpbook._arrays import Array
from dpbook._validation import finite_number, integer, privacy_loss
from dpbook.models.layout import Recipe
from dpbook.models.model import Law, Model, law_of
from dpbook.models.statistics import Statistic
from dpbook.preview import Preview
from dpbook.schema import Schema
from dpbook.widths import scale_for

__all__ = ["preview"]

_POINTS = 2**14  # simulated records, for derivatives
_APART = 0.05  # of the positions between which a difference is taken: far, since a simulator may be a staircase
_PRIOR = 4000  # draws, for the prior's spread


def preview(
    statistics: Statistic | Sequence[Statistic],
    *,
    schema: Schema,
    n: int,
    epsilon: float,
    mechanism: str = "laplace",
    delta: float = 0.0,
    model: Model | None = None,
    at: Mapping[str, float] | None = None,
) -> Preview:
    """Say, before anything is spent, how noisy a release would be, and how much it would teach about a model.

    Without a model, a row per sum: the noise on it, and how wide it can be. With one, a row per parameter: what the
    posterior's standard deviation would be, by the delta method at a guess, so that it is rough where the posterior is
    wide. Explained in :doc:`/book/any-model/if-you-can-simulate-it`.

    Parameters
    ----------
    statistics, schema, epsilon, mechanism, delta
        As in :func:`release`.
    n : int
        The public number of records.
    model : Model, optional
        What the sums are for.
    at : mapping of str to float, optional
        A guess at the parameters, made without the data; by default the medians of their priors.

    Returns
    -------
    Preview
        ``sampling_sd`` and ``noise_sd`` are those of an estimate from the sums alone, ``posterior_sd`` knows the prior.

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook import Schema, models
    >>> from dpbook.schema import Number
    >>> def wait(parameters, uniforms):
    ...     return -parameters["mean"] * np.log(uniforms[0])
    >>> look = models.preview(models.Powers("wait"), schema=Schema({"wait": Number(0, 60)}), n=500, epsilon=0.5,
    ...                       model=models.Model({"mean": models.LogNormal(10, 1)}, wait), at={"mean": 8.0})
    >>> look.posterior_sd.round(1)
    array([0.5])
    """
    epsilon, delta = privacy_loss(epsilon, delta, mechanism)
    layout, n = Recipe.of(statistics, schema), integer("n", n, least=1)
    bound, _ = layout.sensitivity(1 if mechanism == "laplace" else 2)
    scale = scale_for(bound, epsilon, delta, mechanism)
    noise = (np.sqrt(2) if mechanism == "laplace" else 1.0) * scale / layout.weights
    if model is None:
        return Preview(layout.labels, bound, scale, noise_sd=noise)
    law = law_of(model, layout)
    sampling, both, after = _spreads(law, law.coordinates.position(_guess(model, at)), n, noise)
    return Preview(
        model.names,
        bound,
        scale,
        noise_sd=np.sqrt(np.maximum(both**2 - sampling**2, 0.0)),
        sampling_sd=sampling,
        posterior_sd=after,
    )


def _guess(model: Model, at: Mapping[str, Any] | None) -> dict[str, Array]:
    """Return parameters (1,): the guess, or the medians of the priors."""
    if at is None:
        drawn = model.draw(_PRIOR, np.random.default_rng(0))
        return {name: np.median(each, keepdims=True) for name, each in drawn.items()}
    if set(at) != set(model.names):
        raise ValueError(f"at must hold a number for each of {list(model.names)}, got {list(at)}")
    guess = {name: np.array([finite_number(f"at[{name!r}]", at[name])]) for name in model.names}
    for name, value in guess.items():
        low, high = model.prior[name].support
        if not low < value[0] < high:
            raise ValueError(f"at[{name!r}] must lie inside ({low:g}, {high:g}), got {value[0]:g}")
    return guess


def _spreads(law: Law, position: Array, n: int, noise: Array) -> tuple[Array, Array, Array]:
    """Return sds of the parameters: from sampling alone, with noise, and with the prior, by the delta method."""
    steps = _APART * np.eye(law.dim)
    around = np.concatenate([position, position + steps, position - steps])
    mean, cov = law.moments(around, _POINTS)
    slope = n * (mean[1 : 1 + law.dim] - mean[1 + law.dim :]).T / (2 * _APART)
    prior = law.coordinates.position(law.model.draw(_PRIOR, np.random.default_rng(0)))
    belief = np.diag(1 / np.maximum(np.var(prior, axis=0), 1e-300))
    named = law.coordinates.parameters(around)
    apart = [named[name][1 + i] - named[name][1 + law.dim + i] for i, name in enumerate(law.model.names)]
    per_step = np.array(apart) / (2 * _APART)
    found = []
    for variance, known in ((1e-9 * n, 0.0), (noise**2, 0.0), (noise**2, 1.0)):
        total = n * cov[0] + np.eye(len(noise)) * variance
        information = slope.T @ np.linalg.solve(total, slope) + known * belief
        inverse = np.linalg.pinv(information, rcond=1e-12, hermitian=True)
        found.append(np.abs(per_step) * np.sqrt(np.maximum(np.diag(inverse), 0.0)))
    return found[0], found[1], found[2]
