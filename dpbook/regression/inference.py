"""The analyst's side: posteriors of a regression from a release alone, naive and noise-aware.

No function here takes data. A sequence of releases is one batched run. Chapter 4 explains the methods.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, overload

import numpy as np

from dpbook._arrays import Array
from dpbook._validation import (
    Option,
    analyst_generator,
    choice_option,
    flag,
    flag_option,
    integer,
    method_options,
    whole_option,
)
from dpbook.blocks import by_blocks
from dpbook.doubts import speak
from dpbook.priors import NormalInverseGamma, NormalInverseWishart
from dpbook.regression import clipped_records, collapsed, design, exact, fixed_design, gibbs, individual, latent, naive
from dpbook.regression.cell_inference import check_by_cell, infer_by_cell
from dpbook.regression.choice import Choice, choose
from dpbook.regression.clipping import counted_in
from dpbook.regression.coordinates import MODEL, Coordinates, coordinates_of
from dpbook.regression.hamiltonian import batch_size
from dpbook.regression.layout import Layout
from dpbook.regression.posterior import RegressionPosterior
from dpbook.regression.suspicions import doubts_of
from dpbook.regression.task import Draws, Task, task_of
from dpbook.release import Release

__all__ = ["infer"]

_HAMILTONIAN = {"warm_up": whole_option(0)}
_GIBBS = {
    "burn_in": whole_option(0),
    "thin": whole_option(1),
    "covariance": choice_option("corrected", "printed"),
    "invalid": choice_option("reject", "project", "clip"),
    "start": choice_option("release", "prior"),
}
# Every method: its sampler, and the options that it takes beside those of `infer`.
_SAMPLERS: dict[str, Callable[..., Draws]] = {
    "collapsed": collapsed.sample,
    "naive": naive.sample,
    **{kind: partial(gibbs.sample, kind=kind) for kind in gibbs.KINDS},
    "exact": exact.sample,
    "individual": individual.sample,
    "fixed-design": fixed_design.sample,
    "moments": clipped_records.sample,
    "records": latent.sample,
}
OPTIONS: dict[str, dict[str, Option]] = {
    "collapsed": _HAMILTONIAN,
    "naive": {},
    "gibbs-noisy": _GIBBS | {"account_for_moments": flag_option()},
    "gibbs-prior": _GIBBS,
    "gibbs-update": _GIBBS,
    "exact": _HAMILTONIAN,
    "individual": _HAMILTONIAN,
    "fixed-design": _HAMILTONIAN,
    "moments": _HAMILTONIAN,
    "records": {"burn_in": whole_option(0), "thin": whole_option(1)},
}
# A single posterior gets many short chains; in a long batch four are enough.
_MANY, _FEW, _LONG = 20, 4, 10
_GRAIN = 250  # releases in a block: twice as many would be drawn a tenth faster each
_LOOK = 20201  # seed of the short look at a release that chooses its method


@overload
def infer(
    release: Release,
    prior: NormalInverseGamma | None = None,
    *,
    method: str | None = None,
    covariates: NormalInverseWishart | None = None,
    draws: int = 4000,
    chains: int | None = None,
    rng: np.random.Generator | None = None,
    progress: bool = False,
    n_jobs: Any = None,
    keep: str = "draws",
    **options: Any,
) -> RegressionPosterior: ...
@overload
def infer(
    release: Sequence[Release],
    prior: NormalInverseGamma | None = None,
    *,
    method: str | None = None,
    covariates: NormalInverseWishart | None = None,
    draws: int = 4000,
    chains: int | None = None,
    rng: np.random.Generator | None = None,
    progress: bool = False,
    n_jobs: Any = None,
    keep: str = "draws",
    **options: Any,
) -> list[RegressionPosterior]: ...
def infer(
    release: Release | Sequence[Release],
    prior: NormalInverseGamma | None = None,
    *,
    method: str | None = None,
    covariates: NormalInverseWishart | None = None,
    draws: int = 4000,
    chains: int | None = None,
    rng: np.random.Generator | None = None,
    progress: bool = False,
    n_jobs: Any = None,
    keep: str = "draws",
    **options: Any,
) -> RegressionPosterior | list[RegressionPosterior]:
    """Return the posterior of a regression given a release, or a list of posteriors for a sequence of releases.

    Post-processing: it reads nothing but the release, so it costs no privacy, and no release, however wild its noise,
    makes it raise. A sequence of releases is one batch; their bounds and n may differ, not their shape or mechanism.

    Parameters
    ----------
    release : Release or sequence of Release
        From :func:`release`. One on a schema is read by "fixed-design", without a prior.
    prior : NormalInverseGamma, optional
        Of the coefficients (the intercept first) and the error variance, in the data's units. By default beliefs that
        keep their meaning when units change or bounds are doubled: log-normal standard deviations, slopes with the
        heavy tails of a Cauchy, in units of the error's over the covariates' standard deviation.
    method : str, optional
        Under a prior of your own "collapsed" by default. Without one it is chosen, and the posterior's ``notes`` say
        why: "records" where n is below 20, else "fixed-design"; where clipping may have moved the sums, half of the
        draws are from "fixed-design" and half from "moments", since sums do not tell clipped records from skewed ones.
        A release with a check tells, by its counts: then it is "moments" where as many were clipped as normal records
        would have been.
        "fixed-design" assumes nothing of the covariates; "moments" knows that records were clipped, and takes
        covariates as normal; "records" draws everyone's record, clipped, and is exact at any n. "collapsed" integrates
        the latent sums out and samples the parameters (by the exact law of the sums where bounds are so wide that
        their normal law would mislead);
        "naive" takes the noisy sums for the truth; "gibbs-noisy" (needs ``moments=True``), "gibbs-prior" and
        "gibbs-update" are Gibbs samplers that take the covariates' moments from the release, from their prior, or draw
        them along; "exact" is right at any n where covariates are normal and nothing is clipped; "individual" has a
        latent record for everyone (extra ``pymc``, small n).
    covariates : NormalInverseWishart, optional
        Prior of the covariates' mean and covariance, in the data's units, beside a prior of your own. By default a weak
        one from the bounds: mean in the middle, worth one record, standard deviation about half of half the width.
    draws : int, default 4000
        How many draws in all.
    chains : int, optional
        How many chains they are arranged in: by default 20, or 4 in a batch of more than ten releases and where draws
        are independent.
    rng : numpy.random.Generator, optional
        The source of randomness.
    progress : bool, default False
        Whether to show a progress bar.
    n_jobs, keep : int or executor, and {"draws", "summary"}, optional
        Divide a sequence into blocks that run in so many processes (-1: one on every core) or on a Dask client, draws
        being the same on any number; and keep summaries alone (:class:`~dpbook.kept_summary.PosteriorSummary`).
    **options
        Further settings of the method: ``warm_up`` of "collapsed", "fixed-design", "moments", "exact" and "individual";
        ``burn_in`` and ``thin`` of "records" and the Gibbs samplers, and for experiments what the source of the latter
        printed (``covariance="printed"``), does with impossible sums (``invalid="project"`` or ``"clip"``) and starts
        from (``start="prior"``); ``account_for_moments`` of "gibbs-noisy". One that the method does not take raises.

    Returns
    -------
    RegressionPosterior or list of RegressionPosterior
        With draws of ``theta`` and ``sigma2`` in the data's units, labelled by the names of the columns.

    Examples
    --------
    >>> import numpy as np
    >>> import pandas as pd
    >>> from dpbook import regression
    >>> rng = np.random.default_rng(1)
    >>> years = rng.uniform(0, 20, size=5000)
    >>> wage = 5 + years + rng.normal(size=5000)
    >>> table = pd.DataFrame({"years": years, "wage": wage})
    >>> box = {"x_bounds": (0, 20), "y_bounds": (0, 30)}
    >>> noisy = regression.release(table, "wage", **box, epsilon=5.0, check=0.1, rng=rng)
    >>> posterior = regression.infer(noisy, draws=400, chains=4, rng=rng)
    >>> posterior.summary()["median"].round(1).to_dict()  # tails may be heavy, so there is no mean
    {'(intercept)': 5.0, 'years': 1.0, 'sigma2': 1.0}
    >>> prior = regression.NormalInverseGamma(mean=[15, 0], precision=0.1, shape=2, rate=2)
    >>> regression.infer(noisy, prior, method="naive", rng=rng).summary()["mean"].round(1).to_dict()
    {'(intercept)': 5.0, 'years': 1.0, 'sigma2': 1.0}

    Explained in :doc:`/book/regression/a-sampler-that-mixes`.
    """
    draws = integer("draws", draws, least=1)
    chains = None if chains is None else integer("chains", chains, least=1)
    options = _own_options(method, prior, options)
    flag("progress", progress)
    rng = analyst_generator(rng)
    if not isinstance(release, (Release, Sequence)):
        raise TypeError(f"release must be a Release or a sequence of them, got {type(release).__name__}")
    batch = [release] if isinstance(release, Release) else list(release)
    if not batch:
        return []
    if n_jobs is not None or keep != "draws":
        chains = _FEW if chains is None and len(batch) > _LONG else chains
        work = partial(infer, prior=prior, method=method, covariates=covariates, draws=draws, chains=chains, **options)
        grain = min(_GRAIN, batch_size(len(getattr(batch[0], "values", {}).get("sums", ())), chains or _MANY))
        found = by_blocks(work, batch, rng=rng, n_jobs=n_jobs, keep=keep, progress=progress, grain=grain)
        return found[0] if isinstance(release, Release) else found
    if any(getattr(each, "model", None) == design.MODEL for each in batch):
        designs = check_by_cell(batch, prior, covariates, method)
        own = method_options("fixed-design", options, OPTIONS)
        found, why = infer_by_cell(batch, designs, draws=draws, chains=chains, rng=rng, progress=progress, options=own)
        found = speak(found, why, chains=True)
        return found[0] if isinstance(release, Release) else found
    if method is None and prior is not None and any(len(getattr(each, "observations", ())) > 1 for each in batch):
        method = "moments"  # which reads releases that were put together; collapsed does not
    task = task_of(batch, prior, covariates, method=_any_of(prior) if method is None else method)
    if method is None and prior is None:
        choices = choose(task, np.random.default_rng(_LOOK))  # a generator of its own: draws do not depend on the look
    else:
        choices = [Choice((method or "collapsed",), "")] * len(batch)
    settings: dict[str, Any] = {"draws": draws, "chains": chains, "rng": rng, "progress": progress}
    posteriors = _posteriors(task, batch, choices, settings, options)
    names = [coordinates_of(each).names for each in batch]
    doubts = doubts_of(task, [choice.methods for choice in choices], posteriors, names, np.random.default_rng(_LOOK))
    posteriors = speak(posteriors, doubts, chains=method != "naive")
    return posteriors[0] if isinstance(release, Release) else posteriors


def _own_options(method: str | None, prior: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options given to a method, checked; what infer chooses by itself takes those of most methods."""
    if method is not None:
        return method_options(method, given, OPTIONS)
    default = "chosen by infer" if prior is None else "collapsed"
    return method_options(default, given, OPTIONS | {"chosen by infer": _HAMILTONIAN}, name="the method")


