"""The WebAssembly provider: writes one module, with a function for each distinct kernel."""

from .code_writer import WasmProvider

provider = WasmProvider()
