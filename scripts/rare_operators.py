"""Writes pyruntime/ops/rare.py: the modules of operators that a start does not import."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from typing import Any

FILE = Path(__file__).parents[1] / "pyruntime" / "ops" / "rare.py"
ELSEWHERE = ["pyruntime.training.derive.gradient_operator"]
HEAD = '''"""Modules of operators that few models have, which are imported when a model has one.

Written by scripts/rare_operators.py: a module of pyruntime/ops that `pyruntime.ops` does not import is rare."""

_NAMES = {  # by module and domain
'''
TAIL = """}
MODULES = {
    (domain, name): f"pyruntime.{module}"
    for module, domains in _NAMES.items()
    for domain, names in domains.items()
    for name in names.split()
}
"""


def text() -> str:
    """The file's text, by a new process."""
    command = [sys.executable, "-m", "scripts.rare_operators", "--print"]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def _found() -> dict[str, dict[str, str]]:
    """Names by module that registers them, and by domain."""
    from pyruntime import ops
    from pyruntime.frontend import registry

    found: dict[str, dict[str, set[str]]] = {}
    add = registry._add

    def note(operator: registry.Operator, replaces: bool) -> None:
        frame: Any = sys._getframe()
        while (module := frame.f_globals["__name__"]) in (__name__, registry.__name__):
            frame = frame.f_back
        found.setdefault(module, {}).setdefault(operator.domain, set()).add(operator.name)
        add(operator, replaces)

    registry._add = note
    for module in [*(m.name for m in walk_packages(ops.__path__, "pyruntime.ops.")), *ELSEWHERE]:
        import_module(module)
    return {m: {d: " ".join(sorted(found[m][d])) for d in sorted(found[m])} for m in sorted(found)}


def _lines(names: str) -> list[str]:
    """A string constant over lines of at most 120 columns."""
    lines, rest = [], names
    while len(rest) > 100:
        at = rest.rindex(" ", 0, 100) + 1
        lines, rest = [*lines, rest[:at]], rest[at:]
    return [*lines, rest]


def _written() -> str:
    rows = []
    for module, domains in _found().items():
        rows.append(f'    "{module.removeprefix("pyruntime.")}": {{')
        for domain, names in domains.items():
            lines = [f'            "{line}"' for line in _lines(names)]
            one = f'        "{domain}": {lines[0].strip()},'
            rows += [one] if len(lines) == 1 else [f'        "{domain}": (', *lines, "        ),"]
        rows.append("    },")
    return HEAD + "".join(f"{row}\n" for row in rows) + TAIL


if __name__ == "__main__":
    if "--print" in sys.argv:
        print(_written(), end="")
    else:
        FILE.write_text(text(), encoding="utf-8")
