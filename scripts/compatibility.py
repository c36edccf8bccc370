"""Writes the Python part of docs/compatibility.md: each public member of onnxruntime's module, and how ours differs.

python -m scripts.compatibility

The names are those of the installed onnxruntime. Errors: a name of onnxruntime's that is neither in this package nor in
the tables below; a remark on a name that does not exist.
"""

from __future__ import annotations

import inspect
import pkgutil
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from types import ModuleType
from typing import Any

import onnxruntime
from onnxruntime.capi import onnxruntime_pybind11_state as extension

from kit.house import ROOT, text_of
from pyruntime.api import refused
from pyruntime.api.names import ERRORS, NAMES
from pyruntime.api.options import SessionOptions
from pyruntime.options import declared

PAGE = Path("docs/compatibility.md")
BEGIN = "<!-- Python: scripts/compatibility.py -->\n"
END = "\n<!-- end of Python -->"

NO_EFFECT = """
InferenceSession.release_captured_graph: no graph is captured
InferenceSession.set_tuning_results: an empty list is taken, others are refused
IOBinding.synchronize_inputs: a run waits for its inputs
IOBinding.synchronize_outputs: outputs are complete when a run returns
SessionIOBinding.synchronize_inputs: a run waits for its inputs
SessionIOBinding.synchronize_outputs: outputs are complete when a run returns
RunOptions.log_verbosity_level: verbose messages have no levels
SessionOptions.clear_ep_context_data_read_func: there is no such function
OrtArenaCfg: each session plans its memory
create_and_register_allocator: each session plans its memory
create_and_register_allocator_v2: each session plans its memory
disable_telemetry_events: this package sends nothing
enable_telemetry_events: this package sends nothing
preload_dlls: there are no libraries to load
set_default_logger_verbosity: verbose messages have no levels
set_global_thread_pool_sizes: the options of a session decide its threads
set_seed: a random operator without a seed derives one from the name of its node: runs give equal numbers
"""

DIFFERS = """
InferenceSession: also takes bytearrays and exported Programs; `disabled_optimizers` is refused
InferenceSession.create_ortvalue_from_shape_and_type: on the CPU; zeros, while onnxruntime leaves memory uninitialised
InferenceSession.end_profiling: the trace shows the kernels of a run one after the other, each on one thread
InferenceSession.get_modelmeta: has `producer_version`, `ir_version` and `opset_imports`, too
InferenceSession.get_tuning_results: an empty list: it has results of GPU providers; `tune` returns `choices` here
InferenceSession.get_provider_options: the options that the program passed
InferenceSession.run: refuses numbers in lists that the input's type cannot represent, and does not truncate them
InferenceSession.run_async: runs on a thread of its own, and needs no second intra-op thread
InferenceSession.set_ep_dynamic_options: refused: options of providers cannot change during a session
InferenceSession.set_providers: does not change the providers of a Program that `export` wrote
IOBinding.bind_input: on the CPU
IOBinding.bind_output: names are checked at once; "webgpu" leaves the output on the GPU
OrtDevice: `make`, or the class with the same arguments, takes names
OrtEpDevice.create_sync_stream: refused: streams are not supported
OrtEpDevice.memory_info: that of the CPU; memory of the GPU is refused
OrtValue.numpy: bfloat16 and the small floats, too, as arrays of ml_dtypes' types
OrtValue.ort_value_from_sparse_tensor: kernels get the dense form, also of sparse feeds, and of SciPy's
OrtValue.ortvalue_from_numpy: strings, too; on the CPU
OrtValue.ortvalue_from_shape_and_type: on the CPU; zeros, while onnxruntime leaves memory uninitialised
OrtValue.update_inplace: another element type is refused, while onnxruntime copies its bytes
SparseTensor.to_cuda: refused: sparse tensors stay on the CPU
RunOptions.add_run_config_entry: memory.enable_memory_arena_shrinkage acts; others give a warning
RunOptions.only_execute_path_to_fetches: every run does ([how](api/runs.md#only-what-is-asked-for))
RunOptions.add_active_adapter: takes names of the option `adapters`, and a weight, too ([adapters](use/adapters.md))
LoraAdapter: also reads safetensors files and folders of PEFT
AdapterFormat: in `import pyruntime.onnxruntime`
SessionOptions: values are checked when a session is created
SessionOptions.add_free_dimension_override_by_name: a name that no input has gives a warning
SessionOptions.add_initializer: elements are copied; a name that no initializer has is refused
SessionOptions.add_session_config_entry: a few act; entries for other engines are refused, others give a warning
SessionOptions.graph_optimization_level: [the option](api/options.md) says what a level does; texts are values, too
SessionOptions.optimized_model_filepath: folds constants and removes dead nodes; fusions are in `session.export()`
SessionOptions.register_custom_ops_library: refused: operators are [added in Python](extending.md)
SessionOptions.set_ep_context_data_read_func: refused: models with EP contexts (code of a provider) are not supported
SessionOptions.set_load_cancellation_flag: True is refused; Ctrl-C ends opening a session
SessionOptions.set_provider_selection_policy: PREFER_GPU and MAX_PERFORMANCE: the GPU where it pays
SessionOptions.set_provider_selection_policy_delegate: refused: name providers
GraphOptimizationLevel: members are equal to their texts; `GraphOptimizationLevel(99)` works
get_available_providers: the CPU comes first, so that programs that ask for all providers run there
get_build_info: describes this package
get_device: always "CPU", where sessions without providers run
get_ep_devices: the vendor is this package
set_default_logger_severity: messages go to Python's logger "pyruntime"
"""

