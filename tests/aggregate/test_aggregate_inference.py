"""From a noisy aggregate to an answer: the theory, its intervals, and answers that stay in range and in order."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import special, stats

from dpbook import Release
from dpbook.aggregate import (
    CombinedProbability,
    CombinedQuantile,
    ConjugateRegression,
    Flat,
    Moments,
    fisher_probability,
    fisher_slope,
    infer,
    rescale_probability,
    residual_sd,
)
from dpbook.aggregate.laws import aggregate_mean, aggregate_sd

LARGEST = -2 * math.log(0.001)


def rng_of(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


def release(values, method="normality", partitions=100, epsilon=1.0, cutoff=0.0, n=10**9):
    """A release of the model's own making; partitions so large that theory is exact."""
    values = np.asarray(values, dtype=float)
    name, scale = ("mean", 1 / (partitions * epsilon)) if method == "normality" else ("sum", LARGEST / epsilon)
    settings = {"method": method, "partitions": partitions, "cutoff": cutoff, "nuisance": 1}
    return Release(
        values={name: values},
        model="posterior probability",
        mechanism="laplace",
        scale={name: scale},
        sensitivity={name: scale * epsilon},
        epsilon=epsilon,
        n=n,
        settings=settings | ({} if method == "normality" else {"p_min": 0.001}),
        float_safe=False,
    )


def quantile_release(value, p=0.5, bounds=(0.0, 4.0), kind="centred", scale=0.01, failure=0.0, public=(-10.0, 10.0)):
    values = {"quantile": np.asarray(value, dtype=float)}
    if kind != "given":
        values["bounds"] = np.array(bounds)
    return Release(
        values=values,
        model="posterior quantile",
        mechanism="laplace",
        scale=dict.fromkeys(values, scale),
        sensitivity=dict.fromkeys(values, 1.0),
        epsilon=1.0,
        n=10**6,
        bounds={"quantile": bounds} if kind == "given" else {"public_range": public} if public else {},
        settings={"partitions": 100, "probability": p, "bounds": kind, "nuisance": 1, "failure": failure},
        float_safe=False,
    )


def ends(made, level):
    """The ends of an interval, first all low ones and then all high ones."""
    answer = infer(made)
    return answer.interval(level, answer.name).T


def simulate(z, partitions, trials, seed):
    """Probabilities of equal normal partitions whose full-data z-score is exactly z: scatter that averages to 0."""
    e = rng_of(seed).normal(size=(trials, partitions))
    e -= e.mean(axis=1, keepdims=True)
    return special.ndtr(z / math.sqrt(partitions) + e)


@pytest.mark.parametrize("z", [0.0, 1.0, -2.5])
@pytest.mark.parametrize("partitions", [5, 100])
def test_theory_gives_the_mean_and_sd_of_both_aggregates(z, partitions):
    """20,000 simulated aggregates: the mean within 4.5 standard errors, the sd within 4 % (and 1/M in small M)."""
    p = simulate(z, partitions, 20_000, 1)
    for method, found in (("normality", p.mean(axis=1)), ("fisher", np.minimum(-2 * np.log(p), LARGEST).sum(axis=1))):
        error = found.std() / math.sqrt(len(found))
        assert found.mean() == pytest.approx(float(aggregate_mean(z, partitions, method=method)), abs=4.5 * error)
        expected = float(aggregate_sd(z, partitions, method=method))
        assert found.std() == pytest.approx(expected, rel=0.04 + 1.5 / partitions)


def test_the_normality_method_is_exactly_unbiased_on_its_own_scale():
    """E Φ(d + e) = Φ(z/√(2M - 1)) with Var e = 1 - 1/M, by quadrature."""
    z = np.linspace(-3, 3, 7)
    for m in (2, 10, 1000):
        e, weight = np.polynomial.hermite_e.hermegauss(80)
        values = special.ndtr(z[:, None] / math.sqrt(m) + math.sqrt(1 - 1 / m) * e) @ weight / weight.sum()
        assert aggregate_mean(z, m) == pytest.approx(values, rel=1e-10)
        if m > 2:  # a mean of two is cut off at 1/4 and 3/4
            assert rescale_probability(values, m) == pytest.approx(special.ndtr(z), rel=1e-9)


def test_the_source_rescaling_loses_a_factor_of_root_two():
    mean = aggregate_mean(np.array([-1.0, 1.0]), 1000)
    z = special.ndtri(rescale_probability(mean, 1000, rescale="source"))
    assert z == pytest.approx(np.array([-1.0, 1.0]) * math.sqrt(1000 / 1999))


