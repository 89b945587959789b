"""Deliberate breaks, one and more for every guard: a guard that does not fail under them guards nothing.

A mutant makes, from a function that promises privacy, one that breaks the promise: it wraps the function, or patches
what the function is built on. :func:`of_any` breaks every release in the same ways; :data:`OWN` has the mistakes that
are particular to one: a forgotten coordinate, a factor, bounds taken from the data, state shared between records.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from dpbook import Release, aggregate, expfam, graphical, mechanisms, models, noise, regression
from dpbook.budget import charge
from dpbook.expfam import Family, NegativeBinomial, gap_releases, quantile_releases, shape_releases
from dpbook.expfam import releases as family_releases
from dpbook.graphical import dpsgd, hmm
from dpbook.models import layout as model_layout
from dpbook.regression.estimator import PrivateBayesianRegression
from guards.registry import GUARDS

Function = Callable[..., Any]
Break = Callable[[pytest.MonkeyPatch, Function], Function]


@dataclass(frozen=True)
class Mutant:
    """A break of one function; ``kind`` is for the table, ``make`` patches and returns what is called instead."""

    of: Function
    kind: str
    make: Break


# ---------------------------------------------------------------------------------------------------------------------
# Breaks of any release


def _price(arguments: tuple[Any, ...], options: dict[str, Any]) -> tuple[float, float]:
    """Return the epsilon and delta that a call asks for; an estimator holds its own."""
    if "epsilon" in options:
        return options["epsilon"], options.get("delta") or 0.0
    return arguments[0].epsilon, arguments[0].delta


def late(_: pytest.MonkeyPatch, function: Function) -> Function:
    """Charge after the noise is drawn: whoever interrupts it has a release for nothing."""

    @functools.wraps(function)
    def broken(*arguments: Any, budget: Any = None, **options: Any) -> Any:
        result = function(*arguments, **options)
        charge(budget, *_price(arguments, options), label="late")
        return result

    return broken


def half_price(_: pytest.MonkeyPatch, function: Function) -> Function:
    """Charge half of what the release costs."""

    @functools.wraps(function)
    def broken(*arguments: Any, budget: Any = None, **options: Any) -> Any:
        epsilon, delta = _price(arguments, options)
        charge(budget, epsilon / 2, delta, label="half")
        return function(*arguments, **options)

    return broken


def eager(_: pytest.MonkeyPatch, function: Function) -> Function:
    """Charge before the arguments are checked."""

    @functools.wraps(function)
    def broken(*arguments: Any, budget: Any = None, **options: Any) -> Any:
        with contextlib.suppress(TypeError, ValueError):
            charge(budget, *_price(arguments, options), label="eager")
        return function(*arguments, **options)

    return broken


def loud(_: pytest.MonkeyPatch, function: Function) -> Function:
    """Draw noise for two and a half times the epsilon that is claimed and charged."""

    @functools.wraps(function)
    def broken(*arguments: Any, budget: Any = None, **options: Any) -> Any:
        epsilon, delta = _price(arguments, options)
        charge(budget, epsilon, delta, label="loud")
        result = function(*arguments, **(options | {"epsilon": 2.5 * epsilon}))
        if not isinstance(result, Release):
            return result
        kept = {name: 2.5 * scale for name, scale in result.scale.items()}
        return replace(result, epsilon=epsilon, scale=kept)

    return broken


def of_any() -> list[Mutant]:
    """Return the breaks that every function with a budget can suffer."""
    charging = [function for function, guard in GUARDS.items() if guard.charges]
    # Noisy gradients are calibrated by a slow search, an estimator holds its epsilon: both have breaks of their own.
    adjustable = [f for f in charging if f not in (graphical.release_dpsgd, PrivateBayesianRegression.fit)]
    ledger = [("charge after draw", late), ("half price", half_price), ("charge before check", eager)]
    return [
        *(Mutant(function, kind, make) for function in charging for kind, make in ledger),
        *(Mutant(function, "too little noise", loud) for function in adjustable),
    ]


# ---------------------------------------------------------------------------------------------------------------------
# Tools for breaks of one function


def patched(module: Any, name: str, change: Callable[[Function], Function]) -> Break:
    """Return a break that changes a function which the broken one calls by its module's name for it."""

    def make(patch: pytest.MonkeyPatch, function: Function) -> Function:
        patch.setattr(module, name, change(getattr(module, name)))
        return function

    return make


