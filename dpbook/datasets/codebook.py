"""The values that the discrete attributes of each data set can take, from code books and maps, not from the data.

Loaders use them as categories, so ``column.cat.codes`` are the codes of the public domain even where a value never
occurs. Listed in :doc:`/book/reference/datasets`.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

__all__ = ["ACS2019", "ADULT", "CHICAGO_AREAS", "CHICAGO_TAXI", "CPS_EARNINGS", "IRAQ_SIGACTS", "OPPORTUNITY_CELLS"]

Domain = Mapping[str, tuple[str, ...] | tuple[int, ...]]

ACS2019: Domain = MappingProxyType(
    {
        "age": ("18-29", "30-44", "45-64", "65+"),
        "sex": ("female", "male"),
        "education": ("no_hs", "hs_ged", "some_college_assoc", "bachelors", "advanced"),
        "married": ("no", "yes"),
        "tenure": ("own", "rent", "group_quarters"),
        "cognitive_diff": ("no", "yes"),
        "mobility_diff": ("no", "yes"),
        "income": ("low30", "mid30", "upper20", "top20"),
    }
)
ADULT: Domain = MappingProxyType(
    {
        "age": ("17-24", "25-34", "35-44", "45-54", "55-64", "65+"),
        "education": ("no_hs", "hs_grad", "some_college", "bachelors", "advanced"),
        "marital": ("never", "married", "formerly"),
        "hours": ("lt35", "35-40", "gt40"),
        "sex": ("Female", "Male"),
        "race": ("Black", "White", "Other"),
        "income": ("le50K", "gt50K"),
    }
)
CPS_EARNINGS: Domain = MappingProxyType({"gender": ("f", "m")})
_AREAS = tuple(range(1, 78))
CHICAGO_AREAS: Domain = MappingProxyType({"area": _AREAS})
CHICAGO_TAXI: Domain = MappingProxyType({"pickup_area": _AREAS, "dropoff_area": _AREAS})
OPPORTUNITY_CELLS: Domain = MappingProxyType({"cell": tuple(range(1, 112))})
IRAQ_SIGACTS: Domain = MappingProxyType(
    {
        "governorate": (
            "Anbar",
            "Babylon",
            "Baghdad",
            "Basrah",
            "Dahuk",
            "Diyala",
            "Erbil",
            "Kerbala",
            "Missan",
            "Muthanna",
            "Najaf",
            "Ninewa",
            "Qadissiya",
            "Salah al-Din",
            "Sulaymaniyah",
            "Tameem",
            "Thi-Qar",
            "Wassit",
        )
    }
)
