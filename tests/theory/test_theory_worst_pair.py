"""The worst pair of restricted outputs against dense meshes by scipy; the bound on what a search may have missed."""

import math

import numpy as np
import pytest
from scipy import stats

from dpbook import theory
from dpbook.theory import BetaBernoulli, NormalKnownVariance, _coins
from dpbook.theory._setting import make_setting

ROUNDING = 1e-7  # of the reference, whose tails are differences


def clamped(centre, move, scale, interval, epsilon):
    """Delta of clamped normals: the best of all events z ≥ t with t in the interval, and its mirror image."""
    low, high = interval
    t = np.linspace(low, high, 400)[1:]
    up, down = ((t - c - centre[:, None]) / scale for c in (move, 0.0))
    forward = stats.norm.sf(up) - math.exp(epsilon) * stats.norm.sf(down)
    t = np.linspace(low, high, 400)[:-1]
    up, down = ((t - c - centre[:, None]) / scale for c in (move, 0.0))
    back = stats.norm.cdf(down) - math.exp(epsilon) * stats.norm.cdf(up)
    return np.maximum(forward.max(axis=1), back.max(axis=1))


def truncated(centre, move, scale, interval, epsilon):
    """Delta of truncated normals, from scipy's tails at the point where the log ratio is epsilon, and its mirror."""

    def law(at):
        return stats.truncnorm((interval[0] - at) / scale, (interval[1] - at) / scale, loc=at, scale=scale)

    upper, lower = law(centre + move), law(centre)
    edge = np.full(centre.shape, interval[1])
    slope = move / scale**2
    zero = upper.logpdf(edge) - lower.logpdf(edge)  # the loss at the right end
    right, left = edge - (zero - epsilon) / slope, edge - (zero + epsilon) / slope
    forward = upper.sf(right) - math.exp(epsilon) * lower.sf(right)
    back = lower.cdf(left) - math.exp(epsilon) * upper.cdf(left)
    return np.maximum(np.maximum(forward, back), 0.0)


def dense(model, n, interval, restriction, epsilon):
    """The largest delta over many centres, most of them near the ends of the interval."""
    move, scale = 2 * model.bound / n, model.sigma / math.sqrt(n)
    low, high = -model.bound, model.bound - move
    shift = epsilon * scale**2 / move
    near = [
        end + offset + np.linspace(-1, 1, 201) * width
        for end in interval
        for offset in (0.0, -move / 2 - shift, -move / 2 + shift)
        for width in (30 * scale, 5 * move, 3 * (interval[1] - interval[0]))
    ]
    centres = np.clip(np.unique(np.concatenate([np.linspace(low, high, 501), *near])), low, high)
    with np.errstate(all="ignore"):
        found = (clamped if restriction == "clamp" else truncated)(centres, move, scale, interval, epsilon)
    return np.nanmax(found)


CASES = [
    (1e5, 10**6, (123.4, 123.5), 1.0),
    (1e4, 10**7, (12.34, 12.35), 1.0),
    (1e6, 10**8, (1234.5, 1234.51), 0.1),
    (3.0, 50, (-3.0, 3.0), 0.5),
    (2.0, 400, (1.99, 2.0), 0.2),
    (1.0, 30, (-0.1, 0.4), 0.8),
]


@pytest.mark.parametrize(("bound", "n", "interval", "epsilon"), CASES)
@pytest.mark.parametrize("restriction", ["clamp", "reject"])
def test_no_centre_of_a_dense_mesh_is_worse_than_the_pair_that_was_found(bound, n, interval, epsilon, restriction):
    model = NormalKnownVariance(bound=bound)
    options = {"epsilon": epsilon, "truncate": interval, "restriction": restriction}
    pair = theory.worst_pair("sample", model, n, **options)
    reference = dense(model, n, interval, restriction, epsilon)
    assert pair.delta >= reference * (1 - 1e-6) - ROUNDING
    assert theory.privacy_profile("sample", model, n, **options) == pytest.approx(pair.delta, rel=1e-9)
    # where the interval is not narrow against the noise, the mesh finds it too
    assert reference >= 0.98 * pair.delta - ROUNDING


