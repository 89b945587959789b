from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from dpbook.sampling import posteriors, run

FloatArray = NDArray[np.float64]


class Count(NamedTuple):
    """A state that counts its steps: what is kept then says exactly which states were kept."""

    steps: FloatArray
    pair: FloatArray


def count(rng: np.random.Generator, state: Count) -> tuple[Count, None]:
    return Count(state.steps + 1, state.pair + 10), None


def counters(*batch: int) -> Count:
    return Count(np.zeros(batch), np.zeros((*batch, 2)))


class Pair(NamedTuple):
    x: FloatArray
    y: FloatArray


class NormalGibbs:
    """Gibbs sampling of two standard normals with the given correlations (any batch shape)."""

    def __init__(self, correlation: float | FloatArray) -> None:
        self.rho = np.asarray(correlation)

    def __call__(self, rng: np.random.Generator, state: Pair) -> tuple[Pair, None]:
        x = rng.normal(self.rho * state.y, np.sqrt(1 - self.rho**2))
        return Pair(x, rng.normal(self.rho * x, np.sqrt(1 - self.rho**2))), None


class Augmented(NamedTuple):
    theta: FloatArray
    successes: NDArray[np.int64]


class BetaBinomialGibbs:
    """Draw successes given theta, then theta given successes: the law of theta stays Beta(2, 3)."""

    def __init__(self, trials: int | NDArray[np.int64]) -> None:
        self.trials = np.asarray(trials)

    def __call__(self, rng: np.random.Generator, state: Augmented) -> tuple[Augmented, None]:
        successes = rng.binomial(self.trials, state.theta)
        return Augmented(rng.beta(2 + successes, 3 + self.trials - successes), successes), None


def augmented(*batch: int) -> Augmented:
    return Augmented(np.full(batch, 0.999), np.zeros(batch, dtype=np.int64))


def test_burn_in_is_discarded_and_every_thin_th_state_kept() -> None:
    kept = run(count, counters(3), per_chain=4, burn_in=5, thin=2)
    np.testing.assert_array_equal(kept["steps"], np.tile([7, 9, 11, 13], (3, 1)))
    np.testing.assert_array_equal(run(count, counters(1), per_chain=3, burn_in=0)["steps"], [[1, 2, 3]])


def test_no_step_is_wasted_after_the_last_kept_state() -> None:
    calls = []

    def counted(rng: np.random.Generator, state: Count) -> tuple[Count, None]:
        calls.append(1)
        return count(rng, state)

    run(counted, counters(1), per_chain=4, burn_in=5, thin=3)
    assert len(calls) == 5 + 4 * 3


def test_the_default_burn_in_is_half_of_what_follows() -> None:
    assert run(count, counters(1), per_chain=10, thin=4)["steps"][0, 0] == 20 + 4


def test_draws_come_second_after_the_chain_and_before_release_trial_and_component() -> None:
    kept = run(count, counters(2, 3, 4), per_chain=5, burn_in=0)
    assert kept["steps"].shape == (2, 5, 3, 4)
    assert kept["pair"].shape == (2, 5, 3, 4, 2)
    np.testing.assert_array_equal(kept["pair"][1, :, 2, 3, 1], [10, 20, 30, 40, 50])


def test_keep_selects_fields_in_its_order() -> None:
    assert list(run(count, counters(1), per_chain=1)) == ["steps", "pair"]
    assert list(run(count, counters(1), per_chain=1, keep=["pair"])) == ["pair"]
    assert list(run(count, counters(1), per_chain=1, keep=("pair", "steps"))) == ["pair", "steps"]


def test_the_same_generator_gives_the_same_draws_and_another_gives_others() -> None:
    def sample(rng: np.random.Generator | None) -> FloatArray:
        return run(NormalGibbs(0.5), Pair(np.zeros(4), np.zeros(4)), per_chain=20, rng=rng)["x"]

    first = sample(np.random.default_rng(1))
    np.testing.assert_array_equal(first, sample(np.random.default_rng(1)))
    assert not np.isin(first, sample(np.random.default_rng(2))).any()
    assert not np.isin(sample(None), sample(None)).any()


def test_a_step_that_writes_into_its_own_arrays_does_not_overwrite_kept_draws() -> None:
    def in_place(rng: np.random.Generator, state: Count) -> tuple[Count, None]:
        state.steps[...] += 1
        return state, None

    kept = run(in_place, counters(1), per_chain=3, burn_in=0)
    np.testing.assert_array_equal(kept["steps"], [[1, 2, 3]])


def test_draws_are_floats_even_where_the_chain_starts_at_integers() -> None:
    def halve(rng: np.random.Generator, state: Pair) -> tuple[Pair, None]:
        return Pair(state.x / 2, state.y / 2), None

    start = Pair(np.array([1, 3]), np.array([1, 3]))
    np.testing.assert_array_equal(run(halve, start, per_chain=1, burn_in=0)["x"], [[0.5], [1.5]])


