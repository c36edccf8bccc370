"""Runs Python in a stock Pyodide, in a worker in Chromium, with the wheel that micropip installs there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser

from kit.chromium import ROOT
from pyruntime.cli.serve import Server

# Calls `main` of a program, with a text and with files in /models.
RUN = """
async function found(pyodide, program, arg, files, waits) {
  pyodide.FS.mkdir('/models');
  for (const [name, bytes] of files) pyodide.FS.writeFile(`/models/${name}`, bytes);
  pyodide.runPython(program);
  const main = pyodide.globals.get('main');
  return waits ? main.callPromising(arg) : main(arg);
}
"""
BROWSER = """
const bytes = async (path) => new Uint8Array(await (await fetch(path)).arrayBuffer());
const text = async (path) => (await fetch(path)).text();
async function all({ wheel, tools, program, arg, names, waits, installs, jspi }) {
  if (!jspi) for (const name of ['Suspending', 'promising']) delete WebAssembly[name];
  const { loadPyodide } = await import('/pyodide/pyodide.mjs');
  const pyodide = await loadPyodide({ indexURL: '/pyodide/' });
  for (const tool of tools) pyodide.unpackArchive((await bytes(`/tools/${tool}`)).buffer, 'wheel');
  const address = new URL(`/dist/${wheel}`, location.origin);
  if (installs) await pyodide.runPythonAsync(`import micropip; await micropip.install("${address}")`);
  const files = await Promise.all(names.map(async (name) => [name, await bytes(`/models/${name}`)]));
  const given = arg.replace(/https:\\/\\/example[^\\\\]+whl/, address);
  return found(pyodide, await text(`/pages/${program}`), given, files, waits);
}
"""
WORKER = "onmessage = ({ data }) => all(data).then(postMessage, (error) => postMessage(String(error)));"
ASK = """(arg) => new Promise((resolve) => {
  const worker = new Worker('/worker.mjs', { type: 'module' });
  worker.onmessage = ({ data }) => resolve(data);
  worker.postMessage(arg);
})"""


def run_in_worker(
    browser: Browser, folder: Path, models: Path, program: str, arg: str, *, isolated: bool = True,
    in_page: bool = False, waits: bool = False, installs: bool = True, jspi: bool = True,
) -> Any:  # fmt: skip
    """What `main(arg)` of e2e/pages/`program` returns, which is JSON. folder: an empty one; models: files in /models.
    Nothing of the page's own is loaded: the wheel brings the executor. isolated: whether the page is cross-origin
    isolated; in_page: in the page itself instead of a worker; waits: whether plain calls in the program can wait for
    promises; installs: whether the wheel is installed before; its address takes the
    place of one at example.com in `arg`; jspi: whether the browser switches stacks"""
    (folder / "index.html").write_text('<link rel="icon" href="data:,">')
    (folder / "worker.mjs").write_text(RUN + BROWSER + WORKER)
    (wheel,) = (ROOT / "dist").glob("*.whl")
    tools = ROOT / "build/programs/pyodide"
    mounts = {"/": folder, "/models/": models, "/pyodide/": ROOT / "node_modules/pyodide", "/dist/": ROOT / "dist",
              "/pages/": ROOT / "e2e/pages", "/tools/": tools}  # fmt: skip
    given = {
        "wheel": wheel.name, "tools": [tool.name for tool in tools.iterdir()], "program": program, "arg": arg,
        "names": [file.name for file in models.iterdir() if file.is_file()], "waits": waits,
        "installs": installs, "jspi": jspi,
    }  # fmt: skip
    with Server(mounts, isolated=isolated) as server:
        page = browser.new_page()
        try:
            page.goto(f"{server.url}/index.html")
            found = page.evaluate(f"(arg) => {{ {RUN} {BROWSER} return all(arg); }}" if in_page else ASK, given)
        finally:
            page.close()
    try:
        return json.loads(found)
    except ValueError:
        raise AssertionError(found) from None
