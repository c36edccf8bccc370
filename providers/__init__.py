"""The engine's own providers, which write code. The engine knows their names from here alone."""

BASE = "wasm"  # supports every kernel
GPU = "webgpu"
ENGINES = (BASE, GPU)
ALIASES = {"CPUExecutionProvider": BASE, "cpu": BASE, "WebGpuExecutionProvider": GPU}
