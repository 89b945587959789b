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
from matplotlib.figure import Figure

from dpbook import Release, __version__, aggregate, graphical, together
from dpbook.graphical import hmm


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
    release = make(
        mechanism="gaussian", epsilon=0.1 + 0.2, delta=1e-7, centre={"sum": 0.1}, scale={"sum": math.pi, "table": 1 / 3}
    )
    restored = Release.from_json(release.to_json())
    assert restored.epsilon == 0.1 + 0.2
    assert restored.delta == 1e-7
    assert restored.scale["sum"] == math.pi
    assert restored.centre == {"sum": 0.1}
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
        ({"settings": {"a": {1: 2}}}, "settings"),
        ({"settings": None}, "settings"),
        ({"bounds": None}, "bounds"),
        ({"bounds": {1: (0, 1)}}, "bounds"),
        ({"values": {1: [1.0]}, "scale": {1: 1.0}, "sensitivity": {1: 1.0}}, "values"),
        ({"values": {"sum": np.array([2**63], dtype=np.uint64), "table": [1]}}, "sum"),
        ({"epsilon": 10**400}, "epsilon"),
        ({"n": 2**53 + 1}, "n must"),
        ({"delta": 1e-6}, "delta"),
        ({"delta": 1e-6, "mechanism": "geometric"}, "delta"),
        ({"centre": {"other": 1.0}}, "centre"),
        ({"centre": {"sum": math.inf}}, "centre"),
        ({"centre": 3.0}, "centre"),
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
    with pytest.raises(ValueError, match="WRITEABLE"):
        release["sum"].flags.writeable = True
    for mapping in (release.values, release.scale, release.settings, release.bounds):
        with pytest.raises(TypeError):
            mapping["sum"] = 1.0  # type: ignore[index]


@pytest.mark.filterwarnings("ignore:Setting the:DeprecationWarning")
def test_nothing_done_to_an_array_of_a_release_changes_the_release():
    release = make()
    before = release.to_json()
    for look in (lambda: release["sum"], lambda: release.values["sum"], lambda: dict(release.values)["sum"]):
        with pytest.raises(ValueError, match="WRITEABLE"):
            look().setflags(write=True)
        with pytest.raises(TypeError):
            look().data[0] = 1.0
        held = look()
        held.dtype = np.int64  # of this array alone
        held.shape = (1, 1)
        held.strides = (0, 0)
        assert look().dtype == np.float64
        assert look().shape == (1,)
    for change in (lambda: setattr(release.values, "_held", {}), lambda: release.values.update({})):
        with pytest.raises((TypeError, AttributeError)):
            change()
    nested = make(settings={"a": {"b": [1, {"c": 2}]}, "array": np.ones(2)})
    with pytest.raises(TypeError):
        nested.settings["a"]["b"] = 1
    with pytest.raises(TypeError):
        nested.settings["a"]["b"][1]["c"] = 3
    with pytest.raises(TypeError):
        nested.settings["array"][0] = 3
    assert release.to_json() == before


def test_a_release_can_travel_to_another_process():
    assert pickle.loads(pickle.dumps(make())) == make()


def test_equality_sees_every_bit():
    assert make() == make()
    assert make() != make(values={"sum": [np.nextafter(12.25, 13)], "table": np.arange(6).reshape(2, 3)})
    assert make() != make(epsilon=0.6)
    assert make() != "release"


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", "3", '{"format": "dpbook.Release/1"}', None, 3, b"{}", make().to_json().encode(), bytearray(b"1")],
)
def test_other_text_is_refused(text):
    with pytest.raises(ValueError, match="text"):
        Release.from_json(text)


