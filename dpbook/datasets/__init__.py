"""The book's data sets: loaders, and for each set where it comes from, whose privacy is at stake and its bounds.

Bounds and domains here are *a priori*: they come from the subject (hours, years of schooling, a questionnaire's
codes), so a release may use them without paying. The observed range of the data is itself sensitive. Every set is
described in :doc:`/book/reference/datasets`.
"""

from __future__ import annotations

from dpbook.datasets.catalogue import DATASETS, DataSet, bounds, domains
from dpbook.datasets.loaders import (
    load_acs2019,
    load_adult,
    load_chicago_areas,
    load_chicago_taxi,
    load_cirrhosis,
    load_cps_earnings,
    load_fair,
    load_iraq_sigacts,
    load_opportunity_cells,
    load_randhie,
)

__all__ = [
    "DATASETS",
    "DataSet",
    "bounds",
    "domains",
    "load_acs2019",
    "load_adult",
    "load_chicago_areas",
    "load_chicago_taxi",
    "load_cirrhosis",
    "load_cps_earnings",
    "load_fair",
    "load_iraq_sigacts",
    "load_opportunity_cells",
    "load_randhie",
]
