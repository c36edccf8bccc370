"""TextGenerator in a page: the tokens and texts of its twin in Python."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from e2e.conftest import Tab
from kit import beam_texts, families, gguf_models, zoo
from kit.counting_decoders import cases
from kit.decoder_forms import FORMS, STATES, decoder
from kit.greedy_decoding import tokens_of_form
from kit.several_chats import SHORT, TABLE, Letters
from pyruntime import TextGenerator
from pyruntime.api.text_file import read

TEXT = Path(__file__).parents[1] / "demo/text"
PROMPT = [5, 7, 9, 11, 13, 2, 3] * 4
SETTINGS: list[dict[str, Any]] = [
    {},
    {"temperature": 0.9, "top_k": 40, "top_p": 0.9, "seed": 3},
    {"temperature": 1.0, "repetition_penalty": 1.1, "seed": 4},
]
FORMS_HERE = [
    "half floats", "a cache for each layer, no names", "positions first", "one axis of positions", "with an encoder",
]  # fmt: skip
NAMES = {"top_k": "topK", "top_p": "topP", "repetition_penalty": "repetitionPenalty"}
SCRIPT = """
  const { TextGenerator } = await import('/dist/extras.mjs');
  const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  const open = (model, options, more) =>
    ort.InferenceSession.create(bytes(model), { ...TextGenerator.options(options), ...more });
  const sizes = [];
  const post = Worker.prototype.postMessage;
  Worker.prototype.postMessage = function (message, ...rest) {
    const feeds = Object.entries(message.params?.feeds ?? {}).filter(([name]) => name.startsWith('past'));
    if (message.call === 'run') sizes.push(feeds.reduce((sum, [, { data }]) => sum + (data?.byteLength ?? 0), 0));
    return post.call(this, message, ...rest);
  };
  ort.env.wasm.proxy = true;
  const session = await open(arg.model, { draftTokens: 4 });
  const draft = await open(arg.model);
  const plain = new TextGenerator(draft);
  const drafted = new TextGenerator(session, { draft });
  const results = [];
  for (const settings of arg.settings) {
    plain.reset();
    const cold = await plain.generate(arg.prompt, { maxTokens: 12, ...settings });
    sizes.length = 0;
    const warm = await plain.generate([...arg.prompt, ...cold.tokens, 4, 4], { maxTokens: 6, ...settings });
    const other = await plain.generate([...arg.prompt.slice(0, 20), 8, 9], { maxTokens: 6, ...settings });
    const sent = Math.max(...sizes); // bytes of caches
    plain.reset();
    drafted.reset();
    const faster = await drafted.generate(arg.prompt, { maxTokens: 12, ...settings });
    const tokens = [cold, warm, other, faster].map((found) => found.tokens);
    const together = await drafted.generate([arg.prompt, arg.prompt.slice(0, 3)], { maxTokens: 5, ...settings });
    tokens.push(...together.map((found) => found.tokens));
    results.push({ tokens, reused: [warm.reused, other.reused], accepted: faster.accepted, sent });
  }
  const gpu = await open(arg.decoder, {}, { executionProviders: ['webgpu'], preferredOutputLocation: arg.presents });
  const onGpu = new TextGenerator(gpu);
  const first = await onGpu.generate(arg.prompt, { maxTokens: 8 });
  const second = await onGpu.generate([...arg.prompt.slice(0, 20), 8, 9], { maxTokens: 8 });
  results.push({ tokens: [first.tokens, second.tokens], reused: [first.reused, second.reused] });
  for (const { model, states, prompts } of arg.forms) {
    const inputs = states ? { encoder_hidden_states: new ort.Tensor('float32', states, [1, 5, 32]) } : {};
    const one = await open(model);
    const writer = new TextGenerator(one, { inputs });
    const tokens = [];
    for (const prompt of prompts) tokens.push((await writer.generate(prompt, { maxTokens: 6 })).tokens);
    await one.release();
    results.push({ tokens });
  }
  const told = async (work) => work().then(() => 'no error', ({ name, message }) => `${name}: ${message}`);
  const controller = new AbortController();
  const stopped = async () => {
    for await (const piece of onGpu.stream(arg.prompt, { signal: controller.signal })) await piece;
  };
  controller.abort();
  const errors = [
    await told(() => onGpu.generate('text')),
    await told(() => onGpu.generate([1], { heat: 1 })),
    await told(() => onGpu.generate([1], { temperature: -1 })),
    await told(() => onGpu.generate([1], { maxTokens: -1 })),
    await told(() => onGpu.generate([1], { topK: 2.5 })),
    await told(() => onGpu.generate(undefined)),
    await told(stopped),
    await told(async () => new TextGenerator(draft, { draft: session })),
    await told(async () => new TextGenerator(await ort.InferenceSession.create(bytes(arg.decoder)))),
    await told(async () => new TextGenerator(draft, { inputs: { states: null } })),
  ];
  const [numbers, wrong] = [[-1, 1e308, -1e308, NaN, -Infinity, true, '1', [1], 1n, {}], []];
  const names = ['maxTokens', 'temperature', 'topK', 'topP', 'repetitionPenalty', 'numBeams', 'lengthPenalty', 'seed'];
  const settings = names.flatMap((name) => numbers.map((value) => ({ [name]: value })));
  settings.push({ repetitionPenalty: 1e-320 }, { topK: 2 ** 40 }, { seed: 2 ** 60 }, { earlyStopping: 1 });
  settings.push({ stop: 1 }, { format: [] }, { format: 'x' });
  const legal = ['seed -1', 'lengthPenalty -1'];
  const prompts = [[-1], [2 ** 31], [1.5], ['1', 2], [null], [true], [NaN], [[]], [[5], []], { role: 'user' }, 5];
  const calls = [...settings.map((how) => [[5, 7], { maxTokens: 2, ...how }])];
  calls.push(...prompts.map((prompt) => [prompt, {}]));
  for (const [prompt, how] of calls) {
    const text = await told(() => onGpu.generate(prompt, how));
    const [name, value] = Object.entries(how).at(-1) ?? [];
    if (text.startsWith('InvalidInput') || legal.includes(`${name} ${value}`)) continue;
    wrong.push([prompt, String(value), name, text]);
  }
  for (const more of [{ stopTokens: 'a' }, { stopTokens: [-1] }, { draftTokens: 1e9 }, { lookup: true }]) {
    const text = await told(async () => new TextGenerator(draft, more));
    if (!text.startsWith('InvalidInput')) wrong.push([more, text]);
  }
  const again = await onGpu.generate(arg.prompt, { maxTokens: 8 });
  for (const one of [session, draft, gpu]) await one.release();
  Worker.prototype.postMessage = post;
  return { results, errors, wrong, again: again.tokens };
