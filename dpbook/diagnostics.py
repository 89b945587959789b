"""Judging a posterior: simulation-based calibration, coverage, interval score, CRPS and MMD.

The section "A Bayesian primer" explains them. Everything here is analyst's side and works on whole batches. The
calibration tests are exact when the posterior draws of a trial are independent: a right posterior is rejected
at the stated level and no more often. They refute; passing them proves nothing, and the prior itself passes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.spatial.distance import cdist

from dpbook._arrays import Array
from dpbook._late import pd, special, stats
from dpbook._mixing import autocorrelation_time
from dpbook._validation import analyst_generator, finite_array, fraction, integer, one_of, positive

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = [
    "Calibration",
    "Coverage",
    "EcdfBands",
    "calibrate",
    "coverage",
    "crps",
    "ecdf_bands",
    "holm",
    "interval_score",
    "mmd2",
    "plot_ecdf_difference",
]

Named = dict[str, Array]

_FEWEST_RANKED = 15  # independent draws a trial, below which ranks say little


# Simulation-based calibration


@dataclass(frozen=True, eq=False)
class Calibration:
    """Ranks of true parameters among their posterior draws, with the tests that judge them.

    Under a right posterior each quantity's ranks are independent and uniform on (0, 1). Two tests look for
    departures: Kolmogorov-Smirnov (strong against bias) and the variance test on ``z = Φ⁻¹(rank)`` (strong
    against a wrong spread: ``Σ z²`` is chi-squared with one degree of freedom per trial). Explained in
    :doc:`/book/background/bayesian-primer`.

    Parameters
    ----------
    ranks : mapping of str to array
        For each scalar quantity the normalised ranks of its trials, shape ``(trials,)``, strictly inside (0, 1).
    contraction : mapping of str to float, optional
        For each scalar parameter ``1 - (mean posterior variance) / (prior variance)``: 0 says that the posterior is
        as wide as the prior, 1 that it has shrunk to a point. Test quantities that depend on the data have none.

    Examples
    --------
    >>> import numpy as np
    >>> too_wide = Calibration({"theta": np.random.default_rng(0).beta(3, 3, size=500)})
    >>> too_wide.passed(), too_wide.variance["theta"] < 1
    (False, True)
    >>> table = Calibration({"theta": (np.arange(300) + 0.5) / 300}, {"theta": 0.9}).summary()
    >>> print(table.round(3).to_string(index_names=False))
              ks  ks_p  variance  variance_p  contraction
    theta  0.002   1.0     0.996         1.0          0.9
    """

    ranks: Mapping[str, Array]
    contraction: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.ranks:
            raise ValueError("ranks must hold at least one quantity, got none")
        checked = {name: _checked_ranks(f"ranks[{name!r}]", values) for name, values in self.ranks.items()}
        for name, values in checked.items():
            if values.min() <= 0 or values.max() >= 1:
                raise ValueError(f"ranks[{name!r}] must lie strictly between 0 and 1")
            values.setflags(write=False)
        object.__setattr__(self, "ranks", checked)
        object.__setattr__(self, "contraction", dict(self.contraction))

    @property
    def ks(self) -> dict[str, float]:
        """Kolmogorov-Smirnov distance of the ranks from uniform, by quantity."""
        return {name: _ks_distance(values) for name, values in self.ranks.items()}

    @property
    def variance(self) -> dict[str, float]:
        """Mean of ``Φ⁻¹(rank)²`` by quantity, 1 if calibrated, less if too wide, more if too narrow or biased."""
        return {name: float(np.mean(special.ndtri(values) ** 2)) for name, values in self.ranks.items()}

    @property
    def raw_p_values(self) -> dict[tuple[str, str], float]:
        """Uncorrected p-values, keyed by ``(quantity, "ks")`` and ``(quantity, "variance")``."""
        tests = {"ks": _ks_p_value, "variance": _variance_p_value}
        return {(name, test): p(values) for name, values in self.ranks.items() for test, p in tests.items()}

    @property
    def p_values(self) -> dict[tuple[str, str], float]:
        """P-values after Holm's correction over all quantities and both tests, keyed as ``raw_p_values``."""
        raw = self.raw_p_values
        return dict(zip(raw, holm(list(raw.values())).tolist(), strict=True))

    def passed(self, level: float = 0.05) -> bool:
        """Return whether no test rejects, that is, whether every corrected p-value is above ``level``.

        A right posterior fails with this probability at most, for all quantities and tests together (Holm).
        """
        return min(self.p_values.values()) > fraction("level", level)

    def summary(self) -> pd.DataFrame:
        """Return a table with one row per quantity.

        Columns ``ks``, ``ks_p``, ``variance``, ``variance_p``, with Holm-corrected p-values, and ``contraction`` (NaN
        for test quantities).
        """
        p_values, ks, variance = self.p_values, self.ks, self.variance
        rows = {
            name: {
                "ks": ks[name],
                "ks_p": p_values[name, "ks"],
                "variance": variance[name],
                "variance_p": p_values[name, "variance"],
                "contraction": self.contraction.get(name, np.nan),
            }
            for name in self.ranks
        }
        return pd.DataFrame.from_dict(rows, orient="index").rename_axis("quantity")


