"""The interactive figures in a real browser: they load, show the package's numbers, and answer to keys and mouse."""

from __future__ import annotations

import io
import os
import re
import sys
from pathlib import Path
from typing import Any

import matplotlib.image
import numpy as np
import pytest
from sweep import HTML, UNFOLD, built_pages, open_page

sys.path.insert(0, str(Path(__file__).parents[1] / "book"))

from explorable_numbers import REFERENCES

PAGES = {
    "odds": "definition",
    "noise": "choosing-epsilon",
    "posterior": "after-a-release",
    "composition": "composition",
    "clipping": "unit-of-privacy",
    "sparse": "sparse-vector-and-quantiles",
}
DESKTOP_AND_PHONE = [(1400, "light"), (390, "dark")]
NIGHTLY = [*DESKTOP_AND_PHONE, (1400, "dark"), (390, "light"), (768, "light"), (320, "dark")]
VIEWS = NIGHTLY if os.environ.get("DPBOOK_ALL_WIDTHS") == "1" else DESKTOP_AND_PHONE

each_figure = pytest.mark.parametrize("name", PAGES)


def show(chromium: Any, name: str, *, width: int = 1400, theme: str = "light", said: list[str]) -> Any:
    """Return the interactive figure in its page."""
    built_pages()
    page = HTML / "book" / "background" / f"{PAGES[name]}.html"
    tab = open_page(chromium, page, width=width, theme=theme, said=said)
    figure = tab.locator(f"#fig-explore-{name} .explorable[data-ready=yes]")
    figure.wait_for(timeout=20_000)
    return figure


def state_of(figure: Any, name: str) -> dict[str, Any]:
    """Return what the figure shows when nothing was moved."""
    found: dict[str, Any] = figure.page.evaluate(f"() => dpx.numbers.START.{name}")
    return found


def words(name: str, numbers: dict[str, Any]) -> list[str]:
    """Return what the text under a figure must hold, from the package's numbers."""
    if name == "odds":
        return [
            f"by {numbers['factor']:.2f}",
            f"{numbers['after']:.0%}".replace("%", " %"),
            f"{numbers['truePositive']:.3f}",
        ]
    if name == "noise":
        return [f"{numbers['sampling']:.3g}", f"{numbers['laplace']:.3g}", f"worth {numbers['worth']:.0f} exact"]
    if name == "posterior":
        return [f"{numbers[way]['low']:.3f} to {numbers[way]['high']:.3f}" for way in ("naive", "aware")]
    if name == "composition":
        return [f"{numbers[account]:.2f}" for account in ("sum", "advanced", "zcdp", "optimal")]
    if name == "clipping":
        return [
            f"bias {100 * numbers['bias']:.1f} %",
            f"noise {100 * numbers['sd']:.1f} %",
            f"is {numbers['best']['cap']},",
        ]
    return [f"with probability {100 * numbers['near']:.0f} %", f"{numbers['bar']:.0f} on the threshold"]


@each_figure
@pytest.mark.parametrize(("width", "theme"), VIEWS)
def test_the_figure_loads_without_an_error_and_is_not_blank(chromium: Any, name: str, width: int, theme: str) -> None:
    said: list[str] = []
    figure = show(chromium, name, width=width, theme=theme, said=said)
    for plot in figure.locator("svg.dpx-plot").all():
        plot.scroll_into_view_if_needed()
        pixels = matplotlib.image.imread(io.BytesIO(plot.screenshot()))[..., :3]
        colours = np.unique((pixels.reshape(-1, 3) * 15).round().astype(int), axis=0)
        assert len(colours) > 8, "axes, a curve and its colour"
        assert (pixels.mean() > 0.6) == (theme == "light")
    assert figure.evaluate("(e) => e.scrollWidth <= e.clientWidth + 1")
    assert said == []
    figure.page.context.close()


@each_figure
def test_the_figure_says_the_packages_numbers_and_stands_where_the_picture_stood(chromium: Any, name: str) -> None:
    figure = show(chromium, name, said=[])
    text = re.sub(r"\s+", " ", figure.locator(".dpx-says").inner_text())
    numbers = REFERENCES[name](**state_of(figure, name))
    assert [missing for missing in words(name, numbers) if missing not in text] == [], text
    picture = figure.page.locator(f"#fig-explore-{name} img")
    assert not picture.is_visible()
    figure.page.emulate_media(media="print")
    assert picture.is_visible()
    assert not figure.is_visible()
    figure.page.context.close()