"""


def test_tokens_are_those_of_python(tab: Callable[..., Tab]) -> None:
    page = tab()  # its own, because the GPU of a page stays in use
    page.open("/esm.html")
    model, smaller = zoo.materialize("llama_mini"), TEXT / "decoder.onnx"
    presents = {f"present.{n}.{part}": "gpu-buffer" for n in range(2) for part in ("key", "value")}
    models = {"model": model, "decoder": smaller}
    prompts = [PROMPT[:8], [*PROMPT[:8], 6, 6], PROMPT[:3]]
    forms = [
        {
            "model": base64.b64encode(decoder(FORMS[form]).SerializeToString()).decode(), "prompts": prompts,
            "states": STATES.ravel().tolist() if FORMS[form].crosses else None,
        }
        for form in FORMS_HERE
    ]  # fmt: skip
    arg = {
        "forms": forms,
        "prompt": PROMPT, "presents": presents,
        "settings": [{NAMES.get(name, name): value for name, value in how.items()} for how in SETTINGS],
        **{name: base64.b64encode(path.read_bytes()).decode() for name, path in models.items()},
    }  # fmt: skip
    found: Any = page.run(SCRIPT, arg)
    writer = TextGenerator(model)
    for how, result in zip(SETTINGS, found["results"], strict=False):
        first = writer.generate(PROMPT, max_tokens=12, **how).tokens
        second = writer.generate([*PROMPT, *first, 4, 4], max_tokens=6, **how).tokens
        third = writer.generate([*PROMPT[:20], 8, 9], max_tokens=6, **how).tokens
        together = [out.tokens for out in writer.generate([PROMPT, PROMPT[:3]], max_tokens=5, **how)]
        assert result["tokens"] == [first, second, third, first, *together]
        assert result["reused"] == [len(PROMPT) + 11, 20] and result["accepted"] >= 8 and result["sent"] == 0
    small = TextGenerator(smaller)
    tokens = [small.generate(prompt, max_tokens=8).tokens for prompt in (PROMPT, [*PROMPT[:20], 8, 9])]
    results = found["results"][len(SETTINGS) :]
    assert results[0] == {"tokens": tokens, "reused": [0, 20]} and found["again"] == tokens[0]
    for form, result in zip(FORMS_HERE, results[1:], strict=True):
        assert result["tokens"] == [tokens_of_form(form, tuple(prompt), 6) for prompt in prompts], form
    parts = [
        "InvalidInput: a text needs a tokenizer", 'generate has no option "heat"', "temperature is -1",
        "maxTokens is -1", "topK is 2.5", "the prompt is undefined",
        "AbortError", "TextGenerator.options({ draftTokens: 4 })", "its session samples no positions",
        "the model has no input states",
    ]  # fmt: skip
    for part, text in zip(parts, found["errors"], strict=True):
        assert part in text
    assert found["wrong"] == []


SEVERAL = """
  const { TextGenerator } = await import('/dist/extras.mjs');
  const model = Uint8Array.from(atob(arg.model), (c) => c.charCodeAt(0));
  ort.env.wasm.proxy = true;
  const letters = {
    encode: (text) => ({ ids: [...text].map((letter) => letter.charCodeAt(0) - 0x4e00) }),
    decode: (tokens) => String.fromCharCode(...tokens.map((token) => 0x4e00 + token)),
  };
  const results = {};
  for (const [provider, cases] of Object.entries(arg.cases)) {
    const location = provider === 'webgpu' && { preferredOutputLocation: 'gpu-buffer' };
    const options = { ...TextGenerator.options(), executionProviders: [provider], ...location };
    const session = await ort.InferenceSession.create(model, options);
    const writer = new TextGenerator(session, { tokenizer: letters, stopTokens: [] });
    const run = writer.batch.runShared.bind(writer.batch);
    let rows = [];
    writer.batch.runShared = async (...args) => {
      const found = await run(...args);
      rows.push(found.length);
      return found;
    };
    for (const [name, plan] of Object.entries(cases)) {
      rows = [];
      const texts = plan.map(() => '');
      const streams = new Map();
      for (let turn = 0; turn < 20; turn++) {
        for (const [n, { prompt, settings, begin }] of plan.entries()) {
          if (turn === begin) streams.set(n, writer.stream(prompt, { maxTokens: 10, ...settings }));
        }
        await Promise.all([...streams].map(async ([n, stream]) => {
          const { done, value } = await stream.next();
          texts[n] += done ? '' : value;
          if (done || texts[n].length === plan[n].stop) streams.delete(n), await stream.return();
        }));
      }
      results[`${name} ${provider}`] = { texts, rows };
    }
    const plan = cases['short and long'];
    const controller = new AbortController();
    const stopped = { maxTokens: 60, signal: controller.signal };
    rows = [];
    const all = Promise.allSettled([
      writer.generate(plan[0].prompt, { maxTokens: 10 }), writer.generate(plan[1].prompt, stopped),
      writer.generate([1e6], { maxTokens: 2 }), writer.generate([plan[1].prompt, plan[0].prompt], { maxTokens: 10 }),
    ]);
    while (!rows.length) await new Promise((resolve) => setTimeout(resolve, 1));
    const resetting = writer.reset(); // after the run of now
    controller.abort();
    const told = await all;
    results[provider] = told.map(({ value, reason }) => (value ? [value].flat().map(({ text }) => text) : `${reason}`));
    await resetting;
    results[`${provider} alone`] = (await writer.generate(plan[0].prompt, { maxTokens: 10 })).text;
    const older = writer.stream(plan[1].prompt, { maxTokens: 6 });
    await older.next();
    const { tokens } = await writer.generate(plan[0].prompt, { maxTokens: 3 });
    for await (const piece of older) void piece;
    const file = new Uint8Array(await writer.save());
    results[`${provider} saved`] = { tokens, file: btoa(String.fromCharCode(...file)) };
    const failed = [];
    rows = [];
    writer.batch.runShared = async (...args) => { // the second run fails: its caches are where the first one left them
      if (!rows.length || failed.length) return rows.push(2), run(...args);
      failed.push(...args[0].pasts.values());
      results[`${provider} held`] = failed.filter(({ location }) => location === 'gpu-buffer').length;
      throw new Error('a fault');
    };
    const both = await writer.generate(plan.map(({ prompt }) => prompt), { maxTokens: 10 });
    results[`${provider} after faults`] = both.map(({ text }) => text);
    results[`${provider} left`] = failed.filter(({ location }) => location === 'gpu-buffer').length;
    await session.release();
  }
  return results;
