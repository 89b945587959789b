"""Of hidden code the course edition keeps what shown code needs, and nothing that only tests the book."""

from __future__ import annotations

import pytest
from needed_code import needed_code


def kept(*cells: tuple[str, bool]) -> list[str]:
    """Return what is left of the hidden cells."""
    return [left for (_, shown), left in zip(cells, needed_code(cells), strict=True) if not shown]


def test_a_shown_cell_stays_as_it_is() -> None:
    assert needed_code([("x = 1  # one\n\nassert x", True)]) == ["x = 1  # one\n\nassert x"]


@pytest.mark.parametrize(
    ("hidden", "shown", "left"),
    [
        ("import math\nimport os", "math.pi", "import math"),
        ("from dpbook.plotting import INK, use_style", "INK", "from dpbook.plotting import INK"),
        ("x = 1\ny = x + 1\nz = 3", "y", "x = 1\ny = x + 1"),
        ("x = 1\nassert x == 1\nglue('x', '1')", "x", "x = 1"),
        ("def f(x):\n    return x + a\n\n\na = 2", "f(1)", "def f(x):\n    return x + a\n\n\na = 2"),
        ("rows = []\nfor k in range(3):\n    rows.append(k)\n    assert k < 3", "rows", None),
        ("total = 0\nfor k in range(3):\n    total += k", "total", "total = 0\nfor k in range(3):\n    total += k"),
        ("d = {}\nd['a'] = 1", "d['a']", "d = {}\nd['a'] = 1"),
        ("# a reason\nx = 1", "x", "# a reason\nx = 1"),
        ("for k in range(3):\n    assert k < 3", "k = 5\nk", ""),
        ("glue = print\nfor k in range(3):\n    x = k\n    glue(k)", "x", "for k in range(3):\n    x = k"),
        ("x = 1", "x = 2\nx", ""),
        ("x = 1", "[x for x in (1, 2)]", ""),
        ("for k in range(3):\n    x = k\n    assert x < 3", "for k in (4, 5):\n    x = k\n    print(x)", ""),
        ("for k in range(3):\n    x = k", "for k in (4, 5):\n    print(x)", "for k in range(3):\n    x = k"),
        ("f = 1\ng = 2", "with open('a') as f:\n    print(f, g)", "g = 2"),
        ("x = 1\ny = 2", "if y:\n    x = 3\n    x", "y = 2"),
        ("rng = 1", "def f(rng):\n    return rng.x[0]", ""),
        ("x = 1\nprint(x)", "print(2)", ""),
        ("total = 0", "for k in (1, 2):\n    total += k", "total = 0"),
        ("import a\n\n\ndef f():\n    a.start()", "a.b", "import a"),
        (
            "d = {1: []}\nfor e, x in d.items():\n    x.append(e)",
            "d",
            "d = {1: []}\nfor e, x in d.items():\n    x.append(e)",
        ),
        ("import os\nimport sys\n\nos.chdir('a')", "open('b')", "import os\n\nos.chdir('a')"),
        ("np.testing.assert_allclose(a, b)", "a", ""),
        ("assert grade('ex-a', x).passed", "x = 1", ""),
    ],
)
def test_what_is_needed_is_kept(hidden: str, shown: str, left: str | None) -> None:
    expected = "rows = []\nfor k in range(3):\n    rows.append(k)" if left is None else left
    assert kept((hidden, False), (shown, True)) == [expected]


def test_the_style_is_set_where_there_are_figures_only() -> None:
    hidden = "from dpbook.plotting import use_style\n\nuse_style()"
    assert kept((hidden, False), ("plt.plot([1])", True)) == [hidden]
    assert kept((hidden, False), ("1 + 1", True)) == [""]


def test_needs_are_followed_through_several_hidden_cells() -> None:
    assert kept(("a = 1", False), ("b = a", False), ("c = 3", False), ("b", True)) == ["a = 1", "b = a", ""]


def test_what_a_shown_cell_defines_is_not_taken_from_a_hidden_one_before_it() -> None:
    assert kept(("x = 1", False), ("x = 2", True), ("x", True)) == [""]


def test_a_loop_over_lists_that_appends_to_them_is_kept() -> None:
    hidden = "errors = {1: []}\nfor e, of in errors.items():\n    of.append(e)"
    assert kept((hidden, False), ("errors[1]", True)) == [hidden]
