"""A discrete undirected model: :class:`MarkovRandomField`, with its marginals, likelihoods, samples and divergences.

Chapter 5 explains it. A field that :func:`dpbook.graphical.fit` returns is post-processing of a release: whatever is
asked of it costs no further privacy.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpbook import _html
from dpbook._arrays import Array
from dpbook._late import pd
from dpbook._validation import analyst_generator, finite_array, integer, one_of
from dpbook.graphical.domain import Clique, Domain, Groups, checked_clique, checked_groups, group_name, in_order
from dpbook.graphical.junction import LARGEST_TABLE, Beliefs, JunctionTree, largest_table
from dpbook.graphical.loopy import LoopyBeliefs, LoopyGraph

__all__ = ["FitReport", "MarkovRandomField", "random_field"]

_SWEEPS = 200  # of Gibbs sampling, where the graph is too entangled to be sampled exactly


@dataclass(frozen=True)
class FitReport:
    """How a field was fitted, and whether the computation settled.

    Explained in :doc:`/book/graphical-models/learning-from-noisy-tables`.

    Attributes
    ----------
    method : str
        ``"naive"``, ``"cgm"``, ``"penalised"``, ``"non-private"``, ….
    iterations : int
        Steps of the outer loop: of EM, or of the optimiser.
    converged : bool
        Whether the stopping rule was met before the iterations ran out.
    stopped : str
        The stopping rule, in words.
    objective : float
        What was maximised, at the end.
    history : tuple of float
        The objective after every step of the outer loop.
    gap : float
        The largest duality gap left by an inner step, in nats; 0 where there is none.
    evaluations : int
        How many times inference ran.
    settings : mapping
        The method's options, defaults worked out.
    called : mapping
        The arguments of :func:`dpbook.graphical.fit`, with which a fit can be repeated.

    Examples
    --------
    >>> from dpbook import graphical
    >>> model = graphical.fit_nonprivate([[30, 10], [10, 50]], {"a": 2, "b": 2}, [("a", "b")])
    >>> model.report.method
    'non-private'
    """

    method: str
    iterations: int
    converged: bool
    stopped: str
    objective: float
    history: tuple[float, ...] = ()
    gap: float = 0.0
    evaluations: int = 0
    settings: Mapping[str, Any] = field(default_factory=dict)
    called: Mapping[str, Any] = field(default_factory=dict)


class MarkovRandomField:
    """A log-linear model of discrete variables: p(x) proportional to the exponential of a sum of clique potentials.

    Explained in :doc:`/book/graphical-models/log-linear-models`.

    Parameters
    ----------
    domain : Domain or mapping of str to int or sequence
        The variables and their states.
    cliques : list of tuple of str
        The cliques; a list of cliques in place of one ties them to one table of potentials.
    potentials : sequence of array, or mapping of name to array
        The log-potentials of each clique (of each group of tied cliques), axes in the clique's order.
    inference : {"auto", "exact", "loopy"}
        Exact inference by a junction tree, loopy belief propagation, or exact where its largest table allows.
    limit : int, default 2**22
        The most entries that a table of the junction tree may have.
    report : FitReport, optional
        How the potentials were found.

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook.graphical import MarkovRandomField
    >>> agree = np.log([[3.0, 1.0], [1.0, 3.0]])
    >>> model = MarkovRandomField({"a": 2, "b": 2, "c": 2}, [("a", "b"), ("b", "c")], [agree, agree])
    >>> model.marginal(("a", "c"))
    array([[0.3125, 0.1875],
           [0.1875, 0.3125]])
    >>> other = model.with_potentials([agree, 0 * agree])
    >>> other.marginal("c"), round(other.entropy(), 4), round(model.kl(other), 4)
    (array([0.5, 0.5]), 1.9486, 0.1308)
    >>> records = model.sample(2, np.random.default_rng(0))
    >>> records.columns.tolist(), np.exp(model.log_prob(records)).shape
    (['a', 'b', 'c'], (2,))
    """

    def __init__(
        self,
        domain: Domain | Mapping[str, Any],
        cliques: Sequence[Any],
        potentials: Sequence[ArrayLike] | Mapping[str, ArrayLike],
        *,
        inference: str = "auto",
        limit: int = LARGEST_TABLE,
        report: FitReport | None = None,
    ) -> None:
        self.domain = Domain.of(domain)
        self.groups = checked_groups(cliques, self.domain)
        self.limit = limit
        self.potentials = _checked_potentials(potentials, self.groups, self.domain)
        self.report = report
        self.engine = make_engine(self.domain, self.groups, inference, self.limit)
        self.inference = "exact" if isinstance(self.engine, JunctionTree) else "loopy"

    @property
    def cliques(self) -> list[Clique]:
        """Every clique of the model, tied ones one by one."""
        return [member for group in self.groups for member in group]

    @cached_property
    def beliefs(self) -> Beliefs | LoopyBeliefs:
        """What inference found: the log partition function and marginals, and for loopy ones the convergence report."""
        return self.engine.infer(
            [table[None] for table, group in zip(self.potentials, self.groups, strict=True) for _ in group]
        )

    @property
    def log_partition(self) -> float:
        """The log of the normalising constant, A(θ); Bethe's approximation where inference is loopy."""
        return float(self.beliefs.log_partition[0])

    def marginal(self, clique: str | Iterable[str]) -> Array:
        """Return the marginal probabilities of any set of variables, axes in the order of ``clique``.

        Exact inference takes any variables that fit in a junction tree, loopy inference those of a clique.
        """
        names = self._variables(clique)
        wanted = self.domain.indices(names)
        if isinstance(self.beliefs, LoopyBeliefs):
            return self._loopy_marginal(wanted, names)
        assert isinstance(self.engine, JunctionTree)
        if self.engine.holds(wanted):
            holding = [i for i, node in enumerate(self.engine.nodes) if set(wanted) <= set(node.variables)]
            home = min(holding, key=lambda i: self.beliefs.nodes[i].size)  # type: ignore[union-attr]
            return _summed(self.beliefs.nodes[home][0], self.engine.nodes[home].variables, wanted)
        return self._joint_marginals([wanted])[0]

    def _variables(self, clique: str | Iterable[str]) -> Clique:
        given = in_order("clique", clique)
        names = (given,) if isinstance(given, str) else tuple(given) if isinstance(given, Iterable) else (None,)
        if not all(isinstance(name, str) for name in names):
            raise TypeError(f"clique must be a name or a tuple of names, got {clique!r}")
        return checked_clique("clique", names, self.domain)

    def _loopy_marginal(self, wanted: tuple[int, ...], names: Clique) -> Array:
        assert isinstance(self.beliefs, LoopyBeliefs)
        if len(wanted) == 1:
            return self.beliefs.singles[wanted[0]].copy()
        for variables, table in zip(self.engine.cliques, self.beliefs.marginals, strict=True):
            if set(wanted) <= set(variables):
                return _summed(table[0], variables, wanted)
        raise ValueError(f"clique must lie within a clique of the model where inference is loopy, got {names}")

    def _joint_marginals(self, wanted: Sequence[tuple[int, ...]]) -> list[Array]:
        """Return exact marginals of several sets of variables, from one junction tree that holds them all."""
        if self.inference == "loopy":
            names = [tuple(self.domain.names[v] for v in each) for each in wanted]
            return [self._loopy_marginal(each, name) for each, name in zip(wanted, names, strict=True)]
        own = [self.domain.indices(member) for member in self.cliques]
        tables = [table[None] for table, group in zip(self.potentials, self.groups, strict=True) for _ in group]
        zeros = [np.zeros((1, *(self.domain.sizes[v] for v in each))) for each in wanted]
        tree = JunctionTree(self.domain.sizes, [*own, *wanted], limit=self.limit)
        return [table[0] for table in tree.infer([*tables, *zeros]).marginals[len(own) :]]

    def log_prob(self, records: pd.DataFrame) -> Array:
        """Return the log probability of each of the ``records``, with a column for each variable, in labels or codes.

        Where inference is loopy the normalising constant is Bethe's approximation.
        """
        if not isinstance(records, pd.DataFrame):
            raise TypeError(f"records must be a DataFrame with the variables as columns, got {type(records).__name__}")
        missing = [name for name in self.domain.names if name not in records.columns]
        if missing:
            raise ValueError(f"records must have a column for every variable: {missing} are missing")
        codes = {
            name: self.domain.codes(name, records[name].to_numpy(), argument="records") for name in self.domain.names
        }
        total = np.full(len(records), -self.log_partition)
        for table, group in zip(self.potentials, self.groups, strict=True):
            for member in group:
                total += table[tuple(codes[name] for name in member)]
        return total

    def sample(self, n: int, rng: np.random.Generator | None = None) -> pd.DataFrame:
        """Return ``n`` synthetic records by ``rng``, one column per variable, in labels or codes like the domain's.

        The draws are independent and exact where inference is exact, else those of n chains of Gibbs sampling after
        200 sweeps.
        """
        count, generator = integer("n", n, least=0), analyst_generator(rng)
        if isinstance(self.engine, JunctionTree):
            assert isinstance(self.beliefs, Beliefs)
            return self.domain.frame(self.engine.sample(self.beliefs, count, generator))
        return self.domain.frame(self._gibbs(count, generator))

    def _gibbs(self, n: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """Run n chains side by side: every sweep redraws each variable given its neighbours."""
        codes = np.stack([rng.integers(0, size, n) for size in self.domain.sizes], axis=1)
        touching: list[list[tuple[Array, tuple[int, ...]]]] = [[] for _ in self.domain.sizes]
        for table, group in zip(self.potentials, self.groups, strict=True):
            for member in group:
                variables = self.domain.indices(member)
                for axis, v in enumerate(variables):
                    others = tuple(u for u in variables if u != v)
                    touching[v].append((np.moveaxis(table, axis, -1), others))
        for _ in range(_SWEEPS):
            for v, size in enumerate(self.domain.sizes):
                logits = np.zeros((n, size))
                for table, others in touching[v]:
                    logits += table[tuple(codes[:, u] for u in others)]
                codes[:, v] = (logits + rng.gumbel(size=logits.shape)).argmax(axis=1)
        return codes

    def entropy(self) -> float:
        """Return the entropy in nats: A(θ) less the mean of the potentials; Bethe's where inference is loopy."""
        return self.log_partition - self._mean_potential(self.beliefs.marginals)

    def _mean_potential(self, marginals: Sequence[Array]) -> float:
        expanded = [table for table, group in zip(self.potentials, self.groups, strict=True) for _ in group]
        return float(sum((t * m.reshape(t.shape)).sum() for t, m in zip(expanded, marginals, strict=True)))

    def kl(self, other: MarkovRandomField) -> float:
        """Return the Kullback–Leibler divergence of an ``other`` field of the same variables, KL(self‖other), in nats.

        The graphs may differ: this field's marginals on the other's cliques come from one junction tree for both. Exact
        where both inferences are exact.
        """
        if not isinstance(other, MarkovRandomField):
            raise TypeError(f"other must be a MarkovRandomField, got {type(other).__name__}")
        mine = dict(zip(self.domain.names, zip(self.domain.sizes, self.domain.labels, strict=True), strict=True))
        theirs = dict(zip(other.domain.names, zip(other.domain.sizes, other.domain.labels, strict=True), strict=True))
        if mine != theirs:
            raise ValueError(f"other must have the same variables and states, got {theirs} beside {mine}")
        if other.groups == self.groups and other.domain.names == self.domain.names:
            crossed = [table[0] for table in self.beliefs.marginals]
        else:
            crossed = self._joint_marginals([self.domain.indices(member) for member in other.cliques])
        own = self._mean_potential(self.beliefs.marginals) - self.log_partition
        value = own - (other._mean_potential(crossed) - other.log_partition)
        exact = self.inference == other.inference == "exact"
        return max(value, 0.0) if exact else value

    def with_potentials(self, potentials: Sequence[ArrayLike], report: FitReport | None = None) -> MarkovRandomField:
        """Return a field of the same graph, junction tree shared, with ``potentials`` found as ``report`` says."""
        twin = object.__new__(MarkovRandomField)
        twin.domain, twin.groups, twin.limit = self.domain, self.groups, self.limit
        twin.potentials = _checked_potentials(potentials, self.groups, self.domain)
        twin.report, twin.engine, twin.inference = report, self.engine, self.inference
        return twin

    def __repr__(self) -> str:
        names = "; ".join(group_name(group) for group in self.groups)
        fitted = f", {self.report.method}" if self.report else ""
        return f"MarkovRandomField({len(self.domain.names)} variables; {names}; {self.inference}{fitted})"

    def _repr_html_(self) -> str:
        report = self.report
        settled = "" if report is None else "converged" if report.converged else "not converged"
        fitted = f", fitted by {report.method} ({settled})" if report else ""
        variables = _html.several([f"{v} ({k})" for v, k in zip(self.domain.names, self.domain.sizes, strict=True)])
        return _html.table(
            f"Markov random field of {variables}; {self.inference} inference{fitted}",
            ["clique", "table", "cliques that share it"],
            [
                [" × ".join(group[0]), " × ".join(map(str, table.shape)), len(group)]
                for group, table in zip(self.groups, self.potentials, strict=True)
            ],
        )


def random_field(
    domain: Domain | Mapping[str, Any],
    cliques: Sequence[Any],
    *,
    inference: str = "auto",
    rng: np.random.Generator | None = None,
) -> MarkovRandomField:
    """Return a random estimator, the source's reference for "learned nothing"; it sees no data.

    The source draws marginals at random and fits potentials to them. Tables drawn one by one are not the marginals of
    anything, and have no maximum-likelihood fit; so here potentials are drawn, each table of them the log of a uniform
    Dirichlet draw, and the marginals are theirs, of which they are the maximum-likelihood fit. Explained in
    :doc:`/book/graphical-models/learning-from-noisy-tables`.

    Parameters
    ----------
    domain, cliques
        As in :func:`dpbook.graphical.release`.
    inference : {"auto", "exact", "loopy"}
        As in ``MarkovRandomField``.
    rng : numpy.random.Generator, optional

    Returns
    -------
    MarkovRandomField
        With ``report.method`` "random".

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook.graphical import random_field
    >>> random_field({"a": 2, "b": 3}, [("a", "b")], rng=np.random.default_rng(0)).marginal("a").round(2)
    array([0.44, 0.56])
    """
    known, generator = Domain.of(domain), analyst_generator(rng)
    groups = checked_groups(cliques, known)
    drawn = [generator.standard_exponential(known.shape(group[0])) for group in groups]
    report = FitReport("random", 0, True, "drawn, not fitted", float("nan"))
    potentials = [np.log(np.maximum(table / table.sum(), 1e-300)) for table in drawn]
    return MarkovRandomField(known, [list(group) for group in groups], potentials, inference=inference, report=report)


def make_engine(domain: Domain, groups: Groups, inference: str, limit: int) -> JunctionTree | LoopyGraph:
    """Return the engine that runs inference; raise where exact inference is asked for and out of reach."""
    cliques = [domain.indices(member) for group in groups for member in group]
    one_of("inference", inference, ("auto", "exact", "loopy"))
    limit = integer("limit", limit, least=1)
    if inference == "exact" or (inference == "auto" and largest_table(domain.sizes, cliques) <= limit):
        return JunctionTree(domain.sizes, cliques, limit=limit)
    return LoopyGraph(domain.sizes, cliques)


def _checked_potentials(
    potentials: Sequence[ArrayLike] | Mapping[str, ArrayLike], groups: Groups, domain: Domain
) -> list[Array]:
    names = [group_name(group) for group in groups]
    if isinstance(potentials, Mapping):
        if set(potentials) != set(names):
            raise ValueError(f"potentials must have the names of the cliques, {names}, got {list(potentials)}")
        given = [potentials[name] for name in names]
    else:
        given = list(potentials)
    if len(given) != len(groups):
        raise ValueError(f"potentials must hold a table for each of {len(groups)} cliques, got {len(given)}")
    checked = []
    for name, group, table in zip(names, groups, given, strict=True):
        array = finite_array(f"potentials[{name!r}]", table)
        if array.shape != domain.shape(group[0]):
            raise ValueError(f"potentials[{name!r}] must have shape {domain.shape(group[0])}, got {array.shape}")
        checked.append(array.copy())  # the caller's array may change; what inference found would not
    return checked


def _summed(table: Array, variables: Sequence[int], wanted: Sequence[int]) -> Array:
    """Return the marginal of ``wanted``, axes in its order, from a table whose axes are ``variables``."""
    kept = [v for v in variables if v in wanted]
    total = table.sum(axis=tuple(axis for axis, v in enumerate(variables) if v not in wanted))
    return np.asarray(total.transpose([kept.index(v) for v in wanted]))
