"""One figure style for the whole book, one colour, marker and line for each method, and the figures that recur.

Six colours are Okabe and Ito's; the others were chosen so that any two methods differ for readers with normal vision
and for those without red, green or blue cones. Every method also has its own pair of marker and line style, so no
figure depends on colour alone. Backgrounds are light, and the page gives them a light card on the dark theme.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["GRID", "INK", "METHODS", "MethodStyle", "model_diagram", "plot_densities", "style_of", "use_style"]

INK = "#22252b"
GRID = "#d9dce3"


@dataclass(frozen=True)
class MethodStyle:
    """How one method looks in every figure of the book.

    ``label`` is its name in legends; ``color``, ``marker`` and ``linestyle`` are as Matplotlib takes them. Explained in
    :doc:`/book/how-to-use`.

    Examples
    --------
    >>> from dpbook.plotting import METHODS
    >>> METHODS["naive"].label
    'naive'
    """

    label: str
    color: str
    marker: str
    linestyle: str


METHODS: Mapping[str, MethodStyle] = {
    "non-private": MethodStyle("non-private", "#22252b", "o", "-"),
    "naive": MethodStyle("naive", "#d55e00", "X", "--"),
    "exact": MethodStyle("noise-aware (exact)", "#0072b2", "D", "-"),
    "collapsed": MethodStyle("noise-aware (collapsed)", "#009e73", "s", "-."),
    "gibbs": MethodStyle("noise-aware (Gibbs)", "#56b4e9", "^", ":"),
    "laplace": MethodStyle("Laplace", "#4540d8", "s", "-"),
    "gaussian": MethodStyle("Gaussian", "#588641", "o", "--"),
    "exponential": MethodStyle("exponential mechanism", "#cc79a7", "P", "-."),
    "randomized response": MethodStyle("randomised response", "#e69f00", "v", ":"),
    "objective": MethodStyle("objective perturbation", "#7b241c", "<", "-."),
    "prior": MethodStyle("prior", "#5f6570", "", ":"),
    "normality": MethodStyle("averaged, corrected", "#0d5379", ">", "-"),
    "normality as printed": MethodStyle("averaged, as printed", "#ff8646", "h", "--"),
    "fisher": MethodStyle("−2 log p", "#b326a6", "p", "-."),
    "centred": MethodStyle("centred bounds", "#46cc60", "d", "-"),
    "sparse vector": MethodStyle("doubled bounds", "#a62646", "*", "--"),
    "gibbs-update": MethodStyle("Gibbs-Update", "#7393ec", ">", ":"),
    "gibbs-prior": MethodStyle("Gibbs-Prior", "#7946c6", ">", "--"),
    "gibbs-noisy": MethodStyle("Gibbs-Noisy", "#9fb986", "p", "--"),
    "individual": MethodStyle("individual records", "#460600", "h", "-"),
    "output": MethodStyle("output perturbation", "#ff0040", "*", ":"),
    "cgm": MethodStyle("noise-aware (CGM)", "#8679ff", "d", "-."),
    "penalised": MethodStyle("noise-aware (penalised)", "#93b9d2", "p", "-"),
    "dp-sgd": MethodStyle("DP-SGD", "#533953", "h", ":"),
    "mbi": MethodStyle("Private-PGM", "#c6acac", "d", "--"),
    "random": MethodStyle("random guess", "#53068c", "*", "-."),
    "sample": MethodStyle("posterior draw (II)", "#b31a06", "p", ":"),
    "plug-in": MethodStyle("synthetic, plug-in (III)", "#132d59", "h", "-."),
    "bayes": MethodStyle("synthetic, Bayes (IV)", "#730dff", "d", ":"),
}


def style_of(method: str) -> dict[str, Any]:
    """Return the plot arguments of one method: its label, colour, marker and line style.

    Explained in :doc:`/book/how-to-use`.

    Parameters
    ----------
    method : str
        A key of ``METHODS``.

    Returns
    -------
    dict
        Keyword arguments of :meth:`matplotlib.axes.Axes.plot`.

    Examples
    --------
    >>> from dpbook.plotting import style_of
    >>> style_of("naive")["color"]
    '#d55e00'
    """
    if method not in METHODS:
        raise ValueError(f"method must be one of {', '.join(METHODS)}, got {method!r}")
    style = METHODS[method]
    return {"label": style.label, "color": style.color, "marker": style.marker, "linestyle": style.linestyle}


def use_style() -> None:
    """Set Matplotlib's defaults to the book's style. Explained in :doc:`/book/how-to-use`.

    Examples
    --------
    >>> import matplotlib
    >>> from dpbook.plotting import use_style
    >>> use_style()
    >>> matplotlib.rcParams["axes.spines.top"]
    False
    """
    import matplotlib as mpl

    mpl.rcParams.update(_settings())


def _settings() -> dict[Any, Any]:
    """Return the book's style as Matplotlib's settings."""
    from cycler import cycler

    return {
        "figure.figsize": (7.0, 3.6),
        "figure.dpi": 130,
        "savefig.dpi": 130,
        "figure.facecolor": "white",
        "figure.constrained_layout.use": True,
        "axes.facecolor": "white",
        "axes.edgecolor": INK,
        "axes.labelcolor": INK,
        "axes.titlesize": 11,
        "axes.labelsize": 11,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "axes.axisbelow": True,
        "axes.prop_cycle": cycler(color=["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"]),
        "grid.color": GRID,
        "grid.linewidth": 0.7,
        "font.family": "DejaVu Sans",
        "font.size": 10.5,
        "text.color": INK,
        "xtick.color": INK,
        "ytick.color": INK,
        "legend.frameon": False,
        "legend.fontsize": 9.5,
        "lines.linewidth": 2.0,
        "lines.markersize": 6,
    }


def plot_rows(
    labels: Sequence[str],
    middle: NDArray[np.float64],
    spans: Sequence[NDArray[np.float64]],
    *,
    xlabel: str,
    title: str = "",
    method: str = "",
    ax: Axes | None = None,
) -> Axes:
    """Draw a point for each label, first on top, and its intervals, each inner one thicker; return the axes."""
    import matplotlib as mpl
    from matplotlib import pyplot as plt

    style = METHODS.get(method, METHODS["exact"])
    places = np.arange(len(labels))
    with mpl.rc_context(_settings()):
        if ax is None:
            _, ax = plt.subplots(figsize=(7.0, min(1.2 + 0.3 * len(labels), 20.0)))
        for width, span in zip((1.5, 4.0), spans, strict=False):
            ax.hlines(places, span[:, 0], span[:, 1], color=style.color, linewidth=width)
        point: dict[str, Any] = {
            "color": style.color,
            "marker": style.marker or "o",
            "markersize": 9,
            "markeredgecolor": "white",
        }
        ax.plot(middle, places, linestyle="", zorder=3, **point)
        # A name is shown as it is: between dollars Matplotlib would read mathematics.
        ax.set_yticks(places, [label.replace("$", r"\$") for label in labels])
        ax.set(xlabel=xlabel, title=title.replace("$", r"\$"), ylim=(len(labels) - 0.4, -0.6))
        ax.grid(visible=False, axis="y")
    return ax


def plot_densities(
    ax: Axes, densities: Mapping[str, Any], theta: ArrayLike, *, truth: float | None = None, xlabel: str = "θ"
) -> None:
    """Draw posterior densities over each other, each in its method's colour, with labelled axes.

    Explained in :doc:`/book/background/after-a-release`.

    Parameters
    ----------
    ax : matplotlib.axes.Axes
    densities : mapping of str to object with ``pdf``
        Keys of ``METHODS``.
    theta : array
        Where to evaluate them.
    truth : float, optional
        Marked by a thin vertical line.
    xlabel : str, default "θ"

    Examples
    --------
    >>> import numpy as np
    >>> from matplotlib.figure import Figure
    >>> from dpbook.expfam import BetaMixture
    >>> from dpbook.plotting import plot_densities
    >>> ax = Figure().subplots()
    >>> plot_densities(ax, {"naive": BetaMixture([1], [3], [3])}, np.linspace(0, 1, 50))
    >>> ax.get_ylabel()
    'posterior density'
    """
    points = np.asarray(theta, dtype=float)
    for method, density in densities.items():
        style = style_of(method) | {"marker": ""}
        height = density.pdf(points)
        ax.plot(points, height, **style)
        ax.fill_between(points, height, color=style["color"], alpha=0.08, linewidth=0)
    if truth is not None:
        ax.axvline(truth, color=INK, linewidth=1, linestyle=(0, (1, 2)))
    ax.set(xlabel=xlabel, ylabel="posterior density", ylim=(0, None))
    ax.legend()


def model_diagram(
    ax: Axes,
    nodes: Mapping[str, tuple[float, float]],
    edges: Sequence[tuple[str, str]],
    *,
    observed: Sequence[str] = (),
    plates: Sequence[tuple[float, float, float, float, str]] = (),
    title: str = "",
) -> None:
    """Draw a directed graphical model: circles for variables, shaded when observed, arrows, plates with their sizes.

    Explained in :doc:`/book/background/after-a-release`.

    Parameters
    ----------
    ax : matplotlib.axes.Axes
    nodes : mapping of str to (x, y)
        Each variable's label and centre, one unit apart.
    edges : sequence of (from, to)
        The arrows.
    observed : sequence of str
        Which variables the analyst sees; they are shaded.
    plates : sequence of (x, y, width, height, label)
        Rectangles around repeated variables.
    title : str

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> from dpbook.plotting import model_diagram
    >>> ax = Figure().subplots()
    >>> model_diagram(ax, {"θ": (0, 1), "x": (0, 0)}, [("θ", "x")], observed=["x"], title="data seen")
    >>> ax.get_title()
    'data seen'
    """
    from matplotlib.patches import Circle, FancyArrowPatch, FancyBboxPatch

    unknown = [name for pair in edges for name in pair if name not in nodes] + [o for o in observed if o not in nodes]
    if unknown:
        raise ValueError(f"edges and observed must name nodes; unknown: {', '.join(unknown)}")
    radius = 0.28
    for x, y, width, height, label in plates:
        ax.add_patch(
            FancyBboxPatch(
                (x, y), width, height, boxstyle="round,pad=0,rounding_size=0.08", fill=False, edgecolor=INK, linewidth=1
            )
        )
        ax.text(x + width - 0.06, y + 0.05, label, ha="right", va="bottom", fontsize=9)
    for start, end in edges:
        ax.add_patch(
            FancyArrowPatch(
                nodes[start], nodes[end], arrowstyle="-|>", mutation_scale=12, color=INK, shrinkA=19, shrinkB=19
            )
        )
    for name, centre in nodes.items():
        fill = "#cfd6e4" if name in observed else "white"
        ax.add_patch(Circle(centre, radius, facecolor=fill, edgecolor=INK, linewidth=1.3, zorder=3))
        ax.text(*centre, name, ha="center", va="center", fontsize=11, zorder=4)
    ax.set_aspect("equal")
    ax.axis("off")
    corners = [(x + a * width, y + a * height) for x, y, width, height, _ in plates for a in (0, 1)]
    xs, ys = zip(*nodes.values(), strict=True)
    edge_xs, edge_ys = zip(*corners, strict=True) if corners else (xs, ys)
    ax.set(
        xlim=(min(min(xs) - 0.7, min(edge_xs) - 0.1), max(max(xs) + 0.7, max(edge_xs) + 0.1)),
        ylim=(min(min(ys) - 0.6, min(edge_ys) - 0.1), max(max(ys) + 0.6, max(edge_ys) + 0.1)),
        title=title,
    )
