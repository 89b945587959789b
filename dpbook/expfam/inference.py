"""The analyst's side: posteriors from a release alone, exact where that is possible, naive for comparison.

No function here takes data, except :func:`infer_nonprivate`, whose name says what it is for.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray
from scipy import special

from dpbook._validation import analyst_generator, integer, one_of
from dpbook.expfam.families import Beta, Binomial
from dpbook.expfam.one_parameter import BetaMixture, GridDensity, _BetaTimesLikelihood
from dpbook.expfam.releases import _count_ones, _require_binomial
from dpbook.posterior import Posterior
from dpbook.release import Release

__all__ = ["infer", "infer_nonprivate", "posterior_density"]

_METHODS = ("exact", "naive")


def posterior_density(release: Release, prior: Beta, *, method: str = "exact") -> BetaMixture | GridDensity:
    """Return the posterior density of theta given a release: no sampling, no data.

    For a noisy count y the exact posterior is a mixture over the n + 1 possible counts s, with weights proportional to
    ``C(n,s) B(alpha+s, beta+n-s) p(y|s)``. For randomised response it is ``prior(theta) π^r (1-π)^(n-r)``, where
    ``π = (1-t) + (2t-1) theta`` is the chance of a "yes" report and t that of a true answer. The naive posterior takes
    the noisy value, moved to the nearest possible count, for the truth.

    Parameters
    ----------
    release : Release
        From :func:`release` or :func:`release_randomized_response`.
    prior : Beta
        The prior of theta.
    method : {"exact", "naive"}
        Whether to account for the noise.

    Returns
    -------
    BetaMixture or GridDensity
        With ``pdf``, ``cdf``, ``mean``, ``sd``, ``quantile`` and ``draw``.

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook import expfam
    >>> noisy = expfam.release([1] * 3 + [0] * 7, expfam.Binomial(), epsilon=0.5, rng=np.random.default_rng(1))
    >>> [round(expfam.posterior_density(noisy, expfam.Beta(1, 1), method=m).sd, 3) for m in ("exact", "naive")]
    [0.211, 0.131]

    Explained in :doc:`/book/background/after-a-release`.
    """
    _check(release, prior, method)
    if release.mechanism == "randomized response":
        return _after_randomized_response(release, prior, method)
    noisy = float(release["sum"][0])
    if method == "naive":
        after = prior.updated(float(np.clip(noisy, 0, release.n)), release.n)
        return BetaMixture([1.0], [after.alpha], [after.beta])
    counts, log_weights = _log_weights(noisy, release, prior)
    weights = np.exp(log_weights - log_weights.max())
    return BetaMixture(weights, prior.alpha + counts, prior.beta + release.n - counts)


@overload
def infer(
    release: Release,
    prior: Beta,
    *,
    method: str | None = None,
    draws: int = 4000,
    chains: int = 4,
    rng: np.random.Generator | None = None,
) -> Posterior: ...
@overload
def infer(
    release: Sequence[Release],
    prior: Beta,
    *,
    method: str | None = None,
    draws: int = 4000,
    chains: int = 4,
    rng: np.random.Generator | None = None,
) -> list[Posterior]: ...
def infer(
    release: Release | Sequence[Release],
    prior: Beta,
    *,
    method: str | None = None,
    draws: int = 4000,
    chains: int = 4,
    rng: np.random.Generator | None = None,
) -> Posterior | list[Posterior]:
    """Return the posterior of ``theta`` given a release, or a list of posteriors for a sequence of releases.

    Post-processing: it reads nothing but the release, so it costs no privacy.

    Parameters
    ----------
    release : Release or sequence of Release
        From :func:`release` or :func:`release_randomized_response`.
    prior : Beta
        The prior of theta.
    method : {"exact", "naive"}, optional
        Default: ``"exact"``.
    draws : int, default 4000
        How many draws in all.
    chains : int, default 4
        How many chains they are arranged in (they are independent either way).
    rng : numpy.random.Generator, optional
        The source of randomness.

    Returns
    -------
    Posterior or list of Posterior
        With draws of ``theta``.

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook import expfam
    >>> rng = np.random.default_rng(1)
    >>> noisy = expfam.release([1] * 300 + [0] * 700, expfam.Binomial(), epsilon=0.5, rng=rng)
    >>> posterior = expfam.infer(noisy, expfam.Beta(1, 1), rng=rng)
    >>> bool(abs(posterior.mean("theta") - 0.3) < 0.02)
    True

    Explained in :doc:`/book/background/after-a-release`.
    """
    draws, chains = integer("draws", draws, least=1), integer("chains", chains, least=1)
    method = "exact" if method is None else one_of("method", method, _METHODS)
    rng = analyst_generator(rng)
    if isinstance(release, Release):
        return _draw(posterior_density(release, prior, method=method), method, draws, chains, rng)
    if not isinstance(release, Sequence):
        raise TypeError(f"release must be a Release or a sequence of them, got {type(release).__name__}")
    for each in release:
        _check(each, prior, method)
    return [_draw(posterior_density(each, prior, method=method), method, draws, chains, rng) for each in release]


def infer_nonprivate(
    x: Any,
    family: Binomial,
    prior: Beta,
    *,
    draws: int = 4000,
    chains: int = 4,
    rng: np.random.Generator | None = None,
) -> Posterior:
    """Return the posterior from the data themselves: **not private**, for comparison only.

    Parameters
    ----------
    x : array, Series, table of one column, iterator of chunks, or Dask collection
        The records, 0 or 1.
    family : Binomial
        The model.
    prior : Beta
        The prior of theta.
    draws, chains, rng
        As in :func:`infer`.

    Returns
    -------
    Posterior
        With draws of ``theta``.

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook import expfam
    >>> posterior = expfam.infer_nonprivate(
    ...     [1, 0, 1], expfam.Binomial(), expfam.Beta(1, 1), rng=np.random.default_rng(0)
    ... )
    >>> round(posterior.mean("theta"), 1)
    np.float64(0.6)

    Explained in :doc:`/book/background/after-a-release`.
    """
    _require_binomial(family)
    _require_beta(prior)
    draws, chains = integer("draws", draws, least=1), integer("chains", chains, least=1)
    total = _count_ones(x)
    after = prior.updated(float(total.values[0]), total.n)
    density = BetaMixture([1.0], [after.alpha], [after.beta])
    return _draw(density, "non-private", draws, chains, analyst_generator(rng))


def _draw(
    density: BetaMixture | GridDensity, method: str, draws: int, chains: int, rng: np.random.Generator
) -> Posterior:
    each = -(-draws // chains)
    return Posterior({"theta": density.draw(chains * each, rng).reshape(chains, each)}, method=method)


def _require_beta(prior: Any) -> None:
    if not isinstance(prior, Beta):
        raise TypeError(f"prior must be Beta(alpha, beta), got {prior!r}")


def _check(release: Any, prior: Any, method: str) -> None:
    if not isinstance(release, Release):
        raise TypeError(f"release must be a Release, got {type(release).__name__}")
    release.require(model="binomial", mechanisms=("laplace", "gaussian", "randomized response"))
    _require_beta(prior)
    one_of("method", method, _METHODS)


def _log_weights(noisy: float, release: Release, prior: Beta) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the counts whose weight is not negligible, and the logarithms of their weights, up to a constant."""
    n, scale, gaussian = release.n, release.scale["sum"], release.mechanism == "gaussian"
    # Distances are taken from the possible value nearest to y, which changes the weights by a constant factor only:
    # |y-s| = |y-c| + |c-s| for every count s, and likewise for squares. A far y then costs no precision.
    nearest = min(max(noisy, 0.0), float(n))
    pull = abs(noisy - nearest) / scale
    extremes = _log_beta_binomial(_turning_points(n, prior), n, prior)
    drop = float(np.ptp(extremes)) + 45.0  # e^-45 is below double precision
    reach = 1 + scale * (math.sqrt(2 * drop) if gaussian else drop)
    counts = np.arange(math.floor(max(nearest - reach, 0.0)), math.ceil(min(nearest + reach, float(n))) + 1)
    distance = np.abs(nearest - counts) / scale
    log_noise = -(0.5 * distance + pull) * distance if gaussian else -distance
    return counts, _log_beta_binomial(counts, n, prior) + log_noise


