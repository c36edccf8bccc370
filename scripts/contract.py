"""Writes files that follow from one source each:

pyruntime/program/schema.json: types for Python and JavaScript, a schema for the browser, docs/architecture.md
pyruntime/options.py: the page's table of options, their TypeScript types, docs/api/options.md
pyruntime/codegen/linear_memory.py: the same constants for JavaScript

Usage: python -m scripts.contract [--check]    --check: only print which of them are stale
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from scripts import option_table

ROOT = Path(__file__).parent.parent
SCHEMA = json.loads((ROOT / "pyruntime/program/schema.json").read_text())
DEFINITIONS: dict[str, dict[str, Any]] = SCHEMA["$defs"] | {
    "Header": {k: v for k, v in SCHEMA.items() if k not in ("$schema", "$comment", "$defs", "title")}
}
NOTE = "Written by scripts/contract.py from pyruntime/program/schema.json."
WIDTH = 120
Rule = Mapping[str, Any]


def plain(rule: Rule) -> bool:
    """Whether the types have no name for a definition: it is a number, a text or an enumeration."""
    return rule.get("type") in ("integer", "string") or "enum" in rule


class Language:
    """Writes the types of one language."""

    names = {"integer": "number", "string": "string", "boolean": "boolean", "null": "null"}
    either = " | "

    def type(self, rule: Rule) -> str:
        if "$ref" in rule:
            name = rule["$ref"].rpartition("/")[2]
            return self.type(DEFINITIONS[name]) if plain(DEFINITIONS[name]) else name
        if "anyOf" in rule:
            return self.either.join(dict.fromkeys(map(self.type, rule["anyOf"])))
        if "const" in rule or "enum" in rule:
            return self.words(rule.get("enum", [rule.get("const")]))
        if rule["type"] == "array":
            return self.array(rule)
        if rule["type"] == "object":
            return self.mapping(rule)
        return self.names[rule["type"]]

    def array(self, rule: Rule) -> str:
        if "prefixItems" not in rule:
            return self.list(self.type(rule["items"]))
        return self.tuple(
            [self.type(r) for r in rule["prefixItems"]], self.type(rule["items"]) if "items" in rule else ""
        )

    def mapping(self, rule: Rule) -> str:
        if "properties" in rule:
            return self.record(rule)
        others = rule.get("additionalProperties")
        return self.dictionary(self.type(others) if isinstance(others, dict) else "")

    words: Callable[[list[Any]], str]
    list: Callable[[str], str]
    tuple: Callable[[list[str], str], str]
    record: Callable[[Rule], str]
    dictionary: Callable[[str], str]


class JavaScript(Language):
    def words(self, values: Any) -> str:
        if isinstance(values[0], bool):
            return "boolean"
        return "number" if isinstance(values[0], int) else "string" if len(values) > 1 else f"'{values[0]}'"

    def list(self, item: str) -> str:
        return f"({item})[]" if "|" in item else f"{item}[]"

    def tuple(self, items: Any, rest: str) -> str:
        return f"[{', '.join([*items, *([f'...{self.list(rest)}'] if rest else [])])}]"

    def record(self, rule: Rule) -> str:
        entries = [f"{k}{'' if k in rule['required'] else '?'}: {self.type(r)}" for k, r in rule["properties"].items()]
        return f"{{ {', '.join(entries)} }}"

    def dictionary(self, item: str) -> str:
        return f"Record<string, {item or 'any'}>"


class Python(Language):
    names = {"integer": "int", "string": "str", "boolean": "bool", "null": "None"}

    def words(self, values: Any) -> str:
        if isinstance(values[0], bool):
            return "bool"
        return (
            "int"
            if isinstance(values[0], int)
            else "str"
            if len(values) > 4
            else f"Literal[{', '.join(map(json.dumps, values))}]"
        )

    def list(self, item: str) -> str:
        return f"list[{item}]"

    def tuple(self, items: Any, rest: str) -> str:
        return f"list[{next(iter(items)) if len(set(items)) == 1 and not rest else 'Any'}]"

    def record(self, rule: Rule) -> str:
        return "Mapping[str, Any]"

    def dictionary(self, item: str) -> str:
        return f"Mapping[str, {item or 'Any'}]"


class Words(JavaScript):
    """Types as docs/architecture.md shows them."""

    def type(self, rule: Rule) -> str:
        """An index into a list is named by an item of the list: "buffer", "block"."""
        target = DEFINITIONS[rule["$ref"].rpartition("/")[2]] if "$ref" in rule else {}
        return target["indexOf"].removesuffix("s") if "indexOf" in target else super().type(rule)

    names = {"integer": "integer", "string": "text", "boolean": "bool", "null": "null"}

    def words(self, values: Any) -> str:
        return "type of elements" if len(values) > 6 else " | ".join(map(json.dumps, values))

    def list(self, item: str) -> str:
        return f"[{item}]"

    def tuple(self, items: Any, rest: str) -> str:
        return f"[{', '.join([*items, *([f'{rest}, …'] if rest else [])])}]"

    def dictionary(self, item: str) -> str:
        return f"{{text: {item or 'any'}}}"


def filled(head: str, words: str, indent: str) -> Iterator[str]:
    """Lines of text of at most WIDTH characters."""
    line = head
    for word in words.split():
        if len(line) + len(word) + 1 > WIDTH:
            yield line
            line = indent + word
        else:
            line += word if line.endswith("  ") else f" {word}"
    yield line


def sentence(rule: Rule) -> str:
    return f"{rule['description'][0].upper()}{rule['description'][1:]}."


def named() -> Iterator[tuple[str, Rule]]:
    return ((name, rule) for name, rule in DEFINITIONS.items() if not plain(rule))


def javascript_types() -> str:
    lines = [f"// Types of the Program, the seam between compiler and executors. {NOTE}", ""]
    language = JavaScript()
    for name, rule in named():
        text = f"{sentence(rule)} " if "description" in rule else ""
        if "properties" not in rule:
            lines.append(f"/** {text}@typedef {{{language.type(rule)}}} {name} */")
            continue
        lines += ["/**", *([f" * {text}"] if text else []), f" * @typedef {{object}} {name}"]
        for key, inner in rule["properties"].items():
            entry = key if key in rule["required"] else f"[{key}]"
            lines.append(f" * @property {{{language.type(inner)}}} {entry} {inner.get('description', '')}".rstrip())
        lines.append(" */")
    lines += [
        "/**",
        " * Parts of providers that users add (web/run/array_parts.js). during: tells them of starts and ends of runs",
        " * @typedef {{ has(id: number): boolean,",
        " *   run(executor: object, step: HostStep, state: object, key: string): unknown,",
        " *   during?<T>(executor: object, run: () => T | Promise<T>): Promise<T> }} Parts",
        " */",
        "/**", " * @typedef {object} ProgramData", " * @property {Header} header", " * @property {Uint8Array} blob",
        " * @property {WebAssembly.Module} [module] of the blob's WebAssembly, once it is compiled",
        " * @property {Promise<WebAssembly.Module>} [compiling] the same while it is compiled",
        " * @property {any} python the Python object behind it, for host steps and specialisation; null in the page",
        " * @property {Parts} [parts] some of its host steps",
        " */", "export {};", "",
    ]  # fmt: skip
    return "\n".join(line.rstrip() for line in lines)


def python_types() -> str:
    lines = [f'"""Types of a Program\'s header. {NOTE}"""', "", "from __future__ import annotations", ""]
    lines += [
        "from collections.abc import Mapping",
        "from typing import Any, Literal, NotRequired, TypedDict, final",
        "",
    ]
    aliases, language = [], Python()  # aliases follow the classes that they name
    for name, rule in named():
        if "properties" not in rule:
            aliases.append(f"{name} = {language.type(rule)}")
            continue
        body = [f'    """{sentence(rule)}"""', ""] if "description" in rule else []
        for key, inner in rule["properties"].items():
            kind = language.type(inner)
            body.append(f"    {key}: {kind if key in rule['required'] else f'NotRequired[{kind}]'}")
        lines += ["", "@final", f"class {name}(TypedDict):", *body, ""]
    return "\n".join([*lines, "", *aliases, ""])


