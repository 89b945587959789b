"""Doubts are spoken once, at the caller's line, with cause and remedy; the figures behind them are ArviZ's."""

from __future__ import annotations

import copy
import pickle
import warnings
from pathlib import Path
from typing import Any

import arviz
import numpy as np
import pytest
from scipy import stats

import dpbook
from dpbook import Posterior, _mixing
from dpbook.doubts import (
    ConvergenceWarning,
    Doubt,
    FewDraws,
    ManyClipped,
    Misfit,
    PoorApproximation,
    PriorConflict,
    PriorDecides,
    examine,
    prior_conflict,
    say,
    speak,
    tail_probability,
)

KINDS = (ConvergenceWarning, FewDraws, ManyClipped, Misfit, PoorApproximation, PriorConflict, PriorDecides)


def autoregressive(phi: float, shape: tuple[int, ...], rng: np.random.Generator) -> Any:
    """Return stationary standard normal chains (..., draw) of autocorrelation ``phi``."""
    chain = rng.normal(size=shape)
    for t in range(1, shape[-1]):
        chain[..., t] = phi * chain[..., t - 1] + np.sqrt(1 - phi**2) * chain[..., t]
    return chain


# The figures


@pytest.mark.parametrize(("chains", "size"), [(2, 4), (3, 6), (4, 7), (2, 51), (20, 200), (1, 9), (1, 301)])
def test_batched_figures_are_those_of_arviz(chains: int, size: int) -> None:
    rng = np.random.default_rng((chains, size))
    draws = np.stack([autoregressive(phi, (chains, size), rng) for phi in (0, 0.5, 0.9, -0.6, 0.99) * 3])
    draws[:4] = np.round(draws[:4])  # ties
    draws[4] = 1.0  # never moves
    halves = [np.stack([x[0, : size // 2], x[0, -(size // 2) :]]) if chains == 1 else x for x in draws]
    with np.errstate(divide="ignore", invalid="ignore"):
        rhat = [arviz.rhat(x) if x.shape[1] >= 4 else np.nan for x in halves]
        np.testing.assert_allclose(_mixing.rhat(draws), rhat, rtol=1e-10)
        np.testing.assert_allclose(_mixing.ess_bulk(draws), [arviz.ess(x, method="bulk") for x in draws], rtol=1e-8)
        np.testing.assert_allclose(_mixing.ess_tail(draws), [arviz.ess(x, method="tail") for x in draws], rtol=1e-8)


def test_figures_of_chains_too_short_are_unknown_and_blocks_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    short = np.random.default_rng(1).normal(size=(3, 4, 3))
    for figure in (_mixing.rhat, _mixing.ess_bulk, _mixing.ess_tail):
        assert np.isnan(figure(short)).all()
        draws = np.random.default_rng(2).normal(size=(7, 4, 50))
        whole = figure(draws)
        monkeypatch.setattr(_mixing, "_BLOCK", 450)
        np.testing.assert_array_equal(figure(draws), whole)
        monkeypatch.undo()


@pytest.mark.parametrize(("chains", "size"), [(4, 25), (20, 40), (1, 80)])
def test_independent_draws_exceed_the_threshold_of_r_hat_as_seldom_as_it_says(chains: int, size: int) -> None:
    """Of 2,000 R-hats, each the larger of two, 40 are above it by chance; 61 or more with probability 0.001."""
    draws = np.random.default_rng(chains).normal(size=(2000, chains, size))
    threshold = _mixing.rhat_of_independent_draws(chains, size, 0.01)
    assert 0.3 * 40 < np.sum(_mixing.rhat(draws) > threshold) < 61


@pytest.mark.parametrize("phi", [0.3, 0.8, 0.9])
def test_the_autocorrelation_time_is_that_of_the_chain(phi: float) -> None:
    draws = autoregressive(phi, (100, 2, 1000), np.random.default_rng(3))
    assert _mixing.autocorrelation_time(draws) == pytest.approx((1 + phi) / (1 - phi), rel=0.12)


def test_independent_draws_have_an_autocorrelation_time_of_one() -> None:
    rng = np.random.default_rng(4)
    assert {_mixing.autocorrelation_time(rng.normal(size=(20, 1, size))) for size in (5, 20, 100) * 10} == {1.0}


# What is examined


def test_all_releases_of_a_batch_are_looked_at_and_the_right_ones_are_named() -> None:
    draws = np.random.default_rng(5).normal(size=(300, 4, 200))
    for i in (40, 299):
        draws[i, 0] += 3
    doubts = examine([Posterior({"theta": each}) for each in draws])
    assert [i for i, each in enumerate(doubts) if each] == [40, 299]
    assert all(type(doubts[i][0]) is ConvergenceWarning for i in (40, 299))


def test_too_few_effective_draws_are_said_with_their_number() -> None:
    """An autocorrelation of 0.93 leaves about 70 of 2,000 draws; two long chains agree all the same."""
    draws = autoregressive(0.93, (2, 1000), np.random.default_rng(6))
    [[doubt]] = examine([Posterior({"x": draws})])
    assert type(doubt) is FewDraws
    assert "the 2000 draws of x are worth" in doubt.cause
    assert "more draws" in doubt.remedy
    assert examine([Posterior({"x": autoregressive(0.5, (2, 1000), np.random.default_rng(6))})]) == [[]]


def test_only_the_named_parameters_are_examined() -> None:
    draws = {"theta": np.random.default_rng(7).normal(size=(4, 100)), "states": np.zeros((4, 100, 3))}
    draws["states"][0] = 1
    assert examine([Posterior(draws)], of=["theta"]) == [[]]
    assert [type(each) for each in examine([Posterior(draws)])[0]] == [ConvergenceWarning]
    assert examine([Posterior(draws)], of=[]) == [[]]


def test_posteriors_of_different_shapes_are_examined_together() -> None:
    rng = np.random.default_rng(8)
    batch = [Posterior({"theta": rng.normal(size=(4, 100, d))}) for d in (1, 3, 1, 2)]
    stuck = Posterior({"theta": np.repeat([[0.0], [1.0]], 50, axis=1)})
    assert [len(each) for each in examine([*batch, stuck, batch[0]])] == [0, 0, 0, 0, 1, 0]


def test_well_mixed_chains_of_any_length_raise_no_doubt_of_convergence() -> None:
    """Bonferroni over all components: a false alarm with probability at most 0.01 per call, 0.02 here."""
    rng = np.random.default_rng(9)
    for shape in ((300, 4, 25, 3), (100, 20, 20, 2)):
        doubts = examine([Posterior({"theta": each}) for each in rng.normal(size=shape)])
        assert not any(type(doubt) is ConvergenceWarning for each in doubts for doubt in each)


# How it is said


def doubt_of(kind: type[Doubt] = PoorApproximation, **more: Any) -> Doubt:
    return kind("n = 5 is few", "use method='records'", **more)


def caught_from(doubts: list[list[Doubt]]) -> list[warnings.WarningMessage]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        say(doubts)
    return caught


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_a_doubt_and_a_user_warning_that_can_be_silenced_by_name(kind: type[Doubt]) -> None:
    assert issubclass(kind, dpbook.Doubt)
    assert issubclass(kind, UserWarning)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", kind)
        say([[doubt_of(kind)]])


def test_one_release_is_told_cause_and_remedy_and_a_batch_how_many() -> None:
    assert [str(each.message) for each in caught_from([[doubt_of()]])] == ["n = 5 is few; use method='records'"]
    mild, grave = doubt_of(weight=1.0), PoorApproximation("n = 2 is few", "use method='records'", weight=2.0)
    batch: list[list[Doubt]] = [[] for _ in range(300)]
    for i in range(13):
        batch[i] = [mild]
    batch[77] = [grave]
    [warning] = caught_from(batch)
    assert str(warning.message) == "in 14 of 300 releases, such as release[77]: n = 2 is few; use method='records'"
    assert warning.category is PoorApproximation


def test_there_is_one_warning_for_each_kind() -> None:
    caught = caught_from([[doubt_of(), doubt_of(FewDraws)], [doubt_of()], []])
    assert [each.category for each in caught] == [PoorApproximation, FewDraws]
    assert [str(each.message)[:9] for each in caught] == ["in 2 of 3", "in 1 of 3"]
    assert caught_from([]) == caught_from([[], []]) == []


def test_a_batch_keeps_silent_about_what_chance_explains() -> None:
    likely = [[doubt_of(PriorConflict, chance=0.01)] if i < 3 else [] for i in range(300)]
    assert caught_from(likely) == []
    unlikely = [[doubt_of(PriorConflict, chance=0.01)] if i < 12 else [] for i in range(300)]
    assert len(caught_from(unlikely)) == 1
    assert len(caught_from([[doubt_of(PriorConflict, chance=0.01)]])) == 1


def test_a_warning_points_at_the_first_line_outside_the_package() -> None:
    rng = np.random.default_rng(1)
    made = dpbook.expfam.release(rng.normal(size=50), dpbook.expfam.Normal(-5, 5), epsilon=1.0, rng=rng)
    prior = dpbook.expfam.NormalInverseGamma(0.0, 1.0, 2.0, 1.0)
    with pytest.warns(Doubt) as caught:
        dpbook.expfam.infer(made, prior, draws=80, chains=4, rng=rng)
    assert caught[0].filename == __file__
    assert "dpbook.expfam.infer(made" in Path(__file__).read_text().splitlines()[caught[0].lineno - 1]


# What a posterior keeps


def test_a_posterior_keeps_its_doubts_and_shows_them() -> None:
    draws = np.random.default_rng(10).normal(size=(4, 200))
    draws[1] += 4
    plain = Posterior({"theta": np.random.default_rng(11).normal(size=(4, 200))}, notes=["exact."])
    with pytest.warns(Doubt) as caught:
        first, second = speak([plain, Posterior({"theta": draws}, "gibbs")], [[doubt_of()], []])
    assert {each.category for each in caught} == {PoorApproximation, ConvergenceWarning}
    assert [type(each) for each in first.doubts] == [PoorApproximation]
    assert [type(each) for each in second.doubts] == [ConvergenceWarning]
    assert repr(second).endswith("method='gibbs', doubts: ConvergenceWarning)")
    assert repr(first.summary()).endswith("exact.\nDoubt: n = 5 is few; use method='records'.")
    assert "Doubt: the chains have not converged" in second._repr_html_()
    assert "<p>Doubt: n = 5 is few; use method=&#x27;records&#x27;.</p>" in first.summary()._repr_html_()


def test_speaking_adds_to_the_doubts_that_are_there_and_leaves_the_rest_of_a_posterior_as_it_was() -> None:
    theta = np.random.default_rng(12).normal(size=(4, 200, 2))
    before = dpbook.regression.RegressionPosterior({"theta": theta, "sigma2": theta[..., 0] ** 2}, doubts=[doubt_of()])
    with pytest.warns(Doubt):
        [after] = speak([before], [[doubt_of(ManyClipped)]], chains=False)
    assert [type(each) for each in after.doubts] == [PoorApproximation, ManyClipped]
    assert type(after) is type(before)
    assert after.intercept == before.intercept
    assert after.labels == before.labels
    assert after.draws["theta"] is before.draws["theta"]


def test_doubts_survive_pickling_and_copying() -> None:
    before = Posterior({"theta": np.zeros((1, 4))}, doubts=[doubt_of(weight=2.0, chance=0.1)])
    for again in (pickle.loads(pickle.dumps(before)), copy.copy(before), copy.deepcopy(before)):
        [doubt] = again.doubts
        assert (type(doubt), str(doubt), doubt.weight, doubt.chance) == (PoorApproximation, str(doubt_of()), 2.0, 0.1)


def test_only_doubts_are_kept_as_doubts() -> None:
    with pytest.raises(TypeError, match="doubts must be a sequence of Doubt"):
        Posterior({"theta": np.zeros((1, 4))}, doubts=["hm"])


# Prior and release in conflict


def test_the_tail_probability_is_right_whatever_the_number_and_dependence_of_statistics() -> None:
    """Of 1,000 releases from the prior itself about 10 % have a tail probability of 0.1 or below; false alarm 1e-3."""
    rng = np.random.default_rng(13)
    for mix in (np.eye(1), np.eye(6), np.full((3, 3), 0.9) + 0.1 * np.eye(3)):
        pool = rng.standard_cauchy(size=(1000, 500, len(mix))) @ mix
        found = np.array([tail_probability(each[0], each[1:]) for each in pool])
        assert stats.binom.sf(np.sum(found <= 0.1) - 1, 1000, 0.1) > 1e-3
        assert found.mean() > 0.4


def test_ties_do_not_make_a_conflict() -> None:
    assert tail_probability([0], np.zeros((99, 1))) == 1.0
    assert tail_probability([1], np.repeat([[0.0], [1.0]], 50, axis=0)) == 1.0


def test_a_conflict_names_the_statistic_and_the_remedy() -> None:
    simulated = np.random.default_rng(14).normal(size=(2000, 2))
    found = prior_conflict([0.5, -7.0], simulated, names=["sum", "squares"])
    assert found is not None
    assert "a squares of -7 has tail probability" in found.cause
    assert "widen the prior" in found.remedy
    assert found.chance == 0.01
    assert prior_conflict([0.5, -1.0], simulated, names=["sum", "squares"]) is None
    assert prior_conflict([9.0, 0.0], simulated, names=["a", "b"], remedy="ask").remedy == "ask"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([1.0], np.zeros((5, 2))), r"simulated must have shape \(m, 1\)"),
        (([np.nan], np.zeros((5, 1))), "observed"),
        (([1.0], np.zeros(5)), "simulated"),
    ],
)
def test_wrong_statistics_are_named(arguments: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        tail_probability(*arguments)
