"""What hidden cells define and shown cells need: the statements of hidden code without which the rest would not run.

The book hides its set-up (style, data of a figure) and its checks. A notebook on its own needs the first and not the
second. Names are followed backwards, from the cells that are kept to the statements that bind them.
"""

from __future__ import annotations

import ast
import builtins
import symtable
from collections.abc import Iterator, Sequence

CHECKS = ("glue", "assert", "grade")  # calls that belong to the book's own tests
EFFECTS = ("use_style", "warnings")  # calls that matter to figures though nothing is bound
PLACES = ("os.chdir",)  # and those that matter to everything
BUILTINS = frozenset(dir(builtins))


def root(node: ast.expr) -> str:
    """Return the name that an expression such as ``a.b[0].c()`` begins with."""
    while isinstance(node, ast.Attribute | ast.Subscript | ast.Call | ast.Starred):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""


def scopes(table: symtable.SymbolTable) -> Iterator[symtable.SymbolTable]:
    """Yield a scope and all those inside it."""
    yield table
    for child in table.get_children():
        yield from scopes(child)


def bound(statement: ast.stmt) -> set[str]:
    """Return the names of the module that a statement binds, or whose objects it changes in place."""
    if isinstance(statement, ast.FunctionDef | ast.ClassDef):  # what its body does, it does when it is called
        return {statement.name}
    top = symtable.symtable(ast.unparse(statement), "cell", "exec")
    names = {symbol.get_name() for symbol in top.get_symbols() if symbol.is_assigned() or symbol.is_imported()}
    changed = changed_in_place(statement)
    for loop in ast.walk(statement):  # for one in many: one.append(…) changes what is in many
        if isinstance(loop, ast.For) and stored(loop.target) & changed_in_place(loop):
            changed |= names_read(ast.Expr(loop.iter))
    return names | changed


def changed_in_place(statement: ast.stmt) -> set[str]:
    """Return the names whose objects a statement stores into, or calls a method of without using what it returns."""
    names = set[str]()
    for node in ast.walk(statement):
        if isinstance(node, ast.Attribute | ast.Subscript) and isinstance(node.ctx, ast.Store):
            names.add(root(node))
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            names |= {root(node.value.func)} - BUILTINS
    return names


def read(statement: ast.stmt) -> set[str]:
    """Return the names of the module that a statement reads before it binds them itself.

    Those inside the functions that it defines are included. A loop reads neither its own variable nor what its body
    binds first.
    """
    blocks = [needs_of(block) for block in bodies(statement)]
    inside = set[str]().union(*blocks)
    if isinstance(statement, ast.For):
        return names_read(ast.Expr(statement.iter)) | (inside - stored(statement.target))
    if isinstance(statement, ast.If | ast.While):
        return names_read(ast.Expr(statement.test)) | inside
    if isinstance(statement, ast.With):
        given = [item.optional_vars for item in statement.items if item.optional_vars is not None]
        opened = (names_read(ast.Expr(item.context_expr)) for item in statement.items)
        return set[str]().union(*opened) | (inside - set[str]().union(*map(stored, given)))
    return names_read(statement)


def needs_of(block: Sequence[ast.stmt]) -> set[str]:
    """Return the names that a block needs from above it."""
    needed = set[str]()
    for statement in reversed(block):
        needed = (needed - replaces(statement)) | read(statement)
    return needed


def stored(target: ast.expr) -> set[str]:
    """Return the names that an assignment to a target binds."""
    return {node.id for node in ast.walk(target) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}


def names_read(statement: ast.stmt) -> set[str]:
    """Return the names of the module that occur in a statement other than as what it binds."""
    top = symtable.symtable(ast.unparse(statement), "cell", "exec")
    names = {symbol.get_name() for symbol in top.get_symbols() if symbol.is_referenced()}
    for scope in scopes(top):
        if scope is not top:
            names |= {s.get_name() for s in scope.get_symbols() if s.is_referenced() and s.is_global()}
    if isinstance(statement, ast.AugAssign):  # changed in place: read, too
        names.add(root(statement.target))
    return names - BUILTINS


def replaces(statement: ast.stmt) -> set[str]:
    """Return the names that hold something new after a statement, whatever they held before."""
    if isinstance(statement, ast.Assign):
        return set[str]().union(*map(stored, statement.targets))
    if isinstance(statement, ast.FunctionDef | ast.ClassDef | ast.Import | ast.ImportFrom):
        return bound(statement)
    return set()


