"""How fast a WebGPU adapter reads a buffer, and multiplies and adds: the best of a few dispatches of two shaders."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import numpy as np

BYTES = 1 << 24  # of the buffer that is read
GROUPS, LANES, TURNS = 64, 64, 4096
TRIES = 8
SUMS = 8  # of an invocation: products that do not wait for each other
_HEAD = """@group(0) @binding(0) var<storage, read> given: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read_write> sums: array<f32>;
@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
"""
# Eight invocations read neighbouring vec4s, the others other ranges: with all 64 side by side llvmpipe, which runs
# eight at a time, takes four times as long.
_READ = f"""  let count = {BYTES // 16 // GROUPS // LANES}u;
  let begin = group.x * {LANES}u * count + (lane / 8u) * 8u * count + lane % 8u;
  var sum = vec4<f32>();
  for (var n = 0u; n < count; n++) {{ sum += given[begin + n * 8u]; }}
  sums[group.x * {LANES}u + lane] = dot(sum, vec4<f32>(1.0));
}}
"""
_MULTIPLY = f"""  let x = given[lane].x;
  let y = given[lane].y;
  {" ".join(f"var s{n} = x + {n}.0;" for n in range(SUMS))}
  for (var n = 0u; n < {TURNS}u; n++) {{ {" ".join(f"s{n} = fma(s{n}, x, y);" for n in range(SUMS))} }}
  sums[group.x * {LANES}u + lane] = {" + ".join(f"s{n}" for n in range(SUMS))};
}}
"""
SHADERS = {"read": _HEAD + _READ, "multiply": _HEAD + _MULTIPLY}
WORK = {"read": BYTES, "multiply": 2 * GROUPS * LANES * TURNS * SUMS}


class Speed(NamedTuple):
    """Bytes read, and floating-point operations, a second."""

    read: float
    multiply: float


def in_page(page: Any) -> Speed:
    """Of the adapter of a page of the bench, by its clock."""
    what = {"bytes": BYTES, "groups": GROUPS, "lanes": LANES, "tries": TRIES, "shaders": SHADERS}
    milliseconds = page.evaluate("(what) => bench.adapterTimes(what)", what)
    return Speed(**{name: 1000 * WORK[name] / milliseconds[name] for name in SHADERS})


def natively() -> Speed:
    """Of the native adapter, by processor time, for adapters that compute on the CPU."""
    import wgpu

    device = wgpu.gpu.request_adapter_sync(power_preference="high-performance").request_device_sync()
    usage = wgpu.BufferUsage.STORAGE | wgpu.BufferUsage.COPY_SRC
    given = device.create_buffer_with_data(data=np.ones(BYTES // 4, np.float32), usage=usage)
    sums = device.create_buffer(size=4 * GROUPS * LANES, usage=usage)
    best = {}
    for name, code in SHADERS.items():
        module = device.create_shader_module(code=code)
        pipeline = device.create_compute_pipeline(layout="auto", compute={"module": module, "entry_point": "main"})
        entries = [{"binding": n, "resource": {"buffer": buffer}} for n, buffer in enumerate((given, sums))]
        group = device.create_bind_group(layout=pipeline.get_bind_group_layout(0), entries=entries)
        best[name] = min(_seconds(device, pipeline, group, sums) for _ in range(TRIES))
    return Speed(**{name: WORK[name] / seconds for name, seconds in best.items()})


def _seconds(device: Any, pipeline: Any, group: Any, sums: Any) -> float:
    begin = time.process_time()
    encoder = device.create_command_encoder()
    compute = encoder.begin_compute_pass()
    compute.set_pipeline(pipeline)
    compute.set_bind_group(0, group)
    compute.dispatch_workgroups(GROUPS)
    compute.end()
    device.queue.submit([encoder.finish()])
    device.queue.read_buffer(sums, 0, 4)
    return time.process_time() - begin
