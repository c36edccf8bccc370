"""What the page's bundle holds: all of it is fetched and read before anything else happens."""

from __future__ import annotations

import json
import subprocess

import pytest

from kit.chromium import ROOT

LIMIT = 109_800  # bytes, minified: onnxruntime-common, the executor, the shared runtime, and the table of options


def parts(entry: str) -> dict[str, int]:
    """Bytes of each of our files in the minified bundle, by name."""
    script = """
      const [entry] = process.argv.slice(1);
      const how = { entryPoints: [entry], bundle: true, minify: true, mangleProps: /^_[a-z]/, format: 'esm' };
      const { build } = await import('esbuild');
      const { metafile } = await build({ ...how, target: 'es2022', metafile: true, write: false });
      console.log(JSON.stringify(Object.values(metafile.outputs)[0].inputs));
    """
    command = ["node", "--input-type=module", "-e", script, entry]
    out = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return {name: part["bytesInOutput"] for name, part in json.loads(out).items()}


@pytest.fixture(scope="module")
def page() -> dict[str, int]:
    return parts("web/index.js")


def test_page_has_no_code_for_the_worker_alone(page: dict[str, int]) -> None:
    """Programs run in the page, too; Python, downloads and what browsers keep are the worker's."""
    assert {name for name in page if name.startswith("web/worker/")} <= {"web/worker/build.js"}
    assert page["web/run/executor.js"] > 0


def test_size(page: dict[str, int]) -> None:
    assert sum(page.values()) < LIMIT
