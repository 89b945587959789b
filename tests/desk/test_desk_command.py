"""The command line as a steward calls it: what it writes, prints and refuses, and what it never prints."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from dpbook import PrivacyBudget, Release
from dpbook.budget import fingerprint
from dpbook.desk import kinds
from dpbook.desk.command import DONE, FILES, REFUSED, WRONG, main

ROOT = Path(__file__).resolve().parents[2]
PLAN = """
[project]
unit = "one patient"
epsilon = 4.0
[columns.age]
kind = "integer"
low = 0
high = 110
missing = 40
[columns.pay]
kind = "number"
low = 0
high = 100
[columns.region]
kind = "category"
labels = ["north", "south", "east"]
[columns.smoker]
kind = "flag"
[release.pay]
kind = "mean"
column = "pay"
epsilon = 1.0
[release.regions]
kind = "histogram"
column = "region"
epsilon = 0.5
[release.smokers]
kind = "share"
column = "smoker"
epsilon = 0.5
[release.slope]
kind = "regression"
response = "pay"
covariates = ["age"]
epsilon = 1.0
[release.both]
kind = "tables"
tables = [["region", "smoker"]]
epsilon = 0.5
"""
NAMES = ["pay", "regions", "smokers", "slope", "both"]


@pytest.fixture
def desk(tmp_path, monkeypatch):
    """A folder with a plan and a table, and nothing else."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(5)
    table = pd.DataFrame(
        {
            "id": [f"secret-{i}" for i in range(400)],
            "age": rng.integers(18, 90, 400).astype(object),
            "pay": np.round(rng.lognormal(3, 0.4, 400), 1),
            "region": rng.choice(["north", "south", "east"], 400),
            "smoker": rng.choice(["yes", "no"], 400),
        }
    )
    table.loc[3, "age"] = "unknown"
    table.to_csv("table.csv", index=False)
    table.assign(age=pd.to_numeric(table["age"], errors="coerce")).to_parquet("table.parquet")
    Path("plan.toml").write_text(PLAN)
    return tmp_path


def release(*more):
    return main(["release", "plan.toml", "table.csv", "--ledger", "p.ledger", "--out", "out", *more])


def test_a_project_from_the_plan_to_the_report(desk, capsys):
    assert main(["preview", "plan.toml", "--n", "400"]) == DONE
    assert "Together ε = 3.5 by addition, of 4" in capsys.readouterr().out
    assert release("--teaching-seed", "1") == DONE
    shown = capsys.readouterr().out
    assert sorted(path.name for path in Path("out").iterdir()) == sorted(f"{name}.json" for name in NAMES)
    made = {name: Release.from_json(Path(f"out/{name}.json").read_text()) for name in NAMES}
    assert all(fingerprint(made[name])[:12] in shown for name in NAMES)
    budget = PrivacyBudget.open("p.ledger")
    assert budget.spent == (3.5, 0.0)
    assert [line.fingerprint for line in budget.ledger] == [fingerprint(made[name]) for name in NAMES]
    for name in NAMES:
        assert main(["infer", f"out/{name}.json", "--json", "--draws", "400", "--seed", "1"]) == DONE
        assert json.loads(capsys.readouterr().out)["summary"]
    assert main(["report", "p.ledger", "--html", "report.html"]) == DONE
    assert "one patient" in Path("report.html").read_text()
    assert main(["report", "p.ledger"]) == DONE
    assert "one patient" in capsys.readouterr().out


def test_a_plan_that_asks_for_too_much_is_refused_whole(desk, capsys):
    """Nothing is charged for the releases that would still have fitted."""
    Path("plan.toml").write_text(PLAN.replace("epsilon = 4.0", "epsilon = 3.0"))
    assert release() == REFUSED
    assert PrivacyBudget.open("p.ledger").ledger == ()
    assert not Path("out").exists()
    assert main(["preview", "plan.toml", "--n", "400"]) == REFUSED
    Path("plan.toml").write_text(PLAN.replace("epsilon = 4.0", 'epsilon = 4.0\ndelta = 1e-6\naccounting = "zcdp"'))
    assert main(["preview", "plan.toml", "--n", "400"]) == REFUSED
    assert "by zcdp, of 4" in capsys.readouterr().out


