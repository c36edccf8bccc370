"""The options of a session, each declared once for Python, JavaScript and Pyodide.

JavaScript spells the names in camel case. `scripts/contract.py` writes the page's table of options, its types and
docs/api/options.md from the declarations in `SessionOptions`. The text below a field is its documentation; TypeScript
gets the first paragraph.
"""

from __future__ import annotations

import copy
import math
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from typing import Any, NamedTuple, TypeVar

from pyruntime.errors import InvalidInput

Options = TypeVar("Options", bound="SessionOptions")
LEVELS = ("disabled", "basic", "extended", "layout", "all")
NATIVE, PAGE, PYODIDE = "native", "page", "Pyodide"  # where sessions run
PROGRAM, LIMIT, SESSION = "program", "limit", "session"  # what options act on


class Preset(NamedTuple):
    """Settings of a preset, for options that are not set (docs/api/options.md has the table).

    native_threads, page_threads: the most threads of a session, which never has more than there are cores
    saves_power: the session uses a low-power GPU; its runs queue, and wait while the page is hidden
    """

    native_threads: float
    page_threads: float
    saves_power: bool = False


PRESETS = {
    "latency": Preset(math.inf, 4),  # more threads gain little, and the page has other work
    "throughput": Preset(1, math.inf),
    "power": Preset(1, 1, saves_power=True),
}


class Kind(NamedTuple):
    """The values that an option takes: in words, as a predicate, and one by one if they are few."""

    wants: str
    takes: Callable[[Any], bool]
    values: tuple[str, ...] = ()


def one_of(*values: str) -> Kind:
    wants = f"{', '.join(map(repr, values[:-1]))} or {values[-1]!r}"
    return Kind(wants, lambda value: isinstance(value, str) and value in values, values)


def instance(of: type | tuple[type, ...], wants: str) -> Kind:
    return Kind(wants, lambda value: isinstance(value, of))


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


COUNT = Kind("an integer from 0 on", lambda x: _is_integer(x) and x >= 0)
MOST_THREADS = 1024  # wasmtime ends the process if the system has no memory for another thread's stack of signals
THREADS = Kind(f"an integer from 0 to {MOST_THREADS}", lambda x: _is_integer(x) and 0 <= x <= MOST_THREADS)
BYTES = Kind("a number of bytes", lambda x: _is_integer(x) and x > 0)
SECONDS = Kind("a number of seconds", lambda x: (_is_integer(x) or isinstance(x, float)) and x > 0)
FLAG = Kind("True or False", lambda x: x in (True, False))
NAME = instance(str, "a name")
NAMES = Kind(
    "a list of names",
    lambda x: isinstance(x, Collection) and not isinstance(x, str) and all(isinstance(name, str) for name in x),
)
NATIVE_CODES = Kind("True, False, 'avx2' or 'avx512'", lambda x: x in (True, False, "avx2", "avx512"))
SIZES = instance(Mapping, "a dict of numbers by name")  # the graph checks the numbers
CHOICES = instance(Mapping, "the result of `tune`")
ADAPTERS = instance(Mapping, "a dict of adapters by name")
ENTRIES = instance(Mapping, "a dict of texts")
LOCATIONS = instance((str, Mapping), "'cpu' or 'gpu-buffer', for all outputs or by name")  # the session checks them


class UnknownOption(InvalidInput, AttributeError):
    """A program sets an attribute that is no option."""


def unknown_option(text: str, name: str, known: Collection[str]) -> UnknownOption:
    """The error for a name that is not among the known ones, with the one that has most of its words."""

    def alike(other: str) -> float:
        own, words = set(plain.split("_")), set(other.split("_"))
        return max(len(own & words) / len(own | words), float(plain.replace("_", "") == other.replace("_", "")))

    plain = "".join(f"_{c.lower()}" if c.isupper() else c for c in name)  # JavaScript spells it with capitals
    best = max(known, key=alike)
    return UnknownOption(
        text, hint=f'did you mean "{best}"?' if alike(best) >= 0.5 else f"there are {', '.join(known)}"
    )


