"""What the interactive figures should say, computed by the package: a function for each, of what its sliders hold."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import integrate, optimize, stats

from dpbook import Release, expfam
from dpbook.accounting import advanced_composition, gaussian_scale, pure_composition_delta, zcdp_epsilon
from dpbook.datasets import load_fair
from dpbook.sensitivity import bounded_sum

FOLDER = Path(__file__).resolve().parents[2] / "book" / "_static" / "explorables"
DELTAS = {"laplace": 0.0, "gaussian-2": 1e-2, "gaussian-6": 1e-6}

Numbers = dict[str, Any]


@cache
def data() -> Numbers:
    """Return the data of the figures; the sections that show them check them against the data sets."""
    text = (FOLDER / "data.js").read_text(encoding="utf-8")
    found: Numbers = json.loads(text.split("dpx.data = ")[1].strip().removesuffix(";"))
    return found


def odds(noise: str, epsilon: float, seen: float, prior: float) -> Numbers:
    """Return densities, odds and rates of a count published with noise, one yes or one no apart."""
    count, delta = int((load_fair()["affairs"] > 0).sum()), DELTAS[noise]
    scale = gaussian_scale(sensitivity=1, epsilon=epsilon, delta=delta) if delta else 1 / epsilon
    law = stats.norm(scale=scale) if delta else stats.laplace(scale=scale)
    factor = law.pdf(seen - count) / law.pdf(seen - (count - 1))
    rates = [law.sf(seen - (count - 1)), law.sf(seen - count)]
    limit = min(np.exp(epsilon) * rates[0] + delta, 1 - np.exp(-epsilon) * (1 - delta - rates[0]))
    before = prior / 100
    return {
        "scale": scale,
        "factor": factor,
        "most": np.exp(epsilon),
        "after": before * factor / (before * factor + 1 - before),
        "falsePositive": rates[0],
        "truePositive": rates[1],
        "limit": min(1.0, limit),
        "right": (rates[1] + 1 - rates[0]) / 2,
        "mostRight": (np.exp(epsilon) + delta) / (1 + np.exp(epsilon)),
    }


def noise(n: int, epsilon: float, share: float) -> Numbers:
    """Return the errors of a released share."""
    look = expfam.preview(expfam.Binomial(), n=n, epsilon=epsilon, theta=share / 100)
    truth = 1 / (1 + np.exp(-epsilon))
    response = np.sqrt(truth * (1 - truth) / n) / (2 * truth - 1)
    worth = {name: n / (1 + (sd / look.sampling_sd) ** 2) for name, sd in (("l", look.noise_sd), ("r", response))}
    return {
        "sampling": look.sampling_sd,
        "laplace": look.noise_sd,
        "gaussian": gaussian_scale(sensitivity=1, epsilon=epsilon, delta=1e-6) / n,
        "response": response,
        "even": look.break_even_n,
        "worth": worth["l"],
        "responseWorth": worth["r"],
    }


def posterior(released: float, n: int, epsilon: float, prior: float) -> Numbers:
    """Return both posteriors of a released count, by mean, standard deviation and 95 % interval."""
    release = Release(
        values={"sum": np.array([released])},
        model="binomial",
        mechanism="laplace",
        scale={"sum": 1 / epsilon},
        sensitivity={"sum": 1.0},
        epsilon=epsilon,
        n=n,
        bounds={"x": (0, 1)},
        float_safe=False,
    )
    found = {}
    for name, method in (("naive", "naive"), ("aware", "exact")):
        law = expfam.posterior_density(release, expfam.Beta(prior, prior), method=method)
        found[name] = {"mean": law.mean, "sd": law.sd, "low": law.quantile(0.025), "high": law.quantile(0.975)}
    return found


def composition(epsilon: float, count: int, power: int) -> Numbers:
    """Return the total epsilon of so many releases by four accounts."""
    delta, total = 10.0**-power, count * epsilon
    excess = [pure_composition_delta(epsilon, count, at) - delta for at in (0.0, total)]
    return {
        "sum": total,
        "advanced": advanced_composition(epsilon, count, slack=delta)[0],
        "zcdp": min(total, zcdp_epsilon(count * epsilon**2 / 2, delta)),
        "optimal": 0.0
        if excess[0] <= 0
        else optimize.brentq(lambda at: pure_composition_delta(epsilon, count, at) - delta, 0, total),
    }


def clipping(cap: int, epsilon: float, times: float) -> Numbers:
    """Return the relative errors of a total of visits, with people clipped at a cap, and the best cap."""
    visits = np.repeat(np.arange(len(data()["visits"])), data()["visits"])

    def errors(at: int) -> NDArray[np.float64]:
        bias = (visits - visits.clip(0, at)).sum() / visits.sum()
        sd = stats.laplace(scale=bounded_sum(0, at) / epsilon).std() / (times * visits.sum())
        return np.array([bias, sd, np.hypot(bias, sd)])

    best = min(range(1, len(data()["visits"])), key=lambda at: errors(at)[2])
    bias, sd, error = errors(cap)
    above = times * np.sum(visits > cap)
    return {"bias": bias, "sd": sd, "error": error, "above": above, "best": {"cap": best, "error": errors(best)[2]}}


def sparse(epsilon: float, monotone: bool, seed: int) -> Numbers:
    """Return the law of the stop, by quadrature over the noisy threshold; the seed only matters to the picture."""
    counts, threshold = np.array(data()["workers"]["counts"]), data()["workers"]["threshold"]
    bar, query = stats.laplace(scale=2 / epsilon), stats.laplace(scale=(2 if monotone else 4) / epsilon)

    def chance(t: float, k: int) -> float:
        passed = np.prod(query.cdf(t - counts[:k])) * query.sf(t - counts[k])
        return float(bar.pdf(t - threshold) * passed)

    reach = threshold + np.array([-40, -5, -1, 0, 1, 5, 40]) * 2 / epsilon
    exact = int(np.argmax(counts >= threshold))
    near = range(exact - 2, exact + 3)
    law = [sum(integrate.quad(chance, a, b, args=(k,), limit=200)[0] for a, b in pairwise(reach)) for k in near]
    return {"bar": 2 / epsilon, "query": (2 if monotone else 4) / epsilon, "exact": exact, "near": sum(law)}


REFERENCES: dict[str, Callable[..., Numbers]] = {
    "odds": odds,
    "noise": noise,
    "posterior": posterior,
    "composition": composition,
    "clipping": clipping,
    "sparse": sparse,
}
