"""python -m bench chat: a first and a second visit to the first word of a chat, phase by phase, and ten answers.

The model is the demo site's (`python -m scripts.site_models --download`). Each round has a new browser profile. Answers
are greedy, and compared token by token with those of transformers on the same weights (bench/chat_reference.py).
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from playwright.sync_api import BrowserContext, Page

from bench import machine, several_chats
from bench.chat_reference import MODEL, MOST, OUT, QUESTIONS
from bench.chromium import ROOT
from bench.start_phases import Phases
from kit import chromium
from pyruntime.cli.serve import Server

ADDRESS = f"/models/{MODEL.name}"
VISIT = """async ({ model, question, threads }) => {
  const mark = (text) => performance.mark(`pyruntime ${text}`);
  mark('package requested');
  const begin = performance.now();
  const [ort, { TextGenerator }] = await Promise.all([import('/dist/ort.mjs'), import('/dist/extras.mjs')]);
  mark('package loaded');
  ort.env.wasm.numThreads = threads;
  const opening = ort.InferenceSession.create(model, { ...TextGenerator.options(), cache: true });
  const writer = await TextGenerator.create(opening, { tokenizer: model });
  const session = await opening;
  mark('session created, tokenizer read');
  for await (const piece of writer.stream([{ role: 'user', content: question }], { maxTokens: 64 })) {
    mark('first word');
    break;
  }
  const milliseconds = performance.now() - begin;
  const { phases } = await session.explain();
  globalThis.writer = writer;
  return { milliseconds, phases, arena: (await session.memory()).arena };
}"""
ANSWER = """async ({ question, most }) => {
  const found = await globalThis.writer.generate([{ role: 'user', content: question }], { maxTokens: most });
  return { tokens: found.tokens, speed: 1000 * (found.tokens.length - 1) / (found.milliseconds - found.first) };
}"""


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench chat", description=__doc__)
    parser.add_argument("--rounds", type=int, default=1, help="new profiles (default 1)")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--no-answers", action="store_true", help="phases alone")
    parser.add_argument("--several", action="store_true", help="natively: 1 to 8 chats at the same time")
    args = parser.parse_args(argv)
    if args.several:
        return several_chats.main(args.rounds)
    if not MODEL.exists():
        parser.error(f"{MODEL} is not there: python -m scripts.site_models --download fetches it")
    mounts = {"/": ROOT / "e2e/pages", "/dist/": ROOT / "dist", "/models/": MODEL.parent}
    visits = {"first": Phases(), "second": Phases()}
    with Server(mounts) as server:
        for _ in range(args.rounds):
            with chromium.launch_profile() as profile:
                print(machine.describe(profile.browser.version if profile.browser else "Chromium"))
                for name, phases in visits.items():
                    page = _visit(profile, server.url, name, phases, args.threads)
                if not args.no_answers:
                    _answers(page)
    for name, phases in visits.items():
        print(f"{name} visit:", phases.table(), sep="\n")
    return 0


def _visit(profile: BrowserContext, url: str, name: str, phases: Phases, threads: int) -> Page:
    page = profile.new_page()
    page.set_default_timeout(300_000)
    page.goto(f"{url}/esm.html")
    given = {"model": ADDRESS, "question": QUESTIONS[0], "threads": threads}
    found: dict[str, Any] = page.evaluate(VISIT, given)
    print(f"{name} visit: {found['milliseconds']:.0f} ms to the first word, {found['arena'] / 1e6:.0f} MB of memory")
    phases.add(page, found["phases"])
    page.wait_for_timeout(3000)  # the browser caches code
    return page


def _answers(page: Page) -> None:
    known = json.loads(Path(OUT).read_text())
    equal, speeds = 0, []
    for wanted in known:
        found = page.evaluate(ANSWER, {"question": wanted["question"], "most": MOST})
        equal += found["tokens"] == wanted["tokens"]
        speeds.append(found["speed"])
        if found["tokens"] != wanted["tokens"]:
            pairs = zip(found["tokens"], wanted["tokens"], strict=False)
            first = next((n for n, (ours, theirs) in enumerate(pairs) if ours != theirs), -1)
            print(f"{wanted['question']} differs from token {first} of {len(wanted['tokens'])}")
    print(
        f"{equal} of {len(known)} answers equal transformers'; {sorted(speeds)[len(speeds) // 2]:.1f} tokens a second"
    )
