"""Providers that a page adds: modules in JavaScript, and classes in Python. Each row runs in one page, which is once
cross-origin isolated and once not."""

from __future__ import annotations

import re
from typing import Any

import onnx

from e2e.conftest import Tab

PRODUCT = """<ir_version: 10, opset_import: ["" : 20]>
    g (float[N, 8] x, float[8, 16] w) => (float[N, 16] y, float[N, 16] z)
    { h = MatMul (x, w)  y = Relu (h)  z = Tanh (h) }"""
# The weights are constants, the first operand is a part of the feed, and only the sum reads the product.
WEIGHTS = ", ".join(str((n * 7 % 11 - 5) / 4) for n in range(128))
VIEWS = f"""<ir_version: 10, opset_import: ["" : 20]> g (float[N, 20] x) => (float[N, 16] y)
    <int64[1] from = {{4}}, int64[1] to = {{12}}, int64[1] axis = {{1}}, float[8, 16] w = {{{WEIGHTS}}},
     float[16] b = {{{", ".join(str(n / 8) for n in range(16))}}}>
    {{ t = Slice (x, from, to, axis)  h = MatMul (t, w)  y = Add (h, b) }}"""

# `made` creates a session of the model; `same` runs it on n rows, and compares with WebAssembly.
SETUP = """
const made = (...executionProviders) => ort.InferenceSession.create(new Uint8Array(arg.model), { executionProviders });
const values = (length, seed) => Float32Array.from({ length }, (_, i) => Math.sin(i * 0.7 + seed));
const tensor = (dims, seed) => new ort.Tensor('float32', values(dims[0] * dims[1], seed), dims);
const feeds = (n) => (arg.isViews ? { x: tensor([n, 20], n) } : { x: tensor([n, 8], n), w: tensor([8, 16], 3) });
const close = (a, b) => a.length === b.length && a.every((x, i) => Math.abs(x - b[i]) < 1e-4);
const textOf = ({ name, message }) => `${name}: ${message.split('\\n')[0]}`;
const failure = (promise) => promise.then(() => 'no error', textOf);
const expected = await made('wasm');
const same = async (session, n) => {
  const [a, b] = [await session.run(feeds(n)), await expected.run(feeds(n))];
  return Object.keys(b).every((name) => close(a[name].data, b[name].data));
};
const placeOf = ({ op, place, why }) => `${op} ${place} ${why}`.trim();
const places = async (session) => (await session.explain()).nodes.map(placeOf);
const later = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const heard = async (name) => { // what a provider tells the page
  const entries = [];
  new BroadcastChannel(name).onmessage = ({ data }) => entries.push(data);
  await later(200); // until the browser knows of the channel
  return entries;
};
const until = async (ready) => {
  while (!ready()) await later(10);
};
"""


def run(page: Tab, script: str, text: str = PRODUCT) -> Any:
    model = list(onnx.parser.parse_model(text).SerializeToString())
    return page.run(f"{SETUP} {script}", {"model": model, "isViews": text is VIEWS})


def test_a_product_in_javascript(page: Tab) -> None:
    """Options, the order of calls, arrays that are bound again after growth, runs at once, two sessions at once."""
    found: Any = run(
        page,
        """
        const names = [];
        for (let n = 0; n < 2; n++) names.push(await ort.registerProvider('/providers/products.js'));
        const entries = await heard('products');
        const session = await made({ name: 'products', least: '10', label: 'a' }, 'wasm');
        const equal = [];
        for (const n of [5, 5, 9]) equal.push(await same(session, n));
        await until(() => entries.length === 12);
        const calls = entries.splice(0);
        const other = await made({ name: 'products', label: 'b' }, 'wasm');
        equal.push(...await Promise.all([same(session, 4000), same(other, 7), same(session, 6), same(session, 5)]));
        await session.release();
        equal.push(await same(other, 8));
        const report = await places(other);
        await other.release();
        const closed = () => entries.filter(([, what]) => what === 'close').map(([label]) => label);
        await until(() => closed().length === 2);
        const refused = [
          await failure(made({ name: 'products', leats: 1 }, 'wasm')),
          await failure(made({ name: 'products', least: 'many' }, 'wasm')),
        ];
        return { names, equal, calls, report, closed: closed(), refused };
        """,
    )
    assert found["names"] == ["products", "products"] and found["equal"] == [True] * 8
    bind = ["bind", {"N": 5}, [[5, 8], [8, 16]], "Float32Array"]
    nine = ["bind", {"N": 9}, [[9, 8], [8, 16]], "Float32Array"]
    run_of = [["start"], ["job"], ["end", None]]
    first, third = ([["start"], b, ["job"], ["end", None]] for b in (bind, nine))
    expected = [["open", {"least": 10, "label": "a"}, True], *first, *run_of, *third]
    assert found["calls"] == [["a", *entry] for entry in expected]
    assert found["report"] == ["MatMul products", *[f"{op} wasm only matrix products" for op in ("Relu", "Tanh")]]
    assert found["closed"] == ["a", "b"]
    assert found["refused"] == [
        'InvalidInput: provider "products" has no option "leats" (did you mean least?)',
        'InvalidInput: option "least" of provider "products" cannot be \'many\' (a value of type float)',
    ]
    assert not page.warnings


