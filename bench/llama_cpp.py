"""llama.cpp beside us: processor time of a token of a GGUF file, or of a decoder with random 4-bit weights.
It runs in a process of its own.

The package is PyPI's `xllamacpp`, which has llama.cpp compiled for AVX2; `gguf` writes the model. Both are installed
into build/llama.cpp when they are first needed.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from bench.chromium import BUILD
from kit.decoders import SIZES

PACKAGES = ["xllamacpp==2026.10.11549", "gguf==0.19.0", "tqdm", "pyyaml"]
FOLDER = Path("build/llama.cpp")
BLOCK = 32  # weights that share a scale in Q4_0: 16 bytes of codes and half a float
CACHED = 16  # tokens in the cache of a decoder, in each runtime
TOKENS = 16  # of a turn


class LlamaCpp:
    """size: of kit.decoders, or the path of a GGUF file

    Errors: OSError or RuntimeError if it cannot be installed or does not start"""

    def __init__(self, size: str, threads: int) -> None:
        installed()
        command = [sys.executable, "-m", "bench.llama_cpp", size, str(threads)]
        # OpenMP's threads sleep while they wait, as those of the others: waiting is no work
        environment = {**os.environ, "PYTHONPATH": str(FOLDER.resolve()), "OMP_WAIT_POLICY": "passive"}
        self._child = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
            env=environment,
        )  # fmt: skip
        self.process = self._child.pid
        self(1)

    def __call__(self, count: int) -> float:
        """Seconds of processor time of a token, the mean of `count` turns."""
        return sum(self._turn() for _ in range(count)) / count

    def _turn(self) -> float:
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        self._child.stdin.write("go\n")
        self._child.stdin.flush()
        answer = self._child.stdout.readline()
        if not answer:
            raise RuntimeError(f"llama.cpp ended with {self._child.wait()}")
        return float(answer)

    def close(self) -> None:
        self._child.kill()
        self._child.wait()


def installed() -> None:
    if not (FOLDER / "xllamacpp").exists():
        command = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-deps"]
        subprocess.run([*command, "--target", str(FOLDER), *PACKAGES], check=True)


# ── in the process ───────────────────────────────────────────────────────────────────────────────────────────────────


def serve(size: str, threads: int) -> None:
    """Answer each line of the input with seconds of processor time of a token."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # the library prints
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = size if size.endswith(".gguf") else str(written(size))
    params.n_ctx, params.n_parallel, params.warmup = 512, 1, False
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
    params.cpuparams.poll = params.cpuparams_batch.poll = 0  # waiting is no work
    server = xllamacpp.Server(params)

    def seconds(tokens: int) -> float:
        prompt = list(range(1, CACHED + 1))
        request = {"prompt": prompt, "n_predict": tokens, "temperature": 0.0, "ignore_eos": True, "cache_prompt": True}
        start = time.process_time()
        reply = server.handle_completions(request)
        taken = time.process_time() - start
        assert reply["usage"]["completion_tokens"] == tokens, reply
        return taken

    seconds(1)
    for _ in sys.stdin:
        one = seconds(1)  # with the prompt's last token, which is computed again
        print((seconds(1 + TOKENS) - one) / TOKENS, file=answers, flush=True)


def written(size: str) -> Path:
    """The file of a decoder with random weights, as llama.cpp's architecture "llama" has them."""
    import gguf

    path, of = BUILD / f"llm_{size}.q4_0.gguf", SIZES[size]
    if path.exists():
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    out = gguf.GGUFWriter(part, "llama")
    out.add_block_count(of.layers)
    out.add_context_length(2048)
    out.add_embedding_length(of.width)
    out.add_feed_forward_length(of.inner)
    out.add_head_count(of.heads)
    out.add_head_count_kv(of.kv)
    out.add_rope_dimension_count(of.width // of.heads)
    out.add_layer_norm_rms_eps(1e-5)
    out.add_vocab_size(of.words)
    out.add_tokenizer_model("llama")
    out.add_token_list([f"w{n}" for n in range(of.words)])
    out.add_token_scores([0.0] * of.words)
    out.add_token_types([1] * of.words)
    rng = np.random.default_rng(0)

    def codes(name: str, rows: int, columns: int) -> None:
        blocks = rng.integers(0, 256, (rows, columns // BLOCK, 2 + BLOCK // 2), np.uint8)
        blocks[..., :2] = np.full(1, 0.125 / columns**0.5, np.float16).view(np.uint8)
        out.add_tensor(name, blocks.reshape(rows, -1), raw_dtype=gguf.GGMLQuantizationType.Q4_0)

    def ones(name: str) -> None:
        out.add_tensor(name, np.ones(of.width, np.float32))

    codes("token_embd.weight", of.words, of.width)
    kept = of.width * of.kv // of.heads
    for n in range(of.layers):
        block = f"blk.{n}"
        for name, rows, columns in [
            ("attn_q", of.width, of.width), ("attn_k", kept, of.width), ("attn_v", kept, of.width),
            ("attn_output", of.width, of.width), ("ffn_gate", of.inner, of.width), ("ffn_up", of.inner, of.width),
            ("ffn_down", of.width, of.inner),
        ]:  # fmt: skip
            codes(f"{block}.{name}.weight", rows, columns)
        ones(f"{block}.attn_norm.weight")
        ones(f"{block}.ffn_norm.weight")
    ones("output_norm.weight")
    codes("output.weight", of.words, of.width)
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()
    part.rename(path)
    return path


if __name__ == "__main__":
    serve(sys.argv[1], int(sys.argv[2]))
