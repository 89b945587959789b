"""Exact inference in a discrete model by a junction tree, for a batch of models of one graph at a time.

Every table carries a leading batch axis. One upward pass turns the potentials into the conditional law of each node of
the tree given its separator; one downward pass multiplies these into marginals. All of it works on whole tables.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpbook._arrays import Array

__all__ = ["LARGEST_TABLE", "Beliefs", "JunctionTree", "largest_table"]

LARGEST_TABLE = 2**22  # entries of one table of the tree: 32 MB a model


class _Node(NamedTuple):
    """One table of the tree.

    Its own variables come first, since reductions over leading axes are the fast ones; then those shared with the
    parent, in the parent's order.
    """

    variables: tuple[int, ...]
    shape: tuple[int, ...]
    parent: int
    own: int  # how many of the variables are not shared with the parent
    own_states: int  # how many states these have together
    expand: tuple[int, ...]  # the parent's shape with ones where the variable is not shared
    kept: list[int]  # the parent's axes (batch axis counted) of the shared variables


class _Place(NamedTuple):
    """Where the table of a clique lives in the tree, and how its axes map to the node's."""

    node: int
    order: tuple[int, ...]  # transposes the clique's table to the node's order of variables
    expand: tuple[int, ...]  # the node's shape with ones where the variable is not the clique's
    kept: list[int]  # the node's axes (batch axis counted) of the clique's variables, in the clique's order


@dataclass(frozen=True)
class Beliefs:
    """What inference returns for a batch of models.

    Attributes
    ----------
    log_partition : ndarray, shape (batch,)
        The log partition function A(θ).
    marginals : list of ndarray
        One table of probabilities for each clique, (batch, ...).
    nodes : list of ndarray
        The marginal of each node of the tree.
    conditionals : list of ndarray, (batch, own states, shared states)
        The law of each node's own variables given those that it shares with its parent.
    """

    log_partition: Array
    marginals: list[Array]
    nodes: list[Array]
    conditionals: list[Array]


