"""A run in the browser calls no Python: every function that the worker's interpreter enters is counted."""

from __future__ import annotations

import numpy as np
import pytest

from kit.chain import chain
from kit.chromium import Engine
from kit.probes import PROBES

COUNT = """
import sys
entered = []
sys.monitoring.use_tool_id(4, "count")
sys.monitoring.set_events(4, sys.monitoring.events.PY_START)
sys.monitoring.register_callback(4, sys.monitoring.events.PY_START, lambda code, _: entered.append(code.co_qualname))
sys.entered = entered
None
"""
TAKE = """
import sys
names = sys.entered[:]
sys.entered.clear()
names
"""
STOP = "import sys; sys.monitoring.free_tool_id(4); del sys.entered"


@pytest.mark.parametrize("kernels", [3, 200])
def test_no_python_in_a_run(kernels: int, engine: Engine) -> None:
    session = engine.open(chain(kernels))
    assert session.explain()["placement"] == {"wasm": kernels}
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    engine.python(COUNT)
    try:
        engine.python(TAKE)
        quiet = engine.python(TAKE)  # what taking itself enters
        assert quiet, "the interpreter counts"
        for _ in range(2):  # the first plans memory
            (y,) = session.run(None, {"x": x})
            assert engine.python(TAKE) == quiet
    finally:
        engine.python(STOP)
        session.release()
    np.testing.assert_array_equal(y, [x[0], x[1] + kernels * x[0]])


def test_a_host_step_is_counted(engine: Engine) -> None:
    """The counter sees what does run in Python: strings."""
    probe = PROBES["strings"]
    session = engine.open(probe.model)
    engine.python(COUNT)
    try:
        engine.python(TAKE)
        quiet = engine.python(TAKE)
        session.run(None, probe.runs[0][0])
        assert "Compilation.host" in set(engine.python(TAKE)) - set(quiet)
    finally:
        engine.python(STOP)
        session.release()
