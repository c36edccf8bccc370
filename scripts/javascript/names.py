"""Names in JavaScript, and the error of what is not in the subset."""

from __future__ import annotations

from typing import Any


class Refused(Exception):
    """The Python is outside of the subset."""

    def __init__(self, node: Any, why: str) -> None:
        super().__init__(why)
        self.line = getattr(node, "lineno", 0)


RESERVED = {"new", "delete", "function", "default", "case", "var", "switch", "typeof", "void", "this", "with", "let"}


def camel(name: str) -> str:
    """A JavaScript name: `lay_out` becomes `layOut`; constants and classes stay."""
    if name.isupper() or not name.strip("_"):
        return name
    bare = name.lstrip("_")
    first, *rest = bare.split("_")
    joined = name[: len(name) - len(bare)] + first + "".join(part.capitalize() for part in rest if part)
    return joined + "_" if joined in RESERVED else joined
