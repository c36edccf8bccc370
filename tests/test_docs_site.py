"""The documentation's sites: no dead links, nothing from other hosts, a search that answers users, nothing cut."""

from __future__ import annotations

import html
import posixpath
import re
from collections.abc import Iterator
from urllib.parse import unquote

import pytest
from playwright.sync_api import Page, TimeoutError

import pyruntime
from kit.chromium import launch
from kit.once import once
from pyruntime.cli.serve import Server
from scripts.docs_site import ROOT, SITE, main

EXTERNAL = re.compile(
    r'<(?:script|img|iframe|source)[^>]* src="(https?:)?//|<link(?![^>]*canonical)[^>]* href="(https?:)?//'
)
# What users type, typing errors included, and the page that answers it, which must be one of the first three results.
QUESTIONS = {
    "cancel": "use/cancel", "abort a run": "use/cancel", "Safari": "use/faq", "iOS": "use/faq", "iphone": "use/faq",
    "android": "use/faq", "Next.js": "use/nextjs", "React": "use/react", "vue": "use/vue", "svelte": "use/svelte",
    "angular": "use/angular", "vite": "use/bundlers", "webpack": "use/bundlers", "electron": "use/electron",
    "node": "use/node", "chrome extension": "use/extension", "service worker": "use/service-worker",
    "PyTorch": "use/convert", "tensorflow": "use/convert", "keras": "use/convert", "scikit-learn": "use/convert",
    "convert model": "use/convert", "quantise": "use/convert", "quantize": "use/convert", "slow": "use/slow",
    "performance": "use/slow", "wrong result": "use/wrong", "NaN": "use/wrong", "verify": "use/wrong",
    "licence": "use/faq", "license": "use/faq", "privacy": "use/faq", "out of memory": "use/memory",
    "memory leak": "use/memory", "CORS": "use/troubleshooting", "404": "use/troubleshooting", "offline": "use/offline",
    "cache": "use/offline", "webgpu not used": "use/webgpu", "gpu": "use/webgpu", "float16": "use/wrong",
    "tokenizer": "use/text", "embeddings": "use/text", "chat": "use/chat", "llm": "use/chat", "camera": "use/images",
    "image": "use/images", "threads": "use/slow", "SharedArrayBuffer": "use/troubleshooting",
    "bundle size": "use/bundlers", "onnxruntime-web": "use/onnxruntime-web", "transformers.js": "use/text",
    "browser support": "use/support", "semver": "use/support", "typescript": "use/javascript",
    "install": "use/javascript", "pip install": "use/python", "InvalidInput": "errors/InvalidInput",
    "error": "errors/index", "batch": "batching", "custom operator": "extending", "headers": "hosting",
    "train in the browser": "training", "fine-tune": "training", "overfitting": "training", "checkpoint": "training",
    "freeze layers": "training", "federated learning": "training", "export trained model": "training",
    "LoRA": "use/adapters", "merge adapter": "use/adapters", "switch adapters": "use/adapters",
    "4-bit weights": "use/convert", "reduce model size": "use/convert", "accuracy after quantization": "use/convert",
    "TextGenerator": "use/chat", "speculative decoding": "use/chat", "repetition penalty": "use/chat",
    "stream tokens": "use/chat", "tokenizer.json": "use/text", "exported program": "api/exported-programs",
    "precompile model": "api/exported-programs",
    "compare two gpus": "use/webgpu", "is my gpu fast": "use/webgpu", "GPUTexture": "use/images",
    "webcam": "use/images", "large model": "use/memory", "faster startup": "use/slow",
    "ctrl c": "use/cancel", "nginx": "hosting", "github pages": "hosting", "vercel": "use/nextjs",
    "Failed to fetch": "use/troubleshooting", "blank page": "use/troubleshooting", "it hangs": "use/troubleshooting",
    "stuck": "use/troubleshooting", "module not found": "use/troubleshooting",
    "unexpected token <": "use/troubleshooting", "mime type wasm": "hosting", "huggingface": "use/text",
    "huggingface to onnx": "use/convert", "sentiment analysis": "use/text", "whisper": "use/audio",
    "audio": "use/audio", "microphone": "use/audio", "speech to text": "use/audio", "object detection": "use/images",
    "yolo": "use/images", "ocr": "use/images", "segmentation": "use/images", "top 5 classes": "use/images",
    "channels last nhwc": "use/images", "dynamic shapes": "use/javascript", "input names": "use/javascript",
    "model from arraybuffer": "use/javascript", "how do i get the output array": "use/javascript",
    "BigInt error": "use/troubleshooting", "tensor shape mismatch": "errors/InvalidInput",
    "wrong data type float64": "errors/InvalidInput", "protobuf": "errors/InvalidModel", "pt file": "use/convert",
    "h5 file": "use/convert", "warm up": "use/slow", "loading time": "use/slow", "multithreading": "use/slow",
    "use all cpu cores": "use/slow", "web worker": "use/slow", "file size limit": "use/memory",
    "2gb model": "use/memory", "Array buffer allocation failed": "use/memory", "dispose": "use/memory",
    "react native": "use/faq", "is it free": "use/faq", "commercial use": "use/faq", "why python": "use/faq",
    "protect my model": "use/faq", "production ready": "use/support", "roadmap": "scope",
    "chrome store": "use/extension", "update model": "use/offline", "remix": "use/react",
    "raspberry pi": "use/support", "chatbot in browser": "use/chat", "kv cache": "use/chat",
    "system prompt": "use/chat", "stop sequence": "use/chat", "detokenize": "use/text", "finetuning": "training",
    "early stopping": "training", "save weights": "training", "log level": "watching", "profile": "watching",
    "debug": "use/wrong", "different output than onnxruntime": "use/wrong", "colab": "use/python",
    "numpy": "use/python", "flask": "use/python", "docker": "use/python", "cuda": "use/webgpu", "nvidia": "use/webgpu",
    "software renderer": "use/webgpu", "safetensors": "use/adapters", "wasm paths": "use/onnxruntime-web",
    "pytroch": "use/convert", "tensorflw": "use/convert", "quantisation": "use/convert", "quantizaton": "use/convert",
    "perfomance": "use/slow", "memmory": "use/memory", "javascrpt": "use/javascript", "intall": "use/javascript",
    "cancle": "use/cancel", "electorn": "use/electron", "sharedarraybufer": "use/slow",
}  # fmt: skip
RESULTS = "() => [...document.querySelectorAll('.md-search-result__item')].map((item) => item.querySelector('a').href)"
# Elements wider than the window, other than those that scroll by themselves
CUT = """() => [...document.querySelectorAll('body *')].filter((node) => {
  const box = node.getBoundingClientRect();
  if (!box.width || box.right <= innerWidth + 1 || getComputedStyle(node).visibility === 'hidden') return false;
  for (let up = node; up; up = up.parentElement) {
    if (up !== document.body && getComputedStyle(up).overflowX !== 'visible') return false;
  }
  return node.closest('.md-content, .md-header, .md-footer');
}).map((node) => `${node.tagName}.${node.className}: ${node.textContent.slice(0, 60)}`).slice(0, 3)"""
FITS = "document.documentElement.scrollWidth <= innerWidth"


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """All pages of both sites, by path."""
    once(tmp_path_factory, "docs", build)
    return {path.relative_to(SITE).as_posix(): path.read_text() for path in SITE.rglob("*.html")}


