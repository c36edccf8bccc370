"""Every instruction validates in wasmtime, alone and with its operands; a few modules run."""

import re
import time

import pytest
import wasmtime

from pyruntime.providers.wasm.printer.assembler import Module
from pyruntime.providers.wasm.printer.opcodes import (
    ATOMIC,
    LANE,
    LANE_MEMORY,
    MEMORY,
    OPERANDS,
    PLAIN,
    RELAXED,
    leb_s,
    leb_u,
)  # fmt: skip
from pyruntime.providers.wasm.printer.values import f32x4, i32x4, pointer

CONTROL = {"unreachable", "nop", "else", "end", "return", "drop", "select", "atomic.fence"}
VECTORS = {
    "i8x16": "i32",
    "i16x8": "i32",
    "i32x4": "i32",
    "i64x2": "i64",
    "f32x4": "f32",
    "f64x2": "f64",
    "v128": "v128",
}


@pytest.fixture(scope="module")
def engine():
    config = wasmtime.Config()
    config.shared_memory = True
    return wasmtime.Engine(config)


def validate(engine, wasm):
    wasmtime.Module.validate(engine, wasm)


def scalar_signature(kind, what):
    """Operand types and result of a scalar instruction, from its name."""
    if m := re.search(r"_([if](32|64))(_[su])?$", what):
        return [m[1]], kind
    if what == "eqz":
        return [kind], "i32"
    if re.match(r"(eq|ne|lt|gt|le|ge)(_|$)", what):
        return [kind, kind], "i32"
    unary = re.match(r"clz|ctz|popcnt|abs|neg$|ceil|floor|trunc|nearest|sqrt|extend", what)
    return [kind] if unary else [kind, kind], kind


def vector_signature(kind, what):
    if what == "splat":
        return [VECTORS[kind]], "v128"
    if what in ("any_true", "all_true", "bitmask"):
        return ["v128"], "i32"
    if what in ("shl", "shr_s", "shr_u"):
        return ["v128", "i32"], "v128"
    if what == "bitselect" or re.match(r"relaxed_(n?madd|laneselect|dot.*add)", what):
        return ["v128"] * 3, "v128"
    unary = r"abs|neg$|not$|popcnt|ceil|floor|trunc|nearest|sqrt|extend_|extadd|convert|demote|promote|relaxed_trunc"
    return ["v128"] * (1 if re.match(unary, what) else 2), "v128"


def signature(name):
    kind, what = name.split(".", 1)
    return vector_signature(kind, what) if kind in VECTORS else scalar_signature(kind, what)


@pytest.mark.parametrize(
    "name", sorted(set(PLAIN) - CONTROL - {"memory.size", "memory.grow", "memory.copy", "memory.fill"})
)
def test_plain(engine, name):
    operands, result = signature(name)
    assert len(operands) == OPERANDS[name]
    module = Module()
    f = module.function("f", operands, [result])
    f.emit(*f.params, name)
    validate(engine, module.to_bytes())


@pytest.mark.parametrize("name", sorted(LANE))
def test_lane(engine, name):
    kind, what = name.split(".")
    replace = what == "replace_lane"
    module = Module()
    f = module.function("f", ["v128"] + [VECTORS[kind]] * replace, ["v128" if replace else VECTORS[kind]])
    assert len(f.params) == OPERANDS[name]
    f.emit(*f.params).lane(name, 1)
    validate(engine, module.to_bytes())


@pytest.mark.parametrize("name", sorted(set(MEMORY) - set(ATOMIC)))
def test_memory(engine, name):
    kind, what = name.split(".")
    store = what.startswith("store")
    module = Module()
    f = module.function("f", ["i32"] + [kind] * store, [] if store else [kind])
    assert len(f.params) == OPERANDS[name]
    f.emit(*f.params).mem(name, 300)
    validate(engine, module.to_bytes())


