"""What the bundles hold: all of the page's is fetched and read before anything else happens."""

from __future__ import annotations

import json
import subprocess

import pytest

from kit.chromium import ROOT

# Bytes, minified. The page: onnxruntime-common, the session API, the options. The built worker has Pyodide's loader.
PAGE, WORKER = 91_200, 223_400
TRAINING = "web/page/training/"
SHARED = {"memory_budget", "metrics", "trace", "trial"}  # of the runtime


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
    """Python, downloads and storage are the worker's; what runs Programs in the page is a file of its own."""
    assert {name for name in page if name.startswith("web/worker/")} <= {"web/worker/build.js"}
    assert not {name for name in page if name.startswith(("web/gpu/device", "web/run/executor"))}
    assert {name for name in page if "training" in name} <= {
        f"{TRAINING}load_code.js",
        f"{TRAINING}training_session.js",
    }
    runtime = {name for name in page if name.startswith("web/runtime/")}
    assert runtime <= {f"web/runtime/{name}.js" for name in SHARED}


def test_sizes(page: dict[str, int]) -> None:
    assert sum(page.values()) < PAGE
    assert (ROOT / "dist" / "worker.mjs").stat().st_size < WORKER
