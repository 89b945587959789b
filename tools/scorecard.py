"""Write what the book's pages show of the ledger of claims, and check that pages and ledger agree.

The scorecard, the list of all claims and the errata are written by hand, but for what stands between a line
``% ledger: ...`` and the line ``% ledger: end``, which comes from :mod:`claims_ledger`.

    python tools/scorecard.py           # write the blocks, then: python tools/notebooks.py book/reference/errata.md
    python tools/scorecard.py --check   # write nothing, and fail where a page or a claim is wrong
"""

from __future__ import annotations

import argparse
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from claims_ledger import BOOK, Claim, Ledger, load, problems, problems_of_all, results

PAGES = tuple(BOOK / "reference" / f"{name}.md" for name in ("scorecard", "every-claim", "errata"))
BADGES = {
    "agrees": ("success", "agrees"),
    "with conditions": ("info", "agrees, with conditions"),
    "differs": ("warning", "differs"),
    "not testable": ("secondary", "not testable"),
}
ROLES = {"fig": "numref", "tab": "numref", "eq": "eq", "ex": "ref", "related": "ref"}


def shown(evidence: str) -> str:
    """Return a link to a piece of evidence."""
    if evidence.startswith("erratum-"):
        return f"{{ref}}`{evidence.removeprefix('erratum-').upper()} <{evidence}>`"
    if evidence.startswith("book/") and evidence.endswith(".csv"):
        return f"study `{Path(evidence).stem}`"
    if evidence.startswith("book/"):
        return f"{{doc}}`/{evidence}`"
    if evidence.startswith("dpbook."):
        return f"`{evidence}`"
    return f"{{{ROLES.get(evidence.partition('-')[0], 'prf:ref')}}}`{evidence}`"


def badge(claim: Claim) -> str:
    """Return a verdict, with its remark, as the pages show it."""
    colour, words = BADGES[claim.verdict]
    words = "open question" if claim.kind == "open question" else words
    space = " " if claim.remark and claim.remark[0] not in ":;," else ""
    return f"{{bdg-{colour}}}`{words}`{space}{claim.remark}"


def _table(widths: str, head: Iterable[str], rows: Iterable[Iterable[str]], options: Iterable[str] = ()) -> list[str]:
    lines = ["```{list-table}", ":header-rows: 1", f":widths: {widths}", *(options or [":class: scorecard"]), ""]
    for row in [head, *rows]:
        lines += [f"{'*' if i == 0 else ' '} - {cell}" for i, cell in enumerate(row)]
    return [*lines, "```"]


def _headlines(ledger: Ledger, table: str) -> list[str]:
    rows = [
        (f"{claim.where}: {claim.says}", ", ".join(shown(each) for each in claim.evidence), badge(claim))
        for claim in ledger.of(table)
        if claim.headline
    ]
    return _table("36 36 28", ("Figure or claim", "Here", "Verdict"), rows)


def _everything(ledger: Ledger, table: str) -> list[str]:
    rows = []
    for claim in ledger.of(table):
        here = ", ".join(shown(each) for each in claim.evidence)
        says = claim.says[0].upper() + claim.says[1:]
        rows.append((f"**{claim.where}** ({claim.kind}). {says}", f"{badge(claim)}. {here}", _size(claim)))
    return _table("32 34 34", ("Claim", "Verdict and evidence", "Size"), rows)


def _size(claim: Claim) -> str:
    words = [*_searched(claim)]
    if claim.size:
        words += [f"*Source:* {claim.size.source}.", f"*Here:* {claim.size.ours}."]
        for each in claim.size.deviations:
            words.append(f"*Differs:* {each.what}; {each.reason}{' **(open)**' if each.open else ''}.")
    return " ".join(words) or "–"


