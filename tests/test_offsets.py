"""The planner in JavaScript (web/runtime/planner.js), run by Node.js, compared with its source in Python."""

from __future__ import annotations

import base64
import json
import random
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import onnx.parser
import onnxruntime
import pytest

from kit import zoo
from kit.decoders import TINY, Decoder
from kit.decoders import feeds as decoder_feeds
from pyruntime import InferenceSession, ShapeError
from pyruntime.runtime.arena import GPU, Arena
from pyruntime.runtime.arena import GPU_ALIGN as ALIGN
from pyruntime.runtime.planner import Planner, StepDims
from pyruntime.runtime.states import Layout, State
from pyruntime.runtime.step_layout import LiveRange, lay_out
from tests.test_layouts import CHANGES, LOOP, changing

NODE = Path(__file__).parent / "web"


def node(script: str, *args: Path, stdin: str = "") -> Any:
    command = ["node", "--no-warnings", "--experimental-default-type=module", str(NODE / script), *map(str, args)]
    return json.loads(subprocess.run(command, input=stdin, check=True, capture_output=True, text=True).stdout)


class Planned:
    """The steps that the Python executor plans: for each call the addresses of its buffers, then its numbers."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.steps: list[list[list[list[int]]]] = []
        plan = Planner._lay_out_calls

        def planned(planner: Planner, calls: Any, dims: StepDims, state: State, key: str) -> Layout:
            layout = plan(planner, calls, dims, state, key)
            rest = iter(dims.blocks.fill(layout.words, state.env).tolist())
            self.steps.append([
                [[next(rest) for _ in call["buffers"]], [next(rest) for _ in range(len(call["params"]) + 1)]]
                for call in calls
            ])  # fmt: skip
            return layout

        monkeypatch.setattr(Planner, "_lay_out_calls", planned)


def shifted(steps: list[Any], begin: int) -> list[str]:
    """Addresses relative to the arena, which begins at different addresses. Deduplicated: JavaScript plans a step again
    even if the changed shapes do not affect it."""
    found = ([[[a - begin for a in addresses], numbers] for addresses, numbers in calls] for calls in steps)
    return list(dict.fromkeys(map(json.dumps, found)))


@pytest.mark.parametrize(
    "name", ["bert_tiny", "gpt2_tiny", "llama_mini", "lstm_tagger", "unet_resize", "wav2vec2_mini", "yolo_nms"]
)
def test_both_planners_give_the_same_addresses(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Constants, start-up and two runs, call by call: branches, loops, Read steps, outputs in place."""
    compare(zoo.materialize(name), [zoo.inputs(name)] * 2, tmp_path, monkeypatch)


def compare(model: Path | bytes, runs: list[dict[str, np.ndarray]], folder: Path, patch: pytest.MonkeyPatch) -> Any:
    """Check that both planners give the same addresses in these runs. Returns the outputs of JavaScript."""
    program, given = folder / "model.pyrt", folder / "feeds.json"
    program.write_bytes(InferenceSession(model).export(weights=True))
    given.write_text(json.dumps([{n: wire(x) for n, x in feeds.items()} for feeds in runs]))
    python = Planned(patch)
    session = InferenceSession(program)
    for feeds in runs:
        session.run(None, feeds)
    executor = session._native.latest()
    browser = node("record_plan.mjs", program, given)
    assert len(python.steps) > 1
    assert shifted(browser["placed"], browser["begin"]) == shifted(python.steps, executor.plan.root.place.arena.base)
    return browser["outputs"]


def wire(x: np.ndarray) -> dict[str, Any]:
    data = base64.b64encode(np.ascontiguousarray(x).tobytes()).decode()
    return {"type": str(x.dtype), "dims": x.shape, "data": data}


def peer(model: bytes) -> Any:
    return onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])


def agree(ours: list[list[float]], theirs: list[np.ndarray]) -> None:
    for got, want in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(np.array(got), want.ravel(), rtol=1e-3, atol=1e-4)


