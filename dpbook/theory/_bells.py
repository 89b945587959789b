"""Bells over all pairs of neighbours: every release is a Gaussian mechanism, unless its output is restricted.

Neighbours are replace-one, n public: one record moves from bound to bound. The laws of one restricted pair are in
:mod:`dpbook.theory._intervals`.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from dpbook._arrays import Array
from dpbook.theory import _intervals
from dpbook.theory._draws import log_gaussian_delta
from dpbook.theory._search import ROUNDING, TOLERANCE, over_mesh, refined, relative
from dpbook.theory._setting import Search, Setting

__all__ = ["pair_log_delta", "pure_epsilon", "worst", "worst_means"]

_BLOCKS = 3000  # blocks of centres that a certificate may bound


def _scale(setting: Setting) -> tuple[float, float]:
    """Return how far the output's centre moves when one record moves by 1, and the sd of what is as good as it."""
    model, n, m = setting.bells, setting.n, setting.m
    posterior, sigma = model.posterior_sd(n), model.sigma
    if setting.kind == "sample":
        spread = posterior * math.sqrt(setting.temperature)
    elif setting.kind == "synthetic-plugin":
        spread = sigma / math.sqrt(m)
    else:
        blocks = max(setting.blocks, 1)  # a kept draw is one block of m records
        spread = math.sqrt((posterior**2 + sigma**2 * blocks / m) / blocks)
    return model._weight(n), spread


def _pairs(setting: Setting, lower: ArrayLike, upper: ArrayLike) -> _intervals.NormalPair:
    lower = np.asarray(lower, dtype=float)
    return _intervals.NormalPair(lower, np.asarray(upper, dtype=float), np.full(lower.shape, _scale(setting)[1]))


def _restricted(setting: Setting, pair: _intervals.NormalPair, epsilon: ArrayLike) -> Array:
    low, high = setting.support
    law = _intervals.log_clamped_delta if setting.clamp else _intervals.log_truncated_delta
    return law(pair, low, high, epsilon)


def _mirror(setting: Setting) -> Setting:
    low, high = setting.support
    return replace(setting, truncate=(-high, -low))


def _orders(setting: Setting, pair: _intervals.NormalPair, epsilon: ArrayLike) -> tuple[Array, Array]:
    """Return log delta of the upper law against the lower, and of the lower against the upper."""
    return _restricted(setting, pair, epsilon), _restricted(_mirror(setting), pair.mirrored(), epsilon)


def pair_log_delta(setting: Setting, total: float, moved: float, epsilon: Array) -> Array:
    """Return log delta of records with a given sum against a neighbour whose sum is lower by ``moved``."""
    if moved == 0:
        return np.full(epsilon.shape, -np.inf)
    if setting.kind == "estimate":
        return np.zeros(epsilon.shape)
    weight, spread = _scale(setting)
    move = abs(moved) * weight
    if setting.truncate is None:
        return log_gaussian_delta(move / spread, epsilon)
    centre = setting.bells.posterior_mean(total, setting.n)
    lower = centre - move if moved > 0 else centre
    pair = _pairs(setting, lower, lower + move)
    if moved > 0:
        return _restricted(setting, pair, epsilon)
    return _restricted(_mirror(setting), pair.mirrored(), epsilon)


def _centres(setting: Setting) -> tuple[float, float, float]:
    """Return the smallest and largest centre of the lower law of a pair, and the move between the two laws."""
    model, n = setting.bells, setting.n
    move = 2 * model.bound * model._weight(n)
    low = model.posterior_mean(-n * model.bound, n)
    return low, low + (n - 1) * move, move


def pure_epsilon(setting: Setting) -> float:
    """Return the epsilon at delta = 0; infinite where there is none."""
    if setting.bells.bound == math.inf or setting.truncate is None:
        return math.inf
    low, high, move = _centres(setting)
    pair = _pairs(setting, [low, high], [low + move, high + move])
    return float(np.max([_largest_loss(setting, pair), _largest_loss(_mirror(setting), pair.mirrored())]))


def _largest_loss(setting: Setting, pair: _intervals.NormalPair) -> Array:
    """Return the largest loss of the upper against the lower law, which is at the upper end."""
    low, high = setting.support
    if not setting.clamp:
        return _intervals.largest_loss(pair, low, high)
    ends = [special.log_ndtr((mean - high) / pair.scale) for mean in (pair.lower, pair.upper)]
    return np.asarray(ends[1] - ends[0])


# The worst pair -------------------------------------------------------------------------------------------------------


def worst(setting: Setting, epsilon: Array, *, certify: bool) -> Search:
    """Find the worst pair for every epsilon; with ``certify`` the excess after a search is proved, and takes longer."""
    zeros = np.zeros(epsilon.shape)
    if setting.bells.bound == math.inf:
        return Search(zeros, zeros, zeros)
    if setting.truncate is not None:
        return _worst_restricted(setting, epsilon, certify=certify)
    weight, spread = _scale(setting)
    return Search(log_gaussian_delta(2 * setting.bells.bound * weight / spread, epsilon), zeros, zeros)


