"""The interactive page of coins: exact curves, no network, labelled and operable controls."""

import json
import re

import numpy as np
from loading import load_study

from dpbook import theory
from dpbook.theory import BetaBernoulli

pictures = load_study("theory", "pictures")

SMALL = {"alphas": [1, 10], "sizes": [10, 100], "records": [1, 10]}


def test_the_curves_are_exact_profiles():
    curves = pictures.profile_curves(**SMALL)
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
    page = pictures.interactive_profile(**SMALL)
    assert page == pictures.interactive_profile(**SMALL)
    data = json.loads(re.search(r'class="dpt-data">(.*?)</script>', page, re.S).group(1))
    curves = pictures.profile_curves(**SMALL)
    np.testing.assert_allclose(np.cumsum(data["steps"], axis=-1) / 1000, curves["log10_delta"], atol=1e-9)
    assert data["alphas"] == [1.0, 10.0]


def test_the_page_needs_no_network_and_its_controls_are_labelled():
    page = pictures.interactive_profile(**SMALL)
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