def calibrate(
    prior_draw: Callable[[np.random.Generator, int], Mapping[str, ArrayLike] | ArrayLike],
    simulate: Callable[[Any, np.random.Generator], Any],
    infer: Callable[[Any, np.random.Generator], Mapping[str, ArrayLike] | ArrayLike | Sequence[Any]],
    trials: int,
    *,
    draws: int | None = None,
    quantities: Mapping[str, Callable[[Named, Any], ArrayLike]] | None = None,
    rng: np.random.Generator | None = None,
) -> Calibration:
    """Check an inference method by simulation: draw parameters, simulate, infer, and rank the truth.

    Draw θ from the prior, data (or a release) given θ, and posterior draws given the data. If the posterior is
    right, θ and its draws are exchangeable, so the rank of θ is uniform (Talts et al. 2018). Every callback is called
    once, with all trials in one batch. Ties are broken at random and the rank is spread over its cell:
    ``u = (draws below θ + V · (1 + draws equal to θ)) / (draws + 1)`` with V uniform is uniform exactly. Explained in
    :doc:`/book/background/bayesian-primer`.

    Parameters
    ----------
    prior_draw : callable ``(rng, trials) -> parameters``
        A mapping of name to array of shape ``(trials, ...)``, or one such array, which is then named "theta".
    simulate : callable ``(parameters, rng) -> data``
        Takes what ``prior_draw`` returned, unchanged; returns the data or the releases of all trials, in any form.
    infer : callable ``(data, rng) -> posterior draws``
        A mapping of name to array of shape ``(trials, draws, ...)``; or one such array, named "theta"; or a sequence
        of ``trials`` objects whose ``.draws`` maps a name to an array ``(chain, draw, ...)``, as
        :class:`dpbook.Posterior`. Parameters that only one of ``prior_draw`` and ``infer`` knows are not ranked.
    trials : int
        Number of simulated data sets, at least 2.
    draws : int, optional
        Thin each trial to this many evenly spaced draws. By default all are kept (of the shortest, if they differ)
        where they are independent. Draws of a Markov chain are not, and then ranks are not uniform even for a right
        posterior: by default they are thinned to their effective number, and where that is below 15, or below half of
        the ``draws`` asked for, a ValueError says so.
    quantities : mapping of str to callable ``(parameters, data) -> array``, optional
        Further scalars to rank, which may depend on the data, such as the log-likelihood (Modrák et al. 2023). Called
        with a dict of arrays ``(trials, k, ...)`` of the ranked parameters and with the data; must return
        ``(trials, k)``. It is called twice: k = 1 for the truth, k = draws for the posterior.
    rng : numpy.random.Generator, optional
        Passed to the callbacks in turn, and used for ties.

    Returns
    -------
    Calibration
        With one entry a scalar component: "theta", or "theta[0]", "theta[1]", ... for an array.

    Examples
    --------
    A normal mean with prior N(0, 1), seen with noise of variance 1, has posterior N(y/2, 1/2).

    >>> import numpy as np
    >>> result = calibrate(
    ...     prior_draw=lambda rng, trials: rng.normal(size=trials),
    ...     simulate=lambda theta, rng: rng.normal(theta),
    ...     infer=lambda y, rng: rng.normal(y[:, None] / 2, np.sqrt(0.5), size=(len(y), 100)),
    ...     trials=300,
    ...     quantities={"log-likelihood": lambda p, y: -((y[:, None] - p["theta"]) ** 2) / 2},
    ...     rng=np.random.default_rng(0),
    ... )
    >>> result.passed()
    True
    >>> round(result.contraction["theta"], 1)
    0.5
    """
    count = integer("trials", trials, least=2)
    kept = None if draws is None else integer("draws", draws, least=2)
    extra = {} if quantities is None else dict(quantities)
    callbacks = {"prior_draw": prior_draw, "simulate": simulate, "infer": infer}
    _check_callable(callbacks | {f"quantities[{name!r}]": quantity for name, quantity in extra.items()})
    generator = analyst_generator(rng)
    parameters = prior_draw(generator, count)
    truth = _named_arrays("prior_draw", parameters, count, axes=1)
    data = simulate(parameters, generator)
    posterior = _posterior_arrays(infer(data, generator), count, kept, set(truth))
    truth, posterior = _common(truth, posterior)
    ranks: Named = {}
    contraction: dict[str, float] = {}
    for name in truth:
        for label, true, drawn in _components(name, truth[name], posterior[name]):
            ranks[label] = _normalised_rank(true, drawn, generator)
            contraction[label] = _contraction(true, drawn)
    for name, quantity in extra.items():
        if name in ranks:
            raise ValueError(f"quantities must have names of their own, but {name!r} is also a parameter")
        true = _evaluate(name, quantity, {key: value[:, None] for key, value in truth.items()}, data)
        ranks[name] = _normalised_rank(true[:, 0], _evaluate(name, quantity, posterior, data), generator)
    return Calibration(ranks, contraction)