def document() -> str:
    language = Words()
    lines: list[str] = []
    for name, rule in [("Header", DEFINITIONS["Header"]), *[x for x in named() if x[0] != "Header"]]:
        text = rule.get("description", "")
        if "properties" not in rule:
            lines += filled(f"{name} =", f"{language.type(rule)}{text and f' — {text}'}", " " * 6)
            continue
        lines += filled(name, text and f"— {text}", " " * 6)
        short: list[str] = []  # entries without a description share a line
        for key, inner in rule["properties"].items():
            entry = f"{key}{'' if key in rule['required'] else '?'}: {language.type(inner)}"
            if "description" in inner:
                lines += [
                    *filled("  ", ", ".join(short), "  "),
                    *filled(f"  {entry.ljust(34)}", inner["description"], " " * 37),
                ]
                short = []
            else:
                short.append(entry)
        lines += filled("  ", ", ".join(short), "  ")
    return "\n".join(line.rstrip() for line in ["```", *[x for x in lines if x.strip()], "```"])


def slim(rule: Any) -> Any:
    """Without descriptions."""
    if isinstance(rule, dict):
        return {k: slim(v) for k, v in rule.items() if not (k == "description" and isinstance(v, str))}
    return [slim(v) for v in rule] if isinstance(rule, list) else rule


