"""What the native WebGPU adapter can do, by the shaders of kit/gpu_probes.py. demo/gpu/probes.js is the twin."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import wgpu
from wgpu.backends.wgpu_native import lib

from kit.gpu_probes import COPIED

LONG = 0.02  # seconds of a measurement, at least
RUNS = 5  # the fastest counts: other work makes a machine slower, never faster
MOST = 1 << 14  # iterations of a loop
_STORAGE = wgpu.BufferUsage.STORAGE | wgpu.BufferUsage.COPY_DST | wgpu.BufferUsage.COPY_SRC


class Probes:
    """device: has timestamp-query if `timestamps`"""

    def __init__(self, device: Any, timestamps: bool) -> None:
        self.device = device
        self.timestamps = timestamps
        self.input, self.output = (device.create_buffer(size=COPIED, usage=_STORAGE) for _ in range(2))

    def peak(self, probe: dict[str, Any]) -> float:
        """Operations a second, of the fastest form."""
        return max(self._rate(source, probe["workgroups"], probe["flops"]) for source in probe["sources"])

    def copies(self, probe: dict[str, Any]) -> float:
        """Bytes a second, read and written."""
        run, repeat = self._prepared(probe["sources"][0], probe["workgroups"]), 1
        while run(repeat) < LONG and repeat < MOST:
            repeat *= 2
        return 2 * probe["bytes"] * repeat / min(run(repeat) for _ in range(RUNS))

    def _rate(self, source: str, workgroups: int, flops: int) -> float:
        run, iterations = self._prepared(source, workgroups), 8
        while True:
            numbers = np.array([0.999, 0.001, iterations, 0], np.float32)
            self.device.queue.write_buffer(self.input, 0, numbers)
            if run(1) >= LONG or iterations >= MOST:
                return flops * iterations / min(run(1) for _ in range(RUNS))
            iterations *= 2

    def _prepared(self, source: str, workgroups: int) -> Any:
        """A function that runs a shader some times, and returns the seconds."""
        module = self.device.create_shader_module(code=source)
        pipeline = self.device.create_compute_pipeline(layout="auto", compute={"module": module, "entry_point": "main"})
        bound = [{"binding": n, "resource": {"buffer": b}} for n, b in enumerate((self.input, self.output))]
        group = self.device.create_bind_group(layout=pipeline.get_bind_group_layout(0), entries=bound)

        def run(repeat: int) -> float:
            encoder, queries = self.device.create_command_encoder(), None
            options: dict[str, Any] = {}
            if self.timestamps:
                queries = self.device.create_query_set(type="timestamp", count=2)
                options = {"timestamp_writes": {
                    "query_set": queries, "beginning_of_pass_write_index": 0, "end_of_pass_write_index": 1,
                }}  # fmt: skip
            started = encoder.begin_compute_pass(**options)
            started.set_pipeline(pipeline)
            started.set_bind_group(0, group)
            for _ in range(repeat):
                started.dispatch_workgroups(workgroups)
            started.end()
            return self._seconds(encoder, queries)

        return run

    def _seconds(self, encoder: Any, queries: Any) -> float:
        """Submit, wait, and return the seconds by the adapter's clock, else by ours."""
        usage = wgpu.BufferUsage.QUERY_RESOLVE | wgpu.BufferUsage.COPY_SRC
        read = self.device.create_buffer(size=16, usage=usage)
        if queries:
            encoder.resolve_query_set(queries, 0, 2, read, 0)
        start = time.perf_counter()
        self.device.queue.submit([encoder.finish()])
        first, last = self.device.queue.read_buffer(read).cast("Q")
        if not queries:
            return time.perf_counter() - start
        period: float = lib.wgpuQueueGetTimestampPeriod(self.device.queue._internal)
        return (last - first) * period / 1e9
