"""Private Bayesian regression as a scikit-learn estimator (extra ``sklearn``).

``fit`` is the curator's side: it reads data and releases noisy sums. Everything after it (``predict`` and the fitted
attributes) comes from the release alone. Chapter 4 explains the method.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from dpbook._arrays import Array
from dpbook._late import pd
from dpbook._validation import column_labels, flag, integer, method_options, privacy_loss, real_array
from dpbook.budget import PrivacyBudget
from dpbook.priors import NormalInverseGamma, NormalInverseWishart
from dpbook.regression.cell_inference import check_by_cell
from dpbook.regression.coordinates import Coordinates, column_bounds
from dpbook.regression.inference import OPTIONS, check_before_release, infer
from dpbook.regression.planning import designed
from dpbook.regression.releases import release
from dpbook.regression.task import SCALE_FREE
from dpbook.regression.weak_priors import weak_prior
from dpbook.schema import Schema
from dpbook.sensitivity import check_share

try:
    from sklearn.base import BaseEstimator, RegressorMixin
    from sklearn.utils.validation import check_is_fitted, validate_data
except ImportError:

    class RegressorMixin:  # type: ignore[no-redef]
        """Stands where scikit-learn is not installed."""

    class BaseEstimator:  # type: ignore[no-redef]
        """Stands where scikit-learn is not installed, and says so."""

        def __new__(cls, *_: Any, **__: Any) -> Any:
            """Raise."""
            raise ImportError(f'{cls.__name__} needs scikit-learn: pip install "dpbook[sklearn]"')


__all__ = ["PrivateBayesianRegression"]


class PrivateBayesianRegression(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """Bayesian linear regression fitted under differential privacy.

    ``fit`` is epsilon-DP (or (epsilon, delta)-DP with Gaussian noise) for replace-one neighbours, n public; a record
    is a row of X with its y. Every call of ``fit`` is a release of its own and costs epsilon again: cross-validation
    with k folds costs k - 1 times as much, and a refit once more. Records are clipped to the bounds, infinite ones too.
    A missing value or text raises an error, which is not private. Everything else is checked before anything is spent.

    Parameters
    ----------
    epsilon : float, default 1.0
        The privacy loss of one ``fit``.
    x_bounds : (low, high), list of (low, high) or mapping of str to (low, high)
        Public bounds of the covariates: one pair for all, a list with a tuple for each, or a mapping from the names of
        X's columns. They come from the subject, never from the data; ``fit`` raises without them.
    y_bounds : (low, high)
        Public bounds of the response; ``fit`` raises without them.
    schema : Schema, optional
        In place of ``x_bounds``: the columns of tables X, with labels, numbers and missing values as in
        :func:`~dpbook.regression.release`. A prior or another method than "fixed-design" does not go with it.
    prior : NormalInverseGamma, optional
        Of the coefficients, the intercept first, and the error variance; by default beliefs that keep their meaning
        when units change or bounds are doubled, as in :func:`~dpbook.regression.infer` (for methods that need a prior,
        a weak conjugate one from the bounds).
    covariates : NormalInverseWishart, optional
        Prior of the covariates' mean and covariance, beside a prior of your own; by default a weak one from the bounds.
    intercept : bool, default True
        Whether the regression has an intercept.
    mechanism : {"laplace", "gaussian"}
        The noise.
    delta : float, default 0.0
        0 for Laplace noise, greater than 0 for Gaussian noise.
    check : float, default 0.0
        The share of the privacy loss, such as 0.1, that counts of clipped records take, as in
        :func:`~dpbook.regression.release`.
    method : str, optional
        As in :func:`~dpbook.regression.infer`, which chooses one by default.
    draws : int, default 4000
        How many posterior draws in all.
    chains : int, optional
        How many chains they are arranged in: 20 by default.
    warm_up : int, optional
        Iterations of each chain before the first draw that is kept.
    random_state : None, int, numpy.random.Generator or numpy.random.RandomState
        None, the default, makes a real release. Anything else seeds the noise: for teaching and tests, since whoever
        knows the seed can subtract the noise.

    Attributes
    ----------
    release_ : Release
        What was released.
    posterior_ : RegressionPosterior
        Draws of ``theta`` and ``sigma2``.
    coef_ : array (n_features,)
        Posterior means of the slopes, or medians where tails are heavy: without a prior of your own.
    intercept_ : float
        That of the intercept, 0 without one.
    n_features_in_ : int
        Number of covariates; with a schema, of its columns beside the response.

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook.regression.estimator import PrivateBayesianRegression
    >>> rng = np.random.default_rng(1)
    >>> X = rng.uniform(0, 10, size=(2000, 1))
    >>> y = 1 + 2 * X[:, 0] + rng.normal(size=2000)
    >>> model = PrivateBayesianRegression(
    ...     epsilon=5.0, x_bounds=(0, 10), y_bounds=(-5, 30), draws=200, chains=4, random_state=1
    ... )
    >>> mean, sd = model.fit(X, y).predict([[5.0]], return_std=True)
    >>> bool(abs(mean[0] - 11) < 0.5), bool(0.5 < sd[0] < 2)
    (True, True)
    >>> low, high = model.predictive_interval([[5.0]], 0.9)[0]
    >>> bool(low < 11 < high)
    True

    Explained in :doc:`/book/regression/case-earnings`.
    """

    # scikit-learn reads an estimator's parameters off this signature, one by one: they cannot be gathered.
    def __init__(  # noqa: PLR0913
        self,
        epsilon: float = 1.0,
        x_bounds: Any = None,
        y_bounds: tuple[float, float] | None = None,
        *,
        schema: Schema | None = None,
        prior: NormalInverseGamma | None = None,
        covariates: NormalInverseWishart | None = None,
        intercept: bool = True,
        mechanism: str = "laplace",
        delta: float = 0.0,
        check: float = 0.0,
        method: str | None = None,
        draws: int = 4000,
        chains: int | None = None,
        warm_up: int | None = None,
        random_state: Any = None,
    ) -> None:
        self.epsilon = epsilon
        self.x_bounds = x_bounds
        self.y_bounds = y_bounds
        self.schema = schema
        self.prior = prior
        self.covariates = covariates
        self.intercept = intercept
        self.mechanism = mechanism
        self.delta = delta
        self.check = check
        self.method = method
        self.draws = draws
        self.chains = chains
        self.warm_up = warm_up
        self.random_state = random_state

    def fit(self, X: Any, y: Any, budget: PrivacyBudget | None = None) -> PrivateBayesianRegression:
        """Release noisy sums of the data, and infer the posterior from them.

        Parameters
        ----------
        X : array (n, d) or table
            The covariates.
        y : array (n,)
            The response.
        budget : PrivacyBudget, optional
            Charged before the noise is drawn. (It is no parameter of the estimator, because a copy of the estimator
            would then spend from a copy of the budget.)

        Returns
        -------
        PrivateBayesianRegression
            Itself.
        """
        if self.schema is not None:
            return self._fit_schema(X, y, budget)
        names = column_labels(X)
        X, y = validate_data(self, _clippable("X", X), _clippable("y", y), dtype=np.float64, y_numeric=True)
        names = names if hasattr(self, "feature_names_in_") else None
        if isinstance(self.x_bounds, Mapping) and names is None:
            raise ValueError("x_bounds can be a mapping only where the columns of X have names")
        inside = Coordinates(
            *column_bounds(self.x_bounds, self.y_bounds, X.shape[1], names), flag("intercept", self.intercept)
        )
        # A method of the source needs a prior; the others have beliefs of their own.
        needs_one = self.prior is None and self.method not in (None, *SCALE_FREE)
        prior = weak_prior(inside) if needs_one else self.prior
        privacy_loss(self.epsilon, self.delta, self.mechanism)
        check_share(self.check)
        rng = _generator(self.random_state)
        options: dict[str, Any] = {} if self.warm_up is None else {"warm_up": self.warm_up}
        analysis: dict[str, Any] = {"method": self.method, "draws": self.draws, "chains": self.chains}
        check_before_release(inside, prior, self.covariates, **analysis, mechanism=self.mechanism, options=options)
        self.release_ = release(
            X if names is None else pd.DataFrame(X, columns=names),
            y,
            x_bounds=self.x_bounds,
            y_bounds=self.y_bounds,
            epsilon=self.epsilon,
            intercept=self.intercept,
            moments=self.method == "gibbs-noisy",
            mechanism=self.mechanism,
            delta=self.delta,
            check=self.check,
            rng=rng,
            budget=budget,
        )
        self.posterior_ = infer(self.release_, prior, covariates=self.covariates, rng=rng, **analysis, **options)
        return self._keep()

    def _fit_schema(self, X: Any, y: Any, budget: PrivacyBudget | None) -> PrivateBayesianRegression:
        """Release noisy sums by cell, and infer the posterior from them; all arguments are checked first."""
        design = designed(self.schema, y, None, self.x_bounds, self.y_bounds)
        check_by_cell([], self.prior, self.covariates, self.method)
        integer("draws", self.draws, least=1)
        if self.chains is not None:
            integer("chains", self.chains, least=1)
        options: dict[str, Any] = {} if self.warm_up is None else {"warm_up": self.warm_up}
        method_options("fixed-design", options, OPTIONS)
        rng = _generator(self.random_state)
        noise: dict[str, Any] = {"epsilon": self.epsilon, "delta": self.delta, "mechanism": self.mechanism}
        settings: dict[str, Any] = {"schema": self.schema, "y_bounds": self.y_bounds, "intercept": self.intercept}
        settings["check"] = self.check
        self.release_ = release(X, y, **settings, **noise, rng=rng, budget=budget)
        self.posterior_ = infer(self.release_, draws=self.draws, chains=self.chains, rng=rng, **options)
        self.feature_names_in_ = np.array([name for (name,) in design.terms], dtype=object)
        self.n_features_in_ = len(design.terms)
        return self._keep()

    def _keep(self) -> PrivateBayesianRegression:
        """Set the coefficients."""
        theta = self.posterior_.centre
        self.coef_ = theta[int(self.intercept) :]
        self.intercept_ = float(theta[0]) if self.intercept else 0.0
        return self

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Return the posterior predictive mean at new covariates, and with it the standard deviation.

        Parameters
        ----------
        X : array (m, d)
            New covariates.
        return_std : bool, default False
            Whether to return the standard deviation of a new response too.

        Returns
        -------
        array (m,), or two of them
        """
        rows = self._checked(X)
        return self.posterior_.predict(rows, return_std=bool(return_std))

    def predictive_interval(self, X: Any, level: float = 0.95) -> Array:
        """Return central intervals for new responses.

        Parameters
        ----------
        X : array (m, d)
            New covariates.
        level : float, default 0.95
            The probability that an interval holds.

        Returns
        -------
        array (m, 2)
        """
        rows = self._checked(X)
        return np.asarray(self.posterior_.predictive_interval(rows, level))

    def _checked(self, X: Any) -> Any:
        """Return new covariates as an array, or say what is wrong with them or that nothing has been fitted."""
        check_is_fitted(self)
        if self.schema is not None:
            return X
        return np.asarray(validate_data(self, X, dtype=np.float64, reset=False))


def _clippable(name: str, data: Any) -> Any:
    """Return records as finite floats for scikit-learn's checks: what is infinite becomes the largest float.

    The bounds clip both alike, and scikit-learn's error would tell of one record. What is no array of numbers is
    handed on, so that scikit-learn refuses it in its own words; text in an array of objects, which it takes, is not.
    """
    if data is None or hasattr(data, "toarray") or (kind := getattr(np.asarray(data), "dtype", None)) is None:
        return data
    if kind.kind not in "biufO":
        return data
    rows = np.nan_to_num(real_array(name, data), nan=np.nan)
    labels = column_labels(data)
    return pd.DataFrame(rows, columns=labels) if rows.ndim == 2 and labels is not None else rows


def _generator(random_state: Any) -> np.random.Generator | None:
    """Return the source of randomness that scikit-learn's convention means; None stays None, a real release."""
    if random_state is None or isinstance(random_state, np.random.Generator):
        return random_state
    if isinstance(random_state, np.random.RandomState):
        return np.random.default_rng(random_state.randint(2**31 - 1, size=4))
    return np.random.default_rng(random_state)
