"""The analyst's side: posteriors from a release alone, exact where that is possible, naive for comparison.

No function here takes data. Chapter 1 begins with the binomial, chapter 3 explains the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, overload

import numpy as np

from dpbook import latent_records, moments
from dpbook._arrays import Array
from dpbook._validation import Option, analyst_generator, flag_option, integer, method_options, one_of
from dpbook.blocks import by_blocks
from dpbook.doubts import Doubt, speak
from dpbook.expfam.families import family_of, require_family
from dpbook.expfam.family import Family
from dpbook.expfam.fit import FamilyPosterior, FitCheck, checked, conflict, from_prior
from dpbook.expfam.gap_inference import infer_present
from dpbook.expfam.gap_model import MODEL as PRESENT
from dpbook.expfam.gibbs import gibbs_start, gibbs_step
from dpbook.expfam.negative_binomial import CountLaw
from dpbook.expfam.one_parameter import BetaMixture, GridDensity, density_of, times_likelihood
from dpbook.expfam.quantile_inference import infer_quantiles
from dpbook.expfam.quantile_tree import MODEL as QUANTILES
from dpbook.expfam.record_models import FamilyRecords, Theta
from dpbook.expfam.remarks import remarks
from dpbook.expfam.shape_inference import MODELS, infer_shapes
from dpbook.latent_noise import normal_laplace_logpdf, normal_laplaces_logpdf
from dpbook.posterior import Posterior
from dpbook.release import Release, observations_of
from dpbook.sampling import run

__all__ = ["infer", "methods_of", "posterior_density"]

# Gibbs: 500 sweeps to forget the start, then every fifth is kept: with leaps, autocorrelation times are 5 to 30 sweeps.
_BURN_IN, _THIN = 500, 5
# Latent records: with moves of all of them together, nine in ten of every fifth draw are worth an independent one.
_RECORDS_BURN_IN, _RECORDS_THIN = 300, 2

# What a method takes beyond what all take; an option that it would ignore is refused.
_OPTIONS: dict[str, dict[str, Option]] = {
    "exact": {},
    "collapsed": {},
    "gibbs": {"progress": flag_option()},
    "moments": {"progress": flag_option()},
    "records": {"progress": flag_option()},
    "naive": {},
}


def methods_of(family: Family) -> tuple[str, ...]:
    """Return the methods of :func:`infer` that a family has, the default for large samples first.

    Explained in :doc:`/book/exponential-families/noise-aware-inference`.

    Parameters
    ----------
    family : Family

    Returns
    -------
    tuple of str
        Names to pass as ``method``.

    Examples
    --------
    >>> from dpbook.expfam import Exponential, methods_of
    >>> methods_of(Exponential(0, 10))
    ('collapsed', 'records', 'gibbs', 'naive')
    """
    require_family(family)
    return family.methods()


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
    Explained in :doc:`/book/exponential-families/noise-aware-inference`.

    Parameters
    ----------
    release, prior, family
        As in :func:`infer`, one release.
    method : {"exact", "collapsed", "naive"}, optional
        Default: the family's own.

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
    """
    model, prior, chosen = _check([release], prior, method, family)
    if method is None and chosen in _CHAINS:
        chosen = model.methods(release.mechanism)[0]
    if model.parameters != 1 or chosen in _CHAINS:
        raise ValueError(f"method must be one with a density, for a one-parameter family; got {chosen!r}, {model!r}")
    return _density(release, prior, model, chosen)


def _density(release: Release, prior: Any, family: Family, method: str) -> BetaMixture | GridDensity:
    if method == "exact":
        return family.exact_density(release, prior)
    if method == "collapsed":
        return times_likelihood(prior, _CollapsedLikelihood(release, family))
    after = family.updated(prior, float(_naive_sums(release, family)[0]), release.n)
    if after is None:
        raise ValueError("method must not be 'naive' for the density of a family of one's own; infer draws from it")
    return density_of(after)


