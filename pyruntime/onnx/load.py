"""The entry point of the model reader, for ONNX's format and ONNX Runtime's.

Spec: https://github.com/onnx/onnx/blob/main/docs/IR.md
"""

from __future__ import annotations

import os

from pyruntime.errors import InvalidModel
from pyruntime.onnx.file_kind import is_gguf, is_ort_format, not_onnx
from pyruntime.onnx.graph import Function, Graph, Source
from pyruntime.onnx.parse_functions import check_expansion, read_functions
from pyruntime.onnx.parse_graph import BodyReader, FunctionKey, Scope, read_opsets
from pyruntime.onnx.parse_tensors import TensorReader, entry
from pyruntime.onnx.protobuf import Fields, Wire, signed, tags
from pyruntime.onnx.sources import External, FileSource, MemorySource, OpenExternal, beside

NEWEST_IR = 14
IR_VERSION, GRAPH, OPSETS, PROPS, FUNCTIONS = 1, 7, 8, 14, 25
_MODEL = tags(varint="1 5", length="2 3 4 6 7 8 14 20 25 26")
FIRST_BYTES = frozenset(tag if tag < 128 else tag & 127 | 128 for tag in _MODEL)
_METADATA = {2: "producer_name", 3: "producer_version", 4: "domain", 6: "description"}

ModelData = bytes | bytearray | memoryview | str | os.PathLike[str] | Source


def load(data: ModelData, *, open_external: OpenExternal | None = None, require_data: bool = True) -> Graph:
    """Read a model from its bytes, its path, or a `Source` that is read in windows.

    open_external: returns the Source of an external data file by its location in the model; the default for a path is
        to look in the model's folder
    require_data: if False, a tensor without data becomes a Weight without source

    Errors: InvalidModel with the byte offset or the node at fault; OSError if the path cannot be read; TypeError
    """
    if isinstance(data, (str, os.PathLike)):
        source: Source = FileSource(data)
        open_external = open_external or beside(data)
    elif isinstance(data, (bytes, bytearray, memoryview)):
        source = MemorySource(data, "")
    elif hasattr(data, "read"):
        source = data
    else:
        raise TypeError(f"a model must be a path or bytes, not {type(data).__name__}")
    if is_ort_format(source):
        # Imported here to keep it out of a page's first download (docs/design/startup.md#rare-operators).
        from pyruntime.onnx.ort_format import read_ort_format

        return read_ort_format(source)
    if is_gguf(source):
        from pyruntime.onnx.gguf_decoder import read_gguf_graph

        return read_gguf_graph(source)
    wire = Wire(source, source.whole if isinstance(source, MemorySource) else None)
    tensors = TensorReader(wire, External(open_external), require_data=require_data)
    return _model(wire, tensors)


def _model(wire: Wire, tensors: TensorReader) -> Graph:
    try:
        found = wire.gather(0, wire.source.size, _MODEL)
        ir = signed(found[IR_VERSION][-1][1]) if IR_VERSION in found else 0
        if GRAPH not in found or not 1 <= ir:
            raise InvalidModel("this is not an ONNX model: it has no graph or no IR version")
    except InvalidModel as error:
        raise not_onnx(wire.source, FIRST_BYTES) or error from None
    if ir > NEWEST_IR:
        raise InvalidModel(f"the model has IR version {ir}, the newest supported is {NEWEST_IR}")
    opsets = read_opsets(wire, found.get(OPSETS, [])) or ({"": 1} if ir < 3 else {})
    functions: dict[FunctionKey, Function] = {}
    body = BodyReader(wire, tensors, ir, functions)
    expansions = read_functions(body, found.get(FUNCTIONS, []), opsets, functions)
    graph, doc = body.graph(*found[GRAPH][-1][1:], Scope(opsets))
    check_expansion(graph, expansions)
    return _with_metadata(wire, found, graph, ir, doc)


def _with_metadata(wire: Wire, found: Fields, graph: Graph, ir: int, doc: str) -> Graph:
    metadata = {"ir_version": str(ir), "graph_description": doc}
    for number, key in _METADATA.items():
        if number in found:
            metadata[key] = wire.bytes(*found[number][-1][1:]).decode(errors="replace")
    if 5 in found:
        metadata["model_version"] = str(signed(found[5][-1][1]))
    props = dict(entry(wire, a, b) for _, a, b in found.get(PROPS, ()))
    return Graph(
        graph.name, graph.inputs, graph.outputs, graph.nodes, graph.weights, graph.values, graph.functions,
        graph.opsets, metadata, props, notes=graph.notes,
    )  # fmt: skip
