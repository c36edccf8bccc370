"""`python -m bench start` in small: a visit's phases, files that come compressed, and a slow line."""

from __future__ import annotations

import time
import urllib.request
from pathlib import Path

from playwright.sync_api import Browser

from bench.chromium import MOUNTS
from bench.start import Bench
from bench.start_server import Server, compressed


def test_a_first_and_a_second_visit(built: None, browser: Browser) -> None:
    with Server(dict(MOUNTS), {}) as server:
        bench = Bench(server, browser, bits=1e6)
        times = bench.all(["lstm_tagger"], {"local": 1, "slow": 0})
    assert not bench.wrong
    assert {key[1:] for key, found in times.items() if len(found) == 1} == {
        (kind, whose) for kind in ("local", "second") for whose in ("ours", "peer")
    }
    (phases,) = bench.phases.visits
    whole = sum(took for name, took in phases.items() if not name.startswith(" "))
    assert abs(whole - times["lstm_tagger", "local", "ours"][0]) < 50
    for phase in ("worker started", "Python started", "engine imported", "model compiled", "first run done", "  read"):
        assert phases[phase] > 0, phase
        assert phase in bench.phases.table()
    assert {"the model", "python.image.wasm", "pyodide.asm.wasm"} <= bench.phases.fetches.keys()


def test_files_come_compressed_over_a_line(tmp_path: Path) -> None:
    file = tmp_path / "numbers.js"
    file.write_text("".join(f"{n * n} " for n in range(20_000)))
    packed = compressed([file])[file].read_bytes()
    with Server({"/": tmp_path}, compressed([file])) as server:
        address = f"{server.url}/numbers.js"
        with urllib.request.urlopen(address) as answer:
            assert (answer.headers["Content-Encoding"], answer.headers.get_content_type()) == ("br", "text/javascript")
            assert answer.read() == packed and len(packed) < file.stat().st_size / 2
        server.line.bits = 8 * len(packed) / 0.3
        start = time.monotonic()
        urllib.request.urlopen(address).read()
        assert time.monotonic() - start > 0.25
