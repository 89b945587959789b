"""Draw the README's picture, book/_static/readme.png: one noisy count, three posteriors.

The scene is that of the section "What a Bayesian should believe after a release". Run as a script.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from dpbook import expfam
from dpbook.datasets import load_fair
from dpbook.expfam import Beta, BetaMixture, Binomial, posterior_density
from dpbook.plotting import plot_densities, use_style

PICTURE = Path(__file__).resolve().parents[1] / "book" / "_static" / "readme.png"


def draw(path: Path) -> None:
    """Write the picture to ``path``."""
    use_style()
    everyone = (load_fair()["affairs"] > 0).astype(int)
    asked = everyone[::32]
    release = expfam.release(asked, Binomial(), epsilon=0.1, rng=np.random.default_rng(4))
    densities = {
        "non-private": BetaMixture([1], [1 + asked.sum()], [1 + len(asked) - asked.sum()]),
        "naive": posterior_density(release, Beta(1, 1), method="naive"),
        "exact": posterior_density(release, Beta(1, 1)),
    }
    figure = Figure(figsize=(7, 3.4))
    ax = figure.subplots()
    plot_densities(
        ax, densities, np.linspace(0, 0.75, 400), truth=float(everyone.mean()), xlabel="share who would say yes"
    )
    figure.savefig(path, metadata={"Software": None})


if __name__ == "__main__":
    draw(PICTURE)