class JunctionTree:
    """A junction tree of cliques of variables 0, 1, … with ``sizes`` states: exact marginals, samples and derivatives.

    Tables of log-potentials go in, one a clique, (batch, ...). Tables of the tree have at most ``limit`` entries.
    """

    def __init__(self, sizes: Sequence[int], cliques: Sequence[tuple[int, ...]], *, limit: int = LARGEST_TABLE) -> None:
        self.sizes = tuple(sizes)
        self.cliques = [tuple(clique) for clique in cliques]
        found = _triangulate(self.sizes, self.cliques)
        entries = max(math.prod(self.sizes[v] for v in node) for node in found)
        if entries > limit:
            width = max(len(node) for node in found)
            raise ValueError(
                f"cliques are too entangled for exact inference: the junction tree needs a table of {entries:,} "
                f"entries ({width} variables at once), more than the limit of {limit:,}; drop cliques, or use "
                "inference='loopy'"
            )
        self.nodes = _tree(self.sizes, found)
        self.places = [self._place(clique) for clique in self.cliques]
        self._of_node: list[list[int]] = [[] for _ in self.nodes]
        for table, place in enumerate(self.places):
            self._of_node[place.node].append(table)
        self._children: list[list[int]] = [[] for _ in self.nodes]
        for position, node in enumerate(self.nodes[1:], start=1):
            self._children[node.parent].append(position)

    @property
    def entries(self) -> int:
        """The number of entries of the largest table of the tree."""
        return max(math.prod(node.shape) for node in self.nodes)

    @property
    def treewidth(self) -> int:
        """The number of variables of the largest node of this tree, less one."""
        return max(len(node.variables) for node in self.nodes) - 1

    def _place(self, clique: tuple[int, ...]) -> _Place:
        holding = [i for i, node in enumerate(self.nodes) if set(clique) <= set(node.variables)]
        home = min(holding, key=lambda i: math.prod(self.nodes[i].shape))
        node = self.nodes[home]
        kept = [v for v in node.variables if v in clique]
        order = tuple(clique.index(v) for v in kept)
        expand = tuple(self.sizes[v] if v in clique else 1 for v in node.variables)
        axes = [1 + node.variables.index(v) for v in clique]
        return _Place(home, (0, *(1 + axis for axis in order)), expand, [0, *axes])

    def holds(self, variables: Sequence[int]) -> bool:
        """Say whether one node of the tree holds all these variables, so that their marginal can be read off it."""
        return any(set(variables) <= set(node.variables) for node in self.nodes)

    def _gather(self, tables: Sequence[Array], messages: list[Array], position: int, batch: int) -> Array:
        """Return the sum of a node's own tables and of its children's messages, (batch, own, shared)."""
        node = self.nodes[position]
        total = np.zeros((batch, *node.shape))
        for table in self._of_node[position]:
            place = self.places[table]
            total += tables[table].transpose(place.order).reshape(batch, *place.expand)
        for child in self._children[position]:
            total += messages[child].reshape(batch, *self.nodes[child].expand)
        return total.reshape(batch, node.own_states, -1)

    def infer(self, tables: Sequence[Array]) -> Beliefs:
        """Return log partition functions and marginals of a batch of models, exact up to rounding."""
        if len(tables) != len(self.cliques):
            raise ValueError(f"tables must hold one for each of {len(self.cliques)} cliques, got {len(tables)}")
        batch = tables[0].shape[0]
        count = len(self.nodes)
        messages: list[Array] = [np.empty(0)] * count
        conditionals: list[Array] = [np.empty(0)] * count
        for position in reversed(range(count)):
            total = self._gather(tables, messages, position, batch)
            # Reductions are called on the ufuncs: on small tables the array methods' own overhead is half the time.
            top = np.maximum.reduce(total, axis=1, keepdims=True)
            total -= top
            np.exp(total, out=total)
            mass = np.add.reduce(total, axis=1, keepdims=True)
            total /= mass
            conditionals[position] = total
            messages[position] = (top + np.log(mass))[:, 0]
        nodes: list[Array] = []
        for position, node in enumerate(self.nodes):
            belief = conditionals[position]
            if position:
                belief = belief * _keep(nodes[node.parent], node.kept).reshape(batch, 1, -1)
            nodes.append(belief.reshape(batch, *node.shape))
        return Beliefs(messages[0][:, 0], self._marginals(nodes), nodes, conditionals)

    def _marginals(self, nodes: list[Array]) -> list[Array]:
        return [_keep(nodes[place.node], place.kept) for place in self.places]

    def tangent(self, beliefs: Beliefs, directions: Sequence[Array]) -> list[Array]:
        """Return how fast the marginals change as the potentials move, given the beliefs: covariance times direction.

        The covariance is symmetric, so that this serves both ways.
        """
        batch, count = directions[0].shape[0], len(self.nodes)
        messages: list[Array] = [np.empty(0)] * count
        changes: list[Array] = [np.empty(0)] * count
        for position in reversed(range(count)):
            total = self._gather(directions, messages, position, batch)
            law = beliefs.conditionals[position]
            mean = (law * total).sum(axis=1, keepdims=True)
            changes[position] = law * (total - mean)
            messages[position] = mean[:, 0]
        nodes: list[Array] = []
        for position, node in enumerate(self.nodes):
            change = changes[position]
            if position:
                above = _keep(beliefs.nodes[node.parent], node.kept).reshape(batch, 1, -1)
                moved = _keep(nodes[node.parent], node.kept).reshape(batch, 1, -1)
                change = change * above + beliefs.conditionals[position] * moved
            nodes.append(change.reshape(batch, *node.shape))
        return self._marginals(nodes)

    def sample(self, beliefs: Beliefs, n: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """Draw n independent records, as codes (n, variables), from the first model of a batch."""
        codes = np.zeros((n, len(self.sizes)), dtype=np.int64)
        for position, node in enumerate(self.nodes):
            own, shared = node.variables[: node.own], node.variables[node.own :]
            given = np.zeros(n, dtype=np.int64)
            if shared:
                given = np.ravel_multi_index(tuple(codes[:, list(shared)].T), node.shape[node.own :])
            drawn = _draw_rows(beliefs.conditionals[position][0].T, given, rng)
            codes[:, list(own)] = np.stack(np.unravel_index(drawn, node.shape[: node.own]), axis=1)
        return codes


def _keep(table: Array, axes: list[int]) -> Array:
    """Return the table summed over all other axes, those that are kept in the order given."""
    if len(axes) == table.ndim:
        return table.transpose(axes)
    einsum: Any = np.einsum  # its types do not know the form with lists of axes
    return np.asarray(einsum(table, list(range(table.ndim)), axes))


def _draw_rows(law: Array, given: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.int64]:
    """Draw one column for each record from its row of ``law``, by one search in the rows laid end to end."""
    ends = np.cumsum(law, axis=1)
    ends /= ends[:, -1:]
    # Row r of the cumulated law is moved to (r, r + 1]: one sorted array serves all records at once.
    laid = (ends + np.arange(len(law))[:, None]).ravel()
    found = np.searchsorted(laid, given + rng.random(len(given)), side="right") - given * law.shape[1]
    return np.asarray(np.clip(found, 0, law.shape[1] - 1), dtype=np.int64)


def _triangulate(sizes: tuple[int, ...], cliques: Sequence[tuple[int, ...]]) -> list[frozenset[int]]:
    """Return the maximal cliques of a chordal graph that holds all cliques, by greedy minimum fill."""
    near: dict[int, set[int]] = {v: set() for v in range(len(sizes))}
    for clique in cliques:
        for v in clique:
            near[v] |= set(clique) - {v}
    found: list[frozenset[int]] = []
    while near:

        def cost(v: int) -> tuple[int, int, int]:
            around = near[v]
            fill = sum(len(around - near[u]) - 1 for u in around)
            return fill, math.prod(sizes[u] for u in around), v

        chosen = min(near, key=cost)
        around = near.pop(chosen)
        node = frozenset({chosen, *around})
        for u in around:
            near[u] |= around - {u}
            near[u].discard(chosen)
        if not any(node <= other for other in found):
            found.append(node)
    return found


def _tree(sizes: tuple[int, ...], found: list[frozenset[int]]) -> list[_Node]:
    """Join the cliques by a maximum spanning tree of their overlaps, each parent before its children."""
    start = max(range(len(found)), key=lambda i: (math.prod(sizes[v] for v in found[i]), -i))
    nodes = [_node(sizes, tuple(sorted(found[start])), (), -1, ())]
    left = [i for i in range(len(found)) if i != start]
    while left:
        _, chosen, parent = max(
            (len(found[i] & set(node.variables)), -i, -p) for i in left for p, node in enumerate(nodes)
        )
        chosen, parent = -chosen, -parent
        above = nodes[parent].variables
        shared = tuple(v for v in above if v in found[chosen])
        own = tuple(sorted(found[chosen] - set(shared)))
        nodes.append(_node(sizes, own, shared, parent, above))
        left.remove(chosen)
    return nodes


def _node(
    sizes: tuple[int, ...], own: tuple[int, ...], shared: tuple[int, ...], parent: int, above: tuple[int, ...]
) -> _Node:
    return _Node(
        own + shared,
        tuple(sizes[v] for v in own + shared),
        parent,
        len(own),
        math.prod(sizes[v] for v in own),
        tuple(sizes[v] if v in shared else 1 for v in above),
        [0, *(1 + above.index(v) for v in shared)],
    )


def largest_table(sizes: Sequence[int], cliques: Sequence[tuple[int, ...]]) -> int:
    """Return how many entries the largest table of a junction tree would have; some millions are out of reach."""
    found = _triangulate(tuple(sizes), [tuple(clique) for clique in cliques])
    return max(math.prod(sizes[v] for v in node) for node in found)
