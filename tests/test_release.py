"""A release is immutable, survives JSON to the bit, and holds only what may be public."""

import json
import math
import pickle
from dataclasses import FrozenInstanceError

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from dpbook import Release, __version__


def make(**changes):
    fields = {
        "values": {"sum": np.array([12.25]), "table": np.arange(6).reshape(2, 3)},
        "model": "binomial",
        "mechanism": "laplace",
        "scale": {"sum": 2.0, "table": 4.0},
        "sensitivity": {"sum": 1.0, "table": 2.0},
        "epsilon": 0.5,
        "n": 40,
        "bounds": {"x": (0, 1)},
        "settings": {"intercept": True, "cliques": [["a", "b"], ["b"]], "ridge": 0.1, "note": None},
        "float_safe": False,
    }
    return Release(**(fields | changes))


@given(arrays(np.float64, (2, 3), elements=st.floats(allow_nan=False, allow_infinity=False)))
def test_json_round_trip_is_exact_to_the_bit(values):
    release = make(values={"sum": values, "table": np.array([1, -(2**62)])})
    restored = Release.from_json(release.to_json())
    assert restored["sum"].tobytes() == values.tobytes()
    assert restored["sum"].shape == (2, 3)
    assert restored["table"].dtype == np.int64
    assert restored == release
    assert hash(restored) == hash(release)


def test_every_field_survives_the_round_trip():
    release = make(epsilon=0.1 + 0.2, delta=1e-7, scale={"sum": math.pi, "table": 1 / 3})
    restored = Release.from_json(release.to_json())
    assert restored.epsilon == 0.1 + 0.2
    assert restored.delta == 1e-7
    assert restored.scale["sum"] == math.pi
    assert restored.bounds == {"x": (0.0, 1.0)}
    assert restored.settings["cliques"] == (("a", "b"), ("b",))
    assert restored.settings["intercept"] is True
    assert restored.neighbours == "replace-one"
    assert restored.version == __version__
    assert list(restored.values) == ["sum", "table"]


def test_json_is_standard():
    json.loads(make().to_json(), parse_constant=lambda text: pytest.fail(f"{text} is not JSON"))


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_a_release_refuses_nan_and_infinity_by_name(bad):
    with pytest.raises(ValueError, match="sum"):
        make(values={"sum": [bad], "table": [1]})
    with pytest.raises(ValueError, match="ridge"):
        make(settings={"ridge": bad})


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"epsilon": 0}, "epsilon"),
        ({"delta": 1.0}, "delta"),
        ({"n": 0}, "n must"),
        ({"n": 1.5}, "n must"),
        ({"values": {}}, "values"),
        ({"values": {"sum": ["a"], "table": [1]}}, "sum"),
        ({"scale": {"sum": 1.0}}, "scale"),
        ({"sensitivity": {"sum": -1.0, "table": 1.0}}, "sensitivity"),
        ({"bounds": {"x": (1, 0)}}, "bounds"),
        ({"float_safe": 1}, "float_safe"),
        ({"model": None}, "model"),
        ({"settings": {"f": print}}, "settings"),
        ({"settings": {1: 2}}, "settings"),
    ],
)
def test_a_release_refuses_bad_fields_by_name(changes, named):
    with pytest.raises((TypeError, ValueError), match=named):
        make(**changes)


def test_a_release_is_immutable_all_the_way_down():
    source = np.array([1.0])
    release = make(values={"sum": source, "table": [1]})
    source[0] = 5.0
    assert release["sum"][0] == 1.0
    with pytest.raises(FrozenInstanceError):
        release.epsilon = 9.0
    with pytest.raises(ValueError, match="read-only"):
        release["sum"][0] = 2.0
    for mapping in (release.values, release.scale, release.settings, release.bounds):
        with pytest.raises(TypeError):
            mapping["sum"] = 1.0  # type: ignore[index]


def test_a_release_can_travel_to_another_process():
    assert pickle.loads(pickle.dumps(make())) == make()


def test_equality_sees_every_bit():
    assert make() == make()
    assert make() != make(values={"sum": [np.nextafter(12.25, 13)], "table": np.arange(6).reshape(2, 3)})
    assert make() != make(epsilon=0.6)
    assert make() != "release"


@pytest.mark.parametrize("text", ["", "[]", "{}", "3", '{"format": "dpbook.Release/1"}', None])
def test_other_text_is_refused(text):
    with pytest.raises(ValueError, match="text"):
        Release.from_json(text)


def test_inference_refuses_a_release_of_another_model_or_mechanism():
    release = make()
    release.require(model="binomial", mechanisms=("laplace",))
    with pytest.raises(ValueError, match="binomial"):
        release.require(model="regression")
    with pytest.raises(ValueError, match="laplace"):
        release.require(model="binomial", mechanisms=("gaussian",))


def test_the_report_states_guarantee_unit_n_scale_and_noise_source():
    text = make().report(unit="one respondent")
    for fact in ("ε = 0.5", "replace-one", "One respondent", "n = 40", "noise scale 2", "do not publish", "[0, 1]"):
        assert fact in text
    assert "do not publish" not in make(float_safe=True).report()
    assert "δ = 1e-06" in make(delta=1e-6).report()