def test_a_blank_label_is_missing_and_a_flag_has_a_histogram(desk):
    table = pd.read_csv("table.csv").astype({"region": object})
    table.loc[0, "region"] = ""
    table.to_csv("table.csv", index=False)
    assert release("--only", "regions") == WRONG
    text = PLAN.replace('labels = ["north", "south", "east"]', 'labels = ["north", "south", "east"]\nmissing = "south"')
    Path("plan.toml").write_text(text + '[release.flags]\nkind = "histogram"\ncolumn = "smoker"\nepsilon = 0.1\n')
    assert release("--only", "regions", "--only", "flags") == DONE
    assert Release.from_json(Path("out/flags.json").read_text()).settings["labels"] == ("no", "yes")
    assert PrivacyBudget.open("p.ledger").ledger[0].label.startswith("regions: ")


def test_parquet_gives_the_same_releases_as_csv(desk):
    assert release("--teaching-seed", "1") == DONE
    arguments = [
        "release",
        "plan.toml",
        "table.parquet",
        "--ledger",
        "q.ledger",
        "--out",
        "too",
        "--teaching-seed",
        "1",
    ]
    assert main(arguments) == DONE
    assert all(Path(f"out/{name}.json").read_text() == Path(f"too/{name}.json").read_text() for name in NAMES)


GAPS = """
[project]
unit = "one patient"
epsilon = 4.0
[columns.pay]
kind = "number"
low = 0
high = 100
count_missing = true
[columns.region]
kind = "category"
labels = ["north", "south", "east"]
count_missing = true
[columns.age]
kind = "integer"
low = 0
high = 110
missing = 40
[release.pay]
kind = "mean"
column = "pay"
epsilon = 1.0
[release.regions]
kind = "histogram"
column = "region"
epsilon = 1.0
[release.ages]
kind = "quantiles"
column = "age"
quantiles = [0.25, 0.5, 0.75]
epsilon = 1.0
[release.table]
kind = "tables"
tables = [["region"]]
epsilon = 1.0
"""


@pytest.mark.parametrize("file", ["table.csv", "table.parquet"])
def test_missing_values_are_counted_and_quantiles_have_intervals(desk, capsys, file):
    """Of 400 records, 60 have no pay and 40 no region; 21 records leave out a count with probability below 1e-4."""
    table = pd.read_csv("table.csv", dtype={"region": object})
    table.loc[:59, "pay"], table.loc[360:, "region"] = np.nan, None
    table.to_csv("table.csv", index=False)
    table.assign(age=pd.to_numeric(table["age"], errors="coerce")).to_parquet("table.parquet")
    Path("plan.toml").write_text(GAPS)
    files = ["--ledger", "p.ledger", "--out", "out", "--teaching-seed", "3"]
    assert main(["preview", "plan.toml", "--n", "400"]) == DONE
    assert main(["release", "plan.toml", file, *files]) == DONE
    made = {
        name: Release.from_json(Path(f"out/{name}.json").read_text()) for name in ("pay", "regions", "ages", "table")
    }
    assert made["regions"].settings["labels"] == ("north", "south", "east", "missing")
    assert abs(made["pay"]["missing"][0] - 60) < 45
    assert abs(made["regions"]["histogram"][3] - 40) < 21
    assert made["table"]["region"].shape == (4,)
    capsys.readouterr()
    for name in made:
        assert main(["infer", f"out/{name}.json", "--json", "--draws", "400", "--seed", "1"]) == DONE
        found = json.loads(capsys.readouterr().out)["summary"]
        if name == "ages":
            assert found["quantiles[50%]"]["2.5%"] < np.quantile(
                pd.to_numeric(table["age"], errors="coerce").fillna(40), 0.5
            )


def test_a_value_that_is_refused_stops_the_whole_plan_before_anything_is_spent(desk):
    """The first release does not look at the column in which a value is missing."""
    table = pd.read_csv("table.csv", dtype={"region": object})
    table.loc[399, "region"] = None
    table.to_csv("table.csv", index=False)
    assert release() == WRONG
    assert PrivacyBudget.open("p.ledger").ledger == ()
    assert not list(Path("out").iterdir())


def test_what_was_released_is_not_released_again_and_an_overspent_plan_stops(desk, capsys):
    assert release("--only", "pay") == DONE
    assert release("--only", "pay") == REFUSED
    assert "holds pay already" in capsys.readouterr().err
    Path("plan.toml").write_text(PLAN.replace("epsilon = 0.5\n[release.smokers]", "epsilon = 3.5\n[release.smokers]"))
    assert release("--only", "regions") == REFUSED
    assert "asks for more than is left" in capsys.readouterr().err
    assert not Path("out/regions.json").exists()
    assert PrivacyBudget.open("p.ledger").spent[0] == 1.0