class Option(NamedTuple):
    """The declaration of an option, besides the name, type and default of its field.

    kind: the values; if the default is None, None is a value, too
    acts_on: PROGRAM if the compiler reads it and writes other Programs by it, so that it is part of cache keys; LIMIT
        if it limits time or memory; SESSION otherwise
    places: where it can be set
    refused_for_programs: where it is an error in a session of a compiled Program, which cannot honour it
    refused_for_training: whether it is an error in a training session, whose steps have outputs and feeds of their own
    no_effect: why it changes nothing
    warns: whether a program that sets this value expects an effect, so that it gets a warning; the default never does
    """

    kind: Kind
    acts_on: str = SESSION
    places: tuple[str, ...] = (NATIVE, PAGE, PYODIDE)
    refused_for_programs: tuple[str, ...] = ()
    refused_for_training: bool = False
    no_effect: str = ""
    warns: Callable[[Any], bool] = bool


class Entry(NamedTuple):
    """An entry of the configuration that onnxruntime has as well. refused: why it cannot be on; places: where it has
    an effect, or needs none"""

    refused: str = ""
    places: tuple[str, ...] = (NATIVE, PAGE)


SESSION_ENTRIES = {
    "session.disable_program_cache": Entry(),
    "session.use_ort_model_bytes_directly": Entry(),  # onnxruntime-web itself adds it to the options of a program
    "session.load_model_format": Entry(),  # the first bytes of a file tell its format
    "session.model_external_initializers_file_folder_path": Entry(places=(NATIVE,)),
    "session.disable_cpu_ep_fallback": Entry("WebAssembly runs the nodes that no other provider supports"),
    "ep.context_enable": Entry("models are compiled into Programs; `pyruntime export` writes one"),
}
SHRINK = "memory.enable_memory_arena_shrinkage"  # the session is trimmed after the run
RUN_ENTRIES = {SHRINK: Entry()}


def without_effect(options: SessionOptions) -> list[str]:
    """A sentence for each option, and each entry of the configuration, that is set but changes nothing."""
    defaults, found = type(options)(), []
    for name, (_, _, _, _, _, why, warns) in declared(type(options)).items():
        value = getattr(options, name)
        if why and value != getattr(defaults, name) and warns(value):
            found.append(f'the session option "{name}" has no effect: {why}')
    unknown = [key for key in options.extra if key not in SESSION_ENTRIES]
    return found + [unknown_entry("session", key) for key in unknown]


def unknown_entry(of: str, key: str) -> str:
    return f'there is no {of} entry "{key}", it has no effect'


def option(default: Any, kind: Kind, acts_on: str = SESSION, **declared: Any) -> Any:
    """A field of `SessionOptions`. default: a value, or a function that makes one."""
    given = {"default_factory" if callable(default) else "default": default}
    return field(**given, metadata={"option": Option(kind, acts_on, **declared)})