"""


def test_several_chats(tab: Callable[..., Tab]) -> None:
    """Each text equals its own alone in Python: texts that join, stop, fail, are sampled in several ways."""
    page, path = tab(), zoo.materialize("llama_mini")
    page.open("/esm.html")

    def named(plan: list[Any]) -> list[Any]:
        return [
            {
                "prompt": prompt, "begin": begin, "stop": stop,
                "settings": {NAMES.get(name, name): value for name, value in settings.items()},
            }
            for prompt, settings, begin, stop in plan
        ]  # fmt: skip

    cases = {"wasm": [*TABLE], "webgpu": ["short and long", "the longest stops, another joins", "seeds"]}
    plans = {where: {name: named(TABLE[name]) for name in names} for where, names in cases.items()}
    found: Any = page.run(SEVERAL, {"model": base64.b64encode(path.read_bytes()).decode(), "cases": plans})
    writer = TextGenerator(path, Letters(), stop_tokens=[])

    def alone(name: str) -> list[str]:
        texts = [(writer.generate(prompt, max_tokens=10, **how).text, stop) for prompt, how, _, stop in TABLE[name]]
        return [text[: stop or None] for text, stop in texts]

    short, long = alone("short and long")
    for where, names in cases.items():
        for name in names:
            result = found[f"{name} {where}"]
            assert result["texts"] == alone(name), (name, where)
            assert max(result["rows"], default=1) >= min(len(TABLE[name]), 2), (name, where)
        assert found[where][0] == [short] and found[where][3] == [long, short] and found[f"{where} alone"] == short
        saved = found[f"{where} saved"]
        file, _ = read(base64.b64decode(saved["file"]))
        own = [*file.prompt, *saved["tokens"]]
        assert file.prompt == SHORT and file.decoders[0].cached == own[: len(file.decoders[0].cached)]
        assert found[f"{where} after faults"] == [short, long] and found[f"{where} left"] == 0
        assert (found[f"{where} held"] > 0) == (where == "webgpu")
        assert "AbortError" in found[where][1] and "does the tokenizer belong to this model" in found[where][2]
    writer.release()


CACHES = """
  const { TextGenerator } = await import('/dist/extras.mjs');
  ort.env.wasm.proxy = true;
  const results = {};
  for (const [name, model] of Object.entries(arg.models)) {
    const bytes = Uint8Array.from(atob(model), (c) => c.charCodeAt(0));
    const session = await ort.InferenceSession.create(bytes, TextGenerator.options({ draftTokens: 2 }));
    const isOneByOne = name.startsWith('one token') || name === 'states alone';
    const writer = new TextGenerator(session, isOneByOne ? {} : { lookup: 1, draftTokens: 2 });
    const first = (await writer.generate(arg.prompt, { maxTokens: 4 })).tokens;
    results[name] = [first];
    for (const prompt of [arg.prompt, [...arg.prompt, ...first, 3], [...arg.prompt, 8]]) {
      results[name].push((await writer.generate(prompt, { maxTokens: 4 })).tokens);
    }
    await session.release();
  }
  const opened = (text, options) =>
    ort.InferenceSession.create(Uint8Array.from(atob(text), (c) => c.charCodeAt(0)), options);
  for (const [name, { model, encoder, freeDimensionOverrides }] of Object.entries(arg.families)) {
    const session = await opened(model, { ...TextGenerator.options({ draftTokens: 4 }), freeDimensionOverrides });
    const made = encoder ? await opened(encoder, {}) : undefined;
    const writer = new TextGenerator(session, { lookup: 2, encoder: made });
    const ids = BigInt64Array.from(arg.source, BigInt);
    const input_ids = new ort.Tensor('int64', ids, [1, ids.length]);
    const attention_mask = new ort.Tensor('int64', ids.map(() => 1n), [1, ids.length]);
    const inputs = encoder ? { input_ids, attention_mask } : undefined;
    const missing = encoder ? await writer.generate(arg.repeated, {}).catch(({ message }) => message) : '';
    const first = await writer.generate(arg.repeated, { maxTokens: 12, inputs });
    const second = await writer.generate([...arg.repeated, ...first.tokens.slice(0, 5), 3], { maxTokens: 12 });
    results[name] = { tokens: [first.tokens, second.tokens], drafted: first.drafted, missing };
    if (encoder) { // texts that wait keep their encoder's states and mask
      const masked = new ort.Tensor('int64', ids.map((_, n) => BigInt(n < 1)), [1, ids.length]);
      const texts = [inputs, { input_ids, attention_mask: masked }];
      const generate = async (one) => (await writer.generate(arg.repeated, { maxTokens: 10, inputs: one })).tokens;
      results.own = { alone: [await generate(texts[0]), await generate(texts[1])] };
      results.own.together = await Promise.all(texts.map(generate));
    }
    await session.release();
    await made?.release();
  }
  return results;
