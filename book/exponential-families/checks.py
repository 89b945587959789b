"""The checks that help with the exercises of chapter 3: ``check("ex-…", answer)`` in any of its sections."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dpbook.exercises import Exercises, close, expect, number

exercises = Exercises()
check, numbers = exercises.check, exercises.numbers


# 3.2 The naive posterior and how it lies -----------------------------------------------------------------------------


@exercises.public("ex-naive-posterior-kappa")
def kappa(function: Callable[[float, float, float, float], float]) -> None:
    got = number(function(1, 0.1, 1000, 0.21), "kappa(1, 0.1, 1000, 0.21)")
    right = 2 / (0.1**2 * 1000 * 0.21)
    expect(not np.isclose(got, right / 2), "Laplace noise of scale b has variance 2b², not b².")
    expect(not np.isclose(got, np.sqrt(right)), "That is a ratio of standard deviations. Square it.")
    expect(not np.isclose(got, right * 1000), "The variance is that of one record; the sum has n times as much.")
    expect(not np.isclose(got, 1 / right), "Noise over sampling, not the other way round.")
    close(got, right, "With scale b = sensitivity / epsilon it is 2b² over n times the variance.")
