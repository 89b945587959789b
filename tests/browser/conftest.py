"""The sweep is a module beside these tests, and they share one running browser."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from sweep import WANTED, browser, find_browser


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """A running browser; the tests are skipped where there is none, unless it was asked for."""
    if find_browser() is None and not WANTED:
        pytest.skip("no Chromium on this machine; on Debian and Ubuntu: apt-get install chromium")
    assert find_browser() is not None, "DPBOOK_BROWSER=1 asks for a browser, and none is installed"
    with browser() as running:
        yield running
