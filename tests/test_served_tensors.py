"""What `pyruntime serve --model` needs no server for: tensors of the Open Inference Protocol, options, the manifest."""

from __future__ import annotations

import re
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import yaml

from kit.docs import ROOT
from pyruntime.cli import serve, serve_models
from pyruntime.errors import InvalidInput, NotSupported
from pyruntime.frontend.feed_checks import NodeArg
from pyruntime.serving.tensors import DATATYPES, array_of, from_list, metadata

TEXT = (ROOT / "docs/use/serving.md").read_text()
DIGITS = ROOT / "demo/digits/digits.onnx"
TAKEN: list[tuple[str, list[Any], Any]] = [
    ("float32", [1, 2.5, float("nan")], np.array([1, 2.5, np.nan], np.float32)),
    ("float16", [[1.5], [2]], np.array([1.5, 2], np.float16)),
    ("float16", [65504, float("inf")], np.array([65504, np.inf], np.float16)),
    ("float64", [], np.zeros(0)),
    ("int8", [-128, 127], np.array([-128, 127], np.int8)),
    ("uint64", [2**64 - 1, 0], np.array([2**64 - 1, 0], np.uint64)),
    ("int64", [[1, 2], [3, -4]], np.array([1, 2, 3, -4])),
    ("bool", [True, False], np.array([True, False])),
    ("O", ["a", "ä"], np.array(["a", "ä"], object)),
    ("O", [b"\xc3\xa4"], np.array(["ä"], object)),
]
REFUSED: list[tuple[str, list[Any]]] = [
    ("float32", [None]), ("float32", ["1"]), ("float32", [True]), ("float32", [10**400]), ("float32", [[1], [1, 2]]),
    ("int64", [1.0]), ("int64", [None]), ("int64", [True]), ("int64", [2**63]), ("int64", [-(2**63) - 1]),
    ("int8", [128]), ("int8", [-129]), ("uint8", [-1]), ("uint8", [256]), ("uint64", [2**64]), ("uint64", [-1]),
    ("bool", [1]), ("bool", ["true"]), ("O", [1]), ("O", [b"\xff"]), ("O", [None]), ("O", [{}]), ("O", ["\ud800"]),
    ("float32", [1e39]), ("float16", [1, -65520]), ("float16", [70000.0]),
]  # fmt: skip


@pytest.mark.parametrize(("dtype", "data", "expected"), TAKEN)
def test_lists_become_arrays(dtype: str, data: list[Any], expected: np.ndarray) -> None:
    found = from_list(data, dtype)
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(("dtype", "data"), REFUSED)
def test_lists_are_refused(dtype: str, data: list[Any]) -> None:
    """NumPy's own conversion takes most of these, for other numbers."""
    with pytest.raises((InvalidInput, ValueError, OverflowError)):
        from_list(data, dtype)


@pytest.mark.parametrize("shape", [[2, 2], [4, -1], [-4], [4.0], [True, 4], [1 << 62, 4]])
def test_shapes_are_checked(shape: list[Any]) -> None:
    given = SimpleNamespace(name="x", datatype="INT64", shape=shape, data=[1, 2, 3])
    with pytest.raises(InvalidInput, match='"x"'):
        array_of(given, "INT64")


def test_types() -> None:
    assert metadata([NodeArg("x", "tensor(float)", ["N", 3, None])]) == [
        {"name": "x", "datatype": "FP32", "shape": [-1, 3, -1]}
    ]
    assert {"FP16", "FP64", "BOOL", "BYTES", "INT8", "UINT64"} < set(DATATYPES.values())
    with pytest.raises(InvalidInput, match="bfloat16"):
        metadata([NodeArg("x", "tensor(bfloat16)", [1])])


def test_options_are_documented() -> None:
    """Each option of the command, and no other, is in the page's table."""
    known = set(re.findall(r"--[a-z-]+", serve_models.parser().format_help())) - {"--help"}
    table = TEXT.partition("## Options")[2].partition("## Limits")[0]
    assert set(re.findall(r"`(--[a-z-]+)", table)) | set(re.findall(r", `(--[a-z-]+)", table)) == known


@pytest.mark.parametrize("option", ["--port=65536", "--grpc-port=-1", "--body=2048", "--timeout=inf", "--drain=nan"])
def test_ranges_of_options(option: str) -> None:
    with pytest.raises(InvalidInput, match=f"{option.partition('=')[0]}: .* is not from"):
        serve.main([f"--model=digits={DIGITS}", option])


def test_the_manifest() -> None:
    """Its arguments are some that the command takes, and Kubernetes waits until all requests have ended."""
    deployment, service = yaml.safe_load_all((ROOT / "examples/serving/kubernetes.yaml").read_text())
    pod = deployment["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    args = serve_models.parser().parse_args(container["args"])
    assert pod["terminationGracePeriodSeconds"] > args.drain + args.timeout + 5
    names = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert names == {"http": args.port, "grpc": args.grpc_port}
    assert {port["targetPort"] for port in service["spec"]["ports"]} == set(names)
    assert container["readinessProbe"]["httpGet"]["path"] == "/v2/health/ready"


@pytest.mark.skipif(find_spec("kserve") is not None, reason="asks what happens where KServe is not installed")
def test_without_kserve() -> None:
    with pytest.raises(NotSupported, match=r"kserve is not installed.*\[serve\]"):
        serve.main([f"--model=digits={DIGITS}"])