def worst_means(setting: Setting, lower: float, epsilon: Array) -> tuple[float, float]:
    """Return the means of the records in the worst pair, the lower law centred at ``lower``, in the worse order."""
    model = setting.bells
    if model.bound == math.inf:
        return math.inf, -math.inf
    step = 2 * model.bound / setting.n
    if setting.truncate is None or setting.n == 1:
        return step - model.bound, -model.bound
    low, _, move = _centres(setting)
    mean = -model.bound + (lower - low) / move * step
    forward, back = _orders(setting, _pairs(setting, lower, lower + move), epsilon)
    return (mean + step, mean) if forward[0] >= back[0] else (mean, mean + step)


def _worst_restricted(setting: Setting, epsilon: Array, *, certify: bool) -> Search:
    """Find the worst pair of restricted outputs: one record at either bound, the others anywhere between.

    The laws have monotone likelihood ratios, so delta grows with the distance of their centres: the record that is
    replaced moves from one bound to the other. Where the other records lie is known for clamped outputs, and searched
    on a mesh for truncated ones.
    """
    low, _, move = _centres(setting)

    def profile(lower: Array) -> Array:
        return np.maximum(*_orders(setting, _pairs(setting, lower, lower + move), epsilon))

    if setting.n == 1 or setting.clamp:  # known
        mesh = np.full((1, *epsilon.shape), low) if setting.n == 1 else _clamped_centres(setting, epsilon)
        return Search(*over_mesh(mesh, profile(mesh)), np.zeros(epsilon.shape))
    mesh = _mesh_of_centres(setting, epsilon)
    best, where = refined(mesh, profile, whole=False)
    if not certify:
        return Search(best, where, np.full(epsilon.shape, np.inf))
    left = [_bound_over_centres(setting, mesh[:, [i]], epsilon[[i]], best[i]) for i in range(len(epsilon))]
    return Search(best, where, np.maximum(relative(np.array(left), best), ROUNDING))


def _clamped_centres(setting: Setting, epsilon: Array) -> Array:
    """Return, for each order of the pair, the lower centre at which a clamped output is told apart best.

    Without clamping the best events are z > t with t = c + move/2 + ε spread²/move, at every centre c. Clamping leaves
    those with t in the interval, so delta is that of the unrestricted output if some centre puts t there, and
    otherwise largest for the centre that brings t nearest.
    """
    low, high, move = _centres(setting)
    shift = epsilon * _scale(setting)[1] ** 2 / move
    middle = sum(setting.support) / 2 - move / 2
    return np.clip(np.stack([middle - shift, middle + shift]), low, high)


def _mesh_of_centres(setting: Setting, epsilon: Array) -> Array:
    """Return lower centres to begin a search with: evenly spread, and dense where a law or its best event meets an end.

    The distances from such a place are geometric, because the interval may be far narrower or wider than the law.
    """
    low, high, move = _centres(setting)
    spread = _scale(setting)[1]
    shift = epsilon * spread**2 / move
    ends = np.array(setting.support)[:, None]
    anchors = np.concatenate([ends - move * part + 0 * shift for part in (0.0, 0.5, 1.0)])
    anchors = np.concatenate([anchors, ends - move / 2 - shift, ends - move / 2 + shift])
    width = setting.support[1] - setting.support[0]
    reach = np.geomspace(0.1 * min(spread, width), max(high - low, spread), 24)
    around = [anchors + sign * each for each in (0.0, *reach) for sign in (-1, 1)]
    even = np.linspace(low, high, 65)[:, None] + 0 * epsilon
    return np.sort(np.clip(np.concatenate([even, *around]), low, high), axis=0)


def _bound_over_centres(setting: Setting, mesh: Array, epsilon: Array, best: float) -> float:
    """Return an upper bound on log delta over all centres of a truncated output, for one epsilon.

    Two bounds: a truncated pair is never told apart better than the same pair without truncation; and for all lower
    centres between c and c' no pair is worse than c against c' + move. Blocks that exceed ``best`` are split.
    """
    _, _, move = _centres(setting)
    whole = float(log_gaussian_delta(move / _scale(setting)[1], epsilon)[0])
    edges = np.unique(mesh)
    lower, upper, closed, spent = edges[:-1], edges[1:], -np.inf, 0
    while len(lower):
        above = np.minimum(np.maximum(*_orders(setting, _pairs(setting, lower, upper + move), epsilon)), whole)
        spent += len(lower)
        still = above > best + TOLERANCE
        closed = max(closed, float(np.max(above[~still], initial=-np.inf)))
        if best >= whole - TOLERANCE or spent + 2 * still.sum() > _BLOCKS:
            return max(closed, float(np.max(above[still], initial=-np.inf)))
        middle = (lower[still] + upper[still]) / 2
        lower, upper = np.concatenate([lower[still], middle]), np.concatenate([middle, upper[still]])
    return closed