def test_the_excess_of_a_search_is_never_zero_and_covers_what_a_mesh_finds():
    """Truncation by rejection is searched; one record, clamping and a list of all pairs are proofs."""
    rng = np.random.default_rng(5)
    for _ in range(25):
        bound, n = 10 ** rng.uniform(-1, 2), int(10 ** rng.uniform(0.5, 5))
        start = bound * rng.uniform(-1.2, 1.0)
        interval = (start, start + bound * 10 ** rng.uniform(-3, 0.3))
        epsilon = 10 ** rng.uniform(-1.5, 1)
        model = NormalKnownVariance(bound=bound)
        pair = theory.worst_pair("sample", model, n, epsilon=epsilon, truncate=interval)
        assert pair.excess > 0
        assert dense(model, n, interval, "reject", epsilon) <= pair.delta * (1 + pair.excess) + ROUNDING
        assert (
            theory.worst_pair("sample", model, n, epsilon=epsilon, truncate=interval, restriction="clamp").excess == 0
        )
    coins, many = BetaBernoulli(1, 1), _coins.LISTED_ONCE + 10
    assert theory.worst_pair("sample", coins, 1000, epsilon=0.3, truncate=(0.1, 0.9)).excess == 0
    assert theory.worst_pair("sample", coins, many, epsilon=0.05, truncate=(0.1, 0.9)).excess > 0


@pytest.mark.parametrize(
    ("prior", "n", "interval", "epsilon", "temperature"),
    [
        ((1, 1), 1000, (0.1, 0.9), 0.5, 1.0),
        ((0.5, 3), 2000, (0.3, 0.31), 0.2, 1.0),
        ((5, 5), 900, (0.2, 0.5), 0.05, 3.0),
        ((1, 1), 5000, (0.45, 0.55), 0.01, 1.0),
        ((1, 1), 3000, (0.01, 0.012), 0.02, 1.0),
    ],
)
def test_the_mesh_of_truncated_coins_finds_the_worst_of_all_pairs(prior, n, interval, epsilon, temperature):
    options = {"epsilon": epsilon, "truncate": interval, "temperature": temperature}
    listed = theory.worst_pair("sample", BetaBernoulli(*prior), n, **options)
    assert listed.excess == 0
    searched = theory.privacy_profile("sample", BetaBernoulli(*prior), n, **options)
    assert searched == pytest.approx(listed.delta, rel=1e-9)


def test_a_truncated_draw_of_coins_is_never_worse_than_its_least_curved_bell():
    """The bound behind the excess of many coins, against the list of all pairs of few."""
    rng = np.random.default_rng(6)
    for _ in range(40):
        low, high = np.sort(rng.beta(0.7, 0.7, size=2))
        n, epsilon, heat = int(rng.integers(1, 250)), rng.gamma(1, 1), 1 + rng.gamma(1, 1) * rng.integers(0, 2)
        options = {"truncate": (low, high), "temperature": heat}
        prior = BetaBernoulli(*rng.gamma(1, 3, size=2))
        exact = theory.privacy_profile("sample", prior, n, epsilon=epsilon, log=True, **options)
        setting = make_setting("sample", prior, n, **options)
        assert exact <= _coins.truncated_bound(setting, np.array([epsilon]))[0] + 1e-9


def test_truncating_or_clamping_a_bell_never_costs_anything_at_a_positive_delta():
    """The section on bells proves it: the profile is at most that of the unrestricted output, at every epsilon."""
    rng = np.random.default_rng(7)
    epsilon = np.array([0.0, 0.1, 0.5, 2.0, 8.0])
    for _ in range(15):
        bound, n = 10 ** rng.uniform(-1, 1.5), int(10 ** rng.uniform(0, 4))
        start = bound * rng.uniform(-1.5, 1.2)
        interval = (start, start + bound * 10 ** rng.uniform(-2, 0.5))
        model = NormalKnownVariance(bound=bound, prior_sd=10 ** rng.uniform(-2, 2))
        free = theory.privacy_profile("sample", model, n, epsilon=epsilon, log=True)
        for restriction in ("reject", "clamp"):
            options = {"truncate": interval, "restriction": restriction}
            held = theory.privacy_profile("sample", model, n, epsilon=epsilon, log=True, **options)
            assert np.all(held <= free + 1e-9)