def wrapped(change: Callable[..., Any]) -> Break:
    """Return a break that calls ``change(function, *arguments, **options)`` instead."""
    return lambda _, function: functools.wraps(function)(functools.partial(change, function))


def times(position: int, factor: float) -> Callable[[Function], Function]:
    """Return a change that multiplies one argument, such as a scale, an epsilon, a sensitivity."""

    def change(original: Function) -> Function:
        def broken(*arguments: Any, **options: Any) -> Any:
            given = list(arguments)
            given[position] = given[position] * factor
            return original(*given, **options)

        return broken

    return change


def scaled(position: int, factor: float) -> Break:
    """Return a break that calls the function itself with one argument multiplied."""
    return lambda _, function: times(position, factor)(function)


def answers(value: Any) -> Callable[[Function], Function]:
    """Return a change after which a function always answers the same, whatever it is asked."""
    return lambda original: lambda *arguments, **options: value


# ---------------------------------------------------------------------------------------------------------------------
# Breaks of one function


def _per_coordinate(function: Function, value: Any, **options: Any) -> Any:
    """Noise for the sensitivity of one coordinate, where all of them move."""
    share = options.pop("sensitivity") / max(np.size(value), 1)
    return function(value, sensitivity=share, **options)


def _zeros_stay(function: Function, value: Any, **options: Any) -> Any:
    """Empty cells are published as such."""
    noisy = function(value, **options)
    return np.where(np.asarray(value) == 0, 0, noisy)


def _classical(original: Function) -> Function:
    """The textbook's Gaussian noise, which is proved for epsilon below 1 only."""

    def scale(*, sensitivity: float, epsilon: float, delta: float) -> float:
        return sensitivity * math.sqrt(2 * math.log(1.25 / delta)) / epsilon

    return scale


def _silent_bar(original: Function) -> Function:
    """The threshold of a search gets no noise, only queries do."""

    def broken(counts: Any, sensitivity: Any, epsilon: Any, rng: Any) -> Any:
        if not np.any(counts):
            return counts
        return original(counts, sensitivity, epsilon, rng)

    return broken


def _always_monotone(function: Function, *arguments: Any, **options: Any) -> Any:
    """Every search takes the smaller noise of nested counts."""
    return function(*arguments, **(options | {"monotone": True}))


def _bounds_of_data(name: str) -> Function:
    """Bounds taken from the data, as plotting software does."""

    def broken(function: Function, values: Any, *arguments: Any, **options: Any) -> Any:
        numbers = np.asarray(values, dtype=float)
        low, high = float(np.nanmin(numbers)), float(np.nanmax(numbers))
        if low < high:
            options[name] = (low, high)
        return function(values, *arguments, **options)

    return broken


def _range_of_data(function: Function, values: Any, search: Any, **options: Any) -> Any:
    """A search whose public range is that of the data."""
    if isinstance(search, aggregate.Centred):
        found: dict[str, Any] = {}
        _bounds_of_data("public_range")(lambda _, **given: found.update(given), values)
        search = replace(search, **found)
    return function(values, search, **options)


def _forgets_categories(original: Function) -> Function:
    """The truth is told with the odds of a yes-or-no question, however many answers there are."""
    return lambda codes, count, epsilon, rng: original(codes, count, epsilon + math.log(max(count - 1, 1.5)), rng)


def _first_speaks_for_all(function: Function, codes: Any, *arguments: Any, **options: Any) -> Any:
    """Reports after the first are those of the first person."""
    return np.full_like(function(codes, *arguments, **options), function(codes[:1], *arguments, **options)[0])


