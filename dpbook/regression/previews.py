"""What a release of a regression would be worth, from public numbers, before anything is spent.

Chapter 4 explains the posteriors behind it, and the section on how much epsilon one needs what a design is.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from dpbook._arrays import Array
from dpbook._validation import finite_array, flag, fraction, integer, one_of, positive, privacy_loss
from dpbook.preview import EpsilonPlan, Preview
from dpbook.priors import NormalInverseGamma, NormalInverseWishart
from dpbook.regression.cell_previews import CellPlan
from dpbook.regression.coordinates import Coordinates, column_bounds, column_names
from dpbook.regression.fixed_design import FixedDesign
from dpbook.regression.layout import Layout
from dpbook.regression.moments import from_normal, record_moments
from dpbook.regression.parametrisation import Natural, Parametrisation, parametrisation_of, released_moments
from dpbook.regression.planning import by_cell_only, designed
from dpbook.regression.scale_free import Straightened
from dpbook.regression.sensitivities import Plan
from dpbook.regression.task import CovariatePrior, ParameterPrior, Task
from dpbook.regression.weak_priors import covariates_in, stated_prior
from dpbook.schema import Schema
from dpbook.sensitivity import check_share
from dpbook.widths import Chance, expected, information_at, posterior_widths, scale_for, solved

__all__ = ["preview", "solve_epsilon"]

_SPREAD = 0.2  # of a column whose standard deviation is not stated, in widths of its bounds
_R_SQUARED = 0.25
_RELEASES, _DRAWS = 60, 600  # simulated, and positions drawn for each
_MANY, _FEWER = 3, 24  # covariates from which every release takes long, and releases that are simulated then
_HIDDEN = 0.2  # of the covariates' spread behind noise: from there on posteriors have long tails


def preview(  # noqa: PLR0913 - every keyword is a fact that a steward knows
    *,
    n: int,
    x_bounds: Any = None,
    y_bounds: tuple[float, float] | None = None,
    schema: Schema | None = None,
    y: str | None = None,
    formula: str | None = None,
    epsilon: float,
    d: int | None = None,
    intercept: bool = True,
    moments: bool = False,
    mechanism: str = "laplace",
    delta: float = 0.0,
    check: float = 0.0,
    sd_x: Any = None,
    sd_y: float | None = None,
    r_squared: float | None = None,
    prior: NormalInverseGamma | None = None,
    covariates: NormalInverseWishart | None = None,
) -> Preview:
    """Say, before anything is spent, how noisy a release would be and how much it would teach.

    Widths come from releases that are simulated from a design, and describe what :func:`infer` gives; standard
    deviations are a normal approximation at the design itself. A design is n, the bounds, the spread of covariates and
    response, and R²; covariates are uncorrelated, all of the same effect, and lie with the response around the middle
    of their bounds, which hold nearly all of them.

    Parameters
    ----------
    n : int
        The public number of records.
    x_bounds, y_bounds, schema, formula, epsilon, intercept, moments, mechanism, delta, check
        As in :func:`release`. With a schema, all cells of labels are taken as equally likely.
    y : str, optional
        The response's column, beside a schema without a formula.
    d : int, optional
        The number of covariates where ``x_bounds`` are one pair for all; by default 1.
    sd_x : float, sequence or mapping, optional
        Standard deviations of the covariates, in the data's units: one for all, one for each, or by column. By default
        a fifth of the width of the bounds.
    sd_y : float, optional
        Standard deviation of the response; by default a fifth of the width of its bounds.
    r_squared : float, optional
        The share of the response's variance that the covariates explain; by default 0.25.
    prior : NormalInverseGamma, optional
        The analyst's prior; by default the beliefs of :func:`infer` that are free of scale. If it is stated and
        nothing of a design is, the design is the centre of the priors.
    covariates : NormalInverseWishart, optional
        The prior of the covariates, beside one of your own; by default the weak one from the bounds.

    Returns
    -------
    Preview
        Of the coefficients, the intercept first, in the data's units: ``width``, the median width of 95 % intervals,
        ``width_low`` and ``width_high``, between which eight of ten will be; ``posterior_sd``, ``nonprivate_sd``, and
        beside them the sensitivity and noise scale of the sums (in [-1, 1]) and ``break_even_n``, about the n at which
        noise and sampling contribute alike to the slopes' variance. ``notes["hidden"]`` is the noise in units of the
        covariates' spread: above 0.2 posteriors have long tails, and widths may well be larger than stated.

    Examples
    --------
    >>> from dpbook import regression
    >>> bounds = {"x_bounds": {"years": (0, 20)}, "y_bounds": (0, 30)}
    >>> look = regression.preview(n=61_395, **bounds, epsilon=1.0, sd_x=3, sd_y=5, r_squared=0.1)
    >>> print(look.summary().loc["years", ["width", "posterior_sd", "nonprivate_sd"]].round(3).tolist())
    [0.026, 0.007, 0.006]

    Explained in :doc:`/book/exponential-families/how-much-epsilon`.
    """
    plan = _planned(
        schema, y, formula, n=n, x_bounds=x_bounds, y_bounds=y_bounds, d=d, intercept=intercept, moments=moments,
        mechanism=mechanism, check=check, sd_x=sd_x, sd_y=sd_y, r_squared=r_squared, prior=prior, covariates=covariates,
    )  # fmt: skip
    epsilon, delta = privacy_loss(epsilon, delta, mechanism)
    scale = scale_for(plan.sensitivity, epsilon, delta, mechanism)
    variance = (2 if mechanism == "laplace" else 1) * scale**2
    noisy, exact = (plan.cov(added) for added in (variance, 1e-9))
    slopes = slice(plan.first, None)
    # In coordinates, in which every covariate counts alike, and the intercept does not.
    out = plan.turn @ noisy @ plan.turn.T, plan.turn @ exact @ plan.turn.T
    excess = float(np.mean(np.diag(noisy)[slopes] / np.diag(exact)[slopes])) - 1
    width, low, high = expected(plan.widths(scale))
    return Preview(
        plan.labels,
        plan.sensitivity,
        scale,
        posterior_sd=np.sqrt(np.diag(out[0])),
        nonprivate_sd=np.sqrt(np.diag(out[1])),
        break_even_n=n * max(excess, 0.0),
        width=width,
        width_low=low,
        width_high=high,
        notes={"hidden": plan.hidden(scale)},
    )


def solve_epsilon(  # noqa: PLR0913 - as in preview
    width: float,
    *,
    n: int,
    x_bounds: Any = None,
    y_bounds: tuple[float, float] | None = None,
    schema: Schema | None = None,
    y: str | None = None,
    formula: str | None = None,
    of: str | None = None,
    d: int | None = None,
    intercept: bool = True,
    mechanism: str = "laplace",
    delta: float = 0.0,
    check: float = 0.0,
    sd_x: Any = None,
    sd_y: float | None = None,
    r_squared: float | None = None,
    prior: NormalInverseGamma | None = None,
    covariates: NormalInverseWishart | None = None,
) -> EpsilonPlan:
    """Return the privacy loss at which the 95 % interval of a coefficient is expected to have a wanted width.

    The inverse of :func:`preview`, from public numbers alone. Explained in
    :doc:`/book/exponential-families/how-much-epsilon`.

    Parameters
    ----------
    width : float
        Of the 95 % interval, in the data's units.
    of : str, optional
        The coefficient's name, "(intercept)" among them. By default the slope, where there is one.
    n, x_bounds, y_bounds, schema, y, formula, d, intercept, mechanism, delta, check
        As in :func:`preview`.
    sd_x, sd_y, r_squared, prior, covariates
        As in :func:`preview`.

    Returns
    -------
    EpsilonPlan
        With ``epsilon``, and the range in which nine of ten realised widths will be.

    Examples
    --------
    >>> from dpbook import regression
    >>> bounds = {"x_bounds": {"years": (0, 20)}, "y_bounds": (0, 30)}
    >>> plan = regression.solve_epsilon(0.1, n=61_395, **bounds, sd_x=3, sd_y=5, r_squared=0.1)
    >>> print(f"{plan.epsilon:.2f}")
    0.09
    """
    plan = _planned(
        schema, y, formula, n=n, x_bounds=x_bounds, y_bounds=y_bounds, d=d, intercept=intercept, moments=False,
        mechanism=mechanism, check=check, sd_x=sd_x, sd_y=sd_y, r_squared=r_squared, prior=prior, covariates=covariates,
    )  # fmt: skip
    _, delta = privacy_loss(1.0, delta, mechanism)
    names = list(plan.labels)
    if of is None and len(names) - plan.first > 1:
        raise TypeError(f"of must be one of {names}: the coefficient whose interval is wanted")
    which = names.index(names[-1] if of is None else one_of("of", of, tuple(names)))
    found = solved(
        width,
        lambda scale: plan.widths(scale)[:, which],
        sampling=np.sqrt(n),
        sensitivity=plan.sensitivity,
        delta=delta,
        mechanism=mechanism,
    )
    hidden = plan.hidden(scale_for(plan.sensitivity, found.epsilon, delta, mechanism))
    if hidden > _HIDDEN:
        warnings.warn(
            f"at epsilon = {found.epsilon:.3g} the noise is {hidden:.2f} of the covariates' spread: posteriors have "
            "long tails, and intervals may be much wider. Ask for a smaller width, or tighten x_bounds.",
            stacklevel=2,
        )
    return found


def _planned(schema: Any, y: Any, formula: Any, **given: Any) -> _Design | CellPlan:
    """Return the plan of a release, on a schema or within bounds."""
    if schema is None and formula is None:
        if y is not None:
            raise TypeError("y must be left out without a schema: y_bounds are all that is needed of the response")
        return _Design.of(**given)
    design = designed(schema, y, formula, given["x_bounds"], given["y_bounds"])
    if given["prior"] is not None or given["covariates"] is not None or given["d"] is not None:
        raise ValueError("prior, covariates and d must be left out beside a schema")
    by_cell_only(given["intercept"], given["moments"], given["check"])
    mechanism = one_of("mechanism", given["mechanism"], ("laplace", "gaussian"))
    sizes = given["sd_x"], given["sd_y"], given["r_squared"]
    return CellPlan.of(integer("n", given["n"], least=1), design, mechanism, *sizes)


class _Record(NamedTuple):
    """A design in coordinates: coefficients, error variance, and mean and standard deviation of the covariates."""

    theta: Array
    sigma2: float
    mean_x: Array
    cov_x: Array


@dataclass(frozen=True, eq=False)
class _Design:
    """A release to come: its coordinates, its noise, the records of the design, and the law that reads it."""

    n: int
    inside: Coordinates
    sensitivity: float
    laplace: bool
    record: _Record
    beliefs: _StatedBeliefs | None  # None: free of scale

    @property
    def labels(self) -> tuple[str, ...]:
        """What the coefficients are called."""
        return self.inside.labels

    @property
    def first(self) -> int:
        """How many coefficients are no slopes."""
        return int(self.inside.intercept)

    @classmethod
    def of(  # noqa: PLR0913 - as in preview
        cls,
        *,
        n: Any,
        x_bounds: Any,
        y_bounds: Any,
        d: Any,
        intercept: Any,
        moments: Any,
        mechanism: str,
        check: Any,
        sd_x: Any,
        sd_y: Any,
        r_squared: Any,
        prior: Any,
        covariates: Any,
    ) -> _Design:
        """Check all arguments and return the plan, in coordinates."""
        n, moments = integer("n", n, least=1), flag("moments", moments)
        one_of("mechanism", mechanism, ("laplace", "gaussian"))
        inside = _inside(
            x_bounds, y_bounds, None if d is None else integer("d", d, least=1), flag("intercept", intercept)
        )
        bound = Plan.of(inside, moments, mechanism, check_share(check)).sensitivity
        if prior is None and covariates is not None:
            raise ValueError("covariates can be stated only together with prior: beliefs free of scale cover both")
        beliefs = None if prior is None else _StatedBeliefs(inside, stated_prior(prior), covariates)
        if beliefs is not None and sd_x is None and sd_y is None and r_squared is None:
            record = beliefs.centre
        else:
            record = _designed(inside, sd_x, sd_y, r_squared)
        return cls(n, inside, bound, mechanism == "laplace", record, beliefs)

    @functools.cached_property
    def turn(self) -> Array:
        """The linear part of the map from coefficients in coordinates to the data's units, (q, q)."""
        ends = np.eye(self.inside.regressors), np.zeros(self.inside.regressors)
        return np.asarray((self.inside.theta_out(ends[0]) - self.inside.theta_out(ends[1])).T)

    @functools.cached_property
    def _law(self) -> Any:
        return FixedDesign(Layout(self.inside.d, self.inside.intercept)) if self.beliefs is None else self.beliefs

    @functools.cached_property
    def _position(self) -> Array:
        """Where the design is, (dim, 1)."""
        return _fixed_position(self._law, self.record) if self.beliefs is None else self.beliefs.position(self.record)

    def _coefficients(self, law: Any) -> Callable[[Array], Array]:
        return lambda position: self.inside.theta_out(law.parameters(position)[0])

    def cov(self, noise_variance: float) -> Array:
        """Return the covariance (q, q) of the coefficients, in coordinates, by the information at the design."""
        law = self._law
        information = information_at(law, self._position, self.n, noise_variance)
        steps = 1e-5 * np.eye(law.dim)[:, :, None]
        ends = [law.parameters(self._position + e)[0] - law.parameters(self._position - e)[0] for e in steps]
        slope = np.concatenate(ends) / 2e-5
        return np.asarray(slope.T @ np.linalg.solve(information, slope))

    def hidden(self, scale: float) -> float:
        """Return how much of the covariates' spread the noise hides: the noise of X'X over its smallest eigenvalue."""
        noise = np.sqrt((2 if self.laplace else 1) * self.inside.d) * scale
        return float(noise / (self.n * np.linalg.eigvalsh(self.record.cov_x)[0]))

    def widths(self, scale: float) -> Array:
        """Return the widths (release, q) of intervals in the data's units, over simulated releases."""
        mean, cov = self._law.moments(self._position)[:2]
        releases = _RELEASES if self.inside.d < _MANY else _FEWER
        chance = Chance.drawn(releases, mean.shape[1], self.laplace)
        sums = chance.sums(mean[0], cov[0], self.n, scale, self.laplace)
        law, start = self._law, np.repeat(self._position, releases, axis=1)
        if self.beliefs is None:
            law = Straightened(law, sums)
            start = law.straight(start)
        return posterior_widths(law, sums, start, self._coefficients(law), _DRAWS)


