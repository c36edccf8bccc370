"""The documentation as a site in build/docs, by MkDocs: `make docs`, or python -m scripts.docs_site.

Pages are docs/, the README and its kin, the examples, and a reference from the types of web/ and the docstrings of what
`import pyruntime` offers. A link or an anchor that leads nowhere is an error.
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
# Links between files of the tree, as links between pages; the empty ones lead to what is no page.
LINKS = {
    r"docs/(?P<folder>adr|design)": r"\g<folder>/README.md",
    r"docs/(?P<rest>[^)]+)": r"\g<rest>",
    r"\.\./\.\./CONTRIBUTING\.md(?P<rest>[^)]*)": r"../contributing.md\g<rest>",
    r"(?:\.\./)?CONTRIBUTING\.md(?P<rest>[^)]*)": r"contributing.md\g<rest>",
    r"examples": "examples.md",
    r"(?:tests/programs|kit/\w+|LICENSE)": "",
}
LANGUAGES = {".cjs": "js", ".mjs": "js", ".webmanifest": "json"}


def with_links(text: str) -> str:
    for link, page in LINKS.items():
        text = re.sub(rf"\[([^]]*)\]\({link}\)", rf"[\1]({page})" if page else r"\1", text)
    return text


def fenced(path: Path) -> str:
    """A file as a block of code."""
    language = LANGUAGES.get(path.suffix, path.suffix[1:])
    return f"```{language}\n{path.read_text().rstrip()}\n```\n"


def examples() -> str:
    """Every file of every example, after the table of them."""
    text = re.sub(r"\]\(([\w-]+)[^)]*\)", r"](#\1)", (ROOT / "examples/README.md").read_text())
    for folder in sorted(path for path in (ROOT / "examples").iterdir() if path.is_dir()):
        text += f"\n## {folder.name}\n"
        for path in sorted(folder.iterdir()):
            text += f"\n`{path.relative_to(ROOT)}`\n\n{fenced(path)}"
    return text


def python_reference() -> str:
    names = [f"::: {getattr(pyruntime, name).__module__}.{name}" for name in pyruntime.__all__]
    return "# Python\n\nWhat `import pyruntime` offers.\n\n" + "\n\n".join(names)


def javascript_reference() -> str:
    parts = {"pyruntime": "index", "pyruntime/offline": "offline", "pyruntime/offline/service-worker": "offline.sw"}
    texts = [f"## {name}\n\n{fenced(ROOT / f'web/{file}.d.ts')}" for name, file in parts.items()]
    head = "# JavaScript\n\nThe types of the package; what they take over is onnxruntime-common's.\n\n"
    return head + "\n".join(texts)


def lay_out() -> None:
    """All pages, in build/docs-pages."""
    shutil.rmtree(PAGES, ignore_errors=True)
    shutil.copytree(ROOT / "docs", PAGES)
    kin = {"README": "index", "CONTRIBUTING": "contributing", "CHANGELOG": "changelog"}
    made = {f"{page}.md": (ROOT / f"{name}.md").read_text() for name, page in kin.items()}
    made |= {"examples.md": examples()}
    made |= {"python.md": python_reference(), "javascript.md": javascript_reference()}
    for name, text in made.items():
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
