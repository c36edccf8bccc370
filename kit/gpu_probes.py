"""Shaders that measure what a GPU can do: copies of memory, and multiply-adds on registers in two forms.

Each has the bindings 0, an input, and 1, an output. The input of a copy is as large as its output. The input of the
others is four floats: factor, summand, iterations, unused; each invocation keeps eight vectors of four numbers, so that
one multiply-add need not wait for another.
"""

from __future__ import annotations

from typing import Any

ACCUMULATORS = 8
WORKGROUPS, INVOCATIONS = 4096, 64
COPIED = 64 << 20  # bytes: more than the caches of most GPUs

_COPY = """
@group(0) @binding(0) var<storage, read> a: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read_write> b: array<vec4<f32>>;
@compute @workgroup_size(256) fn main(@builtin(global_invocation_id) at: vec3<u32>) { b[at.x] = a[at.x]; }
"""
_ADDS = """
@group(0) @binding(0) var<storage, read> a: array<f32>;
@group(0) @binding(1) var<storage, read_write> b: array<f32>;
@compute @workgroup_size(%(invocations)d) fn main(@builtin(global_invocation_id) at: vec3<u32>) {
  let x = vec4<%(type)s>(%(type)s(a[0]));
  let y = vec4<%(type)s>(%(type)s(a[1]));
  let count = u32(a[2]);
%(starts)s
  for (var i = 0u; i < count; i++) {
%(steps)s
  }
  let sum = %(sum)s;
  b[at.x] = f32(sum.x + sum.y + sum.z + sum.w);
}
"""


def _adds(type_: str, step: str) -> str:
    numbers = range(ACCUMULATORS)
    return ("enable f16;" if type_ == "f16" else "") + _ADDS % {
        "type": type_,
        "invocations": INVOCATIONS,
        "starts": "\n".join(f"  var v{n} = vec4<{type_}>({type_}((at.x + {n}u) & 255u));" for n in numbers),
        "steps": "\n".join("    " + step.format(v=f"v{n}") for n in numbers),
        "sum": " + ".join(f"v{n}" for n in numbers),
    }


def _peak(type_: str) -> list[str]:
    return [_adds(type_, "{v} = {v} * x + y;"), _adds(type_, "{v} = fma({v}, x, y);")]


# sources: the fastest counts; flops: of an iteration of all invocations
PROBES: dict[str, dict[str, Any]] = {
    "copy": {"sources": [_COPY], "workgroups": COPIED // 16 // 256, "bytes": COPIED},
    "float32": {
        "sources": _peak("f32"),
        "workgroups": WORKGROUPS,
        "flops": WORKGROUPS * INVOCATIONS * ACCUMULATORS * 4 * 2,
    },
    "float16": {
        "sources": _peak("f16"),
        "workgroups": WORKGROUPS,
        "flops": WORKGROUPS * INVOCATIONS * ACCUMULATORS * 4 * 2,
    },
}