@each_figure
def test_every_control_is_reached_by_tab_has_a_name_and_changes_the_numbers(chromium: Any, name: str) -> None:
    figure = show(chromium, name, said=[])
    says, page = figure.locator(".dpx-says"), figure.page
    controls = figure.locator("input, select, button")
    controls.first.focus()
    for number in range(controls.count()):
        control = controls.nth(number)
        assert control.evaluate("(e) => document.activeElement === e"), "Tab goes from control to control"
        assert control.evaluate("(e) => (e.labels?.[0]?.innerText || e.innerText || '').trim().length > 0")
        kind = control.evaluate("(e) => e.type")
        before = says.inner_text()
        if kind == "submit" or kind == "button":
            page.keyboard.press("Tab")
            continue
        page.keyboard.press({"checkbox": "Space", "select-one": "ArrowDown"}.get(kind, "ArrowLeft"))
        if kind == "range" and says.inner_text() == before:  # it may stand at its first value
            page.keyboard.press("ArrowRight")
        assert says.inner_text() != before
        page.keyboard.press("Tab")
    figure.get_by_role("button", name="Reset").press("Enter")
    numbers = REFERENCES[name](**state_of(figure, name))
    assert all(each in re.sub(r"\s+", " ", says.inner_text()) for each in words(name, numbers))
    assert says.get_attribute("aria-live") == "polite"
    page.context.close()


@pytest.mark.parametrize(
    ("name", "key"), [("odds", "seen"), ("posterior", "released"), ("clipping", "cap"), ("noise", "n")]
)
def test_a_line_can_be_dragged(chromium: Any, name: str, key: str) -> None:
    figure = show(chromium, name, said=[])
    plot, page = figure.locator("svg.dpx-plot").first, figure.page
    plot.scroll_into_view_if_needed()
    box, before = plot.bounding_box(), figure.locator(f"[data-key={key}]").input_value()
    page.mouse.move(box["x"] + 0.5 * box["width"], box["y"] + box["height"] / 2)
    page.mouse.down()
    page.mouse.move(box["x"] + 0.9 * box["width"], box["y"] + box["height"] / 2, steps=4)
    page.mouse.up()
    after = figure.locator(f"[data-key={key}]").input_value()
    assert int(after) > int(before)
    if name == "posterior":
        assert "No count can be there; the naive analyst reads 199" in figure.locator(".dpx-says").inner_text()
    page.context.close()


def test_the_search_goes_one_question_at_a_time_and_ends_with_a_yes(chromium: Any) -> None:
    figure = show(chromium, "sparse", said=[])
    says, page = figure.locator(".dpx-says"), figure.page
    figure.get_by_role("button", name="Next question").press("Enter")
    assert "Question 1:" in says.inner_text()
    assert "Published so far: no, once." in says.inner_text()
    page.emulate_media(reduced_motion="reduce")
    figure.get_by_role("button", name="Run to the stop").press("Enter")
    ended = says.inner_text()  # at once: who asks for less motion gets no animation
    stop = re.search(r"yes at (\d+) dollars", ended)
    assert stop is not None, ended
    assert f"Published: {int(stop.group(1)) - 1} times no" in ended
    figure.get_by_role("button", name="New noise").press("Enter")
    assert "Press “Next question”" in says.inner_text()
    page.context.close()


def test_the_theme_can_be_switched_while_the_figure_is_open_and_follows_the_system(chromium: Any) -> None:
    figure = show(chromium, "odds", theme="light", said=[])
    colour = "(e) => getComputedStyle(e.querySelector('.dpx-plot text')).fill"
    light = figure.evaluate(colour)
    figure.page.evaluate("() => { document.documentElement.dataset.theme = 'dark' }")
    assert figure.evaluate(colour) != light
    figure.page.context.close()
    context = chromium.new_context(color_scheme="dark")
    tab = context.new_page()
    tab.goto((HTML / "book" / "background" / "definition.html").as_uri(), wait_until="load")
    tab.locator("#fig-explore-odds .explorable[data-ready=yes]").wait_for(timeout=20_000)
    assert tab.evaluate("() => document.documentElement.dataset.theme") == "dark"
    context.close()


def test_without_scripts_the_picture_is_there(chromium: Any) -> None:
    built_pages()
    context = chromium.new_context(java_script_enabled=False)
    tab = context.new_page()
    tab.goto((HTML / "book" / "background" / "definition.html").as_uri(), wait_until="load")
    assert tab.locator("#fig-explore-odds img").is_visible()
    assert tab.locator(".explorable").count() == 0
    context.close()


def test_the_picture_of_chapter_6_answers_to_keys_too(chromium: Any) -> None:
    said: list[str] = []
    built_pages()
    tab = open_page(chromium, HTML / "book" / "theory" / "coins.html", width=1400, theme="light", said=said)
    tab.evaluate(UNFOLD)
    says, slider = tab.locator("figure .dpt-says").first, tab.locator(".dpt input[type=range]").first
    picture = tab.locator("#fig-coins-profile img")
    assert not picture.is_visible()
    before = says.inner_text()
    slider.focus()
    tab.keyboard.press("ArrowRight")
    assert says.inner_text() != before
    assert said == []
    tab.emulate_media(media="print")
    assert picture.is_visible()
    assert not slider.is_visible()
    tab.context.close()
