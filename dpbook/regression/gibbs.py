"""The three Gibbs samplers of sufficient statistics, corrected, and advanced as one batch of releases and chains.

Each sweep draws the latent sums given parameters and release (a normal, by the central limit theorem, times the
noise), the parameters given the sums (conjugate, as without privacy), and the variances of the Laplace noise seen as a
scale mixture of normals. The three differ in where the moments of the covariates come from: released with noise
("gibbs-noisy"), fixed by the prior ("gibbs-prior"), or drawn along with everything else ("gibbs-update"). Pairing
exact conjugate draws with a normal law of the sums makes the conditionals incompatible at small n: these are
pseudo-Gibbs samplers, right from about a thousand records on. Chapter 4 explains, and shows a better one.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpbook._arrays import Array, times
from dpbook._validation import one_of
from dpbook.latent_noise import covariance_root as _root
from dpbook.latent_noise import draw_noise_variance
from dpbook.priors import cholesky, draw_normal_inverse_wishart
from dpbook.regression.moments import (
    from_fourth_moments,
    from_normal,
    is_valid,
    nearest_valid,
    product_cov,
    record_moments,
)
from dpbook.regression.problem import CovariatePrior, Draws, Layout, ParameterPrior, Problem
from dpbook.sampling import run

__all__ = ["KINDS", "Variant", "draw_covariate_parameters", "draw_parameters", "prior_moments", "sample"]

KINDS = ("gibbs-noisy", "gibbs-prior", "gibbs-update")
_TRIES = 20  # draws of sums that no data could have are drawn again this often, then projected
_SWEEPS = 4000  # after the burn-in, unless the caller says otherwise
_JITTER = 1e-12  # of each variance: keeps a nearly singular covariance within reach of Cholesky


@dataclass(frozen=True)
class Variant:
    """Which printed formulas to follow: for experiments that show what each of them does.

    Parameters
    ----------
    covariance : {"corrected", "printed"}
        "printed" puts ``xi_(ij,kl)`` where ``Cov(x_i y, x_j y)`` needs ``xi_(ik,jl)``.
    invalid : {"reject", "project", "clip"}
        What becomes of drawn sums that no data could have: drawn again (then projected), their centred scatter
        projected, or the eigenvalues of their whole matrix clipped, n included.
    start : {"release", "prior"}
        Where chains begin.

    Examples
    --------
    >>> Variant(covariance="printed")
    Variant(covariance='printed', invalid='reject', start='release')

    Explained in :doc:`/book/regression/gibbs-samplers`.
    """

    covariance: str = "corrected"
    invalid: str = "reject"
    start: str = "release"

    def __post_init__(self) -> None:
        one_of("covariance", self.covariance, ("corrected", "printed"))
        one_of("invalid", self.invalid, ("reject", "project", "clip"))
        one_of("start", self.start, ("release", "prior"))


class State(NamedTuple):
    """Where the chains are: every array has leading axes (chain, release)."""

    theta: Array
    sigma2: Array
    sums: Array
    records: Array  # n, except where a printed projection changes it
    variance: Array
    mean_x: Array
    cov_x: Array


@dataclass(frozen=True, eq=False)
class _Plan:
    """What does not change from sweep to sweep."""

    problem: Problem
    latent: Layout  # of the sums that are drawn: with the covariates' own sums where their mean is inferred
    observed: NDArray[np.int64]  # which of them the release shows
    kind: str
    account: bool
    variant: Variant
    second: Array  # of the regressors, where fixed: (release, q, q)
    xi: Array  # covariance of their products, (release, j, j)

    @property
    def n(self) -> Array:
        return self.problem.n


def sample(
    problem: Problem,
    *,
    kind: str,
    draws: int,
    chains: int,
    rng: np.random.Generator,
    burn_in: int = 1000,
    thin: int | None = None,
    account_for_moments: bool = False,
    variant: Variant | None = None,
    progress: bool = False,
) -> Draws:
    """Run one of the three Gibbs samplers for all releases and chains together.

    Parameters
    ----------
    problem : Problem
        The releases, in coordinates.
    kind : {"gibbs-noisy", "gibbs-prior", "gibbs-update"}
        Where the covariates' moments come from.
    draws, chains : int
        Draws kept in each chain, and how many chains a release has.
    rng : numpy.random.Generator
        The source of randomness.
    burn_in, thin : int
        Sweeps before the first that counts, and from one kept draw to the next; by default a thousand, and as many as
        make four thousand sweeps in all.
    account_for_moments : bool, default False
        Only for "gibbs-noisy". False takes the noisy moments for the truth, as the source does. True treats the
        regressors' sums as unknown, under a prior as wide as the bounds, with the noise as their only evidence; the
        third and fourth moments then drop out: given the regressors' sums, those of the response do not need them.
    variant : Variant, optional
        Printed formulas, for experiments; by default the corrected ones.
    progress : bool, default False
        Whether to show a progress bar.

    Returns
    -------
    Draws
        In coordinates.

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook import regression
    >>> from dpbook.regression import gibbs
    >>> from dpbook.regression.inference import problem_of
    >>> rng = np.random.default_rng(1)
    >>> x = rng.uniform(size=500)
    >>> release = regression.release(x, x, x_bounds=(0, 1), y_bounds=(0, 1), epsilon=1.0, rng=rng)
    >>> problem = problem_of([release], regression.NormalInverseGamma(0, 0.1, 20, 0.5))
    >>> gibbs.sample(problem, kind="gibbs-update", draws=10, chains=2, burn_in=5, rng=rng).theta.shape
    (1, 2, 10, 2)

    Explained in :doc:`/book/regression/gibbs-samplers`.
    """
    plan = _plan(problem, one_of("kind", kind, KINDS), account_for_moments, variant or Variant())
    kept = run(
        partial(_sweep, plan=plan),
        _start(plan, chains, rng),
        draws=draws,
        burn_in=burn_in,
        thin=max(1, _SWEEPS // draws) if thin is None else thin,
        keep=["theta", "sigma2"],
        rng=rng,
        progress=progress,
        label=kind,
    )
    return Draws(*(np.moveaxis(kept[name], 2, 0) for name in ("theta", "sigma2")))


def draw_parameters(
    prior: ParameterPrior, matrix: Array, n: Array, rng: np.random.Generator, spread: float = 1.0
) -> tuple[Array, Array]:
    """Draw theta and sigma2 given exact sums: the conjugate posterior, for a batch.

    Parameters
    ----------
    prior : ParameterPrior
        In coordinates.
    matrix : array (..., release, q + 1, q + 1)
        ``sum (w, y)(w, y)'``, positive semidefinite.
    n : array (..., release)
        Numbers of records.
    rng : numpy.random.Generator
        The source of randomness.
    spread : float, default 1.0
        By how much to stretch theta about its mean: more than 1 for starting points that lie apart.

    Returns
    -------
    theta : array (..., release, q)
    sigma2 : array (..., release)

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook.regression.problem import ParameterPrior
    >>> prior = ParameterPrior(np.zeros((1, 1)), np.full((1, 1, 1), 1e-9), np.array([2.0]), np.array([1.0]))
    >>> matrix = np.array([[[100.0, 50.0], [50.0, 30.0]]])
    >>> many = np.repeat(matrix, 2000, axis=0)[:, None]
    >>> theta, sigma2 = draw_parameters(prior, many, np.array(100.0), np.random.default_rng(1))
    >>> round(float(theta.mean()), 2), round(float(sigma2.mean()), 2)  # 50 / 100; (1 + 5 / 2) / (2 + 50 - 1)
    (0.5, 0.07)

    Explained in :doc:`/book/regression/private-least-squares`.
    """
    q = matrix.shape[-1] - 1
    gram, cross, square = matrix[..., :q, :q], matrix[..., :q, q], matrix[..., q, q]
    precision = gram + prior.precision
    root = cholesky(precision)
    upper = np.swapaxes(root, -1, -2)
    target = cross + times(prior.precision, prior.mean)
    centre = np.linalg.solve(upper, np.linalg.solve(root, target[..., None]))[..., 0]
    # The least penalised sum of squares, as a sum of two squares: the difference y'y - … can cancel to below zero.
    residual = square - 2 * (centre * cross).sum(axis=-1) + (centre * times(gram, centre)).sum(axis=-1)
    away = centre - prior.mean
    penalty = (away * times(prior.precision, away)).sum(axis=-1)
    rate = prior.rate + (np.maximum(residual, 0.0) + penalty) / 2
    shape = np.broadcast_to(prior.shape + n / 2, rate.shape)
    # A gamma of tiny shape can underflow to zero, and the variance would be infinite.
    sigma2 = np.minimum(rate / np.maximum(rng.standard_gamma(shape), 1e-300), 1e150)
    z = rng.standard_normal(centre.shape) * np.sqrt(sigma2)[..., None]
    return centre + spread * np.linalg.solve(upper, z[..., None])[..., 0], sigma2


def draw_covariate_parameters(
    covariates: CovariatePrior, sums: Array, n: Array, layout: Layout, rng: np.random.Generator
) -> tuple[Array, Array]:
    """Draw the covariates' mean and covariance given exact sums: the conjugate posterior, for a batch.

    Parameters
    ----------
    covariates : CovariatePrior
        In coordinates.
    sums : array (..., release, k)
        With the covariates' own sums among them: the layout has an intercept.
    n : array (..., release)
        Numbers of records.
    layout : Layout
        Of the sums.
    rng : numpy.random.Generator
        The source of randomness.

    Returns
    -------
    mean_x : array (..., release, d)
    cov_x : array (..., release, d, d)

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook.regression.problem import CovariatePrior, Layout
    >>> covariates = CovariatePrior(np.zeros((1, 1)), np.ones(1), np.ones((1, 1, 1)), np.array([3.0]))
    >>> sums = np.array([[200.0, 0.0, 1000.0, 0.0, 1.0]])  # of x, y, x², xy, y² over 1000 records
    >>> n, rng = np.full(1, 1000.0), np.random.default_rng(1)
    >>> mean_x, cov_x = draw_covariate_parameters(covariates, sums, n, Layout(1, True), rng)
    >>> bool(abs(mean_x[0, 0] - 0.2) < 0.1), bool(abs(cov_x[0, 0, 0] - 0.96) < 0.1)
    (True, True)

    Explained in :doc:`/book/regression/gibbs-samplers`.
    """
    d = layout.d
    matrix = layout.matrix(sums, n)
    size = np.asarray(n, dtype=np.float64)
    total = matrix[..., 0, 1 : d + 1]
    mean = total / size[..., None]
    scatter = matrix[..., 1 : d + 1, 1 : d + 1] - total[..., :, None] * mean[..., None, :]
    strength = covariates.strength + size
    away = mean - covariates.mean
    pull = (covariates.strength * size / strength)[..., None, None]
    scale = covariates.scale + scatter + pull * away[..., :, None] * away[..., None, :]
    centre = (covariates.strength[..., None] * covariates.mean + total) / strength[..., None]
    # Scatter is positive semidefinite up to rounding; the prior's scale makes the sum definite.
    scale = (scale + np.swapaxes(scale, -1, -2)) / 2
    return draw_normal_inverse_wishart(centre, strength, scale, covariates.dof + size, rng)


def prior_moments(covariates: CovariatePrior, layout: Layout) -> tuple[Array, Array]:
    """Return the regressors' second moments and the covariance of their products under the covariates' prior alone.

    Under the prior x is Student-t with dof - d + 1 degrees of freedom, so that its fourth moments exist for
    dof > d + 3 only.

    Parameters
    ----------
    covariates : CovariatePrior
        In coordinates.
    layout : Layout
        With or without an intercept.

    Returns
    -------
    second : array (release, q, q)
    xi : array (release, j, j)
        As :func:`~dpbook.regression.moments.from_fourth_moments` takes it.

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook.regression.problem import CovariatePrior, Layout
    >>> covariates = CovariatePrior(np.zeros((1, 1)), np.ones(1), np.ones((1, 1, 1)), np.array([50.0]))
    >>> second, xi = prior_moments(covariates, Layout(1, True))
    >>> print(second[0, 1, 1].round(4), xi[0, 1, 1].round(5))  # variance 2 / 48; Var(x²) = (3 · 48/46 - 1) (2 / 48)²
    0.0417 0.0037

    Explained in :doc:`/book/regression/gibbs-samplers`.
    """
    d, q, first = layout.d, layout.regressors, int(layout.intercept)
    freedom = covariates.dof - d + 1
    if (freedom <= 4).any():
        raise ValueError(
            f"covariates must have dof > d + 3 = {d + 3} for gibbs-prior, whose fourth moments do not exist otherwise; "
            f"got {float(covariates.dof.min()):g}"
        )
    releases = len(covariates.dof)
    factor = (covariates.strength + 1) / covariates.strength / (freedom - 2)
    m, v = np.zeros((releases, q)), np.zeros((releases, q, q))
    m[:, :first] = 1.0
    m[:, first:], v[:, first:, first:] = covariates.mean, covariates.scale * factor[:, None, None]
    second = v + m[:, :, None] * m[:, None, :]
    i, j = layout.rows[layout.of_regressors], layout.columns[layout.of_regressors]
    heavy = ((freedom - 2) / (freedom - 4))[:, None, None]  # E[g²] / E[g]² of the t's mixing variance g
    pairs = v[:, i[:, None], i] * v[:, j[:, None], j] + v[:, i[:, None], j] * v[:, j[:, None], i]
    own = v[:, i, j][:, :, None] * v[:, i, j][:, None, :]
    # Cov(w_i w_j, w_k w_l) of w = m + c: heavy times the pairings of cccc, less v_ij v_kl, plus the four m m c c terms.
    at_i, at_j = m[:, i], m[:, j]
    mixed = (
        at_i[:, :, None] * at_i[:, None, :] * v[:, j[:, None], j]
        + at_i[:, :, None] * at_j[:, None, :] * v[:, j[:, None], i]
        + at_j[:, :, None] * at_i[:, None, :] * v[:, i[:, None], j]
        + at_j[:, :, None] * at_j[:, None, :] * v[:, i[:, None], i]
    )
    return second, heavy * (pairs + own) - own + mixed


# ---------------------------------------------------------------------------------------------------------------------
# One sweep


def _plan(problem: Problem, kind: str, account: bool, variant: Variant) -> _Plan:
    layout = problem.layout
    everything = np.arange(layout.size)
    if kind == "gibbs-update":
        latent = Layout(layout.d, True)
        shift = 1 - int(layout.intercept)
        observed = latent.position[layout.rows + shift, layout.columns + shift]
        return _Plan(problem, latent, observed, kind, False, variant, np.empty(0), np.empty(0))
    if kind == "gibbs-prior":
        second, xi = prior_moments(problem.covariates, layout)
    elif account:
        second, xi = _wide_moments(problem)
    else:
        second, xi = _noisy_moments(problem)
    return _Plan(problem, layout, everything, kind, account and kind == "gibbs-noisy", variant, second, xi)


def _noisy_moments(problem: Problem) -> tuple[Array, Array]:
    """Return the released moments of the regressors, moved to the nearest possible ones."""
    if problem.moments is None:
        raise ValueError("release must hold moments for gibbs-noisy: make it with release(..., moments=True)")
    layout, n = problem.layout, problem.n[:, None]
    valid = nearest_valid(problem.noisy, problem.n, layout)
    second = layout.matrix(valid / n, 1.0)[:, : layout.regressors, : layout.regressors]
    xi = product_cov(np.concatenate([np.ones_like(n), valid / n, problem.moments / n], axis=1), layout)
    values, vectors = np.linalg.eigh((xi + np.swapaxes(xi, -1, -2)) / 2)
    # Products of numbers in [-1, 1] have a variance of at most 1 each, so no eigenvalue exceeds their number.
    values = np.clip(values, 1e-6, values.shape[-1])
    return second, (vectors * values[:, None, :]) @ np.swapaxes(vectors, -1, -2)


def _wide_moments(problem: Problem) -> tuple[Array, Array]:
    """Return the moments of a prior of the regressors' sums as wide as records in [-1, 1] allow: sd n, mean n/3."""
    layout = problem.layout
    second = np.diag(np.where(np.arange(layout.regressors) < int(layout.intercept), 1.0, 1 / 3))
    unit = np.eye(int(layout.of_regressors.sum()))
    return np.broadcast_to(second, (problem.releases, *second.shape)), problem.n[:, None, None] * unit


