"""What a steward must know about each data set before releasing anything: source, licence, unit of privacy, bounds.

The bounds are a priori, so a release may clip to them without spending budget; values beyond them are clipped.
Reasons for each of them are on the page :doc:`/book/reference/datasets`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from dpbook._late import pd
from dpbook._validation import one_of
from dpbook.datasets import codebook, loaders

__all__ = ["DATASETS", "DataSet", "bounds", "domains"]


@dataclass(frozen=True)
class DataSet:
    """The public facts about one data set. Explained in :doc:`/book/reference/datasets`.

    Attributes
    ----------
    name : str
        Its key in ``DATASETS``; the loader is ``load_<name>``.
    title : str
        What it holds, in a few words.
    loader : callable
        Returns it as a DataFrame.
    rows : int
        Rows of that frame, by default arguments.
    unit : str
        Unit of privacy: what one record is.
    licence : str
        Under which terms it is used here.
    source : str
        Where it comes from.
    bounds : mapping of str to (float, float)
        A-priori bounds of the numeric attributes of one record.
    domains : mapping of str to tuple
        The values that the discrete attributes can take.

    Examples
    --------
    >>> DATASETS["cps_earnings"].unit
    'a worker'
    """

    name: str
    title: str
    loader: Callable[[], pd.DataFrame]
    rows: int
    unit: str
    licence: str
    source: str
    bounds: Mapping[str, tuple[float, float]] = field(default_factory=lambda: MappingProxyType({}))
    domains: codebook.Domain = field(default_factory=lambda: MappingProxyType({}))


def bounds(name: str) -> dict[str, tuple[float, float]]:
    """Return the a-priori bounds of the numeric attributes of a data set. Explained in :doc:`/book/reference/datasets`.

    Parameters
    ----------
    name : str
        A key of ``DATASETS``.

    Returns
    -------
    dict of str to (float, float)
        Column to (low, high): from the subject, never from the data, so using them costs no privacy.

    Examples
    --------
    >>> bounds("cps_earnings")["education"]
    (0.0, 20.0)
    """
    return dict(_entry(name).bounds)


def domains(name: str) -> dict[str, tuple[str, ...] | tuple[int, ...]]:
    """Return the values that the discrete attributes of a data set can take.

    Parameters
    ----------
    name : str
        A key of ``DATASETS``.

    Returns
    -------
    dict of str to tuple
        Column to its values, in the order of their codes: from the code book, never from the data.

    Examples
    --------
    >>> domains("adult")["hours"]
    ('lt35', '35-40', 'gt40')

    Explained in :doc:`/book/reference/datasets`.
    """
    return dict(_entry(name).domains)


def _entry(name: str) -> DataSet:
    return DATASETS[one_of("name", name, tuple(DATASETS))]


_ALL = (
    DataSet(
        name="cirrhosis",
        title="Drinking and deaths from cirrhosis, 46 states",
        loader=loaders.load_cirrhosis,
        rows=46,
        unit="a state",
        licence="numerical facts, no licence stated",
        source="Brownlee (1965), Spaeth (1991), in the regression collection of J. Burkardt (x20)",
        bounds=MappingProxyType(
            {
                "urban_pct": (0.0, 100.0),
                "late_births_recip100": (0.0, 100.0),
                "wine_per_capita": (0.0, 200.0),
                "liquor_per_capita": (0.0, 200.0),
                "cirrhosis_death_rate": (0.0, 200.0),
            }
        ),
    ),
    DataSet(
        name="opportunity_cells",
        title="Income ranks of parents and children, fictitious, 111 cells",
        loader=loaders.load_opportunity_cells,
        rows=10_000,
        unit="a fictitious parent-child pair",
        licence="CC BY 4.0",
        source="Opportunity Insights, with Chetty and Friedman (2019)",
        bounds=MappingProxyType({"parent_rank": (0.0, 1.0), "kid_rank": (0.0, 1.0)}),
        domains=codebook.OPPORTUNITY_CELLS,
    ),
    DataSet(
        name="cps_earnings",
        title="Hourly earnings of full-time workers, USA, 2004",
        loader=loaders.load_cps_earnings,
        rows=61_395,
        unit="a worker",
        licence="US government survey, public-use data",
        source="March 2005 Current Population Survey, in the extract of Stock and Watson (2007)",
        bounds=MappingProxyType({"earnings": (1.0, 100.0), "education": (0.0, 20.0), "age": (16.0, 65.0)}),
        domains=codebook.CPS_EARNINGS,
    ),
    DataSet(
        name="acs2019",
        title="American Community Survey 2019, adults, eight attributes",
        loader=loaders.load_acs2019,
        rows=1_671,
        unit="a person",
        licence="US government work",
        source="NIST Diverse Communities Data Excerpts, doi:10.18434/mds2-2895",
        bounds=MappingProxyType({"count": (0.0, 1.0)}),
        domains=codebook.ACS2019,
    ),
    DataSet(
        name="adult",
        title="UCI Adult, seven attributes",
        loader=loaders.load_adult,
        rows=1_870,
        unit="a person",
        licence="CC BY 4.0",
        source="Becker and Kohavi (1996), UCI Machine Learning Repository, doi:10.24432/C5XW20",
        bounds=MappingProxyType({"count": (0.0, 1.0)}),
        domains=codebook.ADULT,
    ),
    DataSet(
        name="chicago_taxi",
        title="Taxi trips between the community areas of Chicago",
        loader=loaders.load_chicago_taxi,
        rows=2_521,
        unit="a trip",
        licence="City of Chicago Data Portal terms of use",
        source="City of Chicago open data, as used in the NIST temporal map challenge",
        bounds=MappingProxyType({"trips": (0.0, 1.0)}),
        domains=codebook.CHICAGO_TAXI,
    ),
    DataSet(
        name="chicago_areas",
        title="Names of the community areas of Chicago",
        loader=loaders.load_chicago_areas,
        rows=77,
        unit="none: a public map",
        licence="City of Chicago Data Portal terms of use",
        source="City of Chicago",
        domains=codebook.CHICAGO_AREAS,
    ),
    DataSet(
        name="iraq_sigacts",
        title="Recorded attacks in Iraq by governorate and month",
        loader=loaders.load_iraq_sigacts,
        rows=1_098,
        unit="an incident",
        licence="none stated; counts of events, used with citation",
        source="Empirical Studies of Conflict (Princeton), from MNF-I SIGACT reports",
        bounds=MappingProxyType(
            {
                "sigact_all": (0.0, 1.0),
                "sigact_excl": (0.0, 1.0),
                "direct_fire": (0.0, 1.0),
                "indirect_fire": (0.0, 1.0),
                "suicide_attack": (0.0, 1.0),
                "ied_attack": (0.0, 1.0),
                "ied_clear": (0.0, 1.0),
            }
        ),
        domains=codebook.IRAQ_SIGACTS,
    ),
    DataSet(
        name="fair",
        title="Marriage and extramarital affairs: a magazine survey",
        loader=loaders.load_fair,
        rows=6_366,
        unit="a respondent",
        licence="in statsmodels with the permission of the author",
        source="Fair (1978)",
        bounds=MappingProxyType(
            {
                "rate_marriage": (1.0, 5.0),
                "age": (17.5, 42.0),
                "yrs_married": (0.5, 23.0),
                "children": (0.0, 5.5),
                "religious": (1.0, 4.0),
                "educ": (9.0, 20.0),
                "occupation": (1.0, 6.0),
                "occupation_husb": (1.0, 6.0),
                "affairs": (0.0, 288.0),
            }
        ),
    ),
    DataSet(
        name="randhie",
        title="RAND Health Insurance Experiment",
        loader=loaders.load_randhie,
        rows=20_190,
        unit="a person-year",
        licence="public domain",
        source="RAND Corporation, after Cameron and Trivedi (2005)",
        bounds=MappingProxyType(
            {
                "mdvis": (0.0, 52.0),
                "lncoins": (0.0, math.log(101)),
                "idp": (0.0, 1.0),
                "lpi": (0.0, math.log(2000)),
                "fmde": (0.0, math.log(4000)),
                "physlm": (0.0, 1.0),
                "disea": (0.0, 100.0),
                "hlthg": (0.0, 1.0),
                "hlthf": (0.0, 1.0),
                "hlthp": (0.0, 1.0),
            }
        ),
    ),
)

DATASETS: Mapping[str, DataSet] = MappingProxyType({entry.name: entry for entry in _ALL})
