"""Starts a server of models, and asks it to read a digit."""

import json
import subprocess
import sys
from pathlib import Path
from urllib.request import Request, urlopen


def ask(address: str) -> list[float]:
    image = {"name": "image", "shape": [1, 1, 28, 28], "datatype": "FP32", "data": [0.0] * 784}
    request = Request(
        f"{address}/models/digits/infer",
        json.dumps({"inputs": [image]}).encode(),
        {"Content-Type": "application/json"},
    )
    with urlopen(request) as answer:
        return json.load(answer)["outputs"][0]["data"]


if __name__ == "__main__":
    model = Path(__file__).with_name("digits.onnx")
    command = [Path(sys.executable).with_name("pyruntime"), "serve", f"--model=digits={model}", "--drain=0"]
    server = subprocess.Popen([*command, "--port=0", "--grpc-port=0"], stdout=subprocess.PIPE, text=True)
    address = server.stdout.readline().split()[2]  # the line says where it listens
    probabilities = ask(address)
    print(f"A blank is read as {probabilities.index(max(probabilities))}.")
    server.terminate()
    server.wait()
