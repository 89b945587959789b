"""How a posterior says that it may be wrong: every doubt has a cause and a remedy, and every ``infer`` speaks alike.

A :class:`Doubt` is a warning with a cause and a remedy; what kind of doubt it is, its class says. :func:`speak` is the
last line of every ``infer``: it looks at the chains of all releases, gives every posterior its doubts, and warns once
per kind, at the line that called ``infer``. The reference page on warnings lists them all.
"""

from __future__ import annotations

import contextlib
import contextvars
import sys
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from dpbook import _mixing
from dpbook._arrays import Array
from dpbook._late import stats
from dpbook._validation import finite_array, fraction

if TYPE_CHECKING:
    from dpbook.posterior import Posterior

__all__ = [
    "ConvergenceWarning",
    "Doubt",
    "FewDraws",
    "ManyClipped",
    "Misfit",
    "PoorApproximation",
    "PriorConflict",
    "PriorDecides",
    "examine",
    "prior_conflict",
    "say",
    "speak",
    "tail_probability",
]

LARGEST_RHAT = 1.05
FEWEST_DRAWS = 100  # effective ones, below which an end of a 95 % interval is off by 1.6 % of probability or more
CONFLICT = 0.01  # tail probability under the prior predictive below which prior and release are in conflict
_FALSE_ALARMS = 0.01  # in a whole call, of R-hat's noise in short chains
_BY_CHANCE = 0.05  # the probability with which chance alone may make a batch speak
_PACKAGE = str(Path(__file__).resolve().parent)

_SILENT = contextvars.ContextVar("silent", default=False)

P = TypeVar("P", bound="Posterior")


class Doubt(UserWarning):
    """A reason to mistrust a posterior: what is the matter, and what to do about it.

    Explained in :doc:`/book/reference/doubts`.

    Parameters
    ----------
    cause : str
        What was seen, without a full stop.
    remedy : str
        What to do, in the imperative, without a full stop.
    weight : float, default 0.0
        How bad it is beside other doubts of its kind: of a batch, the worst is quoted.
    chance : float, default 0.0
        The probability with which a right posterior raises this doubt. A batch in which no more releases raise it than
        chance explains keeps silent.

    Examples
    --------
    >>> from dpbook.doubts import Doubt
    >>> doubt = Doubt("4 records are few for a normal law", "use method='exact'")
    >>> print(doubt)
    4 records are few for a normal law; use method='exact'
    >>> import warnings
    >>> warnings.simplefilter("ignore", Doubt)  # in a study that looks at posterior.doubts itself
    """

    def __init__(self, cause: str, remedy: str, weight: float = 0.0, chance: float = 0.0) -> None:
        super().__init__(cause, remedy, weight, chance)  # all of them, so that a doubt can be pickled
        self.cause, self.remedy, self.weight, self.chance = cause, remedy, weight, chance

    def __str__(self) -> str:
        return f"{self.cause}; {self.remedy}"


class ConvergenceWarning(Doubt):
    """The chains of a sampler disagree, so its draws do not represent one posterior.

    Examples
    --------
    >>> import warnings
    >>> from dpbook import ConvergenceWarning
    >>> warnings.simplefilter("ignore", ConvergenceWarning)  # in a study that looks at R-hat itself

    Explained in :doc:`/book/background/bayesian-primer` and :doc:`/book/reference/doubts`.
    """


class FewDraws(Doubt):
    """The draws are worth so few independent ones that the ends of an interval are themselves uncertain.

    Explained in :doc:`/book/reference/doubts`.

    Examples
    --------
    >>> from dpbook.doubts import FewDraws
    >>> issubclass(FewDraws, UserWarning)
    True
    """


class PriorConflict(Doubt):
    """The release lies in the tail of what the prior had predicted.

    Explained in :doc:`/book/reference/doubts`.

    Examples
    --------
    >>> from dpbook.doubts import PriorConflict, prior_conflict
    >>> found = prior_conflict([9.0], [[i / 100] for i in range(400)], names=["sum"])
    >>> isinstance(found, PriorConflict)
    True
    """


class PriorDecides(Doubt):
    """The noise is so large beside what was counted that the answer is largely the prior's.

    Explained in :doc:`/book/reference/doubts`.

    Examples
    --------
    >>> from dpbook.doubts import PriorDecides
    >>> print(PriorDecides("noise of sd 9 on counts of 6", "release fewer cells"))
    noise of sd 9 on counts of 6; release fewer cells
    """