def is_check(statement: ast.stmt) -> bool:
    """Say whether a statement only tests the book or stores a number for its prose."""
    if isinstance(statement, ast.Assert):
        return True
    if not (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call)):
        return False
    function = statement.value.func
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    return name.startswith(CHECKS)


def bodies(statement: ast.stmt) -> Iterator[list[ast.stmt]]:
    """Yield the blocks of a loop, a condition or a ``with``."""
    for field in ("body", "orelse", "finalbody"):
        yield getattr(statement, field, [])


def check_lines(statement: ast.stmt) -> set[int]:
    """Return the lines of the checks inside a statement; all of its lines where nothing else is in it."""
    lines: set[int] = set()
    own = range(statement.lineno, (statement.end_lineno or statement.lineno) + 1)
    if is_check(statement):
        return set(own)
    blocks = [block for block in bodies(statement) if block]
    for block in blocks:
        for inner in block:
            lines |= check_lines(inner)
    inside = {line for block in blocks for s in block for line in range(s.lineno, (s.end_lineno or s.lineno) + 1)}
    return set(own) if blocks and inside <= lines else lines


def text_of(statement: ast.stmt, source: str, needed: set[str]) -> str:
    """Return the source of a statement and the comments above it, without checks and imports that nobody needs."""
    if isinstance(statement, ast.Import | ast.ImportFrom):
        names = [alias for alias in statement.names if (alias.asname or alias.name.split(".")[0]) in needed]
        clone = type(statement)(**{field: getattr(statement, field) for field in statement._fields} | {"names": names})
        return ast.unparse(clone)
    lines = source.split("\n")
    first = min([statement.lineno, *(d.lineno for d in getattr(statement, "decorator_list", []))])
    while first > 1 and lines[first - 2].lstrip().startswith("#"):
        first -= 1
    left_out = check_lines(statement)
    return "\n".join(lines[n - 1] for n in range(first, (statement.end_lineno or first) + 1) if n not in left_out)


def wanted(statement: ast.stmt, needed: set[str], figures: bool) -> bool:
    """Say whether a hidden statement must be kept."""
    if is_check(statement) or statement.lineno in check_lines(statement):
        return False
    if isinstance(statement, ast.Expr):
        name = root(statement.value)
        if ast.unparse(statement.value).startswith(PLACES):
            return True
        return (name in EFFECTS and figures) or (isinstance(statement.value, ast.Call) and name in needed)
    return bool(bound(statement) & needed)


def needed_code(cells: Sequence[tuple[str, bool]]) -> list[str]:
    """Return, for each cell given as its source and whether it is kept, the code of it that must stay.

    A kept cell stays as it is. Of a hidden cell the statements stay that kept ones need; often none.
    """
    kept, missing = backwards(cells, set())
    # A function may read a name that is bound only after it was defined.
    return backwards(cells, missing)[0] if missing else kept


def backwards(cells: Sequence[tuple[str, bool]], everywhere: set[str]) -> tuple[list[str], set[str]]:
    """Go from the last cell to the first; return the code to keep, and the names that are read and never bound above.

    Names in ``everywhere`` are needed wherever they are bound.
    """
    figures = any(kept and ("plt." in source or "plot" in source) for source, kept in cells)
    needed, bound_by_hidden = set(everywhere), set[str]()
    result: list[str] = []
    for source, kept in reversed(cells):
        left: list[str] = []
        for statement in reversed(ast.parse(source).body):
            if not kept:
                bound_by_hidden |= bound(statement)
            if not kept and not wanted(statement, needed, figures):
                continue
            if not kept:
                left.append(text_of(statement, source, needed))
                (statement,) = ast.parse(left[-1]).body  # what is left of it: checks inside it read names, too
            needed = (needed - (replaces(statement) - everywhere)) | read(statement)
        result.append(source if kept else spaced(left[::-1]))
    return result[::-1], (needed & bound_by_hidden) - everywhere


def spaced(statements: list[str]) -> str:
    """Join statements, with two empty lines around functions."""
    text = ""
    for before, statement in zip(["", *statements], statements, strict=False):
        is_function = statement.startswith(("def ", "class ", "@")) or before.startswith(("def ", "class ", "@"))
        imports_end = before.startswith(("import", "from")) and not statement.startswith(("import", "from"))
        text += ("" if not before else "\n\n\n" if is_function else "\n\n" if imports_end else "\n") + statement
    return text