def _drops_from_series(function: Function, data: Any, *arguments: Any, **options: Any) -> Any:
    """One container of many loses a record."""
    if isinstance(data, (pd.Series, list)) and len(data) > 1:
        data = data[1:] if isinstance(data, list) else data.iloc[1:]
    return function(data, *arguments, **options)


def _remembers() -> Break:
    """The last record that one call saw lingers in a buffer, and is read again by the next."""

    def make(_: pytest.MonkeyPatch, function: Function) -> Function:
        buffer: list[Any] = []

        def broken(data: Any, *arguments: Any, **options: Any) -> Any:
            if not isinstance(data, np.ndarray):
                return function(data, *arguments, **options)
            mixed = np.array([*data[:-1], *buffer]) if buffer else data
            buffer[:] = [data[-1]]
            return function(mixed, *arguments, **options)

        return broken

    return make


def _forgets_redaction(original: Function) -> Function:
    """The sensitivity of clipping, also where records outside are left out."""
    return lambda self, outside="clip", norm=1: original(self, "clip", norm)


def _forgets_cells(original: Function) -> Function:
    """The sensitivity of sum and squares, as if the histogram beside them cost nothing."""
    return lambda *, squares, cells, norm: original(squares=squares, cells=1e-9, norm=norm)


def _forgets_check(original: Function) -> Function:
    """The sensitivity of the sums, as if the histogram that checks the family cost nothing."""
    return lambda sensitivity, *, cells, norm: original(sensitivity, cells=1e-9 * cells, norm=norm)


def _counts_columns(original: Function) -> Function:
    """A record of which several columns were clipped counts once for each of them, not in parts."""
    return lambda rows, inside: (original(rows, inside) > 0).astype(float)


def _squares_in_full(original: Function) -> Function:
    """Squares enter with four times the weight that is free."""

    def broken(rows: Any, **public: Any) -> Any:
        table = original(rows, **public)
        table[:, 1] *= 4
        return table

    return broken


def _missing_in_full(original: Function) -> Function:
    """Missing records enter with four times the weight that is free."""

    def broken(rows: Any, **public: Any) -> Any:
        table = original(rows, **public)
        table[:, -1] *= 4
        return table

    return broken


def _centres_first(function: Function, data: Any, *arguments: Any, **options: Any) -> Any:
    """Subtracts the mean of all records before they are split."""
    if isinstance(data, (np.ndarray, pd.DataFrame)) and np.asarray(data).dtype.kind in "if":
        data = data - np.clip(np.asarray(data, dtype=float), -9, 9).mean(axis=0)
    return function(data, *arguments, **options)


def _one_range(original: Function) -> Function:
    """The range of the first of several numbers, for all."""
    return lambda lower, upper, **options: original(np.ravel(lower)[:1], np.ravel(upper)[:1], **options)


def _one_question(original: Function) -> Function:
    """The answer to the first of several questions, with what it tells, for all."""
    return lambda questions, **options: original(1, **options)


def _forgets_halves(original: Function) -> Function:
    """What partitions tell of their halves costs nothing."""
    return lambda questions, *, halves: original(questions, halves=1e-9)


def _fits_bounds(function: Function, model: Any, X: Any, y: Any, **options: Any) -> Any:
    """An estimator that widens its bounds to what it is given."""
    model.y_bounds = (min(-2.0, float(np.min(y))), max(2.0, float(np.max(y))))
    return function(model, X, y, **options)


def _forgets_intercept(original: Function) -> Function:
    """Sums of products only: the sums of the columns themselves are forgotten."""
    return lambda lower, upper, **options: original(lower, upper, **(options | {"intercept": False}))


def _one_cell(original: Function) -> Function:
    """No record ever moves to another cell."""
    return lambda by_cell, overall, **options: original([], [*by_cell, *overall], **options)


def _rows_not_people(function: Function, records: Any, **options: Any) -> Any:
    """Each row weighs as if it were a person."""
    if isinstance(records, pd.DataFrame) and options.get("person"):
        records = records.assign(who=range(len(records)))
    return function(records, **options)