def _start(plan: _Plan, chains: int, rng: np.random.Generator) -> State:
    """Start every chain from the release with some more noise, made valid, and from parameters that lie apart."""
    problem, latent = plan.problem, plan.latent
    batch = (chains, problem.releases)
    n = np.broadcast_to(problem.n, batch)
    scale = problem.scale[:, None]
    seen = (*batch, len(plan.observed))
    more = rng.laplace(size=seen) if problem.laplace else rng.standard_normal(seen)
    sums = np.zeros((*batch, latent.size))
    sums[..., plan.observed] = problem.noisy + scale * more
    if not problem.layout.intercept and latent.intercept:  # the covariates' own sums are not seen: begin at the prior
        sums[..., latent.position[0, 1 : latent.d + 1]] = problem.covariates.mean * problem.n[:, None]
    sums = nearest_valid(sums, n, latent)
    if plan.variant.start == "prior":
        width = problem.layout.width
        theta, sigma2 = draw_parameters(problem.prior, np.zeros((*batch, width, width)), np.zeros(batch), rng)
    else:
        theta, sigma2 = draw_parameters(problem.prior, _regression_matrix(plan, sums, n), n, rng, spread=2.0)
    mean_x, cov_x = _draw_covariates(plan, sums, n, rng)
    variance = 2 * scale**2 * rng.standard_exponential(seen) if problem.laplace else np.broadcast_to(scale**2, seen)
    return State(theta, sigma2, sums, n, np.maximum(variance, 1e-300), mean_x, cov_x)