"""


def test_caches_of_all_kinds(tab: Callable[..., Tab]) -> None:
    """States, windows, names and element types, against the rule that the tokens follow; published families."""
    page, prompt = tab(), [5, 7, 9, 4]
    page.open("/esm.html")
    known = cases()
    models = {name: base64.b64encode(case.model.SerializeToString()).decode() for name, case in known.items()}
    kinds = {
        name: {"model": base64.b64encode(families.model(name)).decode(), "freeDimensionOverrides": {}}
        for name in ("lfm2", "qwen35", "gptoss", "t5")
    }
    kinds["t5"]["encoder"] = base64.b64encode(families.model("t5.encoder")).decode()
    kinds["gptoss"]["freeDimensionOverrides"] = {
        "past_sliding_length": families.WINDOW,
        "kv_cache_dim": families.HEADS["gptoss"],
    }
    repeated = [*range(5, 20), 33, *range(5, 11)]
    source = families.source("t5")["input_ids"][0].tolist()
    arg = {"models": models, "prompt": prompt, "families": kinds, "repeated": repeated, "source": source}
    found: Any = page.run(CACHES, arg)
    own = found["own"]
    assert own["alone"][0] != own["alone"][1] and own["together"] == own["alone"]
    for name in kinds:
        result, plain = found[name], families.Plain(name)
        second = [*repeated, *result["tokens"][0][:5], 3]
        assert result["tokens"] == [plain.tokens(text, 12) for text in (repeated, second)], name
        assert result["drafted"] > 0
        assert ("the model needs encoder_attention_mask" in result["missing"]) == (name == "t5")
    for name, case in known.items():
        first = case.expected(prompt, 4)
        prompts = [prompt, prompt, [*prompt, *first, 3], [*prompt, 8]]
        assert found[name] == [case.expected(text, 4) for text in prompts], name


CHAT = """
  const { TextGenerator } = await import('/dist/extras.mjs');
  const data = Uint8Array.from(atob(arg.model), (c) => c.charCodeAt(0));
  const session = await ort.InferenceSession.create(data, TextGenerator.options());
  const create = (tokenizer, chatTemplate) => TextGenerator.create(session, { tokenizer, chatTemplate });
  const file = (text, name) => new File([text], name);
  const results = { texts: [] };
  for (const source of [URL.createObjectURL(new Blob([data])), file(data, 'm.gguf'), data, data.buffer]) {
    results.texts.push(await (await create(source)).applyChatTemplate(arg.messages, { tokenize: false }));
  }
  const writer = await create(data);
  results.tokens = await writer.applyChatTemplate(arg.messages);
  results.written = (await writer.generate(arg.messages, { maxTokens: 6 })).tokens;
  const together = await writer.generate([arg.messages, results.tokens], { maxTokens: 6 });
  results.together = together.map((found) => found.tokens);
  results.pieces = [];
  for await (const piece of writer.stream(arg.messages, { maxTokens: 6 })) results.pieces.push(piece);
  const template = '{{ bos_token }}{{ mood }}';
  const config = JSON.stringify({ chat_template: [{ name: 'default', template }], bos_token: '<b>' });
  const own = await create(data, file(config, 'tokenizer_config.json'));
  results.texts.push(await own.applyChatTemplate(arg.messages, { tokenize: false, variables: { mood: '!' } }));
  const given = new TextGenerator(session, { tokenizer: writer.tokenizer, chatTemplate: '{{ messages | length }}' });
  results.texts.push(await given.applyChatTemplate(arg.messages, { tokenize: false }));
  const told = async (work) => work.then(() => 'no error', ({ name, message }) => `${name}: ${message}`);
  const { tokenizer } = writer;
  const bare = new TextGenerator(session, { tokenizer });
  const picky = new TextGenerator(session, { tokenizer, chatTemplate: "{{ raise_exception('no') }}" });
  results.errors = [
    await told(bare.generate(arg.messages)), await told(bare.applyChatTemplate([{ content: 'a' }])),
    await told(picky.generate(arg.messages)), await told(create(file('{{', 'chat_template.jinja'))),
    await told(create(data, file('{}', 'tokenizer_config.json'))),
    await told(create(data.slice(0, 400))),
    await told(create('/none.gguf')), await told(bare.generate(new Array(128).fill(3))),
  ];
  results.full = await new TextGenerator(session, { stopTokens: [] }).generate(Array(120).fill(3), { maxTokens: 9 });
  await session.release();
  return results;
