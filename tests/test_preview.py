"""What every preview returns: a table of standard deviations, whichever of them a kind of release has."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from test_wall import PACKAGE, is_curators, modules, ways

from dpbook.preview import EpsilonPlan, Preview

TWO = Preview(
    ("age", "pay"),
    sensitivity=2.0,
    noise_scale=4.0,
    noise_sd=np.array([0.1, 0.2]),
    sampling_sd=[0.3, 0.4],
    posterior_sd=0.5,
    notes={"share clipped": 0.25},
)


def test_the_summary_has_a_row_for_each_name_and_a_column_for_each_sd_that_there_is() -> None:
    table = TWO.summary()
    assert list(table.index) == ["age", "pay"]
    assert table.to_dict("list") == {"noise_sd": [0.1, 0.2], "sampling_sd": [0.3, 0.4], "posterior_sd": [0.5, 0.5]}


def test_a_column_that_is_known_for_one_name_only_is_shown() -> None:
    table = Preview(["a", "b"], 1.0, 2.0, nonprivate_sd=[0.1, np.nan]).summary()
    assert list(table.columns) == ["nonprivate_sd"]
    assert np.isnan(table.loc["b", "nonprivate_sd"])


def test_a_preview_that_knows_the_noise_alone_has_rows_of_names() -> None:
    bare = Preview(["count"], 1.0, 2.0)
    assert bare.summary().shape == (1, 0)
    assert "<td>2</td>" in bare._repr_html_()


def test_notebooks_show_the_table_the_noise_and_the_notes() -> None:
    shown = TWO._repr_html_()
    for cell in (
        "nothing is spent",
        "age",
        "posterior_sd",
        "<td>0.3</td>",
        "noise scale",
        "<td>4</td>",
        "share clipped",
    ):
        assert cell in shown


def test_names_are_kept_as_a_tuple_and_nothing_can_be_assigned() -> None:
    look = Preview(["a", "b"], 1.0, 2.0)
    assert look.names == ("a", "b")
    with pytest.raises(AttributeError):
        look.noise_scale = 1.0  # type: ignore[misc]


def test_previews_of_several_quantities_are_compared_without_an_error_and_survive_pickling() -> None:
    assert TWO == TWO
    assert Preview(("age", "pay"), 2.0, 4.0) != TWO
    again = pickle.loads(pickle.dumps(TWO))
    assert again.summary().equals(TWO.summary())
    assert again.notes == TWO.notes


@pytest.mark.parametrize("names", ["share", ("a", 3)])
def test_names_that_are_no_sequence_of_strings_are_refused(names: object) -> None:
    with pytest.raises(TypeError, match="names must be a sequence of strings"):
        Preview(names, 1.0, 2.0)  # type: ignore[arg-type]


@pytest.mark.parametrize("column", ["noise_sd", "posterior_sd", "break_even_n", "width", "width_low", "width_high"])
def test_as_many_entries_as_names(column: str) -> None:
    with pytest.raises(ValueError, match=f"{column} must be a number or have an entry for each"):
        Preview(["a", "b"], 1.0, 2.0, **{column: [1.0, 2.0, 3.0]})  # type: ignore[arg-type]


def test_a_plan_says_epsilon_and_the_widths_to_expect() -> None:
    plan = EpsilonPlan(0.813, width=0.05, low=0.046, high=0.055)
    assert (plan.epsilon, plan.width, plan.low, plan.high) == (0.813, 0.05, 0.046, 0.055)
    assert "epsilon=0.813" in repr(plan)
    assert "between 0.046 and 0.055" in repr(plan)
    assert "width 1,530, expected between 1,400 and 16,000" in repr(EpsilonPlan(0.8, width=1531.2, low=1400, high=16e3))


@pytest.mark.parametrize("wrong", [{"epsilon": 0.0}, {"width": float("nan")}, {"low": 0.06}, {"high": 0.04}])
def test_a_plan_refuses_numbers_that_cannot_be_one(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"epsilon must|width must"):
        EpsilonPlan(**({"epsilon": 0.8, "width": 0.05, "low": 0.046, "high": 0.055} | wrong))


PREVIEWS = [*sorted(name for name in modules(PACKAGE) if name.endswith("previews")), "dpbook.preview", "dpbook.widths"]


@pytest.mark.parametrize("name", PREVIEWS)
def test_no_preview_reaches_the_side_of_the_curator(name: str) -> None:
    reached = [way for way in ways(PACKAGE, name) if is_curators(PACKAGE, way[-1])]
    assert reached == []