def _sweep(rng: np.random.Generator, state: State, *, plan: _Plan) -> tuple[State, None]:
    problem = plan.problem
    n = np.broadcast_to(plan.n, state.sigma2.shape)
    mean, cov = _law_of_sums(state, plan)
    sums, count = _draw_sums(n[..., None] * mean, n[..., None, None] * cov, state, plan, n, rng)
    theta, sigma2 = draw_parameters(problem.prior, _regression_matrix(plan, sums, count), n, rng)
    mean_x, cov_x = _draw_covariates(plan, sums, count, rng)
    variance = state.variance
    if problem.laplace:
        variance = draw_noise_variance(problem.noisy - sums[..., plan.observed], problem.scale[:, None], rng)
    return State(theta, sigma2, sums, count, variance, mean_x, cov_x), None


def _law_of_sums(state: State, plan: _Plan) -> tuple[Array, Array]:
    """Return mean and covariance of one record's statistics given the parameters."""
    layout = plan.latent
    theta, sigma2 = state.theta, state.sigma2
    if plan.kind == "gibbs-update":
        if not plan.problem.layout.intercept:
            theta = np.concatenate([np.zeros((*theta.shape[:-1], 1)), theta], axis=-1)
        m, second = record_moments(theta, sigma2, state.mean_x, state.cov_x, layout)
        mean, cov = from_normal(m, second, layout)
        second = second[..., :-1, :-1]
    else:
        second, xi = plan.second, plan.xi
        mean, cov = from_fourth_moments(theta, sigma2, second, xi, layout)
        if plan.account:  # the law above is the regressors' wide prior; the error's share follows their drawn sums
            q = layout.regressors
            second = layout.matrix(state.sums / plan.n[:, None], 1.0)[..., :q, :q]
            _, cov = from_fourth_moments(theta, sigma2, second, xi, layout)
    if plan.variant.covariance == "printed":
        cov = _as_printed(cov, sigma2, second, layout)
    return mean, cov