def test_the_constants_of_the_theory():
    assert residual_sd(10**6) == pytest.approx(0.2173, abs=2e-4)
    assert residual_sd(10**6) == pytest.approx(math.sqrt(4 * math.pi * (1 / 12 - 1 / (4 * math.pi))), rel=1e-5)
    assert fisher_slope() == pytest.approx(0.9032, abs=1e-4)
    unclipped = residual_sd(10**6, method="fisher", p_min=1e-30)
    assert unclipped == pytest.approx(math.sqrt(1 - fisher_slope() ** 2), rel=1e-4)
    assert residual_sd(1000, size=100) > residual_sd(1000, size=10_000) > residual_sd(1000)


def test_small_partitions_add_what_theory_says():
    """Normal records, 50 to a partition: residual sd of the z-score over 3,000 data sets within 5 %."""
    rng = rng_of(2)
    m, size, trials = 100, 50, 3000
    spread = np.sqrt(rng.chisquare(size - 1, (trials, m)) / size)  # of x in each partition
    noise = rng.normal(size=(trials, m)) / (spread * math.sqrt(size))
    sigma = np.sqrt(rng.chisquare(size - 2, (trials, m)) / (size - 2))
    weight = spread**2
    full = (weight * noise).sum(axis=1) / weight.sum(axis=1)
    z = -full * np.sqrt(weight.sum(axis=1) * size)
    p = stats.t.cdf(-noise * spread * math.sqrt(size) / sigma, size - 2)
    left = math.sqrt(2 * m - 1) * special.ndtri(p.mean(axis=1)) - z
    assert left.std() == pytest.approx(residual_sd(m, size=size, nuisance=0), rel=0.05)


