"""Reads pictures with Ray: a data set by Ray Data, and single requests by Ray Serve."""

from pathlib import Path

import numpy as np
import ray
from ray import serve

from pyruntime import InferenceSession


class Reader:
    """An actor. Ray sends the session as a value, and all actors of a machine have its weights in memory once."""

    def __init__(self, session):
        self.session = session

    def __call__(self, batch):
        (probabilities,) = self.session.run(None, {"image": batch["data"]})
        return {"digit": probabilities.argmax(1)}


@serve.deployment(num_replicas=2)
class Digits(Reader):
    def read(self, image):
        return int(self({"data": image[np.newaxis]})["digit"][0])


if __name__ == "__main__":
    ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False)
    session = InferenceSession(Path(__file__).with_name("digits.onnx"))

    blanks = ray.data.from_numpy(np.zeros((1000, 1, 28, 28), np.float32))
    digits = blanks.map_batches(Reader, fn_constructor_args=[session], batch_size=100, concurrency=2)
    found = [row["digit"] for row in digits.take_all()]
    print(f"Ray Data reads {len(found)} blanks as {set(map(int, found))}.")

    handle = serve.run(Digits.bind(session))
    print(f"Ray Serve reads a blank as {handle.read.remote(np.zeros((1, 28, 28), np.float32)).result()}.")
    serve.shutdown()
