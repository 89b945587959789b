"""What noise-aware samplers share: the noise of a release, and the statistics behind it, as latent variables.

Laplace noise is a normal whose variance is exponential, so that given that variance everything stays normal and a
Gibbs sampler can draw the unseen statistics; where they can be integrated out instead, the normal-Laplace density is
what remains. Section "What a Bayesian should believe after a release" of chapter 1 explains why. All functions work
on whole batches, and on public values only.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import erfcx, log_ndtr, ndtr

from dpbook._arrays import Array, times
from dpbook._validation import analyst_generator, finite_array, non_negative_array, positive_array

__all__ = [
    "draw_noise_variance",
    "draw_statistic",
    "draw_statistics",
    "inverse_gaussian",
    "normal_laplace_cdf",
    "normal_laplace_logcdf",
    "normal_laplace_logpdf",
    "normal_laplaces_logpdf",
]


def inverse_gaussian(mean: ArrayLike, shape: ArrayLike, rng: np.random.Generator | None = None) -> Array:
    """Draw from inverse Gaussian distributions, stably for any mean, however small, large or infinite.

    The density at x > 0 is ``sqrt(shape / (2 pi x^3)) exp(-shape (x - mean)^2 / (2 mean^2 x))``; with an infinite mean
    it is the Lévy density, and the draw is ``shape`` over a chi-squared variable. (NumPy's ``Generator.wald`` loses
    its digits when mean/shape is large, and returns zeros and NaN in the end.) Explained in
    :doc:`/book/background/bayesian-primer`.

    Parameters
    ----------
    mean, shape : array_like
        Greater than 0, and broadcast; a mean of ``inf`` is allowed.
    rng : numpy.random.Generator, optional

    Returns
    -------
    array
        One draw for each pair (mean, shape).

    Examples
    --------
    >>> import numpy as np
    >>> draws = inverse_gaussian(np.full(100_000, 2.0), 3.0, np.random.default_rng(1))
    >>> print(draws.mean().round(1), draws.var().round(1))  # mean, mean**3 / shape
    2.0 2.7
    """
    shape = positive_array("shape", shape)
    mean = np.asarray(mean, dtype=np.float64)
    if not (mean > 0).all():
        raise ValueError("mean must be greater than 0 everywhere (infinite is allowed)")
    with np.errstate(over="ignore"):
        ratio = shape / mean
    # Beyond 10^32 a draw is its mean, to double precision; the formula holds up to 10^300.
    return np.where(ratio > 1e300, mean, shape * _unit_inverse_gaussian(np.minimum(ratio, 1e300), rng))[()]


def draw_noise_variance(residual: ArrayLike, scale: ArrayLike, rng: np.random.Generator | None = None) -> Array:
    """Draw the variance of Laplace noise, seen as normal, given the noise itself.

    If the variance is exponential with mean ``2 scale^2`` and the noise normal given it, the noise is Laplace.
    Backwards, given noise r, ``1 / variance`` is inverse Gaussian with mean ``1 / (scale |r|)`` and shape
    ``1 / scale^2``. Explained in :doc:`/book/background/bayesian-primer`.

    Parameters
    ----------
    residual : array_like
        The noise: released value minus the current draw of the statistic. Zero is allowed.
    scale : array_like
        The scale b of the Laplace noise, greater than 0. Broadcast with ``residual``.
    rng : numpy.random.Generator, optional

    Returns
    -------
    array
        One variance for each residual.

    Examples
    --------
    >>> import numpy as np
    >>> variance = draw_noise_variance(np.full(100_000, 3.0), 1.0, np.random.default_rng(1))
    >>> print(variance.mean().round(1))  # scale |r| + scale^2
    4.0
    """
    residual, scale = finite_array("residual", residual), positive_array("scale", scale)
    # shape / mean = |r| / b, and the precision is 1 / b^2 times a draw with shape 1.
    return scale**2 / _unit_inverse_gaussian(np.abs(residual) / scale, rng)


def normal_laplace_logpdf(y: ArrayLike, mean: ArrayLike, variance: ArrayLike, scale: ArrayLike) -> Array:
    """Return the log density of normal plus Laplace: a statistic by the central limit theorem, plus its noise.

    With z = y - mean, s = sqrt(variance), b = scale and the normal distribution function F, the density is
    ``exp(s^2 / 2 b^2) (exp(-z/b) F(z/s - s/b) + exp(z/b) F(-z/s - s/b)) / 2b``. It is computed in a form in which
    nothing overflows or cancels, however far the tail and however small or large s/b. Explained in
    :doc:`/book/background/bayesian-primer`.

    Parameters
    ----------
    y : array_like
        Where: the released value.
    mean, variance : array_like
        Of the normal part; the variance may be 0 (then the law is Laplace).
    scale : array_like
        Of the Laplace part, greater than 0.

    Returns
    -------
    array
        Log densities, in the shape to which the arguments broadcast.

    Examples
    --------
    >>> import numpy as np
    >>> y = np.linspace(-40, 40, 8001)
    >>> print(np.exp(normal_laplace_logpdf(y, 1.0, 4.0, 2.0)).sum().round(6) * 0.01)
    1.0
    """
    z, sd, scale = _standard_arguments(y, mean, variance, scale)
    with np.errstate(all="ignore"):
        near, far = _log_halves(z, sd, scale)
        log_density = np.logaddexp(near, far) - np.log(4 * scale)
        laplace = -np.abs(z) / scale - np.log(2 * scale)
    return np.where(sd == 0, laplace, log_density)[()]


def normal_laplaces_logpdf(y: ArrayLike, mean: ArrayLike, variance: ArrayLike, scale: ArrayLike) -> Array:
    """Return the joint log density of several noisy values of one statistic: normal, with a Laplace noise each.

    The product of the Laplace densities is piecewise the exponential of a line, so that between two neighbouring
    values the integral over the statistic is a normal probability. Explained in
    :doc:`/book/background/after-a-release`.

    Parameters
    ----------
    y, scale : array_like (r,)
        The noisy values, and the scales of their noise, greater than 0.
    mean, variance : array_like
        Of the statistic; they broadcast, and the variance may be 0.

    Returns
    -------
    array
        Log densities, in the shape of ``mean`` and ``variance``.

    Examples
    --------
    >>> from dpbook.latent_noise import normal_laplace_logpdf, normal_laplaces_logpdf
    >>> one, two = normal_laplace_logpdf(3.0, 1.0, 4.0, 2.0), normal_laplaces_logpdf([3.0, 3.0], 1.0, 4.0, [2.0, 2.0])
    >>> print(one.round(4), normal_laplaces_logpdf([3.0], 1.0, 4.0, [2.0]).round(4), two > 2 * one)
    -2.2896 -2.2896 True
    """
    values, widths = finite_array("y", y, ndim=1), positive_array("scale", scale)
    mean, variance = np.broadcast_arrays(finite_array("mean", mean), non_negative_array("variance", variance))
    order = np.argsort(values)
    values, slope = values[order], 1 / np.broadcast_to(widths, values.shape)[order]
    sd = np.where(variance > 0, np.sqrt(variance), 1.0)
    ends = np.concatenate([[-np.inf], values, [np.inf]])
    with np.errstate(all="ignore"):
        parts = [
            _log_segment(ends[i], ends[i + 1], mean, sd, slope[i:].sum() - slope[:i].sum(), values, slope)
            for i in range(len(values) + 1)
        ]
        at_mean = -(np.abs(values - mean[..., None]) * slope).sum(axis=-1)
        log_density = np.where(variance > 0, np.logaddexp.reduce(parts, axis=0), at_mean)
    return np.asarray(log_density + np.log(slope / 2).sum())[()]


def _log_segment(low: float, high: float, mean: Array, sd: Array, rate: float, values: Array, slope: Array) -> Array:
    """Return the log integral from low to high of a normal density times the exponential of -Σ slope |value - s|.

    Between them the exponent is a line of slope ``rate``; times it, the normal is one of mean m + rate sd². Seen from
    the end at which the product is largest nothing large cancels.
    """
    from_low, from_high = (low - mean) / sd - rate * sd, (high - mean) / sd - rate * sd
    at_low, at_high = (-(np.abs(values - end) * slope).sum() if np.isfinite(end) else -np.inf for end in (low, high))
    inner = values[0] if low == -np.inf else low
    line = -(np.abs(values - inner) * slope).sum() + rate * (mean - inner)
    across = line + (rate * sd) ** 2 / 2 + np.log(ndtr(from_high) - ndtr(from_low))
    gap = np.exp(-(from_high - from_low) * (from_high + from_low) / 2)  # of the normal densities at both ends
    right = at_low - ((low - mean) / sd) ** 2 / 2 + np.log(_mills(from_low) - np.nan_to_num(_mills(from_high) * gap))
    back = np.exp((from_high - from_low) * (from_high + from_low) / 2)
    left = (
        at_high - ((high - mean) / sd) ** 2 / 2 + np.log(_mills(-from_high) - np.nan_to_num(_mills(-from_low) * back))
    )
    return np.where(from_low > 0, right, np.where(from_high < 0, left, across))


def _mills(x: Array) -> Array:
    """Return the normal probability above x over exp(-x²/2)."""
    return np.asarray(erfcx(x / np.sqrt(2)) / 2)


def normal_laplace_logcdf(y: ArrayLike, mean: ArrayLike, variance: ArrayLike, scale: ArrayLike) -> Array:
    """Return the log of the distribution function of normal plus Laplace, accurate in both tails.

    The upper tail, by symmetry, is that of ``-y`` and ``-mean``. Explained in :doc:`/book/background/bayesian-primer`.

    Parameters
    ----------
    y, mean, variance, scale : array_like
        As in :func:`normal_laplace_logpdf`.

    Returns
    -------
    array

    Examples
    --------
    >>> print(normal_laplace_logcdf(-1000.0, 0.0, 1.0, 1.0).round(3))  # log(exp(1/2) / 2) - 1000
    -1000.193
    """
    z, sd, scale = _standard_arguments(y, mean, variance, scale)
    with np.errstate(all="ignore"):
        near, _ = _log_halves(z, sd, scale)
        w, k = np.abs(z) / sd, sd / scale
        # Left of the mean the probability is F(-w) - exp(far)/4 + exp(near)/4. The first two in one scaled form: erfcx
        # decreases, so that the difference is at least half of its first term and no digits are lost.
        remainder = -(w**2) / 2 + np.log(erfcx(w / np.sqrt(2)) / 2 - erfcx((k + w) / np.sqrt(2)) / 4)
        tail = np.logaddexp(remainder, near - np.log(4))
        tail = np.where(sd == 0, -np.abs(z) / scale - np.log(2), tail)
        log_probability: Array = np.where(z <= 0, tail, np.log1p(-np.exp(tail)))[()]
    return log_probability


def normal_laplace_cdf(y: ArrayLike, mean: ArrayLike, variance: ArrayLike, scale: ArrayLike) -> Array:
    """Return the distribution function of normal plus Laplace. Explained in :doc:`/book/background/bayesian-primer`.

    Parameters
    ----------
    y, mean, variance, scale : array_like
        As in :func:`normal_laplace_logpdf`.

    Returns
    -------
    array

    Examples
    --------
    >>> print(normal_laplace_cdf([-2.0, 0.0, 2.0], 0.0, 1.0, 1.0).round(3))
    [0.108 0.5   0.892]
    """
    return np.exp(normal_laplace_logcdf(y, mean, variance, scale))


def draw_statistic(
    mean: ArrayLike,
    variance: ArrayLike,
    noisy: ArrayLike,
    noise_variance: ArrayLike,
    rng: np.random.Generator | None = None,
) -> Array:
    """Draw a scalar statistic given its normal law and its noisy release (a batch of them).

    With gain K = variance / (variance + noise_variance) the law is normal with mean ``mean + K (noisy - mean)`` and
    variance ``(1 - K) variance``. Explained in :doc:`/book/background/bayesian-primer`.

    Parameters
    ----------
    mean, variance : array_like
        Of the statistic before its release is seen; the variance may be 0.
    noisy, noise_variance : array_like
        The released values, and the variances of their noise, greater than 0: :func:`draw_noise_variance`, or the
        Gaussian mechanism's own.
    rng : numpy.random.Generator, optional

    Returns
    -------
    array
        One draw for each element to which the arguments broadcast.

    Examples
    --------
    >>> import numpy as np
    >>> draws = draw_statistic(np.zeros(100_000), 1.0, 2.0, 1.0, np.random.default_rng(1))
    >>> print(draws.mean().round(1), draws.var().round(1))
    1.0 0.5
    """
    mean, noisy = finite_array("mean", mean), finite_array("noisy", noisy)
    variance, noise_variance = (
        non_negative_array("variance", variance),
        positive_array("noise_variance", noise_variance),
    )
    total = variance + noise_variance
    centre = mean + variance / total * (noisy - mean)
    sd = np.sqrt(variance * (noise_variance / total))
    return centre + sd * analyst_generator(rng).standard_normal(np.broadcast(centre, sd).shape)


def draw_statistics(
    mean: ArrayLike,
    cov: ArrayLike,
    noisy: ArrayLike,
    noise_variance: ArrayLike,
    rng: np.random.Generator | None = None,
) -> Array:
    """Draw vectors of statistics given their normal law and their noisy releases (a batch of them).

    In Kalman form: draw s* from N(mean, cov) and y* = s* + noise, then ``s = s* + cov (cov + D)^-1 (noisy - y*)``
    with D the diagonal of noise variances. It inverts neither matrix, so ``cov`` may be singular; a linear relation
    that holds among the statistics before the release (counts that sum to n) holds in the draws. Explained in
    :doc:`/book/background/bayesian-primer`.

    Parameters
    ----------
    mean, noisy, noise_variance : array_like
        Shape (..., k): before the release, the released vectors, and the variances of their independent noises,
        greater than 0.
    cov : array_like
        Covariances, shape (..., k, k), symmetric. Where one is not positive semidefinite, negative eigenvalues (of
        the correlations) are set to 0.
    rng : numpy.random.Generator, optional

    Returns
    -------
    array
        Shape (..., k): one draw for each member of the batch.

    Examples
    --------
    >>> import numpy as np
    >>> p = np.array([0.2, 0.3, 0.5])
    >>> cov = 100 * (np.diag(p) - np.outer(p, p))  # of the counts of a multinomial: singular
    >>> s = draw_statistics(100 * p, cov, [28.0, 25.0, 60.0], [8.0, 8.0, 8.0], np.random.default_rng(1))
    >>> print(s.sum().round(4))
    100.0
    """
    rng = analyst_generator(rng)
    mean, noisy = finite_array("mean", mean), finite_array("noisy", noisy)
    noise_variance = positive_array("noise_variance", noise_variance)
    root, cov = covariance_root(_square("cov", cov))
    shapes = mean.shape, cov.shape[:-1], noisy.shape, noise_variance.shape
    try:
        batch = np.broadcast_shapes(*shapes)
    except ValueError:
        raise ValueError(
            "mean, cov (without its last axis), noisy and noise_variance must have shapes that broadcast together, "
            f"got {', '.join(map(str, shapes))}"
        ) from None
    # Noise a millionth of the statistic's own sd is as good as none, and keeps cov + D regular in floating point.
    noise_variance = np.maximum(noise_variance, 1e-12 * np.diagonal(cov, axis1=-2, axis2=-1))
    statistics = mean + times(root, rng.standard_normal(batch))
    released = statistics + np.sqrt(noise_variance) * rng.standard_normal(batch)
    total: Array = np.add(cov, noise_variance[..., None, :] * np.eye(batch[-1]))
    gap = np.asarray(np.linalg.solve(total, (noisy - released)[..., None]), dtype=np.float64)
    return statistics + times(cov, gap[..., 0])


def _unit_inverse_gaussian(inverse_mean: Array, rng: np.random.Generator | None) -> Array:
    """Draw inverse Gaussians of shape 1 (Michael, Schucany and Haas) from r = 1/mean, which may be 0.

    The smaller root 2 / (2r + c + sqrt(c (4r + c))) of their equation, with c chi-squared, has no subtraction.
    """
    rng = analyst_generator(rng)
    chi2 = rng.standard_normal(inverse_mean.shape) ** 2
    root = 2 / (2 * inverse_mean + chi2 + np.sqrt(chi2 * (4 * inverse_mean + chi2)))
    share = root * inverse_mean  # root / mean, in [0, 1]
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):  # the other root of an infinite mean: unused
        other = 1 / share / inverse_mean
    return np.where(rng.random(inverse_mean.shape) * (1 + share) <= 1, root, other)[()]


def _log_halves(z: Array, sd: Array, scale: Array) -> tuple[Array, Array]:
    """Return the logs of the two terms of the normal-Laplace density times 4b: nearer |z|'s side, and farther.

    ``2 exp(s^2/2b^2 - z/b) F(-u)`` with u = s/b - z/s equals ``exp(-z^2/2s^2) erfcx(u/sqrt(2))``: the right form where
    u >= 0, because the exponent s^2/2b^2 has cancelled; where u < 0 the left form has nothing to cancel.
    """
    w, k = np.abs(z) / sd, sd / scale
    u = k - w
    gauss = -(w**2) / 2
    far = gauss + np.log(erfcx((k + w) / np.sqrt(2)))
    near = np.where(
        u >= 0,
        gauss + np.log(erfcx(np.maximum(u, 0) / np.sqrt(2))),
        np.log(2) - (np.abs(z) - sd * k / 2) / scale + log_ndtr(-u),
    )
    return near, far


def covariance_root(cov: Array) -> tuple[Array, Array]:
    """Return a batch of matrices ``root`` and the covariances ``root @ root.T``, nearest to ``cov`` if that has none.

    Cholesky is ten times as fast; what it refuses (a singular or indefinite member) goes by way of the eigenvalues
    of the correlation matrix, so that statistics of very different sizes are all kept.
    """
    try:
        return np.asarray(np.linalg.cholesky(cov), dtype=np.float64), cov
    except np.linalg.LinAlgError:
        sd = np.sqrt(np.maximum(np.diagonal(cov, axis1=-2, axis2=-1), 0))
        unit = np.where(sd > 0, sd, 1.0)
        values, vectors = np.linalg.eigh(cov / (unit[..., :, None] * unit[..., None, :]))
        kept = np.where(values > 1e-12 * values[..., -1:], values, 0.0)
        root = sd[..., :, None] * vectors * np.sqrt(kept)[..., None, :]
        return root, root @ np.swapaxes(root, -1, -2)


def _standard_arguments(
    y: ArrayLike, mean: ArrayLike, variance: ArrayLike, scale: ArrayLike
) -> tuple[Array, Array, Array]:
    z = finite_array("y", y) - finite_array("mean", mean)
    return z, np.sqrt(non_negative_array("variance", variance)), positive_array("scale", scale)


def _square(name: str, value: ArrayLike) -> Array:
    array = finite_array(name, value)
    if array.ndim < 2 or array.shape[-1] != array.shape[-2]:
        raise ValueError(f"{name} must have shape (..., k, k), got {array.shape}")
    return array
