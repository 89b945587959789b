"""The studies of chapter 3: whether posteriors of noisy sufficient statistics are calibrated, and what they are worth.

Every study simulates many worlds at once (a parameter from the prior, records, a seeded release), lets each method
infer, and judges it; each is a function that returns a table, and a command, ``python -m
dpbook.experiments.expfam_study NAME``. Studies measure methods; they publish nothing and spend no budget.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy import special
from tqdm import tqdm

from dpbook import diagnostics
from dpbook._validation import integer, one_of, positive
from dpbook.experiments._studies import (
    Study,
    cell_rng,
    corrected_over_study,
    judge,
    load_table,
    results_of,
    run_command,
)
from dpbook.expfam import (
    Beta,
    Binomial,
    Dirichlet,
    Exponential,
    Family,
    Gamma,
    Multinomial,
    Normal,
    NormalInverseGamma,
    Poisson,
    posterior_density,
    private_bounds,
)
from dpbook.expfam.gibbs import GibbsState, gibbs_start, gibbs_step
from dpbook.latent_noise import draw_noise_variance, normal_laplace_logpdf
from dpbook.release import Release
from dpbook.sampling import run

__all__ = [
    "EPSILONS",
    "MODELS",
    "RESULTS",
    "SIZES",
    "STUDIES",
    "Model",
    "World",
    "bounds",
    "calibration",
    "efficiency",
    "load",
    "main",
    "posterior_draws",
    "printed",
    "ranks",
    "simulate",
    "traces",
    "utility",
]

Array = NDArray[np.float64]

SIZES = (10, 100, 1000)
EPSILONS = (0.01, 0.1, 1.0)
RESULTS = results_of("exponential-families")
OPS_FLOOR = 0.1  # the support of posterior samples is [floor, 1 - floor]
OPS_COUNT = 100  # posterior samples, each at a hundredth of epsilon
SEED = 20


@dataclass(frozen=True)
class Model:
    """A family with its prior, as the studies use it.

    Attributes
    ----------
    family : Family
        With public bounds.
    prior : object
        The conjugate prior, from which the studies also draw the truth.
    records : callable
        ``records(theta, n, rng)`` draws n records for each of a batch of parameters, (trials, n).
    quantities : mapping of str to int or None
        The scalars that are judged: the name and the component of theta.
    strength : float
        How many records the prior is worth, for the mixing time of Gibbs.
    methods : tuple of (outside, method)
        What is compared.

    Examples
    --------
    >>> from dpbook.experiments.expfam_study import MODELS
    >>> MODELS["binomial"].prior
    Beta(alpha=10.0, beta=10.0)

    Explained in :doc:`/book/exponential-families/calibration-and-utility`.
    """

    family: Family
    prior: Any
    records: Callable[[Array, int, np.random.Generator], Array]
    quantities: Mapping[str, int | None]
    strength: float
    methods: tuple[tuple[str, str], ...]


def _codes(theta: Array, n: int, rng: np.random.Generator) -> Array:
    edges = np.cumsum(theta, axis=-1)[:, None, :-1]
    return np.asarray((rng.random((len(theta), n))[..., None] > edges).sum(axis=-1), dtype=float)


_BOUNDED = (("all", "non-private"), ("all", "naive"))
_UNBOUNDED = (
    ("all", "non-private"),
    ("redact", "naive"),
    ("redact", "cheating naive"),
    ("redact", "collapsed"),
    ("redact", "gibbs"),
    ("clip", "naive"),
    ("clip", "collapsed"),
    ("clip", "gibbs"),
)
MODELS: Mapping[str, Model] = {
    "binomial": Model(
        Binomial(),
        Beta(10, 10),
        lambda theta, n, rng: np.asarray(rng.random((len(theta), n)) < theta[:, None], dtype=float),
        {"theta": None},
        20.0,
        (*_BOUNDED, ("all", "exact"), ("all", "collapsed"), ("all", "gibbs"), ("all", "posterior samples")),
    ),
    "multinomial": Model(
        Multinomial(3), Dirichlet([10, 10, 10]), _codes, {"theta[0]": 0}, 30.0, (*_BOUNDED, ("all", "gibbs"))
    ),
    "exponential": Model(
        Exponential(0.0063, 1.1717),
        Gamma(8, 2),
        lambda theta, n, rng: rng.exponential(1 / theta[:, None], (len(theta), n)),
        {"theta": None},
        8.0,
        _UNBOUNDED,
    ),
    "poisson": Model(
        Poisson(0, 8),
        Gamma(40, 10),
        lambda theta, n, rng: rng.poisson(theta[:, None], (len(theta), n)).astype(float),
        {"theta": None},
        10.0,
        tuple(each for each in _UNBOUNDED if each != ("redact", "gibbs")),
    ),
    "normal": Model(
        Normal(-3, 3),
        NormalInverseGamma(0, 20, 10, 9),
        lambda theta, n, rng: rng.normal(theta[:, :1], np.sqrt(theta[:, 1:]), (len(theta), n)),
        {"mean": 0, "variance": 1},
        20.0,
        (("all", "non-private"), ("clip", "naive"), ("clip", "gibbs")),
    ),
}


class World(NamedTuple):
    """Simulated trials of one model: truths, exact sums, and releases of them.

    Attributes
    ----------
    model : Model
        What was simulated.
    n : int
        Records a trial.
    epsilon : float
        The privacy loss of each release.
    theta : ndarray
        The truth, (trials, ...).
    records : ndarray
        The records, (trials, n).
    sufficient : ndarray
        Exact sums of the sufficient statistics, (trials, k).
    noisy : dict of str to ndarray
        The released sums, (trials, k): by what was done to records outside the bounds, and under ``"none"`` the
        sums of all records with the noise of the redacted release, which no privacy mechanism offers.
    scale : dict of str to float
        The scale of the Laplace noise on each.

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook.experiments.expfam_study import simulate
    >>> simulate("exponential", 10, 1.0, trials=3, rng=np.random.default_rng(0)).scale["redact"]
    1.1717

    Explained in :doc:`/book/exponential-families/calibration-and-utility`.
    """

    model: Model
    n: int
    epsilon: float
    theta: Array
    records: Array
    sufficient: Array
    noisy: dict[str, Array]
    scale: dict[str, float]


def simulate(name: str, n: int, epsilon: float, *, trials: int, rng: np.random.Generator) -> World:
    """Draw parameters, records and releases, all trials at once.

    The released values have the law of :func:`dpbook.expfam.release`: exact sums plus Laplace noise of the family's
    exact sensitivity over epsilon.

    Parameters
    ----------
    name : str
        A key of ``MODELS``.
    n : int
        Records a trial.
    epsilon : float
        The privacy loss of each release.
    trials : int
        How many worlds.
    rng : numpy.random.Generator
        The source of all randomness.

    Returns
    -------
    World
        Truths, sums and releases; the same noise, scaled, serves all treatments of records outside the bounds.

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook.experiments.expfam_study import simulate
    >>> simulate("binomial", 50, 0.1, trials=4, rng=np.random.default_rng(0)).noisy["all"].shape
    (4, 1)

    Explained in :doc:`/book/exponential-families/calibration-and-utility`.
    """
    model = MODELS[one_of("name", name, tuple(MODELS))]
    n, epsilon, trials = integer("n", n, least=1), positive("epsilon", epsilon), integer("trials", trials, least=2)
    family = model.family
    theta = model.prior.draw(trials, rng)
    records = model.records(theta, n, rng)

    def sums(statistics: Callable[[Array], Array]) -> Array:
        return np.asarray(statistics(records.reshape(-1, 1)).reshape(trials, n, -1).sum(axis=1))

    unit = rng.laplace(size=(trials, family.size))
    treatments = {"all": "clip"} if family.bounded else {"redact": "redact", "clip": "clip"}
    exact = {key: sums(partial(family._released, outside=how)) for key, how in treatments.items()}
    scale = {key: family.sensitivity(how) / epsilon for key, how in treatments.items()}
    sufficient = sums(family._sufficient)
    if not family.bounded:
        exact["none"], scale["none"] = sufficient, scale["redact"]
    noisy = {key: exact[key] + scale[key] * unit for key in exact}
    return World(model, n, epsilon, theta, records, sufficient, noisy, scale)


def posterior_draws(
    world: World, method: str, outside: str, *, draws: int = 400, rng: np.random.Generator
) -> tuple[Array, int]:
    """Let one method infer from every release of a world.

    Parameters
    ----------
    world : World
        From :func:`simulate`.
    method : str
        ``"non-private"``, ``"naive"``, ``"cheating naive"``, ``"exact"``, ``"collapsed"``, ``"gibbs"`` or
        ``"posterior samples"``.
    outside : str
        Which release it reads: ``"all"``, ``"clip"`` or ``"redact"``.
    draws : int, default 400
        Draws of each posterior; Gibbs gives 150, posterior sampling 100.
    rng : numpy.random.Generator
        The source of randomness.

    Returns
    -------
    tuple of (ndarray, int)
        Draws (trials, draws, ...), and how many of them, evenly spaced, are about independent.

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook.experiments.expfam_study import posterior_draws, simulate
    >>> rng = np.random.default_rng(0)
    >>> world = simulate("binomial", 50, 0.1, trials=4, rng=rng)
    >>> posterior_draws(world, "exact", "all", draws=10, rng=rng)[0].shape
    (4, 10)

    Explained in :doc:`/book/exponential-families/noise-aware-inference`.
    """
    if method == "gibbs":
        return _gibbs_draws(world, outside, _package_sampler(world, outside), rng)
    if method == "posterior samples":
        return _flattened_draws(world, rng), OPS_COUNT
    if method == "exact":
        found = [posterior_density(each, world.model.prior).draw(draws, rng) for each in _releases(world, outside)]
        return np.stack(found), draws
    if method == "collapsed":
        return _collapsed_draws(world, outside, draws, rng), draws
    family, n = world.model.family, np.asarray(world.n)
    sources = {"non-private": None, "naive": outside, "cheating naive": "none"}
    source = sources[one_of("method", method, tuple(sources))]
    sums = world.sufficient if source is None else family._nearest_valid(world.noisy[source], n)
    many = np.broadcast_to(sums[:, None, :], (len(sums), draws, family.size))
    return family._draw_parameter(world.model.prior, many, n, rng), draws


def _releases(world: World, outside: str) -> Iterable[Release]:
    """Wrap released values as the releases that an analyst would hold."""
    family = world.model.family
    how = "clip" if outside == "all" else outside
    settings = dict(family.settings) if family.bounded else {**family.settings, "outside": how}
    for noisy in world.noisy[outside]:
        yield Release(
            values={"sum": noisy},
            model=family.name,
            mechanism="laplace",
            scale={"sum": world.scale[outside]},
            sensitivity={"sum": family.sensitivity(how)},
            epsilon=world.epsilon,
            n=world.n,
            bounds={"x": family.bounds},
            settings=settings,
            float_safe=False,
        )


def _parameter_grid(prior: Any, points: int = 2000) -> tuple[Array, Array]:
    """Return one grid for all trials, even in logit or log theta, and the logarithms of its cell widths."""
    if isinstance(prior, Beta):
        u = np.linspace(-7.0, 7.0, points)
        theta = special.expit(u)
        return theta, np.log(theta * (1 - theta))
    u = np.linspace(math.log(0.1), math.log(25.0), points)
    return np.exp(u), u


def _collapsed_draws(world: World, outside: str, draws: int, rng: np.random.Generator) -> Array:
    """Draw from the collapsed posteriors of all trials on one grid; the package's own adapts its grid to each."""
    theta, log_width = _parameter_grid(world.model.prior)
    mean, cov = world.model.family.moments(theta, "clip" if outside == "all" else outside)
    log_density = normal_laplace_logpdf(
        world.noisy[outside], world.n * mean[:, 0], world.n * np.maximum(cov[:, 0, 0], 0.0), world.scale[outside]
    )
    log_density = log_density + world.model.prior.log_density(theta) + log_width
    return _inverse_cdf_draws(theta, log_density, draws, rng)