@pytest.mark.parametrize("nuisance", [1, 3])
def test_nuisance_parameters_cost_each_partition_what_theory_says(nuisance):
    """1,000 data sets of 200 partitions of 40 records: the residual sd within 7 %, three standard errors."""
    rng = rng_of(8)
    m, size, trials = 200, 40, 1000
    names = ["x", *(f"w{k}" for k in range(nuisance - 1))]
    model = ConjugateRegression(covariates=names, prior=Flat())
    left = []
    for _ in range(trials // 20):
        columns = list(rng.normal(size=(nuisance + 1, 20 * m, size)))
        parts = Moments.of_groups(columns)
        whole = Moments.of_groups([column.reshape(20, -1) for column in columns])
        p = model.probability(parts, 0.0, prior_power=1 / m).reshape(20, m)
        full = model.probability(whole, 0.0)
        left.append(math.sqrt(2 * m - 1) * special.ndtri(p.mean(axis=1)) - special.ndtri(full))
    assert np.std(left) == pytest.approx(residual_sd(m, size=size, nuisance=nuisance), rel=0.07)


@pytest.mark.parametrize("epsilon", [0.1, 0.25, 1.0, 4.0, 100.0])
@pytest.mark.parametrize("method", ["normality", "fisher"])
def test_intervals_cover_the_full_data_probability_at_every_epsilon(method, epsilon):
    """2,400 noisy aggregates over z in (-3, 3); coverage of 90 % intervals within 4 standard errors, 2.5 %."""
    m, trials = 200, 400
    rng = rng_of(3)
    held = []
    for z in (-3.0, -1.5, -0.3, 0.4, 1.0, 2.5):
        p = simulate(z, m, trials, 4)
        exact = p.mean(axis=1) if method == "normality" else np.minimum(-2 * np.log(p), LARGEST).sum(axis=1)
        made = release(exact, method, m, epsilon, cutoff=[0.0] * trials)
        noisy = exact + rng.laplace(scale=next(iter(made.scale.values())), size=trials)
        low, high = ends(release(noisy, method, m, epsilon, cutoff=[0.0] * trials), 0.9)
        held.append((low <= special.ndtr(z)) & (special.ndtr(z) <= high))
        assert ((low >= 0) & (low <= high) & (high <= 1)).all()
    assert np.mean(held) == pytest.approx(0.9, abs=0.025)


def test_an_interval_of_the_noise_alone_would_not_cover():
    """At ε = 4 and M = 1000 the residual dominates: errata say 31 %; here 22 to 40 %."""
    m, trials = 1000, 2000
    p = simulate(0.5, m, trials, 5).mean(axis=1) + rng_of(6).laplace(scale=1 / (4 * m), size=trials)
    reach = math.log(20) / (4 * m)
    truth = special.ndtr(0.5)
    held = (rescale_probability(p - reach, m) <= truth) & (truth <= rescale_probability(p + reach, m))
    assert 0.22 < held.mean() < 0.40


def test_intervals_widen_with_the_level_and_the_noise():
    def width(epsilon=1.0, level=0.9):
        low, high = ends(release(0.5, epsilon=epsilon), level)
        return high - low

    assert width(0.1) > width(1.0) > width(10.0) > 0.1
    assert width(level=0.99) > width(level=0.9) > width(level=0.5)
    assert width(1e-9) == 1.0


def test_an_interval_is_that_of_the_aggregate_whatever_the_point_estimate():
    one, other = (infer(release(0.52), rescale=how) for how in ("corrected", "source"))
    assert (one.interval(0.9, "probability") == other.interval(0.9, "probability")).all()
    assert one.estimate > other.estimate
    assert infer(release(0.52)).estimate == one.estimate


@pytest.mark.parametrize("value", [-3.0, 0.0, 0.5, 1.0, 40.0])
@pytest.mark.parametrize("rescale", ["corrected", "source"])
def test_a_mean_outside_zero_and_one_gives_an_answer_inside(value, rescale):
    answer = infer(release(value), rescale=rescale)
    assert 0 <= answer.estimate <= 1
    assert answer.estimate == rescale_probability(min(max(value, 0.005), 0.995), 100, rescale=rescale)
    low, high = answer.interval(name="probability")
    assert 0 <= low <= high <= 1
    assert 0 <= answer.mean("probability") <= 1


def test_about_thirty_per_cent_of_noisy_means_leave_the_range_near_a_tail():
    """The setting of the errata: M = 100, ε = .25, mean .02; P(Laplace(.04) < -.02) = e^(-1/2)/2 = .303."""
    noisy = 0.02 + rng_of(7).laplace(scale=1 / (100 * 0.25), size=20_000)
    assert (noisy < 0).mean() == pytest.approx(math.exp(-0.5) / 2, abs=0.013)
    answers = infer(release(noisy, epsilon=0.25, cutoff=[0.0] * 20_000)).estimate
    assert ((answers >= 0) & (answers <= 1)).all()


@pytest.mark.parametrize("total", [-500.0, 0.0, 200.0, 1e6])
def test_a_sum_of_any_size_gives_a_probability(total):
    answer = infer(release(total, "fisher")).estimate
    assert answer == pytest.approx(stats.chi2.sf(max(total, 0.0), 200), abs=1e-12)
    assert fisher_probability(total, 100) == answer


def test_several_cutoffs_are_put_in_order_and_ties_share_an_answer():
    cutoffs = [3.0, 1.0, 2.0, 2.0]
    answer = infer(release([0.6, 0.55, 0.5, 0.52], cutoff=cutoffs)).estimate
    assert answer[1] == pytest.approx(answer[2]) == pytest.approx(answer[3])
    assert answer[0] > answer[2]
    raw = [0.6, *[np.mean([0.55, 0.5, 0.52])] * 3]
    assert answer == pytest.approx(rescale_probability(raw, 100))
    sums = infer(release([200.0, 210.0], "fisher", cutoff=[1.0, 2.0])).estimate  # sums fall as cutoffs rise
    assert sums[0] == sums[1] == pytest.approx(fisher_probability(205.0, 100))


def test_quantiles_are_clipped_to_their_bounds_and_put_in_order():
    assert infer(quantile_release(9.0)).estimate == 4.0
    assert infer(quantile_release(9.0, kind="given")).estimate == 4.0
    both = infer(quantile_release([2.5, 1.5], p=[0.1, 0.9])).estimate
    assert both.tolist() == [2.0, 2.0]


def test_an_interval_of_a_quantile_holds_noise_residual_and_failure():
    narrow = quantile_release(2.0)
    low, high = ends(narrow, 0.95)
    assert high - low > 2 * 0.01 * math.log(20)
    assert ends(quantile_release(2.0, failure=0.02), 0.95)[0] < low
    assert ends(quantile_release(2.0, failure=0.03), 0.95).tolist() == [-10.0, 10.0]
    unbounded = quantile_release(2.0, failure=0.03, kind="sparse-vector", public=None)
    assert ends(unbounded, 0.95).tolist() == [-math.inf, math.inf]
    assert ends(quantile_release([2.0, 3.0], p=[0.1, 0.9]), 0.95).shape == (2, 2)


# One vocabulary ------------------------------------------------------------------------------------------------------

ANSWERS = {
    "a mean": release(0.52),
    "three means": release([0.49, 0.5, 0.53], cutoff=[1.0, 2.0, 3.0]),
    "a sum": release(190.0, "fisher"),
    "a quantile": quantile_release(2.0, failure=0.001),
    "two quantiles": quantile_release([1.9, 2.1], p=[0.1, 0.9]),
}


@pytest.mark.parametrize("made", ANSWERS.values(), ids=list(ANSWERS))
def test_mean_sd_quantiles_intervals_and_draws_are_of_one_law(made):
    answer = infer(made)
    name = answer.name
    shape = np.shape(answer.estimate)
    assert answer.draws[name].shape == (1, 4000, *shape)
    drawn = answer.draws[name][0]
    assert (np.diff(drawn, axis=0) >= 0).all()  # quantiles, in order
    assert np.shape(answer.mean(name)) == np.shape(answer.sd(name)) == shape
    assert answer.mean()[name] == pytest.approx(drawn.mean(axis=0))
    assert answer.sd()[name] == pytest.approx(drawn.std(axis=0, ddof=1))
    levels = [0.025, 0.3, 0.5, 0.7, 0.975]
    found = answer.quantile(levels, name)
    assert found.shape == (*shape, 5)
    assert found == pytest.approx(np.moveaxis(np.quantile(drawn, levels, axis=0), 0, -1), abs=2e-3)
    assert answer.interval(0.95, name) == pytest.approx(found[..., [0, -1]], abs=1e-12)
    assert answer.quantile(0.3)[name] == pytest.approx(found[..., 1])


def test_the_law_of_a_quantile_is_the_noise_and_the_residual():
    """Its variance is 2 b² + s²: exact but for what 4,000 values leave out of the tails, some per mille."""
    answer = infer(quantile_release(2.0, scale=0.05))
    expected = math.sqrt(2 * 0.05**2 + answer._residual_sd() ** 2)
    assert answer.sd("quantile") == pytest.approx(expected, rel=0.005)
    assert answer.mean("quantile") == pytest.approx(2.0)


def test_a_law_without_bounds_has_no_mean():
    answer = infer(quantile_release(2.0, failure=0.03, kind="sparse-vector", public=None))
    assert math.isnan(answer.mean("quantile"))
    assert answer.sd("quantile") == math.inf
    assert answer.quantile([0.01, 0.5], "quantile").tolist() == [-math.inf, 2.0]
    assert "about 2" in repr(answer)


def test_rows_are_called_by_what_was_asked():
    several = infer(release([0.49, 0.5, 0.53], cutoff=[0.1, 2.0, 1e5 + 0.25]))
    table = several.summary(0.9)
    assert table.index.tolist() == ["Pr(parameter ≤ 0.1)", "Pr(parameter ≤ 2)", "Pr(parameter ≤ 100000.25)"]
    assert table.columns.tolist() == ["estimate", "mean", "sd", "5%", "95%"]
    assert table["estimate"].tolist() == several.estimate.tolist()
    assert table[["5%", "95%"]].to_numpy().tolist() == several.interval(0.9, "probability").tolist()
    assert several.labels == {"probability": tuple(table.index)}
    assert infer(quantile_release([1.0, 2.0], p=[0.07, 0.5])).summary().index.tolist() == [
        "7% quantile of parameter",
        "50% quantile of parameter",
    ]


def test_an_answer_shows_itself_in_a_terminal_and_in_a_notebook():
    assert repr(infer(release(0.5))) == (
        "CombinedProbability(Pr(parameter ≤ 0) about 0.500; 100 partitions, epsilon=1)"
    )
    many = infer(release(np.linspace(0.45, 0.55, 40), cutoff=np.arange(40.0).tolist()))
    assert repr(many).endswith("37 more; 100 partitions, epsilon=1)")
    shown = infer(quantile_release(2.0))._repr_html_()
    assert "<caption>Full-data posterior quantile: 100 partitions, epsilon=1</caption>" in shown
    assert '<th scope="row">50% quantile of parameter</th>' in shown
    assert "20 more" in many._repr_html_()


def test_one_release_gives_one_answer_and_a_sequence_a_list():
    both = infer([release(0.5), quantile_release(1.0)])
    assert [type(each) for each in both] == [CombinedProbability, CombinedQuantile]
    assert both[0] == infer(release(0.5))
    assert infer([]) == []
    assert [each.rescale for each in infer((release(0.5),), rescale="source")] == ["source"]


def test_infer_refuses_what_it_cannot_read():
    other = Release(
        values={"sum": [1.0]},
        model="binomial",
        mechanism="laplace",
        scale={"sum": 1.0},
        sensitivity={"sum": 1.0},
        epsilon=1.0,
        n=3,
        float_safe=False,
    )
    with pytest.raises(ValueError, match="release must be of model"):
        infer(other)
    for wrong in ({"mean": 0.5}, "release", 0.5, [release(0.5), 0.5]):
        with pytest.raises(TypeError, match="release must be a Release or a sequence"):
            infer(wrong)
    with pytest.raises(ValueError, match="rescale must be one of"):
        infer(release(0.5), rescale="twice")
    with pytest.raises(ValueError, match="rescale applies"):
        infer(release(200.0, "fisher"), rescale="source")
    with pytest.raises(ValueError, match="rescale applies"):
        infer(quantile_release(1.0), rescale="source")
    for answer in (infer(release(0.5)), infer(quantile_release(1.0))):
        with pytest.raises(ValueError, match="level must lie strictly"):
            answer.interval(1.0)
        with pytest.raises(ValueError, match="q must lie strictly"):
            answer.quantile([0.5, 1.0])
        with pytest.raises(ValueError, match="name must be one of"):
            answer.mean("theta")
