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

from dpbook._validation import Option, analyst_generator, flag_option, integer, method_options, one_of
from dpbook.expfam.families import (
    Binomial,
    Exponential,
    Family,
    Multinomial,
    Normal,
    Poisson,
)
from dpbook.expfam.gibbs import gibbs_start, gibbs_step
from dpbook.expfam.one_parameter import (
    BetaMixture,
    GridDensity,
    HalfLineDensity,
    _BetaTimesLikelihood,
)
from dpbook.expfam.releases import _require_density, _require_family, _require_prior
from dpbook.latent_noise import normal_laplace_logpdf
from dpbook.posterior import Posterior, warn_if_unconverged
from dpbook.priors import Beta
from dpbook.records import as_chunks
from dpbook.release import Release
from dpbook.sampling import posteriors, run

__all__ = ["infer", "infer_nonprivate", "methods_of", "posterior_density"]

# Gibbs: 500 sweeps to forget the start, then every fifth is kept: with leaps, autocorrelation times are 5 to 30 sweeps.
_BURN_IN, _THIN = 500, 5
# R-hat takes milliseconds a release: of a long sequence the first ones speak for all.
_CHECKED = 20

_METHODS: dict[str, tuple[str, ...]] = {
    "binomial": ("exact", "collapsed", "gibbs", "naive"),
    "multinomial": ("gibbs", "naive"),
    "exponential": ("collapsed", "gibbs", "naive"),
    "poisson": ("collapsed", "gibbs", "naive"),
    "normal": ("gibbs", "naive"),
}
_CUSTOM = ("collapsed", "gibbs", "naive")
# What a method takes beyond what all take; an option that it would ignore is refused.
_OPTIONS: dict[str, dict[str, Option]] = {
    "exact": {},
    "collapsed": {},
    "gibbs": {"progress": flag_option()},
    "naive": {},
}
_FAMILIES: dict[str, type[Family]] = {
    "binomial": Binomial,
    "multinomial": Multinomial,
    "exponential": Exponential,
    "poisson": Poisson,
    "normal": Normal,
}


def methods_of(family: Family) -> tuple[str, ...]:
    """Return the methods of :func:`infer` that a family has, the default first.

    Parameters
    ----------
    family : Family
        The model.

    Returns
    -------
    tuple of str
        Names to pass as ``method``.

    Examples
    --------
    >>> from dpbook.expfam import Exponential, methods_of
    >>> methods_of(Exponential(0, 10))
    ('collapsed', 'gibbs', 'naive')

    Explained in :doc:`/book/exponential-families/noise-aware-inference`.
    """
    return _METHODS.get(family.name, _CUSTOM)


def posterior_density(
    release: Release,
    prior: Any,
    *,
    method: str | None = None,
    family: Family | None = None,
) -> BetaMixture | GridDensity:
    """Return the posterior density of a one-parameter family given a release: no sampling, no data.

    For a noisy count z the exact posterior is a mixture over the n + 1 possible counts s, with weights proportional to
    ``C(n,s) B(alpha+s, beta+n-s) p(z|s)``. For randomised response it is ``prior(theta) π^r (1-π)^(n-r)``, where
    ``π = (1-t) + (2t-1) theta`` is the chance of a "yes" report and t that of a true answer. The collapsed posterior
    takes the released sum as normal given theta, and integrates it out: ``prior(theta)`` times the density of a normal
    plus the noise at z. The naive posterior takes the noisy value, moved to the nearest possible one, for the truth.

    Parameters
    ----------
    release : Release
        From :func:`release` or :func:`release_randomized_response`.
    prior : object
        The family's conjugate prior.
    method : {"exact", "collapsed", "naive"}, optional
        Default: the family's own.
    family : Family, optional
        Needed for a custom family, which cannot travel in a release.

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

    Explained in :doc:`/book/exponential-families/noise-aware-inference`.
    """
    family, method = _check(release, prior, method, family)
    if family.parameters != 1 or method == "gibbs":
        raise ValueError(f"method must be one with a density, for a one-parameter family; got {method!r}, {family!r}")
    _require_density(family, prior)
    return _density(release, prior, family, method)


