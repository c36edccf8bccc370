"""Writes pyruntime/frontend/operator_types.py: the types in the schemas of the `onnx` package, and in onnxruntime's
schemas of its own operators, in a compact form for browsers. Run it when the pinned version of one of them changes, or
when an operator of onnxruntime's is added."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path
from typing import Any

import onnx
from onnxruntime.capi.onnxruntime_pybind11_state import get_all_operator_schema

import pyruntime.ops  # noqa: F401  fills the registry
from pyruntime.frontend import registry
from pyruntime.ir.dtype import ALL

TARGET = Path(__file__).parents[1] / "pyruntime/frontend/operator_types.py"
LETTERS = dict(zip([d.name for d in ALL], "ABCDEFGHIJKLMNOPQRSTUVWXYZab", strict=True))
NAMES = {"float": "float32", "double": "float64"}
HEAD = '''# ruff: noqa: E501
"""What the schemas of the standard and of onnxruntime say of operators' types. Written by scripts/operator_types.py;
`signatures.py` reads it.

SETS: sets of types, a letter each in the order of `dtype.ALL` (A float32, B uint8, …); s a sequence, o an optional, m a
map. OPERATORS, a line for operators that agree: domain:name of each, then = and the versions
`since:min:max:outputs:parameters:sets`. A parameter is the letter of its type variable, then ? if it is optional, * if
it repeats, + if it repeats with any types; a variable's set is the number at the letter's place. One more number at the
end is the set of the result, where an attribute chooses it.
"""

'''
CHOOSING = {"dtype", "output_dtype", "output_datatype"}  # Cast accepts at every opset the types of later opsets


def letters(types: list[str]) -> str:
    found = set()
    for name in types:
        kind, _, element = name.rstrip(")").partition("(")
        if kind in ("tensor", "sparse_tensor"):  # which is fed as a dense tensor
            found.add(LETTERS[NAMES.get(element, element)])
        else:
            found.add(kind[0])  # seq, optional, map
    return "".join(sorted(found))


def version(schema: Any, sets: dict[str, int]) -> str:
    """Of a schema of onnx or, whose fields have other names, of onnxruntime."""
    standard = isinstance(schema, onnx.defs.OpSchema)
    kind, homogeneous = ("type_str", "is_homogeneous") if standard else ("typeStr", "isHomogeneous")
    allowed = {c.type_param_str: c.allowed_type_strs for c in schema.type_constraints}
    variables: dict[str, str] = {}
    numbers: list[str] = []
    parameters = ""
    for p in schema.inputs:
        # a type that is no variable binds no other input
        written = getattr(p, kind)
        name = written if written in allowed else p.name
        if name not in variables:
            variables[name] = chr(ord("a") + len(variables))
            found = letters(list(allowed.get(written, [written])))
            numbers.append(str(sets.setdefault(found, len(sets))))
        parameters += variables[name]
        if p.option.name == "Optional":
            parameters += "?"
        elif p.option.name == "Variadic":
            parameters += "*" if getattr(p, homogeneous) else "+"
    most, outputs = ("" if n == 2**31 - 1 else n for n in (schema.max_input, schema.max_output))
    text = f"{schema.min_input}:{most}:{outputs}:{parameters}:{'.'.join(numbers)}"
    result = getattr(schema.outputs[0], kind) if schema.outputs else ""
    if result in variables or result not in allowed or CHOOSING.isdisjoint(schema.attributes):
        return text
    found = letters(list(allowed[result]))
    return f"{text}:{sets.setdefault(found, len(sets))}"


def render() -> str:
    """The text of the module."""
    schemas = [s for s in onnx.defs.get_all_schemas_with_history() if (s.domain, s.name) in registry.table()]
    own = registry.table().keys() - {(s.domain, s.name) for s in schemas}
    schemas += [s for s in get_all_operator_schema() if (s.domain, s.name) in own]
    schemas.sort(key=lambda s: (s.domain, s.name, s.since_version))
    sets: dict[str, int] = {}
    rows: dict[tuple[str, str], str] = {}
    for (domain, name), versions in groupby(schemas, lambda s: (s.domain, s.name)):
        parts: list[str] = []
        before = ""
        for s in versions:
            text = version(s, sets)
            if text != before:
                parts.append(f"{s.since_version}:{text}")
            before = text
        rows[domain, name] = " ".join(parts)
    # Exporters write some standard operators with Microsoft's domain. Types of operators without schema are unchecked.
    rows |= {key: rows["", key[1]] for key in own - rows.keys() if ("", key[1]) in rows}
    names: dict[str, list[str]] = {}
    for (domain, name), row in sorted(rows.items()):
        names.setdefault(row, []).append(f"{domain}:{name}")
    lines = "\n".join(f"{' '.join(operators)} = {row}" for row, operators in names.items())
    fields = "\n".join(sets)
    return f'{HEAD}SETS = """\n{fields}\n"""\n\nOPERATORS = """\n{lines}\n"""\n'


if __name__ == "__main__":
    TARGET.write_text(render())
