"""The one object that crosses the privacy barrier: :class:`Release`, an immutable public record.

A curator's ``release`` function makes it, an analyst's ``infer`` function reads it, and JSON carries it between
their machines without losing a bit. It holds noisy values and public settings, and nothing else computed from the data.
"""

from __future__ import annotations

import html
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpbook import _html
from dpbook._labels import component_labels
from dpbook._validation import delta_value, finite_number, flag, integer, interval, one_of, positive
from dpbook._version import __version__

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["Release", "Report", "together"]

_FORMAT = "dpbook.Release/1"
_PURE = ("laplace", "geometric")  # mechanisms whose delta is 0
_ADDITIVE = (*_PURE, "gaussian")  # mechanisms whose scale is that of noise added to the values
_MOST_RECORDS = 2**53  # beyond, a float does not hold every whole number
_DEEPEST = 20  # levels of lists and mappings in the settings


class Report(str):
    """A checklist in Markdown: a string like any other, which a notebook shows as a list instead of as its source.

    Explained in :doc:`/book/background/choosing-epsilon`.

    Parameters
    ----------
    text : str

    Examples
    --------
    >>> from dpbook.release import Report
    >>> Report("- **Guarantee.** ε = 0.5")
    - **Guarantee.** ε = 0.5
    """

    __slots__ = ()

    def __new__(cls, text: str) -> Report:
        """Take the text as it is."""
        return super().__new__(cls, text)

    def __repr__(self) -> str:
        return str(self)

    def _repr_markdown_(self) -> str:
        # Names and units come from whoever wrote the release: neither HTML nor mathematics.
        return html.escape(str(self), quote=False).replace("$", r"\$")


