"""Reads a table of pictures with Dask: each partition in a worker process, all with one copy of the weights."""

from pathlib import Path

import dask.dataframe as dd
import numpy as np
import pandas as pd
from dask.distributed import Client

from pyruntime import InferenceSession


def read(pictures, session):
    """A series with the digit of each row, for a part of the table."""
    images = pictures.to_numpy(np.float32).reshape(-1, 1, 28, 28)
    (probabilities,) = session.run(None, {"image": images})
    return pd.Series(probabilities.argmax(1), pictures.index)


if __name__ == "__main__":
    session = InferenceSession(Path(__file__).with_name("digits.onnx"))  # is sent to the workers as a value
    table = dd.from_pandas(pd.DataFrame(np.zeros((1000, 784), np.float32)), npartitions=8)
    with Client(n_workers=2, threads_per_worker=2, dashboard_address=None):
        digits = table.map_partitions(read, session, meta=pd.Series(dtype=np.int64)).compute()
    print(f"{len(digits)} blanks are read as {set(digits.tolist())}.")
