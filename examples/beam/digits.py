"""Reads pictures with Apache Beam, by its own handler of ONNX models, which imports onnxruntime."""

from pathlib import Path

import apache_beam as beam
import numpy as np
from apache_beam.ml.inference.base import RunInference

import pyruntime.onnxruntime  # noqa: F401  from here on `import onnxruntime` finds this package

from apache_beam.ml.inference.onnx_inference import OnnxModelHandlerNumpy  # isort: skip

MODEL = Path(__file__).with_name("digits.onnx")

if __name__ == "__main__":
    handler = OnnxModelHandlerNumpy(str(MODEL), min_batch_size=50, max_batch_size=100)
    with beam.Pipeline() as pipeline:
        (
            pipeline
            | beam.Create([np.zeros((1, 28, 28), np.float32)] * 1000)
            | RunInference(handler)
            | beam.Map(lambda result: int(np.argmax(result.inference)))
            | beam.combiners.Count.PerElement()
            | beam.MapTuple(lambda digit, count: print(f"{count} blanks are read as {digit}."))
        )
