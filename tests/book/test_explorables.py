"""The interactive figures compute what the package computes, to three digits, and keep the book's colours and sizes.

Their numbers live in book/_static/explorables/numbers.js, apart from the drawing; node runs them here.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from itertools import product
from typing import Any

import numpy as np
import pytest
from explorable_numbers import FOLDER, REFERENCES, Numbers, data
from notebooks import ROOT, code_cells, find_sources, read_source

from dpbook.mechanisms import above_threshold
from dpbook.plotting import METHODS

NODE = shutil.which("node")
with_node = pytest.mark.skipif(
    NODE is None, reason="no node on this machine: the numbers of the figures are not compared"
)
SHARED = ("load.js", "numbers.js", "data.js", "stage.js", "stage.css")
HEAVIEST = 150_000

STATES: dict[str, list[dict[str, Any]]] = {
    "odds": [
        {"noise": noise, "epsilon": epsilon, "seen": seen, "prior": prior}
        for noise, epsilon, seen, prior in product(
            ("laplace", "gaussian-2", "gaussian-6"), (0.1, 1.0, 4.0), (2045.0, 2052.5, 2054.0), (1, 50)
        )
    ],
    "noise": [
        {"n": n, "epsilon": epsilon, "share": share}
        for n, epsilon, share in product((10, 1000, 1_000_000), (0.01, 0.1, 1.0, 10.0), (1, 30, 50))
    ],
    "posterior": [
        {"released": released, "n": n, "epsilon": epsilon, "prior": prior}
        for released, n, epsilon, prior in product(
            (-70.0, -12.5, 0.0, 60.0, 198.5, 269.0), (199,), (0.02, 0.1, 2.0), (1, 5, 50)
        )
    ]
    + [{"released": 7.5, "n": 20, "epsilon": 0.5, "prior": 1}],
    "composition": [
        {"epsilon": epsilon, "count": count, "power": power}
        for epsilon, count, power in product((0.01, 0.1, 1.0), (1, 10, 100, 1000), (1, 6, 12))
    ],
    "clipping": [
        {"cap": cap, "epsilon": epsilon, "times": times}
        for cap, epsilon, times in product((5, 52, 90, 260), (0.01, 0.1, 2.0), (0.1, 1, 10))
    ],
    "sparse": [
        {"epsilon": epsilon, "monotone": monotone, "seed": 1}
        for epsilon, monotone in product((0.2, 1.0), (True, False))
    ],
}


def in_node(program: str, given: Any = None) -> Any:
    """Run a program in node with the figures' numbers loaded and ``given`` at hand; return what it returns."""
    start = "".join(f"require({json.dumps(str(FOLDER / name))});" for name in ("numbers.js", "data.js"))
    main = f"const given = {json.dumps(given)}; process.stdout.write(JSON.stringify((() => {{ {program} }})()));"
    run = subprocess.run([str(NODE), "-"], input=start + main, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


def disagreements(shown: Numbers, expected: Numbers) -> list[str]:
    """Return where two sets of numbers differ in their first three digits."""
    found = []
    for name, value in expected.items():
        if isinstance(value, dict):
            found += [f"{name}.{fault}" for fault in disagreements(shown[name], value)]
        elif not np.isclose(shown[name], value, rtol=5e-4, atol=1e-9):
            found.append(f"{name}: {shown[name]} shown, {value} computed")
    return found


@with_node
@pytest.mark.parametrize("name", STATES)
def test_the_figure_says_what_the_package_computes(name: str) -> None:
    states = [in_node(f"return dpx.numbers.START.{name};"), *STATES[name]]
    shown = in_node(f"return given.map((state) => dpx.numbers.{name}(state));", states)
    for state, numbers in zip(states, shown, strict=True):
        assert disagreements(numbers, REFERENCES[name](**state)) == [], state


@with_node
def test_the_densities_and_weights_that_are_drawn_are_those_of_the_package() -> None:
    from dpbook.expfam import BetaMixture

    state = {"released": 60.0, "n": 199, "epsilon": 0.1, "prior": 2}
    at = [0.001, 0.1, 0.3, 0.6, 0.99]
    program = """const { weights, laws } = dpx.numbers.posterior(given.state);
      return { weights, pdf: given.at.map(laws.aware.pdf), cdf: given.at.map(laws.aware.cdf) };"""
    shown = in_node(program, {"state": state, "at": at})
    counts = np.arange(200)
    law = BetaMixture(shown["weights"], 2 + counts, 2 + 199 - counts)
    assert np.isclose(sum(shown["weights"]), 1)
    assert np.allclose(law.mean, REFERENCES["posterior"](**state)["aware"]["mean"], rtol=1e-6)
    assert np.allclose(shown["pdf"], law.pdf(at), rtol=1e-6)
    assert np.allclose(shown["cdf"], law.cdf(at), rtol=1e-6)


@with_node
def test_the_search_stops_as_often_at_each_question_as_the_packages_does() -> None:
    """2,000 searches, G test of the groups with ten or more expected; false alarms one in a thousand."""
    from scipy import stats

    counts, threshold = data()["workers"]["counts"], data()["workers"]["threshold"]
    law = np.array(in_node("return dpx.numbers.sparse(given).law;", {"epsilon": 0.2, "monotone": True, "seed": 1}))
    rng = np.random.default_rng(5)
    how: dict[str, Any] = {"sensitivity": 1, "epsilon": 0.2, "monotone": True, "rng": rng}
    stops = [above_threshold(counts, threshold, **how) for _ in range(2000)]
    seen = np.bincount([len(counts) if stop is None else stop for stop in stops], minlength=len(law))
    many = 2000 * law >= 10
    observed, expected = (np.append(each[many], each[~many].sum()) for each in (seen, 2000 * law))
    assert np.isclose(law.sum(), 1)
    assert stats.power_divergence(observed, expected, lambda_="log-likelihood").pvalue > 0.001


@with_node
def test_the_search_that_is_shown_follows_the_law_that_is_drawn() -> None:
    """4,000 seeds; a search stops at the first answer above its noisy threshold, and its law passes a G test."""
    from scipy import stats

    program = """const { counts, threshold } = dpx.data.workers, stops = [];
      for (let seed = 1; seed <= 4000; seed++) {
        const run = dpx.numbers.search(counts, threshold, 0.2, false, seed);
        run.answers.forEach((each, k) => {
          if ((each >= run.noisyBar) !== (k === run.stop)) throw new Error("it did not stop at the first yes");
        });
        stops.push(run.stop === null ? counts.length : run.stop);
      }
      return {stops, law: dpx.numbers.stoppingLaw(counts, threshold, 0.2, false)};"""
    found = in_node(program)
    law = np.array(found["law"])
    many = 4000 * law >= 10
    seen = np.bincount(found["stops"], minlength=len(law))
    observed, expected = (np.append(each[many], each[~many].sum()) for each in (seen, 4000 * law))
    assert stats.power_divergence(observed, expected, lambda_="log-likelihood").pvalue > 0.001


@with_node
def test_a_wrong_number_would_be_seen() -> None:
    state = {"epsilon": 0.1, "count": 100, "power": 6}
    shown = in_node("return dpx.numbers.composition(given);", state)
    wrong = REFERENCES["composition"](**state) | {"zcdp": 1.002 * shown["zcdp"]}
    assert len(disagreements(shown, wrong)) == 1


# Files, colours, places ----------------------------------------------------------------------------------------------


def figures() -> dict[str, dict[str, Any]]:
    """Return the static figures of the book whose names ask for an interactive one, with their captions."""
    found = {}
    for source in find_sources([ROOT / "book"]):
        for cell in code_cells(read_source(source)):
            words = cell.metadata.get("mystnb", {})
            name = words.get("figure", {}).get("name", "")
            if name.startswith("fig-explore-"):
                found[name.removeprefix("fig-explore-")] = words
    return found


def test_every_interactive_figure_has_a_static_one_with_caption_and_alt_text() -> None:
    scripts = {path.stem for path in FOLDER.glob("*.js")} - {name.removesuffix(".js") for name in SHARED}
    shown = figures()
    assert len(scripts) >= 6
    assert set(shown) == scripts == set(REFERENCES)
    assert all(words["figure"]["caption"].strip() and words["image"]["alt"].strip() for words in shown.values())


@pytest.mark.parametrize("name", REFERENCES)
def test_a_figure_with_all_that_it_loads_is_small_and_loads_nothing_from_a_network(name: str) -> None:
    files = [FOLDER / file for file in (*SHARED, f"{name}.js")]
    assert sum(file.stat().st_size for file in files) < HEAVIEST
    text = "".join(file.read_text(encoding="utf-8") for file in files)
    assert re.findall(r"(?:https?:)?//[a-z][\w.-]*\.[a-z]{2,}", text.replace("http://www.w3.org/2000/svg", "")) == []


def luminance(colour: str) -> float:
    """Return the relative luminance of a colour (WCAG 2)."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return float(np.dot([0.2126, 0.7152, 0.0722], linear))


def test_the_colours_are_those_of_the_book_and_the_dark_ones_stand_out_on_dark() -> None:
    text = (FOLDER / "stage.css").read_text(encoding="utf-8")
    light, dark = (dict(re.findall(r"--dpx-(\w+): (#\w{6});", part)) for part in text.split('html[data-theme="dark"]'))
    names = {"response": "randomized response"}
    assert light == {key: METHODS[names.get(str(key), str(key))].color for key in light}
    assert set(dark) == set(light) == {"naive", "exact", "laplace", "gaussian", "response", "collapsed", "prior"}
    assert all((luminance(colour) + 0.05) / (luminance("#121212") + 0.05) > 4.5 for colour in dark.values())
