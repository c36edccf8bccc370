"""Modules, classes and functions of the subset, in JavaScript."""

from __future__ import annotations

import ast
import io
import re
import textwrap
import tokenize

from scripts.javascript import python_types as types
from scripts.javascript.calls import Calls
from scripts.javascript.expressions import EXTERNAL, RUNTIME
from scripts.javascript.names import Refused, camel
from scripts.javascript.python_types import TypedModule
from scripts.javascript.statements import (
    Lines,
    Statements,
    asynchronous,
    default_values,
    option_tags,
    with_options,
    without_docstring,
    wrapped,
)
from scripts.javascript.variables import Function, scopes

WIDTH = 120
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.Lambda)


class Module:
    """One module. typed: its tree and what mypy knows; text: the Python; is_checked: as of Expressions"""

    def __init__(self, name: str, typed: TypedModule, text: str, is_checked: bool = False) -> None:
        self.name = name
        self.typed = typed
        self.x = Calls(name, typed, is_checked)
        self.s = Statements(self.x, _comments(text), scopes(typed.tree))

    def lines(self) -> Lines:
        body = self._body()
        head: Lines = [(f"// {line}".rstrip(), 0) for line in self._note()]
        imports: Lines = [
            (f"import {{ {', '.join(sorted(n))} }} from '{file}';", 0) for file, n in sorted(self.x.imports.items())
        ]
        blank: Lines = [("", 0)]
        return [*head, *(blank + imports if imports else []), *(blank + t if (t := self._typedefs()) else []), *body]

    def _note(self) -> list[str]:
        doc = ast.get_docstring(self.typed.tree) or ""
        note = f"Translated from {self.name.replace('.', '/')}.py by scripts/javascript; do not edit."
        return [note, *_wrap(doc.split("\n\n")[0], WIDTH - 3)]

    def _typedefs(self) -> Lines:
        found: Lines = []
        imported = {n for names in self.x.imports.values() for n in names}
        for full, name in sorted(self.x.names.names.items()):
            module = full.rpartition(".")[0]
            if module == self.name or name in imported:
                continue
            file = EXTERNAL.get(module) or f"./{module.removeprefix(RUNTIME)}.js"
            if module not in EXTERNAL and not module.startswith(RUNTIME):
                raise Refused(self.typed.tree, f"the type {full} does not exist in JavaScript")
            found.append((f"/** @typedef {{import('{file}').{name}}} {name} */", 0))
        return found

    def _body(self) -> Lines:
        for e in ast.walk(self.typed.tree):
            if isinstance(e, COMPREHENSIONS) and (
                inner := next((x for x in ast.walk(e) if isinstance(x, ast.Await)), None)
            ):
                raise Refused(inner, "await in a comprehension or a lambda")
        lines: Lines = []
        at = 0
        before = ""
        for d in without_docstring(self.typed.tree.body):
            written = self._definition(d)
            if not written:
                continue
            begin = min([d.lineno, *(x.lineno for x in getattr(d, "decorator_list", []))])
            alone = [(c, n) for n, c in self.s.alone(at + 1, begin)] if at else []
            kind = "constant" if isinstance(d, ast.Assign | ast.AnnAssign) else type(d).__name__
            gap: Lines = [] if kind == before == "constant" else [("", 0)]
            lines += [*gap, *alone, *written]
            before, at = kind, d.end_lineno or d.lineno
        return lines

    def _definition(self, d: ast.stmt) -> Lines:
        if isinstance(d, ast.ClassDef):
            return self._protocol(d) if any(getattr(b, "id", "") == "Protocol" for b in d.bases) else self._class(d)
        if isinstance(d, Function):
            return self._function(d, f"{self._export(d.name)}{asynchronous(d)}function ", "")
        if isinstance(d, ast.Assign | ast.AnnAssign):
            return self._constant(d)
        if isinstance(d, ast.ImportFrom | ast.Import | ast.If):
            return []
        raise Refused(d, f"{type(d).__name__} at the top of a module")

    @staticmethod
    def _export(name: str) -> str:
        return "" if name.startswith("_") else "export "

    def _constant(self, d: ast.Assign | ast.AnnAssign) -> Lines:
        target = d.targets[0] if isinstance(d, ast.Assign) else d.target
        if not isinstance(target, ast.Name):
            raise Refused(d, "only constants and types are assigned at the top of a module")
        if target.id == "__all__" or d.value is None:
            return []
        comment = self.s.comments.get(d.lineno)
        about = comment[1] if comment and not comment[0] else ""
        if self.typed.global_name(d.value) == "typing.Any":
            return [(f"/** {about} @typedef {{any}} {target.id} */", d.lineno)]
        if self.typed.names_type(target, d.value):
            named = self.typed.named_type(d.value)
            note = f"{about} " if about else ""
            text = f"/** {note}@typedef {{{self.x.names.text(named)}}} {target.id} */"
            return [(text, d.lineno)] if named is not None else []
        t = self.typed.declared(target)
        typed = f"/** @type {{{self.x.names.text(t)}}} */\n" if isinstance(d, ast.AnnAssign) else ""
        value = self.x.js(d.value, t if isinstance(d, ast.AnnAssign) else None)
        text = f"{typed}{self._export(target.id)}const {camel(target.id)} = {value};"
        text += f" // {about}" if about else ""
        return [(line, d.lineno) for whole in text.split("\n") for line in wrapped(whole)]

    # ── functions ──

    def _function(self, f: Function, head: str, indent: str) -> Lines:
        name = camel(f.name) if f.name != "__init__" else "constructor"
        doc, names, body = self._jsdoc(f, indent), ", ".join(self.s.parameters(f)), self.s.body(f, indent + "  ")
        return [*doc, (f"{indent}{head}{name}({names}) {{", f.lineno), *body, (f"{indent}}}", 0)]

    def _jsdoc(self, f: Function, indent: str) -> Lines:
        signature, defaults = self.typed.function(f), default_values(f)
        tags = option_tags([
            (camel(p.name), self.x.names.text(p.type), p.name in defaults, p.is_named)
            for p in types.signature(signature) or []
            if p.name != "self"
        ])  # fmt: skip
        returned = types.result(signature)
        if f.name != "__init__" and types.kind(returned) != "none":
            tags.append(f"@returns {{{self.x.names.text(returned)}}}")
        return _comment(_documentation(f), tags, indent, f.lineno)

    # ── classes ──

    def _class(self, d: ast.ClassDef) -> Lines:
        if d.bases:
            raise Refused(d, f"{d.name} inherits")
        lines = _comment(_documentation(d), [], "", d.lineno)
        lines.append((f"{self._export(d.name)}class {d.name} {{", d.lineno))
        members: list[Lines] = []
        fields = [s for s in d.body if isinstance(s, ast.AnnAssign)]
        if fields or d.decorator_list:
            members.append(self._fields(d, fields))
        for s in without_docstring(d.body):
            if isinstance(s, Function):
                words = {"property": "get ", "staticmethod": "static "}
                decorators = [words.get(getattr(x, "id", "")) for x in s.decorator_list]
                if None in decorators or len(decorators) > 1:
                    raise Refused(s, "a decorator")
                members.append(self._function(s, str(decorators[0]) if decorators else asynchronous(s), "  "))
            elif not isinstance(s, ast.AnnAssign | ast.Pass) and not _is_slots(s):
                raise Refused(s, f"{type(s).__name__} in a class")
        for n, member in enumerate(members):
            lines += [*([("", 0)] if n else []), *member]
        return [*lines, ("}", 0)]

    def _fields(self, d: ast.ClassDef, fields: list[ast.AnnAssign]) -> Lines:
        """The constructor of a dataclass."""
        options = {k.arg: k.value for x in d.decorator_list if isinstance(x, ast.Call) for k in x.keywords}
        if getattr(options.get("eq"), "value", True) and not getattr(options.get("frozen"), "value", False):
            raise Refused(d, f"{d.name} compares by value: write @dataclass(eq=False), or (frozen=True)")
        tags, parameters, body = [], [], []
        for s in fields:
            assert isinstance(s.target, ast.Name)
            name, default, named = camel(s.target.id), self._default(s), "kw_only" in options
            tags.append((name, self.x.names.text(self.typed.declared(s.target)), bool(default), named))
            parameters.append((name, default, named))
            comment = self.s.comments.get(s.lineno)
            about = f" // {comment[1]}" if comment and not comment[0] else ""
            body.append((f"    this.{name} = {name};{about}", s.lineno))
        head = [(line, d.lineno) for line in wrapped(f"  constructor({', '.join(with_options(parameters))}) {{")]
        return [*_comment("", option_tags(tags), "  ", d.lineno), *head, *body, ("  }", 0)]

    def _default(self, s: ast.AnnAssign) -> str:
        value = s.value
        if value is None:
            return ""
        if isinstance(value, ast.Call) and getattr(value.func, "id", "") == "field":
            made = next(k.value for k in value.keywords if k.arg == "default_factory")
            return {"list": "[]", "dict": "new Map()", "set": "new Set()"}[made.id]  # type: ignore[attr-defined]
        return str(self.x.js(value, self.typed.declared(s.target)))

    def _protocol(self, d: ast.ClassDef) -> Lines:
        parts = []
        for s in without_docstring(d.body):
            if isinstance(s, Function):
                t = self.typed.function(s)
                text = self.x.names.text(types.result(t)) if s.decorator_list else self.x.names.method(t)
                parts.append(f"{camel(s.name)}: {text}")
            elif isinstance(s, ast.AnnAssign) and isinstance(s.target, ast.Name):
                parts.append(f"{camel(s.target.id)}: {self.x.names.text(self.typed.declared(s.target))}")
        return _comment(_documentation(d), [f"@typedef {{{{ {', '.join(parts)} }}}} {d.name}"], "", d.lineno)