def _inside(x_bounds: Any, y_bounds: Any, d: int | None, intercept: bool) -> Coordinates:
    """Return the coordinates of a release to come; covariates have names where their bounds do."""
    lower, upper = column_bounds(x_bounds, y_bounds, d)
    named = list(x_bounds) if isinstance(x_bounds, Mapping) else None
    return Coordinates(lower, upper, intercept, column_names(named, len(lower) - 1))


def _designed(inside: Coordinates, sd_x: Any, sd_y: Any, r_squared: Any) -> _Record:
    """Return the design in coordinates; raise unless it fits the bounds."""
    width = inside.upper - inside.lower
    of_x = _spreads(inside, sd_x)
    of_y = _SPREAD * width[-1] if sd_y is None else positive("sd_y", sd_y)
    explained = _R_SQUARED if r_squared is None else fraction("r_squared", r_squared)
    sds = np.append(of_x, of_y)
    names = (*(f"sd_x of {name}" for name in inside.names[:-1]), "sd_y")
    for name, sd, most in zip(names, sds, width / 2, strict=True):
        if sd >= most:
            raise ValueError(f"{name} must be less than half the width of the bounds, {most:g}, got {sd:g}")
    sds = sds / inside.unit
    middle = ((inside.lower + inside.upper) / 2 - inside.centre) / inside.unit
    slopes = np.sqrt(explained / inside.d) * sds[-1] / sds[:-1]
    height = [middle[-1] - slopes @ middle[:-1]] if inside.intercept else []
    return _Record(
        np.append(height, slopes), float((1 - explained) * sds[-1] ** 2), middle[:-1], np.diag(sds[:-1] ** 2)
    )