"""


def test_chat_of_a_gguf_file(tab: Callable[..., Tab], tmp_path: Path) -> None:
    """The tokenizer and the chat template are the file's, as in Python."""
    path = tmp_path / "model.gguf"
    template = "{{ bos_token }}{% for m in messages %}{{ m.content }} {% endfor %}"
    gguf_models.write(path, "llama", template=template)
    writer, messages = TextGenerator(path), [{"role": "user", "content": "a program"}, {"role": "user", "content": "b"}]
    page = tab()
    page.open("/esm.html")
    found: Any = page.run(CHAT, {"model": base64.b64encode(path.read_bytes()).decode(), "messages": messages})
    page.forgive("404 (File not found)")
    assert found["texts"] == ["<s>a program b "] * 4 + ["<b>!", "2"]
    want = writer.generate(messages, max_tokens=6)
    assert found["tokens"] == writer.apply_chat_template(messages)
    assert found["written"] == want.tokens and found["together"] == [want.tokens] * 2
    assert "".join(found["pieces"]) == want.text and len(found["full"]["tokens"]) == 8
    parts = [
        "InvalidInput: this model has no chat template", "InvalidInput: messages are expected",
        "InvalidInput: the chat template refuses these messages: no", "InvalidInput: there is no tokenizer in",
        "InvalidInput: there is no chat template in", "its metadata reach beyond its end", "/none.gguf: HTTP 404",
        "the prompt has 128 tokens, of the 128 that",
    ]  # fmt: skip
    for part, text in zip(parts, found["errors"], strict=True):
        assert part in text


