"""Texts of transformers' beam search for the decoder of `decoder_forms.py`, with which tests compare.

`python -m kit.beam_texts` writes `kit/beam_texts.json`. It needs torch and transformers, which no test installs;
written with torch 2.13.0 and transformers 5.24.0. onnxruntime computes the logits, without a KV cache.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import tokenizers

from kit.decoder_forms import FORMS, HEAD, KV, STATES, WORDS, decoder

FORM, CROSSING = "as Optimum exports", "with an encoder"
PROMPT = [5, 7, 9, 11, 13, 2, 3]
SETTINGS: list[dict[str, Any]] = [
    {"num_beams": beams, "max_tokens": most, "length_penalty": penalty, "early_stopping": early}
    for beams in (2, 3, 5)
    for most in (1, 2, 9, 24)
    for penalty in (1.0, 0.0, 2.5, -1.0)
    for early in (False, True)
]
STOPS: list[list[int]] = [[], [4], [4, 17, 31, 32]]  # tokens that end a text
PROMPTS = [PROMPT, PROMPT[:1], [*range(20, 40)]]
LETTERS = "abcdefghij"
WORDS_OF = [(LETTERS[n // 10 - 1] if n >= 10 else "") + LETTERS[n % 10] for n in range(WORDS)]  # each token's text
_PAIRS = ["ac", "ad", "bc", "bd"]
# A regular expression, and all of its texts. Nowhere only one letter may follow: there llguidance wants the token that
# the tokenizer would make of it.
FORMATS: dict[str, list[str]] = {
    "([ab][cd]){1,2}f?": [a + b + end for a in _PAIRS for b in ("", *_PAIRS) for end in ("", "f")],
    "[a-j]{1,3}": ["".join(parts) for count in (1, 2, 3) for parts in itertools.product(LETTERS, repeat=count)],
}
MORE: list[dict[str, Any]] = [
    {"stop": ["bb", "ci"]}, {"stop": ["j", "adb"]}, {"stop": ["dbc"], "stops": [4]},
    {"form": CROSSING}, {"form": CROSSING, "stops": [4, 17, 31, 32]}, {"form": CROSSING, "stop": ["c"]},
    *({"regex": regex, "stops": stops} for regex in FORMATS for stops in ([4], [4, 59])),
    {"form": CROSSING, "regex": "[a-j]{1,3}", "stops": [17]},
]  # fmt: skip
PATH = Path(__file__).with_name("beam_texts.json")


def tokenizer() -> Any:
    """Its tokens have one or two letters."""
    made = tokenizers.Tokenizer(tokenizers.models.BPE({word: n for n, word in enumerate(WORDS_OF)}, []))
    made.decoder = tokenizers.decoders.Fuse()
    return made


def cases() -> Iterator[dict[str, Any]]:
    """What texts are made of."""
    for prompt in PROMPTS:
        for stops in STOPS:
            for n, how in enumerate(SETTINGS):
                if (len(prompt) + len(stops) + n) % 4 == 0:
                    yield {"prompt": prompt, "stops": stops, **how}
    for at, more in enumerate(MORE):
        for n, how in enumerate(SETTINGS):
            if (at + n) % 7 == 0:
                yield {"prompt": PROMPTS[n % 3], "stops": [], **how, **more}


def main() -> None:
    import torch
    import transformers
    from transformers import GenerationConfig, GenerationMixin, PretrainedConfig, PreTrainedModel, StoppingCriteria
    from transformers.modeling_outputs import CausalLMOutput

    class Wrapped(PreTrainedModel, GenerationMixin):
        config_class = PretrainedConfig
        main_input_name = "input_ids"

        def __init__(self, config: Any, form: str) -> None:
            super().__init__(config)
            self.none = torch.nn.Parameter(torch.zeros(1))
            model = decoder(FORMS[form]).SerializeToString()
            self.session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])

        def forward(self, input_ids: Any, attention_mask: Any = None, **_: Any) -> Any:
            ids = input_ids.numpy()
            feeds = {
                "input_ids": ids, "attention_mask": np.ones_like(ids), "use_cache_branch": np.zeros(1, bool),
                "position_ids": np.tile(np.arange(ids.shape[1]), (len(ids), 1)),
                "encoder_hidden_states": np.repeat(STATES, len(ids), 0),
            }  # fmt: skip
            names = [x.name for x in self.session.get_inputs()]
            feeds |= {name: np.zeros((len(ids), KV, 0, HEAD), np.float32) for name in names if name not in feeds}
            own = {name: feeds[name] for name in names}
            return CausalLMOutput(logits=torch.from_numpy(self.session.run(["logits"], own)[0]))

        def prepare_inputs_for_generation(self, input_ids: Any, attention_mask: Any = None, **_: Any) -> Any:
            return {"input_ids": input_ids}

    class Complete(StoppingCriteria):
        """Ends texts that no other text of the format goes on with."""

        def __init__(self, texts: list[str], start: int) -> None:
            self.texts, self.start = texts, start

        def __call__(self, input_ids: Any, scores: Any, **_: Any) -> Any:
            return torch.tensor([not _allowed(self.texts, row[self.start :], []) for row in input_ids.tolist()])

    models = {form: Wrapped(PretrainedConfig(vocab_size=WORDS), form).eval() for form in (FORM, CROSSING)}
    words = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer())
    found = []
    for case in cases():
        how, prompt, stops = dict(case), case["prompt"], case["stops"]
        own = {name: how[name] for name in ("num_beams", "length_penalty", "early_stopping")}
        config = GenerationConfig(
            **own, max_new_tokens=how["max_tokens"], do_sample=False, use_cache=False, pad_token_id=0,
            eos_token_id=stops or None, bos_token_id=1, stop_strings=how.get("stop"),
        )  # fmt: skip
        ids = torch.tensor([prompt])
        more: dict[str, Any] = {"tokenizer": words} if "stop" in how else {}
        if "regex" in how:
            texts = FORMATS[how["regex"]]
            more["stopping_criteria"] = [Complete(texts, len(prompt))]
            more["prefix_allowed_tokens_fn"] = partial(_following, texts, len(prompt), stops)
        model = models[how.get("form", FORM)]
        (row,) = model.generate(ids, attention_mask=torch.ones_like(ids), generation_config=config, **more).tolist()
        tokens = row[len(prompt) :]
        ends = [place for place, token in enumerate(tokens) if token in stops]
        found.append({**case, "tokens": tokens[: ends[0] + 1 if ends else None]})  # padding follows
    PATH.write_text("[\n" + ",\n".join(json.dumps(case) for case in found) + "\n]\n")
    print(len(found), "texts")


def _allowed(texts: list[str], written: list[int], stops: list[int]) -> list[int]:
    """Tokens that may follow in one of these texts; those that end a text may follow a whole one."""
    text = "".join(WORDS_OF[token] for token in written)
    rest = [one[len(text) :] for one in texts if one.startswith(text)]
    found = [n for n, word in enumerate(WORDS_OF) if n not in stops and any(one.startswith(word) for one in rest)]
    return [*found, *(stops if found and "" in rest else [])]


def _following(texts: list[str], start: int, stops: list[int], _: int, ids: Any) -> list[int]:
    return _allowed(texts, ids.tolist()[start:], stops) or [0]


if __name__ == "__main__":
    main()
