"""`python -m bench gpu`: the report of some cases, its schema, the comparison of two; how kernels are repeated."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest

from bench import gpu, gpu_report
from kit import gpu_cases
from kit.gpu_values import array, drawn
from pyruntime import InferenceSession
from pyruntime.errors import InvalidInput

ROOT = Path(__file__).parents[1]
SCHEMA = json.loads((ROOT / "bench/gpu_report.schema.json").read_text())
STORED = sorted((ROOT / "bench/history/gpu").glob("*.json"))
PEAKS = {"float32": 1e12, "bandwidth": 1e11}


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("wgpu")
    path = tmp_path_factory.mktemp("report") / "gpu.json"
    assert gpu.main(["--filter", "^(LSTM|GEMM 4096|layer|Llama)", "--tune", "--report", str(path)]) == 0
    return path


def test_report(written: Path) -> None:
    """Rates are measured, results right, and cases without half floats or time left out."""
    report = gpu_report.read(written)
    jsonschema.validate(report, SCHEMA)
    assert not report["complete"] and report["adapter"]["software"] and report["limits"]["maxBufferSize"] > 1 << 27
    by_name = {case["name"]: case for case in report["cases"]}
    assert set(by_name["GEMM 4096"]) == {"name", "skipped"}
    done = [case for case in report["cases"] if "share" in case]
    assert len(done) == 2 and all(case["error"] < 1e-5 for case in done)
    for case in done:
        (seconds, low, high) = (case["milliseconds"][key] / 1e3 for key in ("median", "low", "high"))
        assert low <= seconds <= high and case["gbs"] == pytest.approx(case["bytes"] / seconds / 1e9)
        assert all(kernel["workgroup"] for kernel in case["kernels"])
    (network,) = report["models"]
    assert network["error"] < 2e-2 and network["wasm"]["median"] > 0  # its rows may be rounded to 8 bits


def test_a_case_is_below_its_nearer_bound() -> None:
    """A product that takes 10 ms at 1 TFLOP/s and 100 GB/s: 2 ms of operations and 1 ms of bytes. Its shader stays,
    unless the adapter is software."""
    case = {"name": "p", "type": "float16", "flops": 2 * 10**9, "bytes": 10**8}
    kernels = [{"node": "n", "kernel": "0", "milliseconds": 10.0, "place": "wasm", "source": "text"}]
    measured = {
        "milliseconds": {"median": 10.0, "low": 9.0, "high": 11.0, "runs": 3},
        "kernels": kernels,
        "choices": {},
    }
    made = gpu_report.entry(case, PEAKS, measured)
    assert (made["bound"], made["share"], made["gflops"], made["gbs"]) == ("peak", 0.2, 200.0, 10.0)
    report = {"adapter": {"software": False}, "cases": [made, {"name": "other", "skipped": "why"}]}
    gpu_report.settle(report)
    assert report["slow"] == ["p"] and kernels[0]["source"] == "text"
    gpu_report.settle(report | {"adapter": {"software": True}})
    assert "source" not in kernels[0]
    assert "p: 20% of the peak, 10.000 ms" in list(gpu_report.slow_lines(report))


def test_reports_are_compared(written: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Ratios of times; other work, another version and other files are refused."""
    report, other = gpu_report.read(written), tmp_path / "other.json"

    def against(**changes: Any) -> tuple[int, str]:
        changed = copy.deepcopy(report) | changes
        for case in changed["cases"]:
            if "share" in case:
                case["milliseconds"]["median"] /= 2
        other.write_text(json.dumps(changed))
        return gpu.main(["--compare", str(written), str(other)]), capsys.readouterr().out

    code, text = against(models=[])
    assert code == 0 and "A/B    2.00" in text and "geometric mean of 2" in text and "GEMM 4096" not in text
    assert against(work="0" * 16)[0] == 1
    code, text = against(version=2)
    assert code == 1 and "reads pyruntime GPU report 1" in text
    other.write_text("[]")
    assert gpu.main(["--compare", str(other), str(written)]) == 1


@pytest.mark.parametrize("path", STORED, ids=lambda path: path.stem)
def test_stored_reports_have_the_schema(path: Path) -> None:
    jsonschema.validate(gpu_report.read(path), SCHEMA)


def test_cases() -> None:
    """Names are different; operations and bytes of a product are what its sizes say."""
    table = gpu_cases.everything()
    names = [case["name"] for case in [*table["cases"], *table["models"]]]
    assert len(set(names)) == len(names) and table["work"] == gpu_cases.everything()["work"]
    product = next(case for case in table["cases"] if case["name"] == "GEMM 197 x 768 x 3072")
    assert product["flops"] == 2 * 197 * 768 * 3072
    assert product["bytes"] == 4 * (197 * 768 + 768 * 3072 + 197 * 3072)


@pytest.mark.parametrize(
    ("type_", "high", "low", "least", "most"),
    [
        ("float32", 2.0, None, -2, 2),
        ("float16", 0.25, None, 0.125, 0.25),
        ("uint8", 255, 0, 0, 255),
        ("int64", 9, 3, 3, 9),
    ],
)
def test_drawn_numbers(type_: str, high: float, low: float | None, least: float, most: float) -> None:
    """They are in their range and spread over it."""
    x = array(drawn(type_, (64, 64), 5, high, low)).astype(np.float64)
    if type_ == "float16":
        assert 0.4 < (x < 0).mean() < 0.6
        x = np.abs(x)
    assert least <= x.min() and x.max() <= most and x.shape == (64, 64)
    assert abs(x.mean() - (least + most) / 2) < 0.03 * (most - least)


def test_kernels_are_repeated() -> None:
    """A repeated kernel has the time of one run, by the adapter's clock and by the queue's; results stay."""
    pytest.importorskip("wgpu")
    case = next(case for case in gpu_cases.everything()["cases"] if case["name"].startswith("LSTM"))
    model, feeds = gpu_cases.opened(case)
    session = InferenceSession(model, providers=["webgpu"])
    (want,) = session.run(None, feeds)
    labels = [(call.node, call.kernel) for call in session.profile(feeds)]
    for timestamps in (True, False):
        for executor in session._native.executors.values():
            executor.gpu.host.adapter = replace(executor.gpu.host.adapter, timestamps=timestamps)
        found = session.profile(feeds, repeat=3)
        assert [(call.node, call.kernel) for call in found] == labels and all(call.seconds > 0 for call in found)
    np.testing.assert_array_equal(session.run(None, feeds)[0], want)
    for wrong in (0, -1, True, 1.5):
        with pytest.raises(InvalidInput, match="repeat cannot be"):
            session.profile(feeds, repeat=wrong)  # type: ignore[arg-type]
