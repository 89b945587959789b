"""What a release of chapter 2 would be worth, from public numbers, before anything is spent.

Both previews compare a release with the full-data answer that it stands in for, for partitions with equal normal
posteriors: noise on one side, and on the other what averaging itself loses, which no epsilon removes.
"""

from __future__ import annotations

import math

import numpy as np
from scipy import special

from dpbook._validation import finite_number, integer, positive
from dpbook.aggregate.bounds import CENTRED_WIDTH, Centred, Given, Plan, SparseVector, plan_of
from dpbook.aggregate.laws import P_MIN, SPREAD, aggregate_sd, checked_partitions, clipped_at
from dpbook.latent_noise import normal_laplace_logpdf
from dpbook.preview import Preview
from dpbook.widths import NORMAL

__all__ = ["preview_probability", "preview_quantile"]


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
        from the full-data posterior itself, ``notes["records"]`` the records per partition.

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
    notes = {"residual_sd": residual, "rmse": middle, "average_rmse": average, "records": n // m}
    return Preview(
        ("z-score",),
        scale * whole,
        scale,
        noise_sd=noise_sd,
        posterior_sd=math.hypot(noise_sd, residual),
        width=NORMAL * math.hypot(noise_sd, residual),
        notes=notes,
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
        the records per partition.

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
    plan = Centred((0.0, 1.0)) if bounds is None else plan_of(bounds)
    spent, width = plan.spends(epsilon, m), _expected_width(plan, math.sqrt(m) * sd, magnitude)
    scale = width * count / (m * _answering(epsilon - spent, spread))
    noise_sd, residual = math.sqrt(2) * scale, sd * math.sqrt(3 / max(1, n // m))
    failure = plan._failure(m, spent, width=None if bounds is None else width)
    notes = {"residual_sd": residual, "epsilon_bounds": spent, "failure": failure, "records": n // m}
    return Preview(
        ("quantile",),
        scale * (epsilon - spent),
        scale,
        noise_sd=noise_sd,
        posterior_sd=math.hypot(noise_sd, residual),
        width=NORMAL * math.hypot(noise_sd, residual),
        notes=notes,
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
