"""All texts that are bound to a schema fit it, for the schemas of JSON Schema's own test suite that are known."""

from __future__ import annotations

import pytest

from bench.formats import does_fit, in_pages, natively
from kit import schema_suite

TOKENS = 3000  # of the vocabulary
KNOWN = 100  # schemas at least


@pytest.mark.parametrize("write", [natively, in_pages], ids=["Python", "pages"])
def test_texts_fit_their_schema(write: object) -> None:
    schemas = [schema for _, schema in schema_suite.schemas()]
    found = write(schemas, 2, TOKENS)  # type: ignore[operator]
    texts = [(s, text) for s, one in zip(schemas, found, strict=True) if one for text in one[0] if text is not None]
    assert sum(one is not None for one in found) >= KNOWN
    wrong = [(schema, text) for schema, text in texts if not does_fit(schema, text)]
    assert not wrong and len({str(schema) for schema, _ in texts}) >= KNOWN
