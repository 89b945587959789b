"""The exact posterior of counts after a noisy sum: the law of the sum by convolution, no normal approximation.

The sum of n clipped counts takes one of n times (upper - lower) + 1 values. Its characteristic function is the n-th
power of that of one count, and the likelihood of a noisy sum is, by Parseval's identity, the inner product of it and
of the transform of the noise's density: one matrix product for all parameters at once, without an inverse transform.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import fft, special

from dpbook._arrays import Array
from dpbook.release import Release

__all__ = ["MOST", "WholeSum"]

MOST = 20_000  # values of the sum: beyond, a convolution is slow, and a normal law as good
_FLOOR = 1e-14  # of the largest possible likelihood: below, a transform has no digits
_AT_ONCE = 2**22  # entries of a matrix


class WholeSum:
    """The log likelihood of theta given the noisy sum of n clipped or redacted Poisson counts, exactly."""

    def __init__(self, release: Release, lower: float, upper: float) -> None:
        redact = release.settings.get("outside", "clip") == "redact"
        self._x, self._n, self._redact = np.arange(lower, upper + 1), release.n, redact
        self._first = 0 if redact else int(lower)
        self._width = int(upper) - self._first  # of the released value of one record
        length = fft.next_fast_len(release.n * self._width + 1, real=True)
        sums, log_noise = release.n * self._first + np.arange(length), np.zeros(length)
        for each in release.observations:
            away = (float(each["sum"][0]) - sums) / each.scale["sum"]
            log_noise += -np.abs(away) if release.mechanism == "laplace" else -0.5 * away**2
        log_noise[release.n * self._width + 1 :] = -np.inf
        noise = np.exp(log_noise - log_noise.max())
        frequencies = np.arange(length // 2 + 1)
        weights = np.where((frequencies == 0) | (2 * frequencies == length), 1.0, 2.0) / length
        self._noise = weights * np.conj(np.fft.rfft(noise))
        turns = np.outer(np.arange(self._width + 1), frequencies) % length
        self._waves = np.exp(-2j * np.pi * turns / length)

    def __call__(self, theta: Array) -> Array:
        """Return the log likelihoods, up to a constant; far from the likely ones they end at a floor."""
        rates = np.ravel(theta)
        size = max(1, _AT_ONCE // self._waves.shape[1])
        found = [self._likelihood(rates[i : i + size]) for i in range(0, len(rates), size)]
        return np.log(np.maximum(np.concatenate(found), _FLOOR)).reshape(np.shape(theta))

    def reliable(self, theta: float) -> bool:
        """Say whether the likelihood is above its floor."""
        return bool(self(np.array([theta]))[0] > np.log(_FLOOR) + np.log(1e4))

    def _likelihood(self, theta: Array) -> Array:
        return np.asarray((_power(self._masses(theta) @ self._waves, self._n) @ self._noise).real)

    def _masses(self, theta: Array) -> Array:
        """Return the probabilities of the released value of one record, (theta, value)."""
        rate = theta[:, None]
        inside = np.exp(special.xlogy(self._x, rate) - rate - special.gammaln(self._x + 1))
        below = special.pdtr(self._x[0] - 1, theta) if self._x[0] > 0 else np.zeros_like(theta)
        above = special.pdtrc(self._x[-1], theta)
        masses = np.zeros((len(theta), self._width + 1))
        masses[:, self._width + 1 - self._x.size :] = inside
        masses[:, 0] += below + above if self._redact else below
        masses[:, -1] += 0.0 if self._redact else above
        return masses


def _power(base: NDArray[np.complex128], n: int) -> NDArray[np.complex128]:
    """Return the n-th powers by squaring, ten times as fast as by logarithms."""
    result = np.ones_like(base)
    while n:
        if n & 1:
            result = result * base
        base, n = base * base, n >> 1
    return result
