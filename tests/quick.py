"""`make quick`: of every test function in tests/ the first case, but for the functions that take long.

`python -m pytest -p tests.quick tests` runs it. So each room takes part, and what is added does by itself; the cases
that are left out, the browser and the official suite as a whole are for `make test`.
"""

from __future__ import annotations

import pytest

SLOW = set(
    """
""".split()
)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the first case of each function that is not slow; a slow one that is not there is an error."""
    seen = set(SLOW)
    kept, dropped = [], []
    for item in items:
        function = item.nodeid.split("[")[0]
        (dropped if function in seen else kept).append(item)
        seen.add(function)
    missing = SLOW - {item.nodeid.split("[")[0] for item in items}
    if missing and config.args == ["tests"]:
        raise pytest.UsageError(f"tests/quick.py: no such test: {', '.join(sorted(missing))}")
    config.hook.pytest_deselected(items=dropped)
    items[:] = kept