@pytest.mark.parametrize(
    "values",
    [
        [1.0],
        {"sum": 3, "table": 3},
        {"sum": {"dtype": "float64", "shape": [2], "data": [1.0]}},
        {"sum": {"dtype": "int64", "shape": [1], "data": [1.5]}},
        {"sum": {"dtype": "int64", "shape": [1], "data": [2**70]}},
        {"sum": {"dtype": "float64", "data": [1.0]}},
        {"sum": {"dtype": "number", "shape": [1], "data": [1.0]}},
        {"sum": {"dtype": None, "shape": [1], "data": [1.0]}},
        {"sum": {"dtype": "object", "shape": [1], "data": [1.0]}},
        {"sum": {"dtype": "float64", "shape": None, "data": [1.0]}},
        {"sum": {"dtype": "float64", "shape": 1, "data": [1.0]}},
        {"sum": {"dtype": "float64", "shape": [-1], "data": [1.0]}},
        {"sum": {"dtype": "float64", "shape": [True], "data": [1.0]}},
        {"sum": {"dtype": "float64", "shape": [10**12], "data": [1.0]}},
        {"sum": {"dtype": "float64", "shape": [0, 2**70], "data": []}},
        {"sum": {"dtype": "float64", "shape": [1] * 100, "data": [1.0]}},
        {"sum": {"dtype": "float64", "shape": [1], "data": ["1.0"]}},
        {"sum": {"dtype": "float64", "shape": [1], "data": [True]}},
        {"sum": {"dtype": "float64", "shape": [1], "data": [[1.0]]}},
        {"sum": {"dtype": "float64", "shape": [1], "data": "1"}},
        {"sum": {"dtype": "float64", "shape": [1], "data": [10**400]}},
        {"sum": {"dtype": "int64", "shape": [1], "data": [True]}},
        {"sum": {"dtype": "int64", "shape": [1], "data": [1.0]}},
        {"sum": {"dtype": ["float64"], "shape": [1], "data": [1.0]}},
        {"sum": {"dtype": "float64", "shape": [1], "data": [1.0], "more": 1}},
    ],
)
def test_arrays_that_another_hand_has_changed_are_refused(values):
    content = json.loads(make().to_json()) | {"values": values}
    with pytest.raises(ValueError, match="text has values"):
        Release.from_json(json.dumps(content))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"epsilon": 0.5', '"epsilon": "0.5"'),
        ('"epsilon": 0.5', '"epsilon": true'),
        ('"epsilon": 0.5', '"epsilon": NaN'),
        ('"epsilon": 0.5', '"epsilon": 1e999'),
        ('"epsilon": 0.5', '"epsilon": 0.1, "epsilon": 0.5'),
        ('"ridge": 0.1', '"ridge": Infinity'),
        ('"ridge": 0.1', '"ridge": 0.2, "ridge": 0.1'),
        ('"ridge": 0.1', '"ridge": ' + "[" * 30 + "]" * 30),
        ('"ridge": 0.1', '"ridge": ' + "[" * 100_000 + "]" * 100_000),
        ('"ridge": 0.1', '"ridge": ' + '{"a": ' * 900 + "1" + "}" * 900),
        ('"delta": 0.0', '"delta": 1e-6'),
        ('"delta": 0.0', '"delta": null'),
        ('"n": 40', '"n": 40.0'),
        ('"n": 40', '"n": true'),
        ('"n": 40', '"n": 9007199254740993'),
        ('"n": 40', '"n": 1' + "0" * 5000),
        ('"float_safe": false', '"float_safe": 0'),
        ('"float_safe": false', '"float_safe": "no"'),
        ('"bounds": {"x": [0.0, 1.0]}', '"bounds": {"x": "01"}'),
        ('"bounds": {"x": [0.0, 1.0]}', '"bounds": {"x": [false, true]}'),
        ('"bounds": {"x": [0.0, 1.0]}', '"bounds": null'),
        ('"scale": {"sum": 2.0,', '"scale": {"sum": "2.0",'),
        ('"model": "binomial"', '"model": null'),
    ],
)
def test_hostile_text_is_a_value_error_and_nothing_else(old, new):
    text = make().to_json()
    assert text.count(old) == 1
    with pytest.raises(ValueError, match=r"text|must"):
        Release.from_json(text.replace(old, new))


ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=6,
)


def replaced_at(content, path, new):
    """Return the content with what a path of numbers leads to replaced."""
    if not path or not isinstance(content, (dict, list)) or not content:
        return new
    if isinstance(content, list):
        at = path[0] % len(content)
        return [replaced_at(item, path[1:], new) if i == at else item for i, item in enumerate(content)]
    name = list(content)[path[0] % len(content)]
    return {key: replaced_at(item, path[1:], new) if key == name else item for key, item in content.items()}


def read_or_refused(text):
    """A release that is read is sound: it round-trips to itself. Anything but a ValueError fails the test."""
    try:
        release = Release.from_json(text)
    except ValueError:
        return
    assert Release.from_json(release.to_json()) == release
    assert release.report()
    assert all(np.isfinite(release[name]).all() for name in release.values)
    assert 0 < release.epsilon < math.inf
    assert 0 <= release.delta < 1


@given(st.lists(st.integers(0, 40), min_size=1, max_size=5), ANY_JSON)
def test_text_with_any_part_replaced_is_a_sound_release_or_a_value_error(path, new):
    content = json.loads(make(centre={"sum": 0.5}).to_json())
    read_or_refused(json.dumps(replaced_at(content, path, new)))


@given(st.integers(0, 700), st.integers(0, 60), st.text(max_size=8) | st.sampled_from([*'{}[]",:0-eE.', "1e999"]))
def test_text_with_any_stretch_rewritten_is_a_sound_release_or_a_value_error(start, length, new):
    text = make().to_json()
    start = start % len(text)
    read_or_refused(text[:start] + new + text[start + length :])


