"""The analyst's side of models of your own: posteriors from a release alone. No function here takes data.

The sections "If you can simulate it" and "Moments by simulation" explain both methods.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, overload

import numpy as np
from scipy import special

from dpbook import latent_records
from dpbook._arrays import Array, IntArray
from dpbook._validation import analyst_generator, integer, one_of
from dpbook.doubts import Doubt, Misfit, PoorApproximation, prior_conflict, speak, tail_probability
from dpbook.latent_noise import covariance_root
from dpbook.models.layout import MODEL, Recipe, layout_of
from dpbook.models.model import Law, Model, law_of, uniform_points
from dpbook.models.posterior import LogEvidence, ModelPosterior, PredictiveCheck
from dpbook.models.record_models import GivenRecords, HeldUniforms, Place
from dpbook.models.tempering import Found, tempered
from dpbook.moments import NoisySums
from dpbook.release import Release, observations_of

__all__ = ["infer"]

_METHODS = ("moments", "records")
_FEW = 30  # records up to which they are drawn by default: no central limit theorem is needed
_BURN_IN, _THIN = 600, 12  # sweeps of latent records
_CHAINS = {"moments": 4, "records": 20}
_FEWEST = 100  # particles of a run, however few draws are asked for: with fewer it loses its way
_SCOUTS = 250  # particles whose spread the sampler of records takes for its proposals
_SKEWED = 0.5  # of a noisy sum, from which on it is called not normal
_COARSE = 0.1  # error of simulated means, in sds of sampling plus noise, from which on it is spoken of
_LEVEL = 0.01  # tail probability below which model and release are called a misfit
_SEED = 20170  # of made-up releases, so that draws do not depend on checks


@overload
def infer(
    release: Release,
    model: Model,
    *,
    method: str | None = None,
    statistics: Any = None,
    draws: int = 2000,
    chains: int | None = None,
    rng: np.random.Generator | None = None,
) -> ModelPosterior: ...
@overload
def infer(
    release: Sequence[Release],
    model: Model,
    *,
    method: str | None = None,
    statistics: Any = None,
    draws: int = 2000,
    chains: int | None = None,
    rng: np.random.Generator | None = None,
) -> list[ModelPosterior]: ...
def infer(
    release: Release | Sequence[Release],
    model: Model,
    *,
    method: str | None = None,
    statistics: Any = None,
    draws: int = 2000,
    chains: int | None = None,
    rng: np.random.Generator | None = None,
) -> ModelPosterior | list[ModelPosterior]:
    """Return the posterior of a model's parameters given a release of this package, or a list for several releases.

    Post-processing: it reads nothing but the release, so it costs no privacy. By *moments*, simulated records, clipped
    as the release clips them, say what mean and covariance the sums have at given parameters; the sums are normal by
    the central limit theorem, the noise is the published one, and particles follow the posterior while the noise is
    turned down (no gradients are needed). By *records*, all n records are drawn with the parameters: exact at any n,
    and slow where they are many or the noise is small. Explained in :doc:`/book/any-model/if-you-can-simulate-it` and
    :doc:`/book/any-model/moments-by-simulation`.

    Parameters
    ----------
    release : Release or sequence of Release
        From :func:`release`; a sequence is one batch, of the same statistics and mechanism.
    model : Model
        The prior, and how to simulate a record.
    method : {"moments", "records"}, optional
        By default records up to 30 of them, else moments.
    statistics : Own or sequence of Own, optional
        Functions of your own that the release names: they cannot travel in it, and are compared on made-up records.
    draws : int, default 2000
        How many in all.
    chains : int, optional
        How many chains they are arranged in: by default 4 for moments, where each is a run of its own, else 20.
    rng : numpy.random.Generator, optional

    Returns
    -------
    ModelPosterior or list of ModelPosterior
        With draws of every parameter under its name, ``log_evidence`` (by moments) and ``check()``.

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook import Schema, models
    >>> from dpbook.schema import Number
    >>> rng = np.random.default_rng(1)
    >>> schema = Schema({"wait": Number(0, 30)})
    >>> noisy = models.release(rng.exponential(8, 500), models.Powers("wait"), schema=schema, epsilon=1.0, rng=rng)
    >>> def wait(parameters, uniforms):
    ...     return -parameters["mean"] * np.log(uniforms[0])
    >>> posterior = models.infer(noisy, models.Model({"mean": models.LogNormal(10, 1)}, wait), rng=rng)
    >>> bool(7 < posterior.mean("mean") < 9)
    True
    """
    draws, rng = integer("draws", draws, least=1), analyst_generator(rng)
    chains = None if chains is None else integer("chains", chains, least=1)
    if method is not None:
        one_of("method", method, _METHODS)
    if not isinstance(release, (Release, Sequence)):
        raise TypeError(f"release must be a Release or a sequence of them, got {type(release).__name__}")
    batch = [release] if isinstance(release, Release) else list(release)
    if not batch:
        return []
    law = law_of(model, _common_layout(batch, statistics))
    few = all(each.n <= _FEW for each in batch)
    chosen = method or ("records" if few else "moments")
    found = (_by_records if chosen == "records" else _by_moments)(batch, law, draws, chains or _CHAINS[chosen], rng)
    return found[0] if isinstance(release, Release) else found


def _common_layout(releases: Sequence[Any], statistics: Any) -> Recipe:
    """Return the layout that all releases share; raise where they are not of this package, or differ."""
    for each in releases:
        if not isinstance(each, Release):
            raise TypeError(f"release must be a sequence of Release, got {type(each).__name__} in it")
        each.require(model=MODEL, mechanisms=("laplace", "gaussian"), several=True)
    first = releases[0]
    for each in releases[1:]:
        if each.settings != first.settings or each.mechanism != first.mechanism:
            raise ValueError("release must be a sequence of the same statistics, schema and mechanism")
    return layout_of(first, statistics)


def _sums(releases: Sequence[Release], layout: Recipe) -> NoisySums:
    """Return the noisy sums of some releases, all statistics in a row."""
    names = [each.name for each in layout.statistics]
    sizes = [releases[0][name].size for name in names]
    noisy = np.stack([np.concatenate([each[name] for name in names]) for each in releases])
    scale = np.stack([np.repeat([each.scale[name] for name in names], sizes) for each in releases])
    parts = [observations_of(releases, name) for name in names]
    several = None
    if parts[0] is not None:
        together = [each for each in parts if each is not None]
        wide = [np.broadcast_to(scales[..., None], values.shape) for values, scales in together]
        several = np.concatenate([values for values, _ in together], axis=-1), np.concatenate(wide, axis=-1)
    n = np.array([float(each.n) for each in releases])
    return NoisySums(noisy, scale, n, releases[0].mechanism == "laplace", several)


def _by_moments(
    releases: Sequence[Release], law: Law, draws: int, chains: int, rng: np.random.Generator
) -> list[ModelPosterior]:
    """Follow all releases' posteriors with particles, and say how good they are."""
    sums = _sums(releases, law.layout)
    per_chain = -(-draws // chains)
    found = tempered(law, sums, max(per_chain, _FEWEST), chains, rng)
    kept = np.linspace(0, max(per_chain, _FEWEST) - 1, per_chain).astype(np.int64)
    posteriors, doubts = [], []
    for i, release in enumerate(releases):
        mine = np.arange(chains) * len(releases) + i
        named = law.coordinates.parameters(found.particles.position[mine][:, kept])
        fit, misfit = _checked(found, mine, sums, i, law.layout)
        own = [*misfit, *_conflict(found, mine, sums, i, law.layout), *_normality(law, found, mine, sums, i)]
        error, unfinished = float(found.error[mine].max()), _unfinished(found, mine)
        posteriors.append(
            ModelPosterior(
                named,
                "moments",
                notes=[_note(found, error, law.model)],
                log_evidence=None if unfinished else _evidence(found.log_evidence[mine]),
                fit=fit,
                release=release.to_json(),
            )
        )
        doubts.append(own + _coarse(error, found.size) + unfinished)
    return speak(posteriors, doubts)


def _note(found: Found, error: float, model: Model) -> str:
    return (
        f"{found.size} simulated records per value of the parameters of {model.name}, whose means err by about "
        f"{error:.1g} sd of the sums; the noise was turned down in {found.steps} steps."
    )


def _evidence(each: Array) -> LogEvidence:
    """Return the log of the mean evidence of some runs, and its standard error."""
    value = float(special.logsumexp(each) - np.log(len(each)))
    error = float(np.std(np.exp(each - value), ddof=1) / np.sqrt(len(each))) if len(each) > 1 else float("nan")
    return LogEvidence(value, error)


def _made_up(found: Any, mine: IntArray, sums: NoisySums, at: int) -> Array:
    """Return sums (draw, k) such as particles predict, with noise."""
    rng = np.random.default_rng(_SEED)
    mean, cov = (each[mine].reshape(-1, *each.shape[2:]) for each in (found.mean, found.cov))
    usable = np.isfinite(mean).all(axis=1) & np.isfinite(cov).all(axis=(1, 2))
    mean, cov = mean[usable], cov[usable]
    root, _ = covariance_root(cov + 1e-12 * np.eye(cov.shape[-1]))
    z = (root @ rng.standard_normal(mean.shape)[..., None])[..., 0]
    n, sd = sums.n[at], np.sqrt(sums.variance[at])
    noise = sd * (rng.laplace(scale=np.sqrt(0.5), size=z.shape) if sums.laplace else rng.standard_normal(z.shape))
    return np.asarray(n * mean + np.sqrt(n) * z + noise)


def _checked(
    found: Found, mine: IntArray, sums: NoisySums, at: int, layout: Recipe
) -> tuple[PredictiveCheck, list[Doubt]]:
    """Compare the released sums with such as the posterior predicts: each, and their distance all together."""
    made_up, observed = _made_up(found.particles, mine, sums, at), sums.noisy[at]
    expected, sd = made_up.mean(axis=0), made_up.std(axis=0)
    unit = np.cov((made_up - expected).T / sd[:, None]).reshape(len(sd), -1) + 1e-9 * np.eye(len(sd))
    inverse = np.linalg.inv(unit)

    def distance(values: Array) -> Array:
        z = (values - expected) / sd
        return np.asarray(np.einsum("...i,ij,...j->...", z, inverse, z))

    far = distance(made_up)
    middle = np.median(far)  # a release that is close to what is expected is not extreme
    everything = np.column_stack([made_up, np.maximum(far, middle)])
    p = tail_probability([*observed, max(float(distance(observed)), middle)], everything)
    fit = PredictiveCheck(layout.labels, observed, expected, sd, p)
    if p > _LEVEL:
        return fit, []
    worst = int(np.argmax(np.abs(observed - expected) / sd))
    cause = f"the model does not predict what was released: {layout.labels[worst]!r} most of all (p = {p:.2g})"
    remedy = "look at posterior.check().table, and let the model vary where it is off"
    return fit, [Misfit(cause, remedy, weight=1 - p, chance=_LEVEL)]


def _conflict(found: Found, mine: IntArray, sums: NoisySums, at: int, layout: Recipe) -> list[Doubt]:
    made_up = _made_up(found.first, mine, sums, at)
    if len(made_up) < 4 * len(layout.labels) / _LEVEL:
        return []
    doubt = prior_conflict(sums.noisy[at], made_up, names=[f"sum of {each!r}" for each in layout.labels])
    return [] if doubt is None else [doubt]


def _normality(law: Law, found: Found, mine: IntArray, sums: NoisySums, at: int) -> list[Doubt]:
    """Return the doubt that sums of so few records are not normal, from their skewness at a middling draw."""
    position = np.median(found.particles.position[mine].reshape(-1, law.dim), axis=0)[None]
    seen = law.simulated(position, uniform_points(1024, law.model.uniforms))
    values = seen.statistics.reshape(-1, len(law.layout.weights))
    weights = np.ones(len(values)) if seen.weights is None else seen.weights.ravel()
    weights = weights / weights.sum()
    gap = values - weights @ values
    n = sums.n[at]
    skewness = np.abs(n * (weights @ gap**3)) / (n * (weights @ gap**2) + sums.variance[at]) ** 1.5
    worst = int(np.argmax(skewness))
    if not skewness[worst] > _SKEWED:
        return []
    cause = (
        f"sums of {n:.0f} records are not normal yet: that of {law.layout.labels[worst]!r} has skewness "
        f"{skewness[worst]:.2g}"
    )
    return [PoorApproximation(cause, "use method='records'", weight=float(skewness[worst]))]


def _unfinished(found: Found, mine: IntArray) -> list[Doubt]:
    """Return the doubt that the noise could not be turned down to what was published."""
    left = float(found.factor[mine].max())
    if left <= 1:
        return []
    cause = f"after {found.steps} steps the noise is still {left:.3g} times as wide as published: nothing fits"
    return [PoorApproximation(cause, "check the model against the bounds and units of the release", weight=left)]


def _coarse(error: float, size: int) -> list[Doubt]:
    if not error > _COARSE:
        return []
    cause = f"the means of {size} simulated records err by {error:.2g} sd of the sums, noise included"
    remedy = "let simulate take fewer uniforms, or return weights so that answers are summed out instead of simulated"
    return [PoorApproximation(cause, remedy, weight=error)]


def _by_records(
    releases: Sequence[Release], law: Law, draws: int, chains: int, rng: np.random.Generator
) -> list[ModelPosterior]:
    """Draw the records behind each release, and the parameters with them; releases of one n make a batch."""
    layout, found = law.layout, dict[int, ModelPosterior]()
    for n in sorted({each.n for each in releases}):
        members = [i for i, each in enumerate(releases) if each.n == n]
        sums = _sums([releases[i] for i in members], layout)
        scouts = tempered(law, sums, _SCOUTS, 1, rng)
        position, root = _starts(scouts.particles.position, chains, rng)
        model = (GivenRecords if law.model.update or law.model.log_density else HeldUniforms)(law, root)
        kept, acceptance = latent_records.sample(
            model,
            sums,
            Place(position),
            per_chain=-(-draws // chains),
            chains=chains,
            burn_in=_BURN_IN,
            thin=_THIN,
            rng=rng,
        )
        for place, i in enumerate(members):
            named = law.coordinates.parameters(kept["position"][:, :, place])
            fit, _ = _checked(scouts, np.array([place]), sums, place, layout)
            note = f"{n} latent records, of whose proposals {100 * acceptance[place]:.0f} % were accepted."
            found[i] = ModelPosterior(named, "records", notes=[note], fit=fit, release=releases[i].to_json())
    return speak([found[i] for i in range(len(releases))])


def _starts(scouts: Array, chains: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """Return starts (chain × release, dim) among the scouts (release, particle, dim), and roots of their spread."""
    releases, count, dim = scouts.shape
    places = rng.integers(count, size=(chains, releases))
    position = scouts[np.arange(releases), places].reshape(-1, dim)
    gap = scouts - scouts.mean(axis=1, keepdims=True)
    root, _ = covariance_root(gap.swapaxes(1, 2) @ gap / count + 1e-12 * np.eye(dim))
    return position, np.tile(root, (chains, 1, 1))
