"""Tell works of the same authors and year apart: 2006a and 2006b, in the text and in the bibliography.

The text cites by author and year, which is ambiguous where two works share both. Letters follow the titles.
"""

from __future__ import annotations

from collections import defaultdict
from string import ascii_lowercase
from typing import Any


def shown_authors(work: Any) -> str:
    """Return the authors of a bibliography entry as a citation names them: two at most, else the first and others."""
    people = work.persons.get("author") or work.persons.get("editor") or []
    names = [" ".join([*person.prelast_names, *person.last_names]) for person in people]
    return " and ".join(names) if len(names) < 3 else f"{names[0]} et al."


def lettered_years(works: dict[str, Any]) -> dict[str, str]:
    """Return, for each key whose citation would be ambiguous, its year with a letter."""
    alike = defaultdict(list)
    for key, work in works.items():
        if work.fields.get("year", "").isdigit():
            alike[shown_authors(work), work.fields["year"]].append(key)
    found = {}
    for (_, year), keys in alike.items():
        in_order = sorted(keys, key=lambda key: works[key].fields.get("title", "").lower()) if len(keys) > 1 else []
        found.update({key: year + letter for key, letter in zip(in_order, ascii_lowercase, strict=False)})
    return found


def _letter(app: Any, env: Any) -> None:
    works = env.get_domain("cite").bibdata.data.entries
    for key, year in lettered_years(dict(works.items())).items():
        works[key].fields["year"] = year


def setup(app: Any) -> dict[str, Any]:
    """Run before the bibliography formats its citations, which it does on the same event."""
    app.connect("env-updated", _letter, priority=100)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
