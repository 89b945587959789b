"""Releases of every family: the stated noise, the stated privacy, any form of data, the budget first."""

import math
import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from dpbook import BudgetExceeded, PrivacyBudget, Release, expfam, noise
from dpbook.accounting import discrete_gaussian_delta
from dpbook.audit import epsilon_lower_bound
from dpbook.expfam import (
    Beta,
    Binomial,
    CustomFamily,
    Dirichlet,
    Exponential,
    Gamma,
    Multinomial,
    Normal,
    NormalInverseGamma,
    Poisson,
    PrivateBounds,
)
from dpbook.expfam.releases import _grid
from dpbook.records import grid_unit

WEIBULL = CustomFamily(
    "weibull-2",
    0.0,
    3.0,
    (0.0, np.inf),
    statistic=lambda x: x**2,
    log_density=lambda x, theta: np.log(2 * theta * x) - theta * x**2,
    conjugate=lambda prior, s, n, rng: rng.standard_gamma(prior.shape + n, np.shape(s)) / (prior.rate + s),
    prior_type=Gamma,
)
# A family, data, and a neighbour at the largest distance: (clip, redact).
WORST = [
    (Binomial(), [[1, 1, 0], [1, 0, 0]], [[1, 1, 0], [1, 0, 0]]),
    (Multinomial(3), [[0, 1, 1], [0, 1, 2]], [[0, 1, 1], [0, 1, 2]]),
    (Exponential(1.0, 3.0), [[2, 1.0], [2, 3.0]], [[2, 3.0], [2, 99.0]]),
    (Poisson(2, 7), [[3, 2], [3, 7]], [[3, 7], [3, 50]]),
    (Normal(0, 20), [[10, 20.0], [10, 5.0]], [[10, 20.0], [10, 5.0]]),
    (WEIBULL, [[1, 0.0], [1, 3.0]], [[1, 3.0], [1, 9.0]]),
]
PRIORS = {
    "binomial": Beta(1, 1),
    "multinomial": Dirichlet([1, 1, 1]),
    "exponential": Gamma(2, 1),
    "poisson": Gamma(2, 1),
    "normal": NormalInverseGamma(8, 1, 2, 4),
    "weibull-2": Gamma(2, 1),
}


def by_name(value):
    return getattr(value, "name", None)


@pytest.mark.parametrize("outside", ["clip", "redact"])
@pytest.mark.parametrize(("family", "clipped", "redacted"), WORST, ids=by_name)
def test_the_worst_pair_is_at_the_stated_distance(family, clipped, redacted, outside):
    """So that an audit looks where it should: the pairs of these tests attain the sensitivity."""
    one, other = clipped if outside == "clip" else redacted
    sums = [family.released(np.array(x, dtype=float)[:, None], outside).sum(axis=0) for x in (one, other)]
    assert np.abs(sums[0] - sums[1]).sum() == pytest.approx(family.sensitivity(outside), rel=1e-12)


@pytest.mark.parametrize("outside", ["clip", "redact"])
@pytest.mark.parametrize(("family", "clipped", "redacted"), WORST, ids=by_name)
def test_an_audit_does_not_refute_a_release_at_its_worst_neighbours(family, clipped, redacted, outside):
    """Each bound exceeds the true epsilon with probability at most 1e-3; it must also see a fifth of it."""
    one, other = (np.array(x, dtype=float) for x in (clipped if outside == "clip" else redacted))
    center = exact_sums(family, one, other, outside)

    def noisy(x, rng):
        released = expfam.release(x, family, epsilon=1.0, outside=outside, rng=rng)["sum"]
        return float(np.abs(released - center[1]).sum() - np.abs(released - center[0]).sum())

    found = epsilon_lower_bound(noisy, one, other, trials=1500, rng=np.random.default_rng(11))
    assert 1 / 5 < found <= 1.0


def exact_sums(family, one, other, outside):
    """Return the two exact sums: the likelihood ratio of Laplace noise is a difference of distances to them."""
    return [family.released(x[:, None], outside).sum(axis=0) for x in (one, other)]


