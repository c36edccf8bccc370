"""A folder of modules: each is written with its source map."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path

from scripts.javascript import python_types
from scripts.javascript.modules import Module
from scripts.javascript.names import Refused
from scripts.javascript.source_map import source_map

CHECKS = Path(__file__).with_name("python_checks.js")


def translate(paths: Mapping[str, Path], checked: Collection[str] = ()) -> tuple[dict[str, str], list[str]]:
    """Texts by file name, and messages of what was refused. paths: of the modules, by name; checked: those of
    which a second file, NAME.checked.js, throws where JavaScript differs (docs/design/runtime.md)."""
    modules, errors = python_types.check(paths)
    files: dict[str, str] = {CHECKS.name: CHECKS.read_text()} if checked else {}
    for name, typed in modules.items():
        path = paths[name]
        text = path.read_text()
        try:
            lines = Module(name, typed, text).lines()
            if name in checked:
                lines_checked = Module(name, typed, text, is_checked=True).lines()
                files[f"{path.stem}.checked.js"] = "\n".join(line for line, _ in lines_checked)
        except Refused as e:
            errors.append(f"{path}:{e.line}: {e}")
            continue
        file = f"{path.stem}.js"
        source = f"../../{name.replace('.', '/')}.py"
        files[file] = "\n".join(line for line, _ in lines) + f"\n//# sourceMappingURL={file}.map\n"
        files[f"{file}.map"] = source_map(file, source, text, [number for _, number in lines])
    return files, errors
