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
from dpbook.latent_noise import covariance_root, draw_noise_variance
from dpbook.regression.conjugate import draw_covariate_parameters, draw_parameters
from dpbook.regression.layout import Layout
from dpbook.regression.moments import (
    from_fourth_moments,
    from_normal,
    is_valid,
    nearest_valid,
    product_cov,
    record_moments,
)
from dpbook.regression.task import CovariatePrior, Draws, Task
from dpbook.sampling import run

__all__: list[str] = []

KINDS = ("gibbs-noisy", "gibbs-prior", "gibbs-update")
_TRIES = 20  # draws of sums that no data could have are drawn again this often, then projected
_SWEEPS = 4000  # after the burn-in, unless the caller says otherwise
_JITTER = 1e-12  # of each variance: keeps a nearly singular covariance within reach of Cholesky


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

    task: Task
    latent: Layout  # of the sums that are drawn: with the covariates' own sums where their mean is inferred
    observed: NDArray[np.int64]  # which of them the release shows
    kind: str
    account: bool
    printed: bool  # whether the covariance is the printed one
    invalid: str  # what becomes of sums that no data could have
    second: Array  # of the regressors, where fixed: (release, q, q)
    xi: Array  # covariance of their products, (release, j, j)

    @property
    def n(self) -> Array:
        return self.task.n