def _inverse_cdf_draws(theta: Array, log_mass: Array, draws: int, rng: np.random.Generator) -> Array:
    """Draw from densities on a grid, (trials, points), by the inverse of the trapezium rule's distribution function."""
    mass = np.exp(log_mass - log_mass.max(axis=1, keepdims=True))
    cdf = np.concatenate([np.zeros((len(mass), 1)), np.cumsum(mass[:, 1:] + mass[:, :-1], axis=1)], axis=1)
    cdf /= cdf[:, -1:]
    u = rng.random((len(mass), draws))
    return np.stack([np.interp(each, row, theta) for each, row in zip(u, cdf, strict=True)])


def _flattened_draws(world: World, rng: np.random.Generator) -> Array:
    """Draw posterior samples of a share, each at epsilon / 100: the law of ``release_posterior_samples``."""
    theta = np.linspace(OPS_FLOOR, 1 - OPS_FLOOR, 2001)
    log_odds = float(special.logit(1 - OPS_FLOOR))
    temperature = max(1.0, 2 * log_odds * OPS_COUNT / world.epsilon)
    utility = world.model.prior.log_density(theta) + world.model.family._log_likelihood(
        world.sufficient, np.asarray(world.n), theta
    )
    weight = np.exp((utility - utility.max(axis=1, keepdims=True)) / temperature)
    cdf = np.cumsum(weight, axis=1)
    u = rng.random((len(cdf), OPS_COUNT)) * cdf[:, -1:]
    return np.asarray(theta[np.stack([np.searchsorted(row, each) for row, each in zip(cdf, u, strict=True)])])


