"""Writes the Python part of docs/compatibility.md: each public member of onnxruntime's module, and what it is here.

python -m scripts.compatibility

The names are those of the onnxruntime that is installed; what differs, has no effect or is refused is told in the
tables below. A name that is not here and not told of is an error, and so is a remark on a name that is none.
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
InferenceSession.get_tuning_results: nothing is tuned, the list is empty
InferenceSession.release_captured_graph: no graph is captured
InferenceSession.set_tuning_results: an empty list is taken, others are refused
IOBinding.synchronize_inputs: a run waits for what it needs
IOBinding.synchronize_outputs: what a run gave is there
SessionIOBinding.synchronize_inputs: a run waits for what it needs
SessionIOBinding.synchronize_outputs: what a run gave is there
RunOptions.add_run_config_entry: entries are kept
RunOptions.log_verbosity_level: verbose messages are of one kind
RunOptions.only_execute_path_to_fetches: results are the same
SessionOptions.clear_ep_context_data_read_func: there is none
OrtArenaCfg: each session plans its memory
create_and_register_allocator: each session plans its memory
create_and_register_allocator_v2: each session plans its memory
disable_telemetry_events: nothing is sent, ever
enable_telemetry_events: nothing is sent, ever
preload_dlls: there are no libraries to load
set_default_logger_verbosity: verbose messages are of one kind
set_global_thread_pool_sizes: each session has the threads that its options say
set_seed: a random operator without a seed takes one from its node's name: each run gives the same numbers
"""

DIFFERS = """
InferenceSession: takes bytearrays and exported Programs, too; `disabled_optimizers` is refused
InferenceSession.create_ortvalue_from_shape_and_type: on the CPU; zeros, where onnxruntime's memory is not initialised
InferenceSession.end_profiling: kernels of one run stand one after the other, each called on one thread
InferenceSession.get_modelmeta: of a Program that `export` wrote it is empty
InferenceSession.get_provider_options: what was given; options of providers have no effect
InferenceSession.run: numbers of lists that the input's type does not hold are refused, not cut off
InferenceSession.run_async: on a thread of its own; needs no second intra-op thread
InferenceSession.set_ep_dynamic_options: refused: providers have no options that change while a session lives
InferenceSession.set_providers: a Program that `export` wrote stays on its own
IOBinding.bind_input: on the CPU
IOBinding.bind_output: names are checked at once; "webgpu" leaves the output on the GPU
OrtDevice: made by names: `make`, or the class with the same arguments
OrtEpDevice.create_sync_stream: refused: there are no streams
OrtEpDevice.memory_info: of the CPU; memory of the GPU is refused
OrtValue.as_sparse_tensor: refused: sparse tensors are not supported
OrtValue.numpy: of bfloat16 and the small floats too, as ml_dtypes' arrays
OrtValue.ort_value_from_sparse_tensor: refused: sparse tensors are not supported
OrtValue.ortvalue_from_numpy: of strings, too; on the CPU
OrtValue.ortvalue_from_shape_and_type: on the CPU; zeros, where onnxruntime's memory is not initialised
OrtValue.update_inplace: another element type is refused, where onnxruntime copies its bytes
RunOptions.add_active_adapter: refused: LoRA adapters cannot be read
SessionOptions: values are checked when a session is made
SessionOptions.add_free_dimension_override_by_name: a name that no input has is warned of
SessionOptions.add_initializer: elements are copied; a name that is no initializer's is refused
SessionOptions.add_session_config_entry: the folder of external data acts, what asks for another engine is refused
SessionOptions.graph_optimization_level: what a level does is told in [api.md](api.md); texts are taken, too
SessionOptions.optimized_model_filepath: refused when set: an optimised model is no ONNX graph here; `session.export()`
SessionOptions.register_custom_ops_library: refused: operators are [added in Python](extending.md)
SessionOptions.set_ep_context_data_read_func: refused: there are no models with contexts of providers
SessionOptions.set_load_cancellation_flag: True is refused; Ctrl-C ends opening a session
SessionOptions.set_provider_selection_policy: PREFER_GPU and MAX_PERFORMANCE: the GPU where it pays
SessionOptions.set_provider_selection_policy_delegate: refused: name providers
GraphOptimizationLevel: members are equal to the texts that they stand for; `GraphOptimizationLevel(99)` works
get_available_providers: the CPU's first, so that programs which ask for all run there
get_build_info: of this package
get_device: always "CPU": where sessions run that ask for no provider
get_ep_devices: the vendor is this package
set_default_logger_severity: messages go to Python's logger "pyruntime"
"""

