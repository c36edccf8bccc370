"""Sparse tensors: onnxruntime's class beside ours, and what sessions make of them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import helper, numpy_helper, parser

from pyruntime import InferenceSession, InvalidInput, OrtValue
from pyruntime.api import names
from pyruntime.native.gpu.device import warn_once

PEERS = [pytest.param(SimpleNamespace(**names.NAMES), id="ours"), pytest.param(onnxruntime, id="theirs")]
DENSE = np.array([[0, 2, 0], [0, 0, 0], [-1, 0, 5]], np.float32)
PLACES = np.array([[0, 1], [2, 0], [2, 2]], np.int64)
STARTS = np.array([0, 1, 1, 3], np.int64)
SPARSE = """<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>
  g (sparse_tensor(float[3, 3]) a, float[3, 2] b) => (float[3, 2] y) { y = com.microsoft.SparseToDenseMatMul(a, b) }"""


@pytest.mark.parametrize("form", ["rows and columns", "elements", "compressed rows"])
@pytest.mark.parametrize("ort", PEERS)
def test_sparse_tensors(ort: Any, form: str) -> None:
    values, cpu = np.array([2, -1, 5], np.float32), ort.OrtDevice.make("cpu", 0)
    if form == "compressed rows":
        made = ort.SparseTensor.sparse_csr_from_numpy([3, 3], values, PLACES[:, 1].copy(), STARTS, cpu)
        assert made.as_csrc_view().inner().tolist() == [1, 0, 2] and made.as_csrc_view().outer().tolist() == [
            0,
            1,
            1,
            3,
        ]
    else:
        places = PLACES if form == "rows and columns" else PLACES @ [3, 1]
        made = ort.SparseTensor.sparse_coo_from_numpy(np.array([3, 3]), values, places, cpu)
        np.testing.assert_array_equal(made.as_coo_view().indices(), places)
    assert made.format().name == "ORT_SPARSE_" + ("CSRC" if form == "compressed rows" else "COO")
    assert (made.data_type(), made.device_name(), made.dense_shape()) == (
        "sparse_tensor(float)",
        "cpu",
        [3, 3],
    )
    value = ort.OrtValue.ort_value_from_sparse_tensor(made)
    assert (value.is_sparse_tensor(), value.is_tensor(), value.data_type()) == (True, False, "sparse_tensor(float)")
    np.testing.assert_array_equal(value.as_sparse_tensor().values(), values)
    if form == "elements" and ort is onnxruntime:
        return  # its kernel reads rows and columns only
    b = np.arange(6, dtype=np.float32).reshape(3, 2)
    session = ort.InferenceSession(parser.parse_model(SPARSE).SerializeToString(), providers=["CPUExecutionProvider"])
    (y,) = session.run_with_ort_values(None, {"a": value, "b": ort.OrtValue.ortvalue_from_numpy(b)})
    np.testing.assert_array_equal(y.numpy(), DENSE @ b)


def test_sparse_feeds_become_dense() -> None:
    text = '<ir_version: 8, opset_import: ["" : 17]> g (float[3, 3] a) => (float[3, 3] y) { y = Neg(a) }'
    session = InferenceSession(parser.parse_model(text).SerializeToString())
    sparse = names.NAMES["SparseTensor"]
    made = sparse.sparse_coo_from_numpy([3, 3], DENSE[DENSE != 0], PLACES)
    warn_once.cache_clear()
    with pytest.warns(RuntimeWarning, match='input "a" is sparse and becomes dense') as told:
        for _ in range(2):
            np.testing.assert_array_equal(session.run(None, {"a": made})[0], -DENSE)
    assert len(told) == 1
    words = sparse.sparse_coo_from_numpy([2, 2], np.array(["b"], object), np.array([3]))
    assert words.toarray().tolist() == [["", ""], ["", "b"]]
    empty = sparse.sparse_coo_from_numpy([3, 3], np.zeros(0, np.float32), np.zeros(0, np.int64))
    np.testing.assert_array_equal(session.run(None, {"a": empty})[0], np.zeros((3, 3)))


def test_sparse_initializers_become_dense(caplog: pytest.LogCaptureFixture) -> None:
    model = parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[3, 3] a) => (float[3, 3] y) { y = Mul(a, w) }'
    )
    values = numpy_helper.from_array(DENSE[DENSE != 0], "w")
    model.graph.sparse_initializer.append(helper.make_sparse_tensor(values, numpy_helper.from_array(PLACES), [3, 3]))
    session = InferenceSession(model.SerializeToString())
    assert 'initializer "w" is sparse and becomes dense: it takes 36 bytes' in caplog.text
    np.testing.assert_array_equal(session.run(None, {"a": DENSE})[0], DENSE * DENSE)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda s: s.sparse_coo_from_numpy([3, 3], np.ones(2), [0]), "do not fit"),
        (lambda s: s.sparse_coo_from_numpy([3, 3], np.ones(1), [9]), "outside"),
        (lambda s: s.sparse_coo_from_numpy([3, 3], np.ones(1), [[0, 3]]), "outside"),
        (lambda s: s.sparse_coo_from_numpy([-1], np.ones(1), [0]), "no shape"),
        (lambda s: s.sparse_coo_from_numpy([3], np.ones(1), [0.5]), "must be integers"),
        (lambda s: s.sparse_csr_from_numpy([3, 3], np.ones(1), [0], [0, 1]), "starts of rows"),
        (lambda s: s.sparse_csr_from_numpy([2, 3], np.ones(1), [0], [0, 2, 1]), "starts of rows"),
        (lambda s: s.sparse_csr_from_numpy([2, 3], np.ones(1), [3], [0, 1, 1]), "outside"),
        (lambda s: s.sparse_coo_from_numpy([3], np.ones(1), [0]).as_csrc_view(), "no compressed rows"),
        (lambda s: OrtValue.ort_value_from_sparse_tensor(np.ones(3)), "cannot be of type ndarray .a SparseTensor"),
        (lambda s: OrtValue.ortvalue_from_numpy(np.ones(3)).as_sparse_tensor(), "not a sparse tensor"),
    ],
)
def test_sparse_tensors_that_are_refused(make: Any, text: str) -> None:
    with pytest.raises(InvalidInput, match=text):
        make(names.NAMES["SparseTensor"])
