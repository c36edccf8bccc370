"""The WebAssembly provider: kernels become one module, a function a distinct kernel."""

from .code_writer import WasmProvider

provider = WasmProvider()

__all__ = ["provider"]
