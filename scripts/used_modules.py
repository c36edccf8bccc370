"""Which modules of the standard library does a start with the engine's imports need? Runs inside a fresh Pyodide."""

import importlib
import sys

# Those that a program may ask for by name.
ENCODINGS = """
ascii latin_1 cp437 utf_8 utf_16 utf_16_le utf_32 raw_unicode_escape unicode_escape
""".split()


def used_by(names) -> list[str]:
    """But for those that the interpreter has in itself."""
    for name in [*names, *(f"encodings.{name}" for name in ENCODINGS)]:
        if name.partition(".")[0] in sys.stdlib_module_names:
            try:
                importlib.import_module(name)
            except ImportError:
                pass  # not on this platform, or a name inside a module
    specs = ((name, getattr(module, "__spec__", None)) for name, module in sys.modules.items())
    return sorted(name for name, spec in specs if spec and spec.origin != "frozen")