def build() -> None:
    assert main() == 0


@pytest.fixture(scope="module")
def page(pages: dict[str, str]) -> Iterator[Page]:
    """The first page of a server of the sites. Requests to others, and errors, fail at the end."""
    with Server({"/": SITE}) as server, launch() as browser:
        page = browser.new_context(base_url=server.url).new_page()
        problems: list[str] = []
        page.on("request", lambda request: problems.append(request.url) if server.url not in request.url else None)
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
        page.goto("/index.html")
        yield page
        assert not problems


def test_the_sites_are_complete(pages: dict[str, str]) -> None:
    assert not [name for name, text in pages.items() if EXTERNAL.search(text)]
    styles = "".join(path.read_text() for path in SITE.rglob("*.css"))
    assert not re.search(r"url\([\"']?https?:|@import", styles)
    reference = pages["python.html"]
    missing = [name for name in pyruntime.__all__ if f'.{name}"' not in reference]
    assert not missing, "each name has an entry"
    assert "get_inputs" in reference and "executionProviders" in pages["api/options.html"]
    assert "preferredOutputLocation" in pages["javascript/pyruntime.Namespace.InferenceSession.html"]
    assert "gpuMemoryLimit" in pages["javascript/pyruntime.html"]
    records = [f"engineers/adr/{path.stem}.html" for path in ROOT.glob("docs/adr/[0-9]*.md")]
    assert not set(records) - pages.keys()