def _tells_the_total(function: Function, *arguments: Any, **options: Any) -> Any:
    """An innocent extra setting that holds a statistic of the data."""
    release = function(*arguments, **options)
    return replace(release, settings={**release.settings, "largest": int(np.max(arguments[0]))})


def _quieter_when_small(original: Function) -> Function:
    """A scale that looks at the data: less noise where totals are small."""

    def broken(total: Any, sensitivity: float, epsilon: float, rng: Any, *rest: Any, **options: Any) -> Any:
        share = 1.0 if np.abs(total.totals).max() > 2**30 else 0.5
        return original(total, sensitivity * share, epsilon, rng, *rest, **options)

    return broken


def _half_multiplier(original: Function) -> Function:
    """Noise of gradients for neighbours that add a record, where one is replaced."""
    return lambda **options: original(**options) / 2


def _first_statistic(original: Function) -> Function:
    """The sensitivity of the first of several statistics, for all."""
    return lambda parts, *, weights, norm: original(parts[:1], weights=weights[:1], norm=norm)


def _forgets_weights(original: Function) -> Function:
    """The sensitivity of statistics as if none weighed more."""
    return lambda parts, *, weights, norm: original(parts, norm=norm)


def _trusts(original: Function) -> Function:
    """A function of one's own is taken at its word: what it says is not clipped."""
    return lambda self, found: np.where(np.isfinite(found), np.clip(found, -99.0, 99.0), 0.0)


def _unclipped(original: Function) -> Function:
    """Gradients that keep the length they have."""
    return lambda *arguments: original(*arguments[:-1], 1e9)


