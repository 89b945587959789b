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
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.errors import ExtensionError
from sphinx.util.math import get_node_equation_number

MATHML = "http://www.w3.org/1998/Math/MathML"
APPLY = "\u2061"  # between a function and its argument, not seen
STYLE = ("displaystyle", "scriptlevel")
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
    plain = tex
    for pattern, replacement in REWRITTEN:
        plain = re.sub(pattern, replacement, plain)
    try:
        written = tex2mathml(plain, as_block=display)
    except (SyntaxError, AttributeError, TypeError, IndexError) as error:  # MathError is a SyntaxError
        raise ExtensionError(f"no MathML for the formula {tex!r}: {error}") from error
    return schooled(written)


def schooled(written: str) -> str:
    """Return MathML as e-books have it: no named characters, styles around fractions, equations in display style."""
    tree = ElementTree.fromstring(re.sub(r"\s*\n\s*", "", written).replace("&ApplyFunction;", APPLY))
    for table in tree.iter(f"{{{MATHML}}}mtable"):
        if table.get("class") == "ams-align":
            table.set("displaystyle", "true")
    for parent in list(tree.iter()):
        for place, child in enumerate(list(parent)):
            style = {name: child.attrib.pop(name) for name in STYLE if name in child.attrib and "frac" in child.tag}
            if style:
                parent[place] = ElementTree.Element(f"{{{MATHML}}}mstyle", style)
                parent[place].append(child)
    return ElementTree.tostring(tree, encoding="unicode")


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
