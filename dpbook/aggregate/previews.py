"""What a release of chapter 2 would be worth, from public numbers, before anything is spent.

Both previews compare a release with the full-data answer that it stands in for, for partitions of normal records:
noise on one side, and on the other what averaging itself loses, which no epsilon removes. Widths are those of the
intervals that ``infer`` gives, for a few made-up releases.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import special

from dpbook._arrays import Array
from dpbook._validation import finite_number, integer, positive
from dpbook.aggregate.bounds import CENTRED_WIDTH, Centred, Given, Plan, SparseVector, plan_of
from dpbook.aggregate.inference import CombinedProbability, CombinedQuantile
from dpbook.aggregate.laws import HALVED, P_MIN, SPREAD, aggregate_sd, checked_partitions, clipped_at, halving, score_of
from dpbook.latent_noise import normal_laplace_logpdf
from dpbook.preview import Preview
from dpbook.release import Release

__all__ = ["preview_probability", "preview_quantile"]

_MADE_UP = 25  # releases whose intervals are looked at
_SEED = 2018


def preview_probability(
    *,
    n: int,
    partitions: int,
    epsilon: float,
    method: str = "normality",
    cutoffs: int = 1,
    p_min: float | None = None,
    nuisance: int = 1,
    spread: float = SPREAD,
) -> Preview:
    """Say, before anything is spent, how far a released probability would be from the full-data one.

    Explained in :doc:`/book/sample-and-aggregate/when-to-use-it`.

    Parameters
    ----------
    n, partitions, epsilon, method, p_min
        As in :func:`release_probability`.
    cutoffs : int, default 1
        How many cutoffs share epsilon.
    nuisance : int, default 1
        Other coefficients that each partition estimates, the intercept among them.
    spread : float, default 0.15
        As in :func:`release_probability`, at least 0 and less than 1.

    Returns
    -------
    Preview
        Of the z-score at a cutoff in the middle, in full-data posterior sds of the parameter: ``noise_sd``, and with
        what averaging loses (``notes["residual_sd"]``) ``posterior_sd``. ``notes["rmse"]`` is the expected error of
        the probability where the true one is 1/2, the worst place, ``notes["average_rmse"]`` that over cutoffs drawn
        from the full-data posterior itself, ``notes["records"]`` the records per partition. ``width`` is that of the
        95 % interval of :func:`infer` (z-scores beyond 9 count as 9), ``notes["interval"]`` that of the probability,
        for cutoffs drawn from the full-data posterior. All assume normal records; with others, who make partitions
        differ or err together, intervals are wider.

    Examples
    --------
    >>> from dpbook import aggregate
    >>> look = aggregate.preview_probability(n=100_000, partitions=1000, epsilon=0.25)
    >>> print(f"{look.noise_scale:.4f} {look.noise_sd:.2f} {look.posterior_sd:.2f}")
    0.0047 0.75 0.79
    >>> print(f"{look.notes['residual_sd']:.2f} {look.notes['rmse']:.2f} {look.notes['average_rmse']:.2f}")
    0.25 0.23 0.20
    """
    smallest = clipped_at(method, p_min)
    m = checked_partitions(partitions, integer("n", n, least=1), 1)
    whole, count = positive("epsilon", epsilon), integer("cutoffs", cutoffs, least=1)
    epsilon = _answering(whole, spread)
    sd = float(aggregate_sd(0.0, m, method=method, p_min=smallest or P_MIN, size=n // m, nuisance=nuisance))
    if smallest is None:
        scale, stretch = count / (m * epsilon), math.sqrt((2 * m - 1) * 2 * math.pi)
    else:
        scale, stretch = -2 * math.log(smallest) * count / epsilon, 1 / (2 * math.sqrt(m))
    middle, average = _errors_of_a_probability(sd * stretch, scale * stretch)
    noise_sd, residual = math.sqrt(2) * scale * stretch, sd * stretch
    plan = _MadeUp(n, m, whole, count, float(spread), nuisance)
    ends = plan.probabilities(method, smallest)
    low, width, high = _typical(np.diff(np.clip(special.ndtri(ends), -9.0, 9.0))[:, 0])
    notes = {"residual_sd": residual, "rmse": middle, "average_rmse": average, "records": n // m}
    return Preview(
        ("z-score",),
        scale * whole,
        scale,
        noise_sd=noise_sd,
        posterior_sd=math.hypot(noise_sd, residual),
        width=width,
        width_low=low,
        width_high=high,
        notes=notes | {"interval": float(np.median(np.diff(ends)))},
    )


def _errors_of_a_probability(residual: float, scale: float) -> tuple[float, float]:
    """Return the root mean squared error of Φ(z + error) at z = 0, and on average over z drawn from the posterior."""
    z = np.linspace(-12, 12, 4801)
    weight = np.exp(normal_laplace_logpdf(z, 0.0, residual**2, scale)) * (z[1] - z[0])
    true = special.ndtri((np.arange(40) + 0.5) / 40)[:, None]
    squares = (weight * (special.ndtr(np.stack([true + z, 0 * true + z])) - special.ndtr([true, 0 * true])) ** 2).sum(
        -1
    )
    # What of the noise lies beyond the grid moves the answer to 0 or 1.
    squares += max(0.0, 1 - float(weight.sum())) * (special.ndtr([true, 0 * true])[..., 0] ** 2 + 0.25) / 2
    average, middle = (math.sqrt(each) for each in squares.mean(axis=1))
    return middle, average


def preview_quantile(
    *,
    n: int,
    partitions: int,
    epsilon: float,
    bounds: Centred | SparseVector | tuple[float, float] | None = None,
    probabilities: int = 1,
    posterior_sd: float = 1.0,
    magnitude: float | None = None,
    spread: float = SPREAD,
) -> Preview:
    """Say, before anything is spent, how far a released quantile would be from the full-data one.

    Explained in :doc:`/book/sample-and-aggregate/when-to-use-it`.

    Parameters
    ----------
    n, partitions, epsilon
        As in :func:`release_quantile`.
    bounds : Centred, SparseVector or (low, high), optional
        As there. By default a centred search in whatever public range, with its probability of failure at the worst.
    probabilities : int, default 1
        How many quantiles share epsilon.
    posterior_sd : float, default 1.0
        A guess, made without the data, at the full-data posterior sd; 1 gives answers in posterior sds.
    magnitude : float, optional
        For a :class:`SparseVector`, a guess at the quantile's absolute size, in the same unit as its ``start``.
    spread : float, default 0.15
        As in :func:`release_quantile`, at least 0 and less than 1.

    Returns
    -------
    Preview
        In units of the parameter: ``noise_sd``, and with what averaging and clipping lose (``notes["residual_sd"]``)
        ``posterior_sd``, the expected distance from the full-data quantile. ``notes["epsilon_bounds"]`` is what the
        search for bounds spends, ``notes["failure"]`` a bound on the probability that it fails, ``notes["records"]``
        the records per partition. ``width`` is that of the 95 % interval of :func:`infer`, for normal records
        and a quantile in the middle of the public range; without bounds, of a range 32 times as wide as bounds are.

    Examples
    --------
    >>> from dpbook import aggregate
    >>> look = aggregate.preview_quantile(
    ...     n=100_000, partitions=100, epsilon=0.9, posterior_sd=0.03, bounds=aggregate.Centred((-10, 10))
    ... )
    >>> print(f"{look.noise_sd:.3f}", look.notes["failure"] < 1e-4)
    0.067 True
    """
    m = checked_partitions(partitions, integer("n", n, least=1), 1)
    epsilon, count = positive("epsilon", epsilon), integer("probabilities", probabilities, least=1)
    sd = positive("posterior_sd", posterior_sd)
    usual = CENTRED_WIDTH * math.sqrt(m) * sd
    plan = Centred((-16 * usual, 16 * usual)) if bounds is None else plan_of(bounds)
    spent, width = plan.spends(epsilon, m), _expected_width(plan, math.sqrt(m) * sd, magnitude)
    scale = width * count / (m * _answering(epsilon - spent, spread))
    noise_sd, residual = math.sqrt(2) * scale, sd * math.sqrt(3 / max(1, n // m))
    failure = plan._failure(m, spent, width=None if bounds is None else width)
    made_up = _MadeUp(n, m, epsilon - spent, count, float(spread), 1)
    low, middle, high = _typical(made_up.quantiles(plan, spent, math.sqrt(m) * sd, width))
    notes = {"residual_sd": residual, "epsilon_bounds": spent, "failure": failure, "records": n // m}
    return Preview(
        ("quantile",),
        scale * (epsilon - spent),
        scale,
        noise_sd=noise_sd,
        posterior_sd=math.hypot(noise_sd, residual),
        width=middle,
        width_low=low,
        width_high=high,
        notes=notes,
    )


def _typical(widths: Array) -> Array:
    """Return the median of widths, some of which may be infinite, between the ends of the range of eight in ten."""
    return np.asarray(np.quantile(widths, [0.1, 0.5, 0.9], method="inverted_cdf"))


@dataclass(frozen=True)
class _MadeUp:
    """Releases of made-up partitions of normal records, and the intervals that the analyst reads from them."""

    n: int
    partitions: int
    epsilon: float
    questions: int
    spread: float
    nuisance: int

    def probabilities(self, method: str, p_min: float | None) -> Array:
        """Return ends of intervals, (releases, 2), for cutoffs drawn from the full-data posterior."""
        rng, score, ends = np.random.default_rng(_SEED), score_of(method, p_min), []
        name, unit = ("mean", 0.5) if p_min is None else ("sum", self.partitions * (score.largest or 1.0) / 2)
        for _ in range(_MADE_UP):
            whole, one, other = (score.of(special.stdtr(df, z)) for df, _, z in self._parts(rng))
            told = self._told(whole, halving(whole, one, other, score.middle), rng)
            answer, scale = told.pop("answer")
            rising = 1.0 if p_min is None else -1.0
            told = {name: (unit * (1 + rising * answer), unit * scale), **told}
            settings = {"method": method, "cutoff": 0.0, **({} if p_min is None else {"p_min": p_min})}
            found = CombinedProbability(self._release("posterior probability", told, settings, {}))
            ends.append(found.interval(0.95, "probability"))
        return np.array(ends)

    def quantiles(self, plan: Plan, spent: float, sd: float, width: float) -> Array:
        """Return widths of intervals, (releases,), for medians of partitions that have this sd.

        A search in a public range is carried out, around its middle; other bounds have the given width.
        """
        rng, widths = np.random.default_rng(_SEED), []
        for _ in range(_MADE_UP):
            answers = [error * math.sqrt(self._size) * sd for _, error, _ in self._parts(rng)]
            low, high, public = self._bounds(plan, answers[0], spent, width, rng)
            failure = plan._failure(self.partitions, spent, width=high - low) if spent else 0.0
            half = (high - low) / 2
            whole, one, other = (np.clip((each - (low + high) / 2) / half, -1, 1) for each in answers)
            told = self._told(whole, whole - (one + other) / 2, rng)
            answer, scale = told.pop("answer")
            told = {"quantile": ((low + high) / 2 + answer * half, scale * half), **told}
            settings = {"probability": 0.5, "bounds": plan.kind, "failure": failure}
            release = self._release("posterior quantile", told, settings, {"quantile": (low, high), **public})
            widths.append(float(np.diff(CombinedQuantile(release).interval(0.95, "quantile"))[0]))
        return np.array(widths)

    def _bounds(
        self, plan: Plan, answers: Array, spent: float, width: float, rng: np.random.Generator
    ) -> tuple[float, float, Mapping[str, tuple[float, float]]]:
        """Return bounds for answers about zero, and the public range, with zero in its middle, where there is one."""
        if not isinstance(plan, Centred):
            return -width / 2, width / 2, {}
        half = (plan.public_range[1] - plan.public_range[0]) / 2
        search = replace(plan, public_range=(-half, half))
        utilities = search._utilities(answers) * spent / 2
        low, high = search._ends(int(np.argmax(utilities + rng.gumbel(size=utilities.shape))))
        return low, high, search._public

    @property
    def _size(self) -> int:
        return self.n // self.partitions

    def _parts(self, rng: np.random.Generator) -> list[tuple[int, Array, Array]]:
        """Return degrees of freedom, errors and z-scores (partitions,) of the partitions and of their two halves."""
        free = max(1, self._size // 2 - self.nuisance)
        information, error = rng.chisquare(free, (2, self.partitions)), rng.standard_normal((2, self.partitions))
        error, variance = error / np.sqrt(information), rng.chisquare(free, (2, self.partitions)) / free
        whole = information.sum(axis=0)
        combined = (information * error).sum(axis=0) / whole
        halves = [(free, e, e * np.sqrt(i / v)) for e, i, v in zip(error, information, variance, strict=True)]
        return [(2 * free, combined, combined * np.sqrt(whole / variance.mean(axis=0))), *halves]

    def _told(self, answer: Array, apart: Array, rng: np.random.Generator) -> dict[str, tuple[float, float]]:
        """Return noisy means over partitions, with the scales of the noise, as a release makes them."""
        d, share = np.clip(apart, -HALVED, HALVED), self.spread
        scale = 2 * self.questions / (self.partitions * self.epsilon)
        means = {"answer": (answer.mean(), scale / (1 - share))}
        if share > 0:
            means["square"] = (answer**2).mean(), 2 * scale / (1 - share)
            means["halved"] = d.mean(), scale * HALVED / share
            means["halved_square"] = (d**2).mean(), 2 * scale * HALVED**2 / share
            means["failed"] = 0.0, 2 * scale / self.questions
        return {name: (float(mean + rng.laplace(scale=b)), float(b)) for name, (mean, b) in means.items()}

    def _release(
        self,
        model: str,
        told: Mapping[str, tuple[float, float]],
        settings: Mapping[str, Any],
        bounds: Mapping[str, Any],
    ) -> Release:
        more = {"partitions": self.partitions, "nuisance": self.nuisance, "spread": self.spread, "clip": HALVED}
        return Release(
            values={name: np.asarray(value) for name, (value, _) in told.items()},
            model=model,
            mechanism="laplace",
            scale={name: scale for name, (_, scale) in told.items()},
            sensitivity={name: scale * self.epsilon for name, (_, scale) in told.items()},
            epsilon=self.epsilon,
            n=self.n,
            bounds=bounds,
            settings={**settings, **more},
            float_safe=False,
        )


def _answering(epsilon: float, spread: float) -> float:
    """Return the epsilon that is left for the answers themselves."""
    if not 0 <= finite_number("spread", spread) < 1:
        raise ValueError(f"spread must be at least 0 and less than 1, got {spread!r}")
    return positive("epsilon", epsilon) * (1 - spread)


def _expected_width(plan: Plan, spread: float, magnitude: float | None) -> float:
    """Return about how wide the bounds of quantiles with this spread over partitions will be."""
    if isinstance(plan, Centred):
        return CENTRED_WIDTH * spread
    if isinstance(plan, Given):
        return plan.high - plan.low
    if magnitude is None:
        raise ValueError("magnitude must be given to preview a SparseVector: its bounds grow from 0 to it")
    reach = abs(finite_number("magnitude", magnitude)) + 2 * spread
    return 2 * plan.start * 2.0 ** max(0, math.ceil(math.log2(reach / plan.start)))
