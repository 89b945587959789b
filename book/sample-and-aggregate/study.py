"""The studies of chapter 2: how near sample-and-aggregate comes to the full-data posterior, and what decides it.

Every study simulates many data sets at once, splits them, asks all partitions of all data sets for their posteriors in
one batch, and compares the aggregates, with and without noise, with the full-data answer. Studies measure methods; they
publish nothing and spend no budget. ``python tools/study.py sample-and-aggregate`` lists them.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import special

from dpbook import Release
from dpbook.aggregate import (
    Centred,
    ConjugateRegression,
    Moments,
    SemiConjugateRegression,
    SparseVector,
    Zellner,
    fisher_probability,
    fisher_slope,
    infer,
    preview_probability,
    probability_nonprivate,
    quantile_nonprivate,
    release_bounds,
    release_probability,
    release_quantile,
    rescale_probability,
    residual_sd,
)
from dpbook.datasets import load_cps_earnings
from dpbook.studies import Study, cell_rng

Array = NDArray[np.float64]

SEED = 2018
N = 100_000
SLOPE = 2.0
CUTOFFS = tuple(np.arange(-3.0, 3.01, 0.5))  # in full-data posterior sds from the true slope
P_MIN = 0.001
LARGEST = -2 * math.log(P_MIN)
PROBABILITIES = (0.05, 0.25, 0.5, 0.75, 0.95)
QUARTILES = (0.05, 0.25, 0.5, 0.75, 0.95)  # of answers over data sets
EPSILONS = (0.25, 1.0, 4.0)
DESIGNS = ("normal", "skewed")
LEVEL = 0.95  # of all intervals
SEARCHES: Mapping[str, Centred | SparseVector] = {"centred": Centred((-10.0, 10.0)), "sparse-vector": SparseVector()}
EARNINGS = ConjugateRegression(response="log_earnings", covariates=["education"], coefficient="education")
_BATCH = 10  # data sets simulated at a time


# Simulated data sets


def simulate(
    trials: int,
    partitions: int,
    rng: np.random.Generator,
    *,
    noise_sd: float = 1.0,
    design: str = "normal",
    unequal: float = 0.0,
    n: int = N,
) -> Iterator[tuple[Moments, Moments]]:
    """Simulate data sets y = 1 + 2x + error, split, and yield the moments of their partitions and of the whole.

    Records are independent, so that cutting them in order is a random split; n is rounded down to a multiple of the
    number of partitions. Skewed: log-normal x and exponential errors, both standardised. ``unequal`` is the sd of the
    logarithm of the factor by which x is spread in each partition.
    """
    size = n // partitions
    for start in range(0, trials, _BATCH):
        batch = min(_BATCH, trials - start)
        shape = (batch * partitions, size)
        if design == "normal":
            x, error = rng.standard_normal(shape), rng.standard_normal(shape)
        else:
            x = (np.exp(rng.standard_normal(shape)) - math.exp(0.5)) / math.sqrt((math.e - 1) * math.e)
            error = rng.standard_exponential(shape) - 1
        if unequal:
            x *= np.exp(unequal * rng.standard_normal((len(x), 1)))
        parts = Moments.of_groups([x, 1 + SLOPE * x + noise_sd * error])
        yield parts, pooled(parts, batch)


def pooled(parts: Moments, groups: int) -> Moments:
    """Return the moments of consecutive partitions put together."""
    k = parts.mean.shape[1]
    n = parts.n.reshape(groups, -1)
    mean = parts.mean.reshape(groups, -1, k)
    total = n.sum(axis=1)
    centre = (n[..., None] * mean).sum(axis=1) / total[:, None]
    gap = mean - centre[:, None]
    within = parts.scatter.reshape(groups, -1, k, k).sum(axis=1)
    return Moments(total, centre, within + np.einsum("gm,gmi,gmj->gij", n, gap, gap))


def cutoffs_of(n: int) -> Array:
    """Return the cutoffs in units of the slope."""
    return SLOPE + np.array(CUTOFFS) / math.sqrt(n)


def full_and_parts(
    trials: int,
    partitions: int,
    cutoffs: Array,
    rng: np.random.Generator,
    model: ConjugateRegression | None = None,
    **options: Any,
) -> tuple[Array, Array]:
    """Return the full-data probabilities, (trials, K), and those of the partitions, (trials, M, K)."""
    asked = ConjugateRegression() if model is None else model
    full, parts = [], []
    for split, whole in simulate(trials, partitions, rng, **options):
        full.append(ConjugateRegression().probability(whole, cutoffs))
        p = asked.probability(split, cutoffs, prior_power=1 / partitions)
        parts.append(p.reshape(len(whole.n), partitions, len(cutoffs)))
    return np.concatenate(full), np.concatenate(parts)


def aggregates(p: Array) -> tuple[Array, Array]:
    """Return the means, and the sums of clipped -2 log p, over partitions."""
    with np.errstate(divide="ignore"):
        return p.mean(axis=1), np.minimum(-2 * np.log(p), LARGEST).sum(axis=1)


def spread_of(prefix: str, answers: Array, levels: Sequence[float] = QUARTILES) -> dict[str, float]:
    """Return quantiles over data sets, under names such as ``q05``."""
    return {f"{prefix}{round(100 * q):02d}": float(np.quantile(answers, q)) for q in levels}


def regressed(z: Array, score: Array) -> tuple[float, float, Array, float]:
    """Return slope and intercept of z-scores on full-data ones within 2 sds, all residuals, and the sd of those."""
    near = np.abs(z) <= 2
    slope, intercept = np.polyfit(z[near], score[near], 1)
    left = score - slope * z - intercept
    return slope, intercept, left, left[near].std()


# Probabilities


def probabilities(*, trials: int, seed: int, epsilon: float = 0.25, partitions: int = 1000) -> pd.DataFrame:
    """Compare private posterior probabilities with full-data ones on the source's design (figures 3.1 to 3.4).

    100,000 records, partitions of 100, slope 2, unit noise, thirteen cutoffs, each released with epsilon of its own as
    in the source. The column ``mean`` over data sets is what the source calls, after Rubin, calibration
    probabilities: its equations 3.12 and 3.18 ask that the three means agree. ``"…, small g"`` have Zellner's g as
    displayed in the source; ``"fisher as printed"`` has its noise.
    """
    cutoffs = cutoffs_of(N)
    full, p = full_and_parts(trials, partitions, cutoffs, cell_rng(seed, "probabilities"))
    # The same seed gives the same data sets, here with g the size of a partition, as displayed in the source.
    small = ConjugateRegression(prior=Zellner(g=N / partitions))
    _, shrunk = full_and_parts(trials, partitions, cutoffs, cell_rng(seed, "probabilities"), small)
    rows = _by_cutoff({"method": "non-private", "noise": False}, full, full)
    noise = cell_rng(seed, "probabilities", "noise").laplace(size=full.shape) / epsilon
    for suffix, values in (("", p), (", small g", shrunk)):
        mean, total = aggregates(values)
        for noisy in (False, True):
            lifted = mean + noisy * noise / partitions
            answers = {
                "normality": rescale_probability(lifted, partitions),
                "normality as printed": rescale_probability(lifted, partitions, rescale="source"),
                "fisher": fisher_probability(total + noisy * noise * LARGEST, partitions),
                "fisher as printed": fisher_probability(total + noisy * noise * LARGEST / partitions, partitions),
            }
            for method, answer in answers.items():
                if not (suffix and "printed" in method) and (noisy or method != "fisher as printed"):
                    rows += _by_cutoff({"method": method + suffix, "noise": noisy}, answer, full)
    return pd.DataFrame(rows)


def _by_cutoff(label: Mapping[str, Any], answer: Array, full: Array) -> list[dict[str, Any]]:
    difference = full - answer
    rows = []
    for k, cutoff in enumerate(CUTOFFS):
        row: dict[str, Any] = {**label, "cutoff": cutoff, "mean": answer[:, k].mean(), **spread_of("q", answer[:, k])}
        row |= {"difference": difference[:, k].mean(), "difference_sd": difference[:, k].std()}
        rows.append(row | spread_of("d", difference[:, k]) | {"rmse": math.sqrt((difference[:, k] ** 2).mean())})
    return rows


def z_scores(partitions: int, *, trials: int, seed: int) -> pd.DataFrame:
    """Regress the z-score of each method's answer, before noise, on the full-data z-score, beside theory at z = 0."""
    m = partitions
    full, p = full_and_parts(trials, m, cutoffs_of(N), cell_rng(seed, "z_scores", m))
    mean, total = aggregates(p)
    z = special.ndtri(full)
    corrected, loss = math.sqrt(2 * m - 1), residual_sd(m, size=N // m)
    ratio = math.sqrt(m / (2 * m - 1))
    fisher = special.ndtri(fisher_probability(total, m))
    answers = {
        "normality": (corrected * special.ndtri(mean), 1.0, loss),
        "normality as printed": (math.sqrt(m) * special.ndtri(mean), ratio, loss * ratio),
        "fisher": (fisher, fisher_slope(), residual_sd(m, method="fisher", size=N // m)),
    }
    rows = []
    for method, (answer, slope_theory, sd_theory) in answers.items():
        slope, intercept, left, sd = regressed(z, answer)
        row = {"method": method, "partitions": m, "slope": slope, "intercept": intercept}
        row |= {"residual_sd": sd, "residual_sd_middle": left[:, len(CUTOFFS) // 2].std()}
        rows.append(row | {"slope_theory": slope_theory, "residual_sd_theory": sd_theory})
    return pd.DataFrame(rows)


def unequal(spread: float, *, trials: int, seed: int, partitions: int = 1000) -> pd.DataFrame:
    """Show what partitions with unequal posterior variances do: the assumption that both methods make.

    ``spread`` is the sd of the log spread of x between partitions; a random split has about 0.
    """
    # The sd of the full-data posterior shrinks with the mean square of the spreads.
    cutoffs = SLOPE + (cutoffs_of(N) - SLOPE) * math.exp(-(spread**2))
    full, p = full_and_parts(trials, partitions, cutoffs, cell_rng(seed, "unequal", spread), unequal=spread)
    mean, total = aggregates(p)
    z = special.ndtri(np.clip(full, 1e-12, 1 - 1e-12))
    answers = {"normality": rescale_probability(mean, partitions), "fisher": fisher_probability(total, partitions)}
    rows = []
    for method, answer in answers.items():
        slope, _, _, sd = regressed(z, special.ndtri(np.clip(answer, 1e-12, 1 - 1e-12)))
        error = (answer - full)[:, len(CUTOFFS) // 2]
        row = {"spread": spread, "method": method, "slope": slope, "residual_sd": sd}
        rows.append(row | {"rmse": math.sqrt((error**2).mean())})
    return pd.DataFrame(rows)


def sizes(design: str, partitions: int, *, trials: int, seed: int) -> pd.DataFrame:
    """Measure the error at the true slope against the number of partitions at fixed n: noise against bias.

    Beside the RMSE of the corrected probability (epsilon infinite: without noise) stands what the preview expects.
    """
    m = partitions
    rng = cell_rng(seed, "sizes", design, m)
    full, p = full_and_parts(trials, m, np.array([SLOPE]), rng, design=design)
    mean = p.mean(axis=1)
    error = math.sqrt(2 * m - 1) * special.ndtri(mean) - special.ndtri(full)
    noise = rng.laplace(size=mean.shape)
    rows = []
    for epsilon in (*EPSILONS, math.inf):
        answer = rescale_probability(mean + noise / (m * epsilon), m)
        expected = preview_probability(n=N, partitions=m, epsilon=min(epsilon, 1e9), spread=0).notes["average_rmse"]
        row = {"design": design, "partitions": m, "epsilon": epsilon, "rmse": math.sqrt(((answer - full) ** 2).mean())}
        rows.append(row | {"expected": expected, "z_bias": error.mean(), "z_sd": error.std()})
    return pd.DataFrame(rows)


# Quantiles


def quantiles(partitions: int, *, trials: int, seed: int, epsilon: float = 0.9) -> pd.DataFrame:
    """Compare private posterior quantiles with full-data ones on the source's design (figures 4.1 and 4.2).

    100,000 records, slope 2, noise of variance 100, a semi-conjugate prior, partitions of 1,000 as in the source (and
    of 100). Each quantile is released with epsilon of its own: half for bounds by doubling, half for the mean, as in
    the source; or the same epsilon with centred bounds in a public range. Equation 4.6 asks that the means agree.
    Errors are absolute distances from the full-data quantile, in full-data posterior sds.
    """
    model, points, m = SemiConjugateRegression(), np.array(PROBABILITIES), partitions
    rng = cell_rng(seed, "quantiles", m)
    answers: dict[str, list[Array]] = {"non-private": [], "averaged": [], "sparse vector": [], "centred": []}
    for split, whole in simulate(trials, m, rng, noise_sd=10.0):
        answers["non-private"].append(model.quantile(whole, points))
        q = model.quantile(split, points, power=float(m)).reshape(len(whole.n), m, len(points))
        answers["averaged"].append(q.mean(axis=1))
        answers["sparse vector"].append(_noisy_quantiles(q, epsilon, SEARCHES["sparse-vector"], rng))
        answers["centred"].append(_noisy_quantiles(q, epsilon, SEARCHES["centred"], rng))
    joined = {method: np.concatenate(parts) for method, parts in answers.items()}
    full = joined["non-private"]
    sd = (full[:, -1] - full[:, 0]) / (special.ndtri(PROBABILITIES[-1]) - special.ndtri(PROBABILITIES[0]))
    rows = []
    for method, answer in joined.items():
        distance = np.abs(answer - full) / sd[:, None]
        for k, p in enumerate(PROBABILITIES):
            row: dict[str, Any] = {"partitions": m, "method": method, "probability": p}
            row |= {"mean": answer[:, k].mean(), "posterior_sd": sd.mean(), **spread_of("q", answer[:, k])}
            row |= spread_of("error", distance[:, k], (0.5, 0.95, 0.99))
            rows.append(row | spread_of("d", full[:, k] - answer[:, k]))
    return pd.DataFrame(rows)


def _noisy_quantiles(q: Array, epsilon: float, search: Centred | SparseVector, rng: np.random.Generator) -> Array:
    """Return private means of quantiles (data sets, M, K), each with epsilon of its own, as a release makes them."""
    m = q.shape[1]
    spent = search.spends(epsilon, m)
    answer = np.empty((len(q), q.shape[2]))
    for i in range(len(q)):
        for k in range(q.shape[2]):
            low, high, _ = release_bounds(q[i, :, k], search, epsilon=spent, rng=rng)
            noisy = np.clip(q[i, :, k], low, high).mean() + rng.laplace(scale=(high - low) / (m * (epsilon - spent)))
            answer[i, k] = min(max(noisy, low), high)
    return answer


def doubling(partitions: int, theta: float, *, trials: int, seed: int, epsilon: float = 0.45) -> pd.DataFrame:
    """Show where the doubling search stops for quantiles about 2: how often it overshoots, and how far.

    The partitions' quantiles have a spread of 10/√(records per partition) about 2.
    """
    rng = cell_rng(seed, "doubling", partitions, theta)
    values = SLOPE + 10 / math.sqrt(N / partitions) * rng.standard_normal((trials, partitions))
    found = [release_bounds(each, SparseVector(theta=theta), epsilon=epsilon, rng=rng) for each in values]
    high = np.array([each.high for each in found])
    row = {"partitions": partitions, "theta": theta, "below": (high < 4).mean(), "four": (high == 4).mean()}
    row |= {"eight": (high == 8).mean(), "beyond": (high > 8).mean()}
    return pd.DataFrame([row | {"capped": np.mean([not each.found for each in found]), "largest": high.max()}])


# Intervals


def coverage(kind: str, partitions: int, *, trials: int, seed: int) -> pd.DataFrame:
    """Measure how often 95 % intervals hold the full-data answer: of a probability, or of a quantile by a search.

    ``noise_alone`` is the coverage of an interval that knows of the Laplace noise only. At most 400 data sets for
    quantiles, which are released through the package itself.
    """
    m, rows = partitions, []
    if kind != "probability":
        for epsilon in (0.9, 4.0):
            rows.append({"quantity": "quantile", "method": kind, "partitions": m, "epsilon": epsilon})
            rng = cell_rng(seed, "coverage", kind, m, epsilon)
            rows[-1] |= _quantile_coverage(min(trials, 400), m, SEARCHES[kind], epsilon, rng)
        return pd.DataFrame(rows)
    full, p = full_and_parts(trials, m, cutoffs_of(N)[::3], cell_rng(seed, "coverage", m))
    for method, exact in zip(("normality", "fisher"), aggregates(p), strict=True):
        for epsilon in EPSILONS:
            rows.append({"quantity": "probability", "method": method, "partitions": m, "epsilon": epsilon})
            rng = cell_rng(seed, "coverage", m, method, epsilon)
            rows[-1] |= probability_coverage(exact, full, m, method, epsilon, rng)
    return pd.DataFrame(rows)


def probability_coverage(
    exact: Array, full: Array, m: int, method: str, epsilon: float, rng: np.random.Generator
) -> dict[str, float]:
    """Return the coverage of intervals for noisy versions of exact aggregates."""
    scale = 1 / (m * epsilon) if method == "normality" else LARGEST / epsilon
    noisy = exact + rng.laplace(scale=scale, size=exact.shape)
    answer = infer(as_release(noisy.ravel(), method, m, epsilon, scale))
    low, high = answer.interval(LEVEL, "probability").T
    held = (low <= full.ravel()) & (full.ravel() <= high)
    reach = scale * math.log(1 / (1 - LEVEL))  # the Laplace distribution's own two-sided quantile
    read = rescale_probability if method == "normality" else fisher_probability
    ends = [read(noisy + sign * reach, m) for sign in (-1, 1)]
    alone = (np.minimum(*ends) <= full) & (full <= np.maximum(*ends))
    return {"coverage": held.mean(), "width": (high - low).mean(), "noise_alone": alone.mean(), "count": held.size}


def as_release(noisy: Array, method: str, m: int, epsilon: float, scale: float) -> Release:
    """Return noisy aggregates of many data sets as if they were one release with as many cutoffs."""
    name = "mean" if method == "normality" else "sum"
    settings = {"method": method, "partitions": m, "cutoff": [0.0] * len(noisy), "nuisance": 1}
    return Release(
        values={name: noisy},
        model="posterior probability",
        mechanism="laplace",
        scale={name: scale},
        sensitivity={name: scale * epsilon},
        epsilon=epsilon,
        n=N,
        settings=settings | ({} if method == "normality" else {"p_min": P_MIN}),
        float_safe=False,
    )


def _quantile_coverage(
    trials: int, m: int, search: Centred | SparseVector, epsilon: float, rng: np.random.Generator
) -> dict[str, float]:
    model = ConjugateRegression()
    held, widths, alone = [], [], []
    for _ in range(trials):
        x = rng.standard_normal(N)
        data = np.column_stack([x, 1 + SLOPE * x + 10 * rng.standard_normal(N)])
        p = rng.uniform(0.05, 0.95)
        full = quantile_nonprivate(data, p, posterior=model)
        how: dict[str, Any] = {"posterior": model, "partitions": m, "epsilon": epsilon, "spread": 0, "rng": rng}
        release = release_quantile(data, p, **how, bounds=search)
        low, high = infer(release).interval(LEVEL, "quantile")
        held.append(low <= full <= high)
        widths.append(high - low)
        alone.append(abs(release["quantile"] - full) <= release.scale["quantile"] * math.log(1 / (1 - LEVEL)))
    means = {"coverage": np.mean(held), "width": np.mean(widths), "noise_alone": np.mean(alone)}
    return {name: float(value) for name, value in means.items()} | {"count": trials}


# Partitions that differ

_SHAPES = ("normal", "lognormal", "rare", "heavy", "skewed")


def records_of(shape: str, n: int, rng: np.random.Generator) -> Array:
    """Return records with slope 2 whose covariate or errors are, or are not, what theory likes.

    Lognormal covariates; a covariate that is 1 for 2 % and else 0; errors with three degrees of freedom; lognormal
    covariates with exponential errors.
    """
    x, error = rng.standard_normal((2, n))
    if shape in ("lognormal", "skewed"):
        x = np.exp(x)
    if shape == "rare":
        x = (rng.random(n) < 0.02).astype(np.float64)
    if shape == "heavy":
        error = rng.standard_t(3, n)
    if shape == "skewed":
        error = rng.standard_exponential(n) - 1
    return np.column_stack([x, 1 + SLOPE * x + error])


def differ(shape: str, partitions: int, size: int, *, trials: int, seed: int) -> pd.DataFrame:
    """Measure intervals where partitions differ: with their spread released, and without.

    Coverage of 95 % intervals for the full-data answer, median widths (of probabilities as they are, of quantiles in
    full-data posterior sds), and how often ``infer`` spoke of a doubt.
    """
    rng, model = cell_rng(seed, "differ", shape, partitions, size), ConjugateRegression()
    rows: dict[tuple[str, float, bool], list[tuple[float, float, bool]]] = {}
    for _ in range(trials):
        data, p = records_of(shape, partitions * size, rng), rng.uniform(0.02, 0.98)
        low, truth, high = quantile_nonprivate(data, [0.1587, p, 0.8413], posterior=model)
        for epsilon in (0.5, 2.0, 8.0):
            for told in (True, False):
                how: dict[str, Any] = {"posterior": model, "partitions": partitions, "epsilon": epsilon, "rng": rng}
                how |= {} if told else {"spread": 0}
                found = _looked_at(release_probability(data, truth, **how), p, 1.0)
                rows.setdefault(("probability", epsilon, told), []).append(found)
                bounds = Centred((truth - 60 * (high - low), truth + 40 * (high - low)))
                found = _looked_at(release_quantile(data, p, **how, bounds=bounds), truth, (high - low) / 2)
                rows.setdefault(("quantile", epsilon, told), []).append(found)
    table = []
    for (quantity, epsilon, told), seen in rows.items():
        row: dict[str, Any] = {"shape": shape, "partitions": partitions, "size": size, "quantity": quantity}
        held, widths, doubted = np.array(seen, dtype=float).T
        row |= {"epsilon": epsilon, "spread": told, "coverage": held.mean(), "width": np.median(widths)}
        table.append(row | {"doubted": doubted.mean()})
    return pd.DataFrame(table)


def _looked_at(release: Release, truth: float, unit: float) -> tuple[float, float, bool]:
    """Return whether an interval holds the truth, its width, and whether it came with a doubt."""
    with warnings.catch_warnings(record=True) as doubts:
        warnings.simplefilter("always")
        answer = infer(release)
    low, high = answer.interval(LEVEL, answer.name)
    return float(low <= truth <= high), (high - low) / unit, bool(doubts)


# Earnings


def earnings(partitions: int, epsilon: float, *, trials: int, seed: int) -> pd.DataFrame:
    """Release the return to a year of education in 61,395 earnings, many times over, beside the non-private answer.

    The return is the slope of log hourly earnings on years of education: the probability that it is above 8 %, and
    above the full-data posterior median; its 5 % and 95 % quantiles, released together. Each trial splits anew.
    """
    table = load_cps_earnings()
    table = table.assign(log_earnings=np.log(table["earnings"]))[["education", "log_earnings"]]
    full_quantiles = quantile_nonprivate(table, [0.05, 0.5, 0.95], posterior=EARNINGS)
    how: dict[str, Any] = {"posterior": EARNINGS, "partitions": partitions, "epsilon": epsilon, "spread": 0}
    how["rng"] = cell_rng(seed, "earnings", partitions, epsilon)
    rows = []
    for quantity, cutoff in {"above 8 %": 0.08, "above the median": float(full_quantiles[1])}.items():
        truth = 1 - float(probability_nonprivate(table, cutoff, posterior=EARNINGS))
        answers = [infer(release_probability(table, cutoff, **how)) for _ in range(trials)]
        ends = np.array([1 - each.interval(LEVEL, "probability") for each in answers])
        released = np.array([1 - each.estimate for each in answers])
        rows.append(_released(quantity, partitions, epsilon, truth, released, ends[:, ::-1]))
    search = Centred((-0.5, 0.5))
    both = [infer(release_quantile(table, [0.05, 0.95], **how, bounds=search)) for _ in range(trials)]
    for k, quantity in enumerate(("5 % quantile", "95 % quantile")):
        ends = np.array([each.interval(LEVEL, "quantile")[k] for each in both])
        released = np.array([each.estimate[k] for each in both])
        rows.append(_released(quantity, partitions, epsilon, float(full_quantiles[2 * k]), released, ends))
    return pd.DataFrame(rows)


def _released(quantity: str, m: int, epsilon: float, truth: float, released: Array, ends: Array) -> dict[str, Any]:
    row: dict[str, Any] = {"quantity": quantity, "partitions": m, "epsilon": epsilon, "nonprivate": truth}
    row |= {"mean": released.mean(), "sd": released.std(), "rmse": math.sqrt(((released - truth) ** 2).mean())}
    row |= spread_of("q", released, (0.05, 0.5, 0.95))
    return row | {"coverage": float(np.mean((ends[:, 0] <= truth) & (truth <= ends[:, 1])))}


_MANY = (10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 20_000)
STUDIES: dict[str, Study] = {
    "probabilities": Study(probabilities, trials=500, seed=SEED),
    "z_scores": Study(z_scores, [(100,), (1000,)], trials=1000, seed=SEED),
    "unequal": Study(unequal, [(spread,) for spread in (0.0, 0.1, 0.2, 0.4, 0.8)], trials=400, seed=SEED),
    "sizes": Study(sizes, [(design, m) for design in DESIGNS for m in _MANY], trials=400, seed=SEED),
    "quantiles": Study(quantiles, [(100,), (1000,)], trials=400, seed=SEED),
    "doubling": Study(doubling, [(m, theta) for m in (100, 1000) for theta in (0.8, 0.95)], trials=2000, seed=SEED),
    "coverage": Study(
        coverage,
        [("probability", 100), ("probability", 1000), *((kind, m) for m in (100, 1000) for kind in SEARCHES)],
        trials=1000,
        seed=SEED,
    ),
    "differ": Study(
        differ,
        [
            (shape, m, size)
            for size in (10, 50, 500)
            for m in (30, 100, 1000)
            for shape in _SHAPES
            if m * size < 500_000
        ],
        trials=20,
        seed=SEED,
    ),
    "earnings": Study(
        earnings, [(m, epsilon) for m in (100, 300, 600, 1200) for epsilon in EPSILONS], trials=100, seed=SEED
    ),
}
