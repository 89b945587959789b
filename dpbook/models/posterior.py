"""What a posterior of a model of your own knows beside its draws: its evidence, and how the release fits it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from dpbook._arrays import Array
from dpbook._late import pd
from dpbook.posterior import Posterior

__all__ = ["LogEvidence", "ModelPosterior", "PredictiveCheck", "compare"]


class LogEvidence(NamedTuple):
    """The logarithm of a release's density under a model, the ``value``, and the standard ``error`` of that number.

    Explained in :doc:`/book/any-model/which-model`.

    Examples
    --------
    >>> from dpbook.models import LogEvidence
    >>> LogEvidence(-12.3, 0.05).error
    0.05
    """

    value: float
    error: float


@dataclass(frozen=True, eq=False)
class PredictiveCheck:
    """How the released sums compare with such as the posterior predicts.

    Explained in :doc:`/book/any-model/which-model`.

    Parameters
    ----------
    labels : tuple of str
        What the sums are called.
    released, expected, sd : array
        The released sums; mean and standard deviation of such sums under the posterior, noise included.
    p : float
        How likely a release at least as far off is under the posterior: small where the model does not fit. It looks
        at the same release that the posterior was fitted to, so it is cautious.

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook.models import PredictiveCheck
    >>> PredictiveCheck(("x",), np.array([3.0]), np.array([1.0]), np.array([2.0]), 0.4).table["z"].tolist()
    [1.0]
    """

    labels: tuple[str, ...]
    released: Array
    expected: Array
    sd: Array
    p: float

    @property
    def table(self) -> pd.DataFrame:
        """A row per sum; z is the distance between released and expected, in standard deviations."""
        z = (self.released - self.expected) / self.sd
        columns = {"released": self.released, "expected": self.expected, "sd": self.sd, "z": z}
        return pd.DataFrame(columns, index=pd.Index(self.labels, name="sum"))


@dataclass(frozen=True, eq=False, repr=False)
class ModelPosterior(Posterior):
    """The posterior of a model's parameters, with its evidence and a predictive check.

    What :func:`infer` returns. Explained in :doc:`/book/any-model/if-you-can-simulate-it`.

    Parameters
    ----------
    draws, method, labels, notes, doubts
        As in :class:`~dpbook.Posterior`.
    log_evidence : LogEvidence, optional
        Where the method knows it: by moments, not by records.
    fit : PredictiveCheck, optional
        How the release compares.
    release : str, optional
        The text of the release that it is of.
    default_prior : bool, default False
        Whether nobody chose the prior: then its evidence means nothing, and :func:`compare` refuses it.

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook.models import LogEvidence, ModelPosterior, PredictiveCheck
    >>> fit = PredictiveCheck(("x",), np.array([3.0]), np.array([1.0]), np.array([2.0]), 0.4)
    >>> posterior = ModelPosterior({"rate": np.ones((1, 4))}, log_evidence=LogEvidence(-3.0, 0.1), fit=fit)
    >>> posterior.log_evidence.value, posterior.check().p
    (-3.0, 0.4)
    """

    log_evidence: LogEvidence | None = field(default=None, kw_only=True)
    fit: PredictiveCheck | None = field(default=None, kw_only=True)
    release: str = field(default="", kw_only=True)
    default_prior: bool = field(default=False, kw_only=True)

    def check(self) -> PredictiveCheck:
        """Return how the released sums compare with such as the posterior predicts."""
        if self.fit is None:
            raise ValueError("check needs a posterior that infer returned")
        return self.fit


def compare(posteriors: Mapping[str, Posterior], *, prior: Mapping[str, float] | None = None) -> pd.DataFrame:
    """Return how likely each of some models is to have made a release, from their evidences.

    Evidence weighs a model's whole prior: it means something only where priors were chosen as beliefs, so default ones
    are refused. Post-processing: it costs no privacy. Explained in :doc:`/book/any-model/which-model`.

    Parameters
    ----------
    posteriors : mapping of str to Posterior
        Two or more, by the names of their models, of the same release, from ``infer(…, method="moments")``.
    prior : mapping of str to float, optional
        Prior probabilities of the models; by default all alike.

    Returns
    -------
    DataFrame
        A row per model: ``log_evidence``, its standard ``error``, ``log_bayes_factor`` against the best, and the
        posterior ``probability``.

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook import models
    >>> draws = {"rate": np.ones((1, 4))}
    >>> two = {name: models.ModelPosterior(draws, log_evidence=models.LogEvidence(value, 0.1))
    ...        for name, value in (("one", -3.0), ("other", -4.0))}
    >>> models.compare(two)["probability"].round(2).tolist()
    [0.73, 0.27]
    """
    if not isinstance(posteriors, Mapping) or len(posteriors) < 2:
        raise TypeError("posteriors must map the names of two or more models to their posteriors")
    found: dict[str, LogEvidence] = {}
    texts = set()
    for name, each in posteriors.items():
        evidence = getattr(each, "log_evidence", None)
        if not isinstance(evidence, LogEvidence):
            raise ValueError(f"posteriors[{name!r}] has no evidence: infer it with method='moments'")
        if getattr(each, "default_prior", False):
            raise ValueError(f"posteriors[{name!r}] has a default prior, whose width decides the evidence: choose one")
        found[name] = evidence
        texts.add(getattr(each, "release", ""))
    if len(texts) > 1:
        raise ValueError("posteriors must be of the same release: evidences of different data do not compare")
    return _table(found, _checked(prior, tuple(found)))


def _checked(prior: Mapping[str, float] | None, names: tuple[str, ...]) -> Array:
    if prior is None:
        return np.full(len(names), 1 / len(names))
    if set(prior) != set(names) or any(not float(prior[name]) > 0 for name in names):
        raise ValueError(f"prior must hold a probability greater than 0 for each of {list(names)}, got {prior!r}")
    weights = np.array([float(prior[name]) for name in names])
    return np.asarray(weights / weights.sum())


def _table(found: Mapping[str, LogEvidence], prior: Array) -> pd.DataFrame:
    values = np.array([each.value for each in found.values()])
    log_weights = values + np.log(prior)
    weights = np.exp(log_weights - log_weights.max())
    columns: dict[str, Any] = {
        "log_evidence": values,
        "error": [each.error for each in found.values()],
        "log_bayes_factor": values - values.max(),
        "probability": weights / weights.sum(),
    }
    return pd.DataFrame(columns, index=pd.Index(list(found), name="model"))
