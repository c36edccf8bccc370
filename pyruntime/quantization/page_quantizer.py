"""`quantize` in a page: Python reads the model and decides in the worker, and the page runs the steps on its sessions
(web/page/training/quantize.js)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from pyruntime.errors import our_fault
from pyruntime.onnx.edit import FileModel
from pyruntime.onnx.graph import Source
from pyruntime.onnx.piece_source import PieceSource
from pyruntime.onnx.sources import External, OpenExternal
from pyruntime.quantization.options import Options, StaticOptions
from pyruntime.quantization.quantized import Quantized
from pyruntime.quantization.static import static
from pyruntime.quantization.steps import Run, Steps, quantised

# Options and steps by the name that the page gives
_FORMS: dict[str, tuple[Callable[..., Any], Callable[..., Steps[Quantized]]]] = {
    "weights": (Options, quantised),
    "static": (StaticOptions, static),
}


class PageQuantizer:
    """A quantisation whose steps JavaScript runs one by one."""

    def __init__(self, source: Source, open_external: OpenExternal, options: Mapping[str, Any]) -> None:
        external = External(open_external)
        read, make = _FORMS[options["form"]]
        given = read(**{name: x for name, x in options.items() if name != "form"})
        self._steps = make(lambda: FileModel(source, external), given)
        self._file: PieceSource | None = None

    def next(self, answer: Any) -> dict[str, Any]:
        """The next step, after the answer to the last one (None at first). kind: run, expected, numbers, each, or
        done with the report; size: bytes of the file that `read` then reads"""
        with our_fault("quantising the model"):
            try:
                step = self._steps.send(answer)
            except StopIteration as end:
                found = end.value
                self._file = found.file
                layers = [{**asdict(layer), "shape": list(layer.shape)} for layer in found.layers]
                return {"kind": "done", "size": found.size, "report": {"layers": layers, "errors": found.errors}}
        if isinstance(step, Run):
            return {"kind": "run", "model": step.model, "feeds": {x: [*feed] for x, feed in step.feeds.items()}}
        self._file = step.file
        return {"kind": step.how, "size": step.file.size, "models": step.models, "most": step.most}

    def read(self, offset: int, size: int) -> bytes:
        """Bytes of the file of the last step."""
        assert self._file is not None
        return self._file.read(offset, size)