MUTANTS = [  # a sensitivity that a source prints or a hurried reader takes, and the pair that shows it false
    pytest.param(Multinomial(3), 1.0, "clip", [0, 1, 1], [0, 1, 2], id="multinomial, one count changes"),
    pytest.param(Exponential(4, 5), 1.0, "redact", [5.0], [99.0], id="redacted exponential, the width of the bounds"),
    pytest.param(Poisson(4, 5), 1.0, "redact", [5.0], [99.0], id="redacted Poisson, the width of the bounds"),
    pytest.param(Normal(-1, 1), 1.0, "clip", [1.0], [-0.5], id="normal, one per statistic"),
]


@pytest.mark.parametrize(("family", "printed", "outside", "one", "other"), MUTANTS)
def test_an_audit_catches_noise_for_too_small_a_sensitivity(family, printed, outside, one, other):
    """A right release would be refuted with probability at most 1e-3."""
    share = printed / family.sensitivity(outside)  # noise for the printed value is noise for epsilon / share
    one, other = (np.array(x, dtype=float) for x in (one, other))
    center = exact_sums(family, one, other, outside)

    def noisy(x, rng):
        released = expfam.release(x, family, epsilon=1 / share, outside=outside, rng=rng)["sum"]
        return float(np.abs(released - center[1]).sum() - np.abs(released - center[0]).sum())

    assert epsilon_lower_bound(noisy, one, other, trials=1500, rng=np.random.default_rng(12)) > 1.0


@pytest.mark.parametrize(("family", "clipped", "redacted"), WORST, ids=by_name)
def test_the_noise_has_the_stated_scale_in_every_coordinate(family, clipped, redacted):
    """KS at the 1e-4 level a coordinate; the coordinates' noises are uncorrelated within 5 standard errors."""
    x, rng = np.array(clipped[0], dtype=float), np.random.default_rng(13)
    exact = family.released(x[:, None], "clip").sum(axis=0)
    releases = [expfam.release(x, family, epsilon=0.5, rng=rng) for _ in range(400)]
    noise = np.array([each["sum"] for each in releases]) - exact
    scale = releases[0].scale["sum"]
    assert scale == pytest.approx(family.sensitivity("clip") / 0.5, rel=1e-6)
    for column in noise.T:
        assert stats.kstest(column, stats.laplace(scale=scale).cdf).pvalue > 1e-4
    if family.size > 1:
        off = np.corrcoef(noise.T)[np.triu_indices(family.size, 1)]
        assert np.abs(off).max() < 5 / np.sqrt(400)


@pytest.mark.parametrize(("family", "clipped", "redacted"), WORST, ids=by_name)
def test_a_real_release_is_float_safe_and_costs_what_it_says(family, clipped, redacted):
    budget = PrivacyBudget(3.0, 1e-6)
    real = expfam.release(clipped[0], family, epsilon=1.0, budget=budget)
    assert real.float_safe
    assert np.isfinite(real["sum"]).all()
    expfam.release(clipped[0], family, epsilon=1.0, mechanism="gaussian", delta=1e-6, budget=budget)
    assert [(e.epsilon, e.delta) for e in budget.ledger] == [(1.0, 0.0), (1.0, 1e-6)]


@pytest.mark.parametrize("outside", ["clip", "redact"])
@pytest.mark.parametrize(
    "family", [Multinomial(3), Exponential(0.5, 2), Poisson(1, 4), Normal(0, 3), WEIBULL], ids=by_name
)
def test_the_same_data_in_any_form_give_the_same_release(family, outside):
    dask = pytest.importorskip("dask.dataframe")
    pyarrow = pytest.importorskip("pyarrow")
    rng = np.random.default_rng(14)
    x = rng.integers(0, 3, 400) if family.name in ("multinomial", "poisson") else rng.exponential(1.0, 400)
    frame = pd.DataFrame({"x": x})
    forms = [
        x,
        x.tolist(),
        frame["x"],
        frame,
        pyarrow.table({"x": x}),
        (part for part in np.array_split(x, 7)),
        dask.from_pandas(frame, npartitions=3),
    ]
    if family.name == "weibull-2":
        forms = forms[:-1]  # a function written on the spot cannot travel to a cluster's workers
    made = [expfam.release(form, family, epsilon=1.0, outside=outside, rng=np.random.default_rng(15)) for form in forms]
    assert len(set(made)) == 1


