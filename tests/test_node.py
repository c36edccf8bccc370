"""The JavaScript package where there is no Worker (browsers' entry, in Node.js): it says so; it can be imported."""

from __future__ import annotations

import json
import subprocess

import pytest

from kit.docs import ROOT
from pyruntime import __version__


def node(script: str) -> object:
    """What a script prints as JSON, with `ort` in scope."""
    command = ["node", "--no-warnings", "--input-type=module", "-e", f"import * as ort from './web/index.js'; {script}"]
    return json.loads(subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout)


@pytest.mark.parametrize("start", [
    "ort.InferenceSession.create('model.onnx')",
    "ort.InferenceSession.create('/model.pyrt')",
    "ort.InferenceSession.create(new Uint8Array(8))",
    "ort.InferenceSession.create('model.onnx', { externalData: ['weights.bin'] })",
    "ort.boot()",
    "ort.python('1')",
    "ort.stats()",
])  # fmt: skip
def test_what_would_start_the_engine_says_where_it_runs(start: str) -> None:
    tell = "(e) => [e instanceof ort.SessionFailed, e.message]"
    ours, message = node(f"console.log(JSON.stringify(await {start}.catch({tell})))")  # type: ignore[misc]
    assert ours and message == (
        "the engine needs a Worker, which this environment lacks "
        "(import engine.sw.js before, which runs it in a service worker, "
        "or create sessions in a page or a dedicated worker)\n"
        f"See {(ROOT / 'web/page/engine/errors.html').as_uri()}#SessionFailed"
    )


def test_the_version_is_the_packages() -> None:
    package = json.loads((ROOT / "package.json").read_text())
    assert node("console.log(JSON.stringify(ort.env.versions.web))") == package["version"] == __version__
