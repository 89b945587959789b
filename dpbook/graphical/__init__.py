"""Undirected graphical models under differential privacy: noisy clique tables, and fields learned from them.

Chapter 5 explains them. :func:`release` reads records and spends budget; :func:`fit` reads a release only;
:func:`fit_nonprivate` reads records and is not private, as its name says. :mod:`dpbook.graphical.hmm` holds models with
hidden states.
"""

from dpbook.graphical import hmm
from dpbook.graphical.collective import Expectation, Passed, expectation, log_multiplicity, nlbp, objective
from dpbook.graphical.domain import Domain, chain
from dpbook.graphical.dpsgd import release_dpsgd
from dpbook.graphical.field import FitReport, MarkovRandomField
from dpbook.graphical.learning import fit, fit_nonprivate, noise_aware_ridge, problem_of, project_to_simplex
from dpbook.graphical.problem import Problem
from dpbook.graphical.releases import CliqueTables, Preview, clique_tables, preview, release

__all__ = [
    "CliqueTables",
    "Domain",
    "Expectation",
    "FitReport",
    "MarkovRandomField",
    "Passed",
    "Preview",
    "Problem",
    "chain",
    "clique_tables",
    "expectation",
    "fit",
    "fit_nonprivate",
    "hmm",
    "log_multiplicity",
    "nlbp",
    "noise_aware_ridge",
    "objective",
    "preview",
    "problem_of",
    "project_to_simplex",
    "release",
    "release_dpsgd",
]
