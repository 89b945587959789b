"""Large modules that are loaded when something of them is first used, so that importing the package stays quick.

Modules of the package write ``from dpbook._late import pd``, and use it as they would use pandas itself.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from types import ModuleType
from typing import TYPE_CHECKING, Any

__all__ = ["fft", "optimize", "pd", "special", "stats"]


class _Late(ModuleType):
    """A name for a module; it keeps whatever was asked of the module, so that only the first use is slower."""

    def __init__(self, name: str, load: Callable[[], ModuleType]) -> None:
        super().__init__(name)
        self.__dict__["_load"] = load

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.__dict__["_load"](), name)
        setattr(self, name, found)
        return found


if TYPE_CHECKING:
    import pandas as pd
    from scipy import fft, optimize, special, stats
else:  # every name is written out, so that a reader of the imports sees what they load
    pd = _Late("pandas", lambda: importlib.import_module("pandas"))
    fft = _Late("scipy.fft", lambda: importlib.import_module("scipy.fft"))
    optimize = _Late("scipy.optimize", lambda: importlib.import_module("scipy.optimize"))
    special = _Late("scipy.special", lambda: importlib.import_module("scipy.special"))
    stats = _Late("scipy.stats", lambda: importlib.import_module("scipy.stats"))
