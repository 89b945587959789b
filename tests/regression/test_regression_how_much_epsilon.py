"""Previews and plans of regressions against what inference then finds, with its defaults and with a stated prior."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest

from dpbook import regression
from dpbook.regression.sensitivities import UNIT


class Design(NamedTuple):
    """Covariates and response within [-1, 1]: their number, their spread, and how much is explained."""

    d: int
    n: int
    epsilon: float
    sd_x: float
    sd_y: float
    r_squared: float
    mechanism: str = "laplace"

    @property
    def public(self) -> dict[str, Any]:
        """What a preview is told, epsilon apart."""
        spread = {"sd_x": self.sd_x, "sd_y": self.sd_y, "r_squared": self.r_squared}
        return {"n": self.n, "d": self.d, **spread, **self.noise}

    @property
    def noise(self) -> dict[str, Any]:
        """What a release is told, epsilon apart."""
        delta = 0.0 if self.mechanism == "laplace" else 1e-6
        return {"x_bounds": (-1, 1), "y_bounds": (-1, 1), "mechanism": self.mechanism, "delta": delta}

    def releases(self, count: int, epsilon: float, rng: np.random.Generator) -> list[Any]:
        """Return releases of as many data sets: symmetric beta covariates, normal errors."""
        shape = (1 / self.sd_x**2 - 1) / 2
        slope = np.sqrt(self.r_squared / self.d) * self.sd_y / self.sd_x
        made = []
        for _ in range(count):
            x = 2 * rng.beta(shape, shape, (self.n, self.d)) - 1
            y = slope * x.sum(axis=1) + np.sqrt(1 - self.r_squared) * self.sd_y * rng.standard_normal(self.n)
            made.append(regression.release(x, y, epsilon=epsilon, rng=rng, **self.noise))
        return made


def widths(posteriors: Any) -> np.ndarray:
    """Return the widths of 95 % intervals of the coefficients, (release, q)."""
    drawn = [each.draws["theta"] for each in posteriors]
    return np.array(
        [np.ptp(np.quantile(each.reshape(-1, each.shape[-1]), [0.025, 0.975], axis=0), axis=0) for each in drawn]
    )


# Bounds that fit and bounds up to five times as wide; R² from .2 to .9.
DESIGNS = [
    Design(1, 100, 10.0, 0.4, 0.3, 0.5),
    Design(1, 500, 1.0, 0.4, 0.3, 0.5),
    Design(1, 2000, 1.0, 0.2, 0.15, 0.8),
    Design(1, 20_000, 0.1, 0.4, 0.3, 0.3),
    Design(2, 1000, 3.0, 0.4, 0.3, 0.5, "gaussian"),
    Design(2, 5000, 1.0, 0.2, 0.15, 0.2),
    Design(2, 20_000, 1.0, 0.08, 0.06, 0.9),
    Design(3, 3000, 1.0, 0.3, 0.15, 0.5),
    Design(8, 5000, 10.0, 0.2, 0.15, 0.5, "gaussian"),
    Design(8, 20_000, 1.0, 0.4, 0.3, 0.5),
]


@pytest.mark.filterwarnings("ignore")  # chains are short
@pytest.mark.parametrize("design", DESIGNS, ids=lambda each: f"d={each.d} n={each.n} epsilon={each.epsilon:g}")
def test_the_preview_of_ten_designs_foretells_the_widths_of_the_default_posterior(design: Design) -> None:
    """Medians of 16 releases within 25 %; their own error is about 6 %, that of the preview was below 12 % in 30."""
    look = regression.preview(epsilon=design.epsilon, **design.public)
    rng = np.random.default_rng(5)
    found = np.median(widths(regression.infer(design.releases(16, design.epsilon, rng), draws=400, rng=rng)), axis=0)
    assert look.width[0] == pytest.approx(found[0], rel=0.25)
    assert np.mean(look.width[1:]) == pytest.approx(np.mean(found[1:]), rel=0.25)
    assert look.notes["hidden"] < 0.2


@pytest.mark.filterwarnings("ignore")  # chains are short: there are 300 of each
@pytest.mark.parametrize(
    "design", [Design(1, 1000, 1.0, 0.4, 0.3, 0.5), Design(2, 2000, 1.0, 0.4, 0.3, 0.5, "gaussian")]
)
def test_the_planned_epsilon_gives_the_wanted_width(design: Design) -> None:
    """Over 300 trials the median is within 10 %; its own error is about 1 %."""
    wanted = 1.6 * regression.preview(epsilon=1e4, **design.public).width[1]
    plan = regression.solve_epsilon(wanted, of="x1", **design.public)
    rng = np.random.default_rng(6)
    found = widths(regression.infer(design.releases(300, plan.epsilon, rng), draws=300, rng=rng, warm_up=200))
    assert np.median(found[:, 1]) == pytest.approx(wanted, rel=0.1)
    assert plan.low < wanted < plan.high


def test_a_stated_prior_is_previewed_by_its_own_posterior() -> None:
    """The collapsed posterior of 24 releases, at a design that is not the prior's centre, within 15 %."""
    design = Design(1, 1000, 1.0, 0.4, 0.3, 0.5)
    prior = regression.NormalInverseGamma([0, 0], 1.0, 3, 0.2)
    look = regression.preview(epsilon=1.0, prior=prior, **design.public)
    rng = np.random.default_rng(7)
    found = np.median(widths(regression.infer(design.releases(24, 1.0, rng), prior, draws=800, rng=rng)), axis=0)
    np.testing.assert_allclose(look.width, found, rtol=0.15)