def test_views_epilogues_and_layouts(page: Tab) -> None:
    found: Any = run(
        page,
        """
        await ort.registerProvider('/providers/layouts.js');
        const entries = await heard('layouts');
        const session = await made('layouts', 'wasm');
        const equal = [await same(session, 3), await same(session, 50), await same(session, 3)];
        const report = await places(session);
        await session.release();
        await until(() => entries.length);
        return { equal, entries, report };
        """,
        VIEWS,
    )
    assert found["equal"] == [True] * 3
    assert found["entries"] == [{"strided": ["0"], "packed": [1], "epilogue": "add"}]
    assert found["report"][1] == "MatMul layouts"


def test_segments_and_promises(page: Tab) -> None:
    """A provider of consecutive kernels whose `open`, `bind` and jobs are asynchronous, also beside another one."""
    found: Any = run(
        page,
        """
        await ort.registerProvider('/providers/segments.js');
        await ort.registerProvider('/providers/products.js');
        const [segments, both] = [await made('segments', 'wasm'), await made('products', 'segments', 'wasm')];
        const equal = await Promise.all([3, 400, 3, 7].flatMap((n) => [same(segments, n), same(both, n)]));
        const reports = [await places(segments), await places(both)];
        await Promise.all([segments.release(), both.release()]);
        return { equal, reports };
        """,
    )
    assert found["equal"] == [True] * 8
    assert found["reports"] == [
        ["MatMul wasm only maps", "Relu segments", "Tanh fused"],
        ["MatMul products", "Relu segments only matrix products", "Tanh fused"],
    ]


BROKEN = {
    "missing": "it exports no default",
    "text": 'it exports "a provider"',
    "empty": "it lacks name, supports, compile",
    "no compile": "it lacks compile",
    "no function": 'supports cannot be "", but must be a function',
    "no name": 'name cannot be "", but must be a text',
    "options": "options cannot be an object Array, but must be an object",
}


def test_modules_that_are_no_providers(page: Tab) -> None:
    """Each is a typed error, and the page goes on."""
    found: Any = run(
        page,
        f"""
        const added = (address) => failure(ort.registerProvider(address));
        const errors = [];
        for (const as of {[*BROKEN, "taken"]}) errors.push(await added(`/providers/broken.js?as=${{as}}`));
        errors.push(await added('/providers/absent.js'), await added('data:text/javascript,export default {{'));
        errors.push(await failure(made('absent')));
        return {{ errors, isEqual: await same(await made('wasm'), 4) }};
        """,
    )
    page.forgive("404")
    *broken, taken, absent, syntax, unknown = found["errors"]
    for error, (name, text) in zip(broken, BROKEN.items(), strict=True):
        address = re.escape(f"/providers/broken.js?as={name.replace(' ', '%20')}")
        assert re.fullmatch(rf"InvalidInput: http\S+{address} is no provider: {re.escape(text)} \(.+\)", error)
    assert taken == 'InvalidInput: a provider "wasm" exists already'
    assert re.match(r"InvalidInput: cannot import the provider http\S+/absent.js: ", absent)
    assert re.match(r"InvalidInput: cannot import the provider data:.*: Unexpected end of input", syntax)
    assert unknown.startswith("InvalidInput: none of the executionProviders ('absent') is available")
    assert found["isEqual"]