def _spreads(inside: Coordinates, sd_x: Any) -> Array:
    """Return a standard deviation for each covariate, in the data's units."""
    if sd_x is None:
        return np.asarray(_SPREAD * (inside.upper - inside.lower)[:-1])
    if isinstance(sd_x, Mapping):
        if set(sd_x) != set(inside.names[:-1]):
            raise ValueError(f"sd_x must name the columns {list(inside.names[:-1])}, it names {list(sd_x)}")
        sd_x = [sd_x[name] for name in inside.names[:-1]]
    given = finite_array("sd_x", sd_x)
    if given.shape not in ((), (inside.d,)) or (given <= 0).any():
        raise ValueError(f"sd_x must be positive, one for all or one for each of {inside.d} covariates; got {sd_x!r}")
    return np.array(np.broadcast_to(given, (inside.d,)))


def _fixed_position(law: FixedDesign, record: _Record) -> Array:
    """Return the position (dim, 1) at which the fixed design is this one."""
    at, position = law.places, np.zeros((law.dim, 1))
    if at.first:
        spread, height = record.cov_x, record.theta[0] + record.theta[1:] @ record.mean_x
        position[at.height] = height
        position[at.centre] = np.arctanh(record.mean_x)[:, None]
        largest = np.sqrt(1 - record.mean_x**2)
    else:
        spread, largest = record.cov_x + np.outer(record.mean_x, record.mean_x), np.ones(at.d)
    root = np.linalg.cholesky(spread)
    share = np.sqrt(np.diag(spread)) / largest
    error = np.sqrt(record.sigma2)
    position[at.slopes, 0] = root.T @ record.theta[at.first :] / error
    position[at.log_error] = np.log(error)
    position[at.spread] = np.log(share / (1 - share))[:, None]
    rows, columns = np.tril_indices(at.d, -1)
    position[at.partial, 0] = root[rows, columns] / np.diag(root)[rows]
    return position


