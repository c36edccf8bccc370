"""The WebGPU provider: kernels become WGSL compute shaders."""

from .builder import GpuProvider

provider = GpuProvider()

__all__ = ["provider"]
