"""Texts of a page that are bound to a format: those of Python for the same tokens, and values that fit a schema."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import tokenizers

from e2e.conftest import Tab
from kit import zoo
from kit.page_formats import SCHEMA, SCHEMAS
from pyruntime import TextGenerator

TEXT = Path(__file__).parents[1] / "demo/text"
FORMATS: list[dict[str, Any]] = [
    {"regex": "[0-9]{3}-[a-z]{2,5}é?!"},
    {"grammar": 'root ::= "yes" | "no" " "+ word\nword ::= [a-z]{3,} ("(" word ")")?'},
]
HOW: list[dict[str, Any]] = [{}, {"temperature": 1.5, "seed": 3}, {"temperature": 1.0, "seed": 4, "top_k": 5}]
SCRIPT = """
  const { TextGenerator } = await import('/dist/extras.mjs');
  const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  const session = await ort.InferenceSession.create(bytes(arg.model), TextGenerator.options({ draftTokens: 4 }));
  const create = (options) => TextGenerator.create(session, { tokenizer: bytes(arg.tokenizer), ...options });
  const loaded = () => performance.getEntriesByType('resource').some(({ name }) => name.endsWith('/formats.mjs'));
  const writer = await create();
  const drafting = await create({ lookup: 1 });
  const results = { before: loaded(), same: [], values: [] };
  for (const format of arg.formats) {
    for (const how of arg.how) {
      const { tokens, reason } = await writer.generate('The', { maxTokens: 40, format, ...how });
      const drafted = await drafting.generate('The', { maxTokens: 40, format, ...how });
      results.same.push({ tokens, reason, drafted: drafted.tokens });
    }
  }
  results.after = loaded();
  const small = await ort.InferenceSession.create(bytes(arg.small), TextGenerator.options());
  const several = await TextGenerator.create(small, { tokenizer: bytes(arg.characters) });
  const together = { maxTokens: 30, format: { regex: '[0-9]+|[a-z]{2}' }, temperature: 2, seed: 2 };
  results.together = await several.generate([[5, 7, 9], [3]], together);
  results.stopped = await several.generate([5, 7], { ...together, maxTokens: 300, seed: 1 });
  for (const schema of arg.schemas) {
    for (const how of arg.how.slice(0, 2)) {
      const pieces = [];
      const stream = writer.stream('The executor', { maxTokens: 300, format: { schema }, ...how });
      let next = await stream.next();
      for (; !next.done; next = await stream.next()) pieces.push(next.value);
      results.values.push([schema, pieces.join(''), next.value]);
    }
  }
  const format = { schema: arg.schemas[0] };
  results.whole = await writer.generate('The executor', { maxTokens: 300, format, temperature: 1, seed: 2 });
  results.part = await writer.generate('The executor', { maxTokens: 9, format, temperature: 1, seed: 2 });
  const saved = await writer.save();
  const other = await create();
  await other.restore(saved);
  for await (const piece of other.resume({ maxTokens: 300 })) void piece;
  results.resumed = (await other.restore(await other.save())).text;
  results.saved = btoa(Array.from(new Uint8Array(saved), (byte) => String.fromCharCode(byte)).join(''));
  const told = async (work) =>
    work.then(() => 'no error', (error) => `${error instanceof ort.InvalidInput} ${error.message}`);
  const unmasked = await ort.InferenceSession.create(bytes(arg.model), { sampleFrom: 'logits', samplePositions: 1 });
  const bare = new TextGenerator(unmasked, { tokenizer: writer.tokenizer });
  results.errors = [
    await told(writer.generate('The', { format: { schema: { properties: { x: { multipleOf: 3 } } } } })),
    await told(writer.generate('The', { format: { regex: '' } })), await told(writer.generate('The', { format: '' })),
    await told(writer.generate('The', { format: { grammar: 'x' } })),
    await told(bare.generate('The', { format: { regex: 'a' } })),
    await told(new TextGenerator(session).generate([1], { format: { regex: 'a' } })),
    await told(writer.generate('The', { format: { regex: '\\u0001' } })),
  ];
  results.free = (await writer.generate('The', { maxTokens: 5 })).reason;
  return results;
"""


def test_texts_have_the_format(tab: Callable[..., Tab]) -> None:
    page = tab()
    page.open("/esm.html")
    names, small = {"top_k": "topK"}, zoo.materialize("llama_mini")
    tokens = tokenizers.Tokenizer(tokenizers.models.BPE({chr(33 + n): n for n in range(94)}, []))
    tokens.add_special_tokens(["<end>"])
    arg = {
        "formats": FORMATS,
        "how": [{names.get(name, name): value for name, value in how.items()} for how in HOW],
        "schemas": SCHEMAS,
        "small": base64.b64encode(small.read_bytes()).decode(),
        "characters": base64.b64encode(tokens.to_str().encode()).decode(),
        **{name: base64.b64encode((TEXT / file).read_bytes()).decode() for name, file in _FILES.items()},
    }
    found: Any = page.run(SCRIPT, arg)
    assert (found["before"], found["after"]) == (False, True)  # loaded with the first format
    writer = TextGenerator(TEXT / "decoder.onnx", TEXT / "tokenizer.json")
    same = iter(found["same"])
    for form in FORMATS:
        for how in HOW:
            want, one = writer.generate("The", max_tokens=40, format=form, **how), next(same)
            assert (one["tokens"], one["reason"], one["drafted"]) == (want.tokens, want.reason, want.tokens)
    several, how = TextGenerator(small, tokens), {"format": {"regex": "[0-9]+|[a-z]{2}"}, "temperature": 2.0}
    want = [*several.generate([[5, 7, 9], [3]], max_tokens=30, seed=2, **how)]
    want.append(several.generate([5, 7], max_tokens=300, seed=1, **how))
    for one, result in zip(want, [*found["together"], found["stopped"]], strict=True):
        assert (result["tokens"], result["reason"]) == (one.tokens, one.reason)
    assert want[-1].reason == "format" and want[-1].tokens[-1] == 94  # the stop token may follow
    for schema, streamed, one in found["values"]:
        assert one["reason"] == "format" and streamed == one["text"], schema
        jsonschema.validate(json.loads(one["text"]), schema)
    assert found["resumed"] == found["whole"]["text"]
    assert found["part"]["reason"] == "length" and found["whole"]["text"].startswith(found["part"]["text"])
    writer.restore(base64.b64decode(found["saved"]))  # in Python: another library, the same format
    assert "".join(writer.resume(300)) and writer.last.reason == "format"
    jsonschema.validate(json.loads(writer.last.text), SCHEMA)
    parts = [
        "at #/properties/x/multipleOf", "only an empty text", "format is", "line 1: a rule is expected", "has no masks",
        "needs the tokens of a tokenizer", "no token of this model continues the format",
    ]  # fmt: skip
    for part, text in zip(parts, found["errors"], strict=True):
        assert text.startswith("true ") and part in text
    assert found["free"] == "length"


_FILES = {"model": "decoder.onnx", "tokenizer": "tokenizer.json"}
