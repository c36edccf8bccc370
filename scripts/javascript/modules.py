"""Modules, classes and functions of the subset, in JavaScript."""

from __future__ import annotations

import inspect
import io
import re
import textwrap
import tokenize
from typing import Any

from mypy import nodes
from mypy.types import CallableType, NoneType, Type, get_proper_type

from scripts.javascript.calls import Calls
from scripts.javascript.expressions import EXTERNAL, RUNTIME, Refused
from scripts.javascript.kinds import camel
from scripts.javascript.statements import Lines, Statements, option_tags, with_options, without_docstring, wrapped
from scripts.javascript.variables import scopes

WIDTH = 120


class Module:
    """One module. tree, types: mypy's; text: the Python."""

    def __init__(self, tree: nodes.MypyFile, types: dict[Any, Type], text: str) -> None:
        self.tree = tree
        self.x = Calls(tree.fullname, types)
        self.s = Statements(self.x, _comments(text), scopes(text))
        self.own = {d.name for d in tree.defs if isinstance(d, nodes.ClassDef)}

    def lines(self) -> Lines:
        body = self._body()
        head: Lines = [(f"// {line}".rstrip(), 0) for line in self._note()]
        imports: Lines = [
            (f"import {{ {', '.join(sorted(n))} }} from '{file}';", 0) for file, n in sorted(self.x.imports.items())
        ]
        blank: Lines = [("", 0)]
        found = [*head, *(blank + imports if imports else []), *(blank + t if (t := self._typedefs()) else []), *body]
        return found

    def _note(self) -> list[str]:
        name = self.tree.fullname.replace(".", "/")
        doc = inspect.cleandoc(self._docstring(self.tree.defs) or "")
        note = f"Translated from {name}.py by scripts/javascript; do not edit."
        return [note, *_wrap(doc.split("\n\n")[0], WIDTH - 3)]

    def _typedefs(self) -> Lines:
        found: Lines = []
        imported = {n for names in self.x.imports.values() for n in names}
        for full, name in sorted(self.x.names.names.items()):
            module = full.rpartition(".")[0]
            if module == self.tree.fullname or name in imported:
                continue
            file = EXTERNAL.get(module) or f"./{module.removeprefix(RUNTIME)}.js"
            if module not in EXTERNAL and not module.startswith(RUNTIME):
                raise Refused(self.tree, f"the type {full} does not exist in JavaScript")
            found.append((f"/** @typedef {{import('{file}').{name}}} {name} */", 0))
        return found

    def _body(self) -> Lines:
        lines: Lines = []
        at = 0
        before = ""
        for d in without_docstring(self.tree.defs):
            written = self._definition(d)
            if not written:
                continue
            alone = [(c, n) for n, c in self.s._alone(at + 1, d.line)] if at else []
            kind = type(d).__name__
            gap: Lines = [] if kind == before == "AssignmentStmt" else [("", 0)]
            lines += [*gap, *alone, *written]
            before, at = kind, max(d.line, d.end_line or d.line)
        return lines

    def _definition(self, d: Any) -> Lines:
        if isinstance(d, nodes.ClassDef):
            return self._protocol(d) if d.info.is_protocol else self._class(d)
        if isinstance(d, nodes.FuncDef):
            return self._function(d, f"{self._export(d.name)}function ", "")
        if isinstance(d, nodes.AssignmentStmt):
            return self._constant(d)
        if isinstance(d, (nodes.ImportFrom, nodes.Import, nodes.ImportAll)) or isinstance(d, nodes.IfStmt):
            return []
        raise Refused(d, f"{type(d).__name__} at the top of a module")

    @staticmethod
    def _export(name: str) -> str:
        return "" if name.startswith("_") else "export "

    def _constant(self, d: nodes.AssignmentStmt) -> Lines:
        target = d.lvalues[0]
        if not isinstance(target, nodes.NameExpr):
            raise Refused(d, "only constants and types are assigned at the top of a module")
        if target.name == "__all__":
            return []
        if _is_type(d):
            return self._alias(d, target.name)
        value = self.x.text(d.rvalue, d.type)
        typed = (
            f"/** @type {{{self.x.names.text(d.type)}}} */\n"
            if d.type is not None and d.unanalyzed_type is not None
            else ""
        )
        text = f"{typed}{self._export(target.name)}const {camel(target.name)} = {value};"
        if (c := self.s.comments.get(d.line)) and not c[0]:
            text += f" // {c[1]}"
        return [(line, d.line) for whole in text.split("\n") for line in wrapped(whole)]

    def _alias(self, d: nodes.AssignmentStmt, name: str) -> Lines:
        """A name for a type."""
        alias = getattr(d.rvalue, "analyzed", None)
        if not isinstance(alias, nodes.TypeAliasExpr):
            return []
        comment = self.s.comments.get(d.line)
        about = f"{comment[1]} " if comment and not comment[0] else ""
        return [(f"/** {about}@typedef {{{self.x.names.text(alias.node.target)}}} {name} */", d.line)]

    # ── functions ──

    def _function(self, f: nodes.FuncDef, head: str, indent: str) -> Lines:
        doc = self._jsdoc(f, indent)
        names = ", ".join(self.s.parameters(f))
        body = self.s.body(f, indent + "  ")
        return [
            *doc,
            (f"{indent}{head}{camel(f.name) if f.name != '__init__' else 'constructor'}({names}) {{", f.line),
            *body,
            (f"{indent}}}", 0),
        ]

    def _jsdoc(self, f: nodes.FuncDef, indent: str) -> Lines:
        signature = get_proper_type(f.type)
        if not isinstance(signature, CallableType):
            raise Refused(f, f"{f.name} has no annotations")
        tags = option_tags([
            (camel(a.variable.name), self.x.names.text(t), a.initializer is not None, a.kind.is_named())
            for a, t in zip(f.arguments, signature.arg_types, strict=True)
            if a.variable.name != "self"
        ])  # fmt: skip
        returned = get_proper_type(signature.ret_type)
        if f.name != "__init__" and not isinstance(returned, NoneType):
            tags.append(f"@returns {{{self.x.names.text(returned)}}}")
        return _comment(_first(self._docstring(f.body.body)), tags, indent, f.line)

    @staticmethod
    def _docstring(statements: list[Any]) -> str:
        first = statements[0] if statements else None
        if isinstance(first, nodes.ExpressionStmt) and isinstance(first.expr, nodes.StrExpr):
            return first.expr.value
        return ""

    # ── classes ──

    def _class(self, d: nodes.ClassDef) -> Lines:
        base = f" extends {self._base(d)}" if d.base_type_exprs else ""
        lines = _comment(_first(self._docstring(d.defs.body)), [], "", d.line)
        lines.append((f"{self._export(d.name)}class {d.name}{base} {{", d.line))
        members: list[Lines] = []
        fields = [s for s in d.defs.body if isinstance(s, nodes.AssignmentStmt) and not _is_slots(s)]
        if fields:
            members.append(self._fields(d, fields))
        for s in without_docstring(d.defs.body):
            if isinstance(s, nodes.FuncDef) and (
                s.line not in self.s.scopes or s.name.startswith("__") and s.name != "__init__"
            ):
                continue  # mypy added it to a dataclass
            if isinstance(s, nodes.FuncDef):
                members.append(self._function(s, "", "  "))
            elif isinstance(s, nodes.Decorator) and s.name.startswith("__mypy"):
                continue
            elif isinstance(s, nodes.Decorator):
                word = "get " if s.func.is_property else "static " if s.func.is_static else ""
                if not word:
                    raise Refused(s, "a decorator")
                members.append(self._function(s.func, word, "  "))
            elif not isinstance(s, (nodes.AssignmentStmt, nodes.PassStmt)):
                raise Refused(s, f"{type(s).__name__} in a class")
        for n, member in enumerate(m for m in members if m):
            lines += [*([("", 0)] if n else []), *member]
        return [*lines, ("}", 0)]

    def _base(self, d: nodes.ClassDef) -> str:
        """The class that d extends. Its __init__, if it has one, begins with that of this class."""
        base = d.base_type_exprs[0]
        if (
            len(d.base_type_exprs) > 1
            or not isinstance(base, nodes.RefExpr)
            or not isinstance(base.node, nodes.TypeInfo)
        ):
            raise Refused(d, f"{d.name} inherits from anything but one class")
        if d.decorators or base.node.is_protocol or base.node.metadata.get("dataclass"):
            raise Refused(d, f"{d.name} inherits: a dataclass or a Protocol")
        own = next((s for s in d.defs.body if isinstance(s, nodes.FuncDef) and s.name == "__init__"), None)
        first = without_docstring(own.body.body)[0] if own else None
        called = getattr(getattr(first, "expr", None), "callee", None)
        if own and not (isinstance(called, nodes.SuperExpr) and called.name == "__init__"):
            raise Refused(own, f"__init__ of {d.name} does not begin with super().__init__()")
        return self.x.text(base)

    def _fields(self, d: nodes.ClassDef, fields: list[nodes.AssignmentStmt]) -> Lines:
        """The constructor of a dataclass."""
        named = any(getattr(x, "callee", None) and "kw_only" in x.arg_names for x in d.decorators)  # type: ignore[attr-defined]
        tags, parameters, body = [], [], []
        for s in fields:
            target = s.lvalues[0]
            assert isinstance(target, nodes.NameExpr)
            name, default = camel(target.name), self._default(s)
            tags.append((name, self.x.names.text(s.type), bool(default), named))
            parameters.append((name, default, named))
            comment = self.s.comments.get(s.line)
            body.append(
                (f"    this.{name} = {name};{f' // {comment[1]}' if comment and not comment[0] else ''}", s.line)
            )
        head = [(line, d.line) for line in wrapped(f"  constructor({', '.join(with_options(parameters))}) {{")]
        return [*_comment("", option_tags(tags), "  ", d.line), *head, *body, ("  }", 0)]

    def _default(self, s: nodes.AssignmentStmt) -> str:
        value = s.rvalue
        if isinstance(value, nodes.TempNode):
            return ""
        if isinstance(value, nodes.CallExpr) and getattr(value.callee, "fullname", "") == "dataclasses.field":
            made = dict(zip(value.arg_names, value.args, strict=True))["default_factory"]
            return {"list": "[]", "dict": "new Map()", "set": "new Set()"}[made.name]  # type: ignore[attr-defined]
        return self.x.text(value, s.type)

    def _protocol(self, d: nodes.ClassDef) -> Lines:
        parts = []
        for s in without_docstring(d.defs.body):
            f = s.func if isinstance(s, nodes.Decorator) else s
            if isinstance(f, nodes.FuncDef) and isinstance(f.type, CallableType):
                bound = f.type.copy_modified(
                    arg_types=f.type.arg_types[1:], arg_kinds=f.type.arg_kinds[1:], arg_names=f.type.arg_names[1:]
                )
                text = self.x.names.text(bound.ret_type if f.is_property else bound)
                parts.append(f"{camel(f.name)}: {text if f.is_property else text[1:-1]}")
            elif isinstance(f, nodes.AssignmentStmt) and isinstance(f.lvalues[0], nodes.NameExpr):
                parts.append(f"{camel(f.lvalues[0].name)}: {self.x.names.text(f.type)}")
        return _comment(
            _first(self._docstring(d.defs.body)), [f"@typedef {{{{ {', '.join(parts)} }}}} {d.name}"], "", d.line
        )


