"""Options of onnxruntime-web in pages: what acts, what is refused, what is told of; traces and messages."""

from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np
import onnx
import pytest

from e2e.conftest import Tab
from kit.chain import chain

TOLD = """
  const told = (promise) => promise.then(() => 'taken', (e) => `${e.type}: ${e.message}`);
  const open = (options) => ort.InferenceSession.create(Uint8Array.from(arg), options);
  const x = new ort.Tensor('float32', Float32Array.of(1, 2, 3, 4, 5, 6), [2, 3]);
"""


def messages(tab: Tab) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    tab.page.on("console", lambda message: found.append((message.type, message.text)))
    return found


def test_what_is_refused(page: Tab) -> None:
    found = page.run(
        f"""{TOLD}
        const out = [
          await told(open({{ executionProviders: 'wasm' }})),
          await told(open({{ executionProviders: ['webnn'] }})),
          await told(open({{ optimizedModelFilePath: 'o.onnx' }})),
          await told(open({{ preferredOutputLocation: 'ml-tensor' }})),
          await told(open({{ preferredOutputLocation: 'gpu-buffer' }})),
        ];
        const session = await open({{}});
        const texture = ort.Tensor.fromTexture({{}}, {{ width: 1, height: 1 }});
        const gone = new ort.Tensor('float32', [1, 2], [1, 2]);
        gone.dispose();
        for (const [feeds, ...rest] of [
          [{{ x }}, ['y'], 3], [{{ x }}, ['y'], []], [{{ x }}, x], [{{ x }}, {{ y: 5 }}],
          [{{ x }}, {{ y: texture }}], [{{ x: texture }}], [{{ x: gone }}],
        ]) out.push(await told(session.run(feeds, ...rest)));
        await session.release();
        await session.release(); // does nothing
        out.push(await told(session.run({{ x }})));
        return out;
        """,
        list(chain(1)),
    )
    expected = [
        "executionProviders cannot be 'wasm'", "none of the executionProviders (",
        "optimizedModelFilePath: a page cannot write files", "preferredOutputLocation cannot be 'ml-tensor'",
        "the session has no GPU", *2 * ["run options must be an object"], "fetches must be names or an object",
        'the output "y" can be fetched into a tensor or null', 'the tensor to fill for "y" lies in a texture',
        'input "x" lies in a texture', 'input "x" was disposed of', "the session was released",
    ]  # fmt: skip
    assert isinstance(found, list)
    assert len(found) == len(expected)
    for text, part in zip(found, expected, strict=True):
        assert text.startswith(("InvalidInput: ", "SessionFailed: ")) and part in text


def test_a_trace(page: Tab) -> None:
    """Events as Chrome's trace viewer has them: in microseconds, kernels within their run."""
    found = page.run(
        f"""{TOLD}
        const printed = [];
        const {{ log }} = console;
        console.log = (text) => printed.push(text);
        const session = await open({{ enableProfiling: true }});
        for (let n = 0; n < 5; n++) {{
          const {{ y }} = await session.run({{ x }});
          if (y.data.join() !== '1,2,3,7,11,15') throw new Error(y.data.join());
        }}
        const first = session.endProfiling();
        const none = session.endProfiling();
        await session.run({{ x }});
        session.startProfiling();
        await session.run({{ x }});
        const second = session.endProfiling();
        console.log = log;
        await session.release();
        return {{ first, second, none, printed }};
        """,
        list(chain(3)),
    )
    assert isinstance(found, dict)
    assert found["none"] == "" and found["printed"] == [found["first"], found["second"]]
    events = json.loads(found["first"])
    names = [event["name"] for event in events if event["cat"] == "Session"]
    assert names == ["session_initialization", *5 * ["model_run"]]
    kernels = [event for event in events if event["cat"] == "Node"]
    assert len(kernels) == 15 and all(event["args"]["op_name"] == "CumSum" for event in kernels)
    assert all(event["ph"] == "X" and event["ts"] >= 0 and event["dur"] >= 0 for event in events)
    runs = [event for event in events if event["name"] == "model_run"]
    for number, run in enumerate(runs):
        inside = kernels[3 * number : 3 * number + 3]
        assert all(run["ts"] <= k["ts"] and k["ts"] + k["dur"] <= run["ts"] + run["dur"] + 100 for k in inside)
    assert len(json.loads(found["second"])) == 4


@pytest.mark.parametrize(("severity", "count"), [(2, 1), (3, 0)])
def test_severity_of_a_session(tab: Callable[..., Tab], severity: int, count: int) -> None:
    """Warnings of the page, of Python in the worker and of runs go by the session's severity."""
    made = tab()
    said = messages(made)
    made.open("/esm.html")
    made.run(
        """
        const options = { logSeverityLevel: arg, freeDimensionOverrides: { nothing: 3 }, executionMode: 'parallel' };
        const session = await ort.InferenceSession.create('/models/joined.onnx', options);
        const vector = (...data) => new ort.Tensor('float32', data, [data.length]);
        await session.run({ a: vector(1, 2), b: vector(3, 4, 5) });
        """,
        severity,
    )
    texts = [text for kind, text in said if kind == "warning"]
    for part in ('"executionMode" has no effect', "nothing", 'dims named "n" have different sizes'):
        assert len([text for text in texts if part in text and text.startswith("pyruntime: ")]) == count, texts


def test_messages_by_level(tab: Callable[..., Tab]) -> None:
    made = tab()
    said = messages(made)
    made.open("/esm.html")
    made.run(
        f"""{TOLD}
        const session = await open({{ logSeverityLevel: 1, logId: 'chained' }});
        await session.run({{ x }});
        await session.run({{ x }}, {{ logSeverityLevel: 0, tag: 'one' }});
        ort.env.logLevel = 'error';
        await open({{ unknown: 1 }});
        """,
        list(chain(1)),
    )
    ours = [(kind, text.partition(":")[0]) for kind, text in said if text.startswith("pyruntime")]
    assert ours == [("info", "pyruntime chained"), ("debug", "pyruntime chained one")]


def test_subnormal_weights(page: Tab) -> None:
    """They become zeros when they are loaded, in linear memory and on the GPU; `keepSubnormals` keeps them."""
    tiny = np.finfo(np.float32).tiny
    w = np.array([np.nextafter(tiny, np.float32(0)), tiny, -tiny / 2, 0.5], np.float32)
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 21]> g (float[1, 1] x) => (float[1, 4] y) { y = MatMul (x, w) }'
    )
    model.graph.initializer.append(onnx.numpy_helper.from_array(w.reshape(1, 4), "w"))
    found = page.run(
        """
        const x = new ort.Tensor('float32', [2 ** 100], [1, 1]);
        const results = {};
        for (const [name, options] of Object.entries({
          wasm: { executionProviders: ['wasm'] },
          kept: { executionProviders: ['wasm'], keepSubnormals: true },
          webgpu: { executionProviders: [{ name: 'webgpu', allowSoftware: true }] },
        })) {
          const session = await ort.InferenceSession.create(Uint8Array.from(arg), options);
          results[name] = [...(await session.run({ x })).y.data];
          await session.release();
        }
        return results;
        """,
        list(model.SerializeToString()),
    )
    flushed = (np.where(abs(w) < tiny, 0, w) * np.float32(2.0**100)).tolist()
    assert found == {"wasm": flushed, "kept": (w * np.float32(2.0**100)).tolist(), "webgpu": flushed}
