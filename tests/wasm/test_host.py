"""The wasmtime host: memory views, growth, the fast call, traps, threads, stops, the cache."""

import re
import threading
from pathlib import Path

import pytest

from pyruntime.codegen.linear_memory import EPOCH
from pyruntime.errors import ExecutionError, OutOfMemory
from pyruntime.providers.wasm.printer.assembler import Module
from pyruntime.providers.wasm.wasmtime_host import PAGE, WasmHost

from .arena import parallel


def sample(shared):
    """poke(address, value); peek(address) -> i32; mix(i64, f32, f64) -> f64; fail(); run(tid, threads, _): all meet."""
    module = Module(shared=shared)
    module.function("poke", ["i32", "i32"]).emit(0, 1).mem("i32.store")
    module.function("peek", ["i32"], ["i32"]).emit(0).mem("i32.load")
    mix = module.function("mix", ["i64", "f32", "f64"], ["f64"])
    mix.emit(0, "f64.convert_i64_s", 1, "f64.promote_f32", "f64.add", 2, "f64.add")
    module.function("fail").emit("unreachable")
    run = module.function("run", ["i32"] * 3)
    if shared:
        run.i32(64).i32(1).mem("i32.atomic.rmw.add").emit("drop")
        with run.loop() as again:  # every thread must be inside at the same time
            run.i32(64).mem("i32.atomic.load").emit(1, "i32.lt_s").br_if(again)
    run.emit(0).i32(2).emit("i32.shl", 0).mem("i32.store", 128)
    return module.to_bytes()


@pytest.fixture(params=[1, 2, 3])
def host(request, tmp_path):
    host = WasmHost(threads=request.param, cache=tmp_path)
    yield host
    host.close()


def test_calls_and_memory(host):
    k = host.load(sample(host.shared))
    k["poke"](16, -2)
    assert bytes(host.memory[16:20]) == b"\xfe\xff\xff\xff"
    k["poke"](16, 2**32 - 3)
    assert k["peek"](16) == -3
    host.memory[20:24] = 1
    assert k["peek"](20) == 0x01010101
    assert k["mix"](-3, 0.5, 0.25) == -2.25
    with pytest.raises(TypeError, match="takes 2"):
        k["poke"](1)


def test_growth_keeps_contents(host):
    k = host.load(sample(host.shared))
    k["poke"](16, 5)
    host.grow(3 * PAGE + 1)
    assert len(host.memory) == 4 * PAGE
    assert host.memory[16] == 5
    k["poke"](4 * PAGE - 4, 7)
    assert host.memory[-4] == 7
    host.grow(PAGE)
    assert len(host.memory) == 4 * PAGE


def test_limit():
    host = WasmHost(max_pages=2, cache=None)
    with pytest.raises(OutOfMemory, match="limit 131072"):
        host.grow(3 * PAGE)
    host.close()


def test_traps_are_errors_and_leave_the_host_usable(host):
    k = host.load(sample(host.shared))
    with pytest.raises(ExecutionError, match="fail: .*unreachable"):
        k["fail"]()
    with pytest.raises(ExecutionError, match="peek: .*out of bounds"):
        k["peek"](-4)
    assert k["peek"](0) == 0


def test_spmd(host):
    k = host.load(sample(host.shared))
    for _ in range(20):
        host.memory[64:256] = 0
        k["run"].spmd()
        assert list(host.memory[128 : 128 + 4 * host.threads].view("<i4")) == list(range(host.threads))
    with pytest.raises(ExecutionError, match="unreachable"):
        parallel(host, [k["fail"].calls[t] for t in range(host.threads)])


def test_threads_that_wait_survive_a_stop():
    """Wasmtime reads the word that `memory.atomic.wait32` compares. If that is inaccessible, the process ends."""
    host = WasmHost(threads=2, cache=None)
    host.grow(4 * PAGE)
    module = Module(shared=True)
    f = module.function("run", ["i32"] * 3)
    n = f.local("i32")
    with f.loop() as again:
        f.i32(EPOCH).i32(0).i64(1000).mem("memory.atomic.wait32").emit("drop")
        f.emit(n).i32(1).emit("i32.add").tee(n).i32(1000).emit("i32.lt_u").br_if(again)
        f.i32(3 * PAGE).mem("i32.load").emit("i32.eqz").br_if(again)  # until a stop, the only way out
    run = host.load(module.to_bytes())["run"]
    for _ in range(5):
        assert not host.watched(run.spmd, lambda: True)
    host.close()


def test_kernels_do_not_use_bulk_instructions():
    """Wasmtime carries them out itself, so a stop inside of one would end the process, not the run."""
    files = [path for path in Path("providers/wasm").rglob("*.py") if path.parent.name != "printer"]
    assert len(files) > 50
    assert not [path for path in files if re.search(r'"memory\.(fill|copy|init)"', path.read_text())]


def test_invalid_module(host):
    with pytest.raises(ExecutionError, match="does not load"):
        host.load(b"\0asm\1\0\0\0\x01")


def test_cache_hit_and_corruption(tmp_path, monkeypatch):
    import wasmtime

    wasm, compiled = sample(False), []
    deserialize = wasmtime.Module.deserialize
    monkeypatch.setattr(wasmtime.Module, "deserialize", lambda *a: compiled.append(1) or deserialize(*a))

    def use():
        host = WasmHost(cache=tmp_path / "new")
        assert host.load(wasm)["peek"](0) == 0
        host.close()

    use()
    assert not compiled
    use()
    assert compiled
    (file,) = (tmp_path / "new").iterdir()
    good = file.read_bytes()
    for bad in (b"", good[:1000], good[:5000] + b"X" + good[5001:]):
        compiled.clear()
        file.write_bytes(bad)
        use()
        assert not compiled
        assert file.read_bytes() == good


def test_cache_in_a_place_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    host = WasmHost(cache=tmp_path / "file" / "below")
    assert host.load(sample(False))["peek"](0) == 0
    host.close()


def test_default_cache_directory(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    host = WasmHost()
    host.load(sample(False))
    host.close()
    assert list((tmp_path / "pyruntime").glob("*.cwasm"))


def test_plain_simd_refuses_relaxed(tmp_path):
    module = Module()
    module.function("f", ["v128"], ["v128"]).emit(0, 0, 0, "f32x4.relaxed_madd")
    host = WasmHost(relaxed=False, cache=None)
    with pytest.raises(ExecutionError):
        host.load(module.to_bytes())
    host.close()
    assert WasmHost(cache=None).relaxed


def test_close_ends_threads():
    before = set(threading.enumerate())
    host = WasmHost(threads=3, cache=None)
    started = set(threading.enumerate()) - before
    assert len(started) == 2
    host.close()
    for thread in started:
        thread.join(5)
        assert not thread.is_alive()
