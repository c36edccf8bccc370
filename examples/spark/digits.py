"""Reads a table of pictures with Spark: batches of rows come by Arrow to a function in Python processes."""

import os
import sys
from pathlib import Path

import numpy as np
from pyspark.ml.functions import predict_batch_udf
from pyspark.sql import SparkSession
from pyspark.sql.functions import array, lit
from pyspark.sql.types import ArrayType, FloatType

from pyruntime import InferenceSession, SessionOptions

MODEL = str(Path(__file__).with_name("digits.onnx").resolve())


def opened():
    """The function that a Python process of Spark runs for each batch, made once."""
    session = InferenceSession(MODEL, SessionOptions(share_weights=True))  # large weights are in memory once
    return lambda images: session.run(None, {"image": images})[0]


if __name__ == "__main__":
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # or Spark starts the first `python3` of the path
    spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    read = predict_batch_udf(
        opened, return_type=ArrayType(FloatType()), batch_size=100, input_tensor_shapes=[[1, 28, 28]]
    )
    blank = array([lit(0.0).cast("float")] * 784)
    rows = spark.range(1000, numPartitions=4).select(read(blank).alias("probabilities")).collect()
    digits = {int(np.argmax(row.probabilities)) for row in rows}
    print(f"{len(rows)} blanks are read as {digits}.")
    spark.stop()
