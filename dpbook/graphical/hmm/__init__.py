"""Hidden Markov models of event counts: private releases of the table, private Gibbs sampling, and inference.

Chapter 5 explains them. The data are a table of events, place by month by type; one event is the unit of privacy.
"""

from dpbook.graphical.hmm.inference import METHODS, infer
from dpbook.graphical.hmm.model import Prior, log_likelihood, simulate_states, sort_states
from dpbook.graphical.hmm.nonprivate import infer_nonprivate
from dpbook.graphical.hmm.previews import preview
from dpbook.graphical.hmm.releases import release_counts, release_gibbs

__all__ = [
    "METHODS",
    "Prior",
    "infer",
    "infer_nonprivate",
    "log_likelihood",
    "preview",
    "release_counts",
    "release_gibbs",
    "simulate_states",
    "sort_states",
]