def _is_type(d: nodes.AssignmentStmt) -> bool:
    """Whether this names a type."""
    analyzed = getattr(d.rvalue, "analyzed", None)
    is_alias = isinstance(analyzed, nodes.TypeAliasExpr) or isinstance(
        getattr(d.lvalues[0], "node", None), nodes.TypeAlias
    )
    return is_alias or isinstance(analyzed, nodes.TypeVarExpr)


def _is_slots(s: nodes.AssignmentStmt) -> bool:
    return getattr(s.lvalues[0], "name", "") == "__slots__"


def _first(doc: str) -> str:
    """A docstring, with the names of JavaScript."""
    words = " ".join(inspect.cleandoc(doc).split())
    words = re.sub(r"\b[a-z]+(_[a-z]+)+\b(?![./])", lambda found: camel(found[0]), words)
    return re.sub(r"\bNone\b", "null", words)


def _wrap(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, width, break_on_hyphens=False, break_long_words=False)


def _comment(text: str, tags: list[str], indent: str, line: int) -> Lines:
    if not text and not tags:
        return []
    one = f"{indent}/** {' '.join([text, *tags]).strip()} */"
    if len(one) <= WIDTH:
        return [(one, line)]
    wrapped = [*_wrap(text, WIDTH - len(indent) - 3), *_joined(tags, WIDTH - len(indent) - 3)]
    return [(f"{indent}/**", line), *[(f"{indent} * {w}", line) for w in wrapped], (f"{indent} */", line)]


def _joined(tags: list[str], width: int) -> list[str]:
    """Tags, as many on a line as fit."""
    lines: list[str] = []
    for tag in tags:
        if lines and len(lines[-1]) + len(tag) < width:
            lines[-1] += f" {tag}"
        else:
            lines.append(tag)
    return lines


def _comments(text: str) -> dict[int, tuple[bool, str]]:
    found = {}
    for t in tokenize.generate_tokens(io.StringIO(text).readline):
        if t.type == tokenize.COMMENT and not re.match(r"# (noqa|type:|fmt:)", t.string):
            found[t.start[0]] = (not t.line[: t.start[1]].strip(), t.string.removeprefix("#").strip())
    return found


__all__ = ["Module"]
