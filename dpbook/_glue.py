"""Numbers from code into prose: a notebook glues a formatted string, the page shows it."""

from __future__ import annotations

__all__ = ["glue"]


def glue(name: str, text: str) -> None:
    """Store ``text`` under ``name`` for the book's prose; do nothing but check outside a notebook.

    Parameters
    ----------
    name : str
        A name unique in the notebook.
    text : str
        The number as it should be read, formatted and rounded to what is stable.

    Examples
    --------
    >>> from dpbook import glue
    >>> glue("share", 0.32)
    Traceback (most recent call last):
    ...
    TypeError: text must be a formatted string, got 0.32

    Explained in :doc:`/book/how-to-use`.
    """
    if not isinstance(name, str):
        raise TypeError(f"name must be a string, got {name!r}")
    if not isinstance(text, str):
        raise TypeError(f"text must be a formatted string, got {text!r}")
    try:
        from IPython import get_ipython
        from myst_nb import glue as store
    except ImportError:  # where the book's tools are missing, as on Colab, the notebook still runs
        return
    if get_ipython() is not None:  # in a plain script, storing would start a shell
        store(name, text, display=False)