def test_units_do_not_matter() -> None:
    design = Design(1, 1000, 1.0, 0.4, 0.3, 0.5)
    inside = regression.preview(epsilon=1.0, **design.public)
    spread = {"sd_x": 4.0, "sd_y": 0.6, "r_squared": 0.5}
    outside = regression.preview(epsilon=1.0, n=1000, x_bounds={"age": (20, 40)}, y_bounds=(3, 7), **spread)
    assert outside.width[1] == pytest.approx(inside.width[1] * 0.2, rel=1e-6)
    assert outside.width_low[1] < outside.width[1] < outside.width_high[1]


def test_without_an_intercept_too() -> None:
    settings = {"n": 2000, "x_bounds": (0, 2), "y_bounds": (-1, 5), "intercept": False}
    look = regression.preview(epsilon=1.0, **settings)
    assert look.width.shape == (1,)
    plan = regression.solve_epsilon(float(look.width[0]), **settings)
    assert plan.epsilon == pytest.approx(1.0, rel=0.05)


def test_where_noise_hides_the_covariates_a_plan_says_so() -> None:
    design = Design(1, 100, 1.0, 0.4, 0.3, 0.5)
    wide = float(regression.preview(epsilon=1.5, **design.public).width[1])
    with pytest.warns(UserWarning, match=r"of the covariates' spread: posteriors have long tails.*tighten x_bounds"):
        regression.solve_epsilon(wide, **design.public)


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"width": 0.001}, ValueError, r"width must be greater than 0\.152"),  # 3.92 · .4 sqrt(.75) / (.4 sqrt(500))
        ({"width": 0}, ValueError, "width must be greater than 0"),
        ({"of": "age"}, ValueError, "of must be one of"),
        ({"d": 2}, TypeError, "of must be one of"),
        ({"sd_x": 1.2}, ValueError, "sd_x of x1 must be less than half the width"),
        ({"sd_x": [0.1, 0.1]}, ValueError, "sd_x must be positive, one for all or one for each of 1"),
        ({"sd_x": {"b": 1}}, ValueError, "sd_x must name the columns"),
        ({"sd_y": 3}, ValueError, "sd_y must be less than half the width"),
        ({"r_squared": 1.5}, ValueError, "r_squared"),
        ({"covariates": regression.NormalInverseWishart([0], 1, 1, 3)}, ValueError, "together with prior"),
        ({"mechanism": "gaussian"}, ValueError, "delta"),
    ],
)
def test_what_is_wrong_is_named(changes: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        regression.solve_epsilon(**{"width": 0.5, "n": 500, "x_bounds": (-1, 1), "y_bounds": (-1, 1), **changes})


def test_the_grid_of_the_sums_is_that_of_records_up_to_one() -> None:
    from dpbook.records import grid_unit

    assert grid_unit(1.0) == UNIT
