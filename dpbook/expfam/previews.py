"""What a release would be worth: noise scale and expected posterior spread, before anything is spent.

Everything here is computed from public numbers: the family with its bounds, n, epsilon, and a guess at the parameter
that was made without the data. Chapter 1 explains how to choose epsilon with it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dpbook._arrays import Array
from dpbook._labels import component_labels
from dpbook._validation import integer, one_of, privacy_loss
from dpbook.expfam.families import require_family
from dpbook.expfam.family import OUTSIDE, Family
from dpbook.expfam.simulated import FamilyLaw, one_parameter_widths, several_parameter_widths, share_widths
from dpbook.preview import EpsilonPlan, Preview
from dpbook.priors import Dirichlet
from dpbook.widths import expected, scale_for, solved

__all__ = ["preview", "solve_epsilon"]


def preview(
    family: Family,
    *,
    n: int,
    epsilon: float,
    mechanism: str = "laplace",
    delta: float = 0.0,
    outside: str = "clip",
    theta: ArrayLike | None = None,
    prior: Any = None,
) -> Preview:
    """Say, before anything is spent, how noisy a release would be and how much it would teach.

    Standard deviations are normal approximations (the delta method): good to a few per cent where the posterior is
    narrow and far from the edges of the parameter's range; :func:`infer` makes none of them. Widths of intervals come
    from releases that are simulated at the guess, and their posteriors. Explained in
    :doc:`/book/background/choosing-epsilon` and :doc:`/book/exponential-families/how-much-epsilon`.

    Parameters
    ----------
    family : Family
        The model, with its public bounds.
    n : int
        The public number of records.
    epsilon, mechanism, delta, outside
        As in :func:`release`.
    theta : float or array, optional
        A guess at the parameter, made without the data. Default: one half for Binomial, the most pessimistic for the
        sampling error; the other families need a guess.
    prior : object, optional
        The analyst's prior, of the family's kind. Default: Beta(1, 1) for Binomial, none for the others.

    Returns
    -------
    Preview
        Standard deviations of theta, numbers for a family of one parameter, else one entry per component;
        ``sampling_sd`` and ``noise_sd`` are those of the estimate from the released sums. ``width`` is the median
        width of the 95 % interval, and eight of ten will be between ``width_low`` and ``width_high``.

    Examples
    --------
    >>> from dpbook import expfam
    >>> look = expfam.preview(expfam.Binomial(), n=6366, epsilon=0.1, theta=0.3)
    >>> round(look.noise_sd, 4), round(look.sampling_sd, 4), round(look.break_even_n)
    (0.0022, 0.0057, 952)
    """
    epsilon, delta = privacy_loss(epsilon, delta, mechanism)
    plan = _Plan(family, n, outside, theta, prior, mechanism)
    scale = scale_for(plan.sensitivity, epsilon, delta, mechanism)
    noise, sampling = plan.noise(scale), plan.sampling
    noise_sd, sampling_sd = plan.sds(noise), plan.sds(sampling)
    width, low, high = (float(each[0]) if family.parameters == 1 else each for each in expected(plan.widths(scale)))
    return Preview(
        names=plan.names,
        sensitivity=plan.sensitivity,
        noise_scale=scale,
        noise_sd=plan.told(noise_sd),
        sampling_sd=plan.told(sampling_sd),
        posterior_sd=plan.told(plan.sds(sampling + noise, plan.belief)),
        nonprivate_sd=plan.told(plan.nonprivate_sds()),
        break_even_n=plan.told(n * (noise_sd / sampling_sd) ** 2),
        width=width,
        width_low=low,
        width_high=high,
    )


def solve_epsilon(
    width: float,
    family: Family,
    *,
    n: int,
    theta: ArrayLike | None = None,
    of: str | int | None = None,
    mechanism: str = "laplace",
    delta: float = 0.0,
    outside: str = "clip",
    prior: Any = None,
) -> EpsilonPlan:
    """Return the privacy loss at which the 95 % interval of a parameter is expected to have a wanted width.

    The inverse of :func:`preview`, from public numbers alone. Realised widths vary with the records and the noise; the
    wanted one is their median. Explained in :doc:`/book/exponential-families/how-much-epsilon`.

    Parameters
    ----------
    width : float
        Of the 95 % interval of theta, or of one of its components.
    family, n, theta, mechanism, delta, outside, prior
        As in :func:`preview`.
    of : str or int, optional
        Which component, by name or number; needed where there are several.

    Returns
    -------
    EpsilonPlan
        With ``epsilon``, and the range in which nine of ten realised widths will be.

    Examples
    --------
    >>> from dpbook import expfam
    >>> plan = expfam.solve_epsilon(0.1, expfam.Binomial(), n=1000, theta=0.3)
    >>> print(f"{plan.epsilon:.2f}")
    0.07
    """
    _, delta = privacy_loss(1.0, delta, mechanism)
    plan = _Plan(family, n, outside, theta, prior, mechanism)
    which = component_of(plan.names, of)
    return solved(
        width,
        lambda scale: plan.widths(scale)[:, which],
        sampling=float(np.sqrt(np.diag(plan.sampling).max())),
        sensitivity=plan.sensitivity,
        delta=delta,
        mechanism=mechanism,
    )


def component_of(names: tuple[str, ...], of: Any) -> int:
    """Return the number of the component that is asked for."""
    if of is None and len(names) > 1:
        raise TypeError(f"of must be one of {list(names)}: the component whose interval is wanted")
    if of is None or isinstance(of, str):
        return names.index(one_of("of", names[0] if of is None else of, names))
    which = integer("of", of, least=0)
    if which >= len(names):
        raise ValueError(f"of must be less than {len(names)}, the number of components, got {which}")
    return which


class _Plan:
    """A release to come: a family at a guess, with its prior and what one record is expected to add."""

    def __init__(self, family: Any, n: Any, outside: Any, theta: Any, prior: Any, mechanism: str) -> None:
        require_family(family)
        self.family, self.n = family, integer("n", n, least=1)
        self.outside, self.laplace = one_of("outside", outside, OUTSIDE), mechanism == "laplace"
        self.theta = _guess(family, theta)
        self.prior = family.default_prior if prior is None else prior
        self.belief = _belief(family, self.prior)
        self.sensitivity = family.sensitivity(outside, 1 if self.laplace else 2)
        self._slope, self._spread = _slope_and_spread(family, self.theta, outside)
        self.sampling = self.n * self._spread[: family.size, : family.size]

    @property
    def names(self) -> tuple[str, ...]:
        """What the components of theta are called."""
        p = self.family.parameters
        return tuple(self.family.labels or component_labels("theta", () if p == 1 else (p,)))

    def noise(self, scale: float) -> Array:
        """Return the covariance of the noise."""
        return (2.0 if self.laplace else 1.0) * scale**2 * np.eye(self.family.size)

    def sds(self, covariance: Array, belief: Array | float = 0.0) -> Array:
        """Return the standard deviations of theta when the released sums have this covariance."""
        return self._deviations(slice(0, self.family.size), covariance, belief)

    def nonprivate_sds(self) -> Array:
        """Return them when the sufficient statistics are known, neither clipped nor noisy."""
        own = slice(len(self._spread) - self.family.size, None)
        return self._deviations(own, self.n * self._spread[own, own], self.belief)

    def _deviations(self, statistics: slice, covariance: Array, belief: Array | float) -> Array:
        free = self.family.free_directions
        gradient = self.n * self._slope[statistics] @ free
        information = gradient.T @ np.linalg.pinv(covariance, hermitian=True) @ gradient + belief
        return np.asarray(np.sqrt(np.diag(free @ np.linalg.inv(information) @ free.T)))

    def told(self, values: Array) -> Any:
        """Return an entry for each component, a number where there is one."""
        return float(values[0]) if self.family.parameters == 1 else values

    def widths(self, scale: float) -> Array:
        """Return the widths (release, p) of intervals over simulated releases."""
        family, sd = self.family, self.sds(self.sampling + self.noise(scale), self.belief)
        if family.parameters == 1:
            simulated = (self.theta, self.n, self.outside, self.prior, float(sd[0]), scale, self.laplace)
            return one_parameter_widths(family, *simulated)[:, None]
        if family.prior_type is Dirichlet:
            alpha = np.ones(family.parameters) if self.prior is None else np.asarray(self.prior.alpha, dtype=float)
            alphas = np.broadcast_to(alpha, (1, *self.theta.shape))
            return share_widths(self.theta, alphas, np.ones(1), self.n, scale, self.laplace)
        law = FamilyLaw(family, self.theta, self.outside, self.prior, sd)
        return several_parameter_widths(law, self.n, scale, self.laplace)


def _belief(family: Family, prior: Any) -> Array | float:
    """Return the precision of the prior along the free directions, 0 where there is none."""
    if prior is None:
        return 0.0
    family.check_prior(prior)
    return family.prior_information(prior)


def _guess(family: Family, theta: ArrayLike | None) -> Array:
    """Return the guessed parameter as an array of its entries."""
    theta = family.cautious_theta if theta is None else theta
    if theta is None:
        raise TypeError(f"theta must be given for {family!r}: a guess at the parameter, made without the data")
    return family.check_parameter(theta)


def _slope_and_spread(family: Family, guess: Array, outside: str) -> tuple[Array, Array]:
    """Return the derivative of a record's mean statistics by each parameter, and their covariance."""
    scalar = family.parameters == 1
    columns = []
    for j, value in enumerate(guess):
        step = 1e-5 * max(abs(value), 1e-3)
        shift = step * np.eye(guess.size)[j]
        ends = [family.moments(point[0] if scalar else point, outside)[0] for point in (guess - shift, guess + shift)]
        columns.append((ends[1] - ends[0]) / (2 * step))
    return np.stack(columns, axis=-1), family.moments(guess[0] if scalar else guess, outside)[1]
