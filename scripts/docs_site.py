"""Builds the documentation's sites in build/docs with MkDocs: `make docs`, or python -m scripts.docs_site.

There are two, each with its own navigation and search: for users (mkdocs.yml), and below it, in engineers/, for those
who change the engine (mkdocs.engineers.yml). Pages are the files of docs/, CONTRIBUTING, the changelog, the examples,
and references from the types of web/ and the docstrings of `import pyruntime`. A dead link or anchor is an error.
"""

from __future__ import annotations

import os
import posixpath
import re
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import yaml

import pyruntime

ROOT = Path(__file__).parents[1]
PAGES = ROOT / "build/docs-pages"
SITE = ROOT / "build/docs"
TYPEDOC = ROOT / "build/docs-tools/node_modules/typedoc/bin/typedoc"
JAVASCRIPT = ROOT / "build/docs-javascript"
CONFIGS = {"users": "mkdocs.yml", "engineers": "mkdocs.engineers.yml"}
# Files outside docs/ that are pages, and folders whose links lead to a page.
ELSEWHERE = {
    "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md", "examples": "examples.md",
    "examples/README.md": "examples.md", "docs/adr": "adr/README.md", "docs/design": "design/README.md",
}  # fmt: skip
# How much the results of pages count in the users' search, besides 1.
BOOSTS = {"javascript/": 0.2, "python.md": 0.3, "compatibility.md": 0.5, "changelog.md": 0.1, "errors/": 0.8}
# Words that users search for and a page does not have in its title, or not at all.
WORDS = {
    "api/exported-programs.md": "pyrt precompile ahead Program",
    "batching.md": "throughput",
    "errors/InvalidInput.md": "shape mismatch dims dimensions dtype type float64",
    "errors/InvalidModel.md": "protobuf corrupt",
    "extending.md": "custom operator",
    "hosting.md": "nginx Apache Caddy Netlify Vercel Cloudflare GitHub deploy CDN MIME CSP headers",
    "scope.md": "roadmap planned WebNN NPU",
    "training.md": "train fine-tune fine-tuning finetune finetuning learn learning gradient augmentation overfitting "
    "browser export stopping imbalance mixed weights resume",
    "watching.md": "profile trace debug log logging level monitor",
    "use/adapters.md": "LoRA PEFT adapter fine-tuning safetensors",
    "use/audio.md": "audio sound microphone mic wav mp3 speech voice Whisper ASR transcribe transcription VAD "
    "spectrogram",
    "use/bundlers.md": "size wasmPaths",
    "use/cancel.md": "abort stop timeout interrupt Ctrl-C",
    "use/chat.md": "LLM language GPT Llama chatbot generate TextGenerator stream tokens speculative conversation "
    "prompt KV stop sequence",
    "use/convert.md": "convert export PyTorch TensorFlow Keras quantise quantisation quantize quantization int8 int4 "
    "4-bit smaller reduce size optimum GGUF huggingface pt pth h5 onnx_data external",
    "use/extension.md": "Chrome store manifest",
    "use/faq.md": "Safari iOS iPhone iPad Android licence license commercial free cost privacy GDPR phone mobile "
    "production native Capacitor Cordova GGUF Python encrypt protect hide secret",
    "use/c.md": "C++ Rust Java C# Go Swift binding FFI native library embed shared object DLL",
    "use/images.md": "webcam video canvas picture photo GPUTexture texture fromImage object detection YOLO OCR face "
    "segmentation background classes classification NHWC NCHW resize",
    "use/javascript.md": "JavaScript install input names array ArrayBuffer BigInt dynamic shapes axes load run",
    "use/memory.md": "memory OOM leak release dispose free crash RAM large limit 2GB 4GB RangeError allocation",
    "use/nextjs.md": "Vercel",
    "use/node.md": "server Express",
    "use/offline.md": "cache PWA storage IndexedDB update clear",
    "use/onnxruntime-web.md": "onnxruntime-web migrate migration ort TensorFlow.js wasm paths",
    "use/python.md": "Python NumPy pip Jupyter Colab notebook Flask FastAPI Docker server",
    "use/react.md": "Remix",
    "use/slow.md": "performance speed fast faster startup loading warm threads multithreading cores SIMD latency "
    "profile benchmark freeze freezes block blocks UI web worker SharedArrayBuffer",
    "use/support.md": "browser support compatibility semver version Safari Windows macOS ARM Raspberry production "
    "stable",
    "use/text.md": "tokenizer detokenize NLP BERT embeddings transformers transformers.js Hugging Face huggingface "
    "sentiment translate",
    "use/troubleshooting.md": "404 CORS CSP SharedArrayBuffer BigInt help blank hangs stuck failed fetch module MIME "
    "unexpected undefined",
    "use/vue.md": "Nuxt",
    "use/webgpu.md": "GPU fast adapter graphics compare report CUDA NVIDIA AMD Intel Vulkan software",
    "use/wrong.md": "wrong result NaN accuracy verify float16 fp16 precision garbage debug different",
}
LINK = re.compile(r"(?<!!)\[([^]]*)\]\(([^)#\s]*)(#[^)\s]*)?\)")
LANGUAGES = {".cjs": "js", ".mjs": "js", ".webmanifest": "json"}
SOURCES = {".cjs", ".html", ".js", ".json", ".jsx", ".mjs", ".py", ".webmanifest"}  # of examples


