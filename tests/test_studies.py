"""Studies: cells with randomness of their own, scores that find miscalibration, tables that say how they were made."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from dpbook.studies import Study, cell_rng, corrected, judge, load


def noisy_mean(n: int, scale: float, *, trials: int, seed: int) -> pd.DataFrame:
    drawn = cell_rng(seed, "noisy_mean", n, scale).normal(scale=scale, size=(trials, n))
    return pd.DataFrame({"n": n, "scale": scale, "sd": [drawn.mean(axis=1).std()]})


CELLS = [(1, 1.0), (4, 1.0), (4, 2.0)]
STUDY = Study(noisy_mean, CELLS, trials=200, seed=3)


# Cells ----------------------------------------------------------------------------------------------------------------


def test_a_study_measures_all_its_cells_in_order() -> None:
    table = STUDY()
    assert list(zip(table["n"], table["scale"], strict=True)) == CELLS
    assert list(table.index) == [0, 1, 2]


def test_a_cell_gives_the_same_rows_whichever_others_are_run() -> None:
    alone = STUDY(cells=[(4, 2.0)])
    pd.testing.assert_frame_equal(alone, STUDY().iloc[[2]].reset_index(drop=True))
    assert STUDY(seed=4)["sd"].ne(STUDY()["sd"]).all()
    assert STUDY(trials=100)["sd"].ne(STUDY()["sd"]).all()


def test_a_study_of_one_piece_has_one_cell_without_coordinates() -> None:
    one = Study(lambda *, trials, seed: pd.DataFrame({"trials": [trials], "seed": [seed]}), trials=7, seed=5)
    assert one().to_dict("records") == [{"trials": 7, "seed": 5}]


def test_what_finishes_a_study_sees_all_its_rows() -> None:
    total = Study(noisy_mean, CELLS, trials=2, finish=lambda table: table.assign(rows=len(table)))
    assert total()["rows"].tolist() == [3, 3, 3]
    assert total(cells=CELLS[:1])["rows"].tolist() == [1]


@pytest.mark.parametrize("wrong", [{"trials": 1.5}, {"trials": -1}, {"seed": -1}, {"seed": "1"}])
def test_trials_and_seed_are_whole_numbers(wrong: dict[str, object]) -> None:
    with pytest.raises((TypeError, ValueError), match=next(iter(wrong))):
        STUDY(**wrong)  # type: ignore[arg-type]


def test_generators_differ_between_seeds_and_labels_and_in_nothing_else() -> None:
    first = [cell_rng(*key).random() for key in [(1, "a", 2), (1, "a", 2), (2, "a", 2), (1, "a", 3), (1, "a2")]]
    assert first[0] == first[1]
    assert len(set(first)) == 4


# Scores ---------------------------------------------------------------------------------------------------------------


def worlds(widened: float) -> dict[str, float]:
    """Judge 2,000 posteriors of a normal mean whose sd is multiplied by ``widened``."""
    rng = np.random.default_rng(2)
    truth = rng.normal(size=2000)
    data = rng.normal(truth)
    drawn = rng.normal(data[:, None] / 2, widened * np.sqrt(0.5), size=(2000, 400))
    scores, ranks = judge(truth, drawn, 400, rng)
    assert ranks.shape == (2000,)
    return scores


def test_a_right_posterior_is_calibrated_and_its_scores_are_those_of_theory() -> None:
    """The fixed seed passes; of seeds, one in a hundred would not."""
    scores = worlds(1.0)
    assert scores["p_holm"] > 0.01
    assert scores["coverage_low"] <= 0.95 <= scores["coverage_high"]
    assert scores["sd"] == pytest.approx(np.sqrt(0.5), rel=0.01)
    assert scores["rmse"] == pytest.approx(np.sqrt(0.5), rel=0.05)
    assert scores["contraction"] == pytest.approx(0.5, abs=0.03)
    assert scores["crps"] == pytest.approx(np.sqrt(0.5 / np.pi), rel=0.05)
    width = 2 * stats.norm.ppf(0.975) * np.sqrt(0.5)
    assert scores["interval_score"] > width


@pytest.mark.parametrize("widened", [0.8, 1.25])
def test_a_posterior_that_is_too_narrow_or_too_wide_is_noticed(widened: float) -> None:
    scores = worlds(widened)
    assert scores["p_holm"] < 1e-6
    assert (scores["coverage_high"] < 0.95) is (widened < 1)
    assert (scores["coverage_low"] > 0.95) is (widened > 1)


def test_the_correction_over_a_study_is_holms_for_each_method_by_itself() -> None:
    rows = pd.DataFrame(
        {
            "method": ["a", "b", "a"],
            "ks_p": [0.01, 0.02, 0.3],
            "variance_p": [0.5, 0.4, 0.004],
            "p_holm": [0.02, 0.04, 0.008],
            "other": 1,
        }
    )
    table = corrected(rows)
    assert list(table.columns) == ["method", "ks_p", "variance_p", "p_holm", "p_study", "other"]
    # a: .004 · 4, then .01 · 3; b: .02 · 2
    assert table["p_study"].tolist() == pytest.approx([0.03, 0.04, 0.016])
    assert "p_study" not in rows.columns


# Stored tables --------------------------------------------------------------------------------------------------------


def stored(folder: Path, first: str) -> Path:
    path = folder / "toy.csv"
    path.write_text(f"{first}\nmethod,sd\nnaive,0.5\n,0.25\n", encoding="utf-8")
    return path


def test_a_stored_table_says_how_it_was_made(tmp_path: Path) -> None:
    path = stored(tmp_path, "# study=toy seed=1 trials=20 seconds=0.5 version=0.1.0 commit=0123456789")
    table = load(str(path))
    assert table.attrs == {
        "study": "toy",
        "seed": 1,
        "trials": 20,
        "seconds": 0.5,
        "version": "0.1.0",
        "commit": "0123456789",
    }
    assert table["method"].tolist() == ["naive", ""]
    assert table["sd"].tolist() == [0.5, 0.25]


def test_facts_that_nobody_knows_are_kept_as_text(tmp_path: Path) -> None:
    assert load(stored(tmp_path, "# study=toy host=a=b")).attrs == {"study": "toy", "host": "a=b"}


def test_a_table_of_another_make_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "plain.csv"
    path.write_text("n,sd\n1,2\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"path must be a table of a study, .* got 'n,sd"):
        load(path)
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "missing.csv")
