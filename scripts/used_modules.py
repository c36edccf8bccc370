"""Finds the modules of the standard library that a start with the engine's imports needs. Runs inside a fresh
Pyodide."""

import importlib
import sys

# Encodings that a program may name.
ENCODINGS = """
ascii latin_1 cp437 utf_8 utf_16 utf_16_le utf_32 raw_unicode_escape unicode_escape
""".split()


def used_by(names) -> list[str]:
    """Excludes modules that are built into the interpreter."""
    for name in [*names, *(f"encodings.{name}" for name in ENCODINGS)]:
        if name.partition(".")[0] in sys.stdlib_module_names:
            try:
                importlib.import_module(name)
            except ImportError:
                pass  # not on this platform, or a name inside a module
    specs = ((name, getattr(module, "__spec__", None)) for name, module in sys.modules.items())
    return sorted(name for name, spec in specs if spec and spec.origin != "frozen")