@dataclass(slots=True)
class SessionOptions:
    """Options of a session. Values are checked when a session is created with them."""

    graph_optimization_level: str = option("all", one_of(*LEVELS), PROGRAM)
    """Which passes run: `disabled`, `basic` (constants) or `extended` (fusion, too); `layout` and `all` add nothing
    yet."""

    disabled_passes: Sequence[str] = option((), NAMES, PROGRAM)
    """Names of [passes](extending.md) that do not run."""

    free_dimension_overrides: dict[str, int] = option(dict, SIZES, PROGRAM)
    """Sizes of named dims of inputs, by name: the model is compiled for these sizes alone. A name that no input has
    gives a warning."""

    outputs: Sequence[str] | None = option(
        None, NAMES, PROGRAM, refused_for_programs=(NATIVE, PAGE), refused_for_training=True
    )
    """Names of the outputs that the session has; others are not computed, and their weights are not loaded.

    Inputs that these outputs do not need are no inputs of the session; feeds for them are ignored ([only what is asked
    for](api/runs.md#only-what-is-asked-for))."""

    keep_subnormals: bool = option(False, FLAG, PROGRAM, refused_for_programs=(NATIVE, PAGE))
    """Whether subnormal numbers, below 1.2e-38 in float32, stay exact ([why not](use/wrong.md#subnormal-numbers)).

    By default they are zero where they meet products and where calculations make them in bulk."""

    sample_from: str | None = option(
        None, NAME, PROGRAM, refused_for_programs=(NATIVE, PAGE), refused_for_training=True
    )
    """The name of the output of logits. The session returns a sampled `token` instead of it
    ([decoders](api/decoders.md))."""

    sample_positions: int = option(0, COUNT, PROGRAM, refused_for_programs=(NATIVE, PAGE), refused_for_training=True)
    """With `sample_from`: a token for each of so many last positions, with a penalty for earlier tokens.

    0: one token of the last position, without a penalty ([decoders](api/decoders.md))."""

    sample_masks: bool = option(False, FLAG, PROGRAM, refused_for_programs=(NATIVE, PAGE), refused_for_training=True)
    """With `sample_positions`: two more inputs say which tokens a position may have ([decoders](api/decoders.md))."""

    choices: Mapping[str, Mapping[str, int | str]] | None = option(
        None, CHOICES, PROGRAM, refused_for_programs=(NATIVE,)
    )
    """The schedules that `tune` measured for this model on this machine.

    Store them (in `localStorage`, say); caches keep the Program that is compiled with them like any other."""

    code_size_limit: int = option(256 << 20, BYTES, PROGRAM)
    """Bytes of code that one compilation may write. Beyond it `LimitExceeded` names the node or the pass."""

    compile_time_limit: float = option(600.0, SECONDS, LIMIT)
    """Seconds that one compilation may take. Beyond it `LimitExceeded` names the node or the pass."""

    memory_limit: int = option(1 << 32, BYTES, LIMIT)
    """Bytes of linear memory that the session may hold. A run that needs more is refused with `OutOfMemory` before it
    allocates.

    Before that, the session frees the Programs of other feeds. The default is no limit: each Program has 4 GiB, and
    [more memories](design/memory.md#weights-over-4-gib) if its weights need them. In a page a session that has a
    limit runs in the worker."""

    gpu_timeout: float = option(60.0, SECONDS, LIMIT)
    """Seconds without an answer of the GPU, after which the session [recovers](design/sessions.md#recovery): the GPU
    compiles a shader, or runs what was submitted.

    Also the seconds that the browser or the driver may take to open a device. After that the session is one without a
    GPU: it runs on the next provider of its list, or is refused with `NoAdapter`."""

    fallback: bool = option(True, FLAG)
    """Whether nodes, or the session, move to the next provider of the list if the GPU refuses a shader, has no memory,
    does not answer or is gone ([recovery](design/sessions.md#recovery)). If not, the error of the GPU is thrown."""

    intra_op_num_threads: int = option(0, THREADS, places=(NATIVE, PAGE))
    """Threads of a run; 0: the number of the [preset](api/options.md#presets). In a page only if it is cross-origin
    isolated."""

    preset: str | None = option(None, one_of(*PRESETS), places=(NATIVE, PAGE))
    """`latency`, `throughput` or `power`: sets threads, the choice of the GPU and runs in hidden pages, unless other
    options do ([presets](api/options.md#presets))."""

    preferred_output_location: str | Mapping[str, str] | None = option(
        None, LOCATIONS, places=(NATIVE, PAGE), refused_for_training=True
    )
    """`gpu-buffer`, for all outputs or by name, leaves outputs on the GPU: in buffers of [the
    page](api/gpu.md#the-pages-gpu), in
    Python as `GpuTensor`s."""

    relaxed_simd: bool | None = option(None, FLAG, places=(NATIVE,))
    """Whether kernels use relaxed SIMD. None: if the host has it."""

    native_code: bool | str = option(True, NATIVE_CODES, places=(NATIVE,))
    """Whether products and convolutions run in [machine code](design/native-code.md) where the processor has AVX2 or
    AVX-512, or which of the two: `avx2` or `avx512`. `explain` says what a session has, or why it has none.

    The environment variable `PYRUNTIME_NATIVE_CODE` (`off`, `avx2` or `avx512`) says what True means. Results of
    different code differ in the last digits."""

    share_weights: bool = option(False, FLAG, places=(NATIVE,))
    """Whether other processes of this user may map the weights, so that they are in RAM once
    ([processes](use/processes.md)).

    Sessions that are pickled share them anyway. Linux only, and not for sessions on the GPU."""

    adapters: Mapping[str, Any] = option(dict, ADAPTERS, places=(NATIVE, PYODIDE), refused_for_training=True)
    """[LoRA adapters](use/adapters.md) by names that runs give: paths of `.onnx_adapter` or `.safetensors` files,
    their bytes, or folders of PEFT."""

    extra: dict[str, Any] = option(dict, ENTRIES, places=(NATIVE,))
    """Entries of the configuration."""

    def __setattr__(self, name: str, value: Any) -> None:
        """None for an option that cannot be None is its default. Errors: UnknownOption"""
        own = self.__dataclass_fields__.get(name)
        if own is None and not isinstance(getattr(type(self), name, None), property):
            raise unknown_option(f"SessionOptions has no option {name!r}", name, [*self.__dataclass_fields__])
        if value is None and own is not None and own.default is not None:
            value = own.default if own.default_factory is MISSING else own.default_factory()
        object.__setattr__(self, name, value)

    def add_free_dimension_override_by_name(self, name: str, size: int) -> None:
        """The option under onnxruntime's name."""
        self.free_dimension_overrides[name] = size


