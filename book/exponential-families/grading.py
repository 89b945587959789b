"""The tests that grade the exercises of chapter 3, with typical wrong answers: for instructors."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from checks import exercises

from dpbook.exercises import close

grade, wrong = exercises.grade, exercises.wrong

Rng = np.random.Generator

STUDENT = "reader"  # whose numbers the wrong answers have


# 3.2 The naive posterior and how it lies -----------------------------------------------------------------------------


@exercises.hidden("ex-naive-posterior-kappa")
def kappa(function: Callable[[float, float, float, float], float], rng: Rng) -> None:
    top, epsilon, variance = rng.uniform([2, 0.05, 0.2], [20, 3, 4])
    n = int(rng.integers(50, 5000))
    right = 2 * top**2 / (epsilon**2 * n * variance)
    close(function(top, epsilon, n, variance), right, f"It fails for a sensitivity of {top:.1f}.")


wrong(
    "ex-naive-posterior-kappa",
    scale_squared=(lambda d, e, n, v: (d / e) ** 2 / (n * v), "variance 2b²"),
    deviations=(lambda d, e, n, v: np.sqrt(2 / (n * v)) * d / e, "Square it"),
    one_record=(lambda d, e, n, v: 2 * (d / e) ** 2 / v, "the sum has n times"),
    upside_down=(lambda d, e, n, v: n * v / (2 * (d / e) ** 2), "the other way round"),
)
