"""Exact profiles beside what others say of them: the exponential mechanism, Rényi divergences, noisy statistics.

All for replace-one neighbours, n public. Chapter 6 uses these to ask how loose the usual bounds are, and whether a
posterior draw or a noisy count loses less at the same privacy.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from dpbook._arrays import Array
from dpbook._late import optimize, pd
from dpbook._validation import delta_value, finite_array, finite_number, integer, positive
from dpbook.accounting import gaussian_scale
from dpbook.theory._draws import log_gamma_growth
from dpbook.theory._setting import Model, Options
from dpbook.theory.inverse import prior_for
from dpbook.theory.models import BetaBernoulli, NormalKnownVariance
from dpbook.theory.profiles import epsilon_for

__all__ = [
    "ExponentialView",
    "compare_with_noise",
    "equal_information",
    "exponential_view",
    "renyi_divergence",
    "renyi_epsilon",
    "temperature_for",
]


class ExponentialView(NamedTuple):
    """A truncated posterior draw as an exponential mechanism, beside its exact privacy.

    ``bound`` is ``2Δ/T``, with Δ the largest change of the log likelihood by one record on the support, T the
    temperature; ``exact`` the smallest epsilon that holds, at the delta asked for; ``looseness`` their ratio. Explained
    in :doc:`/book/theory/coins`.

    Examples
    --------
    >>> from dpbook import theory
    >>> view = theory.exponential_view(theory.BetaBernoulli(1, 1), 1, truncate=(0.1, 0.9))
    >>> round(view.looseness, 6)
    2.0
    """

    bound: float
    exact: float
    looseness: float


def _log_likelihood_sensitivity(model: Model, truncate: tuple[float, float]) -> float:
    """Return the largest change of the log likelihood of one record, over records and over the support."""
    low, high = truncate
    if isinstance(model, BetaBernoulli):
        return float(np.max(np.abs(special.logit([low, high]))))
    # (x - x')(θ - (x + x')/2)/σ²: with d = x - x' the second factor is at most M + R - d/2.
    reach = max(abs(low), abs(high)) + model.bound
    d = min(2 * model.bound, reach)
    return d * (reach - d / 2) / model.sigma**2


def exponential_view(
    model: Model, n: int, *, truncate: tuple[float, float], temperature: float = 1.0, delta: float = 0.0
) -> ExponentialView:
    """Compare the exponential mechanism's epsilon of a truncated posterior draw with the exact one.

    Explained in :doc:`/book/theory/coins`.

    Parameters
    ----------
    model, n, truncate, temperature
        As for :func:`privacy_profile`.
    delta : float, default 0.0
        The delta at which the exact epsilon is taken.

    Returns
    -------
    ExponentialView

    Examples
    --------
    >>> from dpbook import theory
    >>> view = theory.exponential_view(theory.BetaBernoulli(1, 1), 100, truncate=(0.1, 0.9))
    >>> round(view.bound, 3), round(view.exact, 3)
    (4.394, 4.299)
    """
    exact = epsilon_for("sample", model, n, delta=delta, truncate=truncate, temperature=temperature)
    bound = 2 * _log_likelihood_sensitivity(model, truncate) / temperature
    return ExponentialView(bound, exact, bound / exact if exact > 0 else math.inf)


def temperature_for(
    model: Model, n: int, *, truncate: tuple[float, float], epsilon: float, delta: float = 0.0
) -> tuple[float, float]:
    """Return the temperature that a private posterior draw needs: by the exponential mechanism, and exactly.

    Explained in :doc:`/book/theory/choosing-a-prior`.

    Parameters
    ----------
    model, n, truncate
        As for :func:`privacy_profile`.
    epsilon, delta : float
        What must hold; the exponential mechanism makes no use of delta.

    Returns
    -------
    tuple of float
        ``max(1, 2Δ/epsilon)``, and the smallest temperature, at least 1, that is enough.

    Examples
    --------
    >>> from dpbook import theory
    >>> bound, exact = theory.temperature_for(theory.BetaBernoulli(1, 1), 100, truncate=(0.1, 0.9), epsilon=1.0)
    >>> round(bound, 2), round(exact, 2)
    (4.39, 4.08)
    """
    epsilon = positive("epsilon", epsilon)
    bound = max(1.0, 2 * _log_likelihood_sensitivity(model, truncate) / epsilon)

    def gap(temperature: float) -> float:
        return epsilon_for("sample", model, n, delta=delta, truncate=truncate, temperature=temperature) - epsilon

    if gap(1.0) <= 0:
        return bound, 1.0
    return bound, float(optimize.brentq(gap, 1.0, bound * (1 + 1e-9), xtol=1e-9))


def renyi_divergence(model: Model, n: int, *, order: ArrayLike) -> Any:
    """Return the largest Rényi divergence between one posterior draw from neighbouring data sets.

    Replace-one neighbours, n public: the draw is (order, value)-Rényi differentially private, exactly. Coins: with
    Beta(a + 1, b) against Beta(a, b + 1) it is finite for orders below b + 1, where it is
    ``[log Γ(a+λ)/(Γ(a) a^λ) + log Γ(b+1-λ) b^λ/Γ(b+1)] / (λ-1)``. Bells: ``λ μ²/2``. Explained in
    :doc:`/book/theory/beyond`.

    Parameters
    ----------
    model, n
        As for :func:`privacy_profile`.
    order : float or array
        Greater than 1.

    Returns
    -------
    float or ndarray
        In the shape of order; infinite for coins from order ``1 + min(alpha, beta)`` on.

    Examples
    --------
    >>> from dpbook import theory
    >>> theory.renyi_divergence(theory.BetaBernoulli(3, 3), 10, order=[2.0, 4.0]).round(4)
    array([0.4855,    inf])
    """
    n = integer("n", n, least=1)
    orders = finite_array("order", order)
    if not (orders > 1).all():
        raise ValueError(f"order must be greater than 1, got {orders.min()}")
    if isinstance(model, NormalKnownVariance):
        found = orders * (2 * model.bound * model.posterior_sd(n) / model.sigma**2) ** 2 / 2
    else:
        ones = _mesh(n)
        a, b = model.alpha + ones, model.beta + n - 1 - ones
        each = orders[..., None]
        found = np.maximum(_beta_renyi(a, b, each), _beta_renyi(b, a, each)).max(axis=-1)
    return float(found) if orders.ndim == 0 else found


def _mesh(n: int) -> Array:
    """Return all numbers of ones that a neighbour may have one more of, or, for large n, many near both ends."""
    if n <= 5000:
        return np.arange(float(n))
    rise = np.expm1(np.linspace(0, math.log1p((n - 1) / 2), 1000))
    return np.unique(np.rint(np.concatenate([rise, n - 1 - rise])))


def _beta_renyi(a: Array, b: Array, order: Array) -> Array:
    finite = order < b + 1
    safe = np.where(finite, order, 1.0 + np.minimum(b, 1.0) / 2)
    total = log_gamma_growth(a, safe) + log_gamma_growth(b + 1, -safe) - safe * np.log1p(1 / b)
    return np.asarray(np.where(finite, total / (safe - 1), np.inf))


def renyi_epsilon(model: Model, n: int, *, delta: float) -> float:
    """Return the epsilon that Rényi differential privacy gives for one posterior draw: an upper bound on the exact one.

    Replace-one neighbours, n public. The best order is searched; the conversion is that of Canonne, Kamath and Steinke.
    Explained in :doc:`/book/theory/beyond`.

    Parameters
    ----------
    model, n
        As for :func:`privacy_profile`.
    delta : float
        In (0, 1).

    Returns
    -------
    float
        At least 0.

    Examples
    --------
    >>> from dpbook import theory
    >>> coins = theory.BetaBernoulli(10, 10)
    >>> exact = theory.epsilon_for("sample", coins, 100, delta=1e-6)
    >>> round(theory.renyi_epsilon(coins, 100, delta=1e-6) / exact, 2)
    1.13
    """
    delta = delta_value("delta", delta, zero=False)

    def bound(log_excess: float) -> float:
        excess = math.exp(log_excess)
        order = 1 + excess
        return (
            float(renyi_divergence(model, n, order=order)) - math.log(delta * order) / excess + math.log(excess / order)
        )

    largest = math.log(min(model.alpha, model.beta)) if isinstance(model, BetaBernoulli) else 12.0
    found = optimize.minimize_scalar(bound, bounds=(largest - 18, largest - 1e-9), method="bounded")
    return max(0.0, float(found.fun))


def equal_information(release_type: str, model: Model, n: int) -> float:
    """Return how many independent synthetic records say as much about the posterior mean as one posterior draw.

    The mean of m synthetic records scatters about the posterior mean with a variance that falls as 1/m; this is the m
    (not rounded) at which that variance equals the posterior's own. Records simulated from one kept draw never say as
    much as the draw. Explained in :doc:`/book/theory/ledger-of-claims`.

    Parameters
    ----------
    release_type : {"synthetic-plugin", "synthetic-bayes"}
        From an estimate (coins: the mean), or with the parameter redrawn for each record.
    model, n
        As for :func:`privacy_profile`.

    Returns
    -------
    float

    Examples
    --------
    >>> from dpbook import theory
    >>> theory.equal_information("synthetic-bayes", theory.BetaBernoulli(10, 10), 100)
    121.0
    """
    n = integer("n", n, least=1)
    if release_type not in ("synthetic-plugin", "synthetic-bayes"):
        raise ValueError(f"release_type must be 'synthetic-plugin' or 'synthetic-bayes', got {release_type!r}")
    if isinstance(model, BetaBernoulli):
        return model.alpha + model.beta + n + 1
    weight = n + (model.sigma / model.prior_sd) ** 2
    return weight if release_type == "synthetic-plugin" else weight + 1


def compare_with_noise(
    model: Model, n: int, *, epsilon: float, delta: float, truth: float | None = None
) -> pd.DataFrame:
    """Compare a posterior draw and synthetic data with noisy statistics at the same epsilon and delta.

    Each release estimates the coin's probability, or the bell's mean, from n records. The Bayesian releases get the
    weakest prior that makes them (epsilon, delta)-DP for replace-one neighbours, n public; the noisy statistics are
    the count (or sum) plus Laplace noise, which needs no delta, or plus Gaussian noise. Root mean squared errors are
    exact, over data and release. Explained in :doc:`/book/theory/choosing-a-prior`.

    Parameters
    ----------
    model : BetaBernoulli or NormalKnownVariance
        The model; its prior's strength is replaced.
    n : int
        The number of records, and of synthetic records.
    epsilon, delta : float
        What every release must satisfy; delta greater than 0.
    truth : float, optional
        The parameter that the data come from; by default 0.3 for coins and half the bound for bells.

    Returns
    -------
    pandas.DataFrame
        A row per release: ``strength`` of the prior in records (coins: alpha = beta), ``rmse`` of what is released,
        ``corrected`` (the rmse after undoing the prior's pull, which is post-processing), and ``relative``, the
        smaller of the two over the error without privacy.

    Examples
    --------
    >>> from dpbook import theory
    >>> table = theory.compare_with_noise(theory.BetaBernoulli(), 1000, epsilon=1.0, delta=1e-6)
    >>> table.set_index("release")["relative"].round(2).to_dict()["laplace"]
    1.0
    """
    n, epsilon = integer("n", n, least=1), positive("epsilon", epsilon)
    delta = delta_value("delta", delta, zero=False)
    coins = isinstance(model, BetaBernoulli)
    default = 0.3 if isinstance(model, BetaBernoulli) else model.bound / 2
    truth = default if truth is None else finite_number("truth", truth)
    if coins and not 0 <= truth <= 1:
        raise ValueError(f"truth must lie in [0, 1] for coins, got {truth}")
    variance = truth * (1 - truth) if isinstance(model, BetaBernoulli) else model.sigma**2
    span = 1.0 if isinstance(model, BetaBernoulli) else 2 * model.bound
    plain = math.sqrt(variance / n)
    noises = {
        "non-private": 0.0,
        "laplace": math.sqrt(2) * span / epsilon,
        "gaussian": gaussian_scale(sensitivity=span, epsilon=epsilon, delta=delta),
    }
    rows: list[dict[str, Any]] = []
    for name, noise in noises.items():
        error = math.sqrt(variance / n + (noise / n) ** 2)
        rows.append({"release": name, "strength": 0.0, "rmse": error, "corrected": error})
    releases: dict[str, tuple[str, Options]] = {
        "sample": ("sample", {}),
        "plug-in": ("synthetic-plugin", {"m": n, "estimator": "mean"}),
        "bayes": ("synthetic-bayes", {"m": n}),
        "bayes, one draw": ("synthetic-bayes", {"m": n, "redraw": False}),
    }
    for name, (kind, options) in releases.items():
        found = prior_for(kind, model, n, epsilon=epsilon, delta=delta, **options)
        if found is None:
            rows.append({"release": name, "strength": math.inf, "rmse": math.nan, "corrected": math.nan})
            continue
        strength, error, corrected = _bayes_errors(found, n, name, truth)
        rows.append({"release": name, "strength": strength, "rmse": error, "corrected": corrected})
    table = pd.DataFrame(rows)
    table["relative"] = table[["rmse", "corrected"]].min(axis=1) / plain
    return table


def _bayes_errors(model: Model, n: int, name: str, truth: float) -> tuple[float, float, float]:
    """Return the prior's strength, and the rmse of what is released as it is and with the prior's pull undone."""
    if isinstance(model, BetaBernoulli):
        strength, total = model.alpha, model.alpha + model.beta + n
        centre = (model.alpha + n * truth) / total
        between = n * truth * (1 - truth) / total**2  # variance of the posterior mean over data
        spread = centre * (1 - centre) - between  # E[p (1 - p)]
        within = {"sample": spread / (total + 1), "bayes, one draw": spread / (total + 1) + _rest(spread, total, n)}
        variance = between + within.get(name, spread / n)
        pull = n / total
    else:
        strength = (model.sigma / model.prior_sd) ** 2
        total = n + strength
        centre = (strength * model.prior_mean + n * truth) / total
        posterior, noise = model.sigma**2 / total, model.sigma**2 / n
        between = n * model.sigma**2 / total**2
        extra = {"sample": posterior, "plug-in": noise, "bayes": (posterior + model.sigma**2) / n}
        variance = between + extra.get(name, posterior + noise)
        pull = n / total
    return strength, math.sqrt((centre - truth) ** 2 + variance), math.sqrt(variance) / pull


def _rest(spread: float, total: float, n: int) -> float:
    """Return E[θ(1 - θ)]/n for one posterior draw θ: what n records add to the draw's own scatter."""
    return spread * total / (total + 1) / n
