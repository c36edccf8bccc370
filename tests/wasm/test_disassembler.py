"""Functions as text: wasmtime's assembler makes the same bytes of it."""

from __future__ import annotations

import re

import onnx
import wasmtime

from pyruntime import InferenceSession
from pyruntime.providers.wasm.printer.assembler import Function, Module
from pyruntime.providers.wasm.printer.disassembler import disassemble
from pyruntime.providers.wasm.printer.opcodes import LANE, LANE_MEMORY, MEMORY, PLAIN

MODEL = """<ir_version: 10, opset_import: ["" : 20]>
    g (float[N, 64] x, float[64, 32] w) => (float[N, 32] y) { a = MatMul (x, w)  t = Tanh (a)  y = Softmax (t) }"""


def assembled(functions: list[Function]) -> str:
    """All functions as a module in the text format."""
    memory = '(import "env" "memory" (memory 1 65536))'
    return f"(module {memory} (table 1 funcref) (type (func (param i32))) {' '.join(map(disassemble, functions))})"


def codes(wasm: bytes) -> list[bytes]:
    """The code section's functions. Spec: https://webassembly.github.io/spec/core/binary/modules.html#code-section"""
    at, found = 8, []

    def leb() -> int:
        nonlocal at
        value = shift = 0
        while True:
            at, byte = at + 1, wasm[at]
            value, shift = value | (byte & 127) << shift, shift + 7
            if byte < 128:
                return value

    while at < len(wasm):
        section, size = wasm[at], (at := at + 1) and leb()
        end = at + size
        if section == 10:
            for _ in range(leb()):
                start, length = at, leb()
                found.append(wasm[start : (at := at + length)])
        at = end
    return found


def test_every_instruction_comes_back() -> None:
    """Each alone: text does not need to be of the right types to be assembled."""
    module = Module()
    f = module.function("all", ["i32"], ["i32"])
    f.local("v128")
    plain = [name for name in PLAIN if name not in ("else", "end")]
    f.emit(*plain, 0)
    for name in MEMORY:
        f.mem(name).mem(name, 70000)
    for name in LANE:
        f.lane(name, 1)
    for name in LANE_MEMORY:
        f.mem_lane(name, 1).mem_lane(name, 0, 300)
    f.i32(-1).i32(2**31).i64(-(2**63)).i64(5).v128(bytes(range(16))).shuffle(range(16)).set(1).tee(0)
    for x in (0.0, -0.0, 1.5, 0.1, 1e-40, 3e38, float("inf"), float("-inf"), float("nan"), -float("nan")):
        f.f32(x).f64(x)
    with f.block() as out, f.loop("i32") as again, f.if_():
        f.br(again).br_if(out).otherwise().call(f).call_indirect("i32")
    text = assembled([f])
    assert codes(bytes(wasmtime.wat2wasm(text))) == [f.body()]


def test_functions_of_models_come_back() -> None:
    session = InferenceSession(onnx.parser.parse_model(MODEL).SerializeToString())
    text = session.listing(code=True)
    shown = re.findall(r"\(func \$(\S+)", text)
    kernels = {k for node in session.explain()["nodes"] for k in node["kernels"]}
    assert kernels <= set(shown), "each is printed"
    assert len(shown) == len(set(shown)), "once"
    called = set(re.findall(r"call \d+ \(;(\S+);\)", text))
    assert called and called <= set(shown), "with what it calls"
    assert "call matmul(" in text