@dataclass(frozen=True, eq=False, kw_only=True)
class Release:
    """What a curator publishes: noisy values, and every public fact needed to infer from them.

    Explained in :doc:`/book/background/after-a-release`.

    Parameters
    ----------
    values : mapping of str to array
        The noisy statistics by name, in order. NaN and infinities are refused. Every look at an entry gives a read-only
        array of its own, so that nothing done to it changes the release.
    model : str
        What the statistics are of, such as ``"binomial"``; an ``infer`` function checks it.
    mechanism : str
        ``"laplace"``, ``"gaussian"``, ``"exponential"`` …
    scale, sensitivity : mapping of str to float
        The noise scale and the sensitivity behind each entry of ``values``.
    epsilon, delta : float
        The privacy loss of the whole release; delta is 0 for Laplace and geometric noise.
    n : int
        The number of records, public under replace-one neighbours; at most 2⁵³.
    bounds : mapping of str to (low, high)
        The bounds that records were clipped to.
    settings : mapping
        Further public settings (intercept, cliques …): numbers, strings, lists and mappings of them, up to 20 deep.
        ``bounds_epsilon``, where it is set, says that the bounds were released privately, at that cost of their own.
    centre : mapping of str to float, optional
        What was subtracted from each record's statistic before it was rounded to a grid, for the entries of ``values``
        where that is not 0: a public number, from the bounds. ``values`` have n times it added back, which is
        post-processing since both are public; so inference need not know of it.
    float_safe : bool
        True for noise from floating-point-safe samplers, False for seeded teaching noise.
    neighbours : str, default "replace-one"
        The neighbour relation that epsilon and delta refer to.
    parts : sequence of Release, optional
        What :func:`together` put together: several releases of the same data. ``values`` are then their means, weighted
        by precision, and ``scale`` is that of the mean.
    version : str
        The version of the package that made the release.

    Examples
    --------
    >>> from dpbook import Release
    >>> release = Release(values={"sum": [12.3]}, model="binomial", mechanism="laplace", scale={"sum": 2.0},
    ...                   sensitivity={"sum": 1.0}, epsilon=0.5, n=40, bounds={"x": (0, 1)}, float_safe=False)
    >>> release["sum"], Release.from_json(release.to_json()) == release
    (array([12.3]), True)
    >>> release.require(model="poisson")
    Traceback (most recent call last):
    ...
    ValueError: release must be of model 'poisson', got one of model 'binomial'
    >>> print(release.report(unit="one respondent").splitlines()[0])
    - **Guarantee.** ε = 0.5, δ = 0 (pure), for replace-one neighbours.
    >>> from matplotlib.figure import Figure
    >>> release.plot(ax=Figure().subplots()).get_xlabel()
    'released value ± noise scale'
    """

    values: Mapping[str, NDArray[Any]]
    model: str
    mechanism: str
    scale: Mapping[str, float]
    sensitivity: Mapping[str, float]
    epsilon: float
    n: int
    float_safe: bool
    delta: float = 0.0
    bounds: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    centre: Mapping[str, float] = field(default_factory=dict)
    neighbours: str = "replace-one"
    parts: Sequence[Release] = ()
    version: str = __version__

    def __post_init__(self) -> None:
        if not isinstance(self.values, Mapping) or not self.values:
            raise TypeError(f"values must be a non-empty mapping of names to arrays, got {self.values!r}")
        for name in ("model", "mechanism", "neighbours", "version"):
            if not isinstance(getattr(self, name), str):
                raise TypeError(f"{name} must be a string, got {getattr(self, name)!r}")
        for name in ("values", "bounds", "settings", "centre"):
            _check_names(name, getattr(self, name))
        flag("float_safe", self.float_safe)
        checked: dict[str, Any] = {
            "values": _Arrays({k: _checked_array(f"values[{k!r}]", v) for k, v in self.values.items()}),
            "scale": self._by_name("scale"),
            "sensitivity": self._by_name("sensitivity"),
            "epsilon": positive("epsilon", self.epsilon),
            "delta": delta_value("delta", self.delta),
            "n": integer("n", self.n, least=1),
            "centre": MappingProxyType({k: finite_number(f"centre[{k!r}]", v) for k, v in self.centre.items()}),
            "bounds": MappingProxyType({k: interval(f"bounds[{k!r}]", v) for k, v in self.bounds.items()}),
            "settings": _freeze("settings", dict(self.settings)),
            "float_safe": bool(self.float_safe),
            "parts": tuple(self.parts),
        }
        _check_parts(checked["parts"])
        if checked["n"] > _MOST_RECORDS:
            raise ValueError(f"n must be at most 2**53, got {self.n}")
        if checked["delta"] and self.mechanism in _PURE:
            raise ValueError(f"delta must be 0 for the {self.mechanism} mechanism, which is pure; got {self.delta}")
        if not set(self.centre) <= set(self.values):
            raise ValueError(f"centre must have names of values ({', '.join(self.values)}), got {list(self.centre)}")
        for name, value in checked.items():
            object.__setattr__(self, name, value)

    def _by_name(self, argument: str) -> Mapping[str, float]:
        given = getattr(self, argument)
        if not isinstance(given, Mapping) or set(given) != set(self.values):
            raise ValueError(f"{argument} must be a mapping with the names of values: {', '.join(self.values)}")
        return MappingProxyType({k: positive(f"{argument}[{k!r}]", given[k]) for k in self.values})

    def __getitem__(self, name: str) -> NDArray[Any]:
        return self.values[name]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Release) and self.to_json() == other.to_json()

    def __hash__(self) -> int:
        return hash(self.to_json())

    def __reduce__(self) -> tuple[Any, ...]:
        return (Release.from_json, (self.to_json(),))

    def to_json(self) -> str:
        """Return the release as JSON text that :meth:`from_json` restores to the bit.

        Floats have their shortest round-trip decimals, arrays their type and shape.
        """
        return json.dumps(self._content(), allow_nan=False)

    def _content(self) -> dict[str, Any]:
        """Return the release as plain JSON types."""
        content = {f.name: _thaw(getattr(self, f.name)) for f in fields(self) if f.name != "parts"}
        if not content["centre"]:  # most releases have none, and text without it reads as before there was one
            del content["centre"]
        parts = {"parts": [each._content() for each in self.parts]} if self.parts else {}
        return {"format": _FORMAT, **content, **parts}

    @classmethod
    def from_json(cls, text: str) -> Release:
        """Return the release of which ``text`` is the :meth:`to_json`, equal to it in every bit.

        Whoever wrote it is not trusted: whatever is not a release, from other types to numbers written twice, raises a
        ValueError, and nothing else.
        """
        return cls._of_content(_parsed(text))

    @classmethod
    def _of_content(cls, content: Any, *, whole: bool = True) -> Release:
        """Return the release that parsed JSON describes; only a ``whole`` one may have parts."""
        found = content.pop("format", None) if isinstance(content, dict) else None
        if found != _FORMAT:
            raise ValueError(f"text is not a dpbook release: its format is {found!r:.60}, not {_FORMAT!r}")
        content = {"centre": {}, "parts": [], **content}
        expected = {f.name for f in fields(cls)}
        if set(content) != expected:
            raise ValueError(f"text has other fields than a release: {sorted(set(content) ^ expected)}")
        if not isinstance(content["parts"], list) or (content["parts"] and not whole):
            raise ValueError("text has parts that are no list of releases")
        content["parts"] = [cls._of_content(each, whole=False) for each in content["parts"]]
        try:
            content["values"] = {name: _array(value) for name, value in content["values"].items()}
        except (AttributeError, KeyError, TypeError, ValueError, OverflowError):
            raise ValueError("text has values that are not arrays as to_json writes them") from None
        try:
            release = cls(**content)
        except TypeError as error:  # where a caller of the class made a mistake of type, here the text is wrong
            raise ValueError(f"text is not a release: {error}") from None
        if release.parts and together(*release.parts)._content() != release._content():
            raise ValueError("text has values, scales or a privacy loss that are not those of its parts together")
        return release

    def require(self, *, model: str, mechanisms: tuple[str, ...] = (), several: bool | None = None) -> None:
        """Raise unless the release is of this ``model``, and made by one of ``mechanisms`` where they are named.

        One of several put :func:`together` passes where ``several`` is True, so that the caller reads its
        ``observations``; by default, too, where noise is Gaussian, of which the weighted mean says all that there is.
        """
        if self.model != model:
            raise ValueError(f"release must be of model {model!r}, got one of model {self.model!r}")
        if mechanisms and self.mechanism not in mechanisms:
            raise ValueError(f"release must be made by one of {mechanisms}, got {self.mechanism!r}")
        if self.parts and not several and (several is False or self.mechanism != "gaussian"):
            remedy = "" if several is False else ", or release with mechanism='gaussian', which can be put together"
            raise ValueError(
                f"release must be a single one here: {len(self.parts)} of model {self.model!r} with {self.mechanism} "
                f"noise cannot be read together by this method; pass the one with the largest epsilon{remedy}"
            )

    @property
    def observations(self) -> tuple[Release, ...]:
        """What inference must look at, which is this release, or its parts unless the noise is Gaussian."""
        return (self,) if not self.parts or self.mechanism == "gaussian" else tuple(self.parts)

    def report(self, *, unit: str = "one record") -> Report:
        """Return a checklist, in Markdown, of what to say when publishing this release; a notebook shows it as a list.

        One line per fact: guarantee, unit, mechanism and scale, bounds, n, what epsilon means, noise source, version.
        ``unit`` is the unit of privacy in the data's own words, such as ``"one respondent"``; only the curator knows
        it. Explained in :doc:`/book/background/choosing-epsilon`.
        """
        delta = "0 (pure)" if self.delta == 0 else f"{self.delta:.3g}"
        odds = f"e^ε = {math.exp(self.epsilon):.3g}" if self.epsilon < 700 else "e^ε, which exceeds 10^304"
        noise = "; ".join(
            f"{name}: sensitivity {self.sensitivity[name]:.6g}, noise scale {self.scale[name]:.6g}"
            for name in self.values
        )
        bounds = "; ".join(f"{name} in [{low:g}, {high:g}]" for name, (low, high) in self.bounds.items())
        count = f" {len(self.parts)} releases of the same records, put together." if self.parts else ""
        source = (
            "floating-point-safe samplers, system entropy"
            if self.float_safe
            else "**seeded teaching noise: do not publish this as a private release**"
        )
        caveat = "" if self.delta == 0 else f", after an additive δ = {self.delta:.3g} on every probability"
        lines = [
            f"- **Guarantee.** ε = {self.epsilon:.6g}, δ = {delta}, for {self.neighbours} neighbours.",
            f"- **Unit of privacy.** {unit[:1].upper()}{unit[1:]}; k units of one person are protected at kε.",
            f"- **Public by assumption.** The number of records, n = {self.n}, and the bounds.",
            f"- **Bounds.** {bounds + self._origin_of_bounds() if bounds else 'none'}.",
            f"- **Statistic and mechanism.** {self.model}, {self.mechanism}. {noise}.{count}",
            f"- **What it means.** Between any two values of one unit's record, all other records given, the "
            f"release moves nobody's odds by a factor of more than {odds}{caveat}.",
            f"- **Noise source.** {source}.",
            "- **Budget.** Other releases from the same data add to ε; cite the ledger's total.",
            f"- **Software.** dpbook {self.version}.",
        ]
        return Report("\n".join(lines))

    def _origin_of_bounds(self) -> str:
        """Say where the bounds came from, which only the curator knows unless they were released."""
        paid = self.settings.get("bounds_epsilon")
        if isinstance(paid, bool) or not isinstance(paid, (int, float)):
            return ", taken as public: the guarantee needs them to be set without looking at these records"
        return f", released privately from the same records at ε = {paid:.6g}, which adds to the ε above"

    def plot(self, name: str | None = None, *, ax: Axes | None = None) -> Axes:
        """Return axes on which every released value is a point, with a bar of one noise scale to either side.

        Only Laplace, geometric and Gaussian noise is added to values; those of other mechanisms have no bar.
        ``name`` is one entry of ``values``, by default all, which share an axis; ``ax`` is where to draw, by default on
        a new figure in the book's style.
        """
        from dpbook.plotting import plot_rows

        names = tuple(self.values) if name is None else (one_of("name", name, tuple(self.values)),)
        labels = [label for each in names for label in component_labels(each, self.values[each].shape)]
        middle = np.concatenate([self.values[each].astype(np.float64).ravel() for each in names])
        reach = np.concatenate([np.full(self.values[each].size, self.scale[each]) for each in names])
        title = f"{self.model}, {self.mechanism}, ε = {self.epsilon:g}"
        added = self.mechanism in _ADDITIVE
        spans = [np.stack([middle - reach, middle + reach], axis=-1)] if added else []
        xlabel = "released value ± noise scale" if added else "released value"
        return plot_rows(labels, middle, spans, xlabel=xlabel, title=title, method=self.mechanism, ax=ax)

    def _repr_html_(self) -> str:
        noise = "float-safe noise" if self.float_safe else "seeded teaching noise"
        delta = f", δ = {self.delta:.4g}" if self.delta else ""
        return _html.table(
            f"Release of {self.model} by {self.mechanism}: ε = {self.epsilon:.4g}{delta}, n = {self.n}, "
            f"{self.neighbours} neighbours, {noise}",
            ["statistic", "shape", "values", "sensitivity", "scale"],
            [
                [
                    name,
                    value.shape or "scalar",
                    _html.several(value.ravel().tolist()),
                    self.sensitivity[name],
                    self.scale[name],
                ]
                for name, value in self.values.items()
            ],
        )

    def __repr__(self) -> str:
        names = ", ".join(f"{name}{list(value.shape)}" for name, value in self.values.items())
        safe = "float-safe" if self.float_safe else "seeded"
        delta = f", delta={self.delta:g}" if self.delta else ""
        safe += f", {len(self.parts)} together" if self.parts else ""
        return (
            f"Release({self.model}, {self.mechanism}: {names}; epsilon={self.epsilon:g}{delta}, n={self.n}, "
            f"{self.neighbours}, {safe})"
        )