QUESTIONS = ("supports", "reads", "fuses", "packs", "compile")
FAULTS = [
    *((member, how) for member in QUESTIONS for how in ("throws", "nothing", "number", "rejects")),
    *((member, how) for member in ("bind", "job", "runStart", "runEnd") for how in ("throws", "rejects")),
    *(("supportsNode", how) for how in ("throws", "nothing", "rejects")),
    *(("cost", how) for how in ("throws", "nothing", "rejects")),
    ("bind", "number"), ("open", "throws"), ("open", "rejects"), ("open", "number"), ("close", "throws"),
]  # fmt: skip
WANTED = {"supports": "a text", "packs": "a map or null", "compile": "a function", "cost": "a number or null"}
RETURNED = {"nothing": "undefined", "number": "5", "rejects": "a promise"}


def reason(member: str, how: str) -> str:
    if how == "throws" or how == "rejects" and member not in (*QUESTIONS, "supportsNode", "cost"):
        return "Error: no device"
    if member == "bind":
        return "TypeError: bind returned 5, no function"
    if member == "open":
        return "TypeError: open returned 5, no provider"
    late = ": questions need their answers at once" if how == "rejects" else ""
    return f"TypeError: {member} returned {RETURNED[how]}, not {WANTED.get(member, 'true or false')}{late}"


def test_faults(page: Tab) -> None:
    """Whatever fails, results are right, and one warning for each node says what failed."""
    found: Any = run(
        page,
        f"""
        const rows = [];
        for (const [at, how] of {[list(fault) for fault in FAULTS]}) {{
          const name = await ort.registerProvider(`/providers/faulty.js?at=${{at}}&how=${{how}}`);
          const session = await made(name, 'wasm');
          const equal = [await same(session, 3), await same(session, 5), await same(session, 3)];
          const {{ nodes, moved }} = await session.explain();
          await session.release();
          rows.push({{ equal, moved, place: nodes.find(({{ op }}) => op === 'MatMul').place }});
        }}
        return rows;
        """,
        VIEWS,
    )
    for (member, how), row in zip(FAULTS, found, strict=True):
        name = f"faulty {member} {how}"
        text = f'provider "{name}" failed: {reason(member, how)}'
        assert row["equal"] == [True] * 3, name
        assert row["place"] == (name if member == "close" else "wasm"), name
        if member not in ("open", "close"):
            assert {move["reason"] for move in row["moved"]} == {text} and row["moved"][0]["to"] == "wasm", name
        warnings = [w for w in page.warnings if f'"{name}"' in w]
        assert warnings and all(text in w for w in warnings), name
        assert len(warnings) == max(1, len(row["moved"])), warnings


NORM = """<ir_version: 10, opset_import: ["" : 20]> g (float[N, 8] x, float[8, 16] w) => (float[N, 8] y)
    <float[8] s = {1, 2, 3, 4, 5, 6, 7, 8}> { n = LayerNormalization <epsilon = 0.5> (x, s)  y = Tanh (n) }"""


def test_whole_nodes_and_costs(page: Tab) -> None:
    """A provider takes a node as one call with its attributes, or leaves it where its cost says so."""
    found: Any = run(
        page,
        """
        await ort.registerProvider('/providers/norms.js');
        const entries = await heard('norms');
        const rows = [];
        for (const cost of [0, 1e9]) {
          const session = await made({ name: 'norms', cost }, 'wasm');
          const equal = [await same(session, 3), await same(session, 9)];
          rows.push({ equal, places: await places(session) });
          await session.release();
        }
        await until(() => entries.length >= 2);
        return { rows, entries };
        """,
        NORM,
    )
    for row, place in zip(found["rows"], ["norms", "fused"], strict=True):
        assert row["equal"] == [True, True]
        assert row["places"][0].split()[:2] == ["LayerNormalization", place]
    asked, compiled = found["entries"][:2]
    assert asked == ["LayerNormalization", [["float32", ["N", 8]], ["float32", [8]]], {"epsilon": 0.5}]
    assert compiled == ["onnx:LayerNormalization", [False, True], {"epsilon": 0.5}]


