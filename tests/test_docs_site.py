"""The documentation's site builds without dead links, and its pages request nothing from other hosts."""

from __future__ import annotations

import re

import pytest

import pyruntime
from scripts.docs_site import ROOT, main

SITE = ROOT / "build/docs"
EXTERNAL = re.compile(
    r'<(?:script|img|iframe|source)[^>]* src="(https?:)?//|<link(?![^>]*canonical)[^>]* href="(https?:)?//'
)


@pytest.mark.alone
def test_the_site_builds(capfd: pytest.CaptureFixture[str]) -> None:
    assert main() == 0, capfd.readouterr().err
    pages = {path.relative_to(SITE).as_posix(): path.read_text() for path in SITE.rglob("*.html")}
    assert not [name for name, text in pages.items() if EXTERNAL.search(text)]
    styles = "".join(path.read_text() for path in SITE.rglob("*.css"))
    assert not re.search(r"url\([\"']?https?:|@import", styles)
    reference = pages["python.html"]
    missing = [name for name in pyruntime.__all__ if f'.{name}"' not in reference]
    assert not missing, "each name has an entry"
    assert "get_inputs" in reference and "executionProviders" in pages["api.html"]
    assert "interface Progress" in re.sub("<[^>]*>", "", pages["javascript.html"])
    assert all((SITE / f"adr/{path.stem}.html").exists() for path in ROOT.glob("docs/adr/[0-9]*.md"))
