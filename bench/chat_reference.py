"""Greedy answers of SmolLM2 by another implementation, transformers on PyTorch, to compare the page's with.

`python -m bench.chat_reference` writes `chat_reference.json` from the model of the demo site (`python -m
scripts.site_models --download`), whose codes transformers dequantises by the package gguf. It needs torch, transformers
and accelerate, which nothing else here installs; written with torch 2.14.1 and transformers 5.24.0.
"""

from __future__ import annotations

import json
from pathlib import Path

OUT = Path(__file__).with_suffix(".json")
MODEL = Path(__file__).parents[1] / "build/site-models/chat/model.gguf"
MOST = 64  # tokens of an answer
QUESTIONS = [
    "What is the capital of France?",
    "How many legs does a spider have?",
    "Explain gravity to a child in three sentences.",
    "What is 7 times 8?",
    "Translate 'good morning' to Spanish.",
    "Write a haiku about rain.",
    "Who wrote Romeo and Juliet?",
    "List three fruits.",
    "What does a compiler do?",
    "Is the sun a planet?",
]


def main() -> None:
    import torch
    import transformers

    folder, file = MODEL.parent, MODEL.name
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, gguf_file=file)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, gguf_file=file, dtype=torch.float32).eval()
    answers = []
    for question in QUESTIONS:
        chat = [{"role": "user", "content": question}]
        prompt = tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_tensors="pt", return_dict=True)
        with torch.no_grad():
            found = model.generate(**prompt, max_new_tokens=MOST, do_sample=False)
        tokens = found[0, prompt["input_ids"].shape[1] :].tolist()
        text = tokenizer.decode(tokens, skip_special_tokens=True)
        answers.append({"question": question, "tokens": tokens, "text": text})
        print(f"{question}\n  {text!r}")
    OUT.write_text(json.dumps(answers, ensure_ascii=False, indent=1) + "\n")


if __name__ == "__main__":
    main()