COMPACT = """const text = { type: 'string' };
const flag = { type: 'boolean' };
/** @param {string} name */
const rule = (name) => ({ $ref: `#/$defs/${name}` });
/** @param {any} items @param {object} [rest] */
const list = (items, rest) => ({ type: 'array', items, ...rest });
/** @param {Record<string, any>} given rules by name; names of optional entries end with "?" @param {object} [rest] */
const record = (given, rest) => ({
  type: 'object', required: Object.keys(given).filter((name) => !name.endsWith('?')), additionalProperties: false,
  properties: Object.fromEntries(Object.entries(given).map(([name, value]) => [name.replace('?', ''), value])), ...rest,
});
"""


def compact(rule: Any) -> str:
    """A rule as JavaScript, with what COMPACT defines: less than half of the text of JSON."""
    if rule in ({"type": "string"}, {"type": "boolean"}):
        return "text" if rule["type"] == "string" else "flag"
    if isinstance(rule, list):
        return f"[{', '.join(map(compact, rule))}]"
    if not isinstance(rule, dict):
        return json.dumps(rule)
    if "$ref" in rule:
        return f"{rule['$ref'].removeprefix('#/$defs/')}Rule"
    rest = dict(rule)
    if rule.get("type") == "array" and "items" in rule:
        del rest["type"], rest["items"]
        return f"list({compact(rule['items'])}{', ' + compact(rest) if rest else ''})"
    if "properties" in rule and rule.get("additionalProperties") is False:
        entries = {k + ("" if k in rule["required"] else "?"): v for k, v in rule["properties"].items()}
        for key in ("type", "required", "additionalProperties", "properties"):
            del rest[key]
        return f"record({entries_of(entries)}{', ' + compact(rest) if rest else ''})"
    return entries_of(rule)


def entries_of(entries: Rule) -> str:
    return f"{{ {', '.join(f'{json.dumps(k)}: {compact(v)}' for k, v in entries.items())} }}"


def javascript_schema() -> str:
    body = {k: v for k, v in slim(SCHEMA).items() if k not in ("$schema", "$comment", "title")}
    rules = [f"const {name}Rule = rule('{name}');" for name in SCHEMA["$defs"] if f'/{name}"' in json.dumps(SCHEMA)]
    head = [f"// {NOTE}", "", f"{COMPACT}{chr(10).join(rules)}", "", "/** @type {Record<string, any>} */"]
    return "\n".join([*head, f"export const SCHEMA = {compact(body)};", ""])


def javascript_memory() -> str:
    """The constants of pyruntime/codegen/linear_memory.py with their comments."""
    source = "pyruntime/codegen/linear_memory.py"
    lines = re.findall(r"^([A-Z_]+) = (\d+)(?:  # (.+))?$", (ROOT / source).read_text(), re.MULTILINE)
    body = [f"export const {name} = {value};{note and f' // {note}'}" for name, value, note in lines]
    head = f"// The fixed words of linear memory, as byte addresses. Written by scripts/contract.py from {source}."
    return "\n".join([head, "", *body, ""])


BEGIN, END = f"<!-- {NOTE} -->", "<!-- End of what is written. -->"


def architecture() -> str:
    text = (ROOT / "docs/architecture.md").read_text()
    before, rest = text.split(BEGIN)
    return f"{before}{BEGIN}\n{document()}\n{END}{rest.partition(END)[2]}"


COMMITTED = {
    "pyruntime/program/types.py": python_types,
    "docs/architecture.md": architecture,
    **option_table.COMMITTED,
}
BUILT = {  # by scripts/javascript, with the shared runtime
    "web/common/program.js": javascript_types,
    "web/common/linear_memory.js": javascript_memory,
    "web/worker/programs/program_schema.js": javascript_schema,
    **option_table.BUILT,
}


def main() -> int:
    stale = [name for name, write in COMMITTED.items() if (ROOT / name).read_text() != write()]
    if "--check" in sys.argv:
        if stale:
            print("stale (python -m scripts.contract writes them):", *stale, sep="\n  ")
        return int(bool(stale))
    for name in stale:
        (ROOT / name).write_text(COMMITTED[name]())
    return 0


if __name__ == "__main__":
    sys.exit(main())
