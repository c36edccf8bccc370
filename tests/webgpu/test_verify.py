"""`verify` finds nothing on a sound GPU, and names the kernel of a broken one."""

from __future__ import annotations

import gc
import json
import weakref
from typing import Any

import numpy as np
import pytest

from kit import zoo
from pyruntime import InferenceSession, InvalidInput
from pyruntime.native.execution.verify import compare
from pyruntime.native.sessions import session as session_module
from pyruntime.providers.webgpu.code_writer import WgslCodeWriter

DIGITS = zoo.CACHE.parents[1] / "demo" / "digits"


def session_and_feeds() -> tuple[InferenceSession, dict[str, np.ndarray]]:
    samples = json.loads((DIGITS / "samples.json").read_text())
    pixels = np.array([s["pixels"] for s in samples[:2]], np.float32).reshape(-1, 1, 28, 28) / np.float32(255)
    return InferenceSession(DIGITS / "digits.onnx", providers=["webgpu"]), {"image": pixels}


def test_a_sound_gpu() -> None:
    session, feeds = session_and_feeds()
    verdict = session.verify(feeds)
    assert verdict.ok and verdict.compared > 3 and verdict.first is None


def test_a_broken_kernel_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    session, feeds = session_and_feeds()
    finish = WgslCodeWriter.finish
    monkeypatch.setattr(
        WgslCodeWriter, "finish", lambda self: finish(self).replace(b"round(", b"0.5 * round(")
    )  # of exp alone
    verdict = session.verify(feeds)
    assert not verdict.ok and verdict.first is not None
    assert "Softmax" in verdict.first.node and verdict.first.kernel
    assert verdict.first.error > verdict.tolerance


def test_its_programs_are_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither of the two, nor what they hold on the GPU, outlives the call."""
    session, feeds = session_and_feeds()
    compare, made = session_module.compare, []

    def watched(away: Any, home: Any, *rest: Any) -> Any:
        made.extend(weakref.ref(x) for x in (away, home, away.gpu))
        return compare(away, home, *rest)

    monkeypatch.setattr(session_module, "compare", watched)
    assert session.verify(feeds).ok
    gc.collect()
    assert len(made) == 3 and not any(found() for found in made)


def test_a_session_without_the_gpu_has_nothing_to_verify() -> None:
    with pytest.raises(InvalidInput, match="WebAssembly alone"):
        InferenceSession(DIGITS / "digits.onnx").verify({})


class Results:
    """An executor whose results are given."""

    def __init__(self, dtype: str = "float32", **results: Any) -> None:
        value = {"dtype": dtype}
        names = [f"{n} {name}" for n, name in enumerate(results)]
        self.header: Any = {"outputs": [{"name": name, "value": value} for name in names], "blocks": []}
        stored = np.uint16 if dtype == "bfloat16" else np.float32  # its bits
        self.results = {name: np.array(x, stored) for name, x in zip(names, results.values(), strict=True)}

    def run(self, _: Any) -> dict[str, Any]:
        return self.results


def test_a_result_that_is_not_finite_is_named() -> None:
    """Even after a smaller difference, but not where WebAssembly's is not finite either."""
    right = Results(a=[1, np.inf, np.nan], b=[1, 2, 3], c=[1, 2, 3])
    wrong = Results(a=[2, np.inf, np.nan], b=[1, 2, np.nan], c=[np.inf, 2, 3])
    found = compare(wrong, right, {}, 1e-3)
    assert found.first is not None and (found.first.node, found.first.index) == ("a", 0)
    assert found.non_finite is not None and (found.non_finite.node, found.non_finite.index) == ("b", 2)
    assert compare(right, right, {}, 1e-3).non_finite is None


def test_bfloat16_has_the_tolerance_of_a_float() -> None:
    """Its last bit is a difference of 1 / 128; infinities are found, too."""
    one, next_to_one, infinity = 0x3F80, 0x3F81, 0x7F80
    right, wrong = Results("bfloat16", a=[one, one]), Results("bfloat16", a=[one, next_to_one])
    assert compare(wrong, right, {}, 0.01).ok
    found = compare(wrong, right, {}, 0.001).first
    assert found is not None and (found.index, found.expected, found.actual) == (1, 1.0, 1.0078125)
    lost = compare(Results("bfloat16", a=[infinity, one]), right, {}, 0.01).non_finite
    assert lost is not None and (lost.index, lost.actual) == (0, np.inf)
