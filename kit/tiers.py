"""Which tests run in `make test-all` only, nightly and before a release, and which of their cases `make test` runs too.

They test programs, frameworks and browsers of others and walk through the demo site. What finds faults of the engine
is in `make test` as a whole, and a case of each kind here, so that no main path is unguarded for a day. Of networks on
the GPU, `make test` leaves out two dear ones whose operators others have.
"""

from __future__ import annotations

# file -> the beginnings of the test names (behind "::") that `make test` runs
LATER: dict[str, tuple[str, ...]] = {
    # programs of others, unmodified
    "tests/test_programs.py": ("test_there_are_ten",),
    "e2e/test_programs.py": ("test_transformers[features-wasm-", "test_vad_of_a_recording"),
    # a server of others, which is large
    "tests/test_serving.py": (),
    # other browsers and runtimes
    "e2e/test_browsers.py": (
        "test_models[Firefox, isolated]",
        "test_models[WebKitGTK, isolated]",
        "test_the_readme_names_the_places",
    ),
    "e2e/test_node.py": ("test_program[node-", "test_the_program_of_the_documentation", "test_required"),
    "e2e/test_edge.py": ("test_from_files[node]", "test_what_a_module_cannot_hold", "test_lengths_of_sections"),
    # the stock Pyodide starts once for each way to run it
    "e2e/test_feature_table.py": (
        "test_features_that_meet",
        "test_pairs_that_are_refused",
        "test_in_pyodide[isolated, workers]",
    ),
    # pages that share memory and pages that do not differ by the feeds alone
    "e2e/test_workers.py": (
        "test_sessions_in_workers_of_their_own[isolated]",
        "test_limits_hold",
        "test_one_worker_for_all_tabs[isolated]",
        "test_the_shared_worker",
        "test_where_there_is",
    ),
    # bundlers and hosts
    "e2e/test_examples.py": ("test_readme[vite]", "test_all_are_complete", "test_generate"),
    "e2e/test_make_demo.py": (),
    # the demo site and the documentation's sites
    "e2e/test_demo.py": ("test_digits", "test_bring_your_own", "test_files_that_cannot_be_read"),
    "e2e/test_every_page.py": ("test_table_has_all_pages", "test_page[digits/]", "test_page[text/]"),
    "e2e/test_gpu_page.py": ("test_without_webgpu", "test_numbers_and_shaders"),
    "e2e/test_model_page.py": ("test_graph_times_and_code",),
    "e2e/test_site.py": ("test_claims", "test_playground"),
    "e2e/test_site_training.py": ("test_teach",),
    "tests/test_docs_site.py": (),
    # a suite that is fetched
    "tests/test_schema_suite.py": (),
}

# file -> cases of it that `make test` leaves out
LATER_CASES: dict[str, tuple[str, ...]] = {
    # its operators and forms of convolutions are in five other networks there; WebAssembly runs it in both tiers
    "tests/webgpu/test_models.py": ("test_model[densenet121]",),
    # half a minute of SwiftShader; it runs on the native GPU in both tiers
    "e2e/test_webgpu.py": ("test_model[whisper_tiny_encoder]",),
}


def is_later(node_id: str) -> bool:
    """Whether a test, by its pytest node id, runs in `make test-all` only."""
    path, _, name = node_id.partition("::")
    return path in LATER and not name.startswith(LATER[path]) or name in LATER_CASES.get(path, ())


def unmatched(node_ids: list[str]) -> list[str]:
    """Entries of the tables that name no test among the collected ones of their file."""
    names: dict[str, list[str]] = {}
    for path, _, name in (node_id.partition("::") for node_id in node_ids):
        names.setdefault(path, []).append(name)
    return [
        f"{path}::{beginning}"
        for path, beginnings in (*LATER.items(), *LATER_CASES.items())
        for beginning in beginnings
        if path in names and not any(name.startswith(beginning) for name in names[path])
    ]