def _any_of(prior: NormalInverseGamma | None) -> str:
    """Return a method that may be chosen under a prior, for the checks that all of them share."""
    return "fixed-design" if prior is None else "collapsed"


def _posteriors(
    task: Task,
    batch: Sequence[Release],
    choices: Sequence[Choice],
    settings: dict[str, Any],
    options: Mapping[str, Any],
) -> list[RegressionPosterior]:
    """Return the posteriors of a batch, the releases of one method in one run."""
    found: dict[int, RegressionPosterior] = {}
    counted = counted_in(task, [coordinates_of(each).names for each in batch])
    for methods in dict.fromkeys(choice.methods for choice in choices):
        among = [i for i, choice in enumerate(choices) if choice.methods == methods]
        part = task if len(among) == len(batch) else task.part(np.isin(np.arange(len(batch)), among))
        name = " or ".join(methods)
        for i, theta, sigma2 in zip(among, *_shared(part, methods, settings, options), strict=True):
            inside = coordinates_of(batch[i])
            found[i] = RegressionPosterior(
                {"theta": inside.theta_out(theta), "sigma2": inside.sigma2_out(sigma2)},
                name,
                intercept=inside.intercept,
                labels={"theta": inside.labels},
                heavy_tailed=task.prior is None,
                notes=[*([f"{name}: {choices[i].why}"] if choices[i].why else []), counted[i]],
            )
    return [found[i] for i in range(len(batch))]


