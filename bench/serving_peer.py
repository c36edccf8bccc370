"""The server of `pyruntime serve --model` with onnxruntime's session in it, for bench/serving.py: NAME=PATH …"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import onnxruntime

from pyruntime.serving.model import Limits, ServedModel
from pyruntime.serving.server import serve


class Session:
    """What the server asks of a session. onnxruntime stops between nodes, if at all, so its runs are not stopped."""

    state = "ready"

    def __init__(self, path: str) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self._session = onnxruntime.InferenceSession(path, options)
        self.get_inputs, self.get_outputs = self._session.get_inputs, self._session.get_outputs

    def run(self, names: list[str], feeds: dict[str, Any], _: object) -> list[Any]:
        found: list[Any] = self._session.run(names, feeds)
        return found

    def metrics(self) -> dict[str, float]:
        return {}

    def release(self) -> None:
        pass


if __name__ == "__main__":
    limits = Limits(body=2 << 20, drain=1)
    named = [argument.split("=") for argument in sys.argv[1:]]
    models: Any = [ServedModel(name, Session(path), limits) for name, path in named]  # type: ignore[arg-type]
    asyncio.run(serve(models, limits, "127.0.0.1", 0, 0))
