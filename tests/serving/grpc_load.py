"""Sends requests by gRPC one after another, until the server has gone: prints the number of answers, and the status of
what was not answered. Argument: the address."""

from __future__ import annotations

import json
import sys

import grpc
from kserve.protocol.grpc.grpc_predict_v2_pb2 import ServerReadyRequest
from kserve.protocol.grpc.grpc_predict_v2_pb2_grpc import GRPCInferenceServiceStub

from tests.serving.grpc_hostile import request


def main(address: str) -> None:
    stub = GRPCInferenceServiceStub(grpc.insecure_channel(address))
    answered, refused, unready = 0, "", 0
    print("begins", flush=True)
    while not refused and not unready:  # as a balancer does, which takes servers out that are not ready
        try:
            answered += len(stub.ModelInfer(request()).outputs)
            unready += not stub.ServerReady(ServerReadyRequest()).ready
        except grpc.RpcError as error:
            refused = error.code().name
    print(json.dumps({"answered": answered, "refused": refused}))


if __name__ == "__main__":
    main(sys.argv[1])
