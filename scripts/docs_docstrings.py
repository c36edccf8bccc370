"""An extension of mkdocstrings: links of docstrings, which are relative to docs/, lead to the documentation's pages."""

from __future__ import annotations

from typing import Any

import griffe

from scripts.docs_site import with_links


class Links(griffe.Extension):
    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring:
            obj.docstring.value = with_links(obj.docstring.value, "docs/python.md")