# Gibbs: how long, and how to tell


class _Sampler(NamedTuple):
    """Where chains start, given their number, and their sweep."""

    start: Callable[[int, np.random.Generator], GibbsState]
    step: Callable[[np.random.Generator, GibbsState], tuple[GibbsState, None]]


def _package_sampler(world: World, outside: str) -> _Sampler:
    trials = len(world.theta)
    problem = (
        world.model.family,
        world.model.prior,
        world.noisy[outside],
        np.full(trials, float(world.n)),
        np.full(trials, world.scale[outside]),
    )
    how = "clip" if outside == "all" else outside
    step = gibbs_step(*problem, outside=how, laplace=True)
    return _Sampler(lambda chains, rng: gibbs_start(*problem, chains, rng, outside=how), step)


def _predicted_autocorrelation(world: World, outside: str) -> float:
    """Return about how many sweeps make an independent draw.

    Two blocks, theta and the latent sum, alternate, so that the lag-one autocorrelation of theta is the share of its
    posterior variance that knowing the sum would remove. Of the noise and of the prior, the sharper one limits that
    variance: the time is 2 min(1 + noise / sampling variance, 1 + n / prior strength).
    """
    _, cov = world.model.family.moments(world.theta, "clip" if outside == "all" else outside)
    sampling = world.n * np.median(cov[..., 0, 0])
    return 2 * min(1 + 2 * world.scale[outside] ** 2 / sampling, 1 + world.n / world.model.strength)


def _gibbs_draws(world: World, outside: str, sampler: _Sampler, rng: np.random.Generator) -> tuple[Array, int]:
    """Warm up for 10 autocorrelation times, keep 60 of them as 150 draws; 30 of those are far enough apart to rank."""
    time_between = _predicted_autocorrelation(world, outside)
    kept = run(
        sampler.step,
        sampler.start(1, rng),
        draws=150,
        burn_in=max(500, math.ceil(10 * time_between)),
        thin=max(5, math.ceil(time_between / 2.5)),
        keep=["theta"],
        rng=rng,
    )["theta"][0]
    return np.moveaxis(kept, 1, 0), 30