@pytest.mark.filterwarnings("ignore::dpbook.posterior.ConvergenceWarning")
@pytest.mark.parametrize("outside", ["clip", "redact"])
@pytest.mark.parametrize(("family", "clipped", "redacted"), WORST, ids=by_name)
def test_a_release_survives_json_and_gives_the_same_posterior(family, clipped, redacted, outside, monkeypatch):
    monkeypatch.setattr("dpbook.expfam.inference._BURN_IN", 10)
    release = expfam.release(clipped[0], family, epsilon=1.0, outside=outside, rng=np.random.default_rng(16))
    again = Release.from_json(release.to_json())
    assert again == release
    given = family if isinstance(family, CustomFamily) else None
    one, other = (
        expfam.infer(each, PRIORS[family.name], draws=40, chains=2, rng=np.random.default_rng(17), family=given)
        for each in (release, again)
    )
    np.testing.assert_array_equal(one.draws["theta"], other.draws["theta"])


def test_release_charges_the_budget_before_it_draws_noise():
    for family in (Multinomial(2), Exponential(0, 1), Normal(0, 1)):
        budget, rng = PrivacyBudget(0.1), np.random.default_rng(18)
        state = rng.bit_generator.state
        with pytest.raises(BudgetExceeded):
            expfam.release([0, 1], family, epsilon=0.2, rng=rng, budget=budget)
        assert rng.bit_generator.state == state
        assert budget.ledger == ()


@pytest.mark.parametrize(
    ("family", "x", "changes", "named"),
    [
        (Multinomial(3), [0, 3], {}, "data must"),
        (Multinomial(3), [0.5], {}, "data must"),
        (Poisson(0, 5), [0.5], {}, "data must"),
        (Poisson(0, 5), [-1], {}, "data must"),
        (Exponential(0, 5), [np.nan], {}, "data must"),
        (Exponential(0, 5), [[1, 2]], {}, "data must"),
        (Normal(0, 5), [], {}, "data must"),
        (Normal(0, 5), [1], {"outside": "drop"}, "outside"),
        (Normal(0, 5), [1], {"epsilon": -1}, "epsilon"),
        (Normal(0, 5), [1], {"delta": 1e-6}, "delta"),
        (Normal, [1], {}, "family"),
    ],
)
def test_bad_arguments_are_named_and_cost_nothing(family, x, changes, named):
    budget = PrivacyBudget(10.0)
    with pytest.raises((TypeError, ValueError), match=named):
        expfam.release(x, family, **{"epsilon": 1.0, "budget": budget} | changes)
    assert budget.ledger == ()


def test_records_outside_the_bounds_raise_nothing():
    for family in (Exponential(0, 1), Normal(0, 1)):
        for outside, expected in (("clip", 1.5), ("redact", 0.5)):
            release = expfam.release(
                [-1e300, 1e300, 0.5], family, epsilon=1e6, outside=outside, rng=np.random.default_rng(19)
            )
            total = release["sum"][0] if family.name == "exponential" else release["sum"][1]
            ends = {"clip": 2.0, "redact": 0.0}[outside]  # squares of -1 and 1; the third record is the middle
            assert total == pytest.approx(expected if family.name == "exponential" else ends, abs=1e-3)


def test_private_bounds_hold_about_the_coverage_they_promise():
    """Over 40 releases at n = 2000 and epsilon = 1, the share inside is within 0.03 of 0.9 on average."""
    rng = np.random.default_rng(20)
    shares = []
    for _ in range(40):
        x = rng.exponential(size=2000)
        low, high = expfam.private_bounds(x, public_range=(0, 100), epsilon=1.0, coverage=0.9, rng=rng)
        assert 0 <= low < high <= 100
        shares.append(np.mean((x >= low) & (x <= high)))
    assert np.mean(shares) == pytest.approx(0.9, abs=0.03)


def test_private_bounds_charge_the_budget_first_and_name_what_is_wrong():
    budget, rng = PrivacyBudget(1.0), np.random.default_rng(21)
    expfam.private_bounds([1.0, 2.0], public_range=(0, 3), epsilon=0.9, rng=rng, budget=budget)
    state = rng.bit_generator.state
    with pytest.raises(BudgetExceeded):
        expfam.private_bounds([1.0, 2.0], public_range=(0, 3), epsilon=0.9, rng=rng, budget=budget)
    assert rng.bit_generator.state == state
    for changes in ({"coverage": 1.5}, {"epsilon": 0}, {"public_range": (3, 0)}):
        with pytest.raises(ValueError, match=next(iter(changes))):
            expfam.private_bounds([1.0, 2.0], **{"public_range": (0, 3), "epsilon": 1.0} | changes)


