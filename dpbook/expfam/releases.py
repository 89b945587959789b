"""The curator's side: releases of sufficient statistics, and a preview of what a release would be worth.

Every release is private for replace-one neighbours, n public. The last section of chapter 1 explains them.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpbook import noise
from dpbook._validation import delta_value, fraction, integer, one_of, positive, seeded_generator
from dpbook.budget import PrivacyBudget, charge
from dpbook.expfam.families import Beta, Binomial
from dpbook.mechanisms import gaussian_scale
from dpbook.records import ExactSum, exact_sum, grid_unit
from dpbook.release import Release

__all__ = ["Preview", "preview", "release", "release_randomized_response"]


def release(
    x: Any,
    family: Binomial,
    *,
    epsilon: float,
    mechanism: str = "laplace",
    delta: float = 0.0,
    rng: np.random.Generator | None = None,
    budget: PrivacyBudget | None = None,
) -> Release:
    """Release the sufficient statistic of a family with noise.

    epsilon-DP (Laplace) or (epsilon, delta)-DP (Gaussian) for replace-one neighbours, n public. A record other than 0
    or 1 raises an error, which is not private: only the curator may see it.

    Parameters
    ----------
    x : array, Series, table of one column, iterator of chunks, or Dask collection
        The records, 0 or 1.
    family : Binomial
        The model.
    epsilon : float
        The privacy loss.
    mechanism : {"laplace", "gaussian"}
        The noise.
    delta : float, default 0.0
        0 for Laplace noise, greater than 0 for Gaussian noise.
    rng : numpy.random.Generator, optional
        Seeded teaching noise; None, the default, makes a real release.
    budget : PrivacyBudget, optional
        Charged before the noise is drawn.

    Returns
    -------
    Release
        With the noisy number of ones as ``.values["sum"]``.

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook import expfam
    >>> noisy = expfam.release([1, 0, 0, 1], expfam.Binomial(), epsilon=1.0, rng=np.random.default_rng(0))
    >>> noisy["sum"].round(2), noisy.scale["sum"]
    (array([2.32]), 1.0)

    Explained in :doc:`/book/background/after-a-release`.
    """
    _require_binomial(family)
    epsilon, delta = _check_loss(epsilon, delta, mechanism)
    rng = seeded_generator(rng)
    total = _count_ones(x)
    charge(budget, epsilon, delta, label=f"{family.name} sum")
    if mechanism == "laplace":
        noisy, scale = noise.add_laplace_to_sum(total, family.sensitivity, epsilon, rng)
    else:
        scale = gaussian_scale(sensitivity=family.sensitivity, epsilon=epsilon, delta=delta)
        noisy = noise.add_gaussian_to_sum(total, scale, rng)
    return Release(
        values={"sum": noisy},
        model=family.name,
        mechanism=mechanism,
        scale={"sum": scale},
        sensitivity={"sum": family.sensitivity},
        epsilon=epsilon,
        delta=delta,
        n=total.n,
        bounds={"x": family.bounds},
        float_safe=rng is None,
    )


def release_randomized_response(
    x: Any, *, epsilon: float, rng: np.random.Generator | None = None, budget: PrivacyBudget | None = None
) -> Release:
    """Release how many of the randomised responses to a yes-or-no question are "yes".

    epsilon-DP for replace-one neighbours, n public, and locally: every answer is flipped with odds 1 : e^epsilon before
    it is counted, so the collector never holds a true one. The count of reports is all that inference needs.

    Parameters
    ----------
    x : array, Series, table of one column, iterator of chunks, or Dask collection
        The true answers, 0 or 1.
    epsilon : float
        The privacy loss of each answer.
    rng : numpy.random.Generator, optional
        Seeded teaching noise; None, the default, makes a real release.
    budget : PrivacyBudget, optional
        Charged before any answer is flipped.

    Returns
    -------
    Release
        With the number of "yes" reports as ``.values["reports"]``.

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook import expfam
    >>> answers = [1] * 30 + [0] * 70
    >>> expfam.release_randomized_response(answers, epsilon=1.0, rng=np.random.default_rng(0))["reports"]
    array([46])

    Explained in :doc:`/book/background/after-a-release`.
    """
    epsilon = positive("epsilon", epsilon)
    rng = seeded_generator(rng)
    ones = _count_ones(x)
    charge(budget, epsilon, 0.0, label="randomised response")
    # Answers are exchangeable, so flipping sorted ones gives the count the same law as flipping them in order.
    total = round(float(ones.values[0]))
    answers = np.repeat(np.array([1, 0], dtype=np.int64), [total, ones.n - total])
    reports = noise.flip(answers, 2, epsilon, rng)
    return Release(
        values={"reports": np.array([reports.sum()])},
        model="binomial",
        mechanism="randomized response",
        scale={"reports": _report_sd(ones.n, epsilon)},
        sensitivity={"reports": 1.0},
        epsilon=epsilon,
        n=ones.n,
        bounds={"x": (0.0, 1.0)},
        settings={"truth": 1 / (1 + math.exp(-epsilon))},
        float_safe=rng is None,
    )


@dataclass(frozen=True)
class Preview:
    """What a release would be worth, computed from public numbers before anything is spent.

    Attributes
    ----------
    noise_scale : float
        The scale of the noise on the count (Laplace b, Gaussian sd).
    noise_sd, sampling_sd : float
        Standard deviations of the noisy proportion: from the noise, and from sampling n people.
    posterior_sd : float
        The expected posterior sd of theta after the release, noise accounted for.
    nonprivate_sd : float
        The same without privacy.
    break_even_n : float
        The n at which the noise's sd equals the sampling sd; beyond it, privacy is the smaller worry.

    Examples
    --------
    >>> from dpbook import expfam
    >>> expfam.preview(expfam.Binomial(), n=1000, epsilon=0.1).noise_scale
    10.0

    Explained in :doc:`/book/background/choosing-epsilon`.
    """

    noise_scale: float
    noise_sd: float
    sampling_sd: float
    posterior_sd: float
    nonprivate_sd: float
    break_even_n: float


def preview(
    family: Binomial,
    *,
    n: int,
    epsilon: float,
    mechanism: str = "laplace",
    delta: float = 0.0,
    proportion: float = 0.5,
    prior: Beta | None = None,
) -> Preview:
    """Say, before anything is spent, how noisy a release would be and how much it would teach.

    Normal approximations: good to a few per cent where the posterior is far from 0 and 1; :func:`infer` is exact.

    Parameters
    ----------
    family : Binomial
        The model.
    n : int
        The public number of records.
    epsilon, mechanism, delta
        As in :func:`release`.
    proportion : float, default 0.5
        A guess at the answer, made without the data; 0.5 is the most pessimistic for the sampling error.
    prior : Beta, default Beta(1, 1)
        The analyst's prior.

    Returns
    -------
    Preview
        The noise scale and the standard deviations.

    Examples
    --------
    >>> from dpbook import expfam
    >>> look = expfam.preview(expfam.Binomial(), n=6366, epsilon=0.1, proportion=0.3)
    >>> round(look.noise_sd, 4), round(look.sampling_sd, 4), round(look.break_even_n)
    (0.0022, 0.0057, 952)

    Explained in :doc:`/book/background/choosing-epsilon`.
    """
    _require_binomial(family)
    n = integer("n", n, least=1)
    epsilon, delta = _check_loss(epsilon, delta, mechanism)
    proportion = fraction("proportion", proportion)
    prior = Beta(1, 1) if prior is None else prior
    if mechanism == "laplace":
        scale = family.sensitivity / epsilon
        noise_variance = 2 * scale**2
    else:
        scale = gaussian_scale(sensitivity=family.sensitivity, epsilon=epsilon, delta=delta)
        noise_variance = scale**2
    spread = proportion * (1 - proportion)
    sampling_variance = spread / n

    def shrunk(variance: float) -> float:
        return 1 / math.sqrt(1 / variance + 1 / prior.variance)

    return Preview(
        noise_scale=scale,
        noise_sd=math.sqrt(noise_variance) / n,
        sampling_sd=math.sqrt(sampling_variance),
        posterior_sd=shrunk(sampling_variance + noise_variance / n**2),
        nonprivate_sd=shrunk(sampling_variance),
        break_even_n=noise_variance / spread,
    )


def _report_sd(n: int, epsilon: float) -> float:
    """Return the standard deviation of the number of "yes" reports given the answers: sqrt(n t (1-t)), not 0."""
    return max(math.sqrt(n) * math.exp(-epsilon / 2) / (1 + math.exp(-epsilon)), sys.float_info.min)


def _require_binomial(family: Any) -> None:
    if not isinstance(family, Binomial):
        raise TypeError(f"family must be Binomial(), got {family!r}")


def _check_loss(epsilon: float, delta: float, mechanism: str) -> tuple[float, float]:
    one_of("mechanism", mechanism, ("laplace", "gaussian"))
    epsilon, delta = positive("epsilon", epsilon), delta_value("delta", delta, zero=mechanism == "laplace")
    if mechanism == "laplace" and delta:
        raise ValueError(f"delta must be 0 for the Laplace mechanism, which is pure; got {delta}")
    return epsilon, delta


def _count_ones(x: Any) -> ExactSum:
    """Sum 0/1 records exactly; raise on any other code."""
    return exact_sum(x, _zeros_and_ones, unit=grid_unit(1.0), name="x")


def _zeros_and_ones(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    if rows.shape[1] != 1:
        raise ValueError(f"x must have one column, got {rows.shape[1]}")
    if not np.isin(rows, (0.0, 1.0)).all():
        raise ValueError("x must hold 0 and 1 only: a value lies outside the domain")
    return rows