def listed(items: list[object]) -> list[str]:
    """The pages of a navigation."""
    found: list[str] = []
    for item in items:
        value = next(iter(item.values())) if isinstance(item, dict) else item
        found += listed(value) if isinstance(value, list) else [str(value)]
    return found


@cache
def engineers() -> frozenset[str]:
    text = (ROOT / CONFIGS["engineers"]).read_text()
    return frozenset(listed(yaml.safe_load(text)["nav"]))


def site_of(page: str) -> str:
    return "engineers" if page in engineers() or page.startswith("adr/") else "users"


# ── links ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def page_of(path: str) -> str:
    """The page of a file or folder of the repository, "" if there is none."""
    if path in ELSEWHERE:
        return ELSEWHERE[path]
    if path.startswith("examples/"):
        return "examples.md"
    return path.removeprefix("docs/") if path.startswith("docs/") else ""


def address(page: str) -> str:
    """Of a page, relative to the users' site."""
    folder = "engineers/" if site_of(page) == "engineers" else ""
    return folder + re.sub(r"(^|/)README\.md$", r"\1index.md", page).removesuffix(".md") + ".html"


def with_links(text: str, source: str) -> str:
    """Makes links between files of the repository links between pages. source: path of the text's file.

    Links to the other site become HTML, because MkDocs knows the pages of one site alone; tests follow them."""
    page = page_of(source)

    def link(match: re.Match[str]) -> str:
        words, target, anchor = match.groups(default="")
        if "://" in target or target.startswith("mailto:") or not target:
            return match[0]
        path = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
        if not (ROOT / path).exists():
            return match[0]  # MkDocs reports it, or the page is generated
        to = page_of(path)
        if not to:
            return words
        example = path.split("/")[1:2]
        if path.startswith("examples/") and (ROOT / "examples" / example[0]).is_dir():
            anchor = f"#{example[0]}"
        if site_of(to) == site_of(page):
            return f"[{words}]({posixpath.relpath(to, posixpath.dirname(page) or '.')}{anchor})"
        there = posixpath.relpath(address(to), posixpath.dirname(address(page)) or ".")
        return f'<a href="{there}{anchor}">{words}</a>'

    parts = re.split(r"(^```.*?^```$)", text, flags=re.MULTILINE | re.DOTALL)
    return "".join(part if part.startswith("```") else LINK.sub(link, part) for part in parts)


# ── pages that are made ─────────────────────────────────────────────────────────────────────────────────────────────


def fenced(path: Path) -> str:
    """The file as a fenced code block."""
    language = LANGUAGES.get(path.suffix, path.suffix[1:])
    return f"```{language}\n{path.read_text().rstrip()}\n```\n"