def _as_printed(cov: Array, sigma2: Array, second: Array, layout: Layout) -> Array:
    """Put xi_(ij,kl) where xi_(ik,jl) belongs: ``sum theta_k theta_l xi_(ij,kl)`` is Cov(w_i w_j, y²)."""
    q = layout.regressors
    with_y = layout.position[:q, q]
    wrong = cov[..., layout.position[:q, :q], layout.size - 1]
    if layout.intercept:
        wrong[..., 0, 0] = 0.0
    cov = cov.copy()
    cov[..., with_y[:, None], with_y] = sigma2[..., None, None] * second + wrong
    return cov


def _regression_matrix(plan: _Plan, sums: Array, n: Array) -> Array:
    """Return ``sum (w, y)(w, y)'`` of the regression's own regressors."""
    matrix = plan.latent.matrix(sums, n)
    first = plan.latent.width - plan.problem.layout.width
    return matrix[..., first:, first:]


def _draw_covariates(plan: _Plan, sums: Array, n: Array, rng: np.random.Generator) -> tuple[Array, Array]:
    d, batch = plan.latent.d, sums.shape[:-1]
    if plan.kind != "gibbs-update":
        return np.zeros((*batch, d)), np.zeros((*batch, d, d))
    return draw_covariate_parameters(plan.problem.covariates, sums, n, plan.latent, rng)


