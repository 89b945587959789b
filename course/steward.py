"""Play the steward of the capstone for a whole class, and score what the teams answer.

Each team gets a question about the earnings of workers, and two releases: one of 150 workers drawn at random, one of
every second of them. The truth, the share among all workers of the survey, stays with you. The teams answer with a 95 %
interval, and the score says how many hold the truth, beside what naive and noise-aware inference would have done.

    python steward.py open class --teams 30          # writes class/team-01/ … and class/secret.csv
    python steward.py score class answers.csv        # answers.csv: team,lower,upper
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from dpbook import PrivacyBudget, Release, expfam
from dpbook.datasets import load_cps_earnings
from dpbook.diagnostics import coverage, interval_score

WORKERS = 150  # small enough for the noise to matter
EPSILONS = (0.1, 0.15)  # of the release of all of them, and of that of every second one
LEVEL = 0.95
PRIOR = expfam.Beta(1, 1)


def questions(teams: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return a wage for each team, "earns less than …", and the share of all workers who do."""
    earnings = load_cps_earnings()["earnings"].to_numpy()
    wages = np.quantile(earnings, rng.uniform(0.1, 0.9, size=teams)).round(2)
    return wages, np.array([np.mean(earnings < wage) for wage in wages])


def release_for(wage: float, rng: np.random.Generator, noise: np.random.Generator | None) -> list[Release]:
    """Draw the workers of one team, and release twice from one budget, with real noise unless there is a seed."""
    earnings = rng.choice(load_cps_earnings()["earnings"].to_numpy(), size=WORKERS, replace=False)
    answers = (earnings < wage).astype(int)
    budget = PrivacyBudget(epsilon=sum(EPSILONS))
    parts = (answers, answers[1::2])  # the second part is fixed by index
    return [
        expfam.release(part, expfam.Binomial(), epsilon=epsilon, budget=budget, rng=noise)
        for part, epsilon in zip(parts, EPSILONS, strict=True)
    ]


def open_class(folder: Path, teams: int, seed: int | None) -> None:
    """Write the releases of every team, and the truth for the steward alone."""
    rng = np.random.default_rng(seed)
    wages, truth = questions(teams, rng)
    names = [f"team-{k:02d}" for k in range(1, teams + 1)]
    for name, wage in zip(names, wages, strict=True):
        desk = folder / name
        desk.mkdir(parents=True, exist_ok=True)
        for number, release in enumerate(release_for(wage, rng, None if seed is None else rng), start=1):
            (desk / f"release-{number}.json").write_text(release.to_json(), encoding="utf-8")
        question = f"Which share of the workers earns less than {wage:.2f} dollars an hour?\n"
        (desk / "question.txt").write_text(question, encoding="utf-8")
    pd.DataFrame({"team": names, "wage": wages, "truth": truth}).to_csv(folder / "secret.csv", index=False)
    print(f"{teams} teams in {folder}; {folder / 'secret.csv'} is for you alone")


def reference(folder: Path, teams: Sequence[str], method: str) -> pd.DataFrame:
    """Return the intervals that one method gives from the first release of each team."""
    messages = [(folder / team / "release-1.json").read_text(encoding="utf-8") for team in teams]
    posteriors = [expfam.posterior_density(Release.from_json(text), PRIOR, method=method) for text in messages]
    tail = (1 - LEVEL) / 2
    ends = [(posterior.quantile(tail), posterior.quantile(1 - tail)) for posterior in posteriors]
    return pd.DataFrame(ends, columns=["lower", "upper"], index=pd.Index(teams, name="team"))


def score(intervals: pd.DataFrame, truth: pd.Series) -> dict[str, float]:
    """Return how often intervals hold the truth, how wide they are, and their interval score."""
    lower, upper = intervals["lower"].to_numpy(), intervals["upper"].to_numpy()
    found = coverage(lower, upper, truth.to_numpy())
    return {
        "teams": len(truth),
        "hold the truth": float(found.rate),
        "mean width": float(np.mean(upper - lower)),
        "interval score": float(np.mean(interval_score(lower, upper, truth.to_numpy(), LEVEL))),
    }


def read_answers(file: Path, teams: pd.Index) -> pd.DataFrame:
    """Return the teams' intervals; a team that is not in the class, or an interval that is none, is an error."""
    answers = pd.read_csv(file).set_index("team")
    unknown = sorted(set(answers.index) - set(teams))
    if unknown:
        raise SystemExit(f"{file}: no such team: {', '.join(unknown)}")
    if answers.index.has_duplicates:
        raise SystemExit(f"{file}: a team answers twice")
    bad = answers.index[~((answers["lower"] >= 0) & (answers["lower"] <= answers["upper"]) & (answers["upper"] <= 1))]
    if len(bad):
        raise SystemExit(f"{file}: not an interval within [0, 1]: {', '.join(bad)}")
    return answers


def score_class(folder: Path, file: Path) -> pd.DataFrame:
    """Return the scores of the class, of naive and of noise-aware inference on the same releases."""
    truth = pd.read_csv(folder / "secret.csv").set_index("team")["truth"]
    answers = read_answers(file, truth.index)
    truth = truth[answers.index]
    rows = {"the class": score(answers, truth)}
    for method, name in (("naive", "naive"), ("exact", "noise-aware")):
        rows[name] = score(reference(folder, list(truth.index), method), truth)
    return pd.DataFrame(rows).T


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    opening = commands.add_parser("open", help="write the releases of every team")
    opening.add_argument("folder", type=Path)
    opening.add_argument("--teams", type=int, default=20)
    opening.add_argument("--seed", type=int, help="repeatable, and not private: for trying it out")
    scoring = commands.add_parser("score", help="say how many intervals hold the truth")
    scoring.add_argument("folder", type=Path)
    scoring.add_argument("answers", type=Path, help="a table with the columns team, lower, upper")
    options = parser.parse_args(arguments)
    if options.command == "open":
        if options.teams < 1:
            parser.error(f"--teams must be at least 1, got {options.teams}")
        open_class(options.folder, options.teams, options.seed)
    else:
        print(score_class(options.folder, options.answers).round(3).to_string())


if __name__ == "__main__":
    main()