BORROWED = """
backend: that of an installed onnxruntime, on this engine; absent without one
datasets: that of an installed onnxruntime; absent without one
quantization: that of an installed onnxruntime, which calibrates on this engine; absent without one
tools: those of an installed onnxruntime; absent without one
transformers: those of an installed onnxruntime; its optimizer cannot let sessions write models
"""
PRIVATE = {
    "capi",
    "contextlib",
    "import_capi_exception",
    "onnxruntime_validation",
}  # names that the module imports for its own use


def table(text: str) -> dict[str, str]:
    return dict(line.split(": ", 1) for line in text.strip().splitlines())


def public(thing: Any) -> list[str]:
    """Return the public members of a class, including inherited ones and those of an enumeration."""
    found = [name for name in dir(thing) if not name.startswith("_")]
    return sorted(set(found) - {"name", "value"} if hasattr(thing, "__members__") else found)


def theirs() -> Iterator[tuple[str, Any]]:
    """Names in the module and of its packages, and their values."""
    for name in dir(onnxruntime):
        if not name.startswith("_") and name not in PRIVATE and not isinstance(vars(onnxruntime)[name], ModuleType):
            yield name, vars(onnxruntime)[name]
    for module in pkgutil.iter_modules(onnxruntime.__path__):
        if module.name not in PRIVATE:
            yield module.name, None


def rows() -> list[tuple[str, str]]:
    """(name, remark) of each member. Errors: LookupError for members without a remark, and remarks without a member."""
    options = {f"SessionOptions.{name}": option.no_effect for name, option in declared(SessionOptions).items()}
    remarks = {
        **{name: f"no effect: {text}" for name, text in table(NO_EFFECT).items()},
        **{name: f"no effect, with a warning: {text}" for name, text in options.items() if text},
        **{name: text if text.startswith("refused") else f"differs: {text}" for name, text in table(DIFFERS).items()},
        **{name: f"differs: {text}" for name, text in table(BORROWED).items()},
        **{name: f"refused: {'; '.join(filter(None, reason))}" for name, reason in refused.REASONS.items()},
    }
    found, missing = [], []
    for name, there in theirs():
        here = NAMES.get(name, vars(ours()).get(name))
        if here is None and name not in table(BORROWED):
            missing.append(name)
        found.append((name, remarks.pop(name, "same")))
        if inspect.isclass(there) and name not in refused.REASONS:
            for member in public(there):
                full = f"{name}.{member}"
                if not (hasattr(here, member) or member in getattr(here, "__dataclass_fields__", {})):
                    missing.append(full)
                found.append((full, remarks.pop(full, "same")))
    missing += [f"{name} of capi" for name, kind in vars(extension).items() if is_error(kind) and name not in ERRORS]
    if missing or remarks:
        raise LookupError(f"no remark on {missing}; no member {[*remarks]}")
    return found


def is_error(kind: Any) -> bool:
    return inspect.isclass(kind) and issubclass(kind, Exception)


def ours() -> Any:
    """The names that `pyruntime.onnxruntime` itself defines. It cannot be imported beside the real onnxruntime."""
    return type("ours", (), {"package_name": "", "version": "", "cuda_version": ""})


def written() -> str:
    """The page with a fresh Python part."""
    lines, same = ["| | |", "|---|---|"], dict[str, list[str]]()
    for name, remark in rows():
        owner, _, member = name.rpartition(".")
        there = getattr(onnxruntime, owner, None)
        if remark != "same":
            lines.append(f"| `{name}` | {remark} |")
        elif not (isinstance(there, type) and is_enum(there)):
            same.setdefault(owner, []).append(f"`{member}`")
    lines += [f"| {f'of `{owner}`: ' * bool(owner)}{', '.join(names)} | same |" for owner, names in same.items()]
    errors = ", ".join(f"`{name}`" for name in sorted(ERRORS))
    lines += ["", "Members of enumerations are the same. Exceptions (`onnxruntime.capi.onnxruntime_pybind11_state`): "]
    lines[-1] += f"{errors} are bases of [ours](errors/README.md)."
    before, rest = text_of(PAGE).split(BEGIN)
    return before + BEGIN + "\n".join(lines) + END + rest.split(END, 1)[1]


def is_enum(kind: type[Any]) -> bool:
    return hasattr(kind, "__members__") or issubclass(kind, Enum)


if __name__ == "__main__":
    (ROOT / PAGE).write_text(written())
