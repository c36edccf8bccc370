"""Statements and functions of the subset, in JavaScript: lines of text, each with its line of Python."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet

from scripts.javascript import python_types as types
from scripts.javascript import tree
from scripts.javascript.constants import is_pure
from scripts.javascript.expressions import Expressions
from scripts.javascript.names import Refused, camel
from scripts.javascript.python_types import PythonType, is_optional
from scripts.javascript.tree import Js, index, member, method, plain
from scripts.javascript.variables import Function, Variables

Lines = list[tuple[str, int]]  # JavaScript, and the line of Python (0: none)
WIDTH = 120


class Statements:
    """Of one module. comments: by line, whether each stands alone, and its text; scopes: of functions, by line."""

    def __init__(self, x: Expressions, comments: dict[int, tuple[bool, str]], scopes: dict[int, Variables]) -> None:
        self.x = x
        self.comments = comments
        self.scopes = scopes
        # Of the function that is being translated:
        self.returns: PythonType = None
        self.caught = ""  # the name of the error, in a handler
        self.variables = Variables()
        self.hoisted: dict[str, PythonType] = {}

    # ── functions ──

    def body(self, f: Function, indent: str) -> Lines:
        before = self.returns, self.variables, self.hoisted
        self.returns = types.awaited(types.result(self.x.typed.function(f)))
        self.variables, self.hoisted = self.scopes[f.lineno], {}
        if self.variables.escaping:
            line, name = min(self.variables.escaping)
            raise Refused(ast.Name(name, lineno=line), f"{name} is read after the loop that assigns it")
        lines = self.block(without_docstring(f.body), indent, f.lineno)
        lines = [*((f"{indent}{self._typed(n, t)}", f.lineno) for n, t in self.hoisted.items()), *lines]
        self.returns, self.variables, self.hoisted = before
        return lines

    def _typed(self, name: str, t: PythonType) -> str:
        return f"/** @type {{{self.x.names.text(t)}}} */ let {camel(name)};" if t else f"let {camel(name)};"

    def parameters(self, f: Function) -> list[str]:
        """Their names, with defaults; those by keyword alone as one object."""
        if f.args.vararg or f.args.kwarg:
            raise Refused(f, f"the parameter *{(f.args.vararg or f.args.kwarg).arg}")  # type: ignore[union-attr]
        defaults = default_values(f)
        found: list[tuple[str, str, bool]] = []
        for p in types.signature(self.x.typed.function(f)) or []:
            default = defaults.get(p.name)
            if isinstance(default, ast.List | ast.Dict | ast.Set | ast.Call):
                raise Refused(f, f"the default of {p.name} is made once in Python, for each call in JavaScript")
            if p.name != "self":
                found.append((camel(p.name), str(self.x.js(default, p.type)) if default else "", p.is_named))
        return with_options(found)

    # ── blocks ──

    def block(self, statements: Sequence[ast.stmt], indent: str, start: int) -> Lines:
        """start: the line of Python before the block; comments from there on belong to it."""
        lines: Lines = []
        at = start
        for s in statements:
            lines += [(indent + c, n) for n, c in self.alone(at + 1, s.lineno)]
            written = self._statement(s, indent)
            if written and (end := self.comments.get(s.lineno)) and not end[0]:
                written[0] = (f"{written[0][0]} // {end[1]}", written[0][1])
            lines += written
            at = s.end_lineno or s.lineno
        return lines

    def alone(self, begin: int, end: int) -> Iterator[tuple[int, str]]:
        """Comments on lines of their own."""
        for n in range(begin, end):
            if (found := self.comments.get(n)) and found[0]:
                yield n, f"// {found[1]}"

    def _statement(self, s: ast.stmt, indent: str) -> Lines:
        write = getattr(self, f"_{type(s).__name__}", None)
        if write is None:
            raise Refused(s, f"{type(s).__name__} is not in the subset")
        found = write(s, indent)
        return [(line, s.lineno) for line in wrapped(f"{indent}{found}")] if isinstance(found, str) else found

    def _braced(
        self, head: str, line: int, body: list[ast.stmt], indent: str, known: AbstractSet[str] = frozenset()
    ) -> Lines:
        """A head and its block. known: optional properties that exist inside."""
        before = set(self.x.known)
        self.x.known |= known
        lines = [(f"{indent}{head} {{", line), *self.block(body, indent + "  ", line), (f"{indent}}}", 0)]
        self.x.known = before
        return lines

    # ── simple statements ──

    def _Pass(self, s: ast.Pass, indent: str) -> Lines:
        return []

    def _Break(self, s: ast.Break, indent: str) -> str:
        return "break;"

    def _Continue(self, s: ast.Continue, indent: str) -> str:
        return "continue;"

    def _Expr(self, s: ast.Expr, indent: str) -> str:
        return f"{self.x.js(s.value)};"

    def _Return(self, s: ast.Return, indent: str) -> str:
        return f"return {self.x.js(s.value, self.returns)};" if s.value is not None else "return;"

    def _Raise(self, s: ast.Raise, indent: str) -> str:
        if s.exc is None and self.caught:
            return f"throw {self.caught};"
        if s.exc is None or s.cause is not None and getattr(s.cause, "value", "") is not None:
            raise Refused(s, "raise without an error, or from another error")
        return f"throw {self.x.js(s.exc)};"

    def _Assert(self, s: ast.Assert, indent: str) -> str:
        return f"if ({self.x.negation(s.test)}) throw new Error('assertion failed');"

    def _Delete(self, s: ast.Delete, indent: str) -> str:
        e = s.targets[0]
        if len(s.targets) > 1 or not isinstance(e, ast.Subscript) or isinstance(e.slice, ast.Slice):
            raise Refused(s, "del of anything but one entry")
        base, at = self.x.js(e.value), self.x.js(e.slice)
        return f"{self.x.support('pop', base, at) if self.x.kind(e.value) == 'map' else self.x.popped(base, at)};"

    # ── assignments ──

    def _Assign(self, s: ast.Assign, indent: str) -> str | Lines:
        if len(s.targets) > 1:
            return self._several(s, indent)
        return self._assigned(s, s.targets[0], s.value, False)

    def _AnnAssign(self, s: ast.AnnAssign, indent: str) -> str | Lines:
        return self._assigned(s, s.target, s.value, True) if s.value is not None else []

    def _assigned(self, s: ast.stmt, target: ast.expr, value: ast.expr, is_annotated: bool) -> str:
        t = self.x.typed.declared(target)
        x = self.x.js(value, t)
        annotation = f"/** @type {{{self.x.names.text(t)}}} */ " if is_annotated or self._is_empty(value, t) else ""
        if isinstance(target, ast.Name) and (word := self._word(s, target)):
            return f"{annotation}{word} {camel(target.id)} = {x};"
        if isinstance(target, ast.Tuple):
            words = {self._word(s, n) for n in target.elts if isinstance(n, ast.Name) and n.id != "_"}
            if not words or "" in words:
                return f"[{', '.join(str(self.place(n)) for n in target.elts)}] = {x};"
            return f"{'let' if 'let' in words else 'const'} {self.x.target(target)} = {x};"
        is_field = isinstance(target, ast.Attribute) and (is_annotated or self.x.typed.is_new_field(target))
        return f"{annotation if is_field else ''}{self.stored(target, x)};"

    def _word(self, s: ast.stmt, target: ast.Name) -> str:
        """ "const" or "let" if this statement declares the variable, otherwise ""."""
        if target.id in self.variables.hoisted:
            self.hoisted.setdefault(target.id, self.x.typed.declared(target))
        return self.variables.words.get((s.lineno, target.id), "")

    def _several(self, s: ast.Assign, indent: str) -> Lines:
        """`a = b = value`, where the value may be evaluated twice."""
        if not isinstance(s.value, ast.Name | ast.Constant):
            raise Refused(s, "an assignment to several places of anything but a name, an integer or text")
        return [(f"{indent}{self.stored(x, self.x.js(s.value))};", s.lineno) for x in s.targets]

    def _is_empty(self, value: ast.expr, t: PythonType) -> bool:
        """Whether TypeScript would not find the type of a variable by its first value."""
        if isinstance(value, ast.Tuple):
            return True  # it would find an array
        if isinstance(value, ast.Call):
            return not value.args and getattr(value.func, "id", "") in ("set", "dict", "list")
        is_none = isinstance(value, ast.Constant) and value.value is None
        is_display = isinstance(value, ast.List) and not value.elts or isinstance(value, ast.Dict) and not value.keys
        return is_display or is_none and is_optional(t) or self.x.typed.global_name(value) == "math.inf"

    def _is_entry(self, target: ast.expr) -> bool:
        """Whether an assignment goes to an entry of a map."""
        return isinstance(target, ast.Subscript) and self.x.kind(target.value) == "map"

    def stored(self, target: ast.expr, value: Js) -> str:
        """An assignment."""
        if isinstance(target, ast.Subscript) and self._is_entry(target):
            return str(method(self.x.js(target.value), "set", self.x.js(target.slice), value))
        return f"{self.place(target)} = {value}"

    def place(self, target: ast.expr) -> Js:
        """What stands on the left of an assignment. Errors: Refused for an entry of a map"""
        if isinstance(target, ast.Name):
            return plain(camel(target.id))
        if isinstance(target, ast.Attribute):
            return member(self.x.js(target.value), camel(target.attr))
        is_index = isinstance(target, ast.Subscript) and not isinstance(target.slice, ast.Slice | ast.UnaryOp)
        if isinstance(target, ast.Subscript) and is_index and not self._is_entry(target):
            base, at = self.x.js(target.value), self.x.js(target.slice)
            return index(base, self.x.checked("inside", base, at) if self.x.kind(target.value) == "list" else at)
        raise Refused(target, "an assignment to this")

    def _AugAssign(self, s: ast.AugAssign, indent: str) -> str:
        target, op, value, found = s.target, type(s.op), s.value, self.x.kind(s.target)
        if isinstance(target, ast.Subscript) and not is_pure(target):
            raise Refused(s, "a call in the place of an assignment with an operator")
        if found in ("number", "string"):
            return self._operated(s, found)
        x = self.x.js(target)
        if found == "list" and op is ast.Add:
            return f"{method(x, 'push', tree.spread(self.x.iterable(value)))};"
        if found == "map" and op is ast.BitOr:
            return f"{self.x.support('updateMap', x, self.x.js(value))};"
        if found == "set" and op is ast.BitOr:
            return f"{self.x.support('updateSet', x, self.x.iterable(value, 'a set'))};"
        raise Refused(s, f"{op.__name__} and = of {found}")

    def _operated(self, s: ast.AugAssign, found: str) -> str:
        """An operator and an assignment, for a number or a text."""
        whole = self.x.operation(s, s.target, type(s.op), s.value, found)
        left = whole.parts[0]
        if self._is_entry(s.target) or isinstance(left, str) or str(left[0]) != str(self.x.js(s.target)):
            return f"{self.stored(s.target, whole)};"
        operator = whole.operator
        if operator not in ("+", "-", "*", "/") or not isinstance(whole.parts[2], tuple):
            return f"{self.stored(s.target, whole)};"
        return f"{self.place(s.target)} {operator}= {whole.parts[2][0]};"

    # ── control flow ──

    def _If(self, s: ast.If, indent: str) -> Lines:
        lines = self._braced(f"if ({self.x.condition(s.test)})", s.lineno, s.body, indent, self.x.found(s.test))
        lines = self._on_one_line(lines)
        if not s.orelse:
            return lines
        first = s.orelse[0]
        if isinstance(first, ast.If) and len(s.orelse) == 1:
            rest = self._If(first, indent)
            rest[0] = (f"{indent}else {rest[0][0].lstrip()}", rest[0][1])
        else:
            rest = self._on_one_line(self._braced("else", first.lineno, s.orelse, indent))
        return self._followed(lines, rest, indent) if lines[-1][0] == f"{indent}}}" else [*lines, *rest]

    def _on_one_line(self, lines: Lines) -> Lines:
        """Without braces, if the body is one short simple statement."""
        if len(lines) != 3 or "//" in lines[1][0] or lines[1][0].lstrip().startswith(("const ", "let ", "/**")):
            return lines
        joined = f"{lines[0][0].removesuffix(' {')} {lines[1][0].lstrip()}"
        return [(joined, lines[1][1])] if len(joined) <= WIDTH else lines

    def _While(self, s: ast.While, indent: str) -> Lines:
        if s.orelse:
            raise Refused(s, "while … else")
        return self._braced(f"while ({self.x.condition(s.test)})", s.lineno, s.body, indent, self.x.found(s.test))

    def _For(self, s: ast.For, indent: str) -> Lines:
        if s.orelse:
            raise Refused(s, "for … else")
        return self._on_one_line(self._braced(self._for_head(s), s.lineno, s.body, indent))

    def _for_head(self, s: ast.For) -> str:
        e = s.iter
        if isinstance(e, ast.Call) and self.x.typed.global_name(e.func) == "builtins.range":
            if not isinstance(s.target, ast.Name) or len(e.args) > 2:
                raise Refused(s, "range() with a step")
            name = "i_" if s.target.id == "_" else camel(s.target.id)
            begin, end = [plain("0"), *self.x.all(e.args)][-2:]
            if s.target.id in self.variables.assigned:
                raise Refused(s, f"the loop assigns its variable {name}")
            if self._may_change(e.args[-1]):
                return f"for (let {name} = {begin}, {name}End = {end}; {name} < {name}End; {name}++)"
            return f"for (let {name} = {begin}; {name} < {end}; {name}++)"
        word = "let" if any(n in self.variables.assigned for n in self.variables.loops.get(s.lineno, ())) else "const"
        return f"for ({word} {self.x.target(s.target)} of {self.x.iterable(e)})"

    def _may_change(self, bound: ast.expr) -> bool:
        """Whether a bound, which Python computes once, may change in the loop."""
        return (
            bound.id in self.variables.assigned if isinstance(bound, ast.Name) else not isinstance(bound, ast.Constant)
        )

    def _Try(self, s: ast.Try, indent: str) -> Lines:
        lines = self._braced("try", s.lineno, s.body, indent)
        if s.orelse or len(s.handlers) > 1:
            raise Refused(s, "try with else, or with several handlers")
        for handler in s.handlers:
            if getattr(handler.type, "id", "") != "Exception":
                raise Refused(handler, "a handler of anything but Exception")
            before, self.caught = self.caught, camel(handler.name or "")
            head = f"catch ({self.caught})" if handler.name else "catch"
            lines = self._followed(lines, self._braced(head, handler.lineno, handler.body, indent), indent)
            self.caught = before
        if s.finalbody:
            lines = self._followed(lines, self._braced("finally", s.finalbody[0].lineno, s.finalbody, indent), indent)
        return lines

    @staticmethod
    def _followed(lines: Lines, rest: Lines, indent: str) -> Lines:
        """A block, and what follows on the line of its last brace."""
        return [*lines[:-1], (f"{indent}}} {rest[0][0].lstrip()}", rest[0][1]), *rest[1:]]

    def _FunctionDef(self, f: Function, indent: str) -> Lines:
        """A function inside another."""
        names = ", ".join(self.parameters(f))
        head = f"{indent}/** @type {{{self.x.names.text(self.x.typed.function(f))}}} */"
        return [
            (head, f.lineno),
            (f"{indent}const {camel(f.name)} = {asynchronous(f)}({names}) => {{", f.lineno),
            *self.body(f, indent + "  "),
            (f"{indent}}};", 0),
        ]

    _AsyncFunctionDef = _FunctionDef


def asynchronous(f: Function) -> str:
    return "async " if isinstance(f, ast.AsyncFunctionDef) else ""


def default_values(f: Function) -> dict[str, ast.expr]:
    """Defaults of parameters, by name."""
    positional = f.args.args[len(f.args.args) - len(f.args.defaults) :]
    named = {a.arg: d for a, d in zip(f.args.kwonlyargs, f.args.kw_defaults, strict=True) if d is not None}
    return {a.arg: d for a, d in zip(positional, f.args.defaults, strict=True)} | named


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


def without_docstring(statements: list[ast.stmt]) -> list[ast.stmt]:
    first = statements[0] if statements else None
    is_text = isinstance(first, ast.Expr) and isinstance(getattr(first.value, "value", None), str)
    return statements[1:] if is_text else statements


__all__ = [
    "Lines",
    "Statements",
    "asynchronous",
    "default_values",
    "option_tags",
    "with_options",
    "without_docstring",
    "wrapped",
]
