"""`python -m tests.ops_check REGEX`: official ONNX node cases whose name matches, by the reference evaluator."""

from __future__ import annotations

import re
import sys
import warnings
from collections import Counter
from typing import Any

import numpy as np
import onnx

from kit.interpret import run
from pyruntime.errors import PyRuntimeError

warnings.filterwarnings("ignore")


def cases() -> list[Any]:
    from onnx.backend.test.case.node import collect_testcases

    return collect_testcases(None) if collect_testcases.__code__.co_argcount else collect_testcases()


def plain(x: Any) -> Any:
    """Some cases contain TensorProtos, for types that NumPy lacks."""
    return onnx.numpy_helper.to_array(x) if isinstance(x, onnx.TensorProto) else x


def close(got: Any, want: Any, rtol: float, atol: float) -> bool:
    if isinstance(want, list):
        return (
            isinstance(got, list)
            and len(got) == len(want)
            and all(close(g, w, rtol, atol) for g, w in zip(got, want, strict=False))
        )
    if want is None or got is None:
        return got is None and want is None
    want = np.asarray(want)
    if got.shape != want.shape:
        return False
    if want.dtype.kind in "OUS":
        return [str(g) for g in got.ravel()] == [w.decode() if isinstance(w, bytes) else str(w) for w in want.ravel()]
    if got.dtype != want.dtype:
        return False
    return np.allclose(got.astype(np.float64), want.astype(np.float64), rtol=rtol, atol=atol, equal_nan=True)


def main(pattern: str) -> None:
    tally: Counter[str] = Counter()
    for case in cases():
        if not re.search(pattern, case.name) or case.model is None:
            continue
        for inputs, outputs in case.data_sets:
            inputs, outputs = [plain(x) for x in inputs], [plain(x) for x in outputs]
            size = sum(np.asarray(x).size for x in outputs if x is not None and not isinstance(x, list))
            if size > 200_000:
                print(f"{case.name}: too large here ({size} elements)")
                continue
            names = [i.name for i in case.model.graph.input]
            feeds = dict(zip(names, inputs, strict=False))
            try:
                got = run(case.model.SerializeToString(), feeds)
                ok = all(close(g, w, case.rtol, max(case.atol, 1e-6)) for g, w in zip(got, outputs, strict=False))
                verdict = "pass" if ok else "WRONG"
                note = "" if ok else f"{[getattr(g, 'shape', g) for g in got]} {[getattr(g, 'dtype', '') for g in got]}"
            except PyRuntimeError as e:
                verdict, note = "refused", f"{type(e).__name__}: {e}"
            except Exception as e:  # a bug of ours
                verdict, note = "CRASH", f"{type(e).__name__}: {e}"
            tally[verdict] += 1
            if verdict != "pass":
                print(f"{verdict} {case.name}: {note[:300]}")
    print(dict(tally))


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "")
