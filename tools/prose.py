"""Print how the sections read, in numbers: words, formulas, mentions of a source, long sentences, folded proofs.

``python tools/prose.py [chapter ...]`` prints a row per section, with a mark behind each number that is beyond what the
book aims at, and the median of each chapter. It is a report to read before one rewrites, and never fails: a section
may have good reasons.

    python tools/prose.py                      # every chapter
    python tools/prose.py regression theory    # two of them
    python tools/prose.py --paragraphs theory  # and where most computed numbers stand in one paragraph
"""

from __future__ import annotations

import argparse
import re
import statistics
from dataclasses import dataclass, fields
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CHAPTERS = (
    "background",
    "sample-and-aggregate",
    "exponential-families",
    "regression",
    "graphical-models",
    "theory",
    "any-model",
)

_FENCE = re.compile(r"^(?P<mark>`{3,}|:{3,})\{(?P<kind>[\w:-]+)\}.*?\n(?P<body>.*?)^(?P=mark)\s*$", re.S | re.M)
_FORMULA = re.compile(r"(?<![\\$])\$(?!\$)[^$\n]+?\$")
_DISPLAY = re.compile(r"\$\$.*?\$\$(?:\s*\([\w-]+\))?", re.S)
_ROLE = re.compile(r"\{[\w:-]+\}`([^`<]*?)(?:\s*<[^>]*>)?`")
_SOURCE = re.compile(r"\b(?:the (?:thesis|dissertation|source|sources|poster|paper)|as printed|printed)\b", re.I)
_LONG_PROOF = 120  # words
_LONG_SENTENCE = 35


@dataclass(frozen=True)
class Row:
    """What was counted in one section."""

    words: int
    inline: int  # formulas in the text
    numbers: int  # most numbers that a paragraph takes from code
    source: int  # mentions of what a source printed, outside folded notes
    sentence: float  # median words of a sentence
    long: int  # sentences of more than 35 words
    brackets: float  # parentheses per 100 words
    proofs: str  # long ones that are folded, of all long ones
    summary: str


AIMS = {"words": 2500, "inline": 80, "numbers": 3, "source": 3, "sentence": 22, "long": 8, "brackets": 1.5}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("chapters", nargs="*", default=list(CHAPTERS), metavar="chapter")
    parser.add_argument("--paragraphs", action="store_true", help="print the paragraphs with more than three numbers")
    options = parser.parse_args()
    names = [field.name for field in fields(Row)]
    print(f"{'section':44}" + "".join(f"{name:>10}" for name in names))
    for chapter in options.chapters:
        rows = {path: read(path.read_text(encoding="utf-8")) for path in sections_of(chapter)}
        for path, row in rows.items():
            print(f"{chapter[:18] + '/' + path.stem:44}" + "".join(shown(name, getattr(row, name)) for name in names))
            if options.paragraphs:
                print("\n".join(f"    {text[:160]} ..." for text in crowded(path.read_text(encoding="utf-8"))))
        if rows:
            medians = {name: statistics.median(getattr(row, name) for row in rows.values()) for name in AIMS}
            print(f"{'  median':44}" + "".join(shown(name, medians.get(name, "")) for name in names))


def sections_of(chapter: str) -> list[Path]:
    """Return the texts of a chapter's sections, in the order of the table of contents."""
    contents = (ROOT / "_toc.yml").read_text(encoding="utf-8")
    found = re.findall(rf"file: (book/{re.escape(chapter)}/[\w-]+)", contents)
    return [path for name in found if (path := ROOT / f"{name}.md").exists() and path.stem != "index"]


def shown(name: str, value: object) -> str:
    """Return a value in its column, with a mark where it is beyond what the book aims at."""
    if isinstance(value, int | float):
        return f"{value:9.4g}" + ("*" if value > AIMS[name] else " ")
    return f"{value!s:>9} "


def read(text: str) -> Row:
    """Count one section; exercises and code are left out of all counts."""
    proofs = list(long_proofs(text))
    prose = plain(main_line(text))
    sentences = [each.split() for each in re.split(r"(?<=[.?!:])\s+", prose) if each.split()]
    lengths = [len(each) for each in sentences]
    words = len(prose.split())
    body = main_line(text)
    return Row(
        words=words,
        inline=len(_FORMULA.findall(_DISPLAY.sub(" ", body))),
        numbers=max((len(re.findall(r"\{glue", paragraph)) for paragraph in paragraphs(body)), default=0),
        source=len(_SOURCE.findall(prose)),
        sentence=statistics.median(lengths) if lengths else 0.0,
        long=sum(length > _LONG_SENTENCE for length in lengths),
        brackets=round(100 * prose.count("(") / max(words, 1), 1),
        proofs=f"{sum(folded for folded in proofs)}/{len(proofs)}",
        summary="yes" if re.search(r"^## Summary", text, re.M) else "no",
    )


def main_line(text: str) -> str:
    """Return a section without front matter, code, proofs, folded notes and exercises."""
    text = re.sub(r"\A---\n.*?\n---\n", "", text, flags=re.S)
    text = re.split(r"^## (?:Exercises|Further reading)", text, maxsplit=1, flags=re.M)[0]
    return _FENCE.sub(_told, text)


def _told(found: re.Match[str]) -> str:
    """Return what of a directive belongs to the main line: the text of notes and statements that are not folded."""
    kind, body = found["kind"], found["body"]
    if kind in ("code-cell", "prf:proof", "figure", "raw", "image", "math") or "dropdown" in found[0]:
        return " "
    return re.sub(r"^:[\w-]+:.*\n", "", body, flags=re.M)


def long_proofs(text: str) -> list[bool]:
    """Return, for every proof of more than 120 words, whether it is folded."""
    proofs = [m for m in _FENCE.finditer(text) if m["kind"] == "prf:proof" or re.match(r".*\} ?Proof", m[0])]
    return ["dropdown" in m[0] for m in proofs if len(plain(m["body"]).split()) > _LONG_PROOF]


def plain(text: str) -> str:
    """Return prose with each formula as one word, and roles and links as their words."""
    text = _ROLE.sub(r"\1", _FORMULA.sub(" x ", _DISPLAY.sub(" ", text)))
    text = re.sub(r"^(?:#+|\|).*$", " ", text, flags=re.M)
    return re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)


def paragraphs(text: str) -> list[str]:
    """Return the paragraphs of a text, tables and headings left out."""
    return [each for each in re.split(r"\n\s*\n", text) if not each.lstrip().startswith(("|", "#"))]


def crowded(text: str) -> list[str]:
    """Return the paragraphs that take more than three numbers from code."""
    return [" ".join(each.split()) for each in paragraphs(main_line(text)) if len(re.findall(r"\{glue", each)) > 3]


if __name__ == "__main__":
    main()
