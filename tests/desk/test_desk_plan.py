"""Plans: what is in the file, what is refused and named, and that a draft is a plan."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from dpbook.desk import Plan
from dpbook.desk.kinds import check, make
from dpbook.desk.plan import draft
from dpbook.schema import Category, Flag, Integer, Number

GOOD = """
[project]
unit = "one patient"
epsilon = 1.0
delta = 1e-6
accounting = "zcdp"

[columns.age]
kind = "integer"
low = 0
high = 110
missing = 40

[columns.pay]
kind = "number"
low = 0.0
high = 200.0

[columns."region of birth"]
kind = "category"
labels = ["north", "south"]

[columns.smoker]
kind = "flag"

[release.pay]
kind = "mean"
column = "pay"
epsilon = 0.1

[release.by-age]
kind = "regression"
response = "pay"
covariates = ["age"]
epsilon = 0.2
delta = 1e-7
"""


def test_a_plan_says_columns_budget_and_releases():
    plan = Plan.from_toml(GOOD)
    assert (plan.unit, plan.epsilon, plan.delta, plan.accounting) == ("one patient", 1.0, 1e-6, "zcdp")
    assert plan.columns == {
        "age": Integer(0, 110),
        "pay": Number(0, 200),
        "region of birth": Category(["north", "south"]),
        "smoker": Flag(),
    }
    assert plan.missing == {"age": 40}
    assert [(each.name, each.kind, each.mechanism) for each in plan.requests] == [
        ("pay", "mean", "laplace"),
        ("by-age", "regression", "gaussian"),
    ]
    check(plan)


def test_numbers_are_released_unclipped_and_missing_values_replaced():
    """A mean counts what lies beyond its bounds; a missing age is 40."""
    text = GOOD.replace('column = "pay"', 'column = "age"', 1)
    plan = Plan.from_toml(text)
    request = replace(plan.requests[0], epsilon=1e9)
    made = make(plan, request, pd.DataFrame({"age": [None, 300.0, 55.0]}), np.random.default_rng(0), None)
    assert made["histogram"].round().tolist() == [0, 0, 0, 0, 1, 0, 1, 0, 0, 0, 0, 1]


def test_missing_values_are_replaced_or_counted_and_not_both():
    counted = GOOD.replace("missing = 40", "count_missing = true")
    assert Plan.from_toml(counted).schema(["age"]).missing == "category"
    with pytest.raises(ValueError, match=r"columns.age. must have missing or count_missing, not both"):
        Plan.from_toml(GOOD.replace("missing = 40", "missing = 40\ncount_missing = true"))
    with pytest.raises(TypeError, match=r"count_missing of .columns.age."):
        Plan.from_toml(GOOD.replace("missing = 40", 'count_missing = "yes"'))
    with pytest.raises(ValueError, match="count_missing must be set for all columns"):
        Plan.from_toml(counted).schema(["age", "pay"])


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ('unit = "one patient"', "", "unit"),
        ("epsilon = 1.0", "epsilon = -1.0", "epsilon of .project."),
        ("epsilon = 1.0", 'epsilon = "1"', "epsilon of .project."),
        ('accounting = "zcdp"', 'accounting = "pld"', "accounting"),
        ("delta = 1e-6", "gamma = 1e-6", "gamma"),
        ("high = 110", "", "columns.age. needs high"),
        ("high = 110", "high = -3", "columns.age"),
        ('kind = "flag"', 'kind = "boolean"', "columns.smoker"),
        ('labels = ["north", "south"]', "labels = []", "region of birth"),
        ("missing = 40", "missing = 400", "age"),
        ("[release.pay]", '[release."../pay"]', "name of a release"),
        ('[release.pay]\nkind = "mean"', "[release.pay]", "release.pay. needs a kind"),
        ("epsilon = 0.1", "", "epsilon of .release.pay."),
    ],
)
def test_what_is_wrong_with_a_plan_is_named(old, new, named):
    assert old in GOOD
    with pytest.raises((TypeError, ValueError), match=named):
        Plan.from_toml(GOOD.replace(old, new, 1))


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ('kind = "mean"', 'kind = "median"', "kind of .release.pay. must be one of mean"),
        ('column = "pay"', 'column = "pays"', "column must be one of"),
        ('column = "pay"', 'column = "smoker"', "must be a number or an integer"),
        ('column = "pay"', 'columns = "pay"', "release.pay. needs column"),
        ('column = "pay"', 'column = "pay"\nshapes = 0.2', "does not know 'shapes'"),
        ('column = "pay"', 'column = "pay"\nshape = 2', "shape"),
        ('covariates = ["age"]', 'covariates = ["age", "age"]', "different columns"),
        ('covariates = ["age"]', 'covariates = "age"', "different columns"),
    ],
)
def test_a_release_that_cannot_be_made_is_named_before_any_data_are_read(old, new, named):
    assert old in GOOD
    with pytest.raises(ValueError, match=named):
        check(Plan.from_toml(GOOD.replace(old, new, 1)))


def test_a_draft_with_answers_is_a_plan_and_one_without_is_a_form():
    answers = {
        "age": {"kind": "integer", "low": 0, "high": 110},
        'odd "name"': {"kind": "category", "labels": ["a", 'b"c']},
        "smoker": {"kind": "flag"},
    }
    text = draft(list(answers), answers, {"unit": "one visit", "epsilon": 2.0}, "table.csv")
    plan = Plan.from_toml(text)
    assert plan.columns['odd "name"'].labels == ("a", 'b"c')
    assert (plan.unit, plan.epsilon, plan.requests) == ("one visit", 2.0, ())
    blank = draft(["age"], {}, {}, "table.csv")
    assert "# [columns.age]" in blank
    assert "# labels = " in blank
    with pytest.raises(ValueError, match="columns"):
        Plan.from_toml(blank)
