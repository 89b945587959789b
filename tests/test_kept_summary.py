"""Summaries without draws are small, and refuse what was not kept; that they agree with draws is tested with blocks."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from dpbook import Posterior
from dpbook.kept_summary import PROBABILITIES, PosteriorSummary


def test_a_summary_can_be_pickled_and_is_small():
    kept = PosteriorSummary.of(Posterior({"theta": np.random.default_rng(1).normal(size=(4, 5000, 3))}))
    again = pickle.loads(pickle.dumps(kept))
    np.testing.assert_array_equal(again.figures, kept.figures)
    assert kept.figures.nbytes < 500


def test_a_quantile_that_was_not_kept_is_refused():
    kept = PosteriorSummary.of(Posterior({"theta": np.random.default_rng(1).normal(size=(4, 500))}))
    assert kept.quantile(PROBABILITIES, "theta").shape == (13,)
    with pytest.raises(ValueError, match="q must be one of"):
        kept.quantile(0.3, "theta")
    with pytest.raises(ValueError, match=r"level must be 0.5, 0.8"):
        kept.interval(0.7, "theta")
    with pytest.raises(ValueError, match="name"):
        kept.mean("nothing")
