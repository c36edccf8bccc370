"""A folder of modules: mypy parses and types them, each is written with its source map."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from mypy import build
from mypy.modulefinder import BuildSource
from mypy.options import Options

from scripts.javascript.expressions import Refused
from scripts.javascript.modules import Module
from scripts.javascript.source_map import source_map


def translate(paths: Mapping[str, Path]) -> tuple[dict[str, str], list[str]]:
    """Texts by file name, and messages of what was refused. paths: of the modules, by name."""
    options = Options()
    options.python_version = (3, 11)
    options.export_types = options.preserve_asts = options.explicit_package_bases = True
    options.incremental = False
    options.follow_imports, options.ignore_missing_imports = "silent", True  # `make check` reports other modules
    result = build.build([BuildSource(str(p), name, None) for name, p in paths.items()], options)
    if result.errors:
        return {}, result.errors
    files: dict[str, str] = {}
    errors: list[str] = []
    for name, path in paths.items():
        tree, text = result.graph[name].tree, path.read_text()
        assert tree is not None
        try:
            lines = Module(tree, result.types, text).lines()
        except Refused as e:
            errors.append(f"{path}:{e.line}: {e}")
            continue
        file = f"{path.stem}.js"
        source = f"../../{name.replace('.', '/')}.py"
        files[file] = "\n".join(line for line, _ in lines) + f"\n//# sourceMappingURL={file}.map\n"
        files[f"{file}.map"] = source_map(file, source, text, [number for _, number in lines])
    return files, errors
