"""Keep out of every page the scripts of live cells, which this book does not use.

They come with the builder, are declared twice on every page, which the browser reports as an error, and would load
from a network.
"""

from __future__ import annotations

from typing import Any


def _is_unused(script: Any) -> bool:
    body = getattr(script, "attributes", {}).get("body") or ""
    return "THEBE_JS_URL" in body or "sphinx-thebe" in str(getattr(script, "filename", "") or "")


def _drop_scripts(app: Any, page: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    context["script_files"] = [script for script in context.get("script_files", []) if not _is_unused(script)]


def setup(app: Any) -> dict[str, Any]:
    """Run after the extensions that add the scripts."""
    app.connect("html-page-context", _drop_scripts, priority=900)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