@lru_cache(maxsize=128)
def _gibbs_cell(name: str, n: int, epsilon: float, outside: str, trials: int, seed: int) -> tuple[Array, int]:
    """Return the draws of Gibbs in one cell; several studies judge the same ones."""
    world = simulate(name, n, epsilon, trials=trials, rng=cell_rng(seed, name, n, epsilon))
    rng = cell_rng(seed, name, n, epsilon, outside, "gibbs")
    drawn, independent = posterior_draws(world, "gibbs", outside, rng=rng)
    drawn.setflags(write=False)
    return drawn, independent


# Judging


def _judge(world: World, draws: Array, independent: int, component: int | None, rng: np.random.Generator) -> Any:
    """Return the scores of one scalar over all trials, and its ranks."""
    truth = world.theta if component is None else world.theta[..., component]
    return judge(truth, draws if component is None else draws[..., component], independent, rng)


def _study_cells(
    models: Sequence[str],
    sizes: Sequence[int],
    epsilons: Sequence[float],
    methods: Sequence[str] | None,
    trials: int,
    seed: int,
    progress: bool,
) -> Iterable[tuple[dict[str, Any], World, Array, int]]:
    """Simulate each cell once and yield what every method drew from it."""
    cells = [(name, n, epsilon) for name in models for n in sizes for epsilon in epsilons]
    for name, n, epsilon in tqdm(cells, desc="cells", disable=not progress):
        world = simulate(name, n, epsilon, trials=trials, rng=cell_rng(seed, name, n, float(epsilon)))
        for outside, method in world.model.methods:
            if methods is not None and method not in methods:
                continue
            rng = cell_rng(seed, name, n, float(epsilon), outside, method)
            if method == "gibbs":
                drawn, independent = _gibbs_cell(name, n, float(epsilon), outside, trials, seed)
            else:
                drawn, independent = posterior_draws(world, method, outside, rng=rng)
            row = {"family": name, "outside": outside, "method": method, "n": n, "epsilon": epsilon}
            yield row, world, drawn, independent


def calibration(
    *,
    trials: int = 400,
    models: Sequence[str] = tuple(MODELS),
    sizes: Sequence[int] = SIZES,
    epsilons: Sequence[float] = EPSILONS,
    methods: Sequence[str] | None = None,
    seed: int = SEED,
    progress: bool = False,
) -> pd.DataFrame:
    """Judge every method by simulation-based calibration, on a grid of sizes and privacy losses.

    Parameters
    ----------
    trials : int, default 400
        Worlds a cell.
    models, sizes, epsilons : sequences
        The grid.
    methods : sequence of str, optional
        By default all that a model has.
    seed : int
        Each cell has a generator of its own, so that a part of the grid repeats the same part of the whole.
    progress : bool
        Whether to show a progress bar.

    Returns
    -------
    pandas.DataFrame
        One row a cell, method and quantity: Kolmogorov–Smirnov and variance statistics with raw p-values, ``p_holm``
        (the smaller of the two after Holm's correction in the cell), ``p_study`` (after Holm's correction over all
        the rows of the method), posterior contraction, coverage of 95 % intervals with a 95 % confidence interval,
        mean posterior sd, root mean squared error of posterior means, interval score and CRPS.

    Examples
    --------
    >>> from dpbook.experiments.expfam_study import calibration
    >>> table = calibration(trials=200, models=["binomial"], sizes=[100], epsilons=[0.1], methods=["naive", "exact"])
    >>> table.set_index("method")["ks"].idxmax()
    'naive'

    Explained in :doc:`/book/exponential-families/calibration-and-utility`.
    """
    rows = []
    for row, world, drawn, independent in _study_cells(models, sizes, epsilons, methods, trials, seed, progress):
        for quantity, component in world.model.quantities.items():
            rng = cell_rng(seed, *row.values(), quantity)
            scores, _ = _judge(world, drawn, independent, component, rng)
            rows.append({**row, "quantity": quantity, **scores})
    return corrected_over_study(pd.DataFrame(rows))


def ranks(
    *,
    trials: int = 400,
    n: int = 1000,
    epsilon: float = 0.01,
    models: Sequence[str] = tuple(MODELS),
    methods: Sequence[str] | None = None,
    seed: int = SEED,
    progress: bool = False,
) -> pd.DataFrame:
    """Return the ranks of the truth among posterior draws, one column a model and method: for empirical CDFs.

    Parameters
    ----------
    trials : int, default 400
        Rows.
    n, epsilon
        The cell.
    models, methods, seed, progress
        As in :func:`calibration`; the ranks are the ones judged there.

    Returns
    -------
    pandas.DataFrame
        Columns named ``"family outside method quantity"``, with ``_`` for blanks inside a name.

    Examples
    --------
    >>> from dpbook.experiments.expfam_study import ranks
    >>> ranks(trials=5, n=50, models=["binomial"], methods=["exact"]).columns.tolist()
    ['binomial all exact theta']

    Explained in :doc:`/book/exponential-families/calibration-and-utility`.
    """
    columns = {}
    for row, world, drawn, independent in _study_cells(models, [n], [epsilon], methods, trials, seed, progress):
        for quantity, component in world.model.quantities.items():
            rng = cell_rng(seed, *row.values(), quantity)
            parts = (row["family"], row["outside"], row["method"], quantity)
            name = " ".join(str(part).replace(" ", "_") for part in parts)
            columns[name] = _judge(world, drawn, independent, component, rng)[1]
    return pd.DataFrame(columns)