# The grid -------------------------------------------------------------------------------------------------------------


def drawn_on(monkeypatch, x, family, **how):
    """Return the exact sum that got Gaussian noise, and the noise's scale."""
    seen = []
    original = noise.add_gaussian_to_sum
    with monkeypatch.context() as patch:
        patch.setattr(noise, "add_gaussian_to_sum", lambda *a: seen.append(a[:2]) or original(*a))
        expfam.release(x, family, mechanism="gaussian", **how)
    return seen[0]


FAR = [
    Poisson(2**31, 2**31 + 1),
    Poisson(2**40, 2**40 + 3),
    Exponential(2.0**31, 2.0**31 + 1),
    Exponential(1e15, 1e15 + 1),
    Exponential(0, 1),
    Exponential(1.0, 2.0),
    Poisson(0, 5),
    Normal(1e12, 1e12 + 1),
    Binomial(),
    Multinomial(3),
]


@pytest.mark.parametrize("outside", ["clip", "redact"])
@pytest.mark.parametrize("epsilon", [0.5, 8.0, 1e5])
@pytest.mark.parametrize("family", FAR, ids=repr)
def test_gaussian_noise_keeps_its_promise_on_the_grid_it_is_drawn_on(family, epsilon, outside, monkeypatch):
    """The exact profile of the discrete noise, at the largest change in steps: of a grid that followed the magnitude of
    the bounds, Poisson(2**31, 2**31 + 1) had 3.1 times the claimed delta at epsilon 8."""
    delta, x = 1e-4, [0.0, 1.0]
    total, scale = drawn_on(monkeypatch, x, family, epsilon=epsilon, delta=delta, outside=outside)
    steps, sensitivity = scale / total.unit, family.sensitivity(outside, 2) / total.unit
    if steps < 2**16 and family.size == 1:
        assert discrete_gaussian_delta(epsilon, max(1, math.ceil(sensitivity)), steps) <= delta
    else:
        assert steps >= 2**16


@given(st.floats(-1e12, 1e12), st.floats(1e-6, 1e12))
def test_the_grid_follows_the_width_of_the_bounds_and_most_bounds_have_no_centre(low, width):
    if not low < low + width:
        return
    family = Normal(low, low + width)
    assert _grid(family, "clip") == (0.0, 2.0**-32)
    if low >= 0:
        family = Exponential(low, low + width)
        centre, unit = _grid(family, "clip")
        width = family.upper - family.lower
        assert unit <= 2.0**-21 * width
        assert centre in (0.0, family.lower)
        assert (centre == 0) == (family.upper <= 1024 * width)
        assert _grid(family, "redact") == (0.0, grid_unit(family.upper))


@pytest.mark.parametrize("mechanism", ["laplace", "gaussian"])
@pytest.mark.parametrize("family", FAR[:4], ids=repr)
def test_a_centre_is_public_and_added_back_so_that_values_keep_their_scale(family, mechanism):
    low, high = family.bounds
    how = {"epsilon": 1e5, "mechanism": mechanism, "delta": 1e-4 * (mechanism == "gaussian")}
    for rng in (None, np.random.default_rng(22)):
        release = expfam.release([0.0, low, high, high, 1e18], family, rng=rng, **how)
        assert release.centre == {"sum": low}
        assert release["sum"][0] == pytest.approx(5 * low + 3 * (high - low), abs=0.1 * (high - low) + 5 * low * 2**-52)
        assert Release.from_json(release.to_json()) == release
    assert expfam.release([1.0], Exponential(0, 1), epsilon=1.0).centre == {}


@pytest.mark.filterwarnings("ignore::dpbook.posterior.ConvergenceWarning")
def test_inference_from_narrow_bounds_far_from_zero_is_right():
    """Counts clipped to {2**31, 2**31 + 1} tell which share exceeds the lower one: a probit of theta, by hand.

    The prior's sd is fifty times the spread, so that it moves the mean by less than a hundredth of it.
    """
    rng, n, truth = np.random.default_rng(23), 4000, 2.0**31 + 20_000
    release = expfam.release(rng.poisson(truth, n), Poisson(2**31, 2**31 + 1), epsilon=1.0, rng=rng)
    share = (release["sum"][0] - n * 2.0**31) / n
    by_hand = 2.0**31 + math.sqrt(truth) * stats.norm.ppf(share)
    spread = math.sqrt(truth) * math.sqrt(share * (1 - share) / n) / stats.norm.pdf(stats.norm.ppf(share))
    for method in ("collapsed", "gibbs"):
        posterior = expfam.infer(release, Gamma(2.0**31, 1.0), method=method, draws=2000, rng=rng)
        assert posterior.mean("theta") == pytest.approx(by_hand, abs=0.3 * spread)
        assert posterior.sd("theta") == pytest.approx(spread, rel=0.15)