@pytest.mark.parametrize(
    ("change", "code", "said"),
    [
        (lambda: Path("plan.toml").write_text(PLAN.replace("high = 110", "high = 0")), WRONG, "columns.age"),
        (lambda: Path("plan.toml").write_text("not a plan"), WRONG, "plan.toml"),
        (lambda: Path("plan.toml").unlink(), FILES, "plan.toml"),
        (lambda: Path("table.csv").unlink(), FILES, "table.csv"),
        (lambda: Path("table.csv").write_text("a,b\n1,2\n"), WRONG, "columns that the table has not"),
        (lambda: Path("p.ledger").write_text("no ledger"), WRONG, "ledger"),
    ],
)
def test_mistakes_are_one_sentence_and_an_exit_code_and_nothing_is_spent(desk, capsys, change, code, said):
    change()
    assert release() == code
    err = capsys.readouterr().err.strip()
    assert said in err
    assert err.startswith("dpbook: ")
    assert "\n" not in err
    assert not list(Path().glob("out/*.json"))


def test_nothing_of_the_records_is_printed_that_was_not_paid_for(desk, capsys):
    """Two tables whose records differ, with the same noise switched off from sight: the words are the same."""
    assert release("--only", "pay") == DONE
    first = capsys.readouterr()
    table = pd.read_csv("table.csv")
    table["pay"] = 99.0
    table["region"] = "south"
    table.to_csv("table.csv", index=False)
    Path("out/pay.json").unlink()
    Path("p.ledger").unlink()
    assert release("--only", "pay") == DONE
    second = capsys.readouterr()

    def without_marks(text):
        return [line.split("  ")[0] for line in text.splitlines()]

    assert without_marks(first.out) == without_marks(second.out)
    assert first.err == second.err


def test_records_that_cannot_be_read_are_not_quoted(desk, capsys):
    Path("table.csv").write_text('id,age,pay,region,smoker\n1,30,20,north,yes\n2,"40,topsecret\n3,4,5,6,7,8,9\n')
    assert release() in (WRONG, FILES)
    shown = capsys.readouterr()
    assert "topsecret" not in shown.err + shown.out


def test_a_plan_is_written_from_the_header_and_answers(desk, capsys, monkeypatch):
    import io

    answers = "one person\n2\n0\nskip\ninteger\n0\n110\nnumber\n0\n100\ncategory\nnorth, south, east\nflag\n"
    monkeypatch.setattr(sys, "stdin", io.StringIO(answers))
    assert main(["plan", "table.csv", "--out", "mine.toml"]) == DONE
    assert main(["plan", "table.csv", "--out", "mine.toml"]) == REFUSED
    text = Path("mine.toml").read_text()
    assert "secret" not in text
    assert 'labels = ["north", "south", "east"]' in text
    assert main(["plan", "table.parquet", "--out", "blank.toml", "--blank"]) == DONE
    monkeypatch.setattr(sys, "stdin", io.StringIO("one person\n"))
    assert main(["plan", "table.csv", "--out", "third.toml"]) == WRONG
    assert "ended early" in capsys.readouterr().err


def test_an_audit_refutes_noise_that_is_too_small_and_no_right_one(desk, capsys, monkeypatch):
    """A right release is refuted with probability one in a thousand at most; the seed is fixed."""
    Path("plan.toml").write_text(PLAN.split("[release.smokers]")[0])
    assert main(["audit", "plan.toml", "--trials", "1500", "--json"]) == DONE
    assert json.loads(capsys.readouterr().out)["refuted"] == []
    make = kinds.make

    def quiet(plan, request, *rest):  # a fifth of the noise, and the same claim
        return make(plan, type(request)(request.name, request.kind, 5 * request.epsilon, 0.0, request.options), *rest)

    monkeypatch.setattr(kinds, "make", quiet)
    assert main(["audit", "plan.toml", "--trials", "1500", "--json"]) == REFUSED
    assert json.loads(capsys.readouterr().out)["refuted"]


def test_it_runs_as_a_module():
    done = subprocess.run([sys.executable, "-m", "dpbook", "--version"], capture_output=True, text=True, cwd=ROOT)
    assert done.stdout.startswith("dpbook ")
    assert main([]) == WRONG
