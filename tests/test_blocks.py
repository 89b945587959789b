"""Many releases in blocks: the same draws on any number of processes, doubts spoken once, summaries kept for draws."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from dpbook import Posterior, aggregate, expfam, regression
from dpbook.blocks import by_blocks, in_blocks
from dpbook.doubts import ConvergenceWarning, Doubt
from dpbook.graphical import hmm
from dpbook.kept_summary import PosteriorSummary


def rng(seed: int = 1) -> np.random.Generator:
    return np.random.default_rng(seed)


def of_expfam(**how):
    noisy = [expfam.release([1] * k + [0] * 40, expfam.Binomial(), epsilon=1.0, rng=rng(k)) for k in (5, 9, 20)]
    return expfam.infer(noisy, expfam.Beta(1, 1), draws=200, rng=rng(), **how)


def of_expfam_chains(**how):
    family = expfam.Exponential(0, 9)
    noisy = [expfam.release(rng(k).exponential(2, 50), family, epsilon=1.0, rng=rng(k)) for k in range(3)]
    return expfam.infer(noisy, expfam.Gamma(2, 2), method="gibbs", draws=80, rng=rng(), **how)


def of_means(**how):
    noisy = [expfam.release_mean(rng(k).uniform(0, 1, 300), bounds=(0, 1), epsilon=1.0, rng=rng(k)) for k in range(3)]
    return expfam.infer(noisy, draws=200, rng=rng(), **how)


def of_regression(**how):
    noisy = []
    for k in range(3):
        x = rng(k).normal(0, 0.3, 200)
        y = 0.5 * x + rng(k + 9).normal(0, 0.2, 200)
        noisy.append(regression.release(x, y, x_bounds=(-1, 1), y_bounds=(-1, 1), epsilon=5.0, rng=rng(k)))
    return regression.infer(noisy, regression.NormalInverseGamma([0, 0], 0.1, 5, 0.1), draws=80, rng=rng(), **how)


def of_hmm(**how):
    table = np.array([[[45, 5]] * 5 + [[10, 40]] * 5])
    noisy = [hmm.release_counts(table, epsilon=1.0, rng=rng(k)) for k in range(3)]
    return hmm.infer(noisy, draws=80, rng=rng(), **how)


PACKAGES = {"binomial": of_expfam, "gibbs": of_expfam_chains, "mean": of_means, "line": of_regression, "hmm": of_hmm}


@pytest.mark.parametrize("package", PACKAGES)
@pytest.mark.filterwarnings("ignore::dpbook.Doubt")
def test_draws_are_the_same_on_one_process_and_on_two(package):
    one, two = (PACKAGES[package](n_jobs=n_jobs) for n_jobs in (1, 2))
    for first, second in zip(one, two, strict=True):
        assert type(first) is type(second)
        for name in first.draws:
            np.testing.assert_array_equal(first.draws[name], second.draws[name])
    name = next(iter(one[0].draws))
    assert not np.array_equal(one[0].draws[name], one[1].draws[name])


@pytest.mark.parametrize("package", PACKAGES)
@pytest.mark.filterwarnings("ignore::dpbook.Doubt")
def test_summaries_are_those_of_the_draws(package):
    whole, kept = PACKAGES[package](n_jobs=1), PACKAGES[package](keep="summary")
    for posterior, summary in zip(whole, kept, strict=True):
        assert isinstance(summary, PosteriorSummary)
        for name in posterior.draws:
            for figure in ("mean", "sd", "rhat", "ess"):
                np.testing.assert_array_equal(getattr(summary, figure)(name), getattr(posterior, figure)(name))
            # (1 - 0.9)/2 is not quite 0.05, so that the last digit of a quantile differs.
            np.testing.assert_allclose(summary.interval(0.9, name), posterior.interval(0.9, name), rtol=1e-12)
            assert summary.component_labels(name) == posterior.component_labels(name)
        assert repr(summary.summary()) == repr(posterior.summary())
        assert summary.doubts == posterior.doubts or len(summary.doubts) == len(posterior.doubts)
        with pytest.raises(AttributeError, match="keep='draws'"):
            summary.draws  # noqa: B018


def test_a_threaded_executor_and_a_dask_client_give_the_draws_of_one_process():
    distributed = pytest.importorskip("distributed")
    one = of_expfam(n_jobs=1)
    with ThreadPoolExecutor(2) as executor:
        two = of_expfam(n_jobs=executor)
    with (
        distributed.LocalCluster(1, threads_per_worker=1, processes=False, dashboard_address=None) as cluster,
        distributed.Client(cluster) as client,
    ):
        three = of_expfam(n_jobs=client)
    for others in zip(one, two, three, strict=True):
        for other in others[1:]:
            np.testing.assert_array_equal(others[0].draws["theta"], other.draws["theta"])


def test_one_release_gives_one_posterior():
    noisy = expfam.release([1, 0, 1], expfam.Binomial(), epsilon=1.0, rng=rng())
    assert isinstance(expfam.infer(noisy, draws=100, n_jobs=1, rng=rng()), Posterior)
    assert isinstance(expfam.infer(noisy, draws=100, keep="summary", rng=rng()), PosteriorSummary)
    assert expfam.infer([], n_jobs=2) == []


@pytest.mark.parametrize("wrong", [0, 1.5, "two", True])
def test_a_wrong_number_of_processes_is_named(wrong):
    with pytest.raises((TypeError, ValueError), match="n_jobs"):
        of_expfam(n_jobs=wrong)


def test_a_wrong_keep_is_named():
    with pytest.raises(ValueError, match="keep"):
        of_expfam(keep="nothing")


@pytest.mark.parametrize("count", [0, 1, 2, 3, 7, 251, 600, 10_001])
def test_blocks_are_balanced_and_hold_everything(count):
    blocks = in_blocks(range(count), 250)
    assert [each for block in blocks for each in block] == list(range(count))
    lengths = [len(block) for block in blocks]
    assert not lengths or (max(lengths) - min(lengths) <= 1 and max(lengths) <= 250)
    assert len(blocks) in {0, 1, 2, 4} or len(blocks) % 8 == 0 or len(blocks) == count


def _stuck(block, rng):
    from dpbook.doubts import speak

    return speak([Posterior({"theta": np.repeat([[0.0], [1.0]], 200, axis=1)}) for _ in block])


def test_doubts_are_spoken_once_for_the_whole():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = by_blocks(_stuck, list(range(60)), rng=rng(), n_jobs=1)
    assert [each.category for each in caught] == [ConvergenceWarning]
    assert "in 60 of 60 releases" in str(caught[0].message)
    assert all(isinstance(each.doubts[0], Doubt) for each in found)


def test_aggregates_of_a_sequence_take_n_jobs():
    rows = np.column_stack([rng(0).normal(size=2000), rng(1).normal(size=2000)])
    how = {"posterior": aggregate.ConjugateRegression(), "partitions": 50, "epsilon": 2.0}
    noisy = [aggregate.release_probability(rows, 0.0, **how, rng=rng(k)) for k in range(2)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        one, two = (aggregate.infer(noisy, n_jobs=n_jobs) for n_jobs in (None, 2))
    for first, second in zip(one, two, strict=True):
        np.testing.assert_array_equal(first.interval(0.9, "probability"), second.interval(0.9, "probability"))


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="needs glibc")
def test_a_worker_that_gives_memory_back_at_once_keeps_it_while_a_block_runs():
    """Page faults, which time cannot blur: a block that makes and drops arrays of 1 MB, as Dask's workers run it."""
    code = (
        "import resource, numpy as np\n"
        "from dpbook import blocks\n"
        "from dpbook.blocks import _block\n"
        "def work(block, rng):\n"
        "    for _ in range(400): (np.ones(131072) + 1).sum()\n"
        "    return []\n"
        "def faults():\n"
        "    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt\n"
        "    _block(work, [], None, 'draws')\n"
        "    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before\n"
        "kept = faults()\n"
        "blocks._glibc = lambda: None\n"
        "print(kept, faults())\n"
    )
    environment = os.environ | {"MALLOC_TRIM_THRESHOLD_": "65536"}
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True)
    kept, given_back = map(int, told.stdout.split())
    assert given_back > 100_000
    assert kept < given_back / 20
