"""Texts of transformers' beam search for the decoder of `decoder_forms.py`, with which tests compare.

`python -m kit.beam_texts` writes `kit/beam_texts.json`. It needs torch and transformers, which no test installs;
written with torch 2.13.0 and transformers 5.24.0. onnxruntime computes the logits, without a KV cache.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

from kit.decoder_forms import FORMS, HEAD, KV, LAYERS, WORDS, decoder

FORM = "as Optimum exports"
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
PATH = Path(__file__).with_name("beam_texts.json")


def main() -> None:
    import torch
    from transformers import GenerationConfig, GenerationMixin, PretrainedConfig, PreTrainedModel
    from transformers.modeling_outputs import CausalLMOutput

    session = onnxruntime.InferenceSession(decoder(FORMS[FORM]).SerializeToString(), providers=["CPUExecutionProvider"])

    class Wrapped(PreTrainedModel, GenerationMixin):
        config_class = PretrainedConfig
        main_input_name = "input_ids"

        def __init__(self, config: Any) -> None:
            super().__init__(config)
            self.none = torch.nn.Parameter(torch.zeros(1))

        def forward(self, input_ids: Any, attention_mask: Any = None, **_: Any) -> Any:
            ids = input_ids.numpy()
            empty = np.zeros((len(ids), KV, 0, HEAD), np.float32)
            pasts = {f"past_key_values.{n}.{part}": empty for n in range(LAYERS) for part in ("key", "value")}
            places = np.tile(np.arange(ids.shape[1]), (len(ids), 1))
            feeds = {"input_ids": ids, "attention_mask": np.ones_like(ids), "position_ids": places, **pasts}
            return CausalLMOutput(logits=torch.from_numpy(session.run(["logits"], feeds)[0]))

        def prepare_inputs_for_generation(self, input_ids: Any, attention_mask: Any = None, **_: Any) -> Any:
            return {"input_ids": input_ids}

    model = Wrapped(PretrainedConfig(vocab_size=WORDS)).eval()
    cases = []
    for prompt in PROMPTS:
        for stops in STOPS:
            for n, how in enumerate(SETTINGS):
                if (len(prompt) + len(stops) + n) % 4:
                    continue
                own = {name: value for name, value in how.items() if name != "max_tokens"}
                config = GenerationConfig(
                    **own, max_new_tokens=how["max_tokens"], do_sample=False, use_cache=False, pad_token_id=0,
                    eos_token_id=stops or None, bos_token_id=1,
                )  # fmt: skip
                ids = torch.tensor([prompt])
                found = model.generate(ids, attention_mask=torch.ones_like(ids), generation_config=config)
                tokens = found[0, len(prompt) :].tolist()
                ends = [place for place, token in enumerate(tokens) if token in stops]
                tokens = tokens[: ends[0] + 1 if ends else None]  # padding follows
                cases.append({"prompt": prompt, "stops": stops, **how, "tokens": tokens})
    PATH.write_text("[\n" + ",\n".join(json.dumps(case) for case in cases) + "\n]\n")
    print(len(cases), "texts")


if __name__ == "__main__":
    main()
