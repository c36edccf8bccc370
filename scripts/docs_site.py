"""Builds the documentation's site in build/docs with MkDocs: `make docs`, or python -m scripts.docs_site.

The pages are docs/, the README, CONTRIBUTING, the changelog, the examples, and references from the types of web/ and
the docstrings of `import pyruntime`. A dead link or anchor is an error.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pyruntime

ROOT = Path(__file__).parents[1]
PAGES = ROOT / "build/docs-pages"
# Links to files of the repository and the page that each becomes; empty if the site has no such page.
LINKS = {
    r"docs/(?P<folder>adr|design)": r"\g<folder>/README.md",
    r"docs/(?P<rest>[^)]+)": r"\g<rest>",
    r"\.\./\.\./CONTRIBUTING\.md(?P<rest>[^)]*)": r"../contributing.md\g<rest>",
    r"(?:\.\./)?CONTRIBUTING\.md(?P<rest>[^)]*)": r"contributing.md\g<rest>",
    r"examples": "examples.md",
    r"(?:tests/programs|kit/\w+|LICENSE)": "",
}
LANGUAGES = {".cjs": "js", ".mjs": "js", ".webmanifest": "json"}
SOURCES = {".cjs", ".html", ".js", ".json", ".jsx", ".mjs", ".py", ".webmanifest"}  # of examples
NOT_SOURCES = {"node_modules", "dist", ".next", ".venv", "offline.sw.js"}  # what their commands make


def with_links(text: str) -> str:
    for link, page in LINKS.items():
        text = re.sub(rf"\[([^]]*)\]\({link}\)", rf"[\1]({page})" if page else r"\1", text)
    return text


def fenced(path: Path) -> str:
    """The file as a fenced code block."""
    language = LANGUAGES.get(path.suffix, path.suffix[1:])
    return f"```{language}\n{path.read_text().rstrip()}\n```\n"


def examples() -> str:
    """The table of examples, then each one's README and every file."""
    text = re.sub(r"\]\(([\w-]+)[^)]*\)", r"](#\1)", (ROOT / "examples/README.md").read_text())
    for folder in sorted(path for path in (ROOT / "examples").iterdir() if path.is_dir()):
        text += f"\n## {folder.name}\n\n" + (folder / "README.md").read_text().partition("\n")[2]
        for path in sorted(path for path in folder.rglob("*") if path.is_file() and path.suffix in SOURCES):
            if not NOT_SOURCES & set(path.parts):
                text += f"\n`{path.relative_to(ROOT)}`\n\n{fenced(path)}"
    return text


def python_reference() -> str:
    names = [f"::: {getattr(pyruntime, name).__module__}.{name}" for name in pyruntime.__all__]
    return "# Python\n\nThe names that `import pyruntime` exports.\n\n" + "\n\n".join(names)


def javascript_reference() -> str:
    parts = {
        "pyruntime": "index", "pyruntime/extras": "extras", "pyruntime/offline": "offline",
        "pyruntime/offline/service-worker": "offline.sw",
    }  # fmt: skip
    texts = [f"## {name}\n\n{fenced(ROOT / f'web/{file}.d.ts')}" for name, file in parts.items()]
    head = "# JavaScript\n\nThe types of the package. Re-exported types are onnxruntime-common's.\n\n"
    return head + "\n".join(texts)


def lay_out() -> None:
    """Writes all pages to build/docs-pages."""
    shutil.rmtree(PAGES, ignore_errors=True)
    shutil.copytree(ROOT / "docs", PAGES)
    renamed = {"README": "index", "CONTRIBUTING": "contributing", "CHANGELOG": "changelog"}
    pages = {f"{page}.md": (ROOT / f"{name}.md").read_text() for name, page in renamed.items()}
    pages |= {"examples.md": examples(), "python.md": python_reference(), "javascript.md": javascript_reference()}
    for name, text in pages.items():
        (PAGES / name).write_text(text)
    for path in PAGES.rglob("*.md"):
        path.write_text(with_links(path.read_text()))


def main() -> int:
    lay_out()
    command = [sys.executable, "-m", "mkdocs", "build", "--strict"]
    silent = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=silent, stderr=subprocess.PIPE, text=True, check=False)
    sys.stderr.writelines(line for line in done.stderr.splitlines(keepends=True) if not line.startswith("INFO"))
    return done.returncode


if __name__ == "__main__":
    raise SystemExit(main())
