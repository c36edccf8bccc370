"""Counts, by domain, the operators of ONNX Runtime's CPU provider that the engine supports, and lists the others.

python -m scripts.operator_coverage prints the table and writes it into docs/operator-coverage.md; a test compares it.
"""

from __future__ import annotations

from pathlib import Path

from onnxruntime.capi import onnxruntime_pybind11_state as ort

import pyruntime.ops  # noqa: F401  registers the operators
from pyruntime.frontend import registry

TARGET = Path(__file__).parents[1] / "docs/operator-coverage.md"
START, END = "<!-- table: scripts/operator_coverage.py -->\n", "<!-- end of the table -->\n"

_BETWEEN_DEVICES = "inserted by ONNX Runtime when it runs a model, never in a file"
_REORDERED = "only in models that ONNX Runtime has optimised for one processor; open the original model"

# Why an operator is not supported. A test fails unless these are exactly the unsupported ones.
REASONS = {
    "MemcpyFromHost": _BETWEEN_DEVICES,
    "MemcpyToHost": _BETWEEN_DEVICES,
}


def registered() -> dict[str, set[str]]:
    """Domain -> operators for which ONNX Runtime's CPU provider has kernels."""
    found: dict[str, set[str]] = {}
    for kernel in ort.get_all_opkernel_def():
        if kernel.provider == "CPUExecutionProvider":
            found.setdefault(kernel.domain, set()).add(kernel.op_name)
    return found


def missing() -> dict[str, list[str]]:
    """Domain -> operators of `registered` that the engine does not support."""
    known = registry.table()
    return {domain: sorted(n for n in names if (domain, n) not in known) for domain, names in registered().items()}


def render() -> str:
    lines = ["| domain | in ONNX Runtime | of these supported | supported in all |", "|---|---|---|---|"]
    supported, lacking = registry.table(), missing()
    for domain, names in sorted(registered().items()):
        total = sum(d == domain for d, _ in supported)
        lines.append(f"| `{domain or 'ai.onnx'}` | {len(names)} | {len(names) - len(lacking[domain])} | {total} |")
    lines += ["", "| not supported | reason |", "|---|---|"]
    for domain, names in sorted(lacking.items()):
        if domain == "com.microsoft.nchwc":
            lines.append(f"| all of `{domain}` | {_REORDERED} |")
        else:
            lines += [f"| `{domain + '.' if domain else ''}{name}` | {REASONS[name]} |" for name in names]
    return "\n".join(lines) + "\n"


def main() -> None:
    before, _, rest = TARGET.read_text().partition(START)
    _, _, after = rest.partition(END)
    print(render(), end="")
    TARGET.write_text(before + START + render() + END + after)


if __name__ == "__main__":
    main()
