"""The analyst's side of hidden states: emissions, transitions and states from a release, which costs no privacy."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, overload

import numpy as np

from dpbook._arrays import Array
from dpbook._validation import Option, flag, integer, method_options, one_of, optional, positive
from dpbook.blocks import by_blocks
from dpbook.graphical.hmm.model import COUNTS_MODEL, GIBBS_MODEL, Chain, checked_prior, sort_states
from dpbook.graphical.hmm.sampler import OPTIONS, Exact, Noisy, Settings, check_type, sample
from dpbook.posterior import Posterior
from dpbook.release import Release

__all__ = ["METHODS", "infer"]

METHODS = ("noise-aware", "naive")
_LEAST_RATIO = math.exp(-15)  # below, geometric noise is zero but for a chance of 6 in 10 million a cell


def _checked_activity(name: str, activity: Any) -> tuple[float, float]:
    try:
        shape, mean = activity
    except (TypeError, ValueError):
        raise TypeError(f"{name} must be a pair (shape, mean), got {activity!r}") from None
    return positive(f"{name}[0]", shape), positive(f"{name}[1]", mean)


_CHAIN = "none, a private chain"
_TAKES: dict[str, dict[str, Option]] = {
    "noise-aware": OPTIONS | {"activity": optional(Option("a pair (shape, mean)", _checked_activity))},
    "naive": OPTIONS,
    _CHAIN: {},
}


@overload
def infer(
    release: Release,
    *,
    method: str | None = None,
    order_by: int = 0,
    paths: bool = True,
    n_jobs: Any = None,
    keep: str = "draws",
    **options: Any,
) -> Posterior: ...
@overload
def infer(
    release: Sequence[Release],
    *,
    method: str | None = None,
    order_by: int = 0,
    paths: bool = True,
    n_jobs: Any = None,
    keep: str = "draws",
    **options: Any,
) -> list[Posterior]: ...
def infer(
    release: Release | Sequence[Release],
    *,
    method: str | None = None,
    order_by: int = 0,
    paths: bool = True,
    n_jobs: Any = None,
    keep: str = "draws",
    **options: Any,
) -> Posterior | list[Posterior]:
    """Infer emissions, transitions and hidden states from a release: post-processing, which costs no privacy.

    From noisy counts (:func:`release_counts`), ``"noise-aware"`` treats the true counts as unknown. Each month of each
    place has an activity with a Gamma prior; given the activity and the state, true counts are Poisson, so that given
    the month's total they are multinomial. The sum over a true count is closed, so hidden states are drawn with the
    counts integrated out, then the counts given the states, exactly (no normal approximation); the one thing left
    unused is that the true counts add up to the public n. ``"naive"`` sets negative counts to 0 and takes the table
    for the truth.

    From a private chain (:func:`release_gibbs`) nothing is sampled any more: the second half of the published sweeps
    becomes the posterior's draws. They are draws at a temperature, not from the posterior.

    States have no names of their own: in every draw they are put in the order of their emission probability of the
    type ``order_by``, smallest first. Explained in :doc:`/book/graphical-models/hidden-states`.

    Parameters
    ----------
    release : Release or sequence of Release
        Of noisy tables of one shape, run as one batch, or of private chains.
    method : {"noise-aware", "naive"}, optional
        How a noisy table is read; by default ``"noise-aware"``. A private chain is read in one way and takes none.
    order_by : int, default 0
        The type whose emission probability orders the states.
    paths : bool, default True
        Whether to keep the draws of the hidden states, as ``states``.
    n_jobs, keep : int or executor, and {"draws", "summary"}, optional
        Divide a sequence of noisy tables into blocks that run in so many processes (-1: one on every core) or on a Dask
        client, draws being the same on any number; and keep summaries alone
        (:class:`~dpbook.kept_summary.PosteriorSummary`).
    **options
        Of a noisy table alone; one that does not apply is refused.

        - ``states`` (int, default 2): the number of hidden states; a private chain has its own.
        - ``prior`` (:class:`Prior`): by default uniform.
        - ``activity`` ((shape, mean), ``"noise-aware"`` only): the Gamma prior of a month's expected number of events
          in a place. By default shape 0.5, and as mean the public n over the number of months and places.
        - ``draws`` (int, default 1000): draws in all, over all chains.
        - ``chains`` (int, default 4): independent chains; each warms up with a likelihood that grows to full weight.
        - ``burn_in`` (int): sweeps before the first that counts, a chain; by default as many as after it.
        - ``rng`` (:class:`numpy.random.Generator`): the source of randomness; by default a fresh one.
        - ``progress`` (bool, default False): whether to show a progress bar.

    Returns
    -------
    Posterior or list of Posterior
        With draws of ``emission`` (state, type), ``transition`` (state, state), ``initial`` (state,) and ``states``
        (place, month).

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook.graphical import hmm
    >>> table = np.array([[[45, 5]] * 5 + [[10, 40]] * 5])
    >>> noisy = hmm.release_counts(table, epsilon=1.0, rng=np.random.default_rng(1))
    >>> posterior = hmm.infer(noisy, draws=1000, rng=np.random.default_rng(2))
    >>> posterior.mean("emission").round(1)
    array([[0.2, 0.8],
           [0.9, 0.1]])
    >>> posterior.mean("states").round()
    array([[1., 1., 1., 1., 1., 0., 0., 0., 0., 0.]])
    """
    releases = [release] if isinstance(release, Release) else list(release) if isinstance(release, Iterable) else []
    if not releases or not all(isinstance(each, Release) for each in releases):
        raise TypeError("release must be a Release or a non-empty sequence of them")
    order_by, paths = integer("order_by", order_by, least=0), flag("paths", paths)
    if releases[0].model == GIBBS_MODEL:
        if method is not None:
            raise ValueError(f"method must not be given: a private chain is read in one way; got {method!r}")
        method_options(_CHAIN, options, _TAKES)
        found = [_of_private_chain(each, order_by, paths) for each in releases]
        return found[0] if isinstance(release, Release) else found
    method = "noise-aware" if method is None else one_of("method", method, METHODS)
    chosen = method_options(method, options, _TAKES)
    if n_jobs is not None or keep != "draws":
        rng, progress = options.pop("rng", None), options.pop("progress", False)
        work = partial(infer, method=method, order_by=order_by, paths=paths, **options)
        found = by_blocks(work, releases, rng=rng, n_jobs=n_jobs, keep=keep, progress=progress)
        return found[0] if isinstance(release, Release) else found
    activity, settings = chosen.pop("activity", None), Settings(**chosen)
    prior, tables = checked_prior(settings.prior), _noisy_tables(releases)
    if method == "naive":
        observed = Exact(np.maximum(tables, 0.0), prior)
    else:
        ratio = np.array([max(math.exp(-1 / each.scale["counts"]), _LEAST_RATIO) for each in releases])
        gamma = np.array([_activity(each) if activity is None else activity for each in releases])
        observed = Noisy(tables, prior, ratio, gamma[:, 0], gamma[:, 1])
    found = sample(observed, settings, order_by=order_by, paths=paths, method=method)
    return found[0] if isinstance(release, Release) else found


def _noisy_tables(releases: Sequence[Release]) -> Array:
    for each in releases:
        each.require(model=COUNTS_MODEL)
    shapes = {each["counts"].shape for each in releases}
    if len(shapes) != 1:
        raise ValueError(f"release must hold tables of one shape, got {sorted(shapes)}")
    return np.stack([each["counts"] for each in releases]).astype(float)


def _activity(release: Release) -> tuple[float, float]:
    """Return the default Gamma prior of a month's events, (shape, mean)."""
    return 0.5, release.n / math.prod(release["counts"].shape[:2])


def _of_private_chain(release: Release, order_by: int, paths: bool) -> Posterior:
    release.require(model=GIBBS_MODEL)
    sweeps, types = len(release["emission"]), release["emission"].shape[-1]
    check_type(order_by, types)
    kept = {name: release[name][None, sweeps // 2 :].astype(float) for name in Chain._fields}
    if not paths:
        del kept["states"]
    return Posterior(sort_states(kept, order_by), "exponential")
