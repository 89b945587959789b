"""The poster's two pictures, and the interactive page: exact curves, no network, labelled and operable controls."""

import json
import re

import numpy as np
import pytest
from scipy import stats

from dpbook import theory
from dpbook.theory import BetaBernoulli, NormalKnownVariance

SMALL = {"alphas": [1, 10], "sizes": [10, 100], "records": [1, 10]}


def test_the_first_picture_shows_the_posteriors_of_ten_zeros_and_of_a_one_and_nine_zeros():
    picture = theory.first_picture()
    np.testing.assert_allclose(picture.data, stats.beta(1, 11).pdf(picture.points))
    np.testing.assert_allclose(picture.neighbour, stats.beta(2, 10).pdf(picture.points))
    np.testing.assert_allclose(picture.log_ratio, np.log(picture.data / picture.neighbour))


def test_the_second_picture_is_the_predictive_of_a_normal_posterior_with_a_linear_log_ratio():
    picture = theory.second_picture()
    scale = np.sqrt(1 + 1 / 11)
    np.testing.assert_allclose(picture.data, stats.norm(50 / 11, scale).pdf(picture.points))
    np.testing.assert_allclose(picture.neighbour, stats.norm(40 / 11, scale).pdf(picture.points))
    slope = np.diff(picture.log_ratio) / np.diff(picture.points)
    np.testing.assert_allclose(slope, (10 / 11) / scale**2, rtol=1e-9)


@pytest.mark.parametrize("kind", ["sample", "synthetic-plugin", "synthetic-bayes"])
def test_truncated_densities_integrate_to_one(kind):
    points = np.linspace(-1, 1, 20_001)
    found = theory.neighbour_densities(
        kind, NormalKnownVariance(bound=1), [1, 0.2], [-1, 0.2], points=points, truncate=(-1, 1)
    )
    assert np.trapezoid(found.data, points) == pytest.approx(1, abs=1e-6)
    assert np.trapezoid(found.neighbour, points) == pytest.approx(1, abs=1e-6)


def test_counts_have_no_density():
    with pytest.raises(ValueError, match="release_type"):
        theory.neighbour_densities("synthetic-bayes", BetaBernoulli(), [1], [0], points=[0.5])


def test_the_curves_are_exact_profiles():
    curves = theory.profile_curves(**SMALL)
    options = (
        ("sample", {}),
        ("synthetic-plugin", {"m": 10, "estimator": "mean"}),
        ("synthetic-bayes", {"m": 10, "redraw": False}),
    )
    for r, (kind, more) in enumerate(options):
        exact = theory.privacy_profile(kind, BetaBernoulli(10, 10), 100, epsilon=curves["epsilons"], **more)
        with np.errstate(divide="ignore"):
            logs = np.maximum(np.log10(exact), -16)
        np.testing.assert_allclose(curves["log10_delta"][r, 1, 1, 1], logs, atol=6e-4)


def test_the_page_is_the_same_every_time_and_carries_the_curves():
    page = theory.interactive_profile(**SMALL)
    assert page == theory.interactive_profile(**SMALL)
    data = json.loads(re.search(r'class="dpt-data">(.*?)</script>', page, re.S).group(1))
    curves = theory.profile_curves(**SMALL)
    np.testing.assert_allclose(np.cumsum(data["steps"], axis=-1) / 1000, curves["log10_delta"], atol=1e-9)
    assert data["alphas"] == [1.0, 10.0]


def test_the_page_needs_no_network_and_its_controls_are_labelled():
    page = theory.interactive_profile(**SMALL)
    assert not re.search(r"https?://|src=|@import|url\((?!#)", page)
    for name in ("prior, α = β", "records, n", "synthetic records, m"):
        assert re.search(rf"<label[^>]*><span>{re.escape(name)}</span><input type=\"range\"", page)
    assert page.count("aria-valuetext") >= 3
    assert 'aria-live="polite"' in page
    assert 'role="img"' in page
    assert "currentColor" in page
    assert "background:#fff;color:#22252b" in page  # a light card on either theme
    assert "data-theme" not in page
    assert page.count('class="dpt-curve') >= 3  # drawn before any script runs
    assert "@" not in page.replace("@media", "")
