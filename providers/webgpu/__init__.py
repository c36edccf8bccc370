"""The WebGPU provider: kernels become WGSL compute shaders. `code_writer.GpuProvider` is made for an adapter."""