@overload
def infer(
    release: Release,
    prior: Any = None,
    *,
    method: str | None = None,
    draws: int = 4000,
    chains: int | None = None,
    rng: np.random.Generator | None = None,
    family: Family | None = None,
    progress: bool = False,
    n_jobs: Any = None,
    keep: str = "draws",
) -> Posterior: ...
@overload
def infer(
    release: Sequence[Release],
    prior: Any = None,
    *,
    method: str | None = None,
    draws: int = 4000,
    chains: int | None = None,
    rng: np.random.Generator | None = None,
    family: Family | None = None,
    progress: bool = False,
    n_jobs: Any = None,
    keep: str = "draws",
) -> list[Posterior]: ...
def infer(
    release: Release | Sequence[Release],
    prior: Any = None,
    *,
    method: str | None = None,
    draws: int = 4000,
    chains: int | None = None,
    rng: np.random.Generator | None = None,
    family: Family | None = None,
    progress: bool = False,
    n_jobs: Any = None,
    keep: str = "draws",
) -> Posterior | list[Posterior]:
    """Return the posterior of ``theta`` given a release, or a list of posteriors for a sequence of releases.

    Post-processing: it reads nothing but the release, so it costs no privacy. A sequence of releases is one batch.
    Explained in :doc:`/book/exponential-families/noise-aware-inference`.

    Parameters
    ----------
    release : Release or sequence of Release
        From a release function of this package; a sequence is of one family.
    prior : Beta, Dirichlet, Gamma, NormalInverseGamma, MeanAndDispersion, or a custom family's prior
        The conjugate prior of theta; the binomial and the negative binomial have a weak one of their own. For a mean or
        a histogram, which need none, the Dirichlet prior of the cells.
    method : {"exact", "collapsed", "moments", "records", "gibbs", "naive"}, optional
        Default: exact where that is quick (binomial, multinomial, few Poisson counts; by latent records for few normal
        or exponential ones); otherwise collapsed for one parameter, moments for the negative binomial, else Gibbs.
    draws : int, default 4000
        How many draws in all.
    chains : int, optional
        How many chains they are arranged in: by default 4 where draws are independent, 8 for moments, else 20.
    rng : numpy.random.Generator, optional
    family : Family, optional
        Needed for a custom family, which cannot travel in a release.
    progress : bool, default False
        Whether chains show a progress bar; other methods have none, and refuse True.
    n_jobs, keep : int or executor, and {"draws", "summary"}, optional
        Divide a sequence into blocks that run in so many processes (-1: one on every core) or on a Dask client, draws
        being the same on any number; and keep summaries alone (:class:`~dpbook.kept_summary.PosteriorSummary`).

    Returns
    -------
    Posterior or list of Posterior
        With draws of ``theta``; a :class:`MeanPosterior` or :class:`HistogramPosterior` where no family is named.

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook import expfam
    >>> rng = np.random.default_rng(1)
    >>> noisy = expfam.release([1] * 300 + [0] * 700, expfam.Binomial(), epsilon=0.5, rng=rng)
    >>> posterior = expfam.infer(noisy, expfam.Beta(1, 1), rng=rng)
    >>> bool(abs(posterior.mean("theta") - 0.3) < 0.02)
    True
    """
    draws = integer("draws", draws, least=1)
    chains = None if chains is None else integer("chains", chains, least=1)
    rng = analyst_generator(rng)
    given = {} if progress is False else {"progress": progress}
    method_options("gibbs" if method is None else method, given, _OPTIONS)
    if isinstance(prior, Release):
        raise TypeError(
            f"release must come first, and the prior after it; got infer({type(release).__name__}, Release)"
        )
    if not isinstance(release, (Release, Sequence)):
        raise TypeError(f"release must be a Release or a sequence of them, got {type(release).__name__}")
    batch = [release] if isinstance(release, Release) else list(release)
    if not batch:
        return []
    if n_jobs is not None or keep != "draws":
        shapes = getattr(batch[0], "model", None) in (*MODELS, QUANTILES, PRESENT)
        method = method if shapes else _check(batch, prior, method, family)[2]  # one for all blocks
        work = partial(infer, prior=prior, method=method, draws=draws, chains=chains, family=family)
        grain = 1000 // (chains or _HOW_MANY[method]) if method in _CHAINS else 25  # chains gain from each other
        found = by_blocks(work, batch, rng=rng, n_jobs=n_jobs, keep=keep, progress=progress, grain=max(1, grain))
        return found[0] if isinstance(release, Release) else found
    if isinstance(batch[0], Release) and batch[0].model in (*MODELS, QUANTILES, PRESENT):
        method_options("exact", given, _OPTIONS)
        found = _shapes(batch, prior, method, draws, chains or 4, rng)
        return found[0] if isinstance(release, Release) else found
    model, prior, chosen = _check(batch, prior, method, family)
    method_options(chosen, given, _OPTIONS)
    if chosen in _CHAINS:
        drawn = _CHAINS[chosen](batch, prior, model, draws, chains or _HOW_MANY[chosen], rng, progress)
    else:
        count = chains or 4
        shape = (count, -(-draws // count))
        drawn = [_independent(one, prior, model, chosen, shape, rng) for one in batch]
    found = _judged(batch, prior, model, chosen, drawn)
    return found[0] if isinstance(release, Release) else found


def _judged(
    releases: Sequence[Release], prior: Any, family: Family, method: str, drawn: Sequence[Array]
) -> list[Posterior]:
    """Return draws of theta as posteriors that say how good they are, and warn where they are not."""
    labels = {"theta": family.labels} if family.labels else {}
    found: list[Posterior] = []
    doubts: list[list[Doubt]] = []
    made_up: dict[Any, Array] = {}
    for release, theta in zip(releases, drawn, strict=True):
        pooled = theta.reshape(-1, *theta.shape[2:])
        fit: FitCheck | None = None
        notes: list[str] = []
        own: list[Doubt] = []
        if method != "naive":
            key = (release.n, release.scale.get("sum"))
            if key not in made_up:
                made_up[key] = from_prior(release, family, prior)
            fit = checked(release, family, pooled)
            notes, own = remarks(release, family, method, pooled, fit)
            against = conflict(release, family, made_up[key])
            own += [each for each in (against, fit.doubt if fit else None) if each is not None]
        found.append(FamilyPosterior({"theta": theta}, method, labels=labels, notes=notes, fit=fit))
        doubts.append(own)
    return speak(found, doubts, chains=method in _CHAINS)


def _shapes(
    releases: Sequence[Any],
    prior: Any,
    method: str | None,
    draws: int,
    chains: int,
    rng: np.random.Generator,
) -> list[Posterior]:
    """Return posteriors of means or histograms, of which there is one method."""
    if method is not None:
        raise ValueError(f"method must not be given for a {releases[0].model}, which has one; got {method!r}")
    if not all(isinstance(each, Release) for each in releases):
        raise TypeError("release must be a sequence of Release")
    infer_all = {QUANTILES: infer_quantiles, PRESENT: infer_present}.get(releases[0].model, infer_shapes)
    return infer_all(releases, prior, draws, chains, rng)


def _gibbs(
    releases: Sequence[Release],
    prior: Any,
    family: Family,
    draws: int,
    chains: int,
    rng: np.random.Generator,
    progress: bool,
) -> list[Array]:
    """Run every release's chains in one batch; thin so that slow chains still travel."""
    noisy = np.stack([np.atleast_1d(each["sum"]) for each in releases])
    n = np.array([float(each.n) for each in releases])
    scale = np.array([each.scale["sum"] for each in releases])
    problem = (family, prior, noisy, n, scale)
    outside = _outside(releases[0])
    several = observations_of(releases, "sum")
    step = gibbs_step(*problem, outside=outside, laplace=releases[0].mechanism == "laplace", leap=True, several=several)
    kept = run(
        step,
        gibbs_start(*problem, chains, rng, outside=outside, several=several),
        per_chain=-(-draws // chains),
        burn_in=_BURN_IN,
        thin=_THIN,
        keep=["theta"],
        rng=rng,
        progress=progress,
        label="gibbs",
    )
    return list(np.moveaxis(kept["theta"], 2, 0))


def _moments(
    releases: Sequence[Release],
    prior: Any,
    family: Any,
    draws: int,
    chains: int,
    rng: np.random.Generator,
    progress: bool,
) -> list[Array]:
    """Draw from the law of the sums that a family's moments imply, by the engine that all chapters share."""
    noisy, n = np.stack([each["sum"] for each in releases]), np.array([float(each.n) for each in releases])
    scale = np.array([each.scale["sum"] for each in releases])
    sums = moments.NoisySums(noisy, scale, n, releases[0].mechanism == "laplace", observations_of(releases, "sum"))
    law = CountLaw(family, prior, _outside(releases[0]))
    drawn = moments.sample(law, sums, per_chain=-(-draws // chains), chains=chains, rng=rng, progress=progress)
    return list(np.moveaxis(law.theta_at(drawn), 2, 0))


def _records(
    releases: Sequence[Release],
    prior: Any,
    family: Family,
    draws: int,
    chains: int,
    rng: np.random.Generator,
    progress: bool,
) -> list[Array]:
    """Draw the records behind each release, and theta given them; releases of one n make a batch."""
    outside, laplace = _outside(releases[0]), releases[0].mechanism == "laplace"
    model, found = FamilyRecords(family, prior, outside), dict[int, Array]()
    for n in sorted({each.n for each in releases}):
        members = [i for i, each in enumerate(releases) if each.n == n]
        noisy = np.stack([np.atleast_1d(releases[i]["sum"]) for i in members])
        scale, sizes = np.array([releases[i].scale["sum"] for i in members]), np.full(len(members), float(n))
        start = gibbs_start(family, prior, noisy, sizes, scale, chains, rng, outside=outside).theta
        kept, _ = latent_records.sample(
            model,
            moments.NoisySums(noisy, scale, sizes, laplace, observations_of([releases[i] for i in members], "sum")),
            Theta(start.reshape(-1, *start.shape[2:])),
            per_chain=-(-draws // chains),
            chains=chains,
            burn_in=_RECORDS_BURN_IN,
            thin=_RECORDS_THIN,
            rng=rng,
            progress=progress,
        )
        found |= dict(zip(members, np.moveaxis(kept["theta"], 2, 0), strict=True))
    return [found[i] for i in range(len(releases))]


_CHAINS = {"gibbs": _gibbs, "moments": _moments, "records": _records}
_HOW_MANY = {"gibbs": 20, "moments": 8, "records": 20}


def _independent(
    release: Release, prior: Any, family: Family, method: str, shape: tuple[int, int], rng: np.random.Generator
) -> Array:
    """Return independent draws from a density, or from the conjugate posterior of the naive method."""
    count = shape[0] * shape[1]
    if method == "naive":
        sums = np.broadcast_to(_naive_sums(release, family), (*shape, family.size))
        return family.draw_parameter(prior, sums, np.asarray(release.n), rng)
    exact = method == "exact"
    theta = (
        family.exact_draws(release, prior, count, rng)
        if exact
        else _density(release, prior, family, method).draw(count, rng)
    )
    return theta.reshape(*shape, *theta.shape[1:])


def _naive_sums(release: Release, family: Family) -> Array:
    """Return the released sums, moved to the nearest ones that the records could have."""
    noisy = release["reports" if "reports" in release.values else "sum"]
    return family.nearest_valid(np.asarray(noisy, dtype=float), np.asarray(release.n))


class _CollapsedLikelihood:
    """The log likelihood of theta with the latent sum integrated out: the release is a normal plus the noise."""

    def __init__(self, release: Release, family: Family) -> None:
        self.family, self.n, self.scale = family, release.n, release.scale["sum"]
        self.noisy, self.laplace = float(release["sum"][0]), release.mechanism == "laplace"
        self.outside = _outside(release)
        self.parts = [(float(each["sum"][0]), each.scale["sum"]) for each in release.observations]

    def __call__(self, theta: Array) -> Array:
        with np.errstate(all="ignore"):  # at the ends of double precision
            mean, each = self.family.released_moments(theta, self.outside)
        centre, variance = self.n * mean[..., 0], self.n * each[..., 0]
        usable = np.isfinite(centre) & np.isfinite(variance)
        centre, variance = np.where(usable, centre, 0.0), np.where(usable, variance, 1.0)
        if len(self.parts) > 1:
            value = normal_laplaces_logpdf([z for z, _ in self.parts], centre, variance, [b for _, b in self.parts])
        elif self.laplace:
            value = normal_laplace_logpdf(self.noisy, centre, variance, self.scale)
        else:
            total = variance + self.scale**2
            value = -0.5 * ((self.noisy - centre) ** 2 / total + np.log(total))
        return np.where(usable, value, -np.inf)


def _outside(release: Release) -> str:
    return str(release.settings.get("outside", "clip"))


def _check(releases: Sequence[Any], prior: Any, method: str | None, family: Family | None) -> tuple[Family, Any, str]:
    """Return the family, the prior and the method of releases of one kind, or raise naming what is wrong."""
    models = [_family(each, family) for each in releases]
    kinds = {(each.mechanism, each.settings.get("outside")) for each in releases}
    if any(other != models[0] for other in models[1:]) or len(kinds) > 1:
        raise ValueError("release must be a sequence of one family, one mechanism and one treatment of records outside")
    prior = models[0].default_prior if prior is None else prior
    models[0].check_prior(prior)
    methods = models[0].methods(releases[0].mechanism)
    if method is None:
        # A batch has one method: that of its largest release.
        wanted = models[0].default_method(max(releases, key=lambda each: each.n))
        method = wanted if wanted in methods else methods[0]
    return models[0], prior, one_of("method", method, methods)


def _family(release: Any, family: Family | None) -> Family:
    """Return the family of a release, or raise unless the one that was passed is that of the release."""
    if not isinstance(release, Release):
        raise TypeError(f"release must be a Release, got {type(release).__name__}")
    if family is None:
        family = family_of(release)
    else:
        require_family(family)
        release.require(model=family.name, several=True)
        known = {"bounds": tuple(family.bounds), **family.settings}
        told = {"bounds": tuple(release.bounds.get("x", family.bounds)), **release.settings}
        said = {key: told[key] for key in known if key in told}
        if any(said[key] != known[key] for key in said):
            raise ValueError(f"family must be the one of the release, whose public numbers are {said}; got {family!r}")
    release.require(model=family.name, mechanisms=family.mechanisms, several=True)
    return family
