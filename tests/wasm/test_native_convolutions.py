"""Machine code of convolutions: what a call reaches. tests/wasm/test_conv.py and test_depthwise.py check results."""

from __future__ import annotations

import numpy as np

from pyruntime.providers.wasm.native import depthwise_function
from pyruntime.providers.wasm.printer.native_imports import FUNCTIONS

from .native import EDGES, SIZE, Direct, each_kind, system_v


def fits_depthwise(operands: dict[str, int]) -> bool:
    o = {name: operands[name] for name in FUNCTIONS["depthwise"].operands}
    if any(not 1 <= o[n] <= depthwise_function.EXTENT for n in ("planes", "ih", "iw", "oh", "ow")):
        return False
    if any(not 1 <= o[n] <= 1024 for n in ("kh", "kw", "sh", "dh", "dw")) or not 1 <= o["sw"] <= 2:
        return False
    if any(not 0 <= o[n] <= depthwise_function.EXTENT for n in ("ph", "pw")):
        return False
    outputs, taps = o["planes"] * o["oh"] * o["ow"], o["kh"] * o["kw"]
    sizes = {"x": o["planes"] * o["ih"] * o["iw"], "y": outputs, "w": o["planes"] * taps}
    sizes |= {"bias": o["planes"]} if o["epilogue"] & 1 else {}
    if any(o[name] % 2**32 + 4 * size > SIZE for name, size in sizes.items()):
        return False
    return outputs * taps <= depthwise_function.WORK and o["memories"] == 0


@each_kind
@system_v
def test_depthwise_reaches_nothing_but_its_memory(kind: str) -> None:
    """As above. Other operands than sizes and addresses, which windows may have without limit, change nothing."""
    depthwise, rng = Direct(kind, name="depthwise"), np.random.default_rng(3)
    done = 0
    for turn in range(6000):
        operands = {
            "planes": 3, "ih": int(rng.integers(1, 9)), "iw": int(rng.integers(1, 40)), "epilogue": 1, "memories": 0,
            "low": 0xFF800000, "high": 0x7F800000,
            "oh": int(rng.integers(1, 7)), "ow": int(rng.integers(1, 40)),
        }  # fmt: skip
        operands |= {name: int(rng.integers(1, 4)) for name in ("kh", "kw", "sh", "dh", "dw")}
        operands |= {"sw": int(rng.integers(1, 3)), "ph": int(rng.integers(0, 9)), "pw": int(rng.integers(0, 9))}
        sizes = {"x": operands["ih"] * operands["iw"], "y": operands["oh"] * operands["ow"], "w": 9, "bias": 1}
        for name, size in sizes.items():
            operands[name] = SIZE - 12 * size if turn % 3 == 0 else int(rng.integers(0, SIZE - 12 * size + 1))
        for name in rng.choice(list(operands), int(rng.integers(0, 3)), replace=False):
            around = operands[name] + int(rng.integers(-9, 10))
            operands[name] = int(rng.choice([*EDGES, around]))
        operands["memories"] &= 0xFF
        wanted = fits_depthwise(operands)
        before = depthwise.memory.copy()
        assert depthwise(**operands) == wanted, operands
        written = np.zeros(SIZE, bool)
        if wanted:
            at = operands["y"] % 2**32
            written[at : at + 4 * operands["planes"] * operands["oh"] * operands["ow"]] = True
        assert not ((before != depthwise.memory) & ~written).any(), operands
        done += wanted
    assert 1000 < done < 5000


def fits_windows(operands: dict[str, int]) -> bool:
    o = {name: operands[name] for name in FUNCTIONS["windows"].operands}
    if any(not 1 <= o[n] <= depthwise_function.EXTENT for n in ("channels", "ih", "iw", "ow")):
        return False
    if any(not 1 <= o[n] <= 1024 for n in ("kh", "kw", "sh", "dh", "dw")) or not 1 <= o["sw"] <= 2:
        return False
    if any(not 0 <= o[n] <= depthwise_function.EXTENT for n in ("ph", "pw", "oy", "ox")):
        return False
    if o["ox"] >= o["ow"] or not 1 <= o["cols"] <= 32 or o["memories"]:
        return False
    sizes = {"x": 4 * o["channels"] * o["ih"] * o["iw"], "to": 160 * o["channels"] * o["kh"] * o["kw"]}
    return all(o[name] % 2**32 + size <= SIZE for name, size in sizes.items())


@each_kind
@system_v
def test_windows_reach_nothing_but_their_memory(kind: str) -> None:
    windows, rng = Direct(kind, name="windows"), np.random.default_rng(3)
    done = 0
    for turn in range(6000):
        operands = {"channels": 2, "cols": int(rng.integers(1, 33)), "memories": 0, "ow": int(rng.integers(1, 40))}
        operands |= {name: int(rng.integers(1, 20)) for name in ("ih", "iw")}
        operands |= {name: int(rng.integers(1, 4)) for name in ("kh", "kw", "sh", "dh", "dw")}
        operands |= {name: int(rng.integers(0, 9)) for name in ("ph", "pw", "oy")}
        operands |= {"sw": int(rng.integers(1, 3)), "ox": int(rng.integers(0, operands["ow"]))}
        sizes = {"x": 8 * operands["ih"] * operands["iw"], "to": 320 * operands["kh"] * operands["kw"]}
        for name, size in sizes.items():
            operands[name] = SIZE - size if turn % 3 == 0 else int(rng.integers(0, SIZE - size + 1))
        for name in rng.choice(list(operands), int(rng.integers(0, 3)), replace=False):
            around = operands[name] + int(rng.integers(-9, 10))
            operands[name] = int(rng.choice([*EDGES, around]))
        operands["memories"] &= 0xFF
        wanted = fits_windows(operands)
        before = windows.memory.copy()
        assert windows(**operands) == wanted, operands
        changed = before != windows.memory
        if wanted:
            at = operands["to"] % 2**32
            changed[at : at + 160 * operands["channels"] * operands["kh"] * operands["kw"]] = False
        assert not changed.any(), operands
        done += wanted
    assert 1000 < done < 5000
