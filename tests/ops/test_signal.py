"""Transforms, windows and mel filters beyond the official suite, against NumPy and onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper, numpy_helper

from kit.interpret import run
from tests.ops.compare import by_onnx, by_session, check, model, same

RNG = np.random.default_rng(3)
REAL = RNG.standard_normal((2, 7, 3, 1)).astype(np.float32)
COMPLEX = RNG.standard_normal((2, 7, 3, 2)).astype(np.float32)


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("inverse", [0, 1])
@pytest.mark.parametrize("length", [None, 4, 7, 10])
@pytest.mark.parametrize("axis", [1, 2])
def test_dft(symbolic: bool, inverse: int, length: int | None, axis: int) -> None:
    feeds: dict[str, Any] = {"x": COMPLEX}
    if length is not None:
        feeds["n"] = np.array(length)
    node = helper.make_node("DFT", ["x", "n" if length else "", "axis"], ["y"], inverse=inverse)
    at = helper.make_node("Constant", [], ["axis"], value_int=axis)
    m = model([at, node], feeds, ["y"], opset=20)
    x = COMPLEX[..., 0] + 1j * COMPLEX[..., 1]
    want = (np.fft.ifft if inverse else np.fft.fft)(x, length, axis)
    got = run(m.SerializeToString(), feeds, symbolic)[0]
    np.testing.assert_allclose(got, np.stack([want.real, want.imag], -1), atol=1e-4)


@pytest.mark.parametrize("length", [6, 7, 9])
def test_real_transforms_there_and_back(length: int) -> None:
    there = helper.make_node("DFT", ["x", "n"], ["y"], onesided=1, axis=1)
    back = helper.make_node("DFT", ["y", "n"], ["z"], onesided=1, inverse=1, axis=1)
    feeds = {"x": REAL, "n": np.array(length)}
    y, z = run(model([there, back], feeds, ["y", "z"], opset=17).SerializeToString(), feeds)
    want = np.fft.rfft(REAL[..., 0], length, 1)
    np.testing.assert_allclose(y, np.stack([want.real, want.imag], -1), atol=1e-4)
    np.testing.assert_allclose(z[..., 0], np.fft.irfft(want, length, 1), atol=1e-4)


@pytest.mark.parametrize("onesided", [0, 1])
@pytest.mark.parametrize("window", [True, False])
def test_stft(onesided: int, window: bool) -> None:
    feeds = {"x": RNG.standard_normal((2, 20, 1)).astype(np.float32), "step": np.array(3)}
    feeds |= {"w": np.hanning(8).astype(np.float32)} if window else {"length": np.array(8)}
    node = helper.make_node("STFT", ["x", "step", *(["w"] if window else ["", "length"])], ["y"], onesided=onesided)
    check(model([node], feeds, ["y"], opset=17), feeds, tolerance=1e-4)


@pytest.mark.parametrize("name", ["HannWindow", "HammingWindow", "BlackmanWindow"])
@pytest.mark.parametrize(("periodic", "datatype", "size"), [(0, 1, 9), (1, 11, 9), (0, 2, 9), (1, 6, 10), (1, 7, 94)])
def test_windows(name: str, periodic: int, datatype: int, size: int) -> None:
    """Truncated to integers, all elements are 0 except those that are exactly 1."""
    feeds = {"n": np.array(size)}
    node = helper.make_node(name, ["n"], ["y"], periodic=periodic, output_datatype=datatype)
    check(model([node], feeds, ["y"], opset=17), feeds, peer=by_onnx)


@pytest.mark.parametrize(("low", "high"), [(20, 3900), (1000, 0)])
def test_mel_filters(low: float, high: float) -> None:
    """If the lower edge is above the upper one, the corners descend and triangles have no top."""
    feeds = {"bins": np.array(6), "dft": np.array(32), "rate": np.array(8000)}
    feeds |= {"low": np.array(low, np.float32), "high": np.array(high, np.float32)}
    m = model([helper.make_node("MelWeightMatrix", list(feeds), ["y"])], feeds, ["y"], opset=17)
    same(run(m.SerializeToString(), feeds), by_onnx(m, feeds), 1e-4)


@pytest.mark.parametrize("length", [289, 300, 512, 1000, 1009, 2 * 521, 13 * 128, 4096])
@pytest.mark.parametrize("kind", ["real", "complex", "one side", "inverse", "inverse of one side", "float64"])
def test_fast_transforms(length: int, kind: str) -> None:
    """Lengths that are smooth, prime, and products with a large prime; longer and shorter than the input."""
    rng = np.random.default_rng(length)
    dtype = np.float64 if kind == "float64" else np.float32
    parts = 1 if kind in ("real", "one side") else 2
    given = length // 2 + 1 if "of" in kind else length
    attrs = {"axis": 1, "inverse": int("inverse" in kind), "onesided": int("one" in kind)}
    node = helper.make_node("DFT", ["x", "n"], ["y"], **attrs)
    for n in (given, given + 7, given - 7) if length in (300, 1009) else (given,):
        x = rng.standard_normal((2, n, parts)).astype(dtype)
        feeds = {"x": x, "n": np.array(length)}
        made = model([node], {"x": x}, ["y"], opset=17, initializer=[numpy_helper.from_array(feeds["n"], "n")])
        (got,) = by_session(made, {"x": x})
        z = (x[..., 0] + 1j * (x[..., 1] if parts == 2 else 0)).astype(np.complex128)
        z = np.pad(z, ((0, 0), (0, max(given - n, 0))))[:, :given]
        if "of" in kind:
            want = np.fft.irfft(z, length)[..., None]
        else:
            full = np.fft.ifft(z) if attrs["inverse"] else np.fft.fft(z)
            full = full[:, : length // 2 + 1] if attrs["onesided"] else full
            want = np.stack([full.real, full.imag], -1)
        assert got.shape == want.shape and got.dtype == dtype
        assert np.abs(got - want).max() < (1e-13 if dtype is np.float64 else 2e-6) * np.abs(want).max()