def together(first: Release, *others: Release) -> Release:
    """Return several releases of the same data as one, which ``infer`` reads as one.

    All must be of one model, mechanism, n, neighbour relation, bounds and settings: the same statistics of the same
    records, each with noise of its own. Their privacy losses add up (basic composition). A *list* of releases is
    something else: a batch of different data, one posterior each. Post-processing: it reads no data. Explained in
    :doc:`/book/background/after-a-release`.

    Parameters
    ----------
    first, *others : Release
        Two or more of the same data; only their owner knows that they are. Releases that were put together before
        count with all their parts; the same release twice is refused, since it would count its noise twice.

    Returns
    -------
    Release
        Whose ``parts`` are the releases, and whose ``values`` are their means, weighted by precision: all that one
        needs to know of Gaussian noise. Of other noise ``infer`` looks at the parts, or refuses.

    Examples
    --------
    >>> import numpy as np
    >>> import dpbook
    >>> from dpbook import expfam
    >>> rng, data = np.random.default_rng(1), [1] * 300 + [0] * 700
    >>> spring, autumn = (expfam.release(data, expfam.Binomial(), epsilon=0.1, rng=rng) for _ in range(2))
    >>> both = dpbook.together(spring, autumn)
    >>> both
    Release(binomial, laplace: sum[1]; epsilon=0.2, n=1000, replace-one, seeded, 2 together)
    >>> prior = expfam.Beta(1, 1)
    >>> one, two = (expfam.posterior_density(each, prior).sd for each in (spring, both))
    >>> two < one
    True
    """
    for each in (first, *others):
        if not isinstance(each, Release):
            raise TypeError(f"together takes releases, one by one, got {type(each).__name__}")
    parts = [part for each in (first, *others) for part in (each.parts or (each,))]
    if len(parts) < 2:
        raise ValueError("together must have two releases or more, got one")
    if len({part.to_json() for part in parts}) < len(parts):
        raise ValueError("together must have different releases: one counted twice would say its noise is smaller")
    _check_same(parts)
    smallest = {name: min(part.scale[name] for part in parts) for name in first.values}
    weights = {name: [(smallest[name] / part.scale[name]) ** 2 for part in parts] for name in smallest}
    stacked = {name: np.stack([np.asarray(part[name], dtype=float) for part in parts]) for name in smallest}
    return Release(
        values={name: np.average(stacked[name], axis=0, weights=weights[name]) for name in smallest},
        model=first.model,
        mechanism=first.mechanism,
        scale={name: smallest[name] / math.sqrt(sum(weights[name])) for name in smallest},
        sensitivity=first.sensitivity,
        epsilon=sum(part.epsilon for part in parts),
        delta=sum(part.delta for part in parts),
        n=first.n,
        bounds=first.bounds,
        settings=first.settings,
        centre=first.centre,
        float_safe=all(part.float_safe for part in parts),
        neighbours=first.neighbours,
        parts=parts,
        version=first.version,
    )


