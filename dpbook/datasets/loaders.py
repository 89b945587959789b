"""One function per data set, each returning a pandas DataFrame with documented columns.

The raw data are public and returned as they are: what a chapter protects is whatever the data set's unit of privacy
says. Explained in :doc:`/book/reference/datasets`.
"""

from __future__ import annotations

import importlib
from importlib import resources
from typing import Any

from dpbook._late import pd
from dpbook.datasets import codebook

__all__ = [
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


def load_cirrhosis() -> pd.DataFrame:
    """Load drinking and deaths from cirrhosis in 46 states of the USA.

    Source: data set x20 of J. Burkardt's regression collection, after H. Spaeth, *Mathematical Algorithms for Linear
    Regression* (1991), and K. Brownlee, *Statistical Theory and Methodology* (1965), pp. 464-465.
    Licence: numerical facts from published tables; no licence is stated. Unit of privacy: a state, not a person.
    A-priori bounds: percentages in [0, 100], the scaled reciprocal in [0, 100], and one round scale, [0, 200], for
    the three rates whose unit the sources do not print. Explained in :doc:`/book/reference/datasets`.

    Returns
    -------
    DataFrame
        46 rows: ``index`` (row number), ``urban_pct`` (percentage of the population in towns),
        ``late_births_recip100`` (100 divided by the births to women of 45-49), ``wine_per_capita``,
        ``liquor_per_capita``, ``cirrhosis_death_rate``.

    Examples
    --------
    >>> load_cirrhosis().shape
    (46, 6)
    """
    return _read("cirrhosis")


def load_opportunity_cells() -> pd.DataFrame:
    """Load income ranks of 10,000 fictitious children and their parents in 111 small cells.

    Source: simulated data published by Opportunity Insights with R. Chetty and J. Friedman (2019), *A Practical
    Method to Reduce Privacy Loss when Disclosing Statistics Based on Small Samples*. Licence: CC BY 4.0.
    Unit of privacy: a (fictitious) parent-child pair; cell sizes, 5 to 200, count as public.
    A-priori bounds: ranks lie in [0, 1] by definition. Explained in :doc:`/book/reference/datasets`.

    Returns
    -------
    DataFrame
        10,000 rows: ``cell`` (1 to 111), ``parent_rank``, ``kid_rank``.

    Examples
    --------
    >>> load_opportunity_cells()["cell"].nunique()
    111
    """
    return _read("opportunity_cells")


def load_cps_earnings() -> pd.DataFrame:
    """Load hourly earnings, education and age of 61,395 full-time workers in the USA.

    Source: March 2005 Current Population Survey (Bureau of Labor Statistics and Census Bureau), in the extract of
    J. Stock and M. Watson, *Introduction to Econometrics* (2007); region dropped, earnings rounded to cents.
    Licence: US government survey, public-use data. Unit of privacy: a worker.
    A-priori bounds: earnings in [1, 100] dollars an hour, education in [0, 20] years, age in [16, 65] years. Explained
    in :doc:`/book/reference/datasets`.

    Returns
    -------
    DataFrame
        61,395 rows: ``earnings`` (dollars an hour, 2004), ``education`` (years), ``age`` (years), ``gender``
        (``f`` or ``m``).

    Examples
    --------
    >>> load_cps_earnings().columns.tolist()
    ['earnings', 'education', 'age', 'gender']
    """
    return _read("cps_earnings", codebook.CPS_EARNINGS)


def load_acs2019(*, expand: bool = False) -> pd.DataFrame:
    """Load eight discrete attributes of 22,062 adults from the American Community Survey of 2019.

    Source: NIST Diverse Communities Data Excerpts, national excerpt of 2019, doi:10.18434/mds2-2895, adults of 18
    and over, coarsened. Licence: US government work, in the public domain in the USA. Unit of privacy: a person.
    A-priori bounds: the domain of each attribute; a person adds 1 to one cell. Explained in
    :doc:`/book/reference/datasets`.

    Parameters
    ----------
    expand : bool
        False: one row per cell that occurs, with its ``count``. True: one row per person, without ``count``.

    Returns
    -------
    DataFrame
        1,671 cells or 22,062 people: ``age``, ``sex``, ``education``, ``married``, ``tenure``, ``cognitive_diff``,
        ``mobility_diff`` (difficulties), ``income`` (four groups of deciles), as categories of the public domain.

    Examples
    --------
    >>> int(load_acs2019()["count"].sum()), len(load_acs2019(expand=True))
    (22062, 22062)
    """
    return _counted(_read("acs2019", codebook.ACS2019), "count", expand)


def load_adult(*, expand: bool = False) -> pd.DataFrame:
    """Load seven discrete attributes of the 48,842 people of the UCI Adult data set.

    Source: B. Becker and R. Kohavi (1996), *Adult*, UCI Machine Learning Repository, doi:10.24432/C5XW20, from the
    US census of 1994, coarsened. Licence: CC BY 4.0. Unit of privacy: a person.
    A-priori bounds: the domain of each attribute; a person adds 1 to one cell. Explained in
    :doc:`/book/reference/datasets`.

    Parameters
    ----------
    expand : bool
        False: one row per cell that occurs, with its ``count``. True: one row per person, without ``count``.

    Returns
    -------
    DataFrame
        1,870 cells or 48,842 people: ``age``, ``education``, ``marital``, ``hours`` (worked in a week), ``sex``,
        ``race``, ``income`` (above 50,000 dollars or not), as categories of the public domain.

    Examples
    --------
    >>> int(load_adult()["count"].sum())
    48842
    """
    return _counted(_read("adult", codebook.ADULT), "count", expand)


def load_chicago_taxi(*, expand: bool = False) -> pd.DataFrame:
    """Load 191,593 taxi trips between the 77 community areas of Chicago.

    Source: City of Chicago open data, as used in the NIST differential privacy temporal map challenge; trips with
    an unknown area dropped. Licence: City of Chicago Data Portal terms of use. Unit of privacy: a trip; a passenger
    or a driver may have many. A-priori bounds: the map's 77 areas; a trip adds 1 to one transition. Explained in
    :doc:`/book/reference/datasets`.

    Parameters
    ----------
    expand : bool
        False: one row per transition that occurs, with its number of ``trips``. True: one row per trip.

    Returns
    -------
    DataFrame
        2,521 transitions or 191,593 trips: ``pickup_area``, ``dropoff_area`` (1 to 77, named by
        :func:`load_chicago_areas`).

    Examples
    --------
    >>> int(load_chicago_taxi()["trips"].sum())
    191593
    """
    return _counted(_read("chicago_taxi"), "trips", expand)


def load_chicago_areas() -> pd.DataFrame:
    """Load the names of the 77 community areas of Chicago.

    Source: City of Chicago. Licence: City of Chicago Data Portal terms of use. Unit of privacy: none; the map is
    public. A-priori bounds: none needed. Explained in :doc:`/book/reference/datasets`.

    Returns
    -------
    DataFrame
        77 rows: ``area`` (1 to 77), ``name``.

    Examples
    --------
    >>> load_chicago_areas().set_index("area").loc[8, "name"]
    'Near North Side'
    """
    return _read("chicago_areas")


def load_iraq_sigacts() -> pd.DataFrame:
    """Load monthly counts of recorded attacks in the 18 governorates of Iraq, February 2004 to February 2009.

    Source: Empirical Studies of Conflict project (Princeton), from the SIGACT reports of the Multi-National Force
    Iraq. Licence: none stated; counts of events, to be used with citation. Unit of privacy: an incident; the table
    holds no persons. A-priori bounds: an incident adds at most 1 to a count. Explained in
    :doc:`/book/reference/datasets`.

    Returns
    -------
    DataFrame
        1,098 rows (18 governorates, 61 months): ``month`` (its first day), ``governorate``, and the counts
        ``sigact_all``, ``sigact_excl`` (a narrower total), ``direct_fire``, ``indirect_fire``, ``suicide_attack``,
        ``ied_attack``, ``ied_clear``.

    Examples
    --------
    >>> frame = load_iraq_sigacts()
    >>> frame["governorate"].nunique(), frame["month"].nunique()
    (18, 61)
    """
    frame = _read("iraq_sigacts", codebook.IRAQ_SIGACTS)
    return frame.assign(month=pd.to_datetime(frame["month"], format="%Y-%m"))


def load_fair() -> pd.DataFrame:
    """Load 6,366 wives' answers on their marriage and on extramarital affairs.

    Source: R. Fair (1978), *A Theory of Extramarital Affairs*, Journal of Political Economy 86, from a magazine
    survey; bundled with statsmodels, which must be installed (``pip install dpbook[book]``).
    Licence: included in statsmodels with the permission of the author. Unit of privacy: a respondent.
    A-priori bounds: the end codes of the questionnaire; ``affairs`` is a product of two codes of at most 12 divided
    by years of marriage of at least 0.5, so it lies in [0, 288]. Explained in :doc:`/book/reference/datasets`.

    Returns
    -------
    DataFrame
        6,366 rows of floats: ``rate_marriage`` (1 very poor to 5 very good), ``age``, ``yrs_married``,
        ``children``, ``religious`` (1 not to 4 strongly), ``educ`` (years), ``occupation`` and ``occupation_husb``
        (classes 1 to 6), ``affairs`` (a rate per year of marriage).

    Raises
    ------
    ImportError
        If statsmodels is not installed.

    Examples
    --------
    >>> float((load_fair()["affairs"] > 0).mean().round(3))
    0.322
    """
    return _from_statsmodels("fair")


def load_randhie() -> pd.DataFrame:
    """Load 20,190 person-years of the RAND Health Insurance Experiment.

    Source: RAND Corporation, fieldwork 1974-1982, after A. Cameron and P. Trivedi, *Microeconometrics* (2005);
    bundled with statsmodels, which must be installed (``pip install dpbook[book]``).
    Licence: public domain. Unit of privacy: a person-year. A person took part for three or five years and the file
    holds no identifier, so what costs epsilon per row can cost a person five times epsilon.
    A-priori bounds: 52 visits a year, and the design of the experiment (see the page of the book). Explained in
    :doc:`/book/reference/datasets`.

    Returns
    -------
    DataFrame
        20,190 rows: ``mdvis`` (visits to a doctor), ``lncoins`` (log of the coinsurance percentage plus 1), ``idp``
        (individual deductible plan), ``lpi`` (log of the participation incentive), ``fmde`` (log of the maximum
        expenditure over the coinsurance rate), ``physlm`` (physical limitation, with fractions where filled in),
        ``disea`` (index of chronic diseases, a percentage), ``hlthg``, ``hlthf``, ``hlthp`` (health good, fair,
        poor; otherwise excellent).

    Raises
    ------
    ImportError
        If statsmodels is not installed.

    Examples
    --------
    >>> load_randhie().shape
    (20190, 10)
    """
    return _from_statsmodels("randhie")


def _read(name: str, domain: codebook.Domain | None = None) -> pd.DataFrame:
    """Read a CSV of this folder; columns with a domain become categories of that domain, in its order."""
    with resources.files("dpbook.datasets").joinpath(f"{name}.csv").open(encoding="utf-8") as file:
        frame = pd.read_csv(file)
    for column, values in (domain or {}).items():
        frame[column] = pd.Categorical(frame[column], categories=list(values))
    return frame


def _counted(cells: pd.DataFrame, count: str, expand: bool) -> pd.DataFrame:
    """Return the table of cells, or each cell repeated as often as it was counted."""
    if not expand:
        return cells
    return cells.loc[cells.index.repeat(cells[count])].drop(columns=count).reset_index(drop=True)


def _from_statsmodels(name: str) -> pd.DataFrame:
    try:
        module: Any = importlib.import_module(f"statsmodels.datasets.{name}")
    except ImportError as error:
        raise ImportError(f"the data set {name!r} comes with statsmodels: pip install dpbook[book]") from error
    frame: pd.DataFrame = module.load_pandas().data
    return frame
