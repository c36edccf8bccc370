"""The desktop runtime: sessions, feeds, memory and the executor of Programs."""

import sys
from importlib.util import find_spec

# Before any import of these packages elsewhere, whose error would have no hint.
if sys.platform == "emscripten":
    found = "from pyruntime import InferenceSession, SessionOptions"
    raise ModuleNotFoundError(f"the desktop's runtime needs wasmtime, for which there is no Pyodide ({found} works)")
if missing := [name for name in ("numpy", "wasmtime") if find_spec(name) is None]:
    are = "is" if len(missing) == 1 else "are"
    raise ModuleNotFoundError(f'{" and ".join(missing)} {are} not installed (pip install "pyruntime-onnx[native]")')