class ManyClipped(Doubt):
    """So many records were moved to the bounds that they matter, and nothing that was released says where they lay.

    Explained in :doc:`/book/reference/doubts`.

    Examples
    --------
    >>> from dpbook.doubts import ManyClipped
    >>> print(ManyClipped("about 12 % of the records were clipped", "widen the bounds"))
    about 12 % of the records were clipped; widen the bounds
    """


class PoorApproximation(Doubt):
    """The method rests on an approximation that is known to be poor at this n or epsilon.

    Explained in :doc:`/book/reference/doubts`.

    Examples
    --------
    >>> from dpbook.doubts import PoorApproximation
    >>> print(PoorApproximation("sums of 5 records are not normal", "use method='records'"))
    sums of 5 records are not normal; use method='records'
    """


class Misfit(Doubt):
    """What was released does not look like records of the family or model that was assumed.

    Explained in :doc:`/book/reference/doubts`.

    Examples
    --------
    >>> from dpbook.doubts import Misfit
    >>> print(Misfit("the tail is heavier than that of a Poisson", "use NegativeBinomial or release_mean"))
    the tail is heavier than that of a Poisson; use NegativeBinomial or release_mean
    """


def speak(
    posteriors: Sequence[P],
    doubts: Sequence[Sequence[Doubt]] | None = None,
    *,
    chains: bool = True,
    of: Sequence[str] | None = None,
) -> list[P]:
    """Give every posterior its doubts, and warn once per kind of doubt, at the line that called ``infer``.

    Explained in :doc:`/book/reference/doubts`.

    Parameters
    ----------
    posteriors : sequence of Posterior
        What ``infer`` is about to return, one per release.
    doubts : sequence of sequences of Doubt, optional
        What the method itself doubts, a sequence per release.
    chains : bool, default True
        Whether draws come from Markov chains, so that R-hat and effective sizes are looked at.
    of : sequence of str, optional
        The parameters whose chains matter; by default all.

    Returns
    -------
    list of Posterior
        The same, with their doubts.

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook import Posterior
    >>> from dpbook.doubts import speak
    >>> [posterior] = speak([Posterior({"theta": np.random.default_rng(1).normal(size=(4, 500))})])
    >>> posterior.doubts
    ()
    """
    told = [list(each) for each in doubts] if doubts is not None else [[] for _ in posteriors]
    seen = examine(posteriors, of=of) if chains else [[] for _ in posteriors]
    together = [[*one.doubts, *mixing, *own] for one, mixing, own in zip(posteriors, seen, told, strict=True)]
    say(together)
    return [replace(one, doubts=each) if each else one for one, each in zip(posteriors, together, strict=True)]


def say(doubts: Sequence[Sequence[Doubt]]) -> None:
    """Warn of the doubts of one or more releases: once per kind, quoting the worst and saying how many have it.

    Explained in :doc:`/book/reference/doubts`.

    Parameters
    ----------
    doubts : sequence of sequences of Doubt
        One sequence per release.

    Warns
    -----
    Doubt
        Of the kind that was raised; in a batch only where more releases raise it than chance explains.

    Examples
    --------
    >>> import warnings
    >>> from dpbook.doubts import PoorApproximation, say
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     say([[PoorApproximation("n = 5 is few", "use method='records'")], [], []])
    >>> print(caught[0].message)
    in 1 of 3 releases, such as release[0]: n = 5 is few; use method='records'
    """
    if _SILENT.get():
        return
    kinds = dict.fromkeys(type(doubt) for each in doubts for doubt in each)
    level = _level_outside()
    for kind in kinds:
        raised = [[doubt for doubt in each if type(doubt) is kind] for each in doubts]
        found = [(doubt, i) for i, each in enumerate(raised) for doubt in each]
        count = sum(1 for each in raised if each)
        chance = max(doubt.chance for doubt, _ in found)
        if stats.binom.sf(count - 1, len(doubts), chance) > _BY_CHANCE:
            continue
        worst, at = max(found, key=lambda each: each[0].weight)
        where = f"in {count} of {len(doubts)} releases, such as release[{at}]: " if len(doubts) > 1 else ""
        spoken = kind(where + worst.cause, worst.remedy, worst.weight, worst.chance)
        warnings.warn(spoken, stacklevel=level)


