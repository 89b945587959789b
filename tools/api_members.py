"""Explain each name once in the API.

What a package hands on from the core, such as a prior, the core's page has; a method that a class writes anew, such as
the moments of one family among several, the class that asks for it explains.
"""

from __future__ import annotations

import sys
from typing import Any


def _is_anothers(app: Any, what: str, name: str, thing: Any, skip: bool, options: Any) -> bool | None:
    if what == "class":
        return True if _is_of_a_base(name, getattr(thing, "fget", thing)) else None
    package = app.env.temp_data.get("autodoc:module", "")
    if what != "module" or not hasattr(sys.modules.get(package), "__path__"):
        return None
    home = getattr(thing, "__module__", None) or package  # constants have none
    return None if f"{home}.".startswith(f"{package}.") else True


def _is_of_a_base(name: str, function: Any) -> bool:
    """Tell whether a method has the name of one that a base of its class documents."""
    home = sys.modules.get(getattr(function, "__module__", None) or "")
    cls = getattr(home, getattr(function, "__qualname__", "").split(".")[0], None)
    bases = [base for base in getattr(cls, "__mro__", ())[1:] if base.__module__.startswith("dpbook")]
    return not name.startswith("_") and any(getattr(vars(base).get(name), "__doc__", None) for base in bases)


def setup(app: Any) -> dict[str, Any]:
    """Ask before autodoc lists a member."""
    app.connect("autodoc-skip-member", _is_anothers)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