@pytest.mark.parametrize("name", sorted(LANE_MEMORY))
def test_memory_lane(engine, name):
    module = Module()
    f = module.function("f", ["i32", "v128"], [] if "store" in name else ["v128"])
    assert len(f.params) == OPERANDS[name]
    f.emit(*f.params).mem_lane(name, 1, 5000)
    validate(engine, module.to_bytes())


@pytest.mark.parametrize("name", sorted(ATOMIC))
def test_atomic(engine, name):
    kind, what = name.split(".", 1)
    if kind == "memory":
        operands, result = (["i32"], ["i32"]) if "notify" in what else (["i" + what[-2:], "i64"], ["i32"])
    elif "store" in what:
        operands, result = [kind], []
    else:
        operands, result = [kind] * (0 if "load" in what else 2 if "cmpxchg" in what else 1), [kind]
    module = Module(shared=True, max_pages=10)
    f = module.function("f", ["i32", *operands], result)
    f.emit("atomic.fence", *f.params).mem(name, 8)
    validate(engine, module.to_bytes())


def test_instruction_counts():
    assert len(RELAXED) == 20
    assert len(ATOMIC) == 66
    assert len(PLAIN) + len(LANE) + len(MEMORY) + len(LANE_MEMORY) > 450
    encodings = [e for t in (PLAIN, LANE) for e in t.values()] + [
        e[:-1] for t in (MEMORY, LANE_MEMORY) for e in t.values()
    ]
    assert len(set(encodings)) == len(encodings)


@pytest.mark.parametrize("shared", [False, True])
def test_structure_and_constants(engine, shared):
    module = Module(shared=shared, max_pages=100)
    g = module.function("g", ["i32"], ["i32"], export=False)
    g.emit(0, "memory.grow", "drop", "memory.size")
    f = module.function("f", ["i32", "i32"], ["i32"])
    i, end = f.params
    with f.scratch("v128", 2) as (v, w):
        f.f32x4(1.5).set(v).i32x4(-1).tee(w).emit(v).shuffle32(0, 4, 1, 5).set(v)
    assert f.local("v128") in (v, w)
    with f.until(i, end, 3) as out:
        f.emit(i).i32(2**32 - 1).emit("i32.eq").br_if(out)
        with f.block() as a, f.block():
            f.emit(i).br_if(a).br(out)
    f.i64(-(2**63)).emit("drop").i64(2**64 - 1).emit("drop").f32(float("nan")).emit("drop").f64(1e300).emit("drop")
    f.emit(i, i).i32(16).emit("memory.copy", i, i, i, "memory.fill").add(i, -4)
    f.emit(i)
    with f.if_(result="i32"):
        f.emit(i).call(g).otherwise().i32(1 << 31)
    validate(engine, module.to_bytes(names=True))


def test_max_pages_bounds(engine):
    validate(engine, Module(max_pages=65536).to_bytes())


@pytest.mark.parametrize("n", [0, 1, 63, 64, -64, -65, 127, 128, 2**31 - 1, -(2**31), 2**63 - 1])
def test_leb(n):
    def decode(data, signed):
        value = sum((b & 127) << 7 * i for i, b in enumerate(data))
        return value - (1 << 7 * len(data)) if signed and data[-1] & 64 else value

    assert decode(leb_s(n), True) == n
    assert n < 0 or decode(leb_u(n), False) == n


def test_unknown_instruction():
    f = Module().function("f")
    with pytest.raises(KeyError, match=r"i32\.frob"):
        f.emit("i32.frob")
    with pytest.raises(ValueError, match="16 bytes"):
        f.v128(b"")


def test_many_locals(engine):
    module = Module()
    f = module.function("f", ["i32"])
    for kind in ("v128", "i32", "i32", "f64") * 100:
        f.emit(f.local(kind), "drop")
    validate(engine, module.to_bytes())