def test_both_planners_give_the_same_addresses_as_caches_grow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = Decoder(TINY, "fp32", empty=False).model().SerializeToString()
    theirs, runs, wanted = peer(model), [decoder_feeds(TINY, "fp32", 5, 0)], []
    names = [o.name for o in theirs.get_outputs()]
    for length in (*range(5, 45), 300, 301, 302, 20, 21):
        wanted.append(theirs.run(None, runs[-1]))
        caches = {n.replace("present", "past"): x for n, x in zip(names, wanted[-1], strict=True) if n != "logits"}
        grown = {n: np.resize(x, (*x.shape[:2], length, x.shape[3])) for n, x in caches.items()}
        runs.append(decoder_feeds(TINY, "fp32", 1, length) | grown)
    for ours, right in zip(compare(model, runs[:-1], tmp_path, monkeypatch), wanted, strict=True):
        agree(ours, right)


def test_both_planners_give_the_same_addresses_as_sizes_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sizes that are equal in one run differ in the next."""
    model = changing().SerializeToString()
    random, runs = np.random.default_rng(0), []
    for m, p, k, n in random.permutation(CHANGES * 3).tolist():
        shapes = {"a": (m, k), "b": (p, k), "c": (k, n)}
        runs.append({name: random.standard_normal(shape, dtype=np.float32) for name, shape in shapes.items()})
    found = compare(model, runs, tmp_path, monkeypatch)
    theirs = peer(model)
    for ours, feeds in zip(found, runs, strict=True):
        agree(ours, theirs.run(None, feeds))


@pytest.mark.parametrize(("number", "condition"), [("i", "And (on, below)"), ("t", "Identity (below)")])
def test_both_planners_give_the_same_addresses_in_loops(
    number: str, condition: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Values grow in each turn; 1,500 turns need more argument blocks than most runs."""
    made = onnx.parser.parse_model(LOOP.format(number=number, condition=condition)).SerializeToString()
    runs = [{"x": np.ones(2, np.float32), "trips": np.array(trips)} for trips in (0, 1, 60, 60, 1500)]
    theirs = peer(made)
    for ours, given in zip(compare(made, runs, tmp_path, monkeypatch), runs, strict=True):
        agree(ours, theirs.run(None, given))