def test_bivariate_normal_gibbs_draws_its_target() -> None:
    """20,000 chains, each kept once after 40 steps (lag-one autocorrelation .64, so .64^40 of the start is left).

    The last states are independent, so each of the three tests has its nominal level 10^-4.
    """
    rng = np.random.default_rng(11)
    start = Pair(np.full(20_000, 5.0), np.full(20_000, 5.0))
    kept = run(NormalGibbs(0.8), start, per_chain=1, burn_in=39, rng=rng)
    x, y = kept["x"][:, 0], kept["y"][:, 0]
    assert stats.kstest(x, "norm").pvalue > 1e-4
    assert stats.kstest((y - 0.8 * x) / 0.6, "norm").pvalue > 1e-4
    assert abs(np.arctanh(np.corrcoef(x, y)[0, 1]) - np.arctanh(0.8)) < 3.9 / np.sqrt(20_000)


def test_beta_binomial_augmentation_draws_its_target() -> None:
    """20,000 independent last states; lag-one autocorrelation 5/10; each of the two tests has level 10^-4."""
    kept = run(BetaBinomialGibbs(5), augmented(20_000), per_chain=1, burn_in=59, rng=np.random.default_rng(12))
    assert stats.kstest(kept["theta"][:, 0], stats.beta(2, 3).cdf).pvalue > 1e-4
    counts = np.bincount(kept["successes"][:, 0].astype(int), minlength=6)
    expected = 20_000 * stats.betabinom(5, 2, 3).pmf(np.arange(6))
    assert stats.chisquare(counts, expected).pvalue > 1e-4


def test_a_release_in_a_batch_has_the_law_of_a_run_of_its_own() -> None:
    """Three releases of 3, 10 and 40 trials, joined and alone; six two-sample tests at level 10^-5 each.

    Five steps from theta = .999 leave the larger n visibly short of the target, so a mixed-up axis shows.
    """
    rng = np.random.default_rng(13)
    sizes = np.array([3, 10, 40])
    joint = run(BetaBinomialGibbs(sizes), augmented(4000, 3), per_chain=1, burn_in=4, rng=rng)
    for release, size in enumerate(sizes):
        alone = run(BetaBinomialGibbs(int(size)), augmented(4000), per_chain=1, burn_in=4, rng=rng)
        for name in ("theta", "successes"):
            assert stats.ks_2samp(joint[name][:, 0, release], alone[name][:, 0]).pvalue > 1e-5
    assert stats.ks_2samp(joint["theta"][:, 0, 0], joint["theta"][:, 0, 2]).pvalue < 1e-9


def test_chains_releases_and_trials_run_as_one_batch() -> None:
    """Each of 2 × 3 cells has its own correlation; its 4,000 last states estimate it within 4.9 standard errors.

    False alarm below 6 · 10^-6 in all.
    """
    correlation = np.array([[-0.8, -0.5, 0.0], [0.3, 0.6, 0.8]])
    start = Pair(np.zeros((4000, 2, 3)), np.zeros((4000, 2, 3)))
    kept = run(NormalGibbs(correlation), start, per_chain=1, burn_in=39, rng=np.random.default_rng(14))
    assert kept["x"].shape == (4000, 1, 2, 3)
    for cell in np.ndindex(2, 3):
        found = np.corrcoef(kept["x"][:, 0, *cell], kept["y"][:, 0, *cell])[0, 1]
        assert abs(np.arctanh(found) - np.arctanh(correlation[cell])) < 4.9 / np.sqrt(4000)


def test_posteriors_splits_the_releases_in_order() -> None:
    kept = {"a": np.arange(2 * 5 * 3.0).reshape(2, 5, 3), "b": np.arange(2 * 5 * 3 * 4.0).reshape(2, 5, 3, 4)}
    split = posteriors(kept, method="gibbs")
    assert len(split) == 3
    for release, posterior in enumerate(split):
        assert posterior.method == "gibbs"
        np.testing.assert_array_equal(posterior.draws["a"], kept["a"][:, :, release])
        np.testing.assert_array_equal(posterior.draws["b"], kept["b"][:, :, release])


def test_posteriors_are_independent_of_the_array_they_came_from() -> None:
    kept = {"a": np.zeros((1, 1, 1))}
    (posterior,) = posteriors(kept)
    kept["a"][:] = 9
    assert posterior.draws["a"][0, 0] == 0