@contextlib.contextmanager
def silently() -> Iterator[None]:
    """Keep doubts in their posteriors, unspoken: for a part of a batch, whose whole will speak."""
    before = _SILENT.set(True)
    try:
        yield
    finally:
        _SILENT.reset(before)


def _level_outside() -> int:
    """Return the stack level, as seen by the caller, of the first frame that is not the package's own."""
    frame: FrameType | None = sys._getframe(1)
    level = 1
    while frame is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame, level = frame.f_back, level + 1
    return level if frame is not None else 2


def examine(posteriors: Sequence[Any], *, of: Sequence[str] | None = None) -> list[list[Doubt]]:
    """Return the doubts about the chains of posteriors: that they disagree, or are worth too few draws.

    R-hat above 1.05 is too large, unless chains are so short that independent draws would exceed it by chance. An
    effective size below 100, for the centre or for the 5 % and 95 % quantiles, is too small: the ends of a 95 %
    interval then have a standard error of 1.6 percentage points or more. Explained in :doc:`/book/reference/doubts`.

    Parameters
    ----------
    posteriors : sequence of Posterior
        All of them are looked at.
    of : sequence of str, optional
        The parameters to look at; by default all. What never moves is passed over.

    Returns
    -------
    list of lists of Doubt
        One list per posterior.

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook import Posterior
    >>> from dpbook.doubts import examine
    >>> stuck = Posterior({"theta": np.repeat([[0.0], [1.0]], 200, axis=1)})
    >>> [[type(doubt).__name__ for doubt in each] for each in examine([stuck])]
    [['ConvergenceWarning']]
    """
    found: list[list[Doubt]] = [[] for _ in posteriors]
    for members in _of_one_shape(posteriors):
        names = [name for name in posteriors[members[0]].draws if of is None or name in of]
        draws, labels = _components([posteriors[i] for i in members], names)
        if not labels:
            continue
        shape = (draws.shape[1], draws.shape[2])
        figures = [each.reshape(len(members), -1) for each in _figures(draws)]
        for i, rhat, bulk, tail in zip(members, *figures, strict=True):
            found[i] += _of_chains(rhat, bulk, tail, labels, shape, draws.shape[0])
    return found


def _of_one_shape(posteriors: Sequence[Any]) -> list[list[int]]:
    """Return the places of posteriors that hold the same parameters in the same shapes, group by group."""
    groups: dict[Any, list[int]] = {}
    for i, one in enumerate(posteriors):
        key = tuple((name, array.shape) for name, array in one.draws.items())
        groups.setdefault(key, []).append(i)
    return list(groups.values())


def _components(posteriors: Sequence[Any], names: Sequence[str]) -> tuple[Array, list[str]]:
    """Return all scalar components (posterior times component, chain, draw), and what those of one are called."""
    labels = [label for name in names for label in posteriors[0].component_labels(name)]
    parts = [
        np.concatenate([one.draws[name].reshape(*one.draws[name].shape[:2], -1) for name in names], axis=2)
        for one in posteriors
        if names
    ]
    if not parts:
        return np.empty((0, 0, 0)), []
    stacked = np.stack(parts)
    return np.moveaxis(stacked, 3, 1).reshape(-1, *stacked.shape[1:3]), labels


def _figures(draws: Array) -> tuple[Array, Array, Array]:
    """Return R-hat and both effective sizes; of what never moves, NaN."""
    moves = np.ptp(draws, axis=(1, 2)) > 0
    return (
        _mixing.rhat(draws),
        np.where(moves, _mixing.ess_bulk(draws), np.nan),
        np.where(moves, _mixing.ess_tail(draws), np.nan),
    )


def _of_chains(
    rhat: Array, bulk: Array, tail: Array, labels: Sequence[str], shape: tuple[int, int], figures: int
) -> list[Doubt]:
    """Return the doubts about one posterior's chains, given the figures of its components."""
    threshold = max(LARGEST_RHAT, _mixing.rhat_of_independent_draws(*shape, _FALSE_ALARMS / (2 * figures)))
    found = disagreement(rhat, labels, threshold)
    fewest = np.fmin(bulk, tail)
    if not found and np.any(fewest < FEWEST_DRAWS):
        at = int(np.nanargmin(fewest))
        cause = f"the {shape[0] * shape[1]} draws of {labels[at]} are worth {fewest[at]:.0f} independent ones"
        remedy = f"ask for more draws, so that the ends of an interval rest on {FEWEST_DRAWS} at least"
        found = [FewDraws(cause, remedy, weight=-float(fewest[at]))]
    return found