def observations_of(releases: Sequence[Release], name: str) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
    """Return the values called ``name`` (observation, release, k) and their scales where releases were put together.

    None where each is single; raise where some hold more observations of the same sums than others.
    """
    counts = {len(each.observations) for each in releases}
    if counts == {1}:
        return None
    if len(counts) > 1:
        raise ValueError(f"release must be a sequence in which equally many are put together, got {sorted(counts)}")
    noisy = np.stack([[np.atleast_1d(part[name]) for part in each.observations] for each in releases], axis=1)
    return noisy, np.stack([[part.scale[name] for part in each.observations] for each in releases], axis=1)


def _check_same(parts: Sequence[Release]) -> None:
    """Raise unless releases are noisy observations of the same statistics; say what differs."""
    first = parts[0]
    if first.mechanism not in _ADDITIVE:
        raise ValueError(
            f"together must have releases with added noise ({', '.join(_ADDITIVE)}), got mechanism {first.mechanism!r}"
        )
    for part in parts[1:]:
        for name in ("model", "mechanism", "n", "neighbours", "bounds", "settings", "centre"):
            ours, theirs = getattr(first, name), getattr(part, name)
            if ours != theirs:
                raise ValueError(
                    f"together must have releases of the same {name}, got {_thaw(ours)} and {_thaw(theirs)}"
                )
        shapes = [{name: value.shape for name, value in each.values.items()} for each in (first, part)]
        if shapes[0] != shapes[1]:
            raise ValueError(f"together must have releases of the same statistics, got {shapes[0]} and {shapes[1]}")
    if sum(part.delta for part in parts) >= 1:
        raise ValueError("together must have deltas that add up to less than 1")


