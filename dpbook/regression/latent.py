"""Regression with a latent record for everyone, clipped as the release clipped it: exact at any n.

Covariates are normal, the response normal given them. Given the records the parameters have conjugate posteriors under
conjugate priors; under beliefs free of scale such a draw is a proposal, accepted by the ratio of the priors.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dpbook import latent_records
from dpbook._arrays import Array
from dpbook.moments import Nodes, NoisySums
from dpbook.regression.clipped_records import ClippedRecords
from dpbook.regression.conjugate import draw_covariate_parameters, draw_parameters
from dpbook.regression.layout import Layout
from dpbook.regression.scale_free import Places, first_guess
from dpbook.regression.task import CovariatePrior, Draws, ParameterPrior, Task

__all__: list[str] = []

_BURN_IN, _SWEEPS = 1000, 4000  # in all a chain: enough for 20 chains at n of a few dozen


def sample(
    task: Task,
    *,
    per_chain: int,
    chains: int,
    rng: np.random.Generator,
    progress: bool = False,
    burn_in: int | None = None,
    thin: int | None = None,
) -> Draws:
    """Draw from exact posteriors, the releases of one n together."""
    theta = np.empty((task.releases, chains, per_chain, task.layout.regressors))
    sigma2 = np.empty((task.releases, chains, per_chain))
    thin = max(1, _SWEEPS // per_chain) if thin is None else thin
    for n in np.unique(task.n):
        among = task.n == n
        part = task.part(among)
        low, high = (np.tile(each, (chains, 1))[:, None] for each in part.box)
        model = LatentRegression(part.layout, low, high, None if part.prior is None else part.beliefs(chains))
        start = model.start(part.sums.repeated(chains))
        kept, _ = latent_records.sample(
            model,
            part.sums,
            start,
            per_chain=per_chain,
            chains=chains,
            burn_in=_BURN_IN if burn_in is None else burn_in,
            thin=thin,
            rng=rng,
            progress=progress,
        )
        theta[among], sigma2[among] = (np.moveaxis(kept[name], 2, 0) for name in ("theta", "sigma2"))
    return Draws(theta, sigma2)


class Parameters(NamedTuple):
    """Of a batch: coefficients, error variance, and mean and covariance of the covariates, in coordinates."""

    theta: Array  # (B, q)
    sigma2: Array  # (B,)
    mean_x: Array  # (B, d)
    cov_x: Array  # (B, d, d)


class LatentRegression:
    """A record of a regression: covariates and response, the response last.

    ``low`` and ``high`` are the bounds in coordinates, (B, 1, d + 1); ``priors`` the conjugate beliefs of each member
    of the batch, without which they are free of scale.
    """

    def __init__(
        self, layout: Layout, low: Array, high: Array, priors: tuple[ParameterPrior, CovariatePrior] | None = None
    ) -> None:
        self._layout, self._low, self._high, self._priors = layout, low, high, priors
        self._whole = Layout(layout.d, True)  # the covariates' own means are needed without an intercept too
        # Only its prior is asked, which needs no sample of covariates.
        self._law = ClippedRecords(layout, low[:, 0], high[:, 0], Nodes(np.zeros((1, layout.d)), np.ones(1)))

    def propose(self, parameters: Parameters, n: int, rng: np.random.Generator) -> Array:
        """Return records drawn from the model, before clipping."""
        d = self._layout.d
        z = rng.standard_normal((len(parameters.sigma2), n, d + 1))
        x = parameters.mean_x[:, None] + z[..., :d] @ np.linalg.cholesky(parameters.cov_x).swapaxes(1, 2)
        y = self._line(parameters, x) + np.sqrt(parameters.sigma2)[:, None] * z[..., d]
        return np.concatenate([x, y[..., None]], axis=-1)

    def statistics(self, records: Array) -> Array:
        """Return the products of the clipped columns that the release sums."""
        clipped = np.clip(records, self._low, self._high)
        ones = np.ones((*records.shape[:2], 1))
        u = np.concatenate([ones, clipped], axis=-1) if self._layout.intercept else clipped
        products = np.empty((*records.shape[:2], self._layout.size))
        for k, (i, j) in enumerate(zip(self._layout.rows, self._layout.columns, strict=True)):
            np.multiply(u[..., i], u[..., j], out=products[..., k])  # several times faster than by arrays of indices
        return products

    def update(self, parameters: Parameters, records: Array, rng: np.random.Generator) -> Parameters:
        """Return parameters drawn given the records; free of scale, proposed and accepted or kept."""
        if self._priors is not None:
            return self._drawn(records, *self._priors, rng)
        reference = self._reference(len(records))
        proposed = self._drawn(records, *reference, rng)
        gain = self._excess(proposed, reference) - self._excess(parameters, reference)
        taken = np.log(rng.random(len(records))) < np.where(np.isnan(gain), -np.inf, gain)
        return Parameters(
            *(
                np.where(np.reshape(taken, (-1, *[1] * (old.ndim - 1))), new, old)
                for new, old in zip(proposed, parameters, strict=True)
            )
        )

    def move(self, parameters: Parameters, records: Array, rng: np.random.Generator) -> tuple[Parameters, Array, Array]:
        """Propose a step of one coordinate of the position, of a random length; records keep their innovations."""
        here = self._law.position_of(*parameters)
        reach = 10.0 ** rng.uniform(-2.0, 0.5, size=here.shape[1]) * rng.standard_normal(here.shape[1])
        there = here + reach * (np.arange(len(here))[:, None] == rng.integers(len(here), size=here.shape[1]))
        there = np.clip(there, -50.0, 50.0)
        proposed = self._parameters(there)
        d = self._layout.d
        shift = records[..., :d] - parameters.mean_x[:, None]
        back = np.linalg.inv(np.linalg.cholesky(parameters.cov_x))
        x = proposed.mean_x[:, None] + shift @ (np.linalg.cholesky(proposed.cov_x) @ back).swapaxes(1, 2)
        errors = records[..., d] - self._line(parameters, records[..., :d])
        y = self._line(proposed, x) + np.sqrt(proposed.sigma2 / parameters.sigma2)[:, None] * errors
        ratio = self._law_with(self._priors, there) - self._law_with(self._priors, here)
        return proposed, np.concatenate([x, y[..., None]], axis=-1), ratio

    def _law_with(self, priors: tuple[ParameterPrior, CovariatePrior] | None, position: Array) -> Array:
        """Return the log prior density of positions, conjugate or free of scale."""
        found = self._law.log_prior(position) if priors is None else self._law.conjugate_prior(position, *priors)
        return found[0]

    def _parameters(self, position: Array) -> Parameters:
        theta, sigma2 = self._law.parameters(position)
        root = self._law.covariate_root(position)
        return Parameters(theta, sigma2, position[self._law.places.centre].T, root @ root.swapaxes(1, 2))

    def _line(self, parameters: Parameters, x: Array) -> Array:
        first = int(self._layout.intercept)
        line = (x @ parameters.theta[:, first:, None])[..., 0]
        return np.asarray(line + parameters.theta[:, :1] if first else line)

    def start(self, sums: NoisySums) -> Parameters:
        """Return parameters near what the noisy sums say."""
        places = Places(self._layout, centred=True)
        height, slopes, log_error, centre, sd = first_guess(places, sums)
        error = np.exp(log_error)
        coefficients = (error * slopes / sd).T
        if self._layout.intercept:
            height = height - (coefficients * centre.T).sum(axis=1)
            coefficients = np.concatenate([height[:, None], coefficients], axis=1)
        return Parameters(coefficients, error**2, centre.T, (sd.T**2)[:, :, None] * np.eye(self._layout.d))

    def _drawn(
        self, records: Array, prior: ParameterPrior, covariates: CovariatePrior, rng: np.random.Generator
    ) -> Parameters:
        """Draw from the conjugate posterior given the records."""
        u = np.concatenate([np.ones((*records.shape[:2], 1)), records], axis=-1)
        matrix = u.swapaxes(1, 2) @ u
        n = np.full(len(records), float(records.shape[1]))
        own = matrix if self._layout.intercept else matrix[:, 1:, 1:]
        theta, sigma2 = draw_parameters(prior, own, n, rng)
        mean_x, cov_x = draw_covariate_parameters(covariates, self._whole.vector(matrix), n, self._whole, rng)
        return Parameters(theta, sigma2, mean_x, cov_x)

    def _reference(self, batch: int) -> tuple[ParameterPrior, CovariatePrior]:
        """Return weak conjugate priors under which parameters are proposed."""
        d, q = self._layout.d, self._layout.regressors
        ones = np.ones(batch)
        prior = ParameterPrior(np.zeros((batch, q)), np.tile(1e-2 * np.eye(q), (batch, 1, 1)), 0.5 * ones, 5e-3 * ones)
        scale = np.tile(0.02 * np.eye(d), (batch, 1, 1))
        return prior, CovariatePrior(np.zeros((batch, d)), 0.1 * ones, scale, (d + 1.0) * ones)

    def _excess(self, parameters: Parameters, reference: tuple[ParameterPrior, CovariatePrior]) -> Array:
        """Return the log density of the scale-free beliefs less that of the reference, in any coordinates."""
        position = self._law.position_of(parameters.theta, parameters.sigma2, parameters.mean_x, parameters.cov_x)
        free, _ = self._law.log_prior(position)
        conjugate, _ = self._law.conjugate_prior(position, *reference)
        return np.asarray(free - conjugate)
