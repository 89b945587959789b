"""Undirected graphical models under differential privacy: noisy clique tables, and fields learned from them.

Chapter 5 explains them. :func:`release` and :func:`release_dpsgd` read records and spend budget; :func:`fit` reads a
release only, and :func:`analyse` gives intervals for what is computed from synthetic records of a field;
:func:`fit_nonprivate` reads records and is not private, as its name says. :mod:`dpbook.graphical.hmm` holds models with
hidden states.
"""

from dpbook.graphical import hmm
from dpbook.graphical.analysis import Analysis, analyse, combine, replicate
from dpbook.graphical.collective import Expectation, Passed, expectation, log_multiplicity, nlbp, objective
from dpbook.graphical.counting import CliqueTables, clique_tables
from dpbook.graphical.domain import Domain, chain
from dpbook.graphical.dpsgd import release_dpsgd
from dpbook.graphical.field import FitReport, MarkovRandomField, random_field
from dpbook.graphical.inference import field_of, fit, noise_aware_ridge
from dpbook.graphical.nonprivate import fit_nonprivate, tune_dpsgd_nonprivate
from dpbook.graphical.previews import preview
from dpbook.graphical.releases import release
from dpbook.graphical.tables import NoisyTables, project_to_simplex, tables_of
from dpbook.graphical.training import Training, gradient_noise

__all__ = [
    "Analysis",
    "CliqueTables",
    "Domain",
    "Expectation",
    "FitReport",
    "MarkovRandomField",
    "NoisyTables",
    "Passed",
    "Training",
    "analyse",
    "chain",
    "clique_tables",
    "combine",
    "expectation",
    "field_of",
    "fit",
    "fit_nonprivate",
    "gradient_noise",
    "hmm",
    "log_multiplicity",
    "nlbp",
    "noise_aware_ridge",
    "objective",
    "preview",
    "project_to_simplex",
    "random_field",
    "release",
    "release_dpsgd",
    "replicate",
    "tables_of",
    "tune_dpsgd_nonprivate",
]