def test_runs(engine):
    module = Module()
    f = module.function("sum_to", ["i32"], ["i32"])
    i, total = f.local("i32"), f.local("i32")
    with f.until(i, 0):
        f.emit(total, i, "i32.add").set(total)
    f.emit(total)
    store = wasmtime.Store(engine)
    memory = wasmtime.Memory(store, wasmtime.MemoryType(wasmtime.Limits(1, 65536)))
    instance = wasmtime.Instance(store, wasmtime.Module(engine, module.to_bytes()), [memory])
    assert instance.exports(store)["sum_to"](store, 10) == 45
    assert instance.exports(store)["sum_to"](store, 0) == 0


def test_values_print_in_the_order_in_which_they_are_written():
    module = Module()
    f, g = module.function("f", ["i32", "i32"]), module.function("g", ["i32", "i32"])
    (at,), (total,), (n, count) = f.pointers(1), f.vectors(1), f.params
    f.set(at, pointer(4096) + (n << 2)).set(total, f32x4.add(total, at.load(16)))
    with f.loop() as again, f.if_(count & 1):
        f.store(at, total).br_if(again, n.tee(n - 1).gt_s(0))
    at, total = 2, 3
    g.i32(4096).emit(0).i32(2).emit("i32.shl", "i32.add").set(at)
    g.emit(total, at).mem("v128.load", 16).emit("f32x4.add").set(total).local("i32")
    with g.loop() as again:
        g.emit(1).i32(1).emit("i32.and")
        with g.if_():
            g.emit(at, total).mem("v128.store")
            g.emit(0).i32(1).emit("i32.sub").tee(0).i32(0).emit("i32.gt_s").br_if(again)
    assert f.code == g.code


def write_wrong(f, what):
    (n,), (at,), (x,) = f.integers(1), f.pointers(1), f.vectors(1)
    other = f.module.function("other", ["i32", "v128"], export=False)
    return {
        "vector as a summand": lambda: n + x,
        "integer as a lane": lambda: f32x4.add(x, n),
        "vector in a local of i32": lambda: f.set(n, x),
        "integer in a local of v128": lambda: f.set(x, 1),
        "number as an address": lambda: f.set(at, n),
        "store at a number": lambda: f.store(n, x),
        "integer as v128": lambda: f.store(at, n),
        "too few arguments": lambda: f.call(other, n),
        "argument of another type": lambda: f.call(other, x, n),
        "vector to splat": lambda: i32x4.splat(x),
        "integer in a conjunction of vectors": lambda: x & n,
        "vector as a lane": lambda: i32x4.replace(x, 0, x),
        "integer of which to take a lane": lambda: i32x4.extract(n, 0),
        "integer to shift as a vector": lambda: i32x4.shl(n, 2),
        "lane of an integer from memory": lambda: at.load_lane("v128.load32_lane", n, 1),
    }[what]()


@pytest.mark.parametrize(
    "what",
    ["vector as a summand", "integer as a lane", "vector in a local of i32", "integer in a local of v128",
     "number as an address", "store at a number", "integer as v128", "too few arguments",
     "argument of another type", "vector to splat", "integer in a conjunction of vectors", "vector as a lane",
     "integer of which to take a lane", "integer to shift as a vector", "lane of an integer from memory"],
)  # fmt: skip
def test_wrong_types_are_refused_where_they_are_written(what):
    with pytest.raises(TypeError) as refused:
        write_wrong(Module().function("f"), what)
    assert any(frame.name == "<lambda>" for frame in refused.traceback)


def test_assembles_fast():
    """100 kernels of 1,000 instructions: a few tens of milliseconds (generous bound for loaded machines)."""
    start = time.process_time()
    module = Module()
    for k in range(100):
        f = module.function(f"k{k}", ["i32"])
        v = f.local("v128")
        for _ in range(100):
            f.emit(v, 0).mem("v128.load", 16).emit(0).mem("v128.load32_splat", 4).emit("f32x4.mul", "f32x4.add").set(v)
    module.to_bytes()
    assert time.process_time() - start < 1