def utility(
    *,
    trials: int = 400,
    models: Sequence[str] = ("binomial", "multinomial", "exponential"),
    sizes: Sequence[int] = (10, 30, 100, 300, 1000),
    epsilons: Sequence[float] = (0.01, 0.1),
    methods: Sequence[str] | None = None,
    seed: int = SEED,
    progress: bool = False,
) -> pd.DataFrame:
    """Measure what posteriors are worth: distance to the non-private one, and proper scores of the truth.

    Parameters
    ----------
    trials : int, default 400
        Worlds a cell.
    models, sizes, epsilons, methods, seed, progress
        As in :func:`calibration`.

    Returns
    -------
    pandas.DataFrame
        One row a cell, method and quantity: ``mmd2`` (squared, unbiased, with a normal kernel of bandwidth 1, between
        at most 200 draws and 200 of the non-private posterior; mean over trials) with its standard error, the same
        with the bandwidth set to the non-private posterior's mean sd in the cell (``mmd2_scaled``), the error of the
        posterior mean, interval score, CRPS, coverage and sd.

    Examples
    --------
    >>> from dpbook.experiments.expfam_study import utility
    >>> table = utility(trials=50, models=["binomial"], sizes=[100], epsilons=[0.1], methods=["naive", "exact"])
    >>> table.sort_values("crps")["method"].tolist()
    ['non-private', 'exact', 'naive']

    Explained in :doc:`/book/exponential-families/calibration-and-utility`.
    """
    rows = []
    reference: Array = np.empty(0)
    wanted = None if methods is None else ("non-private", *methods)
    for row, world, drawn, independent in _study_cells(models, sizes, epsilons, wanted, trials, seed, progress):
        for quantity, component in world.model.quantities.items():
            rng = cell_rng(seed, *row.values(), quantity)
            scores, _ = _judge(world, drawn, independent, component, rng)
            sample = drawn if component is None else drawn[..., component]
            if row["method"] == "non-private":  # the first of each cell; half of its draws against the other half
                reference, sample = sample[:, :200], sample[:, 200:]
            scaled = float(reference.std(axis=1).mean())
            distances = np.array(
                [
                    [diagnostics.mmd2(a, b, bandwidth) for bandwidth in (1.0, scaled)]
                    for a, b in zip(sample[:, :200], reference, strict=True)
                ]
            )
            kept = ("rmse", "interval_score", "crps", "coverage", "sd")
            distance = {
                "mmd2": distances[:, 0].mean(),
                "mmd2_se": distances[:, 0].std(ddof=1) / math.sqrt(len(distances)),
                "mmd2_scaled": distances[:, 1].mean(),
                "bandwidth_scaled": scaled,
            }
            rows.append({**row, "quantity": quantity, **distance, **{key: scores[key] for key in kept}})
    return pd.DataFrame(rows)


def traces(
    *, iterations: int = 500, chains: int = 3, n: int = 1000, epsilon: float = 0.1, trials: int = 1, seed: int = SEED
) -> pd.DataFrame:
    """Follow Gibbs chains from their first sweep.

    Parameters
    ----------
    iterations, chains : int
        How many sweeps of how many chains.
    n, epsilon
        The release.
    trials : int
        Taken for a uniform command line; one release of each model is followed.
    seed : int
        Of the release and the chains.

    Returns
    -------
    pandas.DataFrame
        Columns ``chain``, ``iteration``, and one for each model's theta, with its true value in a column beside it.

    Examples
    --------
    >>> from dpbook.experiments.expfam_study import traces
    >>> len(traces(iterations=20, chains=2))
    40

    Explained in :doc:`/book/exponential-families/noise-aware-inference`.
    """
    chain, iteration = np.divmod(np.arange(chains * iterations), iterations)
    table: dict[str, ArrayLike] = {"chain": chain, "iteration": iteration + 1}
    for name, outside in (("binomial", "all"), ("exponential", "redact"), ("exponential", "clip")):
        world = simulate(name, n, epsilon, trials=2, rng=cell_rng(seed, "traces", name))
        sampler = _package_sampler(world, outside)
        rng = cell_rng(seed, "traces", name, outside)
        kept = run(sampler.step, sampler.start(chains, rng), draws=iterations, burn_in=0, keep=["theta"], rng=rng)
        label = name if outside == "all" else f"{name} {outside}"
        table[label] = kept["theta"][:, :, 0].ravel()
        table[f"{label} truth"] = np.full(chain.size, world.theta[0])
    return pd.DataFrame(table)


