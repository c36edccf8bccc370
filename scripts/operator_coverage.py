"""python -m scripts.operator_coverage: how many of the operators that ONNX Runtime's CPU provider registers are known
here, by domain, and which are not. Prints the table and writes it into docs/operator-coverage.md; a test holds it."""

from __future__ import annotations

from pathlib import Path

from onnxruntime.capi import onnxruntime_pybind11_state as ort

import pyruntime.ops  # noqa: F401  fills the table
from pyruntime.frontend import registry

TARGET = Path(__file__).parents[1] / "docs/operator-coverage.md"
START, END = "<!-- table: scripts/operator_coverage.py -->\n", "<!-- end of the table -->\n"

_BETWEEN_DEVICES = "inserted by ONNX Runtime when it runs a model, never in a file"
_REORDERED = "in models that ONNX Runtime has optimised for one processor; open the original"

# Why an operator is not known. A test fails for one that is neither known nor here, and for one that is both.
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
    """Domain -> operators of `registered` that are not known here."""
    known = registry.table()
    return {domain: sorted(n for n in names if (domain, n) not in known) for domain, names in registered().items()}


def render() -> str:
    lines = ["| domain | ONNX Runtime | of them here | here in all |", "|---|---|---|---|"]
    known, lacking = registry.table(), missing()
    for domain, names in sorted(registered().items()):
        here = sum(d == domain for d, _ in known)
        lines.append(f"| `{domain or 'ai.onnx'}` | {len(names)} | {len(names) - len(lacking[domain])} | {here} |")
    lines += ["", "| not here | why |", "|---|---|"]
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