def _turning_points(n: int, prior: Beta) -> NDArray[np.int64]:
    """Return counts among which are those of the largest and the smallest prior predictive probability.

    The ratio of successive probabilities, (n-s)(alpha+s) / ((s+1)(beta+n-s-1)), passes 1 at most once.
    """
    bend = prior.alpha + prior.beta - 2
    at = (n * (prior.alpha - 1) - (prior.beta - 1)) / bend if bend else 0.0
    middle = math.floor(min(max(at, 0.0), float(n)))
    return np.unique(np.clip([0, middle, middle + 1, n], 0, n))


def _log_beta_binomial(counts: NDArray[np.int64], n: int, prior: Beta) -> NDArray[np.float64]:
    """Log prior predictive of the count, up to a constant: log C(n,s) + log B(alpha+s, beta+n-s)."""
    return np.asarray(
        special.betaln(prior.alpha + counts, prior.beta + n - counts)
        - special.gammaln(counts + 1)
        - special.gammaln(n - counts + 1)
    )


def _after_randomized_response(release: Release, prior: Beta, method: str) -> BetaMixture | GridDensity:
    reports, n = int(release["reports"][0]), release.n
    if method == "naive":
        after = prior.updated(reports, n)
        return BetaMixture([1.0], [after.alpha], [after.beta])
    truth = float(release.settings["truth"])

    def log_likelihood(theta: NDArray[np.float64]) -> NDArray[np.float64]:
        yes = (1 - truth) + (2 * truth - 1) * theta
        return np.asarray(special.xlogy(reports, yes) + special.xlog1py(n - reports, -yes))

    return _BetaTimesLikelihood(prior.alpha, prior.beta, log_likelihood)