def disagreement(rhat: Array, labels: Sequence[str], threshold: float) -> list[Doubt]:
    """Return the doubt that the worst R-hat raises, if any is above a threshold."""
    large = rhat > threshold
    if not large.any():
        return []
    at = int(np.nanargmax(rhat))
    some = f" ({large.sum()} of {len(labels)} components are)" if len(labels) > 1 else ""
    cause = (
        f"the chains have not converged: R-hat of {labels[at]} is {rhat[at]:.3g}, above {float(f'{threshold:.3g}'):g}"
    )
    return [ConvergenceWarning(cause + some, "run longer chains", weight=float(rhat[at]))]


def tail_probability(observed: ArrayLike, simulated: ArrayLike) -> float:
    """Return how likely releases at least as extreme as the observed one are, by simulated ones.

    Every statistic has a two-sided tail probability, its rank among the simulated; the smallest of them is compared
    with the smallest of each simulated release. If the observed release comes from the same law, the result is at most
    t with probability at most t, however many statistics there are and however they depend on each other. Explained in
    :doc:`/book/reference/doubts`.

    Parameters
    ----------
    observed : array_like (k,)
        Released statistics, or functions of them.
    simulated : array_like (m, k)
        The same of releases simulated from the prior, noise included.

    Returns
    -------
    float
        At least 1/(m + 1).

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook.doubts import tail_probability
    >>> simulated = np.random.default_rng(1).normal(size=(999, 2))
    >>> tail_probability([0.0, 9.0], simulated) < 0.01, tail_probability([0.0, 1.0], simulated) > 0.1
    (True, True)
    """
    value = np.atleast_1d(finite_array("observed", observed))
    others = finite_array("simulated", simulated, ndim=2)
    if others.shape[1:] != value.shape:
        raise ValueError(f"simulated must have shape (m, {len(value)}), got {others.shape}")
    smallest = smallest_ranks(np.concatenate([value[None], others]))
    return float(np.mean(smallest <= smallest[0]))


def smallest_ranks(releases: Array) -> Array:
    """Return how far out each of several releases (m, k) is: the least of its statistics' ranks from either end."""
    below = stats.rankdata(releases, method="max", axis=0)
    above = len(releases) + 1 - stats.rankdata(releases, method="min", axis=0)
    return np.asarray(np.minimum(below, above).min(axis=1), dtype=float)


def prior_conflict(
    observed: ArrayLike, simulated: ArrayLike, *, names: Sequence[str], level: float = CONFLICT, remedy: str = ""
) -> PriorConflict | None:
    """Return the doubt that prior and release are in conflict, or None where they are not.

    They are where the release lies further out than a share ``level`` of releases that were simulated from the prior:
    parameters from the prior, records from the model, clipping and noise as in the release. Explained in
    :doc:`/book/reference/doubts`.

    Parameters
    ----------
    observed, simulated : array_like (k,) and (m, k)
        As in :func:`tail_probability`. With k statistics, m should be 4 k / level or more, or none can be in conflict.
    names : sequence of str
        What the statistics are called.
    level : float, default 0.01
        The tail probability below which there is a conflict; so often a right prior is doubted.
    remedy : str, optional
        What to do; by default to look at units and bounds, or to widen the prior.

    Returns
    -------
    PriorConflict or None

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook.doubts import prior_conflict
    >>> simulated = np.random.default_rng(1).normal(size=(2000, 1))
    >>> print(prior_conflict([9.0], simulated, names=["sum"]).cause)
    prior and release are in conflict: a sum of 9 has tail probability 0.001 under the prior
    """
    level = fraction("level", level)
    probability = tail_probability(observed, simulated)
    if probability > level:
        return None
    value, others = np.atleast_1d(np.asarray(observed, dtype=float)), np.asarray(simulated, dtype=float)
    sides = np.minimum((others >= value).mean(axis=0), (others <= value).mean(axis=0))
    at = int(np.argmin(sides))
    cause = (
        f"prior and release are in conflict: a {names[at]} of {value[at]:.4g} has tail probability "
        f"{probability:.2g} under the prior"
    )
    what = remedy or "check units and bounds, and if they are right, widen the prior"
    return PriorConflict(cause, what, weight=1 - probability, chance=level)
