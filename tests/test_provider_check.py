"""python -m pyruntime.provider_check tells faults of providers apart, and finds none in good ones."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib import import_module, invalidate_caches
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kit.docs import blocks
from pyruntime import provider_check
from pyruntime.placement import provider_list

OUTSIDE = Path(__file__).parent / "outside"


@pytest.fixture(autouse=True)
def visitor(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The package of providers is installed while a test runs."""
    monkeypatch.syspath_prepend(str(OUTSIDE))
    invalidate_caches()
    monkeypatch.setattr(provider_list, "_registered", {})
    yield
    for name in [n for n in sys.modules if n.split(".")[0] == "visitor"]:
        del sys.modules[name]


@pytest.mark.parametrize(
    ("provider", "taken"),
    [
        (["visitor.products:provider", "least=0"], "matmul"),
        (["visitor.products:provider", "least=0", "packs=true"], "matmul"),
        (["visitor.segments"], "Map"),
        (["visitor.norms:provider"], "onnx:LayerNormalization"),
        (["visitor.hostile:pooled"], "matmul"),
        (["visitor.device"], "matmul"),
    ],
    ids=lambda x: " ".join(x) if isinstance(x, list) else x,
)
def test_good_providers(provider: list[str], taken: str, capsys: pytest.CaptureFixture[str]) -> None:
    code = provider_check.main(provider)
    text = capsys.readouterr().out
    assert code == 0, text
    assert text.startswith("Findings: 0. Kernels that it compiled: ") and taken in text


def test_the_provider_of_the_docs() -> None:
    (block,) = [b for b in blocks("python") if "class Products(ArrayProvider)" in b.text]
    names: dict[str, Any] = {"__name__": "example"}
    exec(block.text, names)
    check = provider_check.Check(names["Products"](), {}, limit=60)
    assert check.run(provider_check.models_of([], ["product", "stacked products", "branch"])) == []
    assert list(check.notes.taken) == ["matmul"]


def test_models_and_options_of_the_command(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """A model that is named is checked, too; what cannot be checked is an error, not a finding."""
    model, feeds = provider_check.small_model("product", True)
    (tmp_path / "a.onnx").write_bytes(model)
    (tmp_path / "b.onnx").write_bytes(model)
    np.savez(tmp_path / "b.npz", **feeds[2])
    paths = [str(tmp_path / "a.onnx"), str(tmp_path / "b.onnx")]
    assert provider_check.main(["visitor.hostile:wrong", *paths]) == 1
    assert "Findings: 1. " in capsys.readouterr().out
    found = provider_check.models_of(paths, ["norm"])
    assert [[f["x"].shape for f in found[path][1]] for path in paths] == [[(1, 64)], [(7, 64)]]
    for wrong, message in {
        "visitor.nothing": "No module named",
        "visitor.products:nothing": "no attribute 'nothing'",
        "visitor.products:operand": "is no ArrayProvider",
        "visitor.products:provider most=1": 'has no option "most"',
        "visitor.products:provider least=few": "cannot be 'few'",
        "visitor.products:provider none.onnx": "none.onnx",
    }.items():
        assert provider_check.main(wrong.split()) == 2
        assert message in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "expected"),
    {
        "Wrong": "compile computes other values than WebAssembly (product)",
        "Unwritten": "job leaves elements of an output unwritten (product)",
        "Adds": "job reads its outputs (product)",
        "ChangesInputs": "job changes an input (product)",
        "Counts": "job computes other values when it runs again (product)",
        "Shares": "job computes other values in concurrent runs (product)",
        "SharesInSessions": "job computes other values with several sessions (product",
        "Keeps": "job trains other weights than WebAssembly (training)",
        "Truncates": "download gives back other elements than upload has copied (product",
        "Wavers": "supports changes its answers (product: '', then 'not now')",
        "Untyped": "options accept values of any type (without a run: device)",
        "OneForAll": "close ends other sessions, too (product",
        "Endless": "job does not end (product: 2 s)",
        "Exits": "job raises what is no Exception (product: SystemExit)",
        "Quits": "open raises what is no Exception (product: SystemExit)",
        "Fails": "compile raises an exception (product: MemoryError: no device memory)",
        "RaisesAgain": "run_end gets in the way when a job fails (product",
        "HalfFramed": "run_end is not written, but run_start is (without a run)",
        "LeavesThreads": "close leaves threads running (product, constant weights: device)",
        "Idle": "supports takes no kernel of these models (2 models)",
    }.items(),
)
def test_hostile_providers(name: str, expected: str) -> None:
    hostile = import_module("visitor.hostile")
    check = provider_check.Check(getattr(hostile, name)(), {}, limit=2 if name == "Endless" else 60)
    try:
        found = check.run(provider_check.models_of([], ["product"]), has_training=name == "Keeps")
    finally:
        hostile.ended.set()
    assert len(found) == 1 and found[0].startswith(expected), found
    assert found[0].endswith(provider_check.ADVICE[next(a for a in provider_check.ADVICE if a in expected)])