def test_record_says_what_is_kept_and_may_draw_from_the_kept_states_only() -> None:
    """Called once for each kept state, after its step, with what the step told."""
    seen = []

    def step(rng: np.random.Generator, state: Count) -> tuple[Count, float]:
        return count(rng, state)[0], 2 * float(state.steps[0] + 1)

    def record(rng: np.random.Generator, state: Count, info: float) -> dict[str, FloatArray]:
        seen.append(float(state.steps[0]))
        return {"told": np.full(2, info), "noise": rng.normal(size=(2, 3))}

    rng = np.random.default_rng(1)
    kept = run(step, counters(2), per_chain=3, burn_in=4, thin=2, record=record, rng=rng)
    assert seen == [6, 8, 10]
    np.testing.assert_array_equal(kept["told"], [[12, 16, 20]] * 2)
    np.testing.assert_array_equal(kept["noise"], np.moveaxis(np.random.default_rng(1).normal(size=(3, 2, 3)), 0, 1))


def test_a_step_learns_in_the_burn_in_and_is_fixed_thereafter() -> None:
    class Stride:
        def __init__(self, length: int) -> None:
            self.length = length

        def __call__(self, rng: np.random.Generator, state: Count) -> tuple[Count, int]:
            return state._replace(steps=state.steps + self.length), self.length

    calls = []

    def adapt(step: Stride, state: Count, info: int, iteration: int) -> Stride:
        calls.append((iteration, float(state.steps[0]), info))
        return Stride(2 * step.length)

    kept = run(Stride(1), counters(1), per_chain=3, burn_in=3, adapt=adapt, keep=["steps"])
    assert calls == [(0, 1, 1), (1, 3, 2), (2, 7, 4)]
    np.testing.assert_array_equal(kept["steps"], [[15, 23, 31]])
    assert run(Stride(1), counters(1), per_chain=2, burn_in=0, adapt=adapt, keep=["steps"])["steps"].tolist() == [
        [1, 2]
    ]


def test_the_progress_bar_is_off_by_default_and_carries_its_label(capsys: pytest.CaptureFixture[str]) -> None:
    run(count, counters(1), per_chain=3)
    assert capsys.readouterr() == ("", "")
    run(count, counters(1), per_chain=3, progress=True, label="tracts")
    out, err = capsys.readouterr()
    assert out == ""
    assert "tracts" in err


def widen(rng: np.random.Generator, state: Count) -> tuple[Count, None]:
    """Return a shape that NumPy would broadcast without complaint."""
    return Count(state.steps[:1], state.pair), None


def unbatched(rng: np.random.Generator, state: Count, info: None) -> dict[str, FloatArray]:
    """Return what has no axis of chains."""
    return {"total": state.steps.sum()}


@pytest.mark.parametrize(
    ("step", "state", "options", "error", "message"),
    [
        (count, counters(2), {"per_chain": 0}, ValueError, "per_chain"),
        (count, counters(2), {"per_chain": 2.5}, TypeError, "per_chain"),
        (count, counters(2), {"per_chain": 2, "burn_in": -1}, ValueError, "burn_in"),
        (count, counters(2), {"per_chain": 2, "thin": 0}, ValueError, "thin"),
        (count, counters(2), {"per_chain": 2, "rng": 3}, TypeError, "rng"),
        (count, counters(2), {"per_chain": 2, "keep": ["stops"]}, ValueError, "keep must be one of 'steps', 'pair'"),
        (count, counters(2), {"per_chain": 2, "keep": "steps"}, ValueError, "keep"),
        (count, counters(2), {"per_chain": 2, "keep": []}, ValueError, "keep"),
        (count, {"steps": np.zeros(2)}, {"per_chain": 2}, TypeError, "state must be a NamedTuple"),
        (count, Count(np.zeros(()), np.zeros(())), {"per_chain": 2}, ValueError, "first axis is the chain"),
        (count, Count(np.zeros(2), np.zeros((3, 2))), {"per_chain": 2}, ValueError, "first axis is the chain"),
        (count, counters(2), {"per_chain": 2, "keep": ["steps"], "record": unbatched}, ValueError, "keep and record"),
        (
            count,
            counters(2),
            {"per_chain": 2, "record": unbatched},
            ValueError,
            "record must hold arrays whose first axis",
        ),
        (widen, counters(2), {"per_chain": 2}, ValueError, r"step must keep the shape .* 'steps' was \(2,\)"),
    ],
)
def test_wrong_arguments_of_run_are_refused_by_name(
    step: Any, state: Any, options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        run(step, state, **options)


@pytest.mark.parametrize("kept", [{}, {"a": np.zeros((2, 5))}, {"a": np.zeros((2, 5, 3)), "b": np.zeros((2, 5, 4))}])
def test_posteriors_refuses_what_has_no_common_release_axis(kept: dict[str, FloatArray]) -> None:
    with pytest.raises(ValueError, match="kept"):
        posteriors(kept)
