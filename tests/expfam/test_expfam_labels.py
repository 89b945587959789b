"""Names travel: labels of categories from the data to the release, its JSON, the posterior and the preview."""

import numpy as np
import pandas as pd
import pytest

from dpbook import PrivacyBudget, Release, expfam
from dpbook.expfam import Binomial, Dirichlet, Multinomial, Normal, NormalInverseGamma
from dpbook.schema import Category

REGIONS = ["north", "south", "east"]


def seeded(seed=1):
    return np.random.default_rng(seed)


def forms(labels):
    """The same records in every form that a release takes."""
    pyarrow, dask = pytest.importorskip("pyarrow"), pytest.importorskip("dask.dataframe")
    array = pytest.importorskip("dask.array")
    frame = pd.DataFrame({"region": labels})
    half = len(labels) // 2
    return {
        "list": list(labels),
        "array": np.array(labels),
        "objects": np.array(labels, dtype=object),
        "column of an array": np.array(labels)[:, None],
        "series": frame["region"],
        "categorical": frame["region"].astype("category"),
        "frame": frame,
        "arrow": pyarrow.table({"region": labels}),
        "chunks": (chunk for chunk in (labels[:half], labels[half:])),
        "dask frame": dask.from_pandas(frame, npartitions=2),
        "dask series": dask.from_pandas(frame, npartitions=2)["region"],
        "dask array": array.from_array(np.array(labels), chunks=half),
    }


def test_labels_in_any_form_are_counted_as_their_codes_are():
    codes = seeded(0).integers(3, size=50)
    labels = [REGIONS[code] for code in codes]
    plain = expfam.release(codes, Multinomial(3), epsilon=1.0, rng=seeded())
    for form, data in forms(labels).items():
        made = expfam.release(data, Multinomial(labels=REGIONS), epsilon=1.0, rng=seeded())
        assert made["sum"] == pytest.approx(plain["sum"], abs=0), form
        assert made.n == 50


def test_labels_may_be_numbers_and_are_compared_as_numbers():
    data = [1, 5, 5, 2, 1.0]
    by_label = expfam.release(data, Multinomial(labels=[1, 2, 5]), epsilon=1.0, rng=seeded())
    by_code = expfam.release([0, 2, 2, 1, 0], Multinomial(3), epsilon=1.0, rng=seeded())
    assert by_label["sum"] == pytest.approx(by_code["sum"], abs=0)
    with pytest.raises(ValueError, match="data"):
        expfam.release(["1", "2"], Multinomial(labels=[1, 2, 5]), epsilon=1.0, rng=seeded())


@pytest.mark.parametrize("method", ["gibbs", "naive"])
def test_labels_travel_through_json_to_the_posterior(method):
    family = Multinomial(labels=REGIONS)
    release = expfam.release(["north", "south", "south", "east"] * 20, family, epsilon=1.0, rng=seeded())
    received = Release.from_json(release.to_json())
    assert received.settings["labels"] == tuple(REGIONS)
    posterior = expfam.infer(received, Dirichlet([1, 1, 1]), method=method, draws=400, rng=seeded())
    assert posterior.labels["theta"] == tuple(REGIONS)
    assert list(posterior.summary().index) == REGIONS
    batch = expfam.infer([received, received], Dirichlet([1, 1, 1]), method=method, draws=40, rng=seeded())
    assert [each.labels["theta"] for each in batch] == [tuple(REGIONS)] * 2
    without = expfam.infer_nonprivate(["north", "east"], family, Dirichlet([1, 1, 1]), draws=40, rng=seeded())
    assert without.labels["theta"] == tuple(REGIONS)


def test_releases_of_other_labels_are_no_batch_and_another_family_is_refused():
    one, other = (
        expfam.release(labels[:1] * 3, Multinomial(labels=labels), epsilon=1.0, rng=seeded())
        for labels in (REGIONS, ["a", "b", "c"])
    )
    with pytest.raises(ValueError, match="release"):
        expfam.infer([one, other], Dirichlet([1, 1, 1]))
    with pytest.raises(ValueError, match="family"):
        expfam.infer(one, Dirichlet([1, 1, 1]), family=Multinomial(labels=["a", "b", "c"]))