class _StatedBeliefs:
    """The law of a record's statistics under normal covariates, with the priors that an analyst stated."""

    def __init__(self, inside: Coordinates, prior: NormalInverseGamma, covariates: Any) -> None:
        self.layout = Layout(inside.d, inside.intercept)
        mapped, beliefs = inside.prior_in(prior), covariates_in(inside, covariates)
        mean, precision = mapped.sized(self.layout.regressors, "prior")
        centre, scale = beliefs.sized(self.layout.d, "covariates")
        self.centre = _Record(mean, mapped.rate / (mapped.shape + 1), centre, scale / (beliefs.dof + self.layout.d + 1))
        one = np.ones(1)
        task = Task(
            layout=self.layout,
            noisy=np.zeros((1, self.layout.size)),
            scale=one,
            mechanism="laplace",
            n=one,
            prior=ParameterPrior(mean[None], precision[None], one * mapped.shape, one * mapped.rate),
            covariates=CovariatePrior(centre[None], one * beliefs.strength, scale[None], one * beliefs.dof),
        )
        self._space = parametrisation_of(task, 1)
        self.dim: int = self._space.dim
        self.certain = np.zeros(self.layout.size, dtype=np.bool_)

    def position(self, record: _Record) -> Array:
        """Return the position (dim, 1) of a design."""
        natural = Natural(
            record.theta[:, None], np.array([record.sigma2]), record.mean_x[:, None], record.cov_x[..., None]
        )
        return self._space.position_of(natural)

    def _of(self, position: Array) -> Parametrisation:
        return self._space.repeated(position.shape[1])

    def mean(self, position: Array) -> Array:
        """Return the mean of a record's statistics."""
        return released_moments(self._of(position).natural(position), np.ones(position.shape[1]), self.layout)[2].T

    def moments(self, position: Array) -> tuple[Array, Array]:
        """Return mean and covariance of a record's statistics."""
        theta, sigma2, mean_x, cov_x = self._of(position).natural(position)
        record = record_moments(theta.T, sigma2, mean_x.T, np.moveaxis(cov_x, -1, 0), self.layout)
        return from_normal(*record, self.layout)

    def log_prior(self, position: Array) -> tuple[Array, Array]:
        """Return the log prior density and its gradient."""
        space = self._of(position)
        forward = space.forward(position)
        nothing = Natural(*(np.zeros_like(each) for each in forward.natural))
        return space.gradient(position, forward, nothing)

    def parameters(self, position: Array) -> tuple[Array, Array]:
        """Return theta (B, q) and the error variance (B,), in coordinates."""
        natural = self._of(position).natural(position)
        return natural.theta.T, natural.sigma2
