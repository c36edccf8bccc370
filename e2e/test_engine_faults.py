"""What goes wrong around the engine: files that are missing, cut off, slow or of another type, a worker that is ended,
a page that is frozen, shared memory that is refused. Every call settles, with a right result or an error that says what
to do, and the next session works."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser

from e2e.conftest import Server, Tab, new_tab
from kit.chromium import MOUNTS
from pyruntime.cli import serve

LIMIT = 60  # seconds
ADD = """
  const tensor = () => new ort.Tensor('float32', new Float32Array(6).fill(2), [2, 3]);
  const feeds = () => ({ a: tensor(), b: tensor() });
  const options = { intraOpNumThreads: 2, extra: { session: { disable_program_cache: '1' } } }; // so that Python starts
  const add = async () => {
    const session = await ort.InferenceSession.create('/models/add.onnx', options);
    return (await session.run(feeds())).c.data[5];
  };
  const told = (error) => [error.type ?? error.name, error.message];
  const late = () => new Promise((done) => setTimeout(done, arg.limit, 'never settled'));
  const limit = (promise) => Promise.race([promise, late()]);
"""


class Faulty(serve.Handler):
    """Serves the file at `fault[0]` with the fault `fault[1]`."""

    fault = ("", "")

    def do_GET(self) -> None:
        path, kind = Faulty.fault
        if not path or not self.path.endswith(path):
            return super().do_GET()
        if kind.isdigit():
            return self.send_error(int(kind))
        body = Path(self.translate_path(self.path)).read_bytes()
        self.send_response(200)
        self.send_header("Content-Type", "text/html" if kind == "type" else self.guess_type(path))
        if kind == "length":
            self.send_header("Content-Length", str(len(body) + 1000))
        self.end_headers()
        if kind == "slow":
            for n in range(len(body)):
                self.wfile.write(body[n : n + 1])
                time.sleep(2 / len(body))
        else:
            self.wfile.write(body if kind in ("type", "length") else body[: len(body) // 2])
        self.close_connection = True
        return None


@pytest.fixture(scope="module")
def faulty(built: None) -> Iterator[Server]:
    patch = pytest.MonkeyPatch()
    patch.setattr(serve.Server, "handler", Faulty)
    with Server(MOUNTS) as server:
        yield server
    patch.undo()


@pytest.fixture(scope="module")
def shared_tab(faulty: Server, browser: Browser) -> Iterator[Tab]:
    made = new_tab(browser, faulty)
    made.open("/esm.html")
    yield made
    made.page.context.close()


@pytest.fixture
def tab_at(shared_tab: Tab) -> Iterator[Tab]:
    """One page for all faults of files: a page costs more than a fault."""
    yield shared_tab
    Faulty.fault = ("", "")


KINDS = ["404", "500", "half", "length", "type"]
FILES = ["worker.mjs", "pyodide.asm.mjs", "pyodide.asm.wasm", "python.image.wasm"]
WORKS = {("pyodide.asm.wasm", "type"), *(("python.image.wasm", kind) for kind in KINDS)}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("file", FILES)
def test_a_file_of_the_engine_is_not_to_be_had(tab_at: Tab, file: str, kind: str) -> None:
    """Two sessions at once are told; once the file is whole, the same page makes one that works."""
    tab_at.run("ort.shutdown()")  # the next worker fetches all files
    Faulty.fault = (file, kind)
    ask = ADD + "return Promise.all([add(), add()].map((made) => limit(made.catch(told))))"
    found: Any = tab_at.run(ask, {"limit": 1000 * LIMIT})
    Faulty.fault = ("", "")
    if (file, kind) in WORKS:
        assert found == [4, 4]
    else:
        for name, message in found:
            assert name == "SessionFailed" and file in message and "dist" in message
    assert tab_at.run(ADD + "return limit(add().catch(told))", {"limit": 1000 * LIMIT}) == 4


MODEL_FILES = {
    "add.onnx": ("add.onnx", "options"),
    "external.bin": ("external.onnx", "{ ...options, externalData: ['external.bin'] }"),
}


@pytest.mark.parametrize("kind", ["404", "500", "half", "length", "type", "slow"])
@pytest.mark.parametrize("file", MODEL_FILES)
def test_a_file_of_a_model_is_not_to_be_had(tab_at: Tab, file: str, kind: str) -> None:
    """Two sessions at once are told, while another model's is made; once the file is whole, the same page has it."""
    model, options = MODEL_FILES[file]
    create = f"""
      const create = async () => {{
        const session = await ort.InferenceSession.create('/models/{model}', {options});
        const count = session.inputNames.length;
        await session.release();
        return count;
      }};
      const other = () => ort.InferenceSession.create('/models/types.onnx', options).then(() => 'made');
    """
    Faulty.fault = (file, kind)
    ask = ADD + create + "return Promise.all([create(), create(), other()].map((made) => limit(made.catch(told))))"
    *found, other = tab_at.run(ask, {"limit": 1000 * LIMIT})  # type: ignore[misc]
    Faulty.fault = ("", "")
    tab_at.forgive("Failed to load resource")  # Chromium logs it for any page
    good = 2 if file == "add.onnx" else 1
    assert other == "made"
    for told in found:
        if kind in ("type", "slow"):
            assert told == good
        else:
            assert told[0] == "InvalidModel" and (file in told[1] or kind == "half")
    assert tab_at.run(ADD + create + "return limit(create().catch(told))", {"limit": 1000 * LIMIT}) == good