def _check_parts(parts: tuple[Any, ...]) -> None:
    if not all(isinstance(part, Release) for part in parts):
        raise TypeError(f"parts must be a sequence of Release, got {parts!r}")
    if any(part.parts for part in parts) or len(parts) == 1:
        raise ValueError("parts must be two or more single releases: use together")


def _check_names(name: str, value: Any) -> None:
    if not isinstance(value, Mapping):
        raise TypeError(f"{name} must be a mapping, got {value!r}")
    if not all(isinstance(key, str) for key in value):
        raise TypeError(f"{name} must have strings as keys, got {list(value)!r}")


def _parsed(text: Any) -> Any:
    """Return what JSON text says; raise ValueError on all else, on keys given twice, and on NaN and Infinity."""
    if not isinstance(text, str):
        raise ValueError(f"text is not JSON: it must be a string, got {type(text).__name__}")
    try:
        return json.loads(text, object_pairs_hook=_without_repeats, parse_constant=_no_number)
    except RecursionError:
        raise ValueError("text is not a dpbook release: it is nested too deep") from None
    except ValueError as error:
        raise ValueError(f"text is not JSON: {error}") from None


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) != len(pairs):  # two readers of the text might believe different ones
        raise ValueError("a key occurs twice in one object")
    return content


def _no_number(text: str) -> Any:
    raise ValueError(f"{text} is no number of JSON")


