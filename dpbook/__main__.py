"""``python -m dpbook``: the command line."""

from __future__ import annotations

import sys

from dpbook.desk.command import main

__all__: list[str] = []

if __name__ == "__main__":
    sys.exit(main())