def efficiency(
    *,
    trials: int = 20_000,
    share: float = 0.3,
    sizes: Sequence[int] = (100, 1000, 10_000, 100_000),
    epsilons: Sequence[float] = (0.1, 1.0),
    seed: int = SEED,
    progress: bool = False,
) -> pd.DataFrame:
    """Measure the variance of private estimators of a share, relative to the non-private optimum θ(1-θ)/n.

    Parameters
    ----------
    trials : int, default 20000
        Data sets a cell; a ratio's relative standard error is about √(2 / trials).
    share : float
        The true share θ.
    sizes, epsilons : sequences
        The grid.
    seed, progress
        As in :func:`calibration`.

    Returns
    -------
    pandas.DataFrame
        One row an estimator: the mean squared error relative to the optimum, its standard error, the asymptotic
        prediction (1 + T for a posterior sample at temperature T, 2 for a sample of the posterior of the noisy count,
        1 for its mean) and the same with the finite-n term 2 / (ε² n θ(1-θ)) of the noise.

    Examples
    --------
    >>> from dpbook.experiments.expfam_study import efficiency
    >>> table = efficiency(trials=4000, sizes=[100_000], epsilons=[1.0]).set_index("estimator")
    >>> table["predicted"].round(2).tolist()
    [1.0, 2.0, 5.39, 2.0, 1.0]

    Explained in :doc:`/book/exponential-families/information-bottleneck`.
    """
    rows = []
    spread = share * (1 - share)
    for n in tqdm(sizes, desc="sizes", disable=not progress):
        for epsilon in epsilons:
            rng = cell_rng(seed, "efficiency", n, float(epsilon))
            count = rng.binomial(n, share, trials).astype(float)
            noisy = np.clip(count + rng.laplace(scale=1 / epsilon, size=trials), 0, n)
            temperature = max(1.0, 2 * float(special.logit(1 - OPS_FLOOR)) / epsilon)
            noise = 2 / (epsilon**2 * n * spread)
            estimates = {
                "non-private mean": ((count + 1) / (n + 2), 1.0, 0.0),
                "non-private sample": (_truncated_beta(count, n, 1.0, rng), 2.0, 0.0),
                "posterior sample": (_truncated_beta(count, n, temperature, rng), 1 + temperature, 0.0),
                "noisy-count sample": (rng.beta(1 + noisy, 1 + n - noisy), 2.0, noise),
                "noisy-count mean": ((noisy + 1) / (n + 2), 1.0, noise),
            }
            for name, (estimate, limit, extra) in estimates.items():
                ratio = (estimate - share) ** 2 * n / spread
                rows.append(
                    {
                        "estimator": name,
                        "n": n,
                        "epsilon": epsilon,
                        "measured": ratio.mean(),
                        "standard_error": ratio.std(ddof=1) / math.sqrt(trials),
                        "predicted": limit,
                        "predicted_finite_n": limit + extra,
                    }
                )
    return pd.DataFrame(rows)


def _truncated_beta(count: Array, n: int, temperature: float, rng: np.random.Generator) -> Array:
    """Draw shares from the flattened posterior under a uniform prior, on [floor, 1 - floor], by the inverse CDF."""
    a, b = 1 + count / temperature, 1 + (n - count) / temperature
    low, high = special.betainc(a, b, OPS_FLOOR), special.betainc(a, b, 1 - OPS_FLOOR)
    return np.asarray(special.betaincinv(a, b, low + (high - low) * rng.random(count.shape)))


def bounds(
    *,
    trials: int = 400,
    cells: Sequence[tuple[int, float]] = ((100, 1.0), (1000, 0.1), (1000, 1.0)),
    public_range: tuple[float, float] = (0.0, 10.0),
    share: float = 0.2,
    seed: int = SEED,
    progress: bool = False,
) -> pd.DataFrame:
    """Ask what bounds that were taken from the data do to the calibration of an exponential rate.

    Bounds are fixed in advance; or they are the 2.5 and 97.5 % quantiles of the very data, or of the true law, handed
    over by an oracle (not private); or they are bought with a share of epsilon by private quantiles. All inference is
    collapsed and takes the bounds as fixed.

    Parameters
    ----------
    trials : int, default 400
        Worlds a cell.
    cells : sequence of (n, epsilon)
        The grid.
    public_range : (low, high)
        Where records can lie, for the private quantiles.
    share : float
        The part of epsilon that private bounds cost; the sum gets the rest.
    seed, progress
        As in :func:`calibration`.

    Returns
    -------
    pandas.DataFrame
        Columns of :func:`calibration`, with ``bounds`` for where the bounds came from.

    Examples
    --------
    >>> from dpbook.experiments.expfam_study import bounds
    >>> sorted(set(bounds(trials=20, cells=[(50, 1.0)])["bounds"]))
    ['fixed', 'oracle: data', 'oracle: law', 'private']

    Explained in :doc:`/book/exponential-families/unbounded-statistics`.
    """
    rows = []
    for n, epsilon in tqdm(cells, desc="cells", disable=not progress):
        world = simulate("exponential", n, epsilon, trials=trials, rng=cell_rng(seed, "bounds", n, epsilon))
        rng = cell_rng(seed, "bounds", n, epsilon, "noise")
        unit = rng.laplace(size=trials)
        for source in ("fixed", "oracle: data", "oracle: law", "private"):
            low, high = _bounds_of(source, world, public_range, share * epsilon, rng)
            spent = share * epsilon if source == "private" else 0.0
            for outside in ("redact", "clip"):
                drawn = _bounded_draws(world, low, high, outside, epsilon - spent, unit, rng)
                scores, _ = _judge(world, drawn, drawn.shape[1], None, rng)
                rows.append({"bounds": source, "outside": outside, "n": n, "epsilon": epsilon, **scores})
    return pd.DataFrame(rows)


