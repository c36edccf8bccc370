"""`make quick`: the first case of every test function in tests/, except for slow functions (tests/slow.txt).

`python -m pytest -p tests.quick tests` runs it. So every room is tested, and new tests are included automatically. All
other cases, the browser tests and the whole official suite run in `make test`. `python -m kit.durations --write`
updates tests/slow.txt from the durations that test runs record.
"""

from __future__ import annotations

import pytest

from kit import durations


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the first case of each function that is not listed as slow; a listed function that does not exist is an
    error."""
    slow = durations.slow()
    seen = set(slow)
    kept, dropped = [], []
    for item in items:
        function = item.nodeid.split("[")[0]
        (dropped if function in seen else kept).append(item)
        seen.add(function)
    missing = slow - {item.nodeid.split("[")[0] for item in items}
    if missing and config.args == ["tests"]:
        listed = ", ".join(sorted(missing))
        raise pytest.UsageError(f"tests/slow.txt: no such test (python -m kit.durations --write): {listed}")
    config.hook.pytest_deselected(items=dropped)
    items[:] = kept
