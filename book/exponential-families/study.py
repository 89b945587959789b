"""The studies of chapter 3: whether posteriors of noisy sufficient statistics are calibrated, and what they are worth.

Every study simulates many worlds at once, lets each method infer, and judges it. Run them with ``python tools/study.py
exponential-families NAME``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd
from scipy import special
from study_printed import VARIANTS, printed_sampler
from study_worlds import (
    MODELS,
    OPS_FLOOR,
    Array,
    World,
    gibbs_draws,
    inverse_cdf_draws,
    package_sampler,
    parameter_grid,
    posterior_draws,
    simulate,
)

from dpbook import diagnostics
from dpbook.expfam import Exponential, private_bounds
from dpbook.latent_noise import normal_laplace_logpdf
from dpbook.sampling import run
from dpbook.studies import Study, cell_rng, corrected, judge

SIZES = (10, 100, 1000)
EPSILONS = (0.01, 0.1, 1.0)
SEED = 20


@lru_cache(maxsize=128)
def _gibbs_cell(name: str, n: int, epsilon: float, outside: str, trials: int, seed: int) -> tuple[Array, int]:
    """Return the draws of Gibbs in one cell; several studies judge the same ones."""
    world = simulate(name, n, epsilon, trials=trials, rng=cell_rng(seed, name, n, epsilon))
    rng = cell_rng(seed, name, n, epsilon, outside, "gibbs")
    drawn, independent = posterior_draws(world, "gibbs", outside, rng=rng)
    drawn.setflags(write=False)
    return drawn, independent


def _judged(
    name: str, n: int, epsilon: float, trials: int, seed: int, methods: Sequence[str] | None
) -> Iterator[tuple[dict[str, Any], Array, dict[str, float], Array]]:
    """Simulate a cell once; yield, for each method and quantity, what names the row, draws, scores and ranks."""
    world = simulate(name, n, epsilon, trials=trials, rng=cell_rng(seed, name, n, epsilon))
    for outside, method in world.model.methods:
        if methods is not None and method not in methods:
            continue
        if method == "gibbs":
            drawn, independent = _gibbs_cell(name, n, epsilon, outside, trials, seed)
        else:
            rng = cell_rng(seed, name, n, epsilon, outside, method)
            drawn, independent = posterior_draws(world, method, outside, rng=rng)
        row = {"family": name, "outside": outside, "method": method, "n": n, "epsilon": epsilon}
        for quantity, component in world.model.quantities.items():
            chosen = drawn if component is None else drawn[..., component]
            rng = cell_rng(seed, *row.values(), quantity)
            scores, ranks = judge(_component(world, component), chosen, independent, rng)
            yield {**row, "quantity": quantity}, chosen, scores, ranks


def _component(world: World, component: int | None) -> Array:
    return world.theta if component is None else world.theta[..., component]


def calibration(
    name: str, n: int, epsilon: float, *, trials: int, seed: int = SEED, methods: Sequence[str] | None = None
) -> pd.DataFrame:
    """Judge every method in one cell by simulation-based calibration: a row for each method and quantity."""
    return pd.DataFrame(
        [{**row, **scores} for row, _, scores, _ in _judged(name, n, float(epsilon), trials, seed, methods)]
    )


def ranks(name: str, *, trials: int, seed: int = SEED, methods: Sequence[str] | None = None) -> pd.DataFrame:
    """Return the ranks judged at n = 1000 and epsilon = 0.01, one column for each method and quantity: for ECDFs."""
    columns = {}
    for row, _, _, found in _judged(name, 1000, 0.01, trials, seed, methods):
        parts = (row["family"], row["outside"], row["method"], row["quantity"])
        columns[" ".join(str(part).replace(" ", "_") for part in parts)] = found
    return pd.DataFrame(columns)


def _side_by_side(table: pd.DataFrame) -> pd.DataFrame:
    """Return blocks of rows that have columns of their own as one block."""
    return pd.DataFrame({name: column.dropna().to_numpy() for name, column in table.items()})


def utility(
    name: str, n: int, epsilon: float, *, trials: int, seed: int = SEED, methods: Sequence[str] | None = None
) -> pd.DataFrame:
    """Measure what the posteriors of one cell are worth: distance to the non-private one, and proper scores.

    ``mmd2`` is squared, unbiased, with a normal kernel of bandwidth 1, between at most 200 draws and 200 of the
    non-private posterior; ``mmd2_scaled`` has that posterior's mean sd in the cell as bandwidth.
    """
    rows = []
    references: dict[str, Array] = {}
    wanted = None if methods is None else ("non-private", *methods)
    for row, sample, scores, _ in _judged(name, n, float(epsilon), trials, seed, wanted):
        if row["method"] == "non-private":  # the first of each cell; half of its draws against the other half
            references[row["quantity"]], sample = sample[:, :200], sample[:, 200:]
        reference = references[row["quantity"]]
        scaled = float(reference.std(axis=1).mean())
        distances = np.array(
            [
                [diagnostics.mmd2(a, b, bandwidth) for bandwidth in (1.0, scaled)]
                for a, b in zip(sample[:, :200], reference, strict=True)
            ]
        )
        kept = {key: scores[key] for key in ("rmse", "interval_score", "crps", "coverage", "sd")}
        distance = {
            "mmd2": distances[:, 0].mean(),
            "mmd2_se": distances[:, 0].std(ddof=1) / math.sqrt(len(distances)),
            "mmd2_scaled": distances[:, 1].mean(),
            "bandwidth_scaled": scaled,
        }
        rows.append({**row, **distance, **kept})
    return pd.DataFrame(rows)


def traces(*, trials: int = 1, seed: int = SEED, iterations: int = 500, chains: int = 3) -> pd.DataFrame:
    """Follow Gibbs chains from their first sweep, for one release of each model at n = 1000 and epsilon = 0.1."""
    chain, iteration = np.divmod(np.arange(chains * iterations), iterations)
    table: dict[str, Any] = {"chain": chain, "iteration": iteration + 1}
    for name, outside in (("binomial", "all"), ("exponential", "redact"), ("exponential", "clip")):
        world = simulate(name, 1000, 0.1, trials=2, rng=cell_rng(seed, "traces", name))
        sampler = package_sampler(world, outside)
        rng = cell_rng(seed, "traces", name, outside)
        kept = run(sampler.step, sampler.start(chains, rng), per_chain=iterations, burn_in=0, keep=["theta"], rng=rng)
        label = name if outside == "all" else f"{name} {outside}"
        table[label] = kept["theta"][:, :, 0].ravel()
        table[f"{label} truth"] = np.full(chain.size, world.theta[0])
    return pd.DataFrame(table)


def efficiency(n: int, epsilon: float, *, trials: int, seed: int = SEED, share: float = 0.3) -> pd.DataFrame:
    """Measure the mean squared error of private estimators of a share, relative to the non-private optimum θ(1-θ)/n.

    Predicted are 1 + T for a posterior sample at temperature T, 2 for a sample of the posterior of the noisy count, 1
    for its mean; and the same with the finite-n term 2 / (ε² n θ(1-θ)) of the noise.
    """
    spread = share * (1 - share)
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
    rows = []
    for name, (estimate, limit, extra) in estimates.items():
        ratio = (estimate - share) ** 2 * n / spread
        measured = {"measured": ratio.mean(), "standard_error": ratio.std(ddof=1) / math.sqrt(trials)}
        predicted = {"predicted": limit, "predicted_finite_n": limit + extra}
        rows.append({"estimator": name, "n": n, "epsilon": epsilon, **measured, **predicted})
    return pd.DataFrame(rows)


def _truncated_beta(count: Array, n: int, temperature: float, rng: np.random.Generator) -> Array:
    """Draw shares from the flattened posterior under a uniform prior, on [floor, 1 - floor], by the inverse CDF."""
    a, b = 1 + count / temperature, 1 + (n - count) / temperature
    low, high = special.betainc(a, b, OPS_FLOOR), special.betainc(a, b, 1 - OPS_FLOOR)
    return np.asarray(special.betaincinv(a, b, low + (high - low) * rng.random(count.shape)))


def bounds(n: int, epsilon: float, *, trials: int, seed: int = SEED, share: float = 0.2) -> pd.DataFrame:
    """Ask what bounds that were taken from the data do to the calibration of an exponential rate.

    Bounds are fixed in advance; or they are the 2.5 and 97.5 % quantiles of the very data, or of the true law, handed
    over by an oracle (not private); or they are bought with a share of epsilon by private quantiles. All inference is
    collapsed and takes the bounds as fixed.
    """
    rows = []
    world = simulate("exponential", n, epsilon, trials=trials, rng=cell_rng(seed, "bounds", n, epsilon))
    rng = cell_rng(seed, "bounds", n, epsilon, "noise")
    unit = rng.laplace(size=trials)
    for source in ("fixed", "oracle: data", "oracle: law", "private"):
        low, high = _bounds_of(source, world, share * epsilon, rng)
        spent = share * epsilon if source == "private" else 0.0
        for outside in ("redact", "clip"):
            drawn = _bounded_draws(world, low, high, outside, epsilon - spent, unit, rng)
            scores, _ = judge(world.theta, drawn, drawn.shape[1], rng)
            rows.append({"bounds": source, "outside": outside, "n": n, "epsilon": epsilon, **scores})
    return pd.DataFrame(rows)


def _bounds_of(source: str, world: World, epsilon: float, rng: np.random.Generator) -> tuple[Array, Array]:
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
    both = [private_bounds(x, public_range=(0.0, 10.0), epsilon=epsilon, rng=rng) for x in world.records]
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
    theta, log_width = parameter_grid(world.model.prior, 1200)
    moments = [Exponential(a, b).moments(theta, outside) for a, b in zip(low, high, strict=True)]
    mean = np.stack([m[:, 0] for m, _ in moments])
    variance = np.stack([c[:, 0, 0] for _, c in moments])
    log_density = normal_laplace_logpdf(
        noisy[:, None], world.n * mean, world.n * np.maximum(variance, 0.0), scale[:, None]
    )
    log_density = log_density + world.model.prior.log_density(theta) + log_width
    return inverse_cdf_draws(theta, log_density, 400, rng)


def printed(
    n: int, epsilon: float, *, trials: int, seed: int = SEED, variants: Sequence[str] = VARIANTS
) -> pd.DataFrame:
    """Run the truncated Gibbs sampler as printed in the source, and with each of its faults alone.

    Columns of :func:`calibration` but for coverage, which thirty ranked draws cannot tell where a method fails badly;
    and ``sd_ratio``, the mean posterior sd over that of the collapsed posteriors of the same releases.
    """
    rows = []
    world = simulate("exponential", n, epsilon, trials=trials, rng=cell_rng(seed, "printed", n, epsilon))
    for variant in ("collapsed", *variants):
        rng = cell_rng(seed, "printed", n, epsilon, variant)
        if variant == "collapsed":
            drawn, independent = posterior_draws(world, "collapsed", "redact", rng=rng)
        else:
            drawn, independent = gibbs_draws(world, "redact", printed_sampler(world, variant), rng)
        scores, _ = judge(world.theta, drawn, independent, rng)
        scores = {key: value for key, value in scores.items() if not key.startswith("coverage")}
        rows.append({"variant": variant, "n": n, "epsilon": epsilon, "sd_ratio": scores["sd"], **scores})
    table = pd.DataFrame(rows)
    return table.assign(sd_ratio=table["sd_ratio"] / table["sd"].iloc[0])


def _grid(models: Sequence[str], sizes: Sequence[int], epsilons: Sequence[float]) -> list[tuple[str, int, float]]:
    return [(name, n, epsilon) for name in models for n in sizes for epsilon in epsilons]


STUDIES: Mapping[str, Study] = {
    "calibration": Study(calibration, _grid(tuple(MODELS), SIZES, EPSILONS), 400, SEED, corrected),
    "ranks": Study(ranks, [(name,) for name in MODELS], 400, SEED, _side_by_side),
    "utility": Study(
        utility,
        _grid(("binomial", "multinomial", "exponential"), (10, 30, 100, 300, 1000), (0.01, 0.1)),
        400,
        SEED,
    ),
    "traces": Study(traces, trials=1, seed=SEED),
    "efficiency": Study(
        efficiency, [(n, epsilon) for n in (100, 1000, 10_000, 100_000) for epsilon in (0.1, 1.0)], 20_000, SEED
    ),
    "bounds": Study(bounds, [(100, 1.0), (1000, 0.1), (1000, 1.0)], 400, SEED),
    "printed": Study(printed, [(100, 0.1), (100, 1.0), (1000, 0.1), (1000, 1.0)], 400, SEED),
}
