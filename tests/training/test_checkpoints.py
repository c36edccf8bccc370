"""Checkpoints: a killed program leaves one that opens; other programs read and write the same files."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy

from kit.training_networks import batch, dense
from pyruntime import InvalidInput, TrainingSession
from pyruntime.training.files.safetensors import read, write
from pyruntime.training.session.file_writing import write_file

PROGRAM = """
import sys
from kit.training_networks import batch, dense
from pyruntime import TrainingSession
session, feeds = TrainingSession(dense(), loss={"cross_entropy": "y"}), batch(8)
if len(sys.argv) > 2:
    session.load(sys.argv[2])
while True:
    session.step(feeds)
    session.save(sys.argv[1])
    print(session._numbers.step, flush=True)
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="this system has no SIGKILL")
def test_a_killed_program_leaves_a_checkpoint(tmp_path: Path) -> None:
    """It is that of the last step that was saved, or of the next one; later programs go on with the same curve."""
    file, feeds, chance = tmp_path / "net.safetensors", batch(8), random.Random(0)
    with TrainingSession(dense(), loss={"cross_entropy": "y"}) as session:
        for _ in range(4):
            more = [str(file)] if file.exists() else []
            command = [sys.executable, "-c", PROGRAM, str(file), *more]
            with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
                assert child.stdout is not None
                saved = [child.stdout.readline() for _ in range(5)]
                time.sleep(chance.random() / 50)
                child.kill()
                saved += child.stdout.read().splitlines()
            assert child.returncode == -signal.SIGKILL
            last = [int(line) for line in saved if line.strip()][-1]
            session.load(file)
            step = session.step(feeds).step - 1
            assert step in (last, last + 1)
    with TrainingSession(dense(), loss={"cross_entropy": "y"}) as whole:
        for _ in range(step):
            whole.step(feeds)
        found = session_values(file)
        assert all(np.array_equal(x, found[n]) for n, x in whole.weights().items())
        whole.save(file)
    assert [f.name for f in tmp_path.iterdir()] == [file.name]  # `save` removes what the killed programs left


def session_values(file: Path) -> dict[str, np.ndarray]:
    """As the library reads them."""
    return dict(safetensors.numpy.load_file(file))


def test_the_library_reads_and_writes_them(tmp_path: Path) -> None:
    file = tmp_path / "net.safetensors"
    with TrainingSession(dense(), loss={"cross_entropy": "y"}) as session:
        session.step(batch(8))
        session.save(file)
        found, weights = session_values(file), session.weights()
        assert all(np.array_equal(found[n], x) for n, x in weights.items())
        assert {f"optimizer/{k}/{n}" for k in "mv" for n in weights} | weights.keys() == found.keys()
        with safetensors.safe_open(file, "np") as opened:
            assert opened.metadata()["step"] == "1" and opened.metadata()["optimizer"] == "adamw"
        doubled = {n: x * 2 for n, x in weights.items()} | {"other": np.zeros(3, np.uint8)}
        safetensors.numpy.save_file(doubled, file)
        with pytest.warns(RuntimeWarning, match='does not load: tensor "other"'):
            session.load(file)
        assert all(np.array_equal(x, 2 * weights[n]) for n, x in session.weights().items())
        safetensors.numpy.save_file({**doubled, "optimizer/m/w1": np.zeros(3, np.float32)}, file)
        with pytest.raises(InvalidInput, match=r'"optimizer/m/w1" has shape \[6, 8\], in the checkpoint \[3\]'):
            session.load(file)
        safetensors.numpy.save_file(doubled, file)
        data = file.read_bytes()
        for size in (0, 7, 60, len(data) - 1):
            with pytest.raises(InvalidInput, match="no safetensors file"):
                session.load(data[:size])
        assert all(np.array_equal(x, 2 * weights[n]) for n, x in session.weights().items())


def damaged_files() -> list[bytes]:
    places = [([-1, -4], [0, 16]), ([4.0], [0, 16]), ([4], [0.0, 16.0]), ([4], ["0", "16"]), ([True, 4], [0, 16])]
    headers = [json.dumps({"w1": {"dtype": "F32", "shape": s, "data_offsets": at}}).encode() for s, at in places]
    return [len(h).to_bytes(8, "little") + h + bytes(16) for h in headers]


@pytest.mark.parametrize("data", damaged_files())
def test_shapes_and_places_are_whole_numbers(data: bytes) -> None:
    with pytest.raises(InvalidInput, match="no safetensors file"):
        read(data)


@pytest.mark.parametrize("count", ["007x", "\u00b2", "-1", "9" * 400])
def test_counts_of_damaged_checkpoints(count: str) -> None:
    with TrainingSession(dense(), loss={"cross_entropy": "y"}) as session:
        tensors, metadata = read(session.state())
        with pytest.raises(InvalidInput, match="the checkpoint says step"):
            session.load(write(tensors, {**metadata, "step": count}))


def test_foreign_files_beside_a_checkpoint_stay(tmp_path: Path) -> None:
    foreign = tmp_path / ".net.mine.part"
    foreign.write_bytes(b"1")
    write_file(tmp_path / "net", b"2")
    assert foreign.read_bytes() == b"1" and (tmp_path / "net").read_bytes() == b"2"


def test_threads_write_one_file(tmp_path: Path) -> None:
    """Each writes a file of its own, and the last replaces the others'."""
    texts = [bytes([n]) * 200_000 for n in range(8)]
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda text: write_file(tmp_path / "net", text), texts))
    assert (tmp_path / "net").read_bytes() in texts and [p.name for p in tmp_path.iterdir()] == ["net"]


def test_weights_keep_their_type() -> None:
    with TrainingSession(dense(), loss={"cross_entropy": "y"}) as session:
        for dtype in (np.float64, np.float16, np.uint8):
            session.set_weights({n: np.ones(x.shape, dtype) for n, x in session.weights().items()})
            assert {x.dtype.name for x in session.weights().values()} == {"float32"}
            session.load(session.state())
        with pytest.raises(InvalidInput, match='"w1" needs numbers'):
            session.set_weights({"w1": np.full(session.weights()["w1"].shape, "a")})