BEAMS = """
  const { TextGenerator } = await import('/dist/extras.mjs');
  const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  const first = await ort.InferenceSession.create(bytes(arg.models[0]), TextGenerator.options());
  const { tokenizer } = await TextGenerator.create(first, { tokenizer: bytes(arg.tokenizer) });
  await first.release();
  const found = {};
  for (const provider of ['wasm', 'webgpu']) {
    const open = (model) =>
      ort.InferenceSession.create(bytes(model), { ...TextGenerator.options(), executionProviders: [provider] });
    const [session, crossing] = [await open(arg.models[0]), await open(arg.models[1])];
    const inputs = { encoder_hidden_states: new ort.Tensor('float32', arg.states, [1, 5, 32]) };
    const texts = [];
    for (const { prompt, stops, crosses, ...how } of provider === 'wasm' ? arg.cases : arg.cases.slice(-12)) {
      const options = { stopTokens: stops, tokenizer };
      const writer = new TextGenerator(crosses ? crossing : session, { ...options, ...crosses && { inputs } });
      texts.push((await writer.generate(prompt, how)).tokens);
    }
    found[provider] = texts;
    await crossing.release();
    const writer = new TextGenerator(session, { stopTokens: [] });
    const [{ prompt }] = arg.cases;
    const plain = (await writer.generate(prompt, { maxTokens: 20 })).tokens;
    const alone = (await writer.generate(prompt, { numBeams: 3, maxTokens: 9 })).tokens;
    const turn = await writer.generate([...prompt, ...alone, 4], { maxTokens: 3 });
    const two = writer.generate([prompt, prompt], { numBeams: 3, maxTokens: 9 });
    const together = (await Promise.all([writer.generate(prompt, { maxTokens: 20 }), two])).flat();
    found[`${provider} meanwhile`] = `${together.map(({ tokens }) => tokens)}` === `${[plain, alone, alone]}`;
    found[`${provider} reused`] = turn.reused;
    const told = async (work) => work().then(() => 'no error', ({ name, message }) => `${name}: ${message}`);
    await writer.generate(prompt, { numBeams: 2, maxTokens: 2 });
    found.errors = [
      await told(() => writer.stream(prompt, { numBeams: 2 }).next()),
      await told(() => writer.generate(prompt, { numBeams: 2, topK: 3 })),
      await told(() => writer.generate(prompt, { earlyStopping: 1 })),
      await told(() => writer.generate(prompt, { numBeams: 0 })), await told(() => writer.save()),
    ];
    await session.release();
  }
  return found;
"""


