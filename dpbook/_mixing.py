"""R-hat and effective sample sizes of many quantities in one call: ArviZ's definitions, without its loop in Python.

ArviZ takes about a millisecond per scalar, which a batch of hundreds of releases cannot afford. A test compares every
figure here with ArviZ's own.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from dpbook._arrays import Array
from dpbook._late import fft, special, stats

__all__: list[str] = []

_BLOCK = 4_000_000  # draws in one pass, which bounds the memory


def rhat(draws: Array) -> Array:
    """Return the rank-normalised split R-hat (B,) of draws (B, chain, draw); NaN for constants and very short chains.

    A single chain is compared with itself, one half against the other.
    """
    if draws.shape[1] == 1:
        half = draws.shape[2] // 2
        draws = np.concatenate([draws[:, :, :half], draws[:, :, draws.shape[2] - half :]], axis=1)
    return _in_blocks(_rhat, draws) if draws.shape[2] >= 4 else np.full(len(draws), math.nan)


def ess_bulk(draws: Array) -> Array:
    """Return the effective sizes (B,) for the centres of the laws that draws (B, chain, draw) come from."""
    return _in_blocks(lambda block: _ess(_scores(_halves(block))), draws) if draws.shape[2] >= 4 else _unknown(draws)


def ess_tail(draws: Array) -> Array:
    """Return the smaller of the effective sizes (B,) for the 5 % and the 95 % quantile of draws (B, chain, draw)."""
    return _in_blocks(_tail, draws) if draws.shape[2] >= 4 else _unknown(draws)


def rhat_of_independent_draws(chains: int, per_chain: int, chance: float) -> float:
    """Return the split R-hat that independent draws exceed with probability ``chance``: B/W is Fisher's F."""
    groups, each = (2 * chains, per_chain // 2) if chains > 1 else (4, per_chain // 4)
    if each < 2:
        return math.inf
    quantile = float(stats.f.isf(chance, groups - 1, groups * (each - 1)))
    return math.sqrt((quantile + each - 1) / each)


def _in_blocks(figure: Callable[[Array], Array], draws: Array) -> Array:
    """Apply a figure to so many quantities at a time that memory stays bounded."""
    step = max(1, _BLOCK // max(1, draws.shape[1] * draws.shape[2]))
    with np.errstate(divide="ignore", invalid="ignore"):  # a constant: NaN; chains stuck at different values: infinite
        blocks = [figure(np.ascontiguousarray(draws[i : i + step])) for i in range(0, len(draws), step)]
    return np.concatenate(blocks) if blocks else np.empty(0)


def _unknown(draws: Array) -> Array:
    return np.full(len(draws), math.nan)


def _halves(draws: Array) -> Array:
    half = draws.shape[2] // 2
    return np.concatenate([draws[:, :, :half], draws[:, :, draws.shape[2] - half :]], axis=1)


def _scores(draws: Array) -> Array:
    """Return normal scores of the ranks of each quantity's draws, ties averaged."""
    flat = draws.reshape(len(draws), -1)
    size = flat.shape[1]
    order = np.argsort(flat, axis=1)
    rising = special.ndtri((np.arange(1, size + 1) - 0.375) / (size + 0.25))
    scores = np.empty_like(flat)
    np.put_along_axis(scores, order, np.broadcast_to(rising, flat.shape), axis=1)
    tied = (np.diff(np.take_along_axis(flat, order, axis=1), axis=1) == 0).any(axis=1)
    if tied.any():
        ranks = stats.rankdata(flat[tied], method="average", axis=1)
        scores[tied] = special.ndtri((ranks - 0.375) / (size + 0.25))
    return scores.reshape(draws.shape)


def _rhat(draws: Array) -> Array:
    split = _halves(draws)
    folded = np.abs(split - np.median(split, axis=(1, 2), keepdims=True))
    return np.asarray(np.fmax(_classic_rhat(_scores(split)), _classic_rhat(_scores(folded))))


def _classic_rhat(draws: Array) -> Array:
    size = draws.shape[2]
    within = draws.var(axis=2, ddof=1).mean(axis=1)
    between = size * draws.mean(axis=2).var(axis=1, ddof=1)
    return np.asarray(np.sqrt((between / within + size - 1) / size))


def _tail(draws: Array) -> Array:
    ends = np.quantile(draws, (0.05, 0.95), axis=(1, 2))[:, :, None, None]
    low, high = (_ess(_halves((draws <= end).astype(float))) for end in ends)
    return np.asarray(np.minimum(low, high))


def _ess(draws: Array) -> Array:
    """Return Geyer's effective size: autocorrelations in pairs, while positive, and never growing."""
    count, chains, size = draws.shape
    acov = _autocovariance(draws).mean(axis=1)
    within = acov[:, 0] * size / (size - 1)
    total = acov[:, 0] + (draws.mean(axis=2).var(axis=1, ddof=1) if chains > 1 else 0.0)
    rho = 1 - (within[:, None] - acov) / total[:, None]
    rho[:, 0] = 1.0
    pairs = rho[:, : size - size % 2].reshape(count, -1, 2).sum(axis=2)
    most = min(max(0, math.ceil((size - 2) / 2) - 1), pairs.shape[1] - 1)
    used = np.where((pairs <= 0).any(axis=1), np.argmax(pairs <= 0, axis=1), most).clip(max=most)
    falling = np.minimum.accumulate(pairs, axis=1)
    kept = np.where(np.arange(pairs.shape[1]) < used[:, None], falling, 0.0).sum(axis=1)
    rows = np.arange(count)
    last = rho[rows, 2 * used]
    last = np.where((last > 0) | (pairs[rows, used] >= 0), last, 0.0)
    time = np.maximum(-1 + 2 * kept + last, 1 / math.log10(chains * size))
    constant = np.ptp(draws, axis=(1, 2)) < np.finfo(float).resolution
    return np.asarray(np.where(constant, chains * size, chains * size / time), dtype=np.float64)


def _autocovariance(draws: Array) -> Array:
    size = draws.shape[2]
    length = fft.next_fast_len(2 * size, real=True)
    spectrum = fft.rfft(draws - draws.mean(axis=2, keepdims=True), n=length, axis=2)
    return np.asarray(fft.irfft(spectrum * spectrum.conj(), n=length, axis=2)[:, :, :size] / size)


def autocorrelation_time(draws: Array) -> float:
    """Return how many steps of a chain are worth one independent draw, pooled over all of draws (B, chain, draw).

    1 where there is no evidence of dependence: chains shorter than 8, a first correlation below four standard errors.
    """
    _, chains, size = draws.shape
    moves = np.ptp(draws, axis=(1, 2)) > 0
    if not moves.any() or size < 8:
        return 1.0
    scores = _scores(np.ascontiguousarray(draws[moves]))
    drawn = chains * size
    products = _lagged_products(scores)
    # Scores of one quantity add up to 0, so that those of independent draws have a correlation of -1/(drawn - 1).
    rho = (products / products[0] + 1 / (drawn - 1)) * (drawn - 1) / drawn
    error = 1 / math.sqrt(len(scores) * drawn)
    if rho[1] < 4 * error:
        return 1.0
    pairs = rho[: size - size % 2].reshape(-1, 2).sum(axis=1)
    ends = np.flatnonzero(pairs < 2 * math.sqrt(2) * error)
    kept = np.minimum.accumulate(pairs[: ends[0] if ends.size else None])
    return float(max(1.0, 2 * kept.sum() - 1))


def _lagged_products(scores: Array) -> Array:
    """Return the mean product (draw,) of scores that are so many steps of a chain apart."""
    size = scores.shape[2]
    length = fft.next_fast_len(2 * size, real=True)
    spectrum = fft.rfft(scores, n=length, axis=2)
    power = (spectrum * spectrum.conj()).real.mean(axis=(0, 1))
    return np.asarray(fft.irfft(power, n=length)[:size] / np.arange(size, 0, -1))