# Checked before charged -----------------------------------------------------------------------------------------------

EARLY = {
    "laplace, no epsilon at all": (lambda b: expfam.release([0, 1], Binomial(), epsilon=1e-300, budget=b), "epsilon"),
    "laplace, too wide": (lambda b: expfam.release([0, 1], Binomial(), epsilon=1e-12, budget=b), "epsilon"),
    "laplace, no scale": (lambda b: expfam.release([0, 1], Binomial(), epsilon=1e299, budget=b), "epsilon"),
    "gaussian, both small": (
        lambda b: expfam.release([0, 1], Binomial(), epsilon=1e-90, delta=1e-300, mechanism="gaussian", budget=b),
        "epsilon",
    ),
    "gaussian, too wide": (
        lambda b: expfam.release([0, 1], Binomial(), epsilon=1e-9, delta=1e-12, mechanism="gaussian", budget=b),
        "epsilon",
    ),
    "seeded, too wide": (
        lambda b: expfam.release([0, 1], Binomial(), epsilon=1e-12, budget=b, rng=np.random.default_rng(0)),
        "epsilon",
    ),
    "randomised response": (lambda b: expfam.release_randomized_response([0, 1], epsilon=1e-300, budget=b), "epsilon"),
    "randomised response, huge": (
        lambda b: expfam.release_randomized_response([0, 1], epsilon=1e300, budget=b),
        "epsilon",
    ),
    "posterior samples": (
        lambda b: expfam.release_posterior_samples(
            [0, 1], Binomial(), Beta(1, 1), epsilon=1e-200, support=(0.1, 0.9), budget=b
        ),
        "epsilon",
    ),
    "posterior samples, at the edge": (
        lambda b: expfam.release_posterior_samples(
            [0, 1], Exponential(0, 1e99), Gamma(2, 1), epsilon=1.0, support=(1e200, 1e250), budget=b
        ),
        "support",
    ),
    "bounds of nothing": (lambda b: expfam.private_bounds([], public_range=(0, 1), epsilon=1.0, budget=b), "data must"),
    "bounds of nothing left": (
        lambda b: expfam.private_bounds([0.5], public_range=(0, 1), epsilon=1e-200, budget=b),
        "epsilon",
    ),
    "bounds without a width": (
        lambda b: expfam.private_bounds([0.5], public_range=(-1.7e308, 1.7e308), epsilon=1.0, budget=b),
        "public_range",
    ),
    "an option that is none": (
        lambda b: expfam.release([0, 1], Binomial(), epsilon=1.0, budget=b, clip=True),  # type: ignore[call-overload]
        "clip",
    ),
    "bounds from elsewhere": (
        lambda b: expfam.release([0, 1], Exponential(0, 1), epsilon=1.0, budget=b, bounds_from=(0.0, 1.0)),
        "bounds_from",
    ),
    "bounds of another family": (
        lambda b: expfam.release(
            [0, 1], Exponential(0, 1), epsilon=1.0, budget=b, bounds_from=PrivateBounds(0.0, 2.0, 0.1)
        ),
        "bounds_from",
    ),
}


@pytest.mark.parametrize("name", EARLY)
def test_what_can_be_known_before_the_charge_is_said_before_it(name):
    call, named = EARLY[name]
    budget = PrivacyBudget(1e300, delta=0.9)
    with pytest.raises((TypeError, ValueError), match=named):
        call(budget)
    assert budget.ledger == ()


@pytest.mark.parametrize("epsilon", [1e-6, 1e3, 1e80])
def test_epsilons_at_the_ends_of_what_is_allowed_do_draw(epsilon):
    budget = PrivacyBudget(1e300)
    for rng in (None, np.random.default_rng(24)):
        for family in (Binomial(), Exponential(0, 1), Normal(0, 1)):
            assert np.isfinite(expfam.release([0, 1], family, epsilon=epsilon, rng=rng, budget=budget)["sum"]).all()
        expfam.release_randomized_response([0, 1], epsilon=epsilon, rng=rng, budget=budget)
        expfam.private_bounds([0.5], public_range=(0, 1), epsilon=epsilon, rng=rng, budget=budget)
        expfam.release_posterior_samples(
            [0, 1], Binomial(), Beta(1, 1), epsilon=epsilon, support=(0.1, 0.9), rng=rng, budget=budget
        )
    assert len(budget.ledger) == 12


