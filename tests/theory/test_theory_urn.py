"""Kept records are post-processing of redrawn ones: the kernel of the proof, enumerated in fractions."""

import itertools
from fractions import Fraction

import numpy as np
import pytest

from dpbook import theory
from dpbook.theory import BetaBernoulli


def urn(record, a, total):
    """The probability of a sequence of records from one draw of Beta(a, total - a), by the chain rule."""
    probability, ones = Fraction(1), 0
    for j, x in enumerate(record):
        one = (a + ones) / (total + j)
        probability *= one if x else 1 - one
        ones += x
    return probability


def merged(first, second, total):
    """The law of the records that the proof's recipe puts out, given two groups; it knows ``total`` and no data."""
    law = {}

    def go_on(out, linked, taken, probability):
        if len(out) == len(first) + len(second):
            law[out] = law.get(out, 0) + probability
            return
        i, j = len(out), taken
        if j < len(second):
            go_on((*out, second[j]), linked, j + 1, probability * (total + j) / (total + i))
        for x in linked:
            go_on((*out, x), (*linked, x), j, probability / (total + i))

    go_on(tuple(first), tuple(first), 0, Fraction(1))
    return law


@pytest.mark.parametrize(("a", "total"), [(Fraction(13, 10), Fraction(11, 2)), (Fraction(1, 2), Fraction(4))])
@pytest.mark.parametrize("sizes", [(1, 1), (2, 1), (1, 3), (2, 2), (3, 2)])
def test_two_merged_groups_are_one_group_exactly(a, total, sizes):
    records = {size: list(itertools.product((0, 1), repeat=size)) for size in sizes}
    law = {}
    for first in records[sizes[0]]:
        for second in records[sizes[1]]:
            weight = urn(first, a, total) * urn(second, a, total)
            for out, probability in merged(first, second, total).items():
                law[out] = law.get(out, 0) + weight * probability
    for out in itertools.product((0, 1), repeat=sum(sizes)):
        assert law[out] == urn(out, a, total)


def test_the_recipe_is_a_probability_and_copies_only_what_it_has_seen():
    law = merged((1, 0), (1, 1), Fraction(3))
    assert sum(law.values()) == 1
    assert all(out[:2] == (1, 0) for out in law)


def test_redrawn_records_reach_every_grouping_by_merging():
    """From four groups of one record to one group of four, three merges; the law is that of one kept draw."""
    a, total = Fraction(7, 5), Fraction(9, 2)
    law = {(x,): urn((x,), a, total) for x in (0, 1)}
    for _ in range(3):
        step = {}
        for (first, weight), second in itertools.product(law.items(), ((0,), (1,))):
            for out, probability in merged(first, second, total).items():
                step[out] = step.get(out, 0) + weight * urn(second, a, total) * probability
        law = step
    assert all(law[out] == urn(out, a, total) for out in itertools.product((0, 1), repeat=4))


def test_profiles_are_ordered_by_the_number_of_draws():
    """The consequence, at every epsilon of a grid, over all neighbours."""
    epsilon = np.array([0.0, 0.02, 0.1, 0.4, 1.0, 2.0])
    rng = np.random.default_rng(10)
    for _ in range(12):
        prior, n = BetaBernoulli(*(0.2 + rng.gamma(1, 4, size=2))), int(rng.integers(1, 40))
        curves = [
            theory.privacy_profile("synthetic-bayes", prior, n, m=12, redraw=k, epsilon=epsilon) for k in (1, 2, 4, 12)
        ]
        for fewer, more in itertools.pairwise(curves):
            assert np.all(fewer <= more * (1 + 2e-6) + 1e-15)