def examples() -> str:
    """The table of examples, then each one's README and its text files."""
    text = with_links((ROOT / "examples/README.md").read_text(), "examples/README.md")
    for folder in sorted(path for path in (ROOT / "examples").iterdir() if path.is_dir()):
        about = (folder / "README.md").read_text().partition("\n")[2]
        text += f"\n## {folder.name}\n\n{with_links(about, f'examples/{folder.name}/README.md')}"
        for path in tracked(folder):
            if path.suffix in SOURCES and path.name != "package-lock.json":
                text += f"\n`{path.relative_to(ROOT)}`\n\n{fenced(path)}"
    return text


def tracked(folder: Path) -> list[Path]:
    """The folder's files that git does not ignore."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z", str(folder)]
    names = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split("\0")
    return [ROOT / name for name in sorted(names) if name and (ROOT / name).is_file()]


def defined_in(name: str) -> str:
    """The module in which mkdocstrings, which imports nothing, finds an exported name."""
    value = getattr(pyruntime, name)
    is_method = hasattr(value, "__self__")  # of an object in another module
    return "pyruntime.native.tools.quantization" if is_method else str(value.__module__)


def python_reference() -> str:
    names = [f"::: {defined_in(name)}.{name}" for name in pyruntime.__all__]
    return "# Python reference\n\nThe names that `import pyruntime` exports.\n\n" + "\n\n".join(names)


def javascript_reference() -> dict[str, str]:
    """TypeDoc's pages, by name, from the types of web/."""
    if not TYPEDOC.exists():
        raise SystemExit("the documentation needs TypeDoc: run scripts/setup.sh docs")
    shutil.rmtree(JAVASCRIPT, ignore_errors=True)
    subprocess.run(["node", str(TYPEDOC), "--options", "scripts/typedoc/typedoc.json"], cwd=ROOT, check=True)
    pages = [path for path in JAVASCRIPT.glob("*.md") if path.stem != "README"]
    return {f"javascript/{path.name}": path.read_text() for path in pages}


def lay_out() -> None:
    """Writes the pages of both sites to build/docs-pages."""
    shutil.rmtree(PAGES, ignore_errors=True)
    sources = {path.relative_to(ROOT).as_posix(): path for path in (ROOT / "docs").rglob("*") if path.is_file()}
    texts = {
        page_of(name): with_links(path.read_text(), name) for name, path in sources.items() if path.suffix == ".md"
    }
    for name in ("CONTRIBUTING.md", "CHANGELOG.md"):
        texts[ELSEWHERE[name]] = with_links((ROOT / name).read_text(), name)
    texts["examples.md"] = examples()
    texts |= {"python.md": python_reference()} | javascript_reference()
    for page, text in texts.items():
        write(page, text)
    for name, path in sources.items():
        if path.suffix != ".md":
            for site in CONFIGS:
                (PAGES / site / page_of(name)).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(path, PAGES / site / page_of(name))


def write(page: str, text: str) -> None:
    boost = next((boost for start, boost in BOOSTS.items() if page.startswith(start)), None)
    about: dict[str, object] = {"search": {"boost": boost}} if boost else {}
    if page in WORDS:
        about["tags"] = WORDS[page].split()
    if about:
        text = f"---\n{yaml.safe_dump(about)}---\n{text}"
    path = PAGES / site_of(page) / page
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def main() -> int:
    lay_out()
    for config in CONFIGS.values():
        command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--config-file", config]
        silent = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
        done = subprocess.run(command, cwd=ROOT, env=silent, stderr=subprocess.PIPE, text=True, check=False)
        sys.stderr.writelines(line for line in done.stderr.splitlines(keepends=True) if not line.startswith("INFO"))
        if done.returncode:
            return done.returncode
    improve_search()
    return 0


def improve_search() -> None:
    """Puts docs_search.js before the search workers."""
    for worker in SITE.rglob("assets/javascripts/workers/search.*.js"):
        worker.write_text((ROOT / "scripts/docs_search.js").read_text() + worker.read_text())


if __name__ == "__main__":
    raise SystemExit(main())
