"""`make quick`: the first case of every test function in tests/, except for slow functions.

`python -m pytest -p tests.quick tests` runs it. So every room is tested, and new tests are included automatically. All
other cases, the browser tests and the whole official suite run in `make test`.
"""

from __future__ import annotations

import pytest

# Functions whose first case takes more than a second on an idle core, or needs more than `make quick` installs
SLOW = """
tests/onnx_reader/test_models.py::test_node_models
tests/ops/test_conv.py::test_deform_conv_with_named_dims
tests/ops/test_random.py::test_multinomial
tests/ops/test_random.py::test_uniform_and_normal
tests/test_conformance.py::test_a_worker_that_hangs_or_dies_is_replaced
tests/test_docs_site.py::test_engineers_have_their_own_search
tests/test_docs_site.py::test_links_between_the_sites_lead_somewhere
tests/test_docs_site.py::test_nothing_is_cut
tests/test_docs_site.py::test_the_search_answers_users
tests/test_docs_site.py::test_the_sites_are_complete
tests/test_extending.py::test_what_is_left_out_does_not_run
tests/test_fuzz.py::test_cases
tests/test_growth.py::test_time_to_compile
tests/test_programs.py::test_a_program
tests/test_reports.py::test_files_that_do_not_fit_are_refused
tests/test_reports.py::test_javascript_explains_the_same
tests/test_reports.py::test_two_providers_are_told_apart
tests/test_session.py::test_no_python_per_kernel
tests/test_stop.py::test_runs_on_the_gpu
tests/test_wheel.py::test_the_wheel_holds_what_the_tree_does
tests/test_wheel.py::test_with_its_extra_it_runs_on_both_providers
tests/test_wheel.py::test_without_extras_it_says_what_is_missing
tests/wasm/test_attention.py::test_sizes_that_the_run_decides
tests/wasm/test_routines.py::test_products_of_few_bits
tests/wasm/test_spmd.py::test_a_call_that_could_get_freed_memory_starts_a_group
tests/wasm/test_spmd.py::test_a_word_stops_all_threads_within_a_kernel
tests/wasm/test_spmd.py::test_epochs_begin_again
tests/wasm/test_spmd.py::test_same_bits_on_any_number_of_threads
tests/wasm/test_spmd.py::test_the_leader_waits_for_nobody
tests/webgpu/test_buffers.py::test_growing
tests/webgpu/test_buffers.py::test_models
tests/webgpu/test_cache.py::test_cache_stays_on_the_gpu
tests/webgpu/test_cache.py::test_the_same_where_the_gpu_takes_part
tests/webgpu/test_conformance.py::test_as_listed
""".split()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the first case of each function that is not listed as slow; a listed function that does not exist is an
    error."""
    seen = set(SLOW)
    kept, dropped = [], []
    for item in items:
        function = item.nodeid.split("[")[0]
        (dropped if function in seen else kept).append(item)
        seen.add(function)
    missing = set(SLOW) - {item.nodeid.split("[")[0] for item in items}
    if missing and config.args == ["tests"]:
        raise pytest.UsageError(f"tests/quick.py: no such test: {', '.join(sorted(missing))}")
    config.hook.pytest_deselected(items=dropped)
    items[:] = kept
