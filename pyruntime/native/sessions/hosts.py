"""What a session runs on natively: linear memory, the GPU, and who writes code for them."""

from __future__ import annotations

from typing import Any

from pyruntime.native.gpu.device import gpu_engine, open_gpu


def engines(options: Any, preset: Any, wants_gpu: bool, choices: Any, **of_host: Any) -> tuple[Any, Any, list[Any]]:
    """Linear memory, the GPU or None, and the providers that write code for them; of_host: what this host is not."""
    from pyruntime.providers.wasm import provider
    from pyruntime.providers.wasm.wasmtime_host import WasmHost

    threads = options.intra_op_num_threads or preset.threads
    host = WasmHost(threads=threads, relaxed=options.relaxed_simd)
    writer = provider.code_writer(**host.target | of_host, choices=choices)
    gpu = open_gpu(preset.low_power) if wants_gpu else None
    return host, gpu, [(provider, writer), *([] if gpu is None else [gpu_engine(gpu, choices)])]


__all__ = ["engines"]
