"""Statements and functions of the subset, in JavaScript: lines of text, each with its line of Python."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

from mypy import nodes
from mypy.types import CallableType, Type, get_proper_type

from scripts.javascript.expressions import Expressions, Refused
from scripts.javascript.kinds import camel, is_optional
from scripts.javascript.variables import Variables

Lines = list[tuple[str, int]]  # JavaScript, and the line of Python (0: none)
WIDTH = 120


class Statements:
    """Of one module. comments: by line, whether each stands alone, and its text; scopes: of functions, by line."""

    def __init__(self, x: Expressions, comments: dict[int, tuple[bool, str]], scopes: dict[int, Variables]) -> None:
        self.x = x
        self.comments = comments
        self.scopes = scopes
        # Of the function that is being translated:
        self.returns: Type | None = None
        self.variables = Variables()
        self.hoisted: dict[str, Type | None] = {}

    # ── functions ──

    def body(self, f: nodes.FuncDef, indent: str) -> Lines:
        before = self.returns, self.variables, self.hoisted
        signature = get_proper_type(f.type)
        self.returns = signature.ret_type if isinstance(signature, CallableType) else None
        statements = without_docstring(f.body.body)
        self.variables = self.scopes[f.line]
        self.hoisted = {}
        lines = self.block(statements, indent, f.line)
        lines = [*((f"{indent}{self._typed(n, t)}", f.line) for n, t in self.hoisted.items()), *lines]
        self.returns, self.variables, self.hoisted = before
        return lines

    def _typed(self, name: str, t: Type | None) -> str:
        return f"/** @type {{{self.x.names.text(t)}}} */ let {camel(name)};" if t else f"let {camel(name)};"

    def parameters(self, f: nodes.FuncDef) -> list[str]:
        """Their names, with defaults; those by keyword alone as one object."""
        found: list[tuple[str, str, bool]] = []
        for a in f.arguments:
            if a.variable.name == "self":
                continue
            if a.kind.is_star():
                raise Refused(f, f"the parameter *{a.variable.name}")
            if isinstance(a.initializer, (nodes.ListExpr, nodes.DictExpr, nodes.SetExpr, nodes.CallExpr)):
                raise Refused(
                    f, f"the default of {a.variable.name} is made once in Python, for each call in JavaScript"
                )
            default = self.x.text(a.initializer, a.variable.type) if a.initializer is not None else ""
            found.append((camel(a.variable.name), default, a.kind.is_named()))
        return with_options(found)

    # ── blocks ──

    def block(self, statements: Sequence[Any], indent: str, start: int) -> Lines:
        """start: the line of Python before the block; comments from there on belong to it."""
        lines: Lines = []
        at = start
        for s in statements:
            lines += [(indent + c, n) for n, c in self._alone(at + 1, s.line)]
            written = self._statement(s, indent)
            if written and (end := self.comments.get(s.line)) and not end[0]:
                written[0] = (f"{written[0][0]} // {end[1]}", written[0][1])
            lines += written
            at = max(s.line, s.end_line or s.line)
        return lines

    def _alone(self, begin: int, end: int) -> Iterator[tuple[int, str]]:
        for n in range(begin, end):
            if (found := self.comments.get(n)) and found[0]:
                yield n, f"// {found[1]}"

    def _statement(self, s: Any, indent: str) -> Lines:
        method = getattr(self, f"_{type(s).__name__}", None)
        if method is None:
            raise Refused(s, f"{type(s).__name__} is not in the subset")
        found = method(s, indent)
        return [(line, s.line) for line in wrapped(f"{indent}{found}")] if isinstance(found, str) else found

    def _braced(
        self, head: str, s: Any, body: nodes.Block, indent: str, known: AbstractSet[str] = frozenset()
    ) -> Lines:
        """A head and its block. known: optional properties that exist inside."""
        before = set(self.x.known)
        self.x.known |= known
        lines = [(f"{indent}{head} {{", s.line), *self.block(body.body, indent + "  ", s.line), (f"{indent}}}", 0)]
        self.x.known = before
        return lines

    # ── simple statements ──

    def _PassStmt(self, s: Any, indent: str) -> Lines:
        return []

    def _BreakStmt(self, s: Any, indent: str) -> str:
        return "break;"

    def _ContinueStmt(self, s: Any, indent: str) -> str:
        return "continue;"

    def _ExpressionStmt(self, s: nodes.ExpressionStmt, indent: str) -> str:
        return f"{self.x.text(s.expr)};"

    def _ReturnStmt(self, s: nodes.ReturnStmt, indent: str) -> str:
        return f"return {self.x.text(s.expr, self.returns)};" if s.expr is not None else "return;"

    def _RaiseStmt(self, s: nodes.RaiseStmt, indent: str) -> str:
        if s.expr is None or s.from_expr is not None and getattr(s.from_expr, "name", "") != "None":
            raise Refused(s, "raise without an error, or from another error")
        return f"throw {self.x.text(s.expr)};"

    def _AssertStmt(self, s: nodes.AssertStmt, indent: str) -> str:
        return f"if ({self.x.negation(s.expr)}) throw new Error('assertion failed');"

    def _DelStmt(self, s: nodes.DelStmt, indent: str) -> str:
        e = s.expr
        if not isinstance(e, nodes.IndexExpr):
            raise Refused(s, "del of a name")
        if self.x.kind(e.base) == "map":
            return f"{self.x.inner(e.base)}.delete({self.x.text(e.index)});"
        return f"{self.x.inner(e.base)}.splice({self.x.text(e.index)}, 1);"

    # ── assignments ──

    def _AssignmentStmt(self, s: nodes.AssignmentStmt, indent: str) -> str | Lines:
        if len(s.lvalues) > 1:
            return self._several(s, indent)
        target = s.lvalues[0]
        t = s.type or self._type_of(target)
        value = self.x.text(s.rvalue, t)
        if isinstance(target, nodes.NameExpr) and (word := self.declares(s, target)):
            annotation = (
                f"/** @type {{{self.x.names.text(t)}}} */ " if s.type is not None or self._is_empty(s.rvalue, t) else ""
            )
            return f"{annotation}{word} {camel(target.name)} = {value};"
        if isinstance(target, nodes.TupleExpr):
            words = {self.declares(s, x) for x in target.items if isinstance(x, nodes.NameExpr) and x.name != "_"}
            if not words or "" in words:
                return f"[{', '.join(map(self.place, target.items))}] = {value};"
            return f"{'let' if 'let' in words else 'const'} {self.x.target(target)} = {value};"
        annotation = f"/** @type {{{self.x.names.text(t)}}} */ " if self._is_field(target, s, t) else ""
        return f"{annotation}{self.stored(target, value)};"

    def declares(self, s: nodes.AssignmentStmt, target: nodes.NameExpr) -> str:
        """ "const" or "let" if this statement declares the variable, otherwise ""."""
        word = self.variables.words.get((s.line, target.name), "")
        if target.name in self.variables.hoisted:
            self.hoisted.setdefault(target.name, self._type_of(target))
        return word

    def _several(self, s: nodes.AssignmentStmt, indent: str) -> Lines:
        """`a = b = value`, where the value may be evaluated twice."""
        if not isinstance(s.rvalue, (nodes.NameExpr, nodes.IntExpr, nodes.StrExpr)):
            raise Refused(s, "an assignment to several places of anything but a name, an integer or text")
        return [(f"{indent}{self.stored(x, self.x.text(s.rvalue))};", s.line) for x in s.lvalues]

    def _type_of(self, target: Any) -> Type | None:
        if (
            isinstance(target, (nodes.NameExpr, nodes.MemberExpr))
            and isinstance(target.node, nodes.Var)
            and target.node.type
        ):
            return target.node.type
        return self.x.types.get(target)

    def _is_field(self, target: Any, s: nodes.AssignmentStmt, t: Type | None) -> bool:
        """Whether this declares a field of a class whose type TypeScript would not find."""
        is_own = isinstance(target, nodes.MemberExpr) and target.is_inferred_def or s.type is not None
        return is_own and isinstance(target, nodes.MemberExpr) and (s.type is not None or self._is_empty(s.rvalue, t))

    def _is_empty(self, value: Any, t: Type | None) -> bool:
        empty = isinstance(value, (nodes.ListExpr, nodes.DictExpr)) and not value.items
        empty = (
            empty
            or isinstance(value, nodes.CallExpr)
            and not value.args
            and getattr(value.callee, "name", "") in ("set", "dict", "list")
        )
        if isinstance(value, nodes.TupleExpr):
            return True  # TypeScript would find an array, not a tuple
        return (
            empty
            or is_optional(t)
            and getattr(value, "name", "") == "None"
            or getattr(value, "fullname", "") == "math.inf"
        )

    def _is_entry(self, target: Any) -> bool:
        """Whether an assignment goes to an entry of a map."""
        return isinstance(target, nodes.IndexExpr) and self.x.kind(target.base) == "map"

    def stored(self, target: Any, value: str) -> str:
        """An assignment."""
        if self._is_entry(target):
            return f"{self.x.inner(target.base)}.set({self.x.text(target.index)}, {value})"
        return f"{self.place(target)} = {value}"

    def place(self, target: Any) -> str:
        """What stands on the left of an assignment. Errors: Refused for an entry of a map"""
        if isinstance(target, nodes.NameExpr):
            return camel(target.name)
        if isinstance(target, nodes.MemberExpr):
            return f"{self.x.inner(target.expr)}.{camel(target.name)}"
        is_index = isinstance(target, nodes.IndexExpr) and not isinstance(
            target.index, (nodes.SliceExpr, nodes.UnaryExpr)
        )
        if is_index and not self._is_entry(target):
            return f"{self.x.inner(target.base)}[{self.x.text(target.index)}]"
        raise Refused(target, "an assignment to this")

    def _OperatorAssignmentStmt(self, s: nodes.OperatorAssignmentStmt, indent: str) -> str:
        found, target = self.x.kind(s.lvalue), s.lvalue
        whole = nodes.OpExpr(s.op, target, s.rvalue)
        if found in ("number", "string") and s.op in "+-*/" and not self._is_entry(target):
            return f"{self.place(target)} {s.op}= {self.x.text(s.rvalue)};"
        if found == "number":
            whole.line = s.line
            self.x.types[whole] = self.x.types[target]
            return f"{self.stored(target, self.x.text(whole))};"
        if found == "list" and s.op == "+":
            return f"{self.x.text(target)}.push(...{self.x.iterable(s.rvalue)});"
        if found in ("set", "map") and s.op == "|":
            name = self.x.support("updateSet" if found == "set" else "updateMap")
            return f"{name}({self.x.text(target)}, {self.x.text(s.rvalue)});"
        if found == "set" and s.op == "-":
            return f"{self.x.support('removeAll')}({self.x.text(target)}, {self.x.text(s.rvalue)});"
        if found == "boolean" and s.op in "|&":
            return f"{self.place(target)} {'||' if s.op == '|' else '&&'}= {self.x.text(s.rvalue)};"
        raise Refused(s, f"{s.op}= of {found}")

    # ── control flow ──

    def _IfStmt(self, s: nodes.IfStmt, indent: str) -> Lines:
        condition, body, otherwise = s.expr[0], s.body[0], s.else_body
        lines = self._braced(f"if ({self.x.condition(condition)})", s, body, indent, self.x.found(condition))
        lines = self._on_one_line(lines, body, indent)
        if otherwise is None or not otherwise.body:
            return lines
        inner = otherwise.body
        if len(inner) == 1 and isinstance(inner[0], nodes.IfStmt):
            rest = self._IfStmt(inner[0], indent)
            rest[0] = (f"{indent}else {rest[0][0].lstrip()}", rest[0][1])
        else:
            rest = self._braced("else", otherwise, otherwise, indent)
            rest = self._on_one_line(rest, otherwise, indent)
        if lines[-1][0] == f"{indent}}}":
            rest[0] = (f"{indent}}} {rest[0][0].lstrip()}", rest[0][1])
            lines.pop()
        return [*lines, *rest]

    def _on_one_line(self, lines: Lines, body: nodes.Block, indent: str) -> Lines:
        """Without braces, if it is one short simple statement."""
        if len(lines) != 3 or "//" in lines[1][0] or lines[1][0].lstrip().startswith(("const ", "let ", "/**")):
            return lines
        joined = f"{lines[0][0].removesuffix(' {')} {lines[1][0].lstrip()}"
        return [(joined, lines[1][1])] if len(joined) <= WIDTH else lines

    def _TryStmt(self, s: nodes.TryStmt, indent: str) -> Lines:
        if s.else_body is not None or s.finally_body is not None or any(s.vars):
            raise Refused(s, "try with else, finally or the name of an error")
        lines = self._braced("try", s, s.body, indent)
        lines[-1] = (f"{indent}}} catch (error) {{", 0)
        word = "if"
        for caught, body in zip(s.types, s.handlers, strict=True):
            names = caught.items if isinstance(caught, nodes.TupleExpr) else [caught]
            tests = " || ".join(f"error instanceof {self._error_class(n, s)}" for n in names)
            lines += self._braced(f"{word} ({tests})", s, body, indent + "  ")[:-1]
            word = "} else if"
        return [*lines, (f"{indent}  }} else throw error;", 0), (f"{indent}}}", 0)]

    def _error_class(self, e: Any, s: Any) -> str:
        name = getattr(e, "fullname", "")
        if name == "builtins.ValueError":
            return self.x.support("ValueError")
        if name.startswith("pyruntime.errors."):
            return self.x.text(e)
        raise Refused(s, "except of anything but ValueError and errors of pyruntime")

    def _WhileStmt(self, s: nodes.WhileStmt, indent: str) -> Lines:
        if s.else_body is not None:
            raise Refused(s, "while … else")
        return self._braced(f"while ({self.x.condition(s.expr)})", s, s.body, indent, self.x.found(s.expr))

    def _ForStmt(self, s: nodes.ForStmt, indent: str) -> Lines:
        if s.else_body is not None:
            raise Refused(s, "for … else")
        lines = self._braced(self._for_head(s), s, s.body, indent)
        return self._on_one_line(lines, s.body, indent)

    def _for_head(self, s: nodes.ForStmt) -> str:
        e = s.expr
        is_range = isinstance(e, nodes.CallExpr) and getattr(e.callee, "fullname", "") in ("builtins.range",)
        if is_range and isinstance(s.index, nodes.NameExpr):
            name = "i_" if s.index.name == "_" else camel(s.index.name)
            bounds = [self.x.text(a) for a in e.args]  # type: ignore[attr-defined]
            begin, end = ("0", bounds[0]) if len(bounds) == 1 else bounds[:2]
            if len(bounds) > 2:
                raise Refused(s, "range() with a step")
            if s.index.name in self.variables.assigned:
                raise Refused(s, f"the loop assigns its variable {name}")
            if self._may_change(e.args[-1]):  # type: ignore[attr-defined]
                return f"for (let {name} = {begin}, {name}End = {end}; {name} < {name}End; {name}++)"
            return f"for (let {name} = {begin}; {name} < {end}; {name}++)"
        word = "let" if any(n in self.variables.assigned for n in self.variables.loops.get(s.line, ())) else "const"
        return f"for ({word} {self.x.target(s.index)} of {self.x.iterable(e)})"

    def _may_change(self, bound: Any) -> bool:
        """Whether a bound, which Python computes once, may change in the loop."""
        if isinstance(bound, nodes.NameExpr):
            return bound.name in self.variables.assigned
        return not isinstance(bound, nodes.IntExpr)

    def _FuncDef(self, f: nodes.FuncDef, indent: str) -> Lines:
        """A function inside another."""
        names = ", ".join(self.parameters(f))
        head = f"{indent}/** @type {{{self.x.names.text(f.type)}}} */"
        return [
            (head, f.line),
            (f"{indent}const {camel(f.name)} = ({names}) => {{", f.line),
            *self.body(f, indent + "  "),
            (f"{indent}}};", 0),
        ]

    def _Block(self, s: nodes.Block, indent: str) -> Lines:
        return self.block(s.body, indent, s.line)


def with_options(parameters: Sequence[tuple[str, str, bool]]) -> list[str]:
    """Of a function: name, default and whether it is by keyword alone, of each."""
    found = [f"{name} = {default}" if default else name for name, default, named in parameters if not named]
    options = [f"{name} = {default}" if default else name for name, default, named in parameters if named]
    if options:
        is_optional = all(default for _, default, named in parameters if named)
        found.append(f"{{ {', '.join(options)} }}{' = {}' if is_optional else ''}")
    return found


def option_tags(parameters: Sequence[tuple[str, str, bool, bool]]) -> list[str]:
    """JSDoc of parameters: name, type, whether it has a default, whether it is by keyword alone."""
    tags = [f"@param {{{t}}} {f'[{name}]' if default else name}" for name, t, default, named in parameters if not named]
    options = [(f"{name}{'?' if default else ''}: {t}", default) for name, t, default, named in parameters if named]
    if options:
        name = "[options]" if all(default for _, default in options) else "options"
        tags.append(f"@param {{{{ {', '.join(text for text, _ in options)} }}}} {name}")
    return tags


def wrapped(line: str) -> list[str]:
    """A line that is too long for the page, with the parts of its widest pair of brackets on lines of their own."""
    if len(line) <= WIDTH:
        return [line]
    pairs = _brackets(line)
    if not pairs:
        return [line]
    begin, end, commas = max(pairs, key=lambda p: (len(p[2]) > 0, p[1] - p[0]))
    if not commas:
        return [line]
    indent = " " * (len(line) - len(line.lstrip()) + 2)
    parts = [line[a + 1 : b].strip() for a, b in zip([begin, *commas], [*commas, end], strict=True)]
    found = [line[: begin + 1].rstrip()]
    for part in parts:
        if len(found) > 1 and len(found[-1]) + len(part) + 2 <= WIDTH:
            found[-1] += f" {part},"
        else:
            found.append(f"{indent}{part},")
    return [*found, f"{indent[:-2]}{line[end:].lstrip()}"]


def _brackets(line: str) -> list[tuple[int, int, list[int]]]:
    """Pairs of brackets outside of texts: begin, end, and the commas directly inside."""
    found: list[tuple[int, int, list[int]]] = []
    open_: list[tuple[int, list[int]]] = []
    quote = ""
    for n, c in enumerate(line):
        if quote:
            quote = "" if c == quote and line[n - 1] != "\\" else quote
        elif c in "'`":
            quote = c
        elif c in "([{":
            open_.append((n, []))
        elif c in ")]}" and open_:
            begin, commas = open_.pop()
            found.append((begin, n, commas))
        elif c == "," and open_:
            open_[-1][1].append(n)
    return found


def without_docstring(statements: Sequence[Any]) -> Sequence[Any]:
    first = statements[0] if statements else None
    is_text = isinstance(first, nodes.ExpressionStmt) and isinstance(first.expr, nodes.StrExpr)
    return statements[1:] if is_text else statements


__all__ = ["Lines", "Statements", "option_tags", "with_options", "without_docstring", "wrapped"]