def _check_callable(callbacks: Mapping[str, Any]) -> None:
    for name, function in callbacks.items():
        if not callable(function):
            raise TypeError(f"{name} must be callable, got {function!r}")


def _named_arrays(source: str, value: Any, trials: int, axes: int) -> Named:
    """Return what a callback gave as name -> array whose first axis is the trials; ``axes`` is the least dimension."""
    mapping = value if isinstance(value, Mapping) else {"theta": value}
    arrays = {name: finite_array(f"{source}'s {name!r}", array) for name, array in mapping.items()}
    for name, array in arrays.items():
        if array.ndim < axes or array.shape[0] != trials:
            expected = "(trials, ...)" if axes == 1 else "(trials, draws, ...)"
            raise ValueError(
                f"{source} must return arrays of shape {expected} with trials = {trials}; "
                f"{name!r} has shape {array.shape}"
            )
    return arrays


def _posterior_arrays(value: Any, trials: int, kept: int | None, ranked: set[str]) -> Named:
    """Return what ``infer`` gave as name -> (trials, draws, ...), thinned to a common number of independent draws."""
    chains = 1
    if isinstance(value, Sequence) and len(value) > 0 and all(hasattr(item, "draws") for item in value):
        value, chains = _pooled_chains(value)
    arrays = _named_arrays("infer", value, trials, axes=2)
    sizes = {array.shape[1] for array in arrays.values()}
    if len(sizes) > 1:
        raise ValueError(f"infer must return the same number of draws for every parameter, got {sorted(sizes)}")
    available = min(sizes, default=0)
    if available < 2:
        raise ValueError(f"infer must return at least 2 draws a trial, got {available}")
    if kept is not None and kept > available:
        raise ValueError(f"draws must be at most the {available} draws that infer returned, got {kept}")
    if kept is not None:
        thinned = {name: _thin(array, kept, axis=1) for name, array in arrays.items()}
        _require_independent(thinned, ranked)
        return thinned
    return _thinned_to_independence(arrays, chains, ranked)


