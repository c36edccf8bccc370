"""The WebGPU provider: kernels become WGSL compute shaders."""

from .code_writer import GpuProvider

provider = GpuProvider()

__all__ = ["provider"]
