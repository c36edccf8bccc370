"""The expected answers of explain(), metrics() and memory() of a training session, on the desktop, in a page and in
Pyodide."""

from __future__ import annotations

# By whether the session has the option `memory`: before a step, after it, and after release. A row has the provider,
# the number of runs (metrics() of a released session is left out), and what memory() has; or the error.
FIRST = "SessionFailed: this model is compiled when it first runs"
RELEASED = "SessionFailed: "
AFTER = ["wasm", 1, "weights and peak"]
REPORTS = {
    "a Program for all batches": [["wasm", 0, "weights"], AFTER, [RELEASED, None, RELEASED]],
    "a Program for each size of batch": [[FIRST, 0, FIRST], AFTER, [RELEASED, None, RELEASED]],
}
MEMORY = [None, 1 << 24]  # the option, in this order


def check_reports(found: list[list[list[object]]]) -> None:
    """found: rows as above, with whole texts of errors"""
    for rows, wanted in zip(found, REPORTS.values(), strict=True):
        for row, want in zip(rows, wanted, strict=True):
            assert [str(a).startswith(str(b)) for a, b in zip(row, want, strict=True)] == [True] * 3, (row, want)
