"""What a profile is asked about: the release, the model and the sizes, checked once; and what a search found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, TypedDict

import numpy as np
from numpy.typing import NDArray

from dpbook._arrays import Array
from dpbook._validation import at_least, integer, interval, one_of
from dpbook.theory.models import BetaBernoulli, NormalKnownVariance

__all__ = ["RELEASE_TYPES", "Model", "Options", "Search", "Setting", "make_setting"]

Model = BetaBernoulli | NormalKnownVariance

RELEASE_TYPES = ("estimate", "sample", "synthetic-plugin", "synthetic-bayes")


class Options(TypedDict, total=False):
    """What a release may be told beyond its type; :func:`dpbook.theory.privacy_profile` explains each."""

    m: int
    redraw: bool | int
    estimator: str
    truncate: tuple[float, float] | None
    restriction: str
    temperature: float


@dataclass(frozen=True)
class Setting:
    """Checked arguments of a profile."""

    kind: str
    model: Model
    n: int
    m: int
    blocks: int  # independent draws of theta; 0: one draw kept for all records
    estimator: str
    truncate: tuple[float, float] | None
    clamp: bool
    temperature: float

    @property
    def coins(self) -> BetaBernoulli:
        """The model, where it is one of coins."""
        assert isinstance(self.model, BetaBernoulli)
        return self.model

    @property
    def bells(self) -> NormalKnownVariance:
        """The model, where it is one of bells."""
        assert isinstance(self.model, NormalKnownVariance)
        return self.model

    @property
    def support(self) -> tuple[float, float]:
        """The interval that the output is restricted to, where it is."""
        assert self.truncate is not None
        return self.truncate


class Search(NamedTuple):
    """Log delta at each epsilon over the worst pair of neighbours, where that pair lies, and what may exceed it."""

    log_delta: Array
    where: NDArray[Any]  # coins: the smaller number of ones; bells: the lower centre
    excess: Array


def make_setting(
    release_type: str,
    model: Any,
    n: Any,
    *,
    m: Any = 1,
    redraw: Any = True,
    estimator: str = "mode",
    truncate: Any = None,
    restriction: str = "reject",
    temperature: Any = 1.0,
) -> Setting:
    """Check the arguments of a profile; defaults as in :func:`dpbook.theory.privacy_profile`."""
    kind = one_of("release_type", release_type, RELEASE_TYPES)
    if not isinstance(model, (BetaBernoulli, NormalKnownVariance)):
        raise TypeError(f"model must be a BetaBernoulli or a NormalKnownVariance, got {model!r}")
    n, m = integer("n", n, least=1), integer("m", m, least=1)
    one_of("estimator", estimator, ("mode", "mean"))
    clamp = one_of("restriction", restriction, ("reject", "clamp")) == "clamp"
    temperature = at_least("temperature", temperature, 1.0)
    blocks = _independent_draws(m, redraw)
    if temperature != 1 and kind != "sample":
        raise ValueError(f"temperature applies to release_type 'sample' only, got {kind!r}")
    if truncate is not None:
        truncate = _support(truncate, kind, m, coins=isinstance(model, BetaBernoulli))
    if clamp and (truncate is None or isinstance(model, BetaBernoulli)):
        raise ValueError("restriction 'clamp' needs truncate and a NormalKnownVariance model")
    return Setting(kind, model, n, m, blocks, estimator, truncate, clamp, temperature)


def _independent_draws(m: int, redraw: Any) -> int:
    """Return how many posterior draws m records come from; 0 for one draw that is kept for several."""
    if isinstance(redraw, (bool, np.bool_)):
        draws = m if redraw else 0
    else:
        draws = integer("redraw", redraw, least=1)
        if m % draws:
            raise ValueError(f"redraw must divide m = {m} evenly, got {draws}")
        draws = 0 if draws == 1 else draws
    return 1 if m == 1 else draws


def _support(truncate: Any, kind: str, m: int, *, coins: bool) -> tuple[float, float]:
    """Return the interval of a restricted output; raise where the release has none."""
    low, high = interval("truncate", truncate)
    if kind == "estimate" or (coins and kind != "sample"):
        raise ValueError(f"truncate does not apply to release_type {kind!r} of this model")
    if coins and not (low >= 0 and high <= 1):
        raise ValueError(f"truncate must lie within [0, 1] for coins, got {(low, high)}")
    if kind != "sample" and m != 1:
        raise ValueError(f"truncate takes a single synthetic record (m = 1), got m = {m}")
    return low, high