def test_promises_that_never_settle(page: Tab) -> None:
    """A signal ends the run, and the session stays usable; so does every other one."""
    found: Any = run(
        page,
        """
        await ort.registerProvider('/providers/products.js');
        const other = await made('products', 'wasm');
        const signal = () => AbortSignal.timeout(300);
        const errors = [];
        for (const at of ['bind', 'job', 'runStart', 'runEnd']) {
          const name = await ort.registerProvider(`/providers/faulty.js?at=${at}&how=never`);
          const session = await made(name, 'wasm');
          const stopped = () => failure(session.run(feeds(3), { signal: signal() }));
          for (let n = 0; n < 2; n++) errors.push(await stopped(), session.state);
          await session.release();
        }
        const name = await ort.registerProvider('/providers/faulty.js?at=open&how=never');
        const options = { executionProviders: [name, 'wasm'], signal: signal() };
        errors.push(await failure(ort.InferenceSession.create(new Uint8Array(arg.model), options)));
        return { errors, isEqual: await same(other, 3) };
        """,
    )
    *errors, created = found["errors"]
    assert errors == ["TimeoutError: the run was stopped: its signal is aborted", "ready"] * 8
    assert created == "TimeoutError: the creation of the session was stopped: its signal is aborted"
    assert found["isEqual"]


def test_sessions_with_other_options(page: Tab) -> None:
    """Without fallback the error reaches the caller; a refused option; exports; a GPU beside."""
    found: Any = run(
        page,
        """
        const name = await ort.registerProvider('/providers/faulty.js?at=job&how=throws');
        const model = new Uint8Array(arg.model);
        const executionProviders = [name, 'wasm'];
        const strict = await ort.InferenceSession.create(model, { executionProviders, fallback: false });
        const errors = [await failure(strict.run(feeds(3))), await failure(strict.run(feeds(3))), strict.state];
        errors.push(await failure(made({ name, size: 9 }, 'wasm')));
        await ort.registerProvider('/providers/products.js');
        const gpu = await made('products', { name: 'webgpu', allowSoftware: true }, 'wasm');
        const equal = [await same(gpu, 3), await same(gpu, 40)];
        const { providers } = await gpu.explain();
        errors.push(await failure(gpu.export({ providers: ['products', 'wasm'] })));
        const buffers = { executionProviders: ['products', 'webgpu', 'wasm'], preferredOutputLocation: 'gpu-buffer' };
        errors.push(await failure(ort.InferenceSession.create(model, buffers)));
        return { errors, equal, providers };
        """,
    )
    failed = 'ExecutionError: MatMul "h" (opset 20): provider "faulty job throws" failed: Error: no device'
    assert found["errors"][:4] == [failed, failed, "ready", "InvalidInput: size cannot be 9"]
    assert found["errors"][4].startswith('InvalidInput: MatMul "h" (opset 20): ')
    assert "the session has no GPU" in found["errors"][5]
    assert found["equal"] == [True, True]
    assert found["providers"] == {
        "named": ["products", "webgpu", "wasm"],
        "used": ["products", "webgpu", "wasm"],
        "why": "",
    }


IN_PYTHON = """
import pyruntime
from pyruntime import ArrayProvider, register_provider
from pyruntime.ir.kernel import Call
from pyruntime.placement.provider_list import registered


class Products(ArrayProvider):
    name = "python products"
    options = {"jobs": 1000}
    log = pyruntime.__dict__.setdefault("products", [])

    def __init__(self, jobs=0):
        self.jobs = jobs

    def open(self, options, threads):
        return Products(options["jobs"])

    def supports(self, kernel):
        return "" if isinstance(kernel, Call) and kernel.routine == "matmul" else "only products"

    def compile(self, part):
        order = [part.inputs.index(t) for t in part.kernels[0].args]

        def bind(inputs, outputs, symbols):
            a, b = (inputs[n] for n in order)
            (out,) = outputs
            self.log.append([type(out).__name__, *symbols.values()])

            def job():
                self.jobs -= 1
                if self.jobs < 0:
                    raise RuntimeError("no device")
                for i in range(out.shape[0]):
                    for j in range(out.shape[1]):
                        out[i, j] = sum(a[i, k] * b[k, j] for k in range(b.shape[0]))

            return job

        return bind

    def run_start(self):
        self.log.append("start")

    def run_end(self, error):
        self.log.append(error and type(error).__name__)

    def close(self):
        self.log.append("close")


if "python products" not in registered():
    register_provider(Products())
"""