def _is_slots(s: ast.stmt) -> bool:
    return isinstance(s, ast.Assign) and getattr(s.targets[0], "id", "") == "__slots__"


def _documentation(node: Function | ast.ClassDef) -> str:
    """A docstring with the names of JavaScript: its paragraphs, and the items of lists after the first, on lines of
    their own."""
    first, *rest = re.split(r"\n\s*\n", ast.get_docstring(node) or "")
    lines = [first, *(line for part in rest for line in ["", *re.split(r"\n(?=[a-z_]+: |- )", part)])]
    text = "\n".join(" ".join(line.split()) for line in lines)
    text = re.sub(r"\b[a-z]+(_[a-z]+)+\b(?![./])", lambda found: camel(found[0]), text)
    return re.sub(r"\bNone\b", "null", text)


def _wrap(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, width, break_on_hyphens=False, break_long_words=False)


def _comment(text: str, tags: list[str], indent: str, line: int) -> Lines:
    if not text and not tags:
        return []
    one = f"{indent}/** {' '.join([text, *tags]).strip()} */"
    if len(one) <= WIDTH and "\n" not in text:
        return [(one, line)]
    width = WIDTH - len(indent) - 3
    about = [w for part in text.split("\n") for w in _wrap(part, width) or [""]] if text else []
    written = [f"{indent} * {w}".rstrip() for w in [*about, *_joined(tags, width)]]
    return [(f"{indent}/**", line), *[(w, line) for w in written], (f"{indent} */", line)]


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
