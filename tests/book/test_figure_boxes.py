"""Figures of a page get boxes that know how wide they were drawn."""

from __future__ import annotations

from pathlib import Path

import figure_boxes
import pytest
from matplotlib.figure import Figure

PAGE = '<figure><img alt="a" src="../../_images/one.png" /></figure><img alt="b" src="../_static/images/logo.png">'


def test_the_size_of_a_picture_is_read_from_its_head(tmp_path: Path) -> None:
    Figure(figsize=(3, 2)).savefig(tmp_path / "drawn.png", dpi=100)
    assert figure_boxes.size_of(tmp_path / "drawn.png") == (300, 200)


def test_a_file_that_is_no_picture_is_refused(tmp_path: Path) -> None:
    (tmp_path / "not.png").write_text("not a picture, but long enough for a head")
    with pytest.raises(ValueError, match=r"not\.png is not a PNG file"):
        figure_boxes.size_of(tmp_path / "not.png")


def test_a_figure_gets_its_box_and_size_and_other_pictures_are_left_alone() -> None:
    boxed = figure_boxes.boxed(PAGE, {"one.png": (300, 200)})
    assert '<span class="figure-box" style="--drawn: 300px"><img alt="a"' in boxed
    assert 'width="300" height="200"></span></figure>' in boxed
    assert boxed.endswith('<img alt="b" src="../_static/images/logo.png">')


def test_a_figure_of_unknown_size_is_left_as_it_is() -> None:
    assert figure_boxes.boxed(PAGE, {}) == PAGE