def _draw_sums(
    mean: Array, cov: Array, state: State, plan: _Plan, n: Array, rng: np.random.Generator
) -> tuple[Array, Array]:
    """Draw the latent sums given their normal law and the release, in Kalman form: no inverse of their covariance.

    Draw s* from the law and y* = s*[observed] + noise, then s = s* + C_o' (C_oo + D)^-1 (y - y*). Sums that no data
    could have are drawn again, and projected when that does not help. Also return n, which a printed variant changes.
    """
    layout, seen = plan.latent, plan.observed
    batch = mean.shape[:-1]
    flat = int(np.prod(batch))
    k, o = layout.size, len(seen)
    mean, cov, count = mean.reshape(flat, k), cov.reshape(flat, k, k), n.reshape(flat)
    noise = np.broadcast_to(state.variance, (*batch, o)).reshape(flat, o)
    noisy = np.broadcast_to(plan.problem.noisy, (*batch, o)).reshape(flat, o)
    cov = cov * (1 + _JITTER * np.eye(k)) + 1e-250 * np.eye(k)
    root, cov = _root(cov)
    across = cov[:, seen, :]
    noise = np.maximum(noise, 1e-12 * np.diagonal(across[:, :, seen], axis1=-2, axis2=-1))
    gain = np.linalg.solve(across[:, :, seen] + noise[:, None, :] * np.eye(o), across)  # transposed, (…, o, k)

    def draw(which: Any) -> Array:
        some = mean[which]
        s = some + times(root[which], rng.standard_normal(some.shape))
        gap = noisy[which] - s[:, seen] - np.sqrt(noise[which]) * rng.standard_normal((len(some), o))
        return np.asarray(s + (gap[:, None, :] @ gain[which])[:, 0, :])

    sums = draw(slice(None))
    wrong = np.flatnonzero(~is_valid(sums, count, layout))
    for _ in range(_TRIES if plan.variant.invalid == "reject" else 0):
        if not wrong.size:
            break
        sums[wrong] = draw(wrong)
        wrong = wrong[~is_valid(sums[wrong], count[wrong], layout)]
    if wrong.size and plan.variant.invalid == "clip":
        count = count.copy()
        sums[wrong], count[wrong] = _clip_matrix(sums[wrong], count[wrong], layout)
    elif wrong.size:
        sums[wrong] = nearest_valid(sums[wrong], count[wrong], layout)
    return sums.reshape(*batch, k), count.reshape(batch)


def _clip_matrix(sums: Array, n: Array, layout: Layout) -> tuple[Array, Array]:
    """Clip the eigenvalues of the whole matrix, which changes n as well: for experiments only."""
    values, vectors = np.linalg.eigh(layout.matrix(sums, n))
    matrix = (vectors * np.maximum(values, 0.0)[..., None, :]) @ np.swapaxes(vectors, -1, -2)
    return layout.vector(matrix), matrix[..., 0, 0] if layout.intercept else n
