"""Differentially private Bayesian inference: the package behind the book.

``release`` functions stand on the curator's side of the privacy barrier: they read data, spend a
:class:`PrivacyBudget` and return a public :class:`Release`. ``infer`` functions stand on the analyst's
side: they take a :class:`Release`, never data, and return a :class:`Posterior`.
"""

import importlib
import pkgutil
from types import ModuleType

from dpbook._version import __version__
from dpbook.budget import BudgetExceeded, PrivacyBudget
from dpbook.doubts import ConvergenceWarning, Doubt
from dpbook.posterior import Posterior
from dpbook.release import Release, together
from dpbook.schema import Schema

__all__ = [
    "BudgetExceeded",
    "ConvergenceWarning",
    "Doubt",
    "Posterior",
    "PrivacyBudget",
    "Release",
    "Schema",
    "__version__",
    "together",
]

_MODULES = frozenset(module.name for module in pkgutil.iter_modules(__path__) if not module.name.startswith("_"))


def __getattr__(name: str) -> ModuleType:
    """Import a module of the package when it is first named, so that ``import dpbook`` stays quick."""
    if name in _MODULES:
        return importlib.import_module(f"dpbook.{name}")
    raise AttributeError(f"module 'dpbook' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})
