"""Where JavaScript declares the variables of a Python function.

Python's variables belong to the function, JavaScript's to a block. A variable is declared by its first assignment if no
use is outside of that assignment's block; otherwise at the top of the function."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field

Function = ast.FunctionDef | ast.AsyncFunctionDef
Block = tuple[int, ...]  # the path of a block from the function's body: the numbers of the blocks around it
NESTED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


@dataclass
class Variables:
    """Of one function. words: "const" or "let" for each declaring assignment, by line and name; hoisted: variables that
    are declared at the top; loops: variables of each `for`, by line; assigned: those that change; escaping: line and
    name of reads of a loop's variable after the loop, where JavaScript has none."""

    words: dict[tuple[int, str], str] = field(default_factory=dict)
    hoisted: set[str] = field(default_factory=set)
    loops: dict[int, set[str]] = field(default_factory=dict)
    assigned: set[str] = field(default_factory=set)
    escaping: set[tuple[int, str]] = field(default_factory=set)


@dataclass
class _Use:
    block: Block
    line: int
    stores: bool


def scopes(tree: ast.Module) -> dict[int, Variables]:
    """The variables of all functions of a module, by the line of their `def`."""
    functions = [n for n in ast.walk(tree) if isinstance(n, Function)]
    return {f.lineno: _variables(f) for f in functions}


def _variables(f: Function) -> Variables:
    uses: dict[str, list[_Use]] = {}
    found = Variables()
    _visit(f.body, (), uses, found)
    parameters = {a.arg for a in (*f.args.args, *f.args.kwonlyargs)}
    found.assigned |= {n for n, u in uses.items() if sum(x.stores for x in u) > (n not in parameters)}
    for loop in (n for n in ast.walk(f) if isinstance(n, ast.For)):
        found.escaping |= set(_escaping(f, loop, uses))
    for name, all_uses in uses.items():
        _declare(name, all_uses, name in parameters, found)
    return found


def _declare(name: str, uses: list[_Use], is_parameter: bool, found: Variables) -> None:
    """Each group of uses that no other block sees gets its own declaration."""
    stores = [u for u in uses if u.stores]
    if not stores or is_parameter:
        return
    rest = uses
    while rest:
        first = next((u for u in rest if u.stores), None)
        if first is None:
            return
        scope = first.block
        inside = [u for u in rest if u.block[: len(scope)] == scope]
        outside = [u for u in rest if u.block[: len(scope)] != scope]
        if any(not u.stores and not _has_own(u, outside) for u in outside):
            found.hoisted.add(name)
            for u in stores:
                found.words.pop((u.line, name), None)
            return
        again = [u for u in inside if u.stores and u is not first]
        found.words[first.line, name] = "let" if again else "const"
        rest = outside


def _has_own(use: _Use, uses: list[_Use]) -> bool:
    """Whether a read is preceded by an assignment in its own block or one around it."""
    return any(u.stores and _is_in(use, u) and u.line < use.line for u in uses)


def _is_in(use: _Use, outer: _Use) -> bool:
    """Whether a use is in the block of another one, or in a block inside."""
    return use.block[: len(outer.block)] == outer.block


def _visit(body: list[ast.stmt], block: Block, uses: dict[str, list[_Use]], result: Variables) -> None:
    for n, s in enumerate(body):
        inner: list[tuple[Block, list[ast.stmt]]] = []
        if isinstance(s, (ast.If, ast.While, ast.For)):
            inner = [((*block, n, 0), s.body), ((*block, n, 1), s.orelse)]
        if isinstance(s, ast.Try):
            parts = [s.body, *(handler.body for handler in s.handlers), s.finalbody]
            inner = [((*block, n, k), part) for k, part in enumerate(parts)]
        if isinstance(s, ast.For):
            own = _bound(s)
            result.loops[s.lineno] = own
            _read(s.iter, block, uses)
            nested: dict[str, list[_Use]] = {}
            _visit(s.body, (*block, n, 0), nested, result)
            for name, found in nested.items():
                if name not in own:
                    uses.setdefault(name, []).extend(found)
                elif any(u.stores for u in found):
                    result.assigned.add(name)
            continue
        if inner:
            if not isinstance(s, ast.Try):
                _read(s.test, block, uses)  # type: ignore[attr-defined]
            for path, statements in inner:
                _visit(statements, path, uses, result)
        elif isinstance(s, Function):
            _read(s, block, uses)
        else:
            _read(s, block, uses)
            for name in _stored(s):
                kinds = (False, True) if isinstance(s, ast.AugAssign) else (True,)
                uses.setdefault(name, []).extend(_Use(block, s.lineno, stores) for stores in kinds)


def _escaping(f: Function, loop: ast.For, uses: dict[str, list[_Use]]) -> Iterator[tuple[int, str]]:
    """Line and name of reads that may see what the loop has left in its variables: those after it, and those that come
    after it when a loop around it begins anew."""
    around = [n for n in ast.walk(f) if isinstance(n, (ast.For, ast.While)) and n is not loop and _has(n, loop)]
    begin, end = min((n.lineno for n in around), default=loop.lineno), loop.end_lineno or loop.lineno
    for name in _bound(loop):
        if any(name in _bound(n) for n in around if isinstance(n, ast.For)):
            yield loop.lineno, name
        for u in uses.get(name, []):
            since = end if u.line > end else begin
            own = [s for s in uses[name] if s.stores and since <= s.line < u.line and _is_in(u, s)]
            if not u.stores and u.line > begin and not own:
                yield u.line, name


def _has(whole: ast.AST, part: ast.AST) -> bool:
    return any(n is part for n in ast.walk(whole))


def _bound(loop: ast.For) -> set[str]:
    return {n.id for n in ast.walk(loop.target) if isinstance(n, ast.Name) and n.id != "_"}


def _stored(s: ast.stmt) -> Iterator[str]:
    targets = (
        s.targets if isinstance(s, ast.Assign) else [s.target] if isinstance(s, (ast.AnnAssign, ast.AugAssign)) else []
    )
    for target in targets:
        yield from (
            x.id for x in ast.walk(target) if isinstance(x, ast.Name) and isinstance(x.ctx, ast.Store) and x.id != "_"
        )


def _read(node: ast.AST, block: Block, uses: dict[str, list[_Use]]) -> None:
    for name, line in _names(node, frozenset()):
        uses.setdefault(name, []).append(_Use(block, line, False))


def _names(node: ast.AST, hidden: frozenset[str]) -> Iterator[tuple[str, int]]:
    """Names that an expression or a statement reads, without the parameters of functions and comprehensions in it."""
    if isinstance(node, NESTED):
        bound = {x.id for x in ast.walk(node) if isinstance(x, ast.Name) and isinstance(x.ctx, ast.Store)}
        bound |= {x.arg for x in ast.walk(node) if isinstance(x, ast.arg)}
        hidden = hidden | bound
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id not in hidden:
        yield node.id, node.lineno
    for child in ast.iter_child_nodes(node):
        yield from _names(child, hidden)


__all__ = ["Function", "Variables", "scopes"]
