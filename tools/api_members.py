"""Explain each name once in the API: what a package hands on from the core, such as a prior, the core's page has."""

from __future__ import annotations

import sys
from typing import Any


def _is_anothers(app: Any, what: str, name: str, thing: Any, skip: bool, options: Any) -> bool | None:
    package = app.env.temp_data.get("autodoc:module", "")
    if what != "module" or not hasattr(sys.modules.get(package), "__path__"):
        return None
    home = getattr(thing, "__module__", None) or package  # constants have none
    return None if f"{home}.".startswith(f"{package}.") else True


def setup(app: Any) -> dict[str, Any]:
    """Ask before autodoc lists a member."""
    app.connect("autodoc-skip-member", _is_anothers)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