def javascript_name(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(map(str.capitalize, others))


def from_javascript(given: Mapping[str, Any]) -> SessionOptions:
    """Options by their names in JavaScript; other entries are ignored."""
    names = {javascript_name(name): name for name in declared(SessionOptions)}
    return SessionOptions(**{names[key]: value for key, value in given.items() if key in names})


def declared(options: type[SessionOptions]) -> dict[str, Option]:
    """The declarations by name. A subclass may change a default."""
    found: dict[str, Option] = {}
    for base in reversed(options.__mro__):
        if is_dataclass(base):
            found |= {f.name: f.metadata["option"] for f in fields(base) if "option" in f.metadata}
    return found


def program_options(options: SessionOptions) -> dict[str, Any]:
    """The options on which a Program depends, for cache keys. Members of enumerations become texts."""
    chosen = {name: x.kind for name, x in declared(SessionOptions).items() if x.acts_on == PROGRAM}
    values = {name: getattr(options, name) for name in chosen}
    return {name: str(values[name]) if kind.values else values[name] for name, kind in chosen.items()}


def own(options: Options) -> Options:
    """A copy for one session: the caller may change the options for the next one."""
    found = copy.copy(options)
    for each in fields(found):
        if isinstance(value := getattr(found, each.name), (dict, list)):
            setattr(found, each.name, copy.copy(value))
    return found


def absolute(value: Any) -> Any:
    """A path from the root; other values as they are."""
    return os.path.abspath(value) if isinstance(value, (str, os.PathLike)) else value


def check_options(options: SessionOptions, place: str, of_program: bool = False) -> None:
    """of_program: the session is created from a compiled Program. Errors: InvalidInput names the option."""
    defaults = type(options)()
    for name, (kind, _, places, refused, _, _, _) in declared(type(options)).items():
        value, default = getattr(options, name), getattr(defaults, name)
        is_valid = kind.takes(value) or (value is None and default is None)
        hint = f"{kind.wants} or None" if default is None else kind.wants
        if place not in places:
            is_valid, hint = value == default, f"{default!r} in {place}"
        elif of_program and value and place in refused:
            is_valid, hint = False, f"{default!r} for a compiled Program"
        if not is_valid:
            raise InvalidInput(f"{name} cannot be {value!r}", hint=hint)


def check_training_options(options: SessionOptions | None) -> None:
    """Errors: InvalidInput names the option that a training session cannot honour."""
    if not isinstance(options, SessionOptions):
        return
    for name, option in declared(type(options)).items():
        value = getattr(options, name)
        if option.refused_for_training and value and value != "cpu":
            raise InvalidInput(f"{name} cannot be {value!r} for training", hint="an option of InferenceSession alone")


__all__ = [
    "ADAPTERS", "BYTES", "CHOICES", "COUNT", "ENTRIES", "FLAG", "LEVELS", "LIMIT", "LOCATIONS", "MOST_THREADS",
    "NAME", "NAMES", "NATIVE", "NATIVE_CODES", "PAGE", "PRESETS", "PROGRAM", "PYODIDE", "RUN_ENTRIES", "SECONDS",
    "SESSION", "SESSION_ENTRIES", "SHRINK", "SIZES", "THREADS", "Entry", "Kind", "Option", "Preset", "SessionOptions",
    "UnknownOption", "check_options", "check_training_options", "declared", "from_javascript", "instance",
    "javascript_name", "one_of", "option", "program_options", "unknown_entry", "unknown_option", "without_effect",
]  # fmt: skip
