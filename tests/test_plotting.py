from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Circle, FancyArrowPatch, FancyBboxPatch
from numpy.typing import NDArray

from dpbook.expfam import BetaMixture
from dpbook.plotting import INK, METHODS, model_diagram, plot_densities, style_of, use_style

FloatArray = NDArray[np.float64]

# Linear RGB as seen by readers who lack one kind of cone (Machado, Oliveira and Fernandes 2009, severity 1).
VISION = {
    "normal": np.eye(3),
    "protanopia": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "deuteranopia": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
    "tritanopia": np.array(
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]]
    ),
}
TO_XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
JUST_NOTICEABLE = 2.3  # of CIELAB distance


def linear(color: str) -> FloatArray:
    """Return linear light from sRGB."""
    rgb = np.array(to_rgb(color))
    return np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)


def lab(color: str, vision: str) -> FloatArray:
    """Return the CIELAB coordinates of a colour as a reader with this vision sees it."""
    xyz = TO_XYZ @ np.clip(VISION[vision] @ linear(color), 0, 1) / TO_XYZ.sum(axis=1)
    f = np.where(xyz > (6 / 29) ** 3, np.cbrt(xyz), xyz / (3 * (6 / 29) ** 2) + 4 / 29)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def apart(one: str, other: str, vision: str) -> float:
    """Return the distance at which a reader with this vision sees two colours."""
    return float(np.linalg.norm(lab(one, vision) - lab(other, vision)))


@pytest.fixture
def ax() -> Axes:
    return Figure().subplots()


@pytest.fixture
def restored() -> Iterator[None]:
    with mpl.rc_context():
        yield


# One look a method


def test_the_distance_is_that_of_known_colours() -> None:
    assert lab("#ffffff", "normal") == pytest.approx([100, 0, 0], abs=0.02)
    assert lab("#ff0000", "normal") == pytest.approx([53.24, 80.09, 67.20], abs=0.05)


def test_the_simulated_readers_confuse_what_they_should() -> None:
    # The pairs on which each of them famously fails come closer by half or more; a pink and a grey merge.
    assert apart("#d04040", "#6a7a20", "protanopia") < 0.5 * apart("#d04040", "#6a7a20", "normal")
    assert apart("#d04040", "#8a7a20", "deuteranopia") < 0.5 * apart("#d04040", "#8a7a20", "normal")
    assert apart("#0072b2", "#007a70", "tritanopia") < 0.5 * apart("#0072b2", "#007a70", "normal")
    assert apart("#cc79a7", "#8a8f99", "deuteranopia") < 2 * JUST_NOTICEABLE


@pytest.mark.parametrize("vision", VISION)
def test_any_two_methods_have_colours_that_this_reader_tells_apart(vision: str) -> None:
    distances = {
        (one, other): apart(METHODS[one].color, METHODS[other].color, vision)
        for one, other in itertools.combinations(METHODS, 2)
    }
    close = {pair: round(distance, 1) for pair, distance in distances.items() if distance < 6 * JUST_NOTICEABLE}
    assert close == {}


def test_no_two_methods_share_marker_and_line_so_that_none_depends_on_colour() -> None:
    looks = {name: (style.marker, style.linestyle) for name, style in METHODS.items()}
    assert len(set(looks.values())) == len(METHODS)


def test_no_two_methods_share_a_label() -> None:
    assert len({style.label for style in METHODS.values()}) == len(METHODS)


@pytest.mark.parametrize("method", METHODS)
def test_every_colour_stands_out_from_the_white_ground(method: str) -> None:
    luminance = float(np.array([0.2126, 0.7152, 0.0722]) @ linear(METHODS[method].color))
    assert 1.05 / (luminance + 0.05) > 2  # the contrast ratio of web accessibility


@pytest.mark.parametrize("method", METHODS)
def test_a_style_is_what_plot_takes(method: str, ax: Axes) -> None:
    (line,) = ax.plot([0, 1], [0, 1], **style_of(method))
    style = METHODS[method]
    assert (line.get_label(), line.get_color()) == (style.label, style.color)
    assert (line.get_marker(), line.get_linestyle()) == (style.marker, style.linestyle)


def test_a_style_cannot_be_changed_by_a_figure() -> None:
    changed = style_of("naive")
    changed["color"] = "red"
    assert style_of("naive")["color"] != "red"
    with pytest.raises(dataclasses.FrozenInstanceError):
        METHODS["naive"].color = "red"  # type: ignore[misc]


def test_an_unknown_method_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"method must be one of non-private, naive.*got 'magic'"):
        style_of("magic")


