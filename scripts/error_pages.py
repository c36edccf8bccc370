"""Writes dist/errors.html: the pages of docs/errors as one, with a heading for each class of errors. Messages in pages
name its address (web/common/errors.js).

Usage: python -m scripts.error_pages
"""

from __future__ import annotations

import re
from pathlib import Path

from markdown import markdown

from pyruntime.errors import DOCUMENTATION

ROOT = Path(__file__).parents[1]
PAGES, OUT = ROOT / "docs/errors", ROOT / "dist/errors.html"
HEAD = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>Errors of pyruntime</title>
<style>
:root { color-scheme: light dark; }
body { max-width: 46rem; margin: 2rem auto; padding: 0 1rem; font: 16px/1.5 system-ui, sans-serif; }
pre { overflow-x: auto; padding: .5rem; border: 1px solid #8886; }
table { border-collapse: collapse; display: block; overflow-x: auto; }
td, th { border: 1px solid #8886; padding: .3rem .6rem; text-align: left; }
:target { outline: 2px solid; outline-offset: .3rem; }
</style>"""


def linked(text: str) -> str:
    """The Markdown with links to headings of the one page, or to the published documentation. Without that, links to
    other pages become text."""

    def link(found: re.Match[str]) -> str:
        words, target = found.groups()
        if re.match(r"\w+\.md", target):
            return f"[{words}](#{target.partition('.md')[0]})"
        path = target.removeprefix("../").replace(".md", "/")
        return f"[{words}]({DOCUMENTATION}{path})" if DOCUMENTATION else words

    return re.sub(r"\[([^\]]+)\]\((?!https?:)([^)]+)\)", link, text)


def page(texts: dict[str, str]) -> str:
    """texts: Markdown by class"""
    parts = []
    for kind, text in texts.items():
        html = markdown(linked(text), extensions=["tables", "fenced_code"])
        parts.append(html.replace("<h1>", f'<h1 id="{kind}">', 1))
    return "\n".join([HEAD, *parts, ""])


def main() -> None:
    texts = {path.stem: path.read_text() for path in sorted(PAGES.glob("*.md"))}
    OUT.write_text(page({"PyRuntimeError": texts.pop("README"), **texts}))


if __name__ == "__main__":
    main()
