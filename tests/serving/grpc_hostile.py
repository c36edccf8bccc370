"""Wrong requests by gRPC: prints the status of each as JSON. Argument: the address of a server, whose requests may have
1 MB."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import grpc
from kserve.protocol.grpc.grpc_predict_v2_pb2 import ModelInferRequest, RepositoryModelUnloadRequest
from kserve.protocol.grpc.grpc_predict_v2_pb2_grpc import GRPCInferenceServiceStub


def request(
    model: str = "digits", name: str = "image", shape: tuple[int, ...] = (1, 1, 28, 28), datatype: str = "FP32",
    raw: bytes = bytes(3136), contents: dict[str, Any] | None = None, **options: Any,
) -> ModelInferRequest:  # fmt: skip
    given = {"name": name, "shape": shape, "datatype": datatype}
    if contents is not None:
        return ModelInferRequest(model_name=model, inputs=[{**given, "contents": contents}], **options)
    return ModelInferRequest(model_name=model, inputs=[given], raw_input_contents=[raw], **options)


def status(call: Callable[[Any], Any], message: Any, **options: Any) -> str:
    try:
        call(message, **options)
    except grpc.RpcError as error:
        return str(error.code().name)
    return "OK"


def main(address: str) -> None:
    stub = GRPCInferenceServiceStub(grpc.insecure_channel(address))
    requests = {
        "right": request(),
        "right, listed": request(contents={"fp32_contents": [0.0] * 784}),
        "another model": request(model="nothing"),
        "another input": request(name="x"),
        "another type": request(datatype="INT64", raw=bytes(6272)),
        "no type": request(datatype="?"),
        "truncated": request(raw=bytes(3135)),
        "too short": request(raw=bytes(3132)),
        "too long": request(raw=bytes(3140)),
        "negative shape": request(shape=(-1, 1, 28, 28)),
        "huge shape": request(shape=(1 << 62, 1, 28, 28)),
        "wrong shape": request(shape=(1, 1, 784, 1)),
        "wrong list": request(contents={"int_contents": [0] * 784}),
        "an output that is not there": request(outputs=[{"name": "x"}]),
        "no inputs": ModelInferRequest(model_name="digits"),
        "more contents than inputs": ModelInferRequest(model_name="digits", raw_input_contents=[b"", b""]),
        "a text as time-out": request(parameters={"timeout": {"string_param": "1"}}),
        "more than the limit": request(raw=bytes(2 << 20)),
    }
    found = {name: status(stub.ModelInfer, message) for name, message in requests.items()}
    found["unload"] = status(stub.RepositoryModelUnload, RepositoryModelUnloadRequest(model_name="digits"))
    endless = request("endless", "x", (1500, 1500), raw=bytes(9 << 20))
    found["a deadline"] = status(stub.ModelInfer, request("endless", "x", (64, 64), raw=bytes(1 << 14)), timeout=0.5)
    found["more than the limit, again"] = status(stub.ModelInfer, endless)
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1])