def _thinned_to_independence(arrays: Named, chains: int, ranked: set[str]) -> Named:
    """Keep so few draws of every chain that they are about independent; raise where hardly any are left."""
    step, name = _longest_time(arrays, chains, ranked)
    if step == 1:
        return arrays
    length = next(iter(arrays.values())).shape[1] // chains
    left = chains * -(-length // step)
    if left < _FEWEST_RANKED:
        raise ValueError(
            f"infer must return more draws: the {chains * length} of {name!r} are those of a Markov chain, worth "
            f"{left} independent ones, and ranks among fewer than {_FEWEST_RANKED} say little; run longer chains"
        )
    within = np.arange(0, length, step)
    places = (length * np.arange(chains)[:, None] + within).ravel()
    return {each: np.take(array, places, axis=1) for each, array in arrays.items()}


def _require_independent(arrays: Named, ranked: set[str]) -> None:
    """Raise where draws that were thinned as the caller wished still depend on each other."""
    time, name = _longest_time(arrays, 1, ranked)
    if time > 2:
        kept = next(iter(arrays.values())).shape[1]
        raise ValueError(
            f"draws must be at most about {kept // time}: the {kept} kept of {name!r} depend on each other, so that "
            "ranks would not be uniform even for a right posterior"
        )


def _longest_time(arrays: Named, chains: int, ranked: set[str]) -> tuple[int, str]:
    """Return the longest autocorrelation time of the ranked parameters, in whole steps, and whose it is."""
    times = {"": 1.0}
    for name in ranked & set(arrays):
        array = arrays[name]
        columns = array.reshape(len(array), chains, array.shape[1] // chains, -1)
        times[name] = max(autocorrelation_time(columns[..., i]) for i in range(columns.shape[3]))
    worst = max(times, key=lambda each: times[each])
    return math.ceil(times[worst]), worst


def _pooled_chains(posteriors: Sequence[Any]) -> tuple[Named, int]:
    """Stack posteriors into name -> (trials, draws, ...), chains pooled, and say how many chains those are.

    Each is thinned to the shortest one's length; where lengths or chains differ, the pooled count as one chain.
    """
    names = list(posteriors[0].draws)
    if any(set(posterior.draws) != set(names) for posterior in posteriors):
        raise ValueError("infer must return posteriors that all hold the same parameters")
    stacked: Named = {}
    shapes = set()
    for name in names:
        chains = [np.asarray(posterior.draws[name]) for posterior in posteriors]
        shapes |= {array.shape[:2] for array in chains}
        pooled = [array.reshape(-1, *array.shape[2:]) for array in chains]
        shortest = min(len(array) for array in pooled)
        stacked[name] = np.stack([_thin(array, shortest, axis=0) for array in pooled])
    return stacked, next(iter(shapes))[0] if len(shapes) == 1 else 1


def _thin(array: Array, count: int, axis: int) -> Array:
    """Keep ``count`` evenly spaced entries along ``axis``."""
    size = array.shape[axis]
    if count == size:
        return array
    return np.take(array, np.linspace(0, size - 1, count).round().astype(np.intp), axis=axis)


def _common(truth: Named, posterior: Named) -> tuple[Named, Named]:
    """Keep the parameters that both hold, and check that their shapes agree."""
    names = [name for name in truth if name in posterior]
    if not names:
        raise ValueError(f"infer must return a parameter of prior_draw {sorted(truth)}, got {sorted(posterior)}")
    for name in names:
        if truth[name].shape[1:] != posterior[name].shape[2:]:
            raise ValueError(
                f"infer must return draws of {name!r} of shape {truth[name].shape[1:]}, as prior_draw does; "
                f"got {posterior[name].shape[2:]}"
            )
    return {name: truth[name] for name in names}, {name: posterior[name] for name in names}


def _components(name: str, truth: Array, draws: Array) -> list[tuple[str, Array, Array]]:
    """Split a parameter into its scalar components, with labels "theta" or "theta[0,1]"."""
    indices = list(np.ndindex(truth.shape[1:]))
    labels = [f"{name}[{','.join(map(str, index))}]" if index else name for index in indices]
    return [
        (label, truth[(slice(None), *index)], draws[(slice(None), slice(None), *index)])
        for label, index in zip(labels, indices, strict=True)
    ]


def _evaluate(name: str, quantity: Callable[[Named, Any], ArrayLike], parameters: Named, data: Any) -> Array:
    """Return a test quantity as an array (trials, draws); infinities can be ranked, NaN cannot."""
    values = np.asarray(quantity(parameters, data), dtype=np.float64)
    expected = next(iter(parameters.values())).shape[:2]
    if values.shape != expected:
        raise ValueError(f"quantities[{name!r}] must return shape (trials, draws) = {expected}, got {values.shape}")
    if np.isnan(values).any():
        raise ValueError(f"quantities[{name!r}] must not return NaN")
    return values


def _normalised_rank(truth: Array, draws: Array, rng: np.random.Generator) -> Array:
    """Return the randomised rank of ``truth`` (trials,) among ``draws`` (trials, draws), uniform if exchangeable."""
    below = np.sum(draws < truth[:, None], axis=1)
    equal = np.sum(draws == truth[:, None], axis=1)
    rank = (below + (1 + equal) * rng.random(len(truth))) / (draws.shape[1] + 1)
    # The uniform can be 0 and the quotient can round to 1, where Φ⁻¹ is infinite.
    clipped: Array = np.clip(rank, 2.0**-60, 1 - 2.0**-53)
    return clipped


def _contraction(truth: Array, draws: Array) -> float:
    """Return 1 - mean posterior variance / prior variance, the latter estimated from the trials' true values."""
    prior = float(truth.var(ddof=1))
    return 1 - float(draws.var(axis=1, ddof=1).mean()) / prior if prior > 0 else float("nan")


def _checked_ranks(name: str, ranks: ArrayLike) -> Array:
    """Return a copy of normalised ranks as a vector in [0, 1] of at least two trials."""
    values = finite_array(name, ranks, ndim=1).copy()
    if len(values) < 2:
        raise ValueError(f"{name} must hold at least 2 trials, got {len(values)}")
    if values.min() < 0 or values.max() > 1:
        raise ValueError(f"{name} must lie between 0 and 1: divide ranks by the number of draws plus one")
    return values


def _ks_distance(ranks: Array) -> float:
    """Return the largest distance of the ECDF from the diagonal, which is beside one of its jumps."""
    jumps, before = np.sort(ranks), np.arange(len(ranks)) / len(ranks)
    return float(np.max(np.maximum(jumps - before, before + 1 / len(ranks) - jumps)))


def _ks_p_value(ranks: Array) -> float:
    return float(stats.kstwo.sf(_ks_distance(ranks), len(ranks)))


def _variance_p_value(ranks: Array) -> float:
    """Two-sided p-value of Σ Φ⁻¹(rank)² against chi-squared with as many degrees of freedom as trials."""
    total = float(np.sum(special.ndtri(ranks) ** 2))
    below, above = special.chdtr(len(ranks), total), special.chdtrc(len(ranks), total)
    return float(min(1.0, 2 * min(below, above)))


def holm(p_values: ArrayLike) -> Array:
    """Correct p-values for testing several hypotheses (Holm 1979).

    Rejecting where the corrected value is at most α keeps the chance of any false rejection at or below α, however
    the tests depend on each other. Sorted, ``p̃₍ᵢ₎ = max over j ≤ i of min(1, (m - j + 1) p₍ⱼ₎)``. Explained in
    :doc:`/book/background/bayesian-primer`.

    Parameters
    ----------
    p_values : array_like
        Values in [0, 1], one dimension.

    Returns
    -------
    numpy.ndarray
        Corrected values, in the order of ``p_values``.

    Examples
    --------
    >>> holm([0.01, 0.04, 0.03]).round(2).tolist()
    [0.03, 0.06, 0.06]
    """
    values = finite_array("p_values", p_values, ndim=1)
    if values.size and (values.min() < 0 or values.max() > 1):
        raise ValueError("p_values must lie between 0 and 1")
    order = np.argsort(values, kind="stable")
    scaled = values[order] * np.arange(len(values), 0, -1)
    corrected = np.empty_like(values)
    corrected[order] = np.minimum(np.maximum.accumulate(scaled), 1)
    return corrected


# Simultaneous bands for the empirical distribution of ranks


class EcdfBands(NamedTuple):
    """Simultaneous bands for the difference between the ECDF of uniform ranks and the diagonal.

    ``points``, ``lower`` and ``upper`` are arrays of one length; ``gamma`` is the pointwise error probability that
    gives the bands together the ``coverage``, which is exact. Explained in :doc:`/book/background/bayesian-primer`.

    Examples
    --------
    >>> bands = ecdf_bands(300)
    >>> bands.points.shape == bands.lower.shape == bands.upper.shape
    True
    """

    points: Array
    lower: Array
    upper: Array
    gamma: float
    coverage: float


def ecdf_bands(trials: int, level: float = 0.95, points: ArrayLike | None = None) -> EcdfBands:
    """Return bands that hold the whole ECDF difference of uniform ranks with probability ``level``.

    At each point z the count of ranks up to z is Binomial(trials, z); the band there is its central interval of
    probability 1 - γ. The same γ is used everywhere (Säilynoja, Bürkner and Vehtari 2022) and is the largest for which
    all points hold together with probability at least ``level``, computed exactly and without simulation. Explained in
    :doc:`/book/background/bayesian-primer`.

    Parameters
    ----------
    trials : int
        Number of ranks.
    level : float
        Probability that calibrated ranks stay inside at every point.
    points : array_like, optional
        Where the ECDF is looked at: increasing, strictly inside (0, 1). By default 0.01, 0.02, ..., 0.99.

    Returns
    -------
    EcdfBands
        Named tuple ``points, lower, upper, gamma, coverage``; the bands are on ECDF minus z.

    Examples
    --------
    >>> bands = ecdf_bands(300)
    >>> round(float(bands.upper.max()), 3), round(bands.coverage, 3)
    (0.087, 0.95)
    """
    count = integer("trials", trials, least=1)
    target = fraction("level", level)
    z = finite_array("points", np.arange(1, 100) / 100 if points is None else points, ndim=1)
    if len(z) == 0 or z[0] <= 0 or z[-1] >= 1 or np.any(np.diff(z) <= 0):
        raise ValueError("points must increase and lie strictly between 0 and 1")
    # Bonferroni holds at the left end. No band beyond the pointwise one is wanted at the right end.
    low, high = (1 - target) / len(z), 1 - target
    if _band_coverage(count, z, high) >= target:
        low = high
    while high - low > 1e-6 * low:
        middle = (low + high) / 2
        low, high = (middle, high) if _band_coverage(count, z, middle) >= target else (low, middle)
    least, most = _binomial_band(count, z, low)
    return EcdfBands(z, least / count - z, most / count - z, low, _band_coverage(count, z, low))


def _binomial_band(trials: int, points: Array, gamma: float) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return least and most count at each point: central binomial intervals of probability at least 1 - gamma."""
    least, most = (stats.binom.ppf(tail, trials, points).astype(np.int64) for tail in (gamma / 2, 1 - gamma / 2))
    return least, most


def _band_coverage(trials: int, points: Array, gamma: float) -> float:
    """Return the probability that counts of uniform ranks stay inside the band at all points.

    Uniform ranks are a Poisson process of rate N on (0, 1) given that it has N points. So advance
    P(count = k, inside so far) by convolution with the Poisson law of each step, cut to the band, and divide by P(N
    points in all). All terms are positive: nothing cancels.
    """
    least, most = _binomial_band(trials, points, gamma)
    state, first = np.ones(1), 0
    for step, low, high in zip(np.diff(points, prepend=0.0), least, most, strict=True):
        arrivals = _poisson_pmf(np.arange(high - first + 1), trials * step)
        state = np.convolve(state, arrivals)[low - first : high - first + 1]
        first = low
    remaining = trials - first - np.arange(len(state))
    inside = state @ _poisson_pmf(remaining, trials * (1 - points[-1]))
    return float(inside / _poisson_pmf(np.array([trials]), trials)[0])


def _poisson_pmf(counts: NDArray[np.int64], mean: float) -> Array:
    pmf: Array = np.exp(special.xlogy(counts, mean) - mean - special.gammaln(counts + 1))
    return pmf


def plot_ecdf_difference(
    ranks: Calibration | ArrayLike,
    *,
    quantity: str | None = None,
    level: float = 0.95,
    points: ArrayLike | None = None,
    ax: Axes | None = None,
    band: bool = True,
    band_color: Any = "0.5",
    **line: Any,
) -> Axes:
    """Draw the ECDF of ranks minus the diagonal, inside its simultaneous bands.

    A curve above zero on the left and below on the right says that the posterior is too narrow; the reverse, too wide;
    all above, that it lies too high; all below, too low. Explained in :doc:`/book/background/bayesian-primer`.

    Parameters
    ----------
    ranks : Calibration or array_like
        A calibration, of which one curve per quantity is drawn, labelled with its name; or normalised ranks.
    quantity : str, optional
        Draw only this quantity of the calibration.
    level, points
        As in :func:`ecdf_bands`.
    ax : matplotlib.axes.Axes, optional
        Axes to draw on; by default the current ones.
    band, band_color : bool, matplotlib colour
        Whether to draw the band, and its colour, made translucent. Switch it off when adding a curve to axes that have
        one.
    **line
        Passed to ``ax.plot``: ``color``, ``label``, ``linestyle`` and so on.

    Returns
    -------
    matplotlib.axes.Axes

    Examples
    --------
    >>> import numpy as np
    >>> from matplotlib.figure import Figure
    >>> ax = plot_ecdf_difference(np.random.default_rng(0).uniform(size=200), ax=Figure().subplots(), label="exact")
    >>> ax.get_xlabel()
    'normalised rank'
    """
    curves = _curves(ranks, quantity)
    trials = {len(values) for values in curves.values()}
    bands = {count: ecdf_bands(count, level, points) for count in sorted(trials)}
    if ax is None:
        import matplotlib.pyplot as plt  # here, so that the package can be imported without a display

        ax = plt.gca()
    for name, values in curves.items():
        z = bands[len(values)].points
        difference = np.searchsorted(np.sort(values), z, side="right") / len(values) - z
        style: dict[str, Any] = {"label": name} if name else {}
        ax.plot(np.r_[0, z, 1], np.r_[0, difference, 0], **(style | line))
    if band:
        # With curves of several lengths, the widest band (fewest trials) is drawn.
        edge = bands[min(trials)]
        ax.fill_between(edge.points, edge.lower, edge.upper, color=band_color, alpha=0.3, linewidth=0, zorder=0)
    ax.set_xlabel("normalised rank")
    ax.set_ylabel("ECDF difference")
    return ax


def _curves(ranks: Calibration | ArrayLike, quantity: str | None) -> dict[str, Array]:
    """Return label -> ranks of the curves to draw; bare ranks have the empty label."""
    if not isinstance(ranks, Calibration):
        if quantity is not None:
            raise ValueError("quantity must be left out unless ranks is a Calibration")
        return {"": _checked_ranks("ranks", ranks)}
    if quantity is None:
        return dict(ranks.ranks)
    name = one_of("quantity", quantity, tuple(ranks.ranks))
    return {name: ranks.ranks[name]}


# Intervals, scores and distances


class Coverage(NamedTuple):
    """How often intervals held the truth, with a confidence interval: floats, or arrays for several quantities.

    ``rate`` is the observed share, ``low`` and ``high`` bound the true one, ``trials`` says on how many it rests.
    Explained in :doc:`/book/background/bayesian-primer`.

    Examples
    --------
    >>> coverage([0, 0, 0], [1, 1, 1], [0.5, 2, 0.7]).trials
    3
    """

    rate: Any
    low: Any
    high: Any
    trials: int


def coverage(
    lower: ArrayLike, upper: ArrayLike, truth: ArrayLike, *, confidence: float = 0.95, method: str = "wilson"
) -> Coverage:
    """Return the share of trials whose interval holds the truth, with a confidence interval for it.

    Explained in :doc:`/book/background/bayesian-primer`.

    Parameters
    ----------
    lower, upper : array_like
        Ends of the intervals, shape ``(trials,)`` or ``(trials, ...)``; the ends belong to the interval.
    truth : array_like
        True values, of the same shape or one that broadcasts to it.
    confidence : float
        Confidence of the interval around the rate.
    method : {"wilson", "clopper-pearson"}
        Wilson's score interval is right on average over rates; Clopper and Pearson's is never too short, so wider.

    Returns
    -------
    Coverage
        The first three are floats for one-dimensional intervals, else arrays of the shape after the trials axis.

    Examples
    --------
    >>> result = coverage(np.full(100, -1.0), np.full(100, 1.0), np.linspace(-1.1, 1.1, 100))
    >>> result.rate, round(result.low, 3), round(result.high, 3)
    (0.9, 0.826, 0.945)
    """
    tail = (1 - fraction("confidence", confidence)) / 2
    bounds = {"wilson": _wilson, "clopper-pearson": _clopper_pearson}
    rule = bounds[one_of("method", method, tuple(bounds))]
    low_end, high_end, value = _checked_intervals(lower, upper, truth)
    if value.ndim == 0 or len(value) == 0:
        raise ValueError("truth must have a trials axis with at least one trial")
    inside = (low_end <= value) & (value <= high_end)
    trials = len(inside)
    hits = inside.sum(axis=0)
    low, high = rule(hits, trials, tail)
    return Coverage(_plain(hits / trials), _plain(low), _plain(high), trials)


def _wilson(hits: NDArray[np.int64], trials: int, tail: float) -> tuple[Array, Array]:
    z2, rate = special.ndtri(tail) ** 2, hits / trials
    centre = (rate + z2 / (2 * trials)) / (1 + z2 / trials)
    half = np.sqrt(z2 * (rate * (1 - rate) + z2 / (4 * trials)) / trials) / (1 + z2 / trials)
    # At 0 and `trials` hits an end is 0 or 1 exactly; rounding must not carry it outside.
    return np.where(hits == 0, 0.0, centre - half), np.where(hits == trials, 1.0, centre + half)


def _clopper_pearson(hits: NDArray[np.int64], trials: int, tail: float) -> tuple[Array, Array]:
    misses = trials - hits
    # Beta(0, ·) has no quantile: the end is then 0 or 1.
    low = np.where(hits == 0, 0.0, special.betaincinv(np.maximum(hits, 1), misses + 1, tail))
    high = np.where(misses == 0, 1.0, special.betaincinv(hits + 1, np.maximum(misses, 1), 1 - tail))
    return low, high


def interval_score(lower: ArrayLike, upper: ArrayLike, truth: ArrayLike, level: float) -> Any:
    """Return the interval score: the width, plus 2/α for each unit by which the truth lies outside.

    A proper score, lower is better: its expectation is least at the central interval of the true law (Gneiting and
    Raftery 2007). It punishes both an interval that misses and an honest one that is needlessly wide. Explained in
    :doc:`/book/background/bayesian-primer`.

    Parameters
    ----------
    lower, upper, truth : array_like
        Ends of the intervals and true values; the three broadcast together.
    level : float
        Probability that the intervals claim, 1 - α.

    Returns
    -------
    float or numpy.ndarray
        One score per interval; average them over trials.

    Examples
    --------
    >>> interval_score([0, 0], [1, 1], [0.5, 1.5], level=0.9).round(6).tolist()
    [1.0, 11.0]
    """
    alpha = 1 - fraction("level", level)
    low_end, high_end, value = _checked_intervals(lower, upper, truth)
    outside = np.maximum(low_end - value, 0) + np.maximum(value - high_end, 0)
    return _plain(high_end - low_end + 2 / alpha * outside)


def _checked_intervals(lower: ArrayLike, upper: ArrayLike, truth: ArrayLike) -> tuple[Array, Array, Array]:
    ends = [finite_array(name, value) for name, value in (("lower", lower), ("upper", upper), ("truth", truth))]
    try:
        low_end, high_end, value = np.broadcast_arrays(*ends)
    except ValueError:
        shapes = ", ".join(str(array.shape) for array in ends)
        raise ValueError(f"lower, upper and truth must have shapes that broadcast together, got {shapes}") from None
    if np.any(low_end > high_end):
        raise ValueError("lower must nowhere exceed upper")
    return low_end, high_end, value


def crps(draws: ArrayLike, truth: ArrayLike, *, axis: int = -1, fair: bool = True) -> Any:
    """Return the continuous ranked probability score of posterior draws, ``E|X - truth| - E|X - X′|/2``.

    A proper score in the units of the parameter, lower is better; for a point mass it is the absolute error. The second
    term comes from the sorted draws, so the cost is m log m. Explained in :doc:`/book/background/bayesian-primer`.

    Parameters
    ----------
    draws : array_like
        Posterior draws.
    truth : array_like
        True values, of the shape of ``draws`` without the axis of draws (or one that broadcasts to it).
    axis : int
        The axis of the draws: -1 for ``(trials, draws)``, 1 for ``(trials, draws, ...)``.
    fair : bool
        True averages ``|X - X′|`` over pairs of different draws: unbiased for the score of the law that independent
        draws come from. False averages over all pairs, which gives the score of the empirical law of the draws, larger
        by ``E|X - X′|/(2m)`` on average.

    Returns
    -------
    float or numpy.ndarray
        One score per true value.

    Examples
    --------
    >>> round(crps([1.0, 2.0, 4.0], 2.0, fair=False), 3), round(crps([1.0, 2.0, 3.0, 8.0], 2.0), 3)
    (0.333, 0.167)
    """
    sample = finite_array("draws", draws)
    place = integer("axis", axis)
    if not -sample.ndim <= place < sample.ndim:
        raise ValueError(f"axis must be an axis of draws, which has shape {sample.shape}; got {place}")
    sample = np.moveaxis(sample, place, -1)
    size = sample.shape[-1]
    if size < 1 + bool(fair):
        raise ValueError(f"draws must hold at least {1 + bool(fair)} draws, got {size}")
    value = finite_array("truth", truth)
    try:
        value = np.broadcast_to(value, sample.shape[:-1])
    except ValueError:
        raise ValueError(f"truth must broadcast to shape {sample.shape[:-1]}, got {value.shape}") from None
    # Errors rather than draws: sorted, they give Σ_{i<j} |x_i - x_j| = Σ_i (2i - m - 1) x_(i) without large offsets.
    errors = np.sort(sample - value[..., None], axis=-1)
    spread = errors @ (2 * np.arange(1, size + 1) - size - 1.0) / (size * (size - 1 if fair else size))
    return _plain(np.abs(errors).mean(axis=-1) - spread)


def mmd2(x: ArrayLike, y: ArrayLike, bandwidth: float = 1.0, *, chunk: int = 512) -> float:
    """Return the unbiased squared maximum mean discrepancy of two samples, with a Gaussian kernel.

    The kernel is ``k(a, b) = exp(-‖a - b‖² / (2 bandwidth²))`` and the estimate is the U-statistic
    ``mean_{i≠j} k(xᵢ, xⱼ) + mean_{i≠j} k(yᵢ, yⱼ) - 2 mean k(xᵢ, yⱼ)``: zero on average for samples of one law, so
    sometimes negative (Gretton et al. 2012). A bandwidth much wider than both laws sees little but the squared
    difference of their means over bandwidth²: state the bandwidth, and judge by other scores too. Explained in
    :doc:`/book/background/bayesian-primer`.

    Parameters
    ----------
    x, y : array_like
        Samples of shape ``(m,)`` or ``(m, d)`` and ``(n,)`` or ``(n, d)``, at least two draws each.
    bandwidth : float
        Width of the kernel.
    chunk : int
        Side of the blocks in which the kernel matrix is computed: memory grows with chunk², not with m·n.

    Returns
    -------
    float

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> round(mmd2(rng.normal(0, 1, 2000), rng.normal(1, 1, 2000)), 1)
    0.2
    """
    scaled = positive("bandwidth", bandwidth)
    side = integer("chunk", chunk, least=1)
    first, second = _sample("x", x) / scaled, _sample("y", y) / scaled
    if first.shape[1] != second.shape[1]:
        raise ValueError(f"x and y must have the same dimension, got {first.shape[1]} and {second.shape[1]}")
    cross = _kernel_sum(first, second, side) / (len(first) * len(second))
    within = sum(_pair_sum(points, side) / (len(points) * (len(points) - 1)) for points in (first, second))
    return float(within - 2 * cross)


def _sample(name: str, value: ArrayLike) -> Array:
    """Return a sample as (draws, dimension)."""
    array = finite_array(name, value)
    if array.ndim not in (1, 2) or len(array) < 2:
        raise ValueError(f"{name} must have shape (draws,) or (draws, d) with at least 2 draws, got {array.shape}")
    return array.reshape(len(array), -1)


def _kernel_sum(x: Array, y: Array, chunk: int) -> float:
    """Return Σ_ij exp(-‖xᵢ - yⱼ‖²/2), block by block."""
    total = 0.0
    for i in range(0, len(x), chunk):
        for j in range(0, len(y), chunk):
            block = cdist(x[i : i + chunk], y[j : j + chunk], "sqeuclidean")
            block *= -0.5
            total += float(np.exp(block, out=block).sum())
    return total


def _pair_sum(x: Array, chunk: int) -> float:
    """Return Σ_{i≠j} exp(-‖xᵢ - xⱼ‖²/2): each block above the diagonal once and doubled."""
    total = -float(len(x))  # the diagonal, where the kernel is 1
    for i in range(0, len(x), chunk):
        rows, later = x[i : i + chunk], x[i + chunk :]
        total += _kernel_sum(rows, rows, chunk) + 2 * _kernel_sum(rows, later, chunk)
    return total


def _plain(value: Any) -> Any:
    """Return a float for a scalar, else the array."""
    return float(value) if np.ndim(value) == 0 else np.asarray(value)