def _bounds_of(
    source: str, world: World, public_range: tuple[float, float], epsilon: float, rng: np.random.Generator
) -> tuple[Array, Array]:
    """Return a lower and an upper bound for each trial."""
    trials = len(world.theta)
    if source == "fixed":
        low, high = world.model.family.bounds
        return np.full(trials, low), np.full(trials, high)
    if source == "oracle: data":
        low, high = np.quantile(world.records, [0.025, 0.975], axis=1)
        return low, high
    if source == "oracle: law":
        return -math.log(0.975) / world.theta, -math.log(0.025) / world.theta
    both = [private_bounds(x, public_range=public_range, epsilon=epsilon, rng=rng) for x in world.records]
    return np.array([a for a, _ in both]), np.array([b for _, b in both])


def _bounded_draws(
    world: World, low: Array, high: Array, outside: str, epsilon: float, unit: Array, rng: np.random.Generator
) -> Array:
    """Release with each trial's own bounds, and draw from the collapsed posterior that takes them as fixed."""
    x, edges = world.records, (low[:, None], high[:, None])
    inside = (x >= edges[0]) & (x <= edges[1])
    released = np.clip(x, *edges) if outside == "clip" else np.where(inside, x, 0.0)
    scale = (high - low if outside == "clip" else np.maximum(high, high - low)) / epsilon
    noisy = released.sum(axis=1) + scale * unit
    theta, log_width = _parameter_grid(world.model.prior, 1200)
    moments = [Exponential(a, b).moments(theta, outside) for a, b in zip(low, high, strict=True)]
    mean = np.stack([m[:, 0] for m, _ in moments])
    variance = np.stack([c[:, 0, 0] for _, c in moments])
    log_density = normal_laplace_logpdf(
        noisy[:, None], world.n * mean, world.n * np.maximum(variance, 0.0), scale[:, None]
    )
    log_density = log_density + world.model.prior.log_density(theta) + log_width
    return _inverse_cdf_draws(theta, log_density, 400, rng)


# The source's truncated sampler as printed, for comparison only

PRINTED = ("corrected", "line 10 only", "independent regions only", "as printed", "literal m = nq")


def printed(
    *,
    trials: int = 400,
    cells: Sequence[tuple[int, float]] = ((100, 0.1), (100, 1.0), (1000, 0.1), (1000, 1.0)),
    variants: Sequence[str] = PRINTED,
    seed: int = SEED,
    progress: bool = False,
) -> pd.DataFrame:
    """Run the truncated Gibbs sampler as printed in the source, and with each of its faults alone.

    Faults: line 10 redraws the released sum without looking at the release; the sums over the three regions are taken
    as independent; read literally, a region's mean is n q. An exponential rate, redacted.

    Parameters
    ----------
    trials : int, default 400
        Worlds a cell.
    cells : sequence of (n, epsilon)
        The grid.
    variants : sequence of str
        Of ``PRINTED``.
    seed, progress
        As in :func:`calibration`.

    Returns
    -------
    pandas.DataFrame
        Columns of :func:`calibration` but for coverage, which thirty ranked draws cannot tell where a method fails
        badly; ``variant``; and ``sd_ratio``, the mean posterior sd over that of the collapsed posteriors of the same
        releases.

    Examples
    --------
    >>> from dpbook.experiments.expfam_study import printed
    >>> table = printed(trials=30, cells=[(100, 1.0)], variants=["line 10 only"])
    >>> bool(table["sd_ratio"].iloc[-1] > 1.05)
    True

    Explained in :doc:`/book/exponential-families/unbounded-statistics`.
    """
    rows = []
    for n, epsilon in tqdm(cells, desc="cells", disable=not progress):
        world = simulate("exponential", n, epsilon, trials=trials, rng=cell_rng(seed, "printed", n, epsilon))
        reference: float | None = None
        for variant in ("collapsed", *(one_of("variants", each, PRINTED) for each in variants)):
            rng = cell_rng(seed, "printed", n, epsilon, variant)
            if variant == "collapsed":
                drawn, independent = posterior_draws(world, "collapsed", "redact", rng=rng)
            else:
                drawn, independent = _gibbs_draws(world, "redact", _printed_sampler(world, variant), rng)
            scores, _ = _judge(world, drawn, independent, None, rng)
            scores = {key: value for key, value in scores.items() if not key.startswith("coverage")}
            reference = scores["sd"] if reference is None else reference
            rows.append(
                {"variant": variant, "n": n, "epsilon": epsilon, "sd_ratio": scores["sd"] / reference, **scores}
            )
    return pd.DataFrame(rows)