WORKERS = """
  const { Worker } = globalThis;
  globalThis.made = [];
  globalThis.Worker = class extends Worker { constructor(...args) { super(...args); made.push(this); } };
"""
ENDS = {
    "terminated": "made[0].terminate()",
    "closed": "void ort.python('import js; js.close()').catch(() => {})",
}


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS.keys())
@pytest.mark.parametrize("moment", ["create", "run", "idle"])
def test_the_worker_is_ended(tab: Callable[..., Tab], moment: str, end: str) -> None:
    """Whatever waits for it fails, with the reason; so does the old session; a new one works."""
    page = tab()
    page.open("/esm.html")
    found: Any = page.run(
        WORKERS + ADD + "ort.env.wasm.proxy = true;"
        f"""
        let session = null;
        if (arg.moment !== 'create') session = await ort.InferenceSession.create('/models/steps.onnx', options);
        else await ort.boot();
        const x = new ort.Tensor('float32', new Float32Array(512 * 1024), [512, 1024]);
        const waiting = arg.moment === 'create' ? Array.from({{ length: 20 }}, add)
          : arg.moment === 'run' ? Array.from({{ length: 200 }}, () => session.run({{ x }})) : [];
        await new Promise((done) => setTimeout(done, 5));
        {end};
        const all = await Promise.all(waiting.map((one) => limit(one.then(() => 'done', told))));
        await new Promise((done) => setTimeout(done, 200));
        const old = session && await limit(session.run({{ x }}).catch(told));
        return [all, old, await limit(add().catch(told)), made.length];
        """,
        {"limit": 1000 * LIMIT, "moment": moment},
    )
    waiting, old, after, workers = found
    failed = [one for one in waiting if one != "done"]
    if "terminate" in end:  # what closes itself may answer first what came before
        assert bool(failed) == (moment != "idle")
    for name, message in [*failed, *([old] if old else [])]:
        assert name == "SessionFailed" and "worker is gone" in message and "create the session again" in message
    assert after == 4 and workers == 2


def test_threads_that_do_not_answer_are_left_out(tab: Callable[..., Tab]) -> None:
    """A thread whose code never comes: the session works without it, after a moment and a warning."""
    page = tab()
    page.open("/esm.html")
    silent = "import js; js.Worker = js.Function.new('this.postMessage = this.terminate = () => {}')"
    script = "await ort.boot(); await ort.python(arg.code);" + ADD
    found: Any = page.run(
        script + "return [await limit(add()), await limit(add()), (await ort.stats()).threads]",
        {"limit": 1000 * LIMIT, "code": silent},
    )
    assert found == [4, 4, 0]
    assert len(page.warnings) == 1 and "did not answer within 5 s" in page.warnings[0]