def _density(release: Release, prior: Any, family: Family, method: str) -> BetaMixture | GridDensity:
    if release.mechanism == "randomized response":
        return _after_randomized_response(release, prior, method)
    if method == "naive":
        return _naive_density(release, prior, family)
    if method == "collapsed":
        return _collapsed(release, prior, family)
    noisy = float(release["sum"][0])
    counts, log_weights = _log_weights(noisy, release, prior)
    weights = np.exp(log_weights - log_weights.max())
    return BetaMixture(weights, prior.alpha + counts, prior.beta + release.n - counts)


@overload
def infer(
    release: Release,
    prior: Any,
    *,
    method: str | None = None,
    draws: int = 4000,
    chains: int | None = None,
    rng: np.random.Generator | None = None,
    family: Family | None = None,
    progress: bool = False,
) -> Posterior: ...
@overload
def infer(
    release: Sequence[Release],
    prior: Any,
    *,
    method: str | None = None,
    draws: int = 4000,
    chains: int | None = None,
    rng: np.random.Generator | None = None,
    family: Family | None = None,
    progress: bool = False,
) -> list[Posterior]: ...
def infer(
    release: Release | Sequence[Release],
    prior: Any,
    *,
    method: str | None = None,
    draws: int = 4000,
    chains: int | None = None,
    rng: np.random.Generator | None = None,
    family: Family | None = None,
    progress: bool = False,
) -> Posterior | list[Posterior]:
    """Return the posterior of ``theta`` given a release, or a list of posteriors for a sequence of releases.

    Post-processing: it reads nothing but the release, so it costs no privacy. A sequence of releases is one batch.

    Parameters
    ----------
    release : Release or sequence of Release
        From :func:`release` or :func:`release_randomized_response`; a sequence is of one family.
    prior : Beta, Dirichlet, Gamma, NormalInverseGamma, or a custom family's prior
        The conjugate prior of theta.
    method : {"exact", "collapsed", "gibbs", "naive"}, optional
        Default: exact for the binomial, collapsed for other one-parameter families, Gibbs otherwise
        (:func:`methods_of`).
    draws : int, default 4000
        How many draws in all.
    chains : int, optional
        How many chains they are arranged in: by default 4 where draws are independent, 20 for Gibbs.
    rng : numpy.random.Generator, optional
        The source of randomness.
    family : Family, optional
        Needed for a custom family, which cannot travel in a release.
    progress : bool, default False
        Whether Gibbs shows a progress bar; other methods have none, and refuse True.

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

    Explained in :doc:`/book/exponential-families/noise-aware-inference`.
    """
    draws = integer("draws", draws, least=1)
    chains = None if chains is None else integer("chains", chains, least=1)
    rng = analyst_generator(rng)
    given = {} if progress is False else {"progress": progress}
    method_options("gibbs" if method is None else method, given, _OPTIONS)
    if not isinstance(release, (Release, Sequence)):
        raise TypeError(f"release must be a Release or a sequence of them, got {type(release).__name__}")
    batch = [release] if isinstance(release, Release) else list(release)
    if not batch:
        return []
    model, chosen = _check_batch(batch, prior, method, family)
    method_options(chosen, given, _OPTIONS)
    _require_density(model, prior)
    if chosen == "gibbs":
        found = _gibbs(batch, prior, model, draws, chains or 20, rng, progress)
        warn_if_unconverged(found[0] if isinstance(release, Release) else found[:_CHECKED])
    else:
        count = chains or 4
        shape = (count, -(-draws // count))
        found = [_independent(one, prior, model, chosen, shape, rng) for one in batch]
    return found[0] if isinstance(release, Release) else found


def infer_nonprivate(
    x: Any,
    family: Family,
    prior: Any,
    *,
    draws: int = 4000,
    chains: int = 4,
    rng: np.random.Generator | None = None,
) -> Posterior:
    """Return the posterior from the data themselves: **not private**, for comparison only.

    Parameters
    ----------
    x : array, Series, table of one column, iterator of chunks, or Dask collection
        The records; none are clipped or redacted.
    family : Family
        The model.
    prior : object
        Its conjugate prior.
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

    Explained in :doc:`/book/exponential-families/naive-posterior`.
    """
    _require_family(family)
    _require_prior(prior, family)
    draws, chains = integer("draws", draws, least=1), integer("chains", chains, least=1)
    rng = analyst_generator(rng)
    n, total = 0, np.zeros(family.size)
    for rows in as_chunks(x, name="x"):
        if rows.shape[1] != 1:
            raise ValueError(f"x must have one column, got {rows.shape[1]}")
        n, total = n + len(rows), total + family._sufficient(rows).sum(axis=0)
    if n == 0:
        raise ValueError("x must hold at least one record, got none")
    shape = (chains, -(-draws // chains))
    statistics = np.broadcast_to(total, (*shape, family.size))
    return Posterior(
        {"theta": family._draw_parameter(prior, statistics, np.asarray(n), rng)},
        method="non-private",
    )


def _gibbs(
    releases: Sequence[Release],
    prior: Any,
    family: Family,
    draws: int,
    chains: int,
    rng: np.random.Generator,
    progress: bool,
) -> list[Posterior]:
    """Run every release's chains in one batch; thin so that slow chains still travel."""
    noisy = np.stack([np.atleast_1d(each["sum"]) for each in releases])
    n = np.array([float(each.n) for each in releases])
    scale = np.array([each.scale["sum"] for each in releases])
    problem = (family, prior, noisy, n, scale)
    outside = str(releases[0].settings.get("outside", "clip"))
    step = gibbs_step(*problem, outside=outside, laplace=releases[0].mechanism == "laplace", leap=True)
    kept = run(
        step,
        gibbs_start(*problem, chains, rng, outside=outside),
        draws=-(-draws // chains),
        burn_in=_BURN_IN,
        thin=_THIN,
        keep=["theta"],
        rng=rng,
        progress=progress,
        label="gibbs",
    )
    return posteriors(kept, method="gibbs")


def _independent(
    release: Release,
    prior: Any,
    family: Family,
    method: str,
    shape: tuple[int, int],
    rng: np.random.Generator,
) -> Posterior:
    """Return independent draws from a density, or from the conjugate posterior of the naive method."""
    if method != "naive":
        density = _density(release, prior, family, method)
        return Posterior({"theta": density.draw(shape[0] * shape[1], rng).reshape(shape)}, method=method)
    name = "reports" if release.mechanism == "randomized response" else "sum"
    valid = family._nearest_valid(np.asarray(release[name], dtype=float), np.asarray(release.n))
    statistics = np.broadcast_to(valid, (*shape, family.size))
    return Posterior({"theta": family._draw_parameter(prior, statistics, np.asarray(release.n), rng)}, method="naive")


def _naive_density(release: Release, prior: Any, family: Family) -> BetaMixture | GridDensity:
    valid = float(family._nearest_valid(np.asarray(release["sum"]), np.asarray(release.n))[0])
    if isinstance(family, Binomial):
        after = prior.updated(valid, release.n)
        return BetaMixture([1.0], [after.alpha], [after.beta])
    if isinstance(family, (Exponential, Poisson)):
        return HalfLineDensity(family._updated(prior, valid, release.n).log_density)
    raise ValueError("method must not be 'naive' for the density of a custom family; infer draws from it")


def _collapsed(release: Release, prior: Any, family: Family) -> GridDensity:
    """Integrate the latent sum out: given theta, the release is a normal plus the noise."""
    noisy, scale, n = float(release["sum"][0]), release.scale["sum"], release.n
    outside = str(release.settings.get("outside", "clip"))

    def log_likelihood(theta: NDArray[np.float64]) -> NDArray[np.float64]:
        with np.errstate(all="ignore"):  # at the ends of double precision
            mean, each = family._released_moments(theta, outside)
        centre, variance = n * mean[..., 0], n * each[..., 0]
        usable = np.isfinite(centre) & np.isfinite(variance)
        centre, variance = (
            np.where(usable, centre, 0.0),
            np.where(usable, variance, 1.0),
        )
        if release.mechanism == "laplace":
            value = normal_laplace_logpdf(noisy, centre, variance, scale)
        else:
            value = -0.5 * ((noisy - centre) ** 2 / (variance + scale**2) + np.log(variance + scale**2))
        return np.where(usable, value, -np.inf)

    if isinstance(prior, Beta):
        return _BetaTimesLikelihood(prior.alpha, prior.beta, log_likelihood)
    if prior.support == (0.0, math.inf):
        return HalfLineDensity(lambda theta: prior.log_density(theta) + log_likelihood(theta))
    return GridDensity(lambda theta: prior.log_density(theta) + log_likelihood(theta), prior.support)


def _check_batch(releases: Sequence[Any], prior: Any, method: str | None, family: Family | None) -> tuple[Family, str]:
    """Return the family and the method of releases of one kind, or raise naming what is wrong."""
    checked = [_check(each, prior, method, family) for each in releases]
    kinds = {(each.mechanism, each.settings.get("outside")) for each in releases}
    if any(other != checked[0] for other in checked[1:]) or len(kinds) > 1:
        raise ValueError("release must be a sequence of one family, one mechanism and one treatment of records outside")
    return checked[0]


def _check(release: Any, prior: Any, method: str | None, family: Family | None) -> tuple[Family, str]:
    """Return the release's family and the method to use, or raise naming what is wrong."""
    if not isinstance(release, Release):
        raise TypeError(f"release must be a Release, got {type(release).__name__}")
    if family is None:
        if release.model not in _FAMILIES:
            raise ValueError(f"release is of model {release.model!r}: pass its family, or use another infer function")
        settings = {key: value for key, value in release.settings.items() if key in ("k", "lower", "upper")}
        family = _FAMILIES[release.model](**settings)
    else:
        _require_family(family)
        release.require(model=family.name)
        told = {"bounds": tuple(release.bounds.get("x", family.bounds))} | {
            key: release.settings[key] for key in family.settings if key in release.settings
        }
        if told != {"bounds": family.bounds} | {key: family.settings[key] for key in told if key != "bounds"}:
            raise ValueError(f"family must be the one of the release, whose public numbers are {told}; got {family!r}")
    local = ("randomized response",) if family.name == "binomial" else ()
    release.require(model=family.name, mechanisms=("laplace", "gaussian", *local))
    _require_prior(prior, family)
    methods = ("exact", "naive") if release.mechanism == "randomized response" else methods_of(family)
    return family, methods[0] if method is None else one_of("method", method, methods)


def _log_weights(noisy: float, release: Release, prior: Beta) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the counts whose weight is not negligible, and the logarithms of their weights, up to a constant."""
    n, scale, gaussian = (
        release.n,
        release.scale["sum"],
        release.mechanism == "gaussian",
    )
    # Distances are taken from the possible value nearest to y, which changes the weights by a constant factor only:
    # |y-s| = |y-c| + |c-s| for every count s, and likewise for squares. A far y then costs no precision.
    nearest = min(max(noisy, 0.0), float(n))
    pull = abs(noisy - nearest) / scale
    extremes = _log_beta_binomial(_turning_points(n, prior), n, prior)
    drop = float(np.ptp(extremes)) + 45.0  # e^-45 is below double precision
    reach = 1 + scale * (math.sqrt(2 * drop) if gaussian else drop)
    counts = np.arange(
        math.floor(max(nearest - reach, 0.0)),
        math.ceil(min(nearest + reach, float(n))) + 1,
    )
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
