"""The analyst's side: posteriors of a regression from a release alone, naive and noise-aware.

No function here takes data, except :func:`infer_nonprivate`, whose name says what it is for. A sequence of releases is
one batched run. Chapter 4 explains the methods.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import Any, overload

import numpy as np

from dpbook._arrays import Array
from dpbook._validation import (
    Option,
    analyst_generator,
    flag,
    flag_option,
    integer,
    method_options,
    whole_option,
)
from dpbook.posterior import warn_if_unconverged
from dpbook.priors import NormalInverseGamma, NormalInverseWishart
from dpbook.regression import gibbs
from dpbook.regression.coordinates import Coordinates
from dpbook.regression.moments import nearest_valid
from dpbook.regression.posterior import RegressionPosterior
from dpbook.regression.problem import CovariatePrior, Draws, Layout, ParameterPrior, Problem
from dpbook.regression.releases import MODEL, _named, _required, coordinates_of, join, named_bounds
from dpbook.release import Release

__all__ = ["METHODS", "OPTIONS", "check_before_release", "infer", "infer_nonprivate", "problem_of", "sample"]


def _variant(name: str, value: Any) -> gibbs.Variant:
    if not isinstance(value, gibbs.Variant):
        raise TypeError(f"{name} must be a gibbs.Variant, got {value!r}")
    return value


_HAMILTONIAN = {"warm_up": whole_option(0)}
_GIBBS = {"burn_in": whole_option(0), "thin": whole_option(1), "variant": Option("a gibbs.Variant", _variant)}
# Every method, with the options that it takes beside those of `infer`.
OPTIONS: dict[str, dict[str, Option]] = {
    "collapsed": _HAMILTONIAN,
    "naive": {},
    "gibbs-noisy": _GIBBS | {"account_for_moments": flag_option()},
    "gibbs-prior": _GIBBS,
    "gibbs-update": _GIBBS,
    "exact": _HAMILTONIAN,
    "individual": _HAMILTONIAN,
}
METHODS = tuple(OPTIONS)
# R-hat takes milliseconds a release: of a long sequence the first ones speak for all.
_CHECKED = 20
# A single posterior gets many short chains; in a long batch four are enough.
_MANY, _FEW, _LONG = 20, 4, 10


@overload
def infer(
    release: Release,
    prior: NormalInverseGamma,
    *,
    method: str = "collapsed",
    covariates: NormalInverseWishart | None = None,
    draws: int = 4000,
    chains: int | None = None,
    rng: np.random.Generator | None = None,
    progress: bool = False,
    **options: Any,
) -> RegressionPosterior: ...
@overload
def infer(
    release: Sequence[Release],
    prior: NormalInverseGamma,
    *,
    method: str = "collapsed",
    covariates: NormalInverseWishart | None = None,
    draws: int = 4000,
    chains: int | None = None,
    rng: np.random.Generator | None = None,
    progress: bool = False,
    **options: Any,
) -> list[RegressionPosterior]: ...
def infer(
    release: Release | Sequence[Release],
    prior: NormalInverseGamma,
    *,
    method: str = "collapsed",
    covariates: NormalInverseWishart | None = None,
    draws: int = 4000,
    chains: int | None = None,
    rng: np.random.Generator | None = None,
    progress: bool = False,
    **options: Any,
) -> RegressionPosterior | list[RegressionPosterior]:
    """Return the posterior of a regression given a release, or a list of posteriors for a sequence of releases.

    Post-processing: it reads nothing but the release, so it costs no privacy, and no release, however wild its noise,
    makes it raise. A sequence of releases is one batch; their bounds and n may differ, not their shape or mechanism.

    Parameters
    ----------
    release : Release or sequence of Release
        From :func:`release`.
    prior : NormalInverseGamma
        Of the coefficients (the intercept first) and the error variance, in the data's units.
    method : str, default "collapsed"
        "collapsed" integrates the latent sums out and samples the parameters (by the exact law of the sums where
        bounds are so wide that their normal law would mislead); "naive" takes the noisy sums for the
        truth; "gibbs-noisy" (needs ``moments=True``), "gibbs-prior" and "gibbs-update" are the Gibbs samplers of
        :mod:`~dpbook.regression.gibbs`; "exact" is right at any n where covariates are normal; "individual" has a
        latent record for everyone (extra ``pymc``, small n).
    covariates : NormalInverseWishart, optional
        Prior of the covariates' mean and covariance, in the data's units. By default the weak one of
        :func:`~dpbook.regression.coordinates.weak_covariates`; for "gibbs-prior", which needs fourth moments, the
        same with d + 6 degrees of freedom.
    draws : int, default 4000
        How many draws in all.
    chains : int, optional
        How many chains they are arranged in: by default 20, or 4 in a batch of more than ten releases and where draws
        are independent.
    rng : numpy.random.Generator, optional
        The source of randomness.
    progress : bool, default False
        Whether to show a progress bar.
    **options
        Further settings of the method: ``warm_up`` of "collapsed", "exact" and "individual"; ``burn_in``, ``thin`` and
        ``variant`` of the Gibbs samplers; ``account_for_moments`` of "gibbs-noisy". One that the method does not take
        raises.

    Returns
    -------
    RegressionPosterior or list of RegressionPosterior
        With draws of ``theta`` and ``sigma2`` in the data's units.

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook import regression
    >>> rng = np.random.default_rng(1)
    >>> years = rng.uniform(0, 20, size=5000)
    >>> wage = 5 + years + rng.normal(size=5000)
    >>> noisy = regression.release(years, wage, x_bounds=(0, 20), y_bounds=(0, 30), epsilon=5.0, rng=rng)
    >>> prior = regression.NormalInverseGamma(mean=[15, 0], precision=0.1, shape=2, rate=2)
    >>> posterior = regression.infer(noisy, prior, method="naive", rng=rng)
    >>> bool(abs(posterior.mean("theta")[1] - 1) < 0.1)
    True

    Explained in :doc:`/book/regression/a-sampler-that-mixes`.
    """
    draws = integer("draws", draws, least=1)
    chains = None if chains is None else integer("chains", chains, least=1)
    options = method_options(method, options, OPTIONS)
    flag("progress", progress)
    rng = analyst_generator(rng)
    if not isinstance(release, (Release, Sequence)):
        raise TypeError(f"release must be a Release or a sequence of them, got {type(release).__name__}")
    batch = [release] if isinstance(release, Release) else list(release)
    if not batch:
        return []
    problem = problem_of(batch, prior, covariates, method=method)
    found = sample(problem, method=method, draws=draws, chains=chains, rng=rng, progress=progress, **options)
    intercept = problem.layout.intercept
    posteriors = [
        RegressionPosterior(
            {"theta": inside.theta_out(theta), "sigma2": inside.sigma2_out(sigma2)},
            method,
            intercept=intercept,
            columns=each.settings.get("columns"),
        )
        for each, inside, theta, sigma2 in zip(batch, map(coordinates_of, batch), *found, strict=True)
    ]
    if method != "naive":
        warn_if_unconverged(posteriors[0] if isinstance(release, Release) else posteriors[:_CHECKED])
    return posteriors[0] if isinstance(release, Release) else posteriors


def sample(
    problem: Problem,
    *,
    method: str = "collapsed",
    draws: int = 4000,
    chains: int | None = None,
    rng: np.random.Generator | None = None,
    progress: bool = False,
    **options: Any,
) -> Draws:
    """Draw from the posteriors of a batch of problems, all in coordinates: the way from statistics to draws.

    :func:`infer` calls it; a study that makes its own statistics, 300 trials at once, may call it directly.

    Parameters
    ----------
    problem : Problem
        The releases and the priors, in coordinates.
    method, draws, chains, rng, progress
        As in :func:`infer`.
    **options
        As in :func:`infer`.

    Returns
    -------
    Draws
        With axes (release, chain, draw).

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook import regression
    >>> from dpbook.regression.inference import problem_of, sample
    >>> rng = np.random.default_rng(1)
    >>> noisy = regression.release([0.1, 0.5], [0.2, 0.4], x_bounds=(0, 1), y_bounds=(0, 1), epsilon=1.0, rng=rng)
    >>> problem = problem_of([noisy] * 3, regression.NormalInverseGamma(0, 1, 20, 0.5))
    >>> sample(problem, method="naive", draws=100, rng=rng).theta.shape
    (3, 4, 25, 2)

    Explained in :doc:`/book/regression/a-sampler-that-mixes`.
    """
    options = method_options(method, options, OPTIONS)
    rng = analyst_generator(rng)
    if chains is None:
        chains = _FEW if method in ("naive", "individual") or problem.releases > _LONG else _MANY
    each = -(-draws // chains)
    settings: dict[str, Any] = {"draws": each, "chains": chains, "rng": rng, "progress": progress, **options}
    if method == "naive":
        return _naive(problem, **settings)
    if method in gibbs.KINDS:
        return gibbs.sample(problem, kind=method, **settings)
    # The samplers below are imported when asked for: one of them needs PyMC.
    module = importlib.import_module(f"dpbook.regression.{method}")
    found: Draws = module.sample(problem, **settings)
    return found


def problem_of(
    releases: Sequence[Release],
    prior: NormalInverseGamma,
    covariates: NormalInverseWishart | None = None,
    *,
    method: str = "collapsed",
) -> Problem:
    """Gather releases and priors into one batch of problems, in coordinates; raise, naming what does not fit.

    Parameters
    ----------
    releases : sequence of Release
        Of one shape (covariates, intercept, moments) and one mechanism.
    prior : NormalInverseGamma
    covariates : NormalInverseWishart, optional
        In the data's units, as in :func:`infer`.
    method : str, default "collapsed"
        "gibbs-prior" has a weak prior of the covariates of its own.

    Returns
    -------
    Problem
        What every sampler takes.

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook import regression
    >>> from dpbook.regression.inference import problem_of
    >>> noisy = regression.release([0.1, 0.5], [0.2, 0.4], x_bounds=(0, 1), y_bounds=(0, 1), epsilon=1.0,
    ...                            rng=np.random.default_rng(1))
    >>> problem_of([noisy], regression.NormalInverseGamma(0, 1, 20, 0.5)).layout
    Layout(d=1, intercept=True)

    Explained in :doc:`/book/regression/gibbs-samplers`.
    """
    for each in releases:
        if not isinstance(each, Release):
            raise TypeError(f"release must hold Release objects, got {type(each).__name__}")
        each.require(model=MODEL, mechanisms=("laplace", "gaussian"))
    kinds = {
        (each.settings["d"], each.settings["intercept"], each.mechanism, "moments" in each.values) for each in releases
    }
    if len(kinds) > 1:
        raise ValueError(
            "release must be a sequence of one number of covariates, one mechanism, all with an intercept "
            "or none, all with moments or none"
        )
    first = releases[0]
    _required(prior)
    if covariates is not None and not isinstance(covariates, NormalInverseWishart):
        raise TypeError(f"covariates must be a regression.NormalInverseWishart or None, got {covariates!r}")
    if method == "gibbs-noisy" and "moments" not in first.values:
        raise ValueError("release must hold moments for method 'gibbs-noisy': make it with release(..., moments=True)")
    mapped: dict[Any, tuple[NormalInverseGamma, NormalInverseWishart]] = {}
    for each in releases:
        key = tuple(each.bounds.items())
        if key not in mapped:
            inside = coordinates_of(each)
            beliefs = inside.covariates_in(covariates)
            if covariates is None and method == "gibbs-prior":
                beliefs = NormalInverseWishart(beliefs.mean, 1.0, 5 * np.asarray(beliefs.scale), inside.d + 6.0)
            mapped[key] = inside.prior_in(prior), beliefs
    priors, beliefs_of = zip(*(mapped[tuple(each.bounds.items())] for each in releases), strict=True)
    return Problem(
        layout=Layout(int(first.settings["d"]), bool(first.settings["intercept"])),
        noisy=np.stack([each["sums"] for each in releases]),
        scale=np.array([each.scale["sums"] for each in releases]),
        mechanism=first.mechanism,
        n=np.array([float(each.n) for each in releases]),
        prior=ParameterPrior(*(np.stack([np.asarray(getattr(p, f)) for p in priors]) for f in ParameterPrior._fields)),
        covariates=CovariatePrior(
            *(np.stack([np.asarray(getattr(b, f)) for b in beliefs_of]) for f in CovariatePrior._fields)
        ),
        moments=np.stack([each["moments"] for each in releases]) if "moments" in first.values else None,
    )


def check_before_release(
    inside: Coordinates,
    prior: NormalInverseGamma,
    covariates: NormalInverseWishart | None,
    *,
    method: str,
    draws: int,
    chains: int | None,
    mechanism: str,
    options: Mapping[str, Any],
) -> None:
    """Raise whatever :func:`infer` would raise about its arguments, from public numbers, before anything is spent.

    Parameters
    ----------
    inside : Coordinates
        Of the release to come.
    prior, covariates, method, draws, chains, options
        As :func:`infer` will get them.
    mechanism : str
        Of the release to come.

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook import regression
    >>> from dpbook.regression.coordinates import Coordinates
    >>> inside = Coordinates(np.zeros(2), np.ones(2), intercept=True)
    >>> prior = regression.NormalInverseGamma([0, 0, 0], 1, 2, 2)
    >>> check_before_release(inside, prior, None, method="naive", draws=4, chains=2, mechanism="laplace", options={})
    Traceback (most recent call last):
    ...
    ValueError: prior must be for 2 coefficients (the intercept counts), got one for 3

    Explained in :doc:`/book/regression/private-least-squares`.
    """
    method_options(method, options, OPTIONS)
    integer("draws", draws, least=1)
    if chains is not None:
        integer("chains", chains, least=1)
    layout = Layout(inside.d, inside.intercept)
    names = {"sums": layout.size} | ({"moments": len(layout.higher)} if method == "gibbs-noisy" else {})
    nothing = Release(
        values={name: np.zeros(size) for name, size in names.items()},
        model=MODEL,
        mechanism=mechanism,
        scale=dict.fromkeys(names, 1.0),
        sensitivity=dict.fromkeys(names, 1.0),
        epsilon=1.0,
        delta=0.0 if mechanism == "laplace" else 0.5,
        n=1,
        bounds=named_bounds(inside),
        settings={"d": inside.d, "intercept": inside.intercept},
        float_safe=False,
    )
    problem = problem_of([nothing], prior, covariates, method=method)
    if method == "gibbs-prior":
        gibbs.prior_moments(problem.covariates, layout)  # which may not exist
    if method == "individual":
        importlib.import_module("dpbook.regression.individual").require_pymc()


def infer_nonprivate(
    X: Any,
    y: Any,
    prior: NormalInverseGamma,
    *,
    intercept: bool = True,
    draws: int = 4000,
    chains: int = 4,
    rng: np.random.Generator | None = None,
) -> RegressionPosterior:
    """Return the posterior from the data themselves: **not private**, for comparison only.

    Parameters
    ----------
    X : array, table, iterator of chunks, or Dask collection
    y : array, Series, iterator of chunks, Dask collection, str or int
        As in :func:`release`; nothing is clipped.
    prior : NormalInverseGamma
        Of the coefficients and the error variance.
    intercept : bool, default True
        Whether the regression has an intercept.
    draws, chains, rng
        As in :func:`infer`; the draws are independent.

    Returns
    -------
    RegressionPosterior
        With draws of ``theta`` and ``sigma2``.

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook import regression
    >>> x = np.arange(100.0)
    >>> prior = regression.NormalInverseGamma(0, 1e-6, 2, 1)
    >>> posterior = regression.infer_nonprivate(x, 1 + 2 * x, prior, rng=np.random.default_rng(0))
    >>> posterior.mean("theta").round(1)
    array([1., 2.])

    Explained in :doc:`/book/regression/private-least-squares`.
    """
    _required(prior)
    intercept = flag("intercept", intercept)
    draws, chains = integer("draws", draws, least=1), integer("chains", chains, least=1)
    inside: Coordinates | None = None
    n, total = 0, np.zeros(())
    source = join(X, y)
    for rows in source.chunks():
        if inside is None:
            inside = _own_coordinates(rows, intercept)
        u = (rows - inside.centre) / inside.unit
        if intercept:
            u = np.concatenate([np.ones((len(u), 1)), u], axis=1)
        n, total = n + len(u), total + u.T @ u
    if inside is None:
        raise ValueError("X must hold at least one record, got none")
    mapped = inside.prior_in(prior)
    batch = ParameterPrior(*(np.asarray(getattr(mapped, f))[None] for f in ParameterPrior._fields))
    shape = (chains, -(-draws // chains))
    matrix = np.broadcast_to(total, (*shape, *total.shape))
    theta, sigma2 = gibbs.draw_parameters(batch, matrix, np.asarray(float(n)), analyst_generator(rng))
    draws_out = {"theta": inside.theta_out(theta), "sigma2": inside.sigma2_out(sigma2)}
    columns = _named(source.labels).get("columns")
    return RegressionPosterior(draws_out, "non-private", intercept=intercept, columns=columns)


def _own_coordinates(rows: Array, intercept: bool) -> Coordinates:
    """Return coordinates in which these records are of order one: for arithmetic only, any would give the answer."""
    centre = rows.mean(axis=0) if intercept else np.zeros(rows.shape[1])
    spread = np.abs(rows - centre).max(axis=0)
    half = np.where(spread > 0, spread, np.where(np.abs(centre) > 0, np.abs(centre), 1.0))
    return Coordinates(centre - half, centre + half, intercept)


def _naive(problem: Problem, *, draws: int, chains: int, rng: np.random.Generator, progress: bool = False) -> Draws:
    """Draw from the conjugate posterior at the noisy sums, moved to the nearest that data could have."""
    layout = problem.layout
    valid = layout.matrix(nearest_valid(problem.noisy, problem.n, layout), problem.n)
    matrix = np.broadcast_to(valid, (chains * draws, *valid.shape))
    theta, sigma2 = gibbs.draw_parameters(problem.prior, matrix, problem.n, rng)
    shape = (chains, draws, problem.releases)
    return Draws(np.moveaxis(theta.reshape(*shape, layout.regressors), 2, 0), np.moveaxis(sigma2.reshape(shape), 2, 0))