def test_beams_are_those_of_transformers(tab: Callable[..., Tab]) -> None:
    page = tab()
    page.open("/esm.html")
    every = json.loads(beam_texts.PATH.read_text())
    cases = [case for case in every if "regex" not in case or case["max_tokens"] > 3][
        ::3
    ]  # tests/test_beams.py: cut ones
    own = {
        "num_beams": "numBeams", "max_tokens": "maxTokens", "length_penalty": "lengthPenalty", "stop": "stop",
        "early_stopping": "earlyStopping", "prompt": "prompt", "stops": "stops",
    }  # fmt: skip
    arg = {
        "models": [
            base64.b64encode(decoder(FORMS[form]).SerializeToString()).decode()
            for form in (beam_texts.FORM, beam_texts.CROSSING)
        ],
        "cases": [
            {new: case[name] for name, new in own.items() if name in case}
            | {"crosses": "form" in case}
            | ({"format": {"regex": case["regex"]}} if "regex" in case else {})
            for case in cases
        ],
        "states": STATES.ravel().tolist(),
        "tokenizer": base64.b64encode(beam_texts.tokenizer().to_str().encode()).decode(),
    }
    found: Any = page.run(BEAMS, arg)
    texts = [case["tokens"] for case in cases]
    assert found["wasm"] == texts and found["webgpu"] == texts[-12:]
    for provider in ("wasm", "webgpu"):
        assert found[f"{provider} meanwhile"] and found[f"{provider} reused"] >= len(cases[0]["prompt"])
    parts = ["call generate", "no temperature, top_k", "earlyStopping is 1", "numBeams is 0", "there is no single text"]
    for part, text in zip(parts, found["errors"], strict=True):
        assert part in text and "InvalidInput" in text
