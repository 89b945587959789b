"""Posteriors of models of one's own against exact ones: enumeration, quadrature, latent records; and bad models."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from scipy import special, stats

import dpbook
from dpbook import Doubt, Release, Schema, models
from dpbook.doubts import Misfit, PoorApproximation, PriorConflict
from dpbook.latent_noise import normal_laplace_logpdf
from dpbook.schema import Category, Flag, Integer, Number

NOISES = [("laplace", 0.0), ("gaussian", 1e-5)]
LINE = Schema({"x": Number(-30, 30)})
ANSWER = Schema({"yes": Flag()})


def shifted(parameters, uniforms):
    return parameters["mu"] + special.ndtri(uniforms[0])


def answer(parameters, uniforms):
    return uniforms[0] < parameters["share"]


def weighted_answer(parameters, uniforms):
    share = np.broadcast_to(parameters["share"], np.broadcast_shapes(parameters["share"].shape, uniforms[0].shape))
    return np.array([0.0, 1.0])[None, None] + 0 * share[..., None], np.stack([1 - share, share], axis=-1)


MEAN = models.Model({"mu": models.NormalPrior(0, 2)}, shifted)
SHARE = models.Model({"share": models.Beta(2, 3)}, answer)


def made(values, scale, n, mechanism, statistic, schema) -> Release:
    """Return a release with given noisy sums."""
    rng = np.random.default_rng(1)
    example = models.release(schema.example(n, rng=rng), statistic, schema=schema, epsilon=1.0, rng=rng)
    return Release(
        values={statistic.name: values},
        model="models",
        mechanism=mechanism,
        scale={statistic.name: scale},
        sensitivity=example.sensitivity,
        epsilon=1.0,
        delta=0.0 if mechanism == "laplace" else 1e-5,
        n=n,
        settings=example.settings,
        float_safe=False,
    )


def of_grid(log_density, grid):
    """Return log integral, mean and sd of a density on a grid."""
    weights = np.exp(log_density - log_density.max())
    total = weights.sum() * (grid[1] - grid[0])
    mean = (weights * grid).sum() / weights.sum()
    return np.log(total) + log_density.max(), mean, np.sqrt((weights * (grid - mean) ** 2).sum() / weights.sum())


@pytest.mark.parametrize(("mechanism", "_"), NOISES)
@pytest.mark.parametrize(("n", "scale"), [(40, 2.0), (400, 0.4), (20_000, 0.05), (200, 60.0)])
def test_a_normal_mean_has_the_posterior_and_the_evidence_of_quadrature(mechanism, _, n, scale):
    """Means within .15 sd, sds within 9 %: four standard errors of 1,000 effective draws; evidence within .35."""
    noisy = n * 1.3 / 30 + 0.7 * scale
    release = made([noisy], scale, n, mechanism, models.Powers("x"), LINE)
    posterior = models.infer(release, MEAN, rng=np.random.default_rng(7))
    grid = np.linspace(-12, 12, 100_001)
    if mechanism == "laplace":
        fit = normal_laplace_logpdf(noisy, n * grid / 30, n / 900, scale)
    else:
        fit = stats.norm.logpdf(noisy, n * grid / 30, np.sqrt(n / 900 + scale**2))
    evidence, mean, sd = of_grid(fit + stats.norm.logpdf(grid, 0, 2), grid)
    assert abs(posterior.mean("mu") - mean) < 0.15 * sd
    assert abs(posterior.sd("mu") / sd - 1) < 0.09
    assert abs(posterior.log_evidence.value - evidence) < 0.35
    assert 0 < posterior.log_evidence.error < 0.3


def exact_share(noisy, n, scale, mechanism):
    """Return the exact distribution function of the share, by enumeration of the n + 1 counts."""
    counts = np.arange(n + 1)
    gap = (noisy - (2 * counts - n)) / scale
    weight = stats.betabinom.pmf(counts, n, 2, 3) * np.exp(-np.abs(gap) if mechanism == "laplace" else -0.5 * gap**2)
    weight = weight / weight.sum()
    return lambda share: weight @ stats.beta.cdf(share, 2 + counts, 3 + n - counts)


@pytest.mark.parametrize(("mechanism", "_"), NOISES)
@pytest.mark.parametrize("n", [5, 20])
@pytest.mark.parametrize("simulate", [answer, weighted_answer])
def test_latent_records_follow_the_exact_posterior_of_a_noisy_count(mechanism, _, n, simulate):
    """By enumeration; 2,000 draws that are worth some 700: frequencies within 6 %, three standard errors."""
    release = made([1.4], 1.5, n, mechanism, models.Powers("yes"), ANSWER)
    model = models.Model({"share": models.Beta(2, 3)}, simulate)
    posterior = models.infer(release, model, rng=np.random.default_rng(3))
    assert posterior.method == "records"
    assert posterior.log_evidence is None
    exact = exact_share(1.4, n, 1.5, mechanism)
    for share in (0.25, 0.4, 0.55, 0.7):
        assert np.mean(posterior.draws["share"] < share) == pytest.approx(exact(share), abs=0.06)


@pytest.mark.parametrize("simulate", [answer, weighted_answer])
def test_moments_of_answers_agree_with_enumeration_when_there_are_many(simulate):
    release = made([-31.0], 4.0, 150, "laplace", models.Powers("yes"), ANSWER)
    model = models.Model({"share": models.Beta(2, 3)}, simulate)
    posterior = models.infer(release, model, rng=np.random.default_rng(3))
    assert posterior.method == "moments"
    exact = exact_share(-31.0, 150, 4.0, "laplace")
    for share in (0.35, 0.4, 0.45):
        assert np.mean(posterior.draws["share"] < share) == pytest.approx(exact(share), abs=0.06)


def two_sided(parameters, uniforms):
    u, v = uniforms
    return np.where(u < parameters["share"], 0.0, parameters["low"] + 4 + special.ndtri(v))


MIXED = models.Model({"share": models.Uniform(0.1, 0.9), "low": models.NormalPrior(0, 2)}, two_sided, uniforms=2)


def test_moments_agree_with_latent_records_for_a_mixture_at_n_60():
    """Two independent samplers: means within .3 sd, sds within 20 %."""
    rng = np.random.default_rng(5)
    data = np.where(rng.random(60) < 0.4, 0.0, 5 + rng.normal(size=60))
    schema = Schema({"x": Number(-10, 15)})
    release = models.release(data, models.Histogram("x", [0.5, 4, 6]), schema=schema, epsilon=1.0, rng=rng)
    one, other = (models.infer(release, MIXED, method=each, rng=rng) for each in ("moments", "records"))
    for name in MIXED.names:
        assert abs(one.mean(name) - other.mean(name)) < 0.3 * other.sd(name)
        assert one.sd(name) / other.sd(name) == pytest.approx(1, abs=0.2)


def test_a_density_or_an_update_moves_parameters_given_records():
    release = made([3.0], 2.0, 12, "laplace", models.Powers("yes"), ANSWER)

    def conjugate(parameters, records, rng):
        yes = records["yes"].sum(axis=1)
        return {"share": rng.beta(2 + yes, 3 + 12 - yes)}

    def log_density(parameters, records):
        return np.log(np.where(records["yes"] == 1, parameters["share"], 1 - parameters["share"]))

    exact = exact_share(3.0, 12, 2.0, "laplace")
    for given in ({"update": conjugate}, {"log_density": log_density}):
        model = models.Model({"share": models.Beta(2, 3)}, answer, **given)
        posterior = models.infer(release, model, draws=4000, rng=np.random.default_rng(3))
        for share in (0.4, 0.6):
            assert np.mean(posterior.draws["share"] < share) == pytest.approx(exact(share), abs=0.06)


def test_a_hundred_releases_are_one_batch_and_each_has_its_own_posterior():
    rng = np.random.default_rng(1)
    truth = rng.normal(0, 2, 100)
    releases = [
        models.release(each + rng.normal(size=80), models.Powers("x"), schema=LINE, epsilon=1.0, rng=rng)
        for each in truth
    ]
    found = models.infer(releases, MEAN, draws=400, rng=rng)
    gaps = [(each.mean("mu") - true) / each.sd("mu") for each, true in zip(found, truth, strict=True)]
    assert len(found) == 100
    assert 0.7 < np.std(gaps) < 1.3  # a sd of 100 gaps has a standard error of .07 (Laplace: .1)


def test_releases_of_the_same_records_put_together_say_more():
    rng = np.random.default_rng(1)
    data = 1 + rng.normal(size=200)
    parts = [models.release(data, models.Powers("x"), schema=LINE, epsilon=0.3, rng=rng) for _ in range(3)]
    both = dpbook.together(*parts)
    one, three = (models.infer(each, MEAN, rng=rng) for each in (parts[0], both))
    assert three.sd("mu") < 0.8 * one.sd("mu")
    noisy, scale = np.array([each["powers of x"][0] for each in parts]), parts[0].scale["powers of x"]
    grid, s = np.linspace(-8, 8, 2001), np.linspace(-8, 8, 8001)[:, None] * np.sqrt(200) / 30
    law = stats.norm.logpdf(s, 0, np.sqrt(200) / 30)
    sums = s + 200 * grid / 30
    fit = special.logsumexp(law - np.abs(noisy[:, None, None] - sums).sum(axis=0) / scale, axis=0)
    _, mean, sd = of_grid(fit + stats.norm.logpdf(grid, 0, 2), grid)
    assert abs(three.mean("mu") - mean) < 0.15 * sd
    assert three.sd("mu") / sd == pytest.approx(1, abs=0.09)


@pytest.mark.parametrize("n", [5, 60, 20_000])
@pytest.mark.parametrize("epsilon", [0.03, 30.0])
@pytest.mark.parametrize(("mechanism", "delta"), NOISES)
@pytest.mark.filterwarnings("ignore::dpbook.Doubt")
def test_extreme_sizes_and_losses_give_sane_posteriors(n, epsilon, mechanism, delta):
    rng = np.random.default_rng(9)
    release = models.release(1 + rng.normal(size=n), models.Powers("x", degree=2), schema=LINE, epsilon=epsilon,
                             mechanism=mechanism, delta=delta, rng=rng)  # fmt: skip
    posterior = models.infer(release, MEAN, draws=400, method="moments", rng=rng)
    assert np.isfinite(posterior.draws["mu"]).all()
    assert abs(posterior.mean("mu") - 1) < 5 * posterior.sd("mu") + 0.1
    assert posterior.sd("mu") < 2.5
    if n == 20_000 and epsilon == 30.0:
        assert posterior.sd("mu") < 0.01


# Doubts and misuse ---------------------------------------------------------------------------------------------------


def raised(release, model, **options) -> set[type]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", Doubt)
        models.infer(release, model, rng=np.random.default_rng(2), **options)
    return {each.category for each in caught}


def test_a_prior_that_disagrees_with_the_release_is_doubted():
    release = made([300 * 1.0], 2.0, 400, "laplace", models.Powers("x"), LINE)
    assert PriorConflict in raised(release, MEAN)


def test_a_model_that_cannot_predict_the_release_is_doubted():
    rng = np.random.default_rng(1)
    data = 4 * rng.normal(size=2000)  # the model knows of a sd of 1 only
    release = models.release(data, models.Powers("x", degree=2), schema=LINE, epsilon=2.0, rng=rng)
    assert Misfit in raised(release, MEAN)
    good = models.release(rng.normal(size=2000), models.Powers("x", degree=2), schema=LINE, epsilon=2.0, rng=rng)
    assert raised(good, MEAN) == set()
    posterior = models.infer(good, MEAN, rng=rng)
    assert posterior.check().p > 0.01
    assert list(posterior.check().table.index) == ["x", "x²"]


def test_sums_of_few_skewed_records_are_doubted():
    release = made([-40.0], 0.1, 40, "laplace", models.Powers("yes"), ANSWER)
    assert PoorApproximation in raised(release, SHARE, method="moments")


def test_a_simulator_whose_points_do_not_suffice_is_doubted(monkeypatch):
    monkeypatch.setattr("dpbook.models.tempering._LARGEST", 256)
    release = made([-8000.0], 0.05, 20_000, "laplace", models.Powers("yes"), ANSWER)
    assert PoorApproximation in raised(release, SHARE)


@pytest.mark.filterwarnings("ignore::dpbook.Doubt")
def test_a_model_that_nothing_fits_is_doubted_and_has_no_evidence():
    release = made([19_000.0], 0.01, 20_000, "laplace", models.Powers("x"), LINE)
    small = models.Model({"mu": models.Uniform(0, 0.01)}, lambda p, u: p["mu"] + 0 * u[0])
    with pytest.warns(PoorApproximation, match="times as wide as published"):
        posterior = models.infer(release, small, draws=80, rng=np.random.default_rng(2))
    assert posterior.log_evidence is None


@pytest.mark.filterwarnings("ignore::dpbook.Doubt")
@pytest.mark.parametrize("method", ["moments", "records"])
def test_a_single_draw_is_as_good_as_one_of_many(method):
    """Sixty releases, one draw each: their mean is that of the posterior within four standard errors."""
    release = made([-31.0], 4.0, 60, "laplace", models.Powers("yes"), ANSWER)
    many = models.infer(release, SHARE, method=method, rng=np.random.default_rng(1))
    single = models.infer([release] * 60, SHARE, method=method, draws=1, chains=1, rng=np.random.default_rng(2))
    assert single[0].draws["share"].shape == (1, 1)
    gap = np.mean([each.mean("share") for each in single]) - many.mean("share")
    assert abs(gap) < 4 * many.sd("share") / np.sqrt(60)


RELEASE = made([-31.0], 4.0, 150, "laplace", models.Powers("yes"), ANSWER)


@pytest.mark.parametrize(
    ("simulate", "words"),
    [
        (lambda p, u: np.log(p["share"] - 0.5) + 0 * u[0], "holds NaN at share = "),
        (lambda p, u: u[0] < 0.5 + 0 * p["share"][:5], "of shape"),
        (lambda p, u: (u[0] < p["share"])[:, :3], "of shape"),
        (lambda p, u: {"no": u[0] < p["share"]}, "every column that is released"),
        (lambda p, u: (np.zeros((64, 128, 2)), np.full((64, 128, 2), 0.7)), "add up to 1"),
        (lambda p, u: (np.zeros((64, 128, 2)), np.full((64, 128), 0.7)), "weights of shape"),
    ],
)
def test_models_that_do_not_work_are_refused_with_what_is_wrong(simulate, words):
    with pytest.raises(ValueError, match=words):
        models.infer(RELEASE, models.Model({"share": models.Beta(2, 3)}, simulate))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: models.Model({}, answer), "prior must map names"),
        (lambda: models.Model([models.Beta(1, 1)], answer), "prior must map names"),
        (lambda: models.Model({"share": 0.5}, answer), "must have draw, log_density and support"),
        (lambda: models.Model({"share": models.Beta(1, 1)}, 3), "simulate must be callable"),
        (lambda: models.Model({"share": models.Beta(1, 1)}, answer, uniforms=0), "uniforms"),
        (lambda: models.infer(RELEASE, answer), "model must be a Model"),
        (lambda: models.infer(RELEASE, SHARE, method="exact"), "method must be one of"),
        (lambda: models.infer(3, SHARE), "release must be a Release"),
        (lambda: models.infer(RELEASE, SHARE, draws=0), "draws"),
    ],
)
def test_misuse_is_refused(make, words):
    with pytest.raises((TypeError, ValueError), match=words):
        make()


def test_a_release_of_another_package_is_refused():
    other = dpbook.expfam.release([0, 1], dpbook.expfam.Binomial(), epsilon=1.0, rng=np.random.default_rng(1))
    with pytest.raises(ValueError, match="must be of model 'models'"):
        models.infer(other, SHARE)


def test_own_functions_are_read_again_and_labels_are_codes():
    rng = np.random.default_rng(1)
    schema = Schema({"vote": Category(["A", "B", "C"]), "age": Integer(18, 90)})
    data = {"vote": rng.choice(["A", "B", "C"], p=[0.5, 0.3, 0.2], size=800), "age": rng.integers(18, 90, 800)}
    old = models.Own("old", lambda record: record["age"] > 60, "age", (0, 1))

    def voter(parameters, uniforms):
        u, v = uniforms
        return {"vote": 0 + (u > parameters["a"]) + (u > parameters["a"] + (1 - parameters["a"]) * 0.6),
                "age": 18 + np.floor(72 * v) + 0 * parameters["a"]}  # fmt: skip

    release = models.release(data, [models.Table("vote"), old], schema=schema, epsilon=1.0, rng=rng)
    model = models.Model({"a": models.Beta(1, 1)}, voter, uniforms=2)
    posterior = models.infer(Release.from_json(release.to_json()), model, statistics=old, rng=rng)
    low, high = posterior.interval(0.99, "a")
    assert low < 0.5 < high < low + 0.2


# Evidence ------------------------------------------------------------------------------------------------------------


def test_evidence_chooses_between_models_and_refuses_what_does_not_compare():
    rng = np.random.default_rng(4)
    data = np.where(rng.random(600) < 0.4, 0.0, 5 + rng.normal(size=600))
    schema = Schema({"x": Number(-10, 15)})
    release = models.release(data, models.Histogram("x", [0.5, 4, 6]), schema=schema, epsilon=1.0, rng=rng)

    def single(parameters, uniforms):
        return parameters["low"] + parameters["sd"] * special.ndtri(uniforms[0])

    plain = models.Model({"low": models.NormalPrior(0, 2), "sd": models.LogNormal(2, 1)}, single)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Doubt)
        found = {
            name: models.infer(release, each, draws=600, rng=rng) for name, each in (("mixed", MIXED), ("plain", plain))
        }
    table = models.compare(found)
    assert table["log_bayes_factor"]["plain"] < -10
    assert table["probability"].sum() == pytest.approx(1.0)
    assert models.compare(found, prior={"mixed": 1.0, "plain": 3.0})["probability"]["mixed"] > 0.99
    by_default = models.ModelPosterior(found["plain"].draws, log_evidence=models.LogEvidence(-1.0, 0.1),
                                       release=found["plain"].release, default_prior=True)  # fmt: skip
    for wrong, words in [
        (found | {"plain": by_default}, "has a default prior"),
        (found | {"plain": models.ModelPosterior(found["plain"].draws)}, "has no evidence"),
        (found | {"else": models.infer(RELEASE, SHARE, draws=400, rng=rng)}, "of the same release"),
        ({"mixed": found["mixed"]}, "two or more"),
    ]:
        with pytest.raises((ValueError, TypeError), match=words):
            models.compare(wrong)
    with pytest.raises(ValueError, match="prior must hold"):
        models.compare(found, prior={"mixed": 1.0})


def test_the_error_of_the_evidence_is_what_it_varies_by():
    """Twelve runs on one release: their spread is between .4 and 2.5 times the error that they state."""
    runs = [models.infer(RELEASE, SHARE, draws=400, rng=np.random.default_rng(seed)).log_evidence for seed in range(12)]
    spread = np.std([each.value for each in runs], ddof=1)
    assert 0.4 < spread / np.sqrt(np.mean([each.error**2 for each in runs])) < 2.5