def test_text_from_before_there_was_a_centre_reads_as_before():
    assert "centre" not in make().to_json()
    assert make() != make(centre={"sum": 1.0})
    assert Release.from_json(make(centre={"sum": 1.0}).to_json()).centre == {"sum": 1.0}


def test_text_with_a_field_too_many_or_too_few_is_refused_by_its_name():
    content = json.loads(make().to_json())
    with pytest.raises(ValueError, match=r"text has other fields than a release: \['records'\]"):
        Release.from_json(json.dumps(content | {"records": [1]}))
    with pytest.raises(ValueError, match=r"text has other fields than a release: \['delta'\]"):
        Release.from_json(json.dumps({name: value for name, value in content.items() if name != "delta"}))


def test_shapes_and_types_survive_the_round_trip():
    """A number, no numbers at all, single precision, and an unsigned count; JSON of another writer may drop a .0."""
    for value in (np.float64(3.5), np.zeros((0, 3)), np.array([0.1], dtype=np.float32), np.array([7], dtype=np.uint8)):
        release = make(values={"sum": value, "table": [1]})
        restored = Release.from_json(release.to_json())["sum"]
        assert (restored.shape, restored.dtype) == (release["sum"].shape, release["sum"].dtype)
        np.testing.assert_array_equal(restored, value)
    other = make(values={"sum": [12.0], "table": [1]}).to_json().replace("12.0", "12")
    assert Release.from_json(other)["sum"].dtype == np.float64


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
    assert "δ = 1e-06" in make(mechanism="gaussian", delta=1e-6).report()
    assert "more than e^ε = 1.65." in text
    assert "more than e^ε, which exceeds 10^304." in make(epsilon=1e6).report()


def test_a_notebook_shows_the_report_as_a_list_and_nothing_that_a_name_smuggles_in():
    report = make().report(unit="<b>one</b> of $x$ respondents")
    shown = report._repr_markdown_()
    assert isinstance(report, str)
    assert repr(report) == str(report)
    assert shown.startswith("- **Guarantee.** ε = 0.5")
    assert "One" not in shown
    assert r"&lt;b&gt;one&lt;/b&gt; of \$x\$ respondents" in shown


def test_the_report_claims_nothing_about_bounds_that_the_release_does_not_know():
    """Bounds may have come from anywhere; only bounds that were released say where they came from."""
    assert "taken as public" in make().report()
    assert "set without looking at the data" not in make().report()
    bought = make(settings={"bounds_epsilon": 0.25}).report()
    assert "released privately from the same records at ε = 0.25" in bought
    assert "without looking" not in bought
    assert "taken as public" in make(settings={"bounds_epsilon": "0.25"}).report()  # not a number: not believed
    assert "- **Bounds.** none." in make(bounds={}).report()


def test_plot_draws_every_value_with_its_noise_scale():
    ax = make().plot(ax=Figure().subplots())
    assert [each.get_text() for each in ax.get_yticklabels()][:3] == ["sum[0]", "table[0, 0]", "table[0, 1]"]
    assert ax.get_xlabel() == "released value ± noise scale"
    assert ax.get_title() == "binomial, laplace, ε = 0.5"
    bars = np.array(ax.collections[0].get_segments())[:, :, 0]
    np.testing.assert_allclose(bars, [[10.25, 14.25], *([v - 4, v + 4] for v in range(6))])
    one = make().plot("table", ax=Figure().subplots())
    assert len(one.get_yticklabels()) == 6


def test_plot_draws_no_noise_where_none_was_added_to_the_values():
    """The scale of an exponential mechanism is a temperature, not a distance on the axis."""
    ax = make(mechanism="exponential").plot(ax=Figure().subplots())
    assert len(ax.collections) == 0
    assert ax.get_xlabel() == "released value"


# Several releases of the same data


def noisy(value, scale=2.0, **changes):
    return make(values={"sum": [float(value)]}, scale={"sum": scale}, sensitivity={"sum": 1.0}, **changes)


def test_releases_together_are_means_by_precision_with_their_losses_added():
    both = together(noisy(10, 1.0, epsilon=1.0), noisy(16, 2.0, epsilon=0.5))
    assert both["sum"] == pytest.approx([(10 + 16 / 4) / (1 + 1 / 4)])
    assert both.scale["sum"] == pytest.approx((1 + 1 / 4) ** -0.5)
    assert (both.epsilon, both.delta, both.model, both.n) == (1.5, 0.0, "binomial", 40)
    assert [part["sum"].tolist() for part in both.parts] == [[10.0], [16.0]]
    assert "2 together" in repr(both)
    assert "2 releases of the same records" in both.report()
    gauss = together(*(noisy(z, mechanism="gaussian", delta=1e-6) for z in (1, 2)))
    assert gauss.delta == pytest.approx(2e-6)