BOUNDS = [(0, 1e-3), (0, 1), (-5e99, 1e100), (0, 1e-99), (1e99, 1e100), (-1e100, -1e99), (1e15, 1e15 + 1)]
REFUSED = [(0, 5e-324), (-1.7e308, 1.7e308), (0, 1.7e308), (-1.7e308, -1.6e308), (0, 1e-200)]
RECORDS = [0.0, 1.0, -1.0, 5e-324, 1e-300, 1e300, 1.7e308, -1.7e308, np.inf, -np.inf, 10**400, -(10**400)]


@pytest.mark.parametrize("outside", ["clip", "redact"])
@pytest.mark.parametrize("bounds", BOUNDS, ids=repr)
def test_neither_an_error_nor_a_warning_tells_of_a_record(bounds, outside):
    families = [Normal(*bounds)] + [Exponential(*bounds) for _ in range(bounds[0] >= 0)]
    with warnings.catch_warnings(), np.errstate(all="raise"):
        warnings.simplefilter("error")
        for family in families:
            for record in RECORDS:
                for rng in (None, np.random.default_rng(25)):
                    release = expfam.release([0.0, record], family, epsilon=1.0, outside=outside, rng=rng)
                    assert np.isfinite(release["sum"]).all()
        for record in RECORDS:
            expfam.private_bounds([0.0, record], public_range=(0, 1), epsilon=1.0)


@pytest.mark.parametrize("bounds", REFUSED, ids=repr)
def test_bounds_beyond_ordinary_numbers_are_refused_by_a_public_rule(bounds):
    for family in [Normal, Exponential, Poisson] if bounds[0] >= 0 else [Normal]:
        with pytest.raises(ValueError, match="lower, upper"):
            family(*bounds)


# Where bounds came from -----------------------------------------------------------------------------------------------


def test_a_release_between_private_bounds_says_what_they_cost():
    rng = np.random.default_rng(26)
    x = rng.exponential(size=500)
    bounds = expfam.private_bounds(x, public_range=(0, 50), epsilon=0.25, rng=rng)
    low, high = bounds
    assert (bounds.epsilon, len(bounds), bounds) == (0.25, 2, (low, high))
    assert pickle.loads(pickle.dumps(bounds)).epsilon == 0.25
    release = expfam.release(x, Exponential(*bounds), epsilon=1.0, bounds_from=bounds, rng=rng)
    assert release.settings["bounds_epsilon"] == 0.25
    assert "released privately from the same records at ε = 0.25" in release.report()
    assert expfam.infer(Release.from_json(release.to_json()), Gamma(2, 1), draws=10, rng=rng).draws["theta"].size >= 10
    assert "taken as public" in expfam.release(x, Exponential(0, 5), epsilon=1.0, rng=rng).report()


# Options --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("release", ["one", "none"])
@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"method": "collapsed", "progress": True}, "progress"),
        ({"method": "naive", "progress": True}, "progress"),
        ({"method": "exact", "progress": True}, "progress"),
        ({"method": "gibbs", "progress": 1}, "progress"),
        ({"method": "bogus"}, "method"),
        ({"method": "gibbs", "burn_in": 5}, "burn_in"),
        ({"draws": -3}, "draws"),
        ({"chains": 0}, "chains"),
        ({"rng": 7}, "rng"),
    ],
)
def test_an_option_that_a_method_does_not_take_is_named_before_anything_is_read(release, options, named):
    noisy = expfam.release([0, 1], Binomial(), epsilon=1.0, rng=np.random.default_rng(27))
    with pytest.raises((TypeError, ValueError), match=named):
        expfam.infer(noisy if release == "one" else [], Beta(1, 1), **options)


def test_a_default_method_without_a_progress_bar_refuses_one():
    noisy = expfam.release([0, 1], Binomial(), epsilon=1.0, rng=np.random.default_rng(28))
    with pytest.raises(TypeError, match="progress"):
        expfam.infer(noisy, Beta(1, 1), progress=True)
