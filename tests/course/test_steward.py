"""The steward of the capstone: releases for a class, and scores that tell naive from noise-aware."""

from __future__ import annotations

import sys
from pathlib import Path

import pandas as pd
import pytest

from dpbook import Release

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "course"))
import steward  # noqa: E402

TEAMS = 120


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("class")
    steward.main(["open", str(folder), "--teams", str(TEAMS), "--seed", "5"])
    return folder


def answers(folder: Path, method: str) -> Path:
    """Write what teams would answer that use one method."""
    teams = list(pd.read_csv(folder / "secret.csv")["team"])
    file = folder / f"{method}.csv"
    steward.reference(folder, teams, method).to_csv(file)
    return file


def test_every_team_gets_a_question_and_two_releases_within_the_budget(opened: Path) -> None:
    assert len(list(opened.glob("team-*"))) == TEAMS
    for desk in opened.glob("team-*"):
        first, second = (Release.from_json((desk / f"release-{k}.json").read_text()) for k in (1, 2))
        assert (first.n, second.n) == (150, 75)
        assert first.epsilon + second.epsilon == pytest.approx(0.25)
        assert "dollars an hour" in (desk / "question.txt").read_text()
        assert {path.name for path in desk.iterdir()} == {"question.txt", "release-1.json", "release-2.json"}


def test_without_a_seed_the_noise_is_real(tmp_path: Path) -> None:
    steward.main(["open", str(tmp_path), "--teams", "1"])
    assert Release.from_json((tmp_path / "team-01" / "release-1.json").read_text()).float_safe


def test_at_these_sizes_four_naive_intervals_in_ten_miss_and_noise_aware_ones_hold(opened: Path) -> None:
    """As how-to-use says. 120 teams, seed fixed: of right 95 % intervals fewer than 0.87 hold with probability 1e-3.

    For the naive ones the distribution of normal plus Laplace gives 0.60, averaged over the teams' questions; three
    standard errors of 120 teams are 0.13.
    """
    table = steward.score_class(opened, answers(opened, "naive"))
    held, width = table["hold the truth"], table["mean width"]
    assert held["the class"] == held["naive"]
    assert 0.47 < held["naive"] < 0.73
    assert 0.87 < held["noise-aware"] <= 1
    assert 2.5 < width["noise-aware"] / width["naive"] < 3
    assert table["interval score"]["noise-aware"] < 0.5 * table["interval score"]["naive"]


def test_a_class_that_accounts_for_the_noise_scores_as_noise_aware(
    opened: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    steward.main(["score", str(opened), str(answers(opened, "exact"))])
    rows = {line.split("  ")[0]: line.split()[-3:] for line in capsys.readouterr().out.splitlines()[1:]}
    assert rows["the class"] == rows["noise-aware"]


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ("team-999,0.1,0.2", "no such team: team-999"),
        ("team-01,0.3,0.2", r"not an interval within \[0, 1\]: team-01"),
        ("team-01,0.3,1.2", r"not an interval within \[0, 1\]: team-01"),
        ("team-01,0.1,0.2\nteam-01,0.1,0.2", "a team answers twice"),
    ],
)
def test_an_answer_that_is_none_is_named(lines: str, words: str, opened: Path, tmp_path: Path) -> None:
    file = tmp_path / "answers.csv"
    file.write_text(f"team,lower,upper\n{lines}\n")
    with pytest.raises(SystemExit, match=words):
        steward.score_class(opened, file)


def test_a_class_has_a_team(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        steward.main(["open", str(tmp_path), "--teams", "0"])
    assert "--teams must be at least 1, got 0" in capsys.readouterr().err
