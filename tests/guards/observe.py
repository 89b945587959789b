"""Watch a release at the last line before randomness: what each sampler is handed, and at which scale.

A seeded release draws from a NumPy generator, a real one from OpenDP. Here both are stood in for by samplers that
remember what their noise is added to (a :class:`Look`) and that can repeat the outputs of an earlier run. With outputs
repeated, a run on a neighbouring data set is seen *given* everything that was published before, which is what
composition asks about; and whatever is published must then be the same, to the last field, as on the first data set.
Nothing here calls a function of ``dpbook`` by a private name.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import pkgutil
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import dask
import numpy as np
import opendp.prelude  # noqa: F401  (the samplers below are patched in place)

import dpbook
from dpbook import PrivacyBudget, noise

FAR = 1 << 61  # further from any total than noise goes, and well inside 64 bits


class Broken(AssertionError):
    """A promise of privacy that does not hold."""


@dataclass(frozen=True)
class Look:
    """One use of randomness: what it saw, the law it followed, what came out.

    ``law`` is "laplace" (``scale`` is its scale; two-sided geometric noise of the same ratio is one on whole numbers),
    "gaussian" (its sd), "softmax" (``seen`` are log weights along the last axis), "uniform" (``seen`` are the levels
    that a uniform number was compared with) or "response" (``scale`` is the probability of a true report).
    """

    law: str
    seen: np.ndarray
    scale: float
    out: Any
    whole: bool = False


@dataclass
class Run:
    """What happened in one call: looks at data, charges, and what came of it."""

    looks: list[Look] = field(default_factory=list)
    spans: list[tuple[float, float]] = field(default_factory=list)
    events: list[str] = field(default_factory=list)
    charges: list[tuple[float, float]] = field(default_factory=list)
    fingerprints: list[str] = field(default_factory=list)  # what the ledger says of what was released, at the end
    told: list[tuple[str, str]] = field(default_factory=list)  # warnings: their kinds and their words
    result: Any = None
    error: BaseException | None = None


Force = Callable[[int, np.ndarray], Any]


class Watch:
    """Stands between a release and its samplers during one run."""

    def __init__(self, seed: int, replay: Sequence[Look] = (), force: Force | None = None) -> None:
        self.run = Run()
        self.replay = replay
        self.force = force
        self.noise = np.random.Generator(np.random.PCG64([seed, 1]))
        self.offset: int | None = None  # where set, what every draw of whole numbers returns
        self.budget: PrivacyBudget | None = None  # what the call is charged to

    def meet(self, law: str, seen: Any, scale: float, draw: Callable[[], Any], *, whole: bool = False) -> Any:
        """Enter a look and return its output: repeated, forced or drawn."""
        place = len(self.run.looks)
        if place < len(self.replay):
            out = self.replay[place].out
        elif self.force is not None and (forced := self.force(place, np.asarray(seen))) is not None:
            out = forced
        else:
            out = draw()
        self.run.looks.append(Look(law, np.asarray(seen), scale, out, whole))
        return out

    def drew(self) -> None:
        """Note that randomness was asked for, and what was charged before it."""
        self.read_ledger()
        self.run.events.append("draw")

    def read_ledger(self) -> None:
        """Note the charges that the budget's ledger has had since it was last read, whoever entered them."""
        new = self.budget.ledger[len(self.run.charges) :] if self.budget is not None else ()
        self.run.events += ["charge"] * len(new)
        self.run.charges += [(line.epsilon, line.delta) for line in new]


# ---------------------------------------------------------------------------------------------------------------------
# Seeded noise: a generator whose draws remember what they are added to


