"""The modules beside a chapter's notebooks, for tests: ``load_study("theory")`` imports ``book/theory/study.py``."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType

BOOK = Path(__file__).resolve().parents[2] / "book"
_LOADED: dict[str, dict[str, ModuleType]] = {}


def load_study(chapter: str, module: str = "study") -> ModuleType:
    """Return a module of a chapter's folder; each chapter has a ``study``, and sees its own folder only."""
    folder, own = BOOK / chapter, _LOADED.setdefault(chapter, {})
    names = {path.stem for path in folder.glob("*.py")}
    others = {name: sys.modules.pop(name) for name in names & set(sys.modules)}
    sys.modules.update(own)
    sys.path.insert(0, str(folder))
    try:
        return importlib.import_module(module)
    finally:
        sys.path.remove(str(folder))
        own.update({name: sys.modules.pop(name) for name in names & set(sys.modules)})
        sys.modules.update(others)
