"""Large modules that are loaded when something of them is first used, so that importing the package stays quick.

Modules of the package write ``from dpbook._late import pd``, and use it as they would use pandas itself.
"""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import TYPE_CHECKING, Any

__all__ = ["fft", "optimize", "pd", "special", "stats"]


class _Late(ModuleType):
    """A name for a module; it keeps whatever was asked of the module, so that only the first use is slower."""

    def __getattr__(self, name: str) -> Any:
        found = getattr(importlib.import_module(self.__name__), name)
        setattr(self, name, found)
        return found


if TYPE_CHECKING:
    import pandas as pd
    from scipy import fft, optimize, special, stats
else:
    pd = _Late("pandas")
    fft, optimize, special, stats = map(_Late, ("scipy.fft", "scipy.optimize", "scipy.special", "scipy.stats"))