def sample(
    task: Task,
    *,
    kind: str,
    per_chain: int,
    chains: int,
    rng: np.random.Generator,
    burn_in: int = 1000,
    thin: int | None = None,
    account_for_moments: bool = False,
    covariance: str = "corrected",
    invalid: str = "reject",
    start: str = "release",
    progress: bool = False,
) -> Draws:
    """Run one of the three Gibbs samplers for all releases and chains together.

    ``account_for_moments`` (of "gibbs-noisy") treats the regressors' sums as unknown, under a prior as wide as the
    bounds, with the noise as their only evidence, where the source takes the noisy moments for the truth. The third
    and fourth moments then drop out: given the regressors' sums, those of the response do not need them.
    "printed" for ``covariance`` puts ``xi_(ij,kl)`` where ``Cov(x_i y, x_j y)`` needs ``xi_(ik,jl)``. ``invalid`` says
    what becomes of drawn sums that no data could have: drawn again (then projected), their centred scatter projected,
    or the eigenvalues of their whole matrix clipped, n included. ``start`` says where chains begin.
    """
    plan = _plan(task, kind, account_for_moments, covariance == "printed", invalid)
    kept = run(
        partial(_sweep, plan=plan),
        _start(plan, chains, start == "prior", rng),
        per_chain=per_chain,
        burn_in=burn_in,
        thin=max(1, _SWEEPS // per_chain) if thin is None else thin,
        keep=["theta", "sigma2"],
        rng=rng,
        progress=progress,
        label=kind,
    )
    return Draws(*(np.moveaxis(kept[name], 2, 0) for name in ("theta", "sigma2")))


def prior_moments(covariates: CovariatePrior, layout: Layout) -> tuple[Array, Array]:
    """Return the regressors' second moments and the covariance of their products under the covariates' prior alone.

    Under the prior x is Student-t with dof - d + 1 degrees of freedom, so that its fourth moments exist for
    dof > d + 3 only.
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


def _plan(task: Task, kind: str, account: bool, printed: bool, invalid: str) -> _Plan:
    layout = task.layout
    everything = np.arange(layout.size)
    if kind == "gibbs-update":
        latent = Layout(layout.d, True)
        shift = 1 - int(layout.intercept)
        observed = latent.position[layout.rows + shift, layout.columns + shift]
        return _Plan(task, latent, observed, kind, False, printed, invalid, np.empty(0), np.empty(0))
    if kind == "gibbs-prior":
        second, xi = prior_moments(task.covariates, layout)
    elif account:
        second, xi = _wide_moments(task)
    else:
        second, xi = _noisy_moments(task)
    return _Plan(task, layout, everything, kind, account and kind == "gibbs-noisy", printed, invalid, second, xi)


def _noisy_moments(task: Task) -> tuple[Array, Array]:
    """Return the released moments of the regressors, moved to the nearest possible ones."""
    if task.moments is None:
        raise ValueError("release must hold moments for gibbs-noisy: make it with release(..., moments=True)")
    layout, n = task.layout, task.n[:, None]
    valid = nearest_valid(task.noisy, task.n, layout)
    second = layout.matrix(valid / n, 1.0)[:, : layout.regressors, : layout.regressors]
    xi = product_cov(np.concatenate([np.ones_like(n), valid / n, task.moments / n], axis=1), layout)
    values, vectors = np.linalg.eigh((xi + np.swapaxes(xi, -1, -2)) / 2)
    # Products of numbers in [-1, 1] have a variance of at most 1 each, so no eigenvalue exceeds their number.
    values = np.clip(values, 1e-6, values.shape[-1])
    return second, (vectors * values[:, None, :]) @ np.swapaxes(vectors, -1, -2)


def _wide_moments(task: Task) -> tuple[Array, Array]:
    """Return the moments of a prior of the regressors' sums as wide as records in [-1, 1] allow: sd n, mean n/3."""
    layout = task.layout
    second = np.diag(np.where(np.arange(layout.regressors) < int(layout.intercept), 1.0, 1 / 3))
    unit = np.eye(int(layout.of_regressors.sum()))
    return np.broadcast_to(second, (task.releases, *second.shape)), task.n[:, None, None] * unit


def _start(plan: _Plan, chains: int, from_prior: bool, rng: np.random.Generator) -> State:
    """Start every chain from the release with some more noise, made valid, and from parameters that lie apart."""
    task, latent = plan.task, plan.latent
    batch = (chains, task.releases)
    n = np.broadcast_to(task.n, batch)
    scale = task.scale[:, None]
    seen = (*batch, len(plan.observed))
    more = rng.laplace(size=seen) if task.laplace else rng.standard_normal(seen)
    sums = np.zeros((*batch, latent.size))
    sums[..., plan.observed] = task.noisy + scale * more
    if not task.layout.intercept and latent.intercept:  # the covariates' own sums are not seen: begin at the prior
        sums[..., latent.position[0, 1 : latent.d + 1]] = task.covariates.mean * task.n[:, None]
    sums = nearest_valid(sums, n, latent)
    if from_prior:
        width = task.layout.width
        theta, sigma2 = draw_parameters(task.stated(), np.zeros((*batch, width, width)), np.zeros(batch), rng)
    else:
        theta, sigma2 = draw_parameters(task.stated(), _regression_matrix(plan, sums, n), n, rng, spread=2.0)
    mean_x, cov_x = _draw_covariates(plan, sums, n, rng)
    variance = 2 * scale**2 * rng.standard_exponential(seen) if task.laplace else np.broadcast_to(scale**2, seen)
    return State(theta, sigma2, sums, n, np.maximum(variance, 1e-300), mean_x, cov_x)


def _sweep(rng: np.random.Generator, state: State, *, plan: _Plan) -> tuple[State, None]:
    task = plan.task
    n = np.broadcast_to(plan.n, state.sigma2.shape)
    mean, cov = _law_of_sums(state, plan)
    sums, count = _draw_sums(n[..., None] * mean, n[..., None, None] * cov, state, plan, n, rng)
    theta, sigma2 = draw_parameters(task.stated(), _regression_matrix(plan, sums, count), n, rng)
    mean_x, cov_x = _draw_covariates(plan, sums, count, rng)
    variance = state.variance
    if task.laplace:
        variance = draw_noise_variance(task.noisy - sums[..., plan.observed], task.scale[:, None], rng)
    return State(theta, sigma2, sums, count, variance, mean_x, cov_x), None


def _law_of_sums(state: State, plan: _Plan) -> tuple[Array, Array]:
    """Return mean and covariance of one record's statistics given the parameters."""
    layout = plan.latent
    theta, sigma2 = state.theta, state.sigma2
    if plan.kind == "gibbs-update":
        if not plan.task.layout.intercept:
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
    if plan.printed:
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
    first = plan.latent.width - plan.task.layout.width
    return matrix[..., first:, first:]


def _draw_covariates(plan: _Plan, sums: Array, n: Array, rng: np.random.Generator) -> tuple[Array, Array]:
    d, batch = plan.latent.d, sums.shape[:-1]
    if plan.kind != "gibbs-update":
        return np.zeros((*batch, d)), np.zeros((*batch, d, d))
    return draw_covariate_parameters(plan.task.covariates, sums, n, plan.latent, rng)


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
    noisy = np.broadcast_to(plan.task.noisy, (*batch, o)).reshape(flat, o)
    cov = cov * (1 + _JITTER * np.eye(k)) + 1e-250 * np.eye(k)
    root, cov = covariance_root(cov)
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
    for _ in range(_TRIES if plan.invalid == "reject" else 0):
        if not wrong.size:
            break
        sums[wrong] = draw(wrong)
        wrong = wrong[~is_valid(sums[wrong], count[wrong], layout)]
    if wrong.size and plan.invalid == "clip":
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
