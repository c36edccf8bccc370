"""The wheel in dist/ installs in any Pyodide by the package's own pyodide-lock.json."""

from __future__ import annotations

import subprocess

from kit.chromium import ROOT

SCRIPT = """
import { loadPyodide } from 'pyodide';
const pyodide = await loadPyodide({ lockFileURL: process.argv[1] + '/dist/pyodide-lock.json' });
await pyodide.loadPackage('pyruntime', { messageCallback: () => {} });
console.log(pyodide.runPython(`
import pyruntime, pyruntime.providers.wasm
from importlib.metadata import version
f"{version('pyruntime')} {pyruntime.__file__}"
`));
process.exit(0);
"""


def test_wheel_installs(built: None) -> None:
    command = ["node", "--input-type=module", "-e", SCRIPT, str(ROOT)]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    last = done.stdout.strip().splitlines()[-1]
    assert last.startswith("0.1.0 /lib/python3.14/site-packages/pyruntime/")