BORROWED = """
backend: that of an installed onnxruntime, on this engine; without one there is none
datasets: that of an installed onnxruntime; without one there is none
quantization: that of an installed onnxruntime, which calibrates on this engine; without one there is none
tools: those of an installed onnxruntime; without one there are none
transformers: those of an installed onnxruntime; models that its optimizer has sessions write are refused
"""
NOT_MEANT = {"capi", "contextlib", "import_capi_exception", "onnxruntime_validation"}  # imports of the module's own


def table(text: str) -> dict[str, str]:
    return dict(line.split(": ", 1) for line in text.strip().splitlines())


def public(thing: Any) -> list[str]:
    """Members of a class: of its own and of its bases, members of an enumeration too."""
    found = [name for name in dir(thing) if not name.startswith("_")]
    return sorted(set(found) - {"name", "value"} if hasattr(thing, "__members__") else found)


def theirs() -> Iterator[tuple[str, Any]]:
    """Names of the module and of its packages, and what each is there."""
    for name in dir(onnxruntime):
        if not name.startswith("_") and name not in NOT_MEANT and not isinstance(vars(onnxruntime)[name], ModuleType):
            yield name, vars(onnxruntime)[name]
    for module in pkgutil.iter_modules(onnxruntime.__path__):
        if module.name not in NOT_MEANT:
            yield module.name, None


def rows() -> list[tuple[str, str]]:
    """(name, remark) of each member. Errors: LookupError naming those that nothing is known of."""
    options = {f"SessionOptions.{name}": option.no_effect for name, option in declared(SessionOptions).items()}
    no_effect = table(NO_EFFECT) | {name: text for name, text in options.items() if text}
    remarks = {
        **{name: f"no effect: {text}" for name, text in no_effect.items()},
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
        raise LookupError(f"nothing is known of {missing}; these are no names: {[*remarks]}")
    return found


def is_error(kind: Any) -> bool:
    return inspect.isclass(kind) and issubclass(kind, Exception)


def ours() -> Any:
    """Names that `pyruntime.onnxruntime` has itself: it cannot be imported beside the real one."""
    return type("ours", (), {"package_name": "", "version": "", "cuda_version": ""})


def written() -> str:
    """The page with the Python part made anew."""
    lines = ["| | |", "|---|---|"]
    for name, remark in rows():
        there = getattr(onnxruntime, name.partition(".")[0], None)
        if not (remark == "same" and "." in name and isinstance(there, type) and is_enum(there)):
            lines.append(f"| `{name}` | {remark} |")
    errors = ", ".join(f"`{name}`" for name in sorted(ERRORS))
    lines += ["", "Members of enumerations are the same. Exceptions (`onnxruntime.capi.onnxruntime_pybind11_state`): "]
    lines[-1] += f"{errors} are bases of [ours](api.md#errors)."
    before, rest = text_of(PAGE).split(BEGIN)
    return before + BEGIN + "\n".join(lines) + END + rest.split(END, 1)[1]


def is_enum(kind: type[Any]) -> bool:
    return hasattr(kind, "__members__") or issubclass(kind, Enum)


if __name__ == "__main__":
    (ROOT / PAGE).write_text(written())