OWN: list[Mutant] = [
    Mutant(mechanisms.laplace, "forgotten coordinate", wrapped(_per_coordinate)),
    Mutant(mechanisms.geometric, "side channel", wrapped(_zeros_stay)),
    Mutant(mechanisms.gaussian, "wrong formula", patched(mechanisms, "gaussian_scale", _classical)),
    Mutant(mechanisms.exponential, "factor 2", patched(noise, "choose", times(2, 2.0))),
    Mutant(mechanisms.above_threshold, "noise left out", patched(noise, "add_geometric", _silent_bar)),
    Mutant(mechanisms.above_threshold, "wrong formula", wrapped(_always_monotone)),
    Mutant(mechanisms.private_quantile, "bounds from the data", wrapped(_bounds_of_data("bounds"))),
    Mutant(mechanisms.randomized_response, "wrong formula", patched(noise, "flip", _forgets_categories)),
    Mutant(noise.add_laplace, "factor 2", scaled(1, 0.5)),
    Mutant(noise.add_gaussian, "too little noise", scaled(1, 0.9)),
    Mutant(noise.add_geometric, "too little noise", scaled(2, 1.1)),
    Mutant(noise.add_laplace_to_sum, "too little noise", scaled(1, 0.9)),
    Mutant(noise.add_gaussian_to_sum, "too little noise", scaled(1, 0.9)),
    Mutant(noise.choose, "factor 2", scaled(2, 2.0)),
    Mutant(noise.flip, "too little noise", scaled(2, 1.1)),
    Mutant(noise.flip, "shared state", wrapped(_first_speaks_for_all)),
    Mutant(expfam.release, "forgotten case", patched(Family, "sensitivity", _forgets_redaction)),
    Mutant(expfam.release, "a container loses a record", wrapped(_drops_from_series)),
    Mutant(expfam.release, "scale from the data", patched(noise, "add_laplace_to_sum", _quieter_when_small)),
    Mutant(expfam.release, "shared state", _remembers()),
    Mutant(expfam.release, "forgotten check", patched(family_releases, "beside_histogram", _forgets_check)),
    Mutant(expfam.release, "factor 2", patched(NegativeBinomial, "largest_change", answers(1.0))),
    Mutant(expfam.release_mean, "forgotten case", patched(shape_releases, "mean_and_shape", _forgets_cells)),
    Mutant(expfam.release_mean, "factor 2", patched(shape_releases, "_mean_statistics", _squares_in_full)),
    Mutant(expfam.release_mean, "missing for free", patched(gap_releases, "_statistics", _missing_in_full)),
    Mutant(expfam.release_mean, "bounds from the data", wrapped(_bounds_of_data("bounds"))),
    Mutant(expfam.release_histogram, "factor 2", patched(shape_releases, "histogram", answers(1.0))),
    Mutant(expfam.release_histogram, "side channel", wrapped(_tells_the_total)),
    Mutant(expfam.release_quantiles, "forgotten levels", patched(quantile_releases, "histogram", answers(2.0))),
    Mutant(expfam.release_quantiles, "bounds from the data", wrapped(_bounds_of_data("bounds"))),
    Mutant(expfam.release_randomized_response, "too little noise", patched(noise, "flip", times(2, 1.1))),
    Mutant(expfam.release_posterior_samples, "factor 2", patched(noise, "choose", times(2, 2.0))),
    Mutant(expfam.private_bounds, "bounds from the data", wrapped(_bounds_of_data("public_range"))),
    Mutant(
        aggregate.release_probability, "forgotten coordinate", patched(aggregate.releases, "bounded_sum", _one_range)
    ),
    Mutant(aggregate.release_probability, "shared state", wrapped(_centres_first)),
    Mutant(
        aggregate.release_probability,
        "forgotten case",
        patched(aggregate.releases, "answers_and_halves", _forgets_halves),
    ),
    Mutant(aggregate.release_quantile, "forgotten coordinate", patched(aggregate.releases, "bounded_sum", _one_range)),
    Mutant(
        aggregate.release_quantile,
        "forgotten question",
        patched(aggregate.releases, "answers_and_halves", _one_question),
    ),
    Mutant(aggregate.release_quantile, "shared state", wrapped(_centres_first)),
    Mutant(aggregate.release_bounds, "bounds from the data", wrapped(_range_of_data)),
    Mutant(aggregate.release_bounds, "noise left out", patched(noise, "add_geometric", _silent_bar)),
    Mutant(
        aggregate.release_bounds,
        "too little noise",
        patched(aggregate.releases, "above_threshold", lambda f: loud(None, f)),
    ),
    Mutant(
        regression.release,
        "forgotten coordinate",
        patched(regression.sensitivities, "second_moments", _forgets_intercept),
    ),
    Mutant(
        regression.release,
        "cells forgotten",
        patched(regression.sensitivities, "moments_by_cell", _one_cell),
    ),
    Mutant(
        regression.release,
        "forgotten check",
        patched(regression.sensitivities, "beside_histogram", _forgets_check),
    ),
    Mutant(regression.release, "factor 2", patched(regression.releases, "_cut", _counts_columns)),
    Mutant(PrivateBayesianRegression.fit, "bounds from the data", wrapped(_fits_bounds)),
    Mutant(graphical.release, "forgotten coordinate", patched(graphical.releases, "histogram", answers(2.0))),
    Mutant(graphical.release, "wrong unit of privacy", wrapped(_rows_not_people)),
    Mutant(graphical.release_dpsgd, "factor 2", patched(dpsgd, "gradient_noise", _half_multiplier)),
    Mutant(graphical.release_dpsgd, "not clipped", patched(dpsgd, "_clipped_sum", _unclipped)),
    Mutant(hmm.release_counts, "factor 2", patched(hmm.releases, "histogram", answers(1.0))),
    Mutant(hmm.release_counts, "side channel", wrapped(_tells_the_total)),
    Mutant(hmm.release_gibbs, "side channel", wrapped(_tells_the_total)),
    Mutant(models.release, "forgotten coordinate", patched(model_layout, "jointly", _first_statistic)),
    Mutant(models.release, "wrong formula", patched(model_layout, "jointly", _forgets_weights)),
    Mutant(models.release, "not clipped", patched(models.Own, "_tame", _trusts)),
]

MUTANTS: list[Mutant] = [*of_any(), *OWN]
