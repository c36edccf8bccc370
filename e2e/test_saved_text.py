"""Texts of a page that are saved with their caches, and go on after a reload, in another tab, or in Python."""

from __future__ import annotations

import base64
from contextlib import suppress
from pathlib import Path
from typing import Any

from playwright.sync_api import Error

from e2e.conftest import Profile, Tab
from kit import zoo
from pyruntime import TextGenerator

DECODER = Path(__file__).parents[1] / "demo/text/decoder.onnx"
PROMPT = [5, 7, 9, 11, 13, 2, 3] * 4
SAMPLED = {"temperature": 0.9, "top_k": 40, "seed": 3}
START = """
  const { TextGenerator } = await import('/dist/extras.mjs');
  const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  const text = (bytes) => btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join(''));
  ort.env.wasm.proxy = true;
  const open = (model, more) => ort.InferenceSession.create(bytes(model), { ...TextGenerator.options(), ...more });
  const folder = await navigator.storage.getDirectory();
  const tokenizer = { encode: () => arg.prompt, decode: (tokens) => tokens.map((token) => `${token} `).join('') };
  const settings = { maxTokens: 24, temperature: 0.9, topK: 40, seed: 3 };
  const store = async (name, data) => {
    const file = await (await folder.getFileHandle(name, { create: true })).createWritable();
    await file.write(data);
    await file.close();
  };
  const stored = async (name) => (await folder.getFileHandle(name)).getFile();
"""
WRITE = """
  const onGpu = { executionProviders: ['webgpu'], preferredOutputLocation: arg.presents };
  for (const [name, more] of [['cpu', {}], ['gpu', onGpu]]) {
    const writer = new TextGenerator(await open(arg.decoder, more), { tokenizer });
    let pieces = 0;
    for await (const piece of writer.stream('', settings)) if (piece && ++pieces === 6) break;
    await store(name, await writer.save());
  }
  return text(new Uint8Array(await (await stored('gpu')).arrayBuffer()));
"""
READ = """
  const writer = new TextGenerator(await open(arg.decoder), { tokenizer });
  const found = [];
  const [cpu, gpu] = [await stored('cpu'), await stored('gpu')];
  for (const file of [cpu, gpu, bytes(arg.file), await cpu.arrayBuffer()]) {
    const begun = await writer.restore(file);
    const stream = writer.resume();
    let rest = '';
    for (let next = await stream.next(); ; next = await stream.next()) {
      if (next.done) found.push([next.value.tokens, next.value.reused, begun.text + rest === next.value.text]);
      if (next.done) break;
      rest += next.value;
    }
  }
  const other = new TextGenerator(await open(arg.model));
  const told = async (work) => work()
    .then(() => 'no error', (error) => `${error instanceof ort.InvalidInput} ${error.message}`);
  const file = new Uint8Array(await (await stored('cpu')).arrayBuffer());
  const changed = (at) => file.map((byte, n) => (n === at ? 2 : byte));
  const errors = [
    await told(() => other.restore(file)), await told(() => other.save()),
    await told(async () => (await other.resume()).next()),
    await told(() => writer.restore(file.subarray(0, file.length - 1))), await told(() => writer.restore(changed(900))),
    await told(() => writer.restore(changed(4))), await told(() => writer.restore(null)),
  ];
  const twice = (await Promise.all([writer.save(), writer.save()])).map(({ byteLength }) => byteLength);
  const { tokens } = await other.generate(arg.long, { maxTokens: 8 });
  const saved = await other.save();
  other.reset();
  const start = performance.now();
  await other.restore(saved);
  const milliseconds = performance.now() - start;
  const { reused } = await other.generate([...arg.long, ...tokens], { maxTokens: 1 });
  return { twice, found, errors, milliseconds, reused };
"""
KILLED = """
  const writer = new TextGenerator(await open(arg.decoder), { tokenizer });
  let pieces = 0;
  for await (const piece of writer.stream('', { ...settings, maxTokens: 4000, stop: 'never' })) {
    if (piece && ++pieces % 5 === 0) await store('killed', await writer.save());
    window.pieces = pieces;
  }
"""
GOES_ON = """
  const writer = new TextGenerator(await open(arg.decoder), { tokenizer });
  const begun = await writer.restore(await stored('killed'));
  const count = Math.max(0, 40 - begun.tokens.length);
  const stream = writer.resume({ maxTokens: count });
  for (;;) {
    const { done, value } = await stream.next();
    if (done) return [begun.tokens.length, value.tokens.slice(0, 40)];
  }
"""


def encoded(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()


def test_a_text_goes_on_after_a_reload(profile: Profile) -> None:
    """With caches on the CPU and on the GPU, and in Python; 2,000 tokens are ready in a second."""
    tab = profile.tab()
    writer, other = (TextGenerator(DECODER, DECODER.with_name("tokenizer.json")) for _ in range(2))
    whole = writer.generate(PROMPT, max_tokens=24, **SAMPLED).tokens
    presents = {f"present.{n}.{part}": "gpu-buffer" for n in range(2) for part in ("key", "value")}
    arg = {"prompt": PROMPT, "decoder": encoded(DECODER), "presents": presents}
    data = base64.b64decode(str(tab.run(START + WRITE, arg)))
    other.restore(data)
    assert other.last.tokens == whole[: len(other.last.tokens)] and 5 < len(other.last.tokens) < 9
    list(other.resume())
    assert other.last.tokens == whole and other.last.reused >= len(PROMPT) + 5
    tab.page.reload()
    stream = writer.stream(PROMPT, max_tokens=24, **SAMPLED)
    for _ in range(6):
        next(stream)
    arg |= {
        "file": base64.b64encode(writer.save()).decode(),
        "model": encoded(zoo.materialize("llama_mini")),
        "long": PROMPT * 71,
    }
    found: Any = tab.run(START + READ, arg)
    assert [(tokens, fits) for tokens, _, fits in found["found"]] == [(whole, True)] * 4
    assert all(reused >= len(PROMPT) + 5 for _, reused, _ in found["found"])
    parts = [
        'another model: "decoder" with 4 caches such as past_key_values.0.key (1, 4, past, 16); this is "main_graph"',
        "there is no single text", "there is no single text", "its checksum does not match",
        "its checksum does not match", "format 2, this version reads 1", "this is no saved text",
    ]  # fmt: skip
    for part, error in zip(parts, found["errors"], strict=True):
        assert part in error and error.startswith("true"), error
    assert found["twice"][0] == found["twice"][1] > 1000
    assert found["reused"] == len(PROMPT) * 71 + 7 and found["milliseconds"] < 1000


def test_a_text_goes_on_after_its_tab_was_killed(profile: Profile) -> None:
    tab: Tab = profile.tab()
    arg = {"prompt": PROMPT, "decoder": encoded(DECODER)}
    tab.page.evaluate(f"(arg) => {{ (async () => {{ {START + KILLED} }})(); }}", arg)
    tab.page.wait_for_function("window.pieces > 11")
    crashed: list[Any] = []
    tab.page.on("crash", lambda page: crashed.append(page))
    with suppress(Error):  # the page cannot answer
        tab.page.goto("chrome://crash")
    begun, tokens = profile.tab().run(START + GOES_ON, arg)  # type: ignore[misc]
    assert crashed
    assert begun >= 10
    assert tokens == TextGenerator(DECODER).generate(PROMPT, max_tokens=40, **SAMPLED).tokens
