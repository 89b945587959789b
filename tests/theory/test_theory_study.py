"""The committed tables of chapter 6 can be repeated, and a curve at a million records takes a fraction of a second."""

import time

import numpy as np
import pytest

from dpbook import theory
from dpbook.experiments import theory_study as study
from dpbook.theory import BetaBernoulli, NormalKnownVariance


def test_the_committed_ledger_holds_every_claim_with_its_verdict():
    table = study.load("ledger").set_index("claim")
    assert list(table.index) == [claim.name for claim in theory.claims]
    for claim in theory.claims:
        row = table.loc[claim.name]
        assert (row["verdict"], row["statement"], row["condition"]) == (claim.verdict, claim.statement, claim.condition)


@pytest.mark.parametrize(
    "name", ["coins-III-pure-mode", "coins-IV-pure-kept", "bells-II-pure", "bells-III-IV-pure-clamped"]
)
def test_a_committed_constant_can_be_repeated(name):
    stored = study.load("ledger").set_index("claim")["constant"][name]
    assert theory.smallest_constant(name).value == pytest.approx(stored, rel=1e-3)


def test_committed_comparisons_can_be_repeated():
    table = study.load("comparison")
    models = {"coins": BetaBernoulli(), "bells": NormalKnownVariance(bound=3.0)}
    for name, n, epsilon in (("coins", 100, 1.0), ("bells", 1000, 0.5)):
        stored = table[(table["model"] == name) & (table["n"] == n) & (table["epsilon"] == epsilon)]
        again = theory.compare_with_noise(models[name], n, epsilon=epsilon, delta=study.DELTA)
        assert stored["release"].tolist() == again["release"].tolist()
        np.testing.assert_allclose(stored["relative"], again["relative"], rtol=1e-3)


def test_committed_decisions_and_looseness_can_be_repeated():
    decisions = study.load("decisions")
    for _, row in decisions[np.isfinite(decisions["alpha"])].iloc[::40].iterrows():
        kind = {"sample": "sample", "plug-in": "synthetic-plugin"}.get(row["release"], "synthetic-bayes")
        options = {"m": int(row["m"]), "redraw": row["release"] != "bayes, one draw"} if row["m"] else {}
        found = theory.prior_for(
            kind, BetaBernoulli(), int(row["n"]), epsilon=row["epsilon"], delta=row["delta"], **options
        )
        assert found.alpha == pytest.approx(row["alpha"], rel=1e-3)
    row = study.load("looseness").iloc[5]
    assert row["view"] == "exponential mechanism"
    model = BetaBernoulli(row["alpha"], row["alpha"])
    view = theory.exponential_view(model, int(row["n"]), truncate=(0.1, 0.9), delta=row["delta"])
    assert view.looseness == pytest.approx(row["looseness"], rel=1e-3)


def test_noise_beats_draws_in_every_committed_cell():
    """The chapter's answer to which loses less, over all sizes and epsilons of the study."""
    table = study.load("comparison").pivot_table(index=["model", "n", "epsilon"], columns="release", values="relative")
    for release in ("sample", "plug-in", "bayes", "bayes, one draw"):
        assert (table["laplace"] < table[release]).all()


@pytest.mark.parametrize("options", [None, {}, {"redraw": False}], ids=["draw", "redrawn", "one draw"])
def test_a_hundred_epsilons_at_a_million_records_take_less_than_a_second_of_work(options):
    """CPU time of one process, so that a busy machine fails nothing; over all neighbours."""
    kind, more = ("sample", {}) if options is None else ("synthetic-bayes", {**options, "m": 10**6})
    epsilon = np.linspace(0, 5, 100)
    start = time.process_time()
    found = theory.privacy_profile(kind, BetaBernoulli(10, 10), 10**6, epsilon=epsilon, **more)
    assert time.process_time() - start < 1.0
    assert found.shape == (100,)


def test_the_command_writes_a_table(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(study, "SIZES", (100,))
    monkeypatch.setattr(study, "EPSILONS", (1.0,))
    study.main(["comparison", "--out", str(tmp_path)])
    assert "comparison: 14 rows" in capsys.readouterr().out
    assert len(study.load("comparison", tmp_path)) == 14