def test_the_mean_of_gaussian_releases_is_all_that_there_is_to_know():
    parts = [noisy(z, b, mechanism="gaussian", delta=1e-6) for z, b in ((3.0, 1.0), (8.0, 2.5), (4.0, 0.7))]
    both, s = together(*parts), np.linspace(-5, 15, 7)
    each = sum(-0.5 * ((part["sum"] - s) / part.scale["sum"]) ** 2 for part in parts)
    mean = -0.5 * ((both["sum"] - s) / both.scale["sum"]) ** 2
    np.testing.assert_allclose(each - each[0], mean - mean[0], rtol=1e-12)
    assert both.observations == (both,)
    both.require(model="binomial")


def test_releases_together_survive_json_and_a_process():
    both = together(noisy(1, 0.3), noisy(2, 1 / 3), noisy(5))
    for again in (Release.from_json(both.to_json()), pickle.loads(pickle.dumps(both))):
        assert again == both
        assert again.parts == both.parts
        assert again.observations == both.parts
    assert json.loads(noisy(1).to_json()).keys() == json.loads(make().to_json()).keys()  # no parts, no word of them
    assert noisy(1).observations == (noisy(1),)


def test_what_was_put_together_before_counts_with_all_its_parts():
    one, two, three = noisy(1), noisy(2), noisy(3)
    assert together(together(one, two), three) == together(one, two, three)
    with pytest.raises(ValueError, match="different releases: one counted twice"):
        together(together(one, two), two)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"model": "poisson"}, "same model, got binomial and poisson"),
        ({"n": 41}, "same n"),
        ({"bounds": {"x": (0, 2)}}, "same bounds"),
        ({"settings": {}}, "same settings"),
        ({"neighbours": "add-remove"}, "same neighbours"),
        ({"mechanism": "gaussian"}, "same mechanism"),
        ({"centre": {"sum": 1.0}}, "same centre"),
    ],
)
def test_releases_of_something_else_are_refused_by_what_differs(change, named):
    with pytest.raises(ValueError, match=f"together must have releases of the {named}"):
        together(noisy(1), noisy(2, **change))


def test_together_takes_releases_with_added_noise_two_at_least():
    with pytest.raises(TypeError, match="one by one, got list"):
        together([noisy(1), noisy(2)])
    with pytest.raises(ValueError, match="two releases or more"):
        together(noisy(1))
    with pytest.raises(ValueError, match="added noise"):
        together(noisy(1, mechanism="exponential"), noisy(2, mechanism="exponential"))
    with pytest.raises(ValueError, match="same statistics"):
        together(make(), noisy(2))
    with pytest.raises(ValueError, match="deltas"):
        together(*(noisy(z, mechanism="gaussian", delta=0.6) for z in (1, 2)))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"epsilon": 1.0', '"epsilon": 0.1'),
        ('"data": [1.5]', '"data": [1.4]'),
        ('"parts": [', '"parts": [1, '),
        ('"parts": [{', '"parts": [{"parts": [1], '),
        ('"scale": {"sum": 2.0}', '"scale": {"sum": 1e-200}'),
        ('"scale": {"sum": 2.0}', '"scale": {"sum": 1e200}'),
        ('"epsilon": 0.5', '"epsilon": 1.7e308'),
        ('"data": [1.0]', '"data": [1.7e308]'),
    ],
)
def test_text_whose_whole_is_not_its_parts_together_is_a_value_error(old, new):
    text = together(noisy(1), noisy(2)).to_json()
    assert old in text
    with pytest.raises(ValueError, match=r"text|must"), np.errstate(all="ignore"):
        Release.from_json(text.replace(old, new))


def test_whoever_cannot_read_several_releases_says_so():
    rng = np.random.default_rng(1)
    table = np.array([[30, 10], [10, 50]])
    tables = [graphical.release(table, {"a": 2, "b": 2}, [("a", "b")], epsilon=1.0, rng=rng) for _ in range(2)]
    with pytest.raises(ValueError, match=r"single one here: 2 of model .* largest epsilon"):
        graphical.fit(together(*tables))
    events = rng.poisson(5, (6, 8, 2))
    counts = [hmm.release_counts(events, epsilon=1.0, rng=rng) for _ in range(2)]
    with pytest.raises(ValueError, match="single one here"):
        hmm.infer(together(*counts), states=2)
    rows = rng.normal(size=(2000, 2))
    how = {"posterior": aggregate.ConjugateRegression(), "partitions": 20, "epsilon": 1.0, "rng": rng}
    asked = [aggregate.release_probability(rows, 0.0, **how) for _ in range(2)]
    with pytest.raises(ValueError, match="single one here"):
        aggregate.infer(together(*asked))
    fields = [graphical.release_dpsgd(table[0], {"a": 2}, [("a",)], epsilon=1.0, rng=rng) for _ in range(2)]
    with pytest.raises(ValueError, match="single one here"):
        graphical.field_of(together(*fields))
