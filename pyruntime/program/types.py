"""Types of a Program's header. Written by scripts/contract.py from pyruntime/program/schema.json."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NotRequired, TypedDict, final


@final
class Input(TypedDict):
    name: str
    item: NotRequired[int]
    buffer: int
    dtype: str
    dims: Dims
    room: NotRequired[InputRoom]


@final
class InputRoom(TypedDict):
    """Capacity along an axis: its symbol, the least for a run, new rows that may overwrite rows, rows to keep these."""

    axis: int
    places: str
    least: Dim
    mixed: NotRequired[Dim]
    undo: NotRequired[Dim]


@final
class Room(TypedDict):
    """The tensor is the start, along an axis, of a buffer with this capacity there."""

    axis: int
    places: Dim


@final
class Output(TypedDict):
    name: str
    value: Value
    updates: NotRequired[Buffers]


@final
class Buffer(TypedDict):
    size: Dim
    host: NotRequired[bool]
    memory: NotRequired[str]
    further: NotRequired[Further]


@final
class TensorValue(TypedDict):
    buffer: int
    dtype: str
    dims: Dims
    room: NotRequired[Room]


@final
class SequenceValue(TypedDict):
    items: list[TensorValue]


@final
class SourceConstant(TypedDict):
    """Bytes of the model's file (source "") or of an external one."""

    buffer: int
    dtype: str
    source: str
    offset: int
    size: int
    unpack: int
    signed: bool
    flush: NotRequired[bool]


@final
class BlobConstant(TypedDict):
    buffer: int
    dtype: str
    blob: Place
    unpack: int
    signed: bool
    flush: NotRequired[bool]


@final
class StringConstant(TypedDict):
    buffer: int
    dtype: Literal["string"]
    strings: list[str]


@final
class ZeroConstant(TypedDict):
    buffer: int
    dtype: str
    zeros: bool


@final
class Block(TypedDict):
    inputs: list[TensorValue]
    unused: list[int]
    steps: list[Step]
    outputs: list[TensorValue]


@final
class Call(TypedDict):
    node: str
    kernel: str
    buffers: Buffers
    params: list[Dim]
    work: Dim
    inplace: list[list[int]]
    alloc: Buffers
    free: Buffers
    updates: NotRequired[Buffers]


@final
class WasmStep(TypedDict):
    op: Literal["wasm"]
    fn: str
    calls: list[Call]
    fork: NotRequired[Dim]


@final
class GpuStep(TypedDict):
    """One queue submission."""

    op: Literal["gpu"]
    fn: str
    calls: list[Call]


@final
class CopyStep(TypedDict):
    """Copies tensors to another memory: source, and target, which the step allocates."""

    op: Literal["copy"]
    to: str
    pairs: list[list[TensorValue]]
    free: Buffers


@final
class ReadStep(TypedDict):
    """Sets symbols to the elements of an integer or bool tensor."""

    op: Literal["read"]
    node: str
    value: TensorValue
    symbols: list[str]
    free: Buffers


@final
class HostStep(TypedDict):
    """Calls a Python function."""

    op: Literal["host"]
    node: str
    fn: str
    id: int
    inputs: list[MaybeTensor]
    outputs: list[TensorValue]
    binds: Binds
    free: Buffers


@final
class IfStep(TypedDict):
    op: Literal["if"]
    node: str
    condition: TensorValue
    then: int
    orelse: int
    outputs: Buffers
    binds: Binds
    free: Buffers


@final
class LoopStep(TypedDict):
    op: Literal["loop"]
    node: str
    trip: MaybeTensor
    condition: MaybeTensor
    carried: list[TensorValue]
    body: int
    outputs: list[TensorValue]
    enters: Binds
    binds: Binds
    free: Buffers
    repeat: NotRequired[Repeat]


@final
class Repeat(TypedDict):
    """A function that runs steps of a loop's body, and the buffer of the loop in which it finds addresses."""

    fn: str
    buffer: int


@final
class Explained(TypedDict):
    """The table that explain evaluates (explain.md)."""

    operators: list[Mapping[str, Any]]
    placement: Mapping[str, int]
    kernels: int
    functions: int
    steps: int
    code: int
    nodes: list[ExplainedNode]


@final
class ExplainedNode(TypedDict):
    """Entries that are empty or 0 are omitted."""

    node: str
    op: str
    place: NotRequired[str]
    kernels: NotRequired[list[str]]
    calls: NotRequired[int]
    fused: NotRequired[list[str]]
    into: NotRequired[str]
    work: NotRequired[Dim]
    crossing: NotRequired[Dim]
    why: NotRequired[str]
    loop: NotRequired[str]


@final
class Types(TypedDict):
    """In a file: inputs and outputs as the model declares them."""

    inputs: list[Type]
    outputs: list[Type]
    uses: NotRequired[Mapping[str, list[str]]]
    unused: NotRequired[list[str]]
    metadata: NotRequired[Mapping[str, Any]]
    adapters: NotRequired[Mapping[str, Any]]


@final
class HostCall(TypedDict):
    attrs: Mapping[str, Any]
    inputs: list[str | None]
    outputs: list[str]


@final
class Needs(TypedDict):
    """In a file with shaders: what a GPU adapter must have to run them."""

    f16: bool
    subgroups: bool
    dot4: NotRequired[bool]
    storage_buffers: int
    binding_bytes: int
    shared_bytes: int
    iterations: NotRequired[int]


@final
class ModelFile(TypedDict):
    """In a file without weights in the blob: the model file beside it."""

    file: str
    size: int
    crc32: int


@final
class Header(TypedDict):
    name: str
    modules: Mapping[str, Place]
    inputs: list[Input]
    outputs: list[Output]
    buffers: list[Buffer]
    constants: list[Constant]
    guards: list[Guard]
    checked: list[str]
    blocks: list[Block]
    symbols: Mapping[str, str]
    dims: NotRequired[list[NamedDim]]
    memories: NotRequired[list[int]]
    states: NotRequired[Mapping[str, TensorValue]]
    explain: Explained
    types: NotRequired[Types]
    threads: NotRequired[int]
    host: NotRequired[list[HostCall]]
    model: NotRequired[ModelFile]
    files: NotRequired[list[ModelFile]]
    needs: NotRequired[Needs]
    fallback: NotRequired[Mapping[str, Any]]


Place = list[int]
Dim = int | str | list[Any]
NamedDim = list[Any]
Dims = list[Dim]
Further = list[int]
Value = TensorValue | SequenceValue | None
MaybeTensor = TensorValue | None
Constant = SourceConstant | BlobConstant | StringConstant | ZeroConstant
Guard = list[Any]
Binds = list[list[Any]]
Buffers = list[int]
Step = WasmStep | GpuStep | CopyStep | ReadStep | HostStep | IfStep | LoopStep
Type = Mapping[str, Any]