FREEZE = """
  ort.env.wasm.proxy = true; // nothing runs in the page
  globalThis.session = await ort.InferenceSession.create('/models/steps.onnx', { intraOpNumThreads: 2 });
  globalThis.x = new ort.Tensor('float32', new Float32Array(512 * 1024).fill(1), [512, 1024]);
  globalThis.waiting = [
    ...Array.from({ length: 100 }, () => session.run({ x })),
    ort.InferenceSession.create('/models/add.onnx', { intraOpNumThreads: 4 }),
    ort.InferenceSession.create('/models/missing.onnx'),
  ].map((one) => one.then(() => 'done', (error) => error.type));
"""


def test_pages_are_frozen(tab: Callable[..., Tab]) -> None:
    """Longer than any of our time limits: what was under way ends right once the page goes on."""
    pages = [tab("isolated"), tab("plain")]
    devtools = []
    for page in pages:
        page.open("/esm.html")
        page.run(FREEZE)
        devtools.append(page.page.context.new_cdp_session(page.page))
        devtools[-1].send("Page.setWebLifecycleState", {"state": "frozen"})
    time.sleep(7)
    for page, session in zip(pages, devtools, strict=True):
        session.send("Page.setWebLifecycleState", {"state": "active"})
        ask = "return [await Promise.all(waiting.map(limit)), (await limit(session.run({ x }))).s.data[5]]"
        found: Any = page.run(ADD + ask, {"limit": 1000 * LIMIT})
        page.forgive("404 (Not Found)")
        assert found[0] == [*["done"] * 101, "InvalidModel"] and found[1] == pytest.approx(1.7615942)


def test_a_page_without_shared_array_buffer(tab: Callable[..., Tab]) -> None:
    """Isolated as it is: one thread, buffers that move."""
    page = tab()
    page.page.add_init_script("delete globalThis.SharedArrayBuffer")
    page.open("/esm.html")
    ask = (
        ADD
        + "const sum = await limit(add().catch(told)); return [crossOriginIsolated, sum, (await ort.stats()).threads]"
    )
    assert page.run(ask, {"limit": 1000 * LIMIT}) == [True, 4, 0]


REFUSE_MEMORY = """(most) => {
  const { Memory } = WebAssembly;
  WebAssembly.Memory = class extends Memory {
    constructor(how) {
      if (how.maximum > most) throw new RangeError('WebAssembly.Memory(): could not allocate memory');
      super(how);
    }
  };
}"""


@pytest.mark.parametrize("most", [16384, 0])
def test_webassembly_gets_no_memory(most: int, tab: Callable[..., Tab]) -> None:
    """Not as much as is asked for: it works with less. None: it says so, and the next worker makes the session."""
    page = tab()
    page.open("/esm.html")
    page.run("await ort.boot()")
    worker = next(w for w in page.page.workers if "worker.mjs" in w.url)
    worker.evaluate(REFUSE_MEMORY, most)
    ask = ADD + "return limit(add().catch(told))"
    found: Any = page.run(ask, {"limit": 1000 * LIMIT})
    assert found == 4 if most else found[0] == "OutOfMemory" and "cannot provide memory for WebAssembly" in found[1]
    page.run("ort.shutdown()")
    assert page.run(ask, {"limit": 1000 * LIMIT}) == 4


def test_sixty_four_threads_are_asked_for(tab: Callable[..., Tab]) -> None:
    page = tab()
    page.open("/esm.html")
    ask = ADD.replace("intraOpNumThreads: 2", "intraOpNumThreads: 64")
    found: Any = page.run(ask + "return [await limit(add()), (await ort.stats()).threads]", {"limit": 1000 * LIMIT})
    assert found[0] == 4 and 0 < found[1] <= 31


@pytest.mark.parametrize(
    "page",
    [
        "fetch = ((real) => (url) => { if (!`${url}`.endsWith('.onnx')) throw new Error(); return real(url); })(fetch)",
        "WebAssembly.compileStreaming = undefined",
        "caches.has = 0",
    ],
    ids=["fetch", "compileStreaming", "caches"],
)
def test_what_the_page_cannot_fetch_the_worker_does(tab: Callable[..., Tab], page: str) -> None:
    made = tab()
    made.open("/esm.html")
    assert made.run(f"globalThis.{page}; {ADD} return limit(add())", {"limit": LIMIT * 1000}) == 4
