"""Put every figure of a page into a box of its own that knows how wide the figure was drawn.

On a phone the style sheet then shows a wide figure at a size at which its labels can be read, and lets the box, not the
page, scroll sideways. The browser also knows a figure's height before it has loaded, so that the text does not jump.
"""

from __future__ import annotations

import re
import struct
from pathlib import Path
from typing import Any

PICTURE = re.compile(r'<img\b[^>]*\bsrc="(?:\.\./)*_images/([^"]+\.png)"[^>]*?/?>')


def size_of(png: Path) -> tuple[int, int]:
    """Return the width and height of a PNG file, which its first 24 bytes tell."""
    head = png.read_bytes()[:24]
    if head[:8] != b"\x89PNG\r\n\x1a\n":
        raise ValueError(f"{png} is not a PNG file")
    width, height = struct.unpack(">II", head[16:24])
    return width, height


def boxed(body: str, sizes: dict[str, tuple[int, int]]) -> str:
    """Return a page's text with each picture in a box, and with its size."""

    def box(found: re.Match[str]) -> str:
        if found.group(1) not in sizes:
            return found.group(0)
        width, height = sizes[found.group(1)]
        tag = re.sub(r'\s(width|height|style)="[^"]*"', "", found.group(0)).rstrip("/> ")
        tag += f' width="{width}" height="{height}">'
        return f'<span class="figure-box" style="--drawn: {width}px">{tag}</span>'

    return PICTURE.sub(box, body)


def _box_figures(app: Any, page: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    if "body" not in context or not hasattr(app.builder, "images"):
        return
    files = {name: Path(app.srcdir, source) for source, name in app.builder.images.items()}
    shown = {name for name in PICTURE.findall(context["body"]) if name in files}
    context["body"] = boxed(context["body"], {name: size_of(files[name]) for name in shown})


def setup(app: Any) -> dict[str, Any]:
    """Run when the body of a page is ready."""
    app.connect("html-page-context", _box_figures)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
