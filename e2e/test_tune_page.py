"""The page Tune: a tiny language model of random weights learns a text with adapters. Python computes what it writes
before and after."""

from __future__ import annotations

import json
from pathlib import Path

import gguf
from playwright.sync_api import Download, Page
from safetensors.numpy import load_file

from e2e.test_chat_page import SITE, page  # noqa: F401
from e2e.test_demo import faults
from kit import gguf_models
from pyruntime import SessionOptions, TextGenerator
from pyruntime.cli.serve import Server

TEXT = "a program is a list of kernels " * 60
LAYER = [f"self_attn.{p}_proj" for p in "qkvo"] + [f"mlp.{p}_proj" for p in ("gate", "up", "down")]
LEARNT = "document.querySelector('#status').textContent === 'Learned 30 steps.'"


def written(model: Path, adapter: Path | None = None) -> str:
    """The page's prompt and 60 tokens, greedily."""
    options = SessionOptions()
    options.adapters = {} if adapter is None else {"mine": adapter}
    writer = TextGenerator(model, options=options, adapters=None if adapter is None else {"mine": 1.0}, stop_tokens=[])
    prompt = writer.tokenizer.encode("a program", add_special_tokens=False).ids
    return "a program" + str(writer.tokenizer.decode(writer.generate(prompt, max_tokens=60).tokens))


def test_tune(page: Page, tmp_path: Path) -> None:  # noqa: F811
    """What it takes is measured beforehand; both texts and the adapter's files are those of the native engine."""
    model = tmp_path / "models/model.gguf"
    model.parent.mkdir()
    gguf_models.write(model, "llama", gguf.GGMLQuantizationType.Q4_1)
    with Server({"/": SITE, "/models/chat/": model.parent}) as server:
        page.goto(f"{server.url}/tune/index.html")
        page.wait_for_selector("#status.done")
        assert "98 MB" in page.inner_text("#door") and page.is_disabled("#train")
        page.fill("#text", TEXT)
        page.fill("#prompt", "a program")
        page.fill("#temperature", "0")
        page.fill("#steps", "30")
        page.click("#load")
        page.wait_for_selector("#train:enabled")
        estimate = page.inner_text("#estimate")
        assert (
            "A step of 64 tokens takes" in estimate and "30 steps take about" in estimate and "B for that" in estimate
        )
        page.focus("#train")
        page.keyboard.press("Enter")
        page.wait_for_function(LEARNT)
        first, last = (float(loss) for loss in page.inner_text("#held-out").split(" → "))
        assert last < 0.9 * first and float(page.inner_text("#loss")) < first
        assert page.inner_text("#after-title") == "After 30 steps"
        assert page.text_content("#before") == written(model)
        assert f"Before: {page.text_content('#before')}" in (page.text_content("#announced") or "")
        adapter = downloaded(page, tmp_path / "adapter")
        assert page.text_content("#after") == written(model, adapter) != page.text_content("#before")
        check_files(adapter)
        assert not faults(page)
        page.set_viewport_size({"width": 390, "height": 844})
        assert page.evaluate("document.documentElement.scrollWidth") == 390
        page.fill("#steps", "10000")
        page.click("#train")
        page.wait_for_function("document.querySelector('#status').textContent.includes('of 10030')")
        page.click("#train")
        page.wait_for_selector("#over:enabled")
        page.click("#over")
        page.wait_for_function("document.querySelector('#status').textContent === 'Ready to learn'")
        assert page.inner_text("#loss") == page.inner_text("#after") == "–"
        page.set_input_files("#file", [{"name": "short.txt", "mimeType": "text/plain", "buffer": b"short"}])
        page.wait_for_function("document.querySelector('#about').textContent.includes('It needs some more')")
        assert page.is_disabled("#train") and page.input_value("#prompt") == "short"


def downloaded(page: Page, folder: Path) -> Path:  # noqa: F811
    found: list[Download] = []
    page.on("download", lambda download: found.append(download))
    page.click("#download")
    while len(found) < 2:
        page.wait_for_timeout(50)
    for file in found:
        file.save_as(folder / file.suggested_filename)
    return folder


def check_files(folder: Path) -> None:
    """As PEFT writes them for the model in transformers: its names and shapes."""
    config = json.loads((folder / "adapter_config.json").read_text())
    assert (config["peft_type"], config["task_type"], config["r"], config["lora_alpha"]) == ("LORA", "CAUSAL_LM", 8, 16)
    assert config["base_model_name_or_path"] == "HuggingFaceTB/SmolLM2-135M-Instruct"
    modules = [f"model.layers.{n}.{name}" for n in range(3) for name in LAYER]
    assert sorted(config["target_modules"]) == sorted(modules)
    tensors = load_file(folder / "adapter_model.safetensors")
    assert {*tensors} == {f"base_model.model.{m}.lora_{part}.weight" for m in modules for part in "AB"}
    outputs = {"q_proj": 64, "k_proj": 32, "v_proj": 32, "o_proj": 64, "gate_proj": 96, "up_proj": 96, "down_proj": 64}
    for m in modules:
        a, b = (tensors[f"base_model.model.{m}.lora_{part}.weight"] for part in "AB")
        name = m.rpartition(".")[2]
        assert a.shape == (8, 96 if name == "down_proj" else 64) and b.shape == (outputs[name], 8)
        assert abs(b).max() > 0
