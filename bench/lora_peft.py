"""python -m bench.lora_peft FOLDER: opens an adapter of `python -m bench lora` by PEFT.

On transformers' model of the same weights it prints the loss on the text that was held out, without and with the
adapter, beside the page's, and writes a text with it. It needs torch, transformers, accelerate, gguf and peft, which
nothing else here installs; used with torch 2.14.1, transformers 5.24.0 and peft 0.21.2.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from bench.chat_reference import MODEL

HELD_OUT, TESTS, LENGTH = 0.1, 4, 64  # as in demo/tune/student.js


def main() -> None:
    import peft
    import torch
    import transformers

    folder = Path(sys.argv[1])
    known = json.loads((folder / "page.json").read_text())
    tokenizer = transformers.AutoTokenizer.from_pretrained(MODEL.parent, gguf_file=MODEL.name)
    base = transformers.AutoModelForCausalLM.from_pretrained(MODEL.parent, gguf_file=MODEL.name, dtype=torch.float32)
    ids = tokenizer(Path(known["text"]).read_text(encoding="utf-8"), add_special_tokens=False)["input_ids"]

    def loss(model: Any) -> float:
        held = int(HELD_OUT * len(ids))
        end, room = len(ids) - held, held - LENGTH - 1
        losses = []
        for n in range(TESTS):
            piece = torch.tensor([ids[end + n * room // (TESTS - 1) :][: LENGTH + 1]])
            with torch.no_grad():
                logits = model(input_ids=piece[:, :-1]).logits[0]
            losses.append(torch.nn.functional.cross_entropy(logits, piece[0, 1:]).item())
        return sum(losses) / TESTS

    before = loss(base)
    model = peft.PeftModel.from_pretrained(base, str(folder)).eval()
    print(f"held-out loss by PEFT {peft.__version__}: {before:.2f} → {loss(model):.2f}; in the page {known['heldOut']}")
    prompt = tokenizer(known["prompt"], return_tensors="pt")
    found = model.generate(**prompt, max_new_tokens=60, do_sample=False)
    print(tokenizer.decode(found[0], skip_special_tokens=True))


if __name__ == "__main__":
    main()
