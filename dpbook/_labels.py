"""How the scalar components of a named array are called."""

from __future__ import annotations

import itertools

__all__: list[str] = []


def component_labels(name: str, shape: tuple[int, ...]) -> list[str]:
    """Return ``name`` for a scalar, and ``name[i, j]`` for each component of an array of this shape."""
    if not shape:
        return [name]
    indices = itertools.product(*map(range, shape))
    return [f"{name}[{', '.join(map(str, index))}]" for index in indices]