def _array(content: Mapping[str, Any]) -> NDArray[Any]:
    """Return an array from what :func:`_thaw` made of it; raise on any other content."""
    kinds = {"float64": (int, float), "int64": (int,)}[content["dtype"]]
    shape, data = content["shape"], content["data"]
    if set(content) != {"dtype", "shape", "data"} or not isinstance(shape, list) or not isinstance(data, list):
        raise TypeError
    if not all(type(side) is int and side >= 0 for side in shape) or not all(type(each) in kinds for each in data):
        raise TypeError
    if math.prod(shape) != len(data):
        raise ValueError
    return np.array(data, dtype=content["dtype"]).reshape(shape)


class _Arrays(Mapping[str, NDArray[Any]]):
    """Arrays by name, held as bytes: every look gives a fresh array, whose data, shape and dtype are its own."""

    __slots__ = ("_held",)
    _held: Mapping[str, tuple[bytes, np.dtype[Any], tuple[int, ...]]]

    def __init__(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        held = {name: (array.tobytes(), array.dtype, array.shape) for name, array in arrays.items()}
        object.__setattr__(self, "_held", MappingProxyType(held))

    def __setattr__(self, name: str, value: Any) -> None:
        raise TypeError("the values of a release cannot be changed")

    def __getitem__(self, name: str) -> NDArray[Any]:
        data, dtype, shape = self._held[name]
        return np.ndarray(shape, dtype, buffer=data)  # bytes cannot be written to, and neither can this

    def __iter__(self) -> Iterator[str]:
        return iter(self._held)

    def __len__(self) -> int:
        return len(self._held)

    def __repr__(self) -> str:
        return repr(dict(self))


def _checked_array(name: str, value: ArrayLike) -> NDArray[Any]:
    array = np.array(value)
    if array.dtype.kind not in "iuf":
        raise TypeError(f"{name} must be a numeric array, got dtype {array.dtype}")
    if array.dtype.kind == "u" and array.size and array.max() > np.iinfo(np.int64).max:
        raise ValueError(f"{name} must fit in signed 64-bit integers")
    array = array.astype(np.float64 if array.dtype.kind == "f" else np.int64)
    if not np.isfinite(array).all():
        raise ValueError(f"{name} must be finite: a release refuses NaN and infinite values")
    return array


def _freeze(name: str, value: Any, depth: int = 0) -> Any:
    """Return ``value`` with lists made tuples and mappings read-only; raise on what JSON cannot carry exactly."""
    if depth > _DEEPEST:
        raise ValueError(f"settings must be nested at most {_DEEPEST} deep")
    if isinstance(value, Mapping):
        if not all(isinstance(key, str) for key in value):
            raise TypeError(f"{name} must have strings as keys, got {list(value)!r}")
        return MappingProxyType({key: _freeze(f"{name}[{key!r}]", item, depth + 1) for key, item in value.items()})
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, (list, tuple)):
        return tuple(_freeze(f"{name}[{i}]", item, depth + 1) for i, item in enumerate(value))
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, (bool, str, int)):
        return value
    return finite_number(name, value)


def _thaw(value: Any) -> Any:
    """Return ``value`` as plain JSON types."""
    if isinstance(value, Mapping):
        return {key: _thaw(item) for key, item in value.items()}
    if isinstance(value, np.ndarray):
        return {"dtype": str(value.dtype), "shape": list(value.shape), "data": value.ravel().tolist()}
    if isinstance(value, tuple):
        return [_thaw(item) for item in value]
    return value