def _searched(claim: Claim) -> Iterable[str]:
    """Yield what the checks and the searches of chapter 6 found."""
    checks, searches = (results(f"theory/{name}") for name in ("ledger", "attacks"))
    rows = checks[checks["claim"].isin(claim.searches)]
    grid = [f" ($c = {each:.3g}$ on its grid)" if each == each else "" for each in rows["constant"]]
    if found := [f"`{name}` {how}{c}" for name, how, c in zip(rows["claim"], rows["verdict"], grid, strict=True)]:
        yield f"*Checked:* {', '.join(found)}."
    own = searches[searches["claim"].isin(claim.searches)]
    if len(own):
        outcome = "refuted" if own["refuted"].any() else "not refuted"
        yield f"*Searched:* {own['evaluations'].sum():,} points, {outcome}."


def _counts(ledger: Ledger) -> list[str]:
    rows = []
    for title, claims in [*((title, ledger.of(name)) for name, title in ledger.tables.items()), ("all", ledger.claims)]:
        found = Counter(claim.verdict for claim in claims)
        rows.append((title, *(str(found[verdict]) for verdict in BADGES), str(len(claims))))
    return _table("40 12 14 12 12 10", ("Source", *(words for _, words in BADGES.values()), "claims"), rows)


def _open(ledger: Ledger) -> list[str]:
    rows = []
    for work, words in ledger.work.items():
        waiting = [c for c in ledger.claims if c.size and any(each.open == work for each in c.size.deviations)]
        names = [f"{re.split('[,:]', ledger.tables[claim.table])[0]}: {claim.where}" for claim in waiting]
        rows.append((words, " · ".join(dict.fromkeys(names))))
    return _table("60 40", ("What would close it", "What waits for it"), rows)


def _privacy(ledger: Ledger) -> list[str]:
    links: dict[tuple[str, str], list[str]] = defaultdict(list)
    for erratum in ledger.errata:
        if erratum.breaks:
            links[erratum.breaks, erratum.cost].append(shown(f"erratum-{erratum.id.lower()}"))
    rows = [(", ".join(entries), *words) for words, entries in links.items()]
    head, *rest = _table(
        "15 55 30", ("Entry", "What goes wrong as printed", "Cost"), rows, [":name: tab-errata-privacy"]
    )
    caption = "Where a promise of privacy is at stake. The other entries concern accuracy, evidence or print."
    return [f"{head} {caption}", *rest]


def _erratum(ledger: Ledger, name: str) -> list[str]:
    (entry,) = [each for each in ledger.errata if each.id == name]
    lines = [f"(erratum-{name.lower()})=", f"### {name}. {entry.title}"]
    for label, text in (("Printed", entry.printed), ("Holds", entry.holds)):
        lines += ["", f"**{label}.** {text.strip()}"] if text else []
    return lines


BLOCKS: Mapping[str, Callable[..., list[str]]] = {
    "table": _headlines,
    "all": _everything,
    "counts": _counts,
    "open": _open,
    "privacy": _privacy,
    "erratum": _erratum,
}


def filled(page: str, ledger: Ledger) -> str:
    """Return the text of a page with its blocks written anew."""

    def block(found: re.Match[str]) -> str:
        kind, *arguments = found.group(1).split()
        return "\n".join([f"% ledger: {found.group(1)}", "", *BLOCKS[kind](ledger, *arguments), "", "% ledger: end"])

    return re.sub(r"^% ledger: (?!end)(.*?)\n.*?^% ledger: end$", block, page, flags=re.M | re.S)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing, and fail where a page is out of step")
    options = parser.parse_args()
    ledger = load()
    wrong = [each for claim in ledger.claims for each in problems(claim, ledger)] + problems_of_all(ledger)
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        new = filled(text, ledger)
        if new != text and options.check:
            wrong.append(f"{page.name} is out of step with the ledger")
        elif new != text:
            page.write_text(new, encoding="utf-8")
    print("\n".join(wrong) or f"{len(ledger.claims)} claims, {len(ledger.errata)} errata")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
