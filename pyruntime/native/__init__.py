"""The desktop runtime: sessions, feeds, memory and the executor of Programs."""

from importlib.util import find_spec

# Before any module of ours asks for them by itself, without a hint.
if missing := [name for name in ("numpy", "wasmtime") if find_spec(name) is None]:
    are = "is" if len(missing) == 1 else "are"
    raise ModuleNotFoundError(f'{" and ".join(missing)} {are} not installed (pip install "pyruntime[native]")')
