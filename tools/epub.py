"""Write the book as one EPUB file, with its mathematics as MathML, from the sources of the pages and without a network.

python tools/epub.py                      # _build/epub/dpbook.epub
python tools/epub.py --output FOLDER      # FOLDER/epub/dpbook.epub
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml
from jupyter_book.config import get_final_config
from matplotlib.figure import Figure
from matplotlib.image import imread
from sphinx.application import Sphinx
from sphinx.util.docutils import docutils_namespace, patch_docutils

from dpbook import __version__

ROOT = Path(__file__).resolve().parent.parent
NAME = "dpbook"
# What serves a page in a browser: scripts, buttons, boxes that scroll. Folded boxes are open without them.
OF_THE_WEB = {
    "sphinx_togglebutton",
    "sphinx_copybutton",
    "sphinx_thebe",
    "sphinx_comments",
    "sphinx_book_theme",
    "sphinx-mathjax-offline",
    "figure_boxes",
    "page_head",
    "course_pages",
}


def configuration(static: Path) -> dict[str, Any]:
    """Return the configuration of the book with what an e-book has instead of the web's; the cover is in ``static``."""
    about: dict[str, Any]
    about, _ = get_final_config(
        user_yaml=ROOT / "_config.yml", sourcedir=ROOT, cli_config={"latex_individualpages": False}
    )
    repository = about["myst_substitutions"]["repository"]
    about.pop("comments_config")  # of an extension of the web
    return about | {
        "extensions": [*(name for name in about["extensions"] if name not in OF_THE_WEB), "mathml", "epub_pages"],
        "html_math_renderer": "mathml",
        "html_static_path": ["book/_epub", str(static)],
        "html_css_files": [],
        "html_js_files": [],
        "nitpicky": True,
        "version": __version__,
        "language": "en",
        "epub_basename": NAME,
        "project": about["html_title"],
        "epub_title": about["html_title"],
        "epub_language": "en",
        "epub_description": "An executable textbook on differentially private Bayesian inference",
        "epub_publisher": about["author"],
        "epub_copyright": f"{about['copyright']}, {about['author']}. Text and figures: CC BY 4.0. Code: BSD-3-Clause.",
        "epub_identifier": repository,  # the same for every build: a newer edition replaces an older one
        "epub_scheme": "URL",
        "epub_uid": "book",
        "epub_cover": ("_static/cover.png", "epub-cover.html"),
        "epub_css_files": ["book.css"],
        "epub_show_urls": "no",
        "epub_use_index": False,
        "html_domain_indices": False,
        "epub_exclude_files": ["index.html"],  # where a browser would be sent
        "epub_tocdepth": 2,
        "epub_tocscope": "includehidden",
    }


def draw_cover(file: Path) -> None:
    """Write the cover: the title, the picture of the first page, the authors."""
    about = yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8"))
    figure = Figure(figsize=(6, 9), facecolor="white")
    figure.text(
        0.5, 0.86, about["title"].replace("private ", "private\n"), ha="center", va="top", size=29, weight="bold"
    )
    picture = figure.add_axes((0.04, 0.28, 0.92, 0.36))
    picture.imshow(imread(ROOT / "book" / "_static" / "readme.png"))
    picture.set_axis_off()
    figure.text(0.5, 0.12, about["author"], ha="center", size=16)
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, dpi=160, metadata={"Software": None})


def build(output: Path) -> Path:
    """Write the e-book; stop on the first warning, as the pages do."""
    released = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))["date-released"]
    day = datetime.fromisoformat(str(released)).replace(tzinfo=UTC)
    os.environ.setdefault("SOURCE_DATE_EPOCH", str(int(day.timestamp())))
    shutil.rmtree(output / "epub", ignore_errors=True)  # every file of the folder would become part of the book
    cover = output / "epub-cover" / "cover.png"
    draw_cover(cover)
    with patch_docutils(), docutils_namespace():
        app = Sphinx(
            srcdir=ROOT,
            confdir=None,
            outdir=output / "epub",
            doctreedir=output / "epub-doctrees",
            buildername="epub",
            confoverrides=configuration(cover.parent),
            status=None,
            warningiserror=True,
            keep_going=True,
            freshenv=True,
        )
        app.build(force_all=True)
    if app.statuscode:
        sys.exit(app.statuscode)
    return output / "epub" / f"{NAME}.epub"


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the e-book and say where it is."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=ROOT / "_build")
    file = build(parser.parse_args(arguments).output.resolve())
    print(f"{file} ({file.stat().st_size / 1e6:.1f} MB)")


if __name__ == "__main__":
    main()