def _printed_sampler(world: World, variant: str) -> _Sampler:
    """Return the sampler with the faults of one variant; it starts as the package's does."""
    start, step = _package_sampler(world, "redact")
    if variant == "corrected":
        return _Sampler(start, step)
    noisy, scale = world.noisy["redact"], world.scale["redact"]
    independent, redraw = variant != "line 10 only", variant != "independent regions only"
    literal = variant == "literal m = nq"
    n = np.asarray(float(world.n))

    def faulty(rng: np.random.Generator, state: GibbsState) -> tuple[GibbsState, None]:
        tail, centre = _regions(world, state.theta, literal)
        middle, spread = _product(centre, noisy[:, 0], state.noise_variance[..., 0])
        # As printed, only the total must be positive; the corrected sampler asks it of the released sum too.
        whole = independent and redraw
        released = rng.normal(middle, np.sqrt(spread)) if whole else _above_zero(middle, spread, rng)
        gain = 0.0 if independent else tail.covariance / centre.variance
        left = np.maximum(tail.variance - gain * tail.covariance, 0.0)
        if independent:
            left = left + tail.dependence
        total = _above_zero(released + tail.mean + gain * (released - centre.mean), left, rng)
        theta = world.model.family._draw_parameter(world.model.prior, total[..., None], n, rng)
        if redraw:  # line 10: from N(m, V) at the new theta, as if nothing had been released
            _, centre = _regions(world, theta, literal)
            released = rng.normal(centre.mean, np.sqrt(centre.variance))
        variance = draw_noise_variance(noisy - released[..., None], scale, rng)
        return GibbsState(theta, released[..., None], variance), None

    return _Sampler(start, faulty)


class _Tail(NamedTuple):
    mean: Array
    variance: Array
    covariance: Array  # with the centre's sum
    dependence: Array  # what the variance gains if the two tails are taken as independent


class _Centre(NamedTuple):
    mean: Array
    variance: Array


def _regions(world: World, theta: Array, literal: bool) -> tuple[_Tail, _Centre]:
    """Return moments of the sums below, inside and above the bounds: m = n I1, V = n (I2 - I1²), Cov = -n I1 I1'."""
    n = float(world.n)
    # E[x^k; x < c] = k! P(k + 1, θc) / θ^k for an exponential variable, P the regularised incomplete gamma function.
    edges = [special.gammainc(k + 1, theta * bound) for bound in world.model.family.bounds for k in range(3)]
    scale = [math.factorial(k) / theta**k for k in range(3)]
    low = [scale[k] * edges[k] for k in range(3)]
    mid = [scale[k] * (edges[3 + k] - edges[k]) for k in range(3)]
    high = [scale[k] * (1 - edges[3 + k]) for k in range(3)]
    order = 0 if literal else 1
    tail = _Tail(
        mean=n * (low[order] + high[order]),
        variance=n * (low[2] - low[1] ** 2 + high[2] - high[1] ** 2 - 2 * low[1] * high[1]),
        covariance=-n * mid[1] * (low[1] + high[1]),
        dependence=2 * n * low[1] * high[1],
    )
    return tail, _Centre(n * mid[order], n * (mid[2] - mid[1] ** 2))


def _product(centre: _Centre, noisy: Array, noise: Array) -> tuple[Array, Array]:
    gain = centre.variance / (centre.variance + noise)
    return centre.mean + gain * (noisy - centre.mean), centre.variance * (1 - gain)


def _above_zero(mean: Array, variance: Array, rng: np.random.Generator) -> Array:
    """Draw normals given that they are positive, by the inverse of the upper tail, in logarithms."""
    sd = np.sqrt(np.maximum(variance, np.finfo(float).tiny))
    tail = np.log1p(-rng.random(mean.shape)) + special.log_ndtr(mean / sd)
    return np.asarray(np.maximum(mean - sd * special.ndtri_exp(tail), 0.0))


# Results on disk, and the command line

STUDIES: Mapping[str, Study] = {
    "calibration": calibration,
    "ranks": ranks,
    "utility": utility,
    "traces": traces,
    "efficiency": efficiency,
    "bounds": bounds,
    "printed": printed,
}


def load(name: str, folder: str | Path = RESULTS) -> pd.DataFrame:
    """Return the committed result of a study at full size.

    Parameters
    ----------
    name : str
        A key of ``STUDIES``.
    folder : path, optional
        Where the tables are; by default those of the book.

    Returns
    -------
    pandas.DataFrame
        With ``attrs``: seed, trials, version and seconds that it took.

    Examples
    --------
    >>> from dpbook.experiments.expfam_study import load
    >>> load("efficiency").attrs["trials"]
    20000

    Explained in :doc:`/book/exponential-families/calibration-and-utility`.
    """
    return load_table(name, STUDIES, folder)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run studies and write their tables: ``python -m dpbook.experiments.expfam_study calibration --progress``.

    Parameters
    ----------
    arguments : sequence of str, optional
        Command-line arguments; by default those of the process.

    Examples
    --------
    >>> import tempfile
    >>> from dpbook.experiments.expfam_study import main
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     main(["efficiency", "--trials", "100", "--out", folder])  # doctest: +ELLIPSIS
    efficiency: 40 rows, ... s

    Explained in :doc:`/book/exponential-families/calibration-and-utility`.
    """
    run_command(arguments, STUDIES, folder=RESULTS, seed=SEED, doc=main.__doc__)


if __name__ == "__main__":
    main()
