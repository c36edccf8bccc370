"""The table in docs/operator-coverage.md is current, and every unsupported operator has a reason."""

from __future__ import annotations

from scripts import operator_coverage


def test_the_table_is_that_of_the_code() -> None:
    text = operator_coverage.TARGET.read_text()
    assert operator_coverage.render() in text, "run python -m scripts.operator_coverage"


def test_every_reason_is_of_an_operator_that_is_missing() -> None:
    lacking = {name for domain, names in operator_coverage.missing().items() if "nchwc" not in domain for name in names}
    assert lacking == set(operator_coverage.REASONS)
