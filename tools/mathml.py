"""Write the book's formulas as MathML, which readers of e-books show without a script.

Docutils, which Sphinx stands on, has the converter; a few ways of writing that TeX allows and it does not know are
written out first. A formula that it cannot read stops the build: no TeX is left in a page.
"""

from __future__ import annotations

import re
from typing import Any
from xml.etree import ElementTree

from course_pages import expand
from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import accents, tex2mathml
from sphinx.errors import ExtensionError
from sphinx.util.math import get_node_equation_number

MATHML = "http://www.w3.org/1998/Math/MathML"
M = f"{{{MATHML}}}"
APPLY = "\u2061"  # between a function and its argument, not seen
STYLE = {"displaystyle", "scriptlevel"}  # a fraction has none of its own
BARS = {"/", "|", "\u2016", "\u2225"}
OVERLINE, BRACE = "\u203e", "\u23df"
OPENING, CLOSED, THIN = {"(", "[", "{"}, {")", "]", "}"}, "0.1667em"
ACCENTS = {*accents.values(), OVERLINE, "_"}
ElementTree.register_namespace("", MATHML)
OPERATOR = r"[-+=<>]|\\(?:le|ge|leq|geq|times|cdot|cup|cap|wedge|vee|sim|approx|subset|subseteq|to)(?![A-Za-z])"
CLOSING = r"[\])]|\\}|\\rangle|\\rvert|\\rVert|\\rfloor|\\rceil"
FRACTION = r"\\(?:[td]?frac|[td]?binom)"
REWRITTEN = (
    # dots stand in the middle between operators, on the line between commas
    (rf"\\dots(?![A-Za-z])(?=\s*(?:{OPERATOR}))", r"\\cdots "),
    (r"\\dots(?![A-Za-z])", r"\\ldots "),
    # \frac12 is a half: an argument without braces is one character, not a number
    (rf"({FRACTION})\s*(\d)", r"\1{\2}"),
    (rf"({FRACTION}(?:\{{[^{{}}]*\}}|\s*\\[A-Za-z]+|\s*[A-Za-z]))\s*(\d)", r"\1{\2}"),
    (r"([_^])(\d)(?=\d)", r"\1{\2}"),
    # a prime is a superscript, together with one that follows
    (r"''", r"^{\\prime\\prime}"),
    (r"'\^(\{[^{}]*\}|\\[A-Za-z]+|\w)", r"^{\\prime \1}"),
    (r"'", r"^{\\prime}"),
    # a large bracket without a side: closing brackets close, others open
    (rf"\\([bB]igg?)(?=\s*(?:{CLOSING}))", r"\\\1r"),
    (r"\\([bB]igg?)m?(?![A-Za-z])", r"\\\1l"),
    (r"\\(begin|end)\{gathered\}", r"\\\1{matrix}"),
    # the converter knows a style only at the beginning of a group; in equations it is that of displays anyway
    (r"\\(?:text|display)style(?![A-Za-z])", " "),
)


def mathml(tex: str, macros: dict[str, str], display: bool = False) -> str:
    """Return a formula as MathML, on one line."""
    tex = expand(tex, macros)
    parts = re.split(r"(\\text\{[^{}]*\})", tex)  # words stay as they are
    parts[::2] = map(written_out, parts[::2])
    try:
        written = tex2mathml("".join(parts), as_block=display)
    except MathError as error:
        raise ExtensionError(f"no MathML for the formula {tex!r}: {error}") from error
    return schooled(written)


def written_out(tex: str) -> str:
    """Return TeX in the commands that the converter knows."""
    for pattern, replacement in REWRITTEN:
        tex = re.sub(pattern, replacement, tex)
    return tex


def schooled(written: str) -> str:
    """Return MathML as e-books have it and as TeX would set it."""
    tree = ElementTree.fromstring(re.sub(r"\s*\n\s*", "", written).replace("&ApplyFunction;", APPLY))
    for node in list(tree.iter()):
        kind = node.tag.removeprefix(M)
        if kind == "mtable" and node.get("class") == "ams-align":
            node.set("displaystyle", "true")
        elif kind == "mo" and node.text in BARS:  # no space beside a slash or an absolute value
            node.attrib |= {"lspace": "0", "rspace": "0"}
        elif kind == "mover" and node[1].text == "_":
            node[1].text = OVERLINE
        elif kind == "munderover" and node[2].text in ACCENTS:  # a hat is on the letter, not on its index
            accented = ElementTree.Element(f"{M}mover", {"accent": "true"})
            accented[:] = [node[0], node[2]]
            node.tag, node[:] = f"{M}msub", [accented, node[1]]
        elif kind == "msub" and node[0].tag == f"{M}munder" and node[0][1].text == BRACE:
            node.tag = f"{M}munder"
        set_apart(node)
        for place, child in enumerate(list(node)):
            if child.tag == f"{M}mfrac" and (
                style := {name: child.attrib.pop(name) for name in STYLE & set(child.attrib)}
            ):
                node[place] = ElementTree.Element(f"{M}mstyle", dict(sorted(style.items())))
                node[place].append(child)
    return ElementTree.tostring(tree, encoding="unicode")


def set_apart(row: ElementTree.Element) -> None:
    """Put a thin space before and after the name of a function, as in a log a; brackets need none."""
    for child, after, last in zip(list(row), list(row)[1:], [*list(row)[2:], None], strict=False):
        if after.text != APPLY:
            continue
        if last is not None and last.text not in OPENING:
            after.set("rspace", THIN)
        place = list(row).index(child)
        if place and (row[place - 1].tag != f"{M}mo" or row[place - 1].text in CLOSED):
            row.insert(place, ElementTree.Element(f"{M}mspace", {"width": THIN}))


def _macros(writer: Any) -> dict[str, str]:
    return dict(writer.builder.config.mathjax3_config["tex"]["macros"])


def _write_inline(writer: Any, node: nodes.math) -> None:
    writer.body.append(mathml(node.astext(), _macros(writer)))
    raise nodes.SkipNode


def _write_display(writer: Any, node: nodes.math_block) -> None:
    writer.body.append(writer.starttag(node, "div", CLASS="math"))
    if node["number"]:
        writer.body.append(f'<span class="eqno">({get_node_equation_number(writer, node)})</span>')
    writer.body.append(mathml(node.astext(), _macros(writer), display=True) + "</div>\n")
    raise nodes.SkipNode


def setup(app: Any) -> dict[str, Any]:
    """Offer the renderer under the name ``mathml``."""
    app.add_html_math_renderer("mathml", (_write_inline, None), (_write_display, None))
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