def test_a_provider_in_python(page: Tab) -> None:
    found: Any = run(
        page,
        f"""
        await ort.python({IN_PYTHON!r});
        const log = () => ort.python('from pyruntime import products; found = products[:]; products.clear(); found');
        const session = await made('python products', 'wasm');
        const equal = [await same(session, 3), await same(session, 5), await same(session, 3)];
        const report = await places(session);
        await session.release();
        const calls = await log();
        const failing = await made({{ name: 'python products', jobs: 1 }}, 'wasm');
        equal.push(await same(failing, 3), await same(failing, 4));
        const {{ moved }} = await failing.explain();
        const refused = await failure(made({{ name: 'python products', job: 1 }}, 'wasm'));
        return {{ equal, report, calls, moved, refused, failed: await log() }};
        """,
    )
    assert found["equal"] == [True] * 5
    assert found["report"][0] == "MatMul python products"
    runs = ["start", ["memoryview", 3], None, "start", ["memoryview", 5], None, "start", None, "close"]
    assert found["calls"] == runs
    text = 'provider "python products" failed: RuntimeError: no device'
    assert found["moved"] == [{"node": 'MatMul "h" (opset 20)', "reason": text, "to": "wasm"}]
    assert found["failed"] == ["start", ["memoryview", 3], None, "start", ["memoryview", 4], "ExecutionError"]
    assert found["refused"].endswith('has no option "job" (did you mean jobs?)')
    assert [w for w in page.warnings if text in w] == page.warnings and len(page.warnings) == 1


# The first product stays on the device; its weight is a feed, that of the second a constant.
CHAIN = f"""<ir_version: 10, opset_import: ["" : 20]>
    g (float[N, 8] x, float[8, 16] w) => (float[N, 16] y, float[N, 16] z)
    <float[16, 16] v = {{{", ".join(str((n * 5 % 13 - 6) / 8) for n in range(256))}}}>
    {{ h = MatMul (x, w)  k = MatMul (h, v)  y = Relu (k)  z = Tanh (k) }}"""
ON_A_DEVICE = """
import itertools
import pyruntime
from pyruntime import ArrayProvider, register_provider
from pyruntime.ir.kernel import Call


class Device(ArrayProvider):
    name = "python device"
    log = pyruntime.__dict__.setdefault("device_log", [])
    buffers = {}
    numbers = itertools.count()

    def supports(self, kernel):
        return "" if isinstance(kernel, Call) and kernel.routine == "matmul" else "only products"

    def compile(self, part):
        order = [part.inputs.index(t) for t in part.kernels[0].args]

        def bind(inputs, outputs, symbols):
            (a, rows, depth), (b, _, columns), (out, *_) = (
                (self.buffers[x.handle].cast("f"), *x.shape) for x in (*[inputs[n] for n in order], outputs[0]))

            def job():
                for i in range(rows):
                    for j in range(columns):
                        out[i * columns + j] = sum(a[i * depth + k] * b[k * columns + j] for k in range(depth))

            return job

        return bind

    def allocate(self, size):
        handle = next(self.numbers)
        self.buffers[handle] = memoryview(bytearray(size))
        self.log.append("allocate")
        return handle

    def upload(self, handle, array):
        self.log.append(f"upload {array.nbytes}")
        self.buffers[handle][: array.nbytes] = array.cast("B")

    def download(self, handle, array):
        self.log.append(f"download {array.nbytes}")
        array.cast("B")[:] = self.buffers[handle][: array.nbytes]

    def free(self, handle):
        self.log.append("free")


register_provider(Device())
"""


def test_a_device_in_python(page: Tab) -> None:
    """What only the device reads is not copied; weights are uploaded once."""
    found: Any = run(
        page,
        f"""
        await ort.python({ON_A_DEVICE!r});
        const log = () => ort.python('from pyruntime import device_log as log; found = log[:]; log[:] = []; found');
        const session = await made('python device', 'wasm');
        const rows = [];
        for (const n of [3, 3, 40]) rows.push([await same(session, n), await log()]);
        await session.release();
        return {{ rows, freed: await log() }};
        """,
        CHAIN,
    )
    copies = ["upload 96", "upload 512", "download 192"]
    (a, first), (b, second), (c, third) = found["rows"]
    assert (a, b, c) == (True, True, True)
    assert [x for x in first if x != "allocate"] == ["upload 96", "upload 512", "upload 1024", "download 192"]
    assert first.count("allocate") == 5 and second == copies
    assert [x for x in third if "load " in x] == ["upload 1280", "upload 512", "download 2560"]
    assert found["freed"] == ["free"] * 5