def test_links_between_the_sites_lead_somewhere(pages: dict[str, str]) -> None:
    """MkDocs checks those within a site."""
    anchors = {name: set(re.findall(r' id="([^"]+)"', text)) for name, text in pages.items()}
    dead = []
    for name, text in pages.items():  # addresses of 404.html begin at the root
        for link in set(re.findall(r'<a [^>]*href="([^"]+)"', text)):
            path, _, anchor = html.unescape(link).partition("#")
            if "://" in path or path.startswith("mailto:") or not (path or anchor) or name.endswith("404.html"):
                continue
            target = posixpath.normpath(posixpath.join(posixpath.dirname(name), unquote(path))) if path else name
            if target.endswith(".html"):
                if target not in pages or (anchor and unquote(anchor) not in anchors[target]):
                    dead.append(f"{name}: {link}")
            elif not (SITE / target).exists():
                dead.append(f"{name}: {link}")
    assert not [link for link in dead if "__" not in link], "footnotes and menus of the theme have ids of their own"


def results(page: Page, question: str) -> list[str]:
    """The pages of the first three results."""
    box = page.locator("input.md-search__input")
    for text in ("", question):
        box.fill(text)
        box.dispatch_event("keyup")  # for which Material listens
        page.wait_for_function("!document.querySelector('.md-search-result__item')") if not text else None
    page.wait_for_function("document.querySelector('.md-search-result__item')")
    return [re.sub(r".*?://[^/]*/|\.html.*", "", link) for link in page.evaluate(RESULTS)[:3]]


def test_the_search_answers_users(page: Page) -> None:
    page.locator("input.md-search__input").focus()
    found = {question: results(page, question) for question in QUESTIONS}
    assert not {question: found[question] for question, answer in QUESTIONS.items() if answer not in found[question]}
    assert not any(name.startswith("engineers/") for names in found.values() for name in names)


def test_engineers_have_their_own_search(page: Page) -> None:
    page.goto("/engineers/architecture.html")
    page.locator("input.md-search__input").focus()
    assert "engineers/design/kv-caches" in results(page, "KV caches grow in place")


@pytest.mark.parametrize("half", [0, 1])  # for two processes
def test_nothing_is_cut(half: int, page: Page, pages: dict[str, str]) -> None:
    """On a telephone and on a desktop."""
    cut = {}
    for name in sorted(name for name in pages if not re.search(r"engineers/adr/0|404", name))[half::2]:
        page.goto(f"/{name}")
        for width in (390, 1280):
            page.set_viewport_size({"width": width, "height": 800})
            try:
                page.wait_for_function(f"() => !({CUT})().length && {FITS}", timeout=3000)  # after the new layout
            except TimeoutError:
                cut[name, width] = page.evaluate(CUT)
    assert not cut