def test_labels_change_no_number():
    codes = seeded(2).integers(3, size=80)
    releases = [
        expfam.release(data, family, epsilon=0.5, rng=seeded())
        for data, family in ((codes, Multinomial(3)), (np.array(REGIONS)[codes], Multinomial(labels=REGIONS)))
    ]
    for method in ("gibbs", "naive"):
        plain, named = (
            expfam.infer(each, Dirichlet([1, 2, 3]), method=method, draws=60, rng=seeded(3)).draws["theta"]
            for each in releases
        )
        assert np.array_equal(plain, named)


def test_a_category_may_send_unknown_labels_to_another():
    family = Multinomial(labels=Category(["north", "south"], other="elsewhere"))
    assert (family.k, family.labels) == (3, ("north", "south", "elsewhere"))
    made = expfam.release(["north", "Atlantis", "south", "Utopia"], family, epsilon=1e9, rng=seeded())
    assert made["sum"].round(3).tolist() == [1.0, 1.0, 2.0]


@pytest.mark.parametrize(
    "data", [["north", "west"], ["north", None], ["north", np.nan], [["north", "south"]], [], [0, 1]]
)
def test_a_record_that_has_no_label_raises_before_the_budget_is_charged(data):
    budget = PrivacyBudget(1.0)
    with pytest.raises((TypeError, ValueError), match="data must"):
        expfam.release(data, Multinomial(labels=REGIONS), epsilon=0.5, budget=budget)
    assert budget.spent == (0.0, 0.0)
    with pytest.raises((TypeError, ValueError), match="data must"):
        expfam.infer_nonprivate(data, Multinomial(labels=REGIONS), Dirichlet([1, 1, 1]))


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({}, "k must"),
        ({"k": 2, "labels": REGIONS}, "k must"),
        ({"labels": ["one"]}, "k must"),
        ({"labels": ["a", "a"]}, "labels must"),
        ({"labels": [1, "1"]}, "labels must"),
        ({"labels": "ab"}, "labels must"),
        ({"labels": {"a", "b"}}, "labels must"),
        ({"labels": [True, False]}, "labels must"),
        ({"labels": None}, "labels must"),
    ],
)
def test_wrong_labels_are_named(arguments, named):
    with pytest.raises((TypeError, ValueError), match=named):
        Multinomial(**arguments)


def test_a_family_shows_its_labels_and_equal_ones_are_equal():
    assert repr(Multinomial(3)) == "Multinomial(k=3)"
    assert repr(Multinomial(labels=["a", "b"])) == "Multinomial(labels=['a', 'b'])"
    assert Multinomial(labels=["a", "b"]) == Multinomial(2, ["a", "b"]) != Multinomial(2)
    assert Multinomial(3).labels == ()


def test_mean_and_variance_are_called_so():
    release = expfam.release([1.0, 2.0, 3.0], Normal(0, 5), epsilon=1.0, rng=seeded())
    posterior = expfam.infer(release, NormalInverseGamma(2, 1, 3, 4), method="naive", draws=40, rng=seeded())
    assert list(posterior.summary().index) == ["mean", "variance"]


def test_previews_name_what_they_foretell():
    options = {"n": 100, "epsilon": 1.0}
    assert expfam.preview(Binomial(), **options).names == ("theta",)
    assert expfam.preview(Normal(0, 5), theta=[2, 1], **options).names == ("mean", "variance")
    assert expfam.preview(Multinomial(2), theta=[0.5, 0.5], **options).names == ("theta[0]", "theta[1]")
    table = expfam.preview(Multinomial(labels=["no", "yes"]), theta=[0.5, 0.5], **options)
    assert list(table.summary().index) == ["no", "yes"]
    assert table.sensitivity == 2.0