class Draw(np.ndarray):
    """Noise of a known law that tells its watch what it meets."""

    watch: Watch
    law: str
    scale: Any

    @classmethod
    def of(cls, values: Any, watch: Watch, law: str, scale: Any) -> Draw:
        """Return values as noise of a law."""
        draw = np.asarray(values).view(cls)
        draw.watch, draw.law, draw.scale = watch, law, scale
        return draw

    def __array_finalize__(self, parent: Any) -> None:
        for name in ("watch", "law", "scale"):
            setattr(self, name, getattr(parent, name, None))

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        plain = tuple(np.asarray(each) if isinstance(each, Draw) else each for each in inputs)
        draws = [each for each in inputs if isinstance(each, Draw)]
        if method == "__call__" and not options and len(inputs) == 2:
            answer = self._meet(ufunc, inputs, plain, draws)
            if answer is not NotImplemented:
                return answer
        options = {k: tuple(np.asarray(o) for o in v) if k == "out" else v for k, v in options.items()}
        return getattr(ufunc, method)(*plain, **options)

    def _meet(self, ufunc: Any, inputs: Any, plain: Any, draws: list[Draw]) -> Any:
        draw = draws[0]
        if len(draws) == 2:
            if ufunc is np.subtract and {each.law for each in draws} == {"one-sided"}:
                return Draw.of(plain[0] - plain[1], draw.watch, "geometric", draw.scale)
            return NotImplemented
        other = plain[1] if inputs[0] is draw else plain[0]
        if ufunc is np.multiply and draw.law in ("gaussian", "laplace") and np.ndim(other) == 0:
            return Draw.of(plain[0] * plain[1], draw.watch, draw.law, draw.scale * abs(float(other)))
        if ufunc is np.multiply and draw.law == "uniform":
            return Draw.of(plain[0] * plain[1], draw.watch, "uniform", draw.scale * np.asarray(other))
        if ufunc is np.add and draw.law in ("gaussian", "laplace", "geometric"):
            return draw._added(np.asarray(other), plain)
        if ufunc is np.add and draw.law == "gumbel":
            return draw.watch.meet("softmax", other, 1.0, lambda: plain[0] + plain[1])
        if ufunc in (np.greater_equal, np.less) and draw.law == "uniform" and inputs[0] is draw:
            levels = np.asarray(other) / draw.scale
            return draw.watch.meet("uniform", levels, 1.0, lambda: ufunc(*plain))
        return NotImplemented

    def _added(self, other: np.ndarray, plain: Any) -> Any:
        law = "gaussian" if self.law == "gaussian" else "laplace"
        whole = self.law == "geometric"
        out = self.watch.meet(law, other, float(self.scale), lambda: np.add(*plain), whole=whole)
        if (
            whole
        ):  # where the output is repeated or forced, the noise was what leads to it: the sum is checked for overflow
            np.asarray(self)[...] = out - other
        return out


class SpyGenerator(np.random.Generator):
    """A generator whose draws are :class:`Draw` objects."""

    def __init__(self, seed: int, watch: Watch) -> None:
        super().__init__(np.random.PCG64([seed, 2]))
        self.watch = watch

    def laplace(self, loc: Any = 0.0, scale: Any = 1.0, size: Any = None) -> Any:
        """Draw, and remember."""
        self.watch.drew()
        return Draw.of(super().laplace(loc, scale, size), self.watch, "laplace", scale)

    def normal(self, loc: Any = 0.0, scale: Any = 1.0, size: Any = None) -> Any:
        """Draw, and remember."""
        self.watch.drew()
        return Draw.of(super().normal(loc, scale, size), self.watch, "gaussian", scale)

    def geometric(self, p: Any, size: Any = None) -> Any:
        """Draw, and remember: two of these make two-sided noise of ratio 1 - p."""
        self.watch.drew()
        return Draw.of(super().geometric(p, size), self.watch, "one-sided", -1 / np.log1p(-p))

    def gumbel(self, loc: Any = 0.0, scale: Any = 1.0, size: Any = None) -> Any:
        """Draw, and remember. Half of the time all candidates are as likely: what must hold, holds for each."""
        self.watch.drew()
        wild = 1e6 * self.watch.noise.integers(2)
        return Draw.of(super().gumbel(loc, scale, size) * (1 + wild), self.watch, "gumbel", scale)

    def random(self, size: Any = None, *rest: Any, **options: Any) -> Any:
        """Draw, and remember; often at the ends."""
        self.watch.drew()
        ends = self.watch.noise.choice([0.0, 0.5, 1 - 2.0**-53], size=size)
        plain = super().random(size, *rest, **options)
        return Draw.of(np.where(self.watch.noise.integers(2), ends, plain), self.watch, "uniform", np.float64(1.0))

    def uniform(self, low: Any = 0.0, high: Any = 1.0, size: Any = None) -> Any:
        """Draw, and remember between which ends."""
        self.watch.drew()
        self.watch.run.spans.append((float(low), float(high)))
        return super().uniform(low, high, size)

    def integers(self, low: Any, high: Any = None, size: Any = None, **options: Any) -> Any:
        """Draw, or return the offset that the watch was told."""
        if self.watch.offset is not None:
            return np.full(size, self.watch.offset)
        return super().integers(low, high, size, **options)


# ---------------------------------------------------------------------------------------------------------------------
# Real noise: OpenDP's measurements, with what they are handed written down and their draws made reproducible


_NOW: list[Watch] = []


@dataclass
class _Measurement:
    """An OpenDP measurement that tells the present watch what it is called with."""

    real: Any
    call: Callable[[Watch, Any], Any]

    def map(self, distance: Any) -> Any:
        return self.real.map(distance)

    def __call__(self, value: Any) -> Any:
        watch = _NOW[-1]
        watch.drew()
        return self.call(watch, value)


def _additive(law: str, scale: float) -> Callable[[Watch, Any], Any]:
    def call(watch: Watch, value: list[Any]) -> list[Any]:
        whole = all(isinstance(each, int) for each in value)

        def draw() -> list[Any]:
            shape = len(value)
            added = watch.noise.laplace(0, scale, shape) if law == "laplace" else watch.noise.normal(0, scale, shape)
            if not whole:
                return [float(v + e) for v, e in zip(value, added, strict=True)]
            return [max(-(2**63), min(v + round(float(e)), 2**63 - 1)) for v, e in zip(value, added, strict=True)]

        seen = np.array(value, dtype=object if whole else np.float64)
        out = watch.meet(law, seen, float(scale), draw, whole=whole)
        return list(np.asarray(out).ravel().tolist())

    return call


