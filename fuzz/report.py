"""Writes a failing case as a pytest test that imports nothing of this folder."""

from __future__ import annotations

import base64
import re
import zlib
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnx.printer

from fuzz.case import Case, Verdict

LONGEST = 6000  # characters of a model's text


def as_test(case: Case, verdict: Verdict, name: str) -> str:
    """Python source of a test that fails like the case."""
    lines = ["import numpy as np", "import onnx.parser", "import onnx.reference", "import onnxruntime"]
    lines += ["import pytest", "", "from pyruntime import InferenceSession, SessionOptions"]
    lines += ["from pyruntime.errors import PyRuntimeError", "", ""]
    lines += [f"def test_{re.sub(r'[^a-z0-9]+', '_', name.lower())}():"]
    lines += [f'    """{_line(verdict.outcome + ": " + verdict.detail)}"""']
    lines += [f"    model = {_model(case.model)}"]
    lines += [f"    runs = [{', '.join(_python(feeds) for feeds in case.runs)}]"]
    if verdict.kind.startswith("accepted"):
        return "\n".join(lines) + TYPED.replace("try:", "with pytest.raises(PyRuntimeError):").split("    except")[0]
    return "\n".join(lines) + (WRONG.replace("PEER", _peer(verdict)) if verdict.outcome == "wrong" else TYPED)


WRONG = """
    session, peer = InferenceSession(model), PEER
    for feeds in runs:
        for got, want in zip(session.run(None, feeds), peer.run(None, feeds), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
"""
TYPED = """
    try:
        session = InferenceSession(model)
        for feeds in runs:
            session.run(None, feeds)
    except PyRuntimeError:
        pass
"""


def _peer(verdict: Verdict) -> str:
    """An expression for the session whose answer is expected."""
    if "onnxruntime" in verdict.kind:
        return "onnxruntime.InferenceSession(model)"
    if "reference" in verdict.kind:
        return "onnx.reference.ReferenceEvaluator(model)"
    return 'InferenceSession(model, SessionOptions(graph_optimization_level="disabled"))'


def _line(text: str) -> str:
    return " ".join(text.replace("\\", "/").replace('"', "'").split())[:300]


def _model(model: bytes) -> str:
    """The model as text if parsing the text gives the same model, else as packed bytes."""
    try:
        made = onnx.load_from_string(model)
        text = onnx.printer.to_text(made)
        again = onnx.parser.parse_model(text)
        again.ir_version = made.ir_version
        if len(text) < LONGEST and '"""' not in text and again.SerializeToString() == model:
            return f'onnx.parser.parse_model(r"""{text}""").SerializeToString()'
    except Exception:  # a model that onnx cannot parse cannot be printed
        pass
    packed = base64.b85encode(zlib.compress(model, 9)).decode()
    return f'__import__("zlib").decompress(__import__("base64").b85decode({packed!r}))'


def _python(x: Any) -> str:
    """An expression for feeds."""
    if isinstance(x, dict):
        return "{" + ", ".join(f"{k!r}: {_python(v)}" for k, v in x.items()) + "}"
    if isinstance(x, list):
        return "[" + ", ".join(map(_python, x)) + "]"
    if not isinstance(x, np.ndarray):
        return repr(x)
    if x.dtype.kind in "OUS":
        return f"np.array({x.ravel().tolist()!r}, object).reshape({x.shape})"
    if x.size and (x == x.flat[0]).all() and x.dtype.kind != "V":
        return f"np.full({x.shape}, {_number(x.flat[0])}, np.{x.dtype.type.__name__.rstrip('_')})"
    if x.size <= 64 and x.dtype.kind != "V":
        values = ", ".join(_number(v) for v in x.ravel())
        return f"np.array([{values}], {x.dtype.str!r}).reshape({x.shape})"
    raw = base64.b85encode(zlib.compress(np.ascontiguousarray(x).tobytes(), 9)).decode()
    kind = repr(x.dtype.str) if x.dtype.kind != "V" else f"__import__('ml_dtypes').{x.dtype.name}"
    packed = f"__import__('zlib').decompress(__import__('base64').b85decode({raw!r}))"
    return f"np.frombuffer({packed}, {kind}).reshape({x.shape})"


def _number(v: Any) -> str:
    text = repr(v.item())
    return {"nan": "np.nan", "inf": "np.inf", "-inf": "-np.inf"}.get(text, text)
