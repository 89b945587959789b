"""The command line as it is installed: a whole project through the ``dpbook`` script of an environment with the wheel.

That environment has the extras of a course, and sees nothing of this checkout.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from desk import edition, python, run  # noqa: F401 - fixtures

PLAN = """
[project]
unit = "one patient"
epsilon = 2.0
[columns.pay]
kind = "number"
low = 0
high = 100
count_missing = true
[columns.region]
kind = "category"
labels = ["north", "south"]
[release.pay]
kind = "mean"
column = "pay"
epsilon = 1.0
[release.regions]
kind = "histogram"
column = "region"
epsilon = 0.5
"""
QUANTILES = """
[release.quartiles]
kind = "quantiles"
column = "age"
quantiles = [0.25, 0.5, 0.75]
epsilon = 0.5
[columns.age]
kind = "integer"
low = 0
high = 110
"""
TABLE = """
import pandas as pd
n = 300
table = pd.DataFrame({"pay": [20.0 + i % 40 for i in range(n)], "age": [18 + i % 70 for i in range(n)],
                      "region": ["north" if i % 3 else "south" for i in range(n)]})
table.loc[:29, "pay"] = None
table.to_parquet("table.parquet")
table.to_csv("table.csv", index=False)
"""


@pytest.fixture(scope="module")
def project(python: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a plan and a table."""
    folder: Path = tmp_path_factory.mktemp("project")
    (folder / "plan.toml").write_text(PLAN + QUANTILES)
    made = run(python, "-c", TABLE, cwd=folder)
    assert made.returncode == 0, made.stderr
    return folder


def script(python: Path) -> Path:
    return python.with_name("dpbook.exe" if os.name == "nt" else "dpbook")


def call(python: Path, folder: Path, *arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    """Call the script, which must end with this exit code and, where that is not 0, one sentence."""
    done = run(script(python), *arguments, cwd=folder)
    assert done.returncode == code, done.stderr
    assert code == 0 or (done.stderr.count("\n") == 1 and done.stderr.startswith("dpbook: ")), done.stderr
    return done


def test_a_whole_project_through_the_installed_script(python: Path, project: Path) -> None:
    files = ("--ledger", "project.ledger", "--out", "out")
    blank = call(python, project, "plan", "table.parquet", "--blank", "--out", "draft.toml", "--json")
    assert json.loads(blank.stdout)["columns"] == ["pay", "age", "region"]
    look = json.loads(call(python, project, "preview", "plan.toml", "--n", "300", "--json").stdout)
    assert set(look["releases"]) == {"pay", "regions", "quartiles"}
    made = json.loads(call(python, project, "release", "plan.toml", "table.parquet", *files, "--json").stdout)
    assert made["spent"][0] == 2.0
    for name in ("pay", "regions", "quartiles"):
        summary = json.loads(call(python, project, "infer", f"out/{name}.json", "--json", "--seed", "1").stdout)
        assert summary["summary"]
    call(python, project, "report", "project.ledger", "--html", "report.html")
    assert "one patient" in (project / "report.html").read_text(encoding="utf-8")
    audit = json.loads(call(python, project, "audit", "plan.toml", "--trials", "300", "--json").stdout)
    assert audit["refuted"] == []


def test_what_the_installed_script_refuses_has_an_exit_code_and_one_sentence(python: Path, project: Path) -> None:
    files = ("--ledger", "second.ledger", "--out", "second")
    call(python, project, "release", "plan.toml", "nowhere.csv", *files, code=3)
    (project / "wrong.toml").write_text(PLAN.replace('"mean"', '"median"'))
    call(python, project, "preview", "wrong.toml", "--n", "300", code=2)
    (project / "greedy.toml").write_text(PLAN.replace("epsilon = 2.0", "epsilon = 1.2"))
    call(python, project, "release", "greedy.toml", "table.csv", *files, code=1)
    assert not (project / "second").exists()
