"""python -m bench lora: SmolLM2 learns a text with LoRA in the page Tune, in Chromium.

Prints seconds until the page can train, seconds a step, memory, the loss on learnt and on held-out text, and what the
model writes before and after; writes the adapter's files to --out. The model is the demo site's (`python -m
scripts.site_models --download`), the text its sonnets or --text. `python -m bench.lora_peft OUT` opens the adapter in
PEFT.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

from playwright.sync_api import Download, Page

from bench import machine
from bench.chat_reference import MODEL
from bench.chromium import ROOT
from kit import chromium
from pyruntime.cli.serve import Server

OUT = ROOT / "build/lora"
SITE = ROOT / "build/site"
LEARNT = "document.querySelector('#status').matches('.failed, .done') && !document.querySelector('#download').disabled"
DOWNLOADS = {"adapter_model.safetensors", "adapter_config.json"}


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench lora", description=__doc__)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--length", type=int, choices=(32, 64, 128), default=64, help="tokens of a step (default 64)")
    parser.add_argument("--text", type=Path, default=ROOT / "demo/speak/sonnets.txt")
    parser.add_argument("--prompt", default="Shall I ")
    parser.add_argument("--out", type=Path, default=OUT, help="folder for the adapter (default build/lora)")
    args = parser.parse_args(argv)
    for needed, how in {MODEL: "python -m scripts.site_models --download", SITE: "npm run build"}.items():
        if not needed.exists():
            parser.error(f"{needed} is not there: {how}")
    mounts = {"/": SITE, "/models/chat/": MODEL.parent}
    with Server(mounts) as server, chromium.launch() as browser:
        print(machine.describe(browser.version))
        page = browser.new_page()
        page.set_default_timeout(3_600_000)
        _open(page, f"{server.url}/tune/index.html", args)
        _train(page, args.steps)
        _save(page, args.out, args.text)
    return 0


def _open(page: Page, url: str, args: argparse.Namespace) -> None:
    page.goto(url)
    page.wait_for_selector("#load:visible")
    page.fill("#text", args.text.read_text(encoding="utf-8"))
    page.fill("#prompt", args.prompt)
    page.fill("#steps", str(args.steps))
    page.select_option("#length", str(args.length))
    begin = time.perf_counter()
    page.click("#load")
    page.wait_for_selector("#train:enabled")
    print(f"{time.perf_counter() - begin:.1f} s from the download to a measured step")
    print(page.inner_text("#estimate"))


def _train(page: Page, steps: int) -> None:
    begin = time.perf_counter()
    page.click("#train")
    page.wait_for_function(LEARNT)
    print(
        f"{steps} steps, two tests and two texts took {time.perf_counter() - begin:.1f} s: {page.inner_text('#status')}"
    )
    for name in ("time", "memory", "loss", "held-out"):
        term = page.evaluate("id => document.getElementById(id).previousElementSibling.textContent", name)
        print(f"{term}: {page.inner_text(f'#{name}')}")
    for side in ("before", "after"):
        print(f"--- {side}\n{page.text_content(f'#{side}')}")


def _save(page: Page, folder: Path, text: Path) -> None:
    found: list[Download] = []
    page.on("download", lambda download: found.append(download))
    page.click("#download")
    while len(found) < len(DOWNLOADS):
        page.wait_for_timeout(50)
    for file in found:
        file.save_as(folder / file.suggested_filename)
    known = {
        "text": str(text.resolve()),
        "heldOut": page.inner_text("#held-out"),
        "prompt": page.input_value("#prompt"),
    }
    (folder / "page.json").write_text(json.dumps(known))
    print(f"--- the adapter is in {folder}")
