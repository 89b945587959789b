"""Releases of every family: the stated noise, the stated privacy, any form of data, the budget first."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from dpbook import BudgetExceeded, PrivacyBudget, Release, expfam
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
)

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
    sums = [family._released(np.array(x, dtype=float)[:, None], outside).sum(axis=0) for x in (one, other)]
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
    return [family._released(x[:, None], outside).sum(axis=0) for x in (one, other)]


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
    exact = family._released(x[:, None], "clip").sum(axis=0)
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
        (Multinomial(3), [0, 3], {}, "x must"),
        (Multinomial(3), [0.5], {}, "x must"),
        (Poisson(0, 5), [0.5], {}, "x must"),
        (Poisson(0, 5), [-1], {}, "x must"),
        (Exponential(0, 5), [np.nan], {}, "x must"),
        (Exponential(0, 5), [[1, 2]], {}, "x must"),
        (Normal(0, 5), [], {}, "x must"),
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
