"""A run in the browser calls no Python: every function that the worker's interpreter enters is counted."""

from __future__ import annotations

import numpy as np
import pytest

from kit.chain import chain
from kit.chromium import Engine
from kit.probes import PROBES
from kit.python_calls import counting


@pytest.mark.parametrize("kernels", [3, 200])
def test_no_python_in_a_run(kernels: int, engine: Engine) -> None:
    session = engine.open(chain(kernels))
    assert session.explain()["placement"] == {"wasm": kernels}
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    with counting(engine) as take:
        quiet = take()
        assert quiet, "the interpreter counts"
        for _ in range(2):  # the first plans memory
            (y,) = session.run(None, {"x": x})
            assert take() == quiet
    session.release()
    np.testing.assert_array_equal(y, [x[0], x[1] + kernels * x[0]])


def test_a_host_step_is_counted(engine: Engine) -> None:
    """The counter sees what does run in Python: strings."""
    probe = PROBES["strings"]
    session = engine.open(probe.model)
    with counting(engine) as take:
        quiet = take()
        session.run(None, probe.runs[0][0])
        assert "Compilation.host" in set(take()) - set(quiet)
    session.release()