def _noisy_max(scale: float) -> Callable[[Watch, Any], Any]:
    def call(watch: Watch, value: list[float]) -> int:
        weights = np.array(value) / scale
        wild = 1 + 1e6 * watch.noise.integers(2)
        out = watch.meet("softmax", weights, 1.0, lambda: weights + wild * watch.noise.gumbel(size=weights.shape))
        return int(np.argmax(out))

    return call


def _response(categories: Sequence[Any], truth: float) -> Callable[[Watch, Any], Any]:
    def call(watch: Watch, value: Any) -> Any:
        seen = np.array([value, len(categories)])
        return watch.meet("response", seen, float(truth), lambda: watch.noise.choice(categories))

    return call


def _bits(flip: float) -> Callable[[Watch, Any], Any]:
    def call(watch: Watch, value: bytes) -> bytes:
        seen = np.unpackbits(np.frombuffer(value, dtype=np.uint8))
        return bytes(
            watch.meet("response", np.stack([seen, np.full_like(seen, 2)]), 1 - flip / 2, lambda: _flipped(watch, seen))
        )

    def _flipped(watch: Watch, seen: np.ndarray) -> bytes:
        return np.packbits(seen ^ watch.noise.integers(2, size=seen.shape).astype(np.uint8)).tobytes()

    return call


def _of_call(make: Callable[..., Any], describe: Callable[[Mapping[str, Any]], Any]) -> Callable[..., Any]:
    signature = inspect.signature(make)

    def made(*arguments: Any, **options: Any) -> Any:
        given = signature.bind(*arguments, **options).arguments
        return _Measurement(make(*arguments, **options), describe(given))

    return made


_MEASUREMENTS: dict[str, Callable[[Mapping[str, Any]], Any]] = {
    "make_laplace": lambda given: _additive("laplace", given["scale"]),
    "make_geometric": lambda given: _additive("laplace", given["scale"]),
    "make_gaussian": lambda given: _additive("gaussian", given["scale"]),
    "make_noisy_max": lambda given: _noisy_max(given["scale"]),
    "make_randomized_response": lambda given: _response(given["categories"], given["prob"]),
    "make_randomized_response_bitvec": lambda given: _bits(given["f"]),
}


def forget(*where: Any) -> None:
    """Empty the caches of modules: nothing that was made or computed under watch, or under a break, may outlive it."""
    for module in where:
        for value in vars(module).values():
            if hasattr(value, "cache_clear"):
                value.cache_clear()


@contextlib.contextmanager
def watching() -> Iterator[None]:
    """Put the watch between the package and its samplers; Dask runs in this thread."""
    measurements = importlib.import_module("opendp.measurements")
    originals = {name: getattr(measurements, name) for name in _MEASUREMENTS if hasattr(measurements, name)}
    fresh = np.random.default_rng

    def generator(seed: Any = None) -> Any:
        return fresh(seed) if seed is not None or not _NOW else SpyGenerator(7, _NOW[-1])

    forget(noise)
    for name, make in originals.items():
        setattr(measurements, name, _of_call(make, _MEASUREMENTS[name]))
    np.random.default_rng = generator  # type: ignore[assignment]
    try:
        with dask.config.set(scheduler="synchronous"):
            yield
    finally:
        np.random.default_rng = fresh
        for name, make in originals.items():
            setattr(measurements, name, make)
        forget(noise)


def observe(
    call: Callable[..., Any],
    *,
    path: str,
    budget: tuple[float, float] | None,
    seed: int = 0,
    replay: Sequence[Look] = (),
    force: Force | None = None,
    offset: int | None = None,
) -> Run:
    """Call ``call(rng=…, budget=…)`` under watch; an error is kept in the run, a :class:`Broken` is raised."""
    watch = Watch(seed, replay, force)
    watch.offset = offset
    options: dict[str, Any] = {"rng": SpyGenerator(7, watch) if path == "seeded" else None}
    if budget is not None:
        options["budget"] = watch.budget = PrivacyBudget(*budget)
    _NOW.append(watch)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            watch.run.result = call(**options)
        except Broken:
            raise
        except Exception as error:
            watch.run.error = error
        finally:
            _NOW.pop()
    watch.read_ledger()
    watch.run.fingerprints = [line.fingerprint for line in watch.budget.ledger] if watch.budget is not None else []
    watch.run.told = [(each.category.__name__, str(each.message)) for each in told]
    return watch.run


def modules() -> list[Any]:
    """Return all modules of the package, imported."""
    return [dpbook, *(importlib.import_module(each.name) for each in pkgutil.walk_packages(dpbook.__path__, "dpbook."))]