def test_both_planners_reject_counts_of_over_32_bits(tmp_path: Path) -> None:
    model = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["": 20]>
        g (float[n] x, float[1] v) => (float[] y) <int64[1] many = {100000}> {
            s = Shape (x)  d = Concat<axis=0> (s, many)  e = Expand (v, d)  y = ReduceSum<keepdims=0> (e)
        }""")
    program, given = tmp_path / "model.pyrt", tmp_path / "feeds.json"
    program.write_bytes(InferenceSession(model.SerializeToString()).export(weights=True))
    x, v = np.zeros(30_000, np.float32), np.ones(1, np.float32)
    text = "a kernel would need the number 3000000000, the largest is 2147483647"
    with pytest.raises(ShapeError, match=text):
        InferenceSession(program).run(None, {"x": x, "v": v})
    given.write_text(json.dumps([{"x": wire(x), "v": wire(v)}]))
    with pytest.raises(subprocess.CalledProcessError) as found:
        node("record_plan.mjs", program, given)
    assert text in found.value.stderr


# ── borders of the GPU's buffers ──


def overlaps(a: tuple[int, int], b: tuple[int, int]) -> bool:
    return a[0] < b[1] and b[0] < a[1]


def check(step: dict[str, Any], answer: dict[str, Any]) -> None:
    """Check that no tensor crosses a border or overlaps another live one, and that the rest is free afterwards."""
    chunk, calls = step["chunk"], step["calls"]
    spans = [(a, a + t[0]) for a, t in zip(answer["addresses"], step["tenants"], strict=True)]
    for (start, end), (_, born, dies, before) in zip(spans, step["tenants"], strict=True):
        assert start >= GPU and start % ALIGN == 0
        assert (start - GPU) // chunk == (end - 1 - GPU) // chunk
        assert before in (-1, start)
        assert end <= answer["top"] and born <= dies
    lives = [(t[1], t[2] + 1) for t in step["tenants"]]
    for i in range(len(spans)):
        for j in range(i):
            assert not (overlaps(lives[i], lives[j]) and overlaps(spans[i], spans[j]))
    kept = [span for span, t in zip(spans, step["tenants"], strict=True) if t[2] >= calls]
    free = [(a, a + n) for a, n in answer["free"]]
    for start, end in free:
        assert (start - GPU) // chunk == (end - 1 - GPU) // chunk
        assert not any(overlaps((start, end), span) for span in kept)
    held = sum(end - start for start, end in (*kept, *free))
    old = {t[3]: t[0] for t in step["tenants"] if t[3] >= 0}
    used = step["end"] - GPU - sum(n for _, n in step["free"]) - sum(old.values())  # by tensors outside the step
    assert held + used == answer["end"] - GPU <= answer["top"] - GPU


CHUNK = 8 * ALIGN


def in_python(steps: list[Any]) -> list[Any]:
    """Like lay_out_steps.mjs."""
    answers = []
    for step in steps:
        arena = Arena(GPU, step["chunk"])
        ranges = [LiveRange(size, born, dies, address, True) for size, born, dies, address in step["tenants"]]
        arena.free, arena.end, arena.top = [(a, n) for a, n in step["free"]], step["end"], step["end"]
        lay_out(arena, ranges, step["calls"])
        addresses = [r.address for r in ranges]
        answers.append({"addresses": addresses, "free": arena.free, "end": arena.end, "top": arena.top})
    return answers


def in_javascript(steps: list[Any]) -> list[Any]:
    found: list[Any] = node("lay_out_steps.mjs", stdin=json.dumps(steps))
    return found


PLANNERS = pytest.mark.parametrize("planner", [in_python, in_javascript])


@PLANNERS
@pytest.mark.parametrize("size", [CHUNK - ALIGN, CHUNK])
@pytest.mark.parametrize("first", [0, ALIGN, CHUNK - ALIGN, CHUNK])
def test_tensors_at_a_border(first: int, size: int, planner: Any) -> None:
    """One that ends at it, begins at it, or would cross it."""
    tenants = [[n, 0, 1, -1] for n in (first, size, size) if n]
    step = {"chunk": CHUNK, "end": GPU, "free": [], "calls": 1, "tenants": tenants}
    (answer,) = planner([step])
    check(step, answer)
    chunks = [(a - GPU) // CHUNK for a in answer["addresses"]]
    assert len(set(chunks[-2:])) == 2


@PLANNERS
def test_random_steps_keep_the_borders(planner: Any) -> None:
    """Tensors from before the step, holes, tensors that outlive it; sizes up to a whole buffer."""
    draw = random.Random(0)
    steps = []
    for _ in range(300):
        calls = draw.randint(1, 6)
        tenants, free, at = [], [], GPU
        for _ in range(draw.randint(0, 6)):
            size = ALIGN * draw.randint(1, 8)
            left = CHUNK - (at - GPU) % CHUNK
            kind = draw.choice(["hole", "stays", "dies"])
            size = min(size, left)
            if kind == "hole" and not (free and sum(free[-1]) == at and (at - GPU) % CHUNK):
                free.append([at, size])
            elif kind == "dies":
                tenants.append([size, 0, draw.randint(0, calls), at])
            at += size
        for _ in range(draw.randint(1, 8)):
            born = draw.randrange(calls)
            tenants.append([ALIGN * draw.randint(1, 8), born, draw.randint(born, calls), -1])
        steps.append({"chunk": CHUNK, "end": at, "free": free, "calls": calls, "tenants": tenants})
    for step, answer in zip(steps, planner(steps), strict=True):
        check(step, answer)