@pytest.mark.usefixtures("restored")
def test_the_style_makes_figures_that_a_phone_can_show() -> None:
    use_style()
    width, height = mpl.rcParams["figure.figsize"]
    assert width <= 7.5
    assert height < width
    assert min(mpl.rcParams[part] for part in ("font.size", "legend.fontsize", "axes.labelsize")) >= 9
    assert mpl.rcParams["figure.facecolor"] == mpl.rcParams["axes.facecolor"] == "white"


@pytest.mark.usefixtures("restored")
def test_using_the_style_twice_changes_nothing_more() -> None:
    use_style()
    once = dict(mpl.rcParams)
    use_style()
    assert dict(mpl.rcParams) == once


# Figures that recur


def test_densities_are_drawn_in_the_colours_of_their_methods(ax: Axes) -> None:
    theta = np.linspace(0, 1, 51)
    densities = {"naive": BetaMixture([1], [3], [5]), "exact": BetaMixture([1, 1], [2, 5], [5, 2])}
    plot_densities(ax, densities, theta, xlabel="share")
    assert [line.get_color() for line in ax.lines] == [METHODS[name].color for name in densities]
    assert [line.get_linestyle() for line in ax.lines] == [METHODS[name].linestyle for name in densities]
    for line, density in zip(ax.lines, densities.values(), strict=True):
        np.testing.assert_array_equal(line.get_ydata(), density.pdf(theta))
    legend = ax.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == [METHODS[name].label for name in densities]
    assert (ax.get_xlabel(), ax.get_ylabel(), ax.get_ylim()[0]) == ("share", "posterior density", 0)


def test_the_truth_is_one_more_thin_line_without_a_label(ax: Axes) -> None:
    plot_densities(ax, {"naive": BetaMixture([1], [3], [5])}, np.linspace(0, 1, 51), truth=0.25)
    curve, mark = ax.lines
    np.testing.assert_array_equal(mark.get_xdata(), [0.25, 0.25])
    assert mark.get_linewidth() < curve.get_linewidth()
    assert str(mark.get_label()).startswith("_")


def test_a_density_of_an_unknown_method_is_refused(ax: Axes) -> None:
    with pytest.raises(ValueError, match="method must be one of"):
        plot_densities(ax, {"magic": BetaMixture([1], [3], [5])}, [0.5])


NODES = {"θ": (0.0, 2.0), "s": (0.0, 1.0), "z": (1.0, 0.0)}
EDGES = [("θ", "s"), ("s", "z")]


def test_a_diagram_has_a_circle_a_variable_an_arrow_an_edge_and_shades_what_is_seen(ax: Axes) -> None:
    model_diagram(ax, NODES, EDGES, observed=["z"], plates=[(-0.5, 0.5, 1.0, 1.0, "n")], title="private")
    circles = {patch.center: patch for patch in ax.patches if isinstance(patch, Circle)}
    assert set(circles) == set(NODES.values())
    unseen, seen = circles[NODES["s"]], circles[NODES["z"]]
    assert unseen.get_facecolor() == circles[NODES["θ"]].get_facecolor() == (1, 1, 1, 1)
    assert seen.get_facecolor() != unseen.get_facecolor()
    assert sum(isinstance(patch, FancyArrowPatch) for patch in ax.patches) == len(EDGES)
    assert sum(isinstance(patch, FancyBboxPatch) for patch in ax.patches) == 1
    assert {text.get_text() for text in ax.texts} == {*NODES, "n"}
    assert ax.get_title() == "private"


def test_an_arrow_points_from_the_first_to_the_second(ax: Axes) -> None:
    model_diagram(ax, NODES, [("θ", "z")])
    (arrow,) = (patch for patch in ax.patches if isinstance(patch, FancyArrowPatch))
    assert arrow._posA_posB == [NODES["θ"], NODES["z"]]  # type: ignore[attr-defined]
    assert arrow.get_edgecolor() == (*to_rgb(INK), 1.0)


def test_all_of_a_diagram_lies_within_its_limits_the_plates_too(ax: Axes) -> None:
    plates = [(-1.5, -1.0, 4.0, 4.5, "n")]
    model_diagram(ax, NODES, EDGES, plates=plates)
    (left, right), (bottom, top) = ax.get_xlim(), ax.get_ylim()
    for x, y in NODES.values():
        assert left < x - 0.28 < x + 0.28 < right
        assert bottom < y - 0.28 < y + 0.28 < top
    assert left < -1.5 < 2.5 < right
    assert bottom < -1.0 < 3.5 < top


@pytest.mark.parametrize(
    ("edges", "observed"), [([("θ", "y")], []), ([("y", "z")], []), (EDGES, ["y"])], ids=["to", "from", "observed"]
)
def test_a_diagram_names_the_variable_that_it_does_not_know(
    edges: list[tuple[str, str]], observed: list[str], ax: Axes
) -> None:
    with pytest.raises(ValueError, match="edges and observed must name nodes; unknown: y"):
        model_diagram(ax, NODES, edges, observed=observed)
