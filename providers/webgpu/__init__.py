"""The WebGPU provider: kernels become WGSL compute shaders. `code_writer.GpuProvider` writes them for one adapter."""
