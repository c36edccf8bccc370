"""dist/provider_check.mjs, which checks providers in JavaScript: faults are told apart, good ones have no finding."""

from __future__ import annotations

import subprocess
from typing import Any

from e2e.conftest import Tab
from kit.chromium import ROOT

HOSTILE = {
    "none": "",
    "wrong": "job computes other values than WebAssembly (product)",
    "unwritten": "job leaves elements of an output unwritten (product)",
    "adds": "job reads its outputs (product)",
    "inputs": "job changes an input (product)",
    "counts": "job computes other values when it runs again (product)",
    "shares": "job computes other values with several sessions (product)",
    "throws": "job fails (product: Error: no device)",
    "closed": "close ends other sessions, too (product: ",
    "wavers": "supports changes its answers (product: ",
    "late": "the provider fails (product: provider ",
    "half": "runEnd is not written, but runStart is (without a run)",
    "again": "runEnd gets in the way when a job fails (product: ",
    "untyped": "options accept values of any type (without a run: device)",
    "idle": "supports takes no kernel of these models (1 models)",
    "endless": "the provider does not end (product: 1 s)",
}


def test_faults_of_providers_are_told_apart(page: Tab) -> None:
    found: Any = page.run(
        """
        const { checkProvider } = await import('/dist/provider_check.mjs');
        const rows = {};
        for (const fault of arg) {
          const more = { models: ['product'], limit: fault === 'endless' ? 1000 : 60000 };
          rows[fault] = (await checkProvider(ort, `/providers/hostile.js?fault=${fault}`, {}, more)).findings;
        }
        return rows;
        """,
        list(HOSTILE),
    )
    page.forgive("an error that the check made")
    for fault, expected in HOSTILE.items():
        assert len(found[fault]) == bool(expected) and "".join(found[fault]).startswith(expected), (fault, found[fault])


def test_the_command_that_checks_a_provider() -> None:
    """In Node.js, with all models, options, and what cannot be checked."""
    folder = ROOT / "e2e/pages/providers"
    for given, code, text in [
        (["products.js", "least=1"], 0, "Findings: 0. Kernels that it compiled: matmul"),
        (["layouts.js"], 0, "Findings: 0. Kernels that it compiled: matmul"),
        (["absent.js"], 2, "absent.js cannot be checked: cannot import the provider"),
        (["products.js", "most=1"], 2, 'products.js cannot be checked: provider "products'),
    ]:
        command = ["node", str(ROOT / "dist/provider_check.mjs"), *given]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)
        assert (done.returncode, text in done.stdout) == (code, True), (done.stdout, done.stderr)