def _shared(task: Task, methods: Sequence[str], settings: dict[str, Any], options: Mapping[str, Any]) -> Draws:
    """Draw by several methods in turns: every chain alternates between them, an equal share each."""
    each = settings | {"draws": -(-settings["draws"] // len(methods))}
    runs = [
        sample(task, method=method, **each, **{name: options[name] for name in options if name in OPTIONS[method]})
        for method in methods
    ]
    return Draws(*(_in_turns(parts) for parts in zip(*runs, strict=True)))


def _in_turns(parts: Sequence[Array]) -> Array:
    """Return draws (release, chain, draw, ...) of several runs as one, first come the first of each."""
    first = parts[0]
    return np.stack(parts, axis=3).reshape(*first.shape[:2], -1, *first.shape[3:])


def sample(
    task: Task,
    *,
    method: str,
    draws: int,
    chains: int | None = None,
    rng: np.random.Generator,
    progress: bool = False,
    **options: Any,
) -> Draws:
    """Draw from the posteriors of a task by one of the methods; ``draws`` and ``chains`` as in :func:`infer`."""
    if chains is None:
        chains = _FEW if method in ("naive", "individual") or task.releases > _LONG else _MANY
    per_chain = -(-draws // chains)
    return _SAMPLERS[method](task, per_chain=per_chain, chains=chains, rng=rng, progress=progress, **options)


def check_before_release(
    inside: Coordinates,
    prior: NormalInverseGamma | None,
    covariates: NormalInverseWishart | None,
    *,
    method: str | None,
    draws: int,
    chains: int | None,
    mechanism: str,
    options: Mapping[str, Any],
) -> None:
    """Raise whatever :func:`infer` would raise about its arguments, from public numbers, before anything is spent."""
    method = _any_of(prior) if method is None else method
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
        bounds=inside.bounds,
        settings=inside.settings,
        float_safe=False,
    )
    task = task_of([nothing], prior, covariates, method=method)
    if method == "gibbs-prior":
        gibbs.prior_moments(task.covariates, layout)  # which may not exist
    if method == "individual":
        individual.require_pymc()
