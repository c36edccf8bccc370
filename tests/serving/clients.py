"""KServe's own clients, REST and gRPC, against a server: prints what they found as JSON. Arguments: the addresses."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import numpy as np
from kserve import InferenceGRPCClient, InferenceRESTClient, InferInput, InferRequest, RESTConfig
from kserve.protocol.infer_type import RequestedOutput

IMAGES = np.random.default_rng(0).random((3, 1, 28, 28), np.float32)


def request(binary: bool, **options: Any) -> InferRequest:
    given = InferInput("image", list(IMAGES.shape), "FP32")
    given.set_data_from_numpy(IMAGES, binary_data=binary)
    return InferRequest(model_name="digits", infer_inputs=[given], request_id="7", **options)


async def by_rest(address: str) -> dict[str, Any]:
    client = InferenceRESTClient(RESTConfig(protocol="v2", retries=0))
    binary = {"request_outputs": [RequestedOutput("probabilities", {"binary_data": True})]}
    answers = [
        await client.infer(address, request(in_binary, **(binary if out_binary else {})), model_name="digits")
        for in_binary in (False, True)
        for out_binary in (False, True)
    ]
    ready = [
        await client.is_server_live(address),
        await client.is_server_ready(address),
        await client.is_model_ready(address, "digits"),
    ]
    return {"ready": ready, "ids": [a.id for a in answers], "outputs": [a.outputs[0].as_numpy() for a in answers]}


async def by_grpc(address: str) -> dict[str, Any]:
    client = InferenceGRPCClient(address, retries=0)
    answers = [await client.infer(request(binary)) for binary in (False, True)]
    ready = [await client.is_server_live(), await client.is_server_ready(), await client.is_model_ready("digits")]
    await client.close()
    return {"ready": ready, "ids": [a.id for a in answers], "outputs": [a.outputs[0].as_numpy() for a in answers]}


async def main(rest: str, grpc: str) -> None:
    found = {"rest": await by_rest(rest), "grpc": await by_grpc(grpc)}
    print(json.dumps(found, default=lambda x: x.tolist()))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
