"""`pyruntime adapters FILE [OUT]`: lists what is in a LoRA adapter, and converts it."""

from __future__ import annotations

from pathlib import Path

from pyruntime.cli.common import size
from pyruntime.cli.parser import Parser, check_out
from pyruntime.native.sessions.stored_arrays import NUMPY_ARRAYS, for_model
from pyruntime.onnx import load
from pyruntime.runtime.adapter_places import module_key
from pyruntime.training.adapters.adapted_graph import AdaptedGraph, adapted_graph
from pyruntime.training.adapters.adapter_file import Adapter, adapter_files
from pyruntime.training.adapters.lora_adapter import LoraAdapter

EXAMPLES = {
    "style.safetensors": "modules, ranks, sizes",
    "style.safetensors --model model.onnx": "where in the model they belong",
    "style.safetensors style.onnx_adapter": "for onnxruntime, with the names of PEFT",
    "style.safetensors style.onnx_adapter --model model.onnx": "with the names of the inputs that the model has for it",
    "style.onnx_adapter folder": "for PEFT",
}


def main(argv: list[str]) -> int:
    parser = Parser("adapters", "List what is in a LoRA adapter, and convert it.", EXAMPLES)
    parser.add_argument("adapter", type=Path, metavar="FILE", help=".onnx_adapter, .safetensors, or a folder of PEFT")
    text = "a file that ends in .onnx_adapter or .safetensors, or a folder for PEFT"
    parser.add_argument("out", type=Path, nargs="?", metavar="OUT", help=text)
    parser.add_argument("--model", type=Path, help="the ONNX model that the adapter belongs to")
    args = parser.parse_args(argv)
    adapter = LoraAdapter(args.adapter).loaded()
    graph = adapted_graph(load(args.model), {args.adapter.name: adapter}) if args.model else None
    if args.out is None:
        print("\n".join(_lines(adapter, graph)))
        return 0
    check_out(args.out, args.adapter)
    if graph is not None:
        adapter = for_model(adapter, graph)
    for path, data in adapter_files(args.out, adapter, NUMPY_ARRAYS.times).items():
        path.write_bytes(data)
        print(f"{path}: {size(len(data))}")
    return 0


def _lines(adapter: Adapter, graph: AdaptedGraph | None) -> list[str]:
    bytes_ = sum(len(memoryview(t.data).cast("B")) for t in adapter.tensors.values())
    types = ", ".join(sorted({t.dtype for t in adapter.tensors.values()}))
    lines = [f"{len(adapter.tensors)} tensors of {types}, {size(bytes_)}"]
    if adapter.config:
        shown = ("r", "lora_alpha", "use_rslora", "base_model_name_or_path")
        lines.append(", ".join(f"{name} {adapter.config[name]}" for name in shown if adapter.config.get(name)))
    for name, t in adapter.tensors.items():
        lines.append(f"  {name}  {t.dtype} {list(t.shape)}{_place(name, graph, adapter)}")
    return lines


def _place(name: str, graph: AdaptedGraph | None, adapter: Adapter) -> str:
    if graph is None:
        return ""
    if name in graph.shapes:
        return "  -> the input of this name"
    pair = next(p for p in adapter.pairs() if name in (p.a, p.b, p.magnitudes))
    if slot := graph.slots.get(module_key(pair.module)):
        return f"  -> input {slot[name == pair.b]}"
    return "  -> " + ", ".join(part.site.node.label for part in graph.parts(adapter, pair, "it"))
