"""Meaningless nodes are refused with the operator and the value, at compile time or, if the value is data, in the run.
Nodes that onnxruntime runs are not refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from pyruntime import InferenceSession, OutOfMemory, PyRuntimeError, ShapeError, UnsupportedOp
from pyruntime.errors import ExecutionError, InternalError
from tests.ops.compare import check

HEAD = '<ir_version: 8, opset_import: ["" : 19, "ai.onnx.ml": 3, "com.microsoft": 1, "ai.onnx.preview.training": 1]>'
IMAGE = np.ones((1, 1, 4, 4), np.float32)
KERNEL = np.ones((1, 1, 3, 3), np.float32)
EMPTY = np.zeros(0, np.float32)
OPERANDS = """float[1,1,4,4] x, float[1,1,3,3] w, float[1] c, int64[1] n, float[1,3,8] q, float[1,24,8] k, uint8[2] u,
    float s"""


def graph(inputs: str, node: str, outputs: str = "float y") -> Any:
    """A model in ONNX's text syntax, without declared shapes of outputs."""
    model = onnx.parser.parse_model(f"{HEAD} g ({inputs}) => ({outputs}) {{ {node} }}")
    for value in model.graph.output:
        value.type.tensor_type.ClearField("shape")
    return model


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def with_values(model: Any, feeds: dict[str, np.ndarray], known: set[str]) -> tuple[bytes, dict[str, np.ndarray]]:
    """Return the model with some inputs as initializers, and the remaining feeds."""
    made = onnx.ModelProto()
    made.CopyFrom(model)
    kept = [v for v in made.graph.input if v.name not in known]
    del made.graph.input[:]
    made.graph.input.extend(kept)
    made.graph.initializer.extend(numpy_helper.from_array(feeds[name], name) for name in known)
    return made.SerializeToString(), {name: x for name, x in feeds.items() if name not in known}


@pytest.mark.parametrize(("node", "text"), [
    ("y = Conv<strides=[0,0]> (x, w)", r"strides is \[0, 0\], must be at least 1"),
    ("y = Conv<strides=[-1,-1]> (x, w)", r"strides is \[-1, -1\]"),
    ("y = Conv<dilations=[0,0]> (x, w)", r"dilations is \[0, 0\]"),
    ("y = Conv<strides=[1]> (x, w)", "strides has 1 entries, not 2"),
    ("y = Conv<pads=[1,1]> (x, w)", "pads has 2 entries, not 4"),
    ('y = Conv<auto_pad="SAME_UPPER", pads=[1,1,1,1]> (x, w)', "both auto_pad SAME_UPPER and pads"),
    ('y = ConvTranspose<auto_pad="VALID", pads=[1,1,1,1]> (x, w)', "both auto_pad VALID and pads"),
    ('y = ConvTranspose<auto_pad="VALID", pads=[1,1,1]> (x, w)', "pads has 3 entries, not 4"),
    ('y = MaxPool<kernel_shape=[2,2], auto_pad="VALID", pads=[1,1,1]> (x)', "pads has 3 entries, not 4"),
    ("y = LpPool<kernel_shape=[2,2], p=-1> (x)", "p is -1, must be above 0"),
    ("y = GlobalLpPool<p=0> (x)", "p is 0, must be above 0"),
    ("y = Conv<group=0> (x, w)", "group is 0"),
    ("y = com.microsoft.GroupNorm<groups=0, activation=0> (x, c, c)", "groups is 0, must be at least 1"),
    ('y = com.microsoft.FusedConv<activation="Clip", activation_params=[1.0]> (x, w)', "has 1 parameters, needs 2"),
    ("y = Erf (n)", "Erf.* int64, allowed is float32"),
    ("y = ai.onnx.ml.SVMClassifier<prob_b=[0.5], vectors_per_class=[1, 1], classlabels_ints=[0, 1]> (n)",
     "prob_a has 0 entries, prob_b 1"),
    ("y, z = ai.onnx.ml.LinearClassifier<coefficients=[1.0], classlabels_ints=[7]> (c)",
     "1 class labels for 1 scores, needs 2"),
    ("y = ConvTranspose<pads=[5,5,5,5]> (x, w)", r"cannot have the shape \[1, 1, -4, -4\]"),
    ("y = ConvTranspose<output_padding=[1]> (x, w)", "output_padding has 1 entries, not 2"),
    ("y = MaxPool<kernel_shape=[0,0]> (x)", r"kernel_shape is \[0, 0\]"),
    ("y = MaxPool<kernel_shape=[2,2], strides=[0,0]> (x)", r"strides is \[0, 0\]"),
    ("y = AveragePool<kernel_shape=[9,9]> (x)", "a window of 9 does not fit in 4"),
    ("y = MaxPool<kernel_shape=[2]> (x)", "kernel_shape has 1 entries"),
    ("y = DepthToSpace<blocksize=0> (x)", "blocksize is 0"),
    ("y = Concat<axis=9> (x, w)", "axis 9 is out of range"),
    ("y = Max (, x)", "input 0 is required"),
    ("y = Concat<axis=0> (x, , w)", "input 1 is required"),
    ("y = Transpose<perm=[0,0,1,2]> (x)", "not a permutation"),
    ("y = Split<axis=0, num_outputs=0> (x)", "num_outputs is 0"),
    ("y = Split<axis=0, num_outputs=9223372036854775807> (x)", "9223372036854775807, but the node has 1"),
    ("y = QuantizeLinear<precision=3> (x, w)", "int8 is not a float type"),
    ("y = LRN<size=0> (x)", "size is 0"),
    ("y = Loop<body=[1, 2]> (, , x)", r"attribute body must be a graph, is \(1, 2\)"),
    ("y = ai.onnx.ml.LabelEncoder<keys_tensor=1, values_floats=[1.0]> (x)",
     "attribute keys_tensor must be a tensor, is 1"),
    ("y = Mod<fmod=2> (x, w)", "fmod is 2, must be 0 or 1"),
    ('y = com.microsoft.LinearAttention<q_num_heads=2, kv_num_heads=0, update_rule="linear"> (q, q, q)',
     "2 query heads are not a multiple of 0"),
    ("y = com.microsoft.BiasSoftmax<is_inner_broadcast=2> (x, w)", "is_inner_broadcast is 2, must be 0 or 1"),
    ("y, h = GRU<hidden_size=8, clip=0.0> (q, k, k)", "clip is 0.0, must be above 0"),
    ("y, h = GRU<hidden_size=8, clip=-1.0> (q, k, k)", "clip is -1.0, must be above 0"),
    ("y = ConvTranspose<strides=[2,2], output_padding=[2,0]> (x, w)", "must be 0 or more and below"),
    ("y = AveragePool<kernel_shape=[3,3], pads=[1,1,-1,1]> (x)", r"pads is \[1, 1, -1, 1\], must be at least 0"),
    ("y = com.microsoft.QLinearSoftmax<opset=0> (u, s, , s, u)", "opset 0 does not exist"),
    ("y = Trilu<upper=2> (x)", "upper is 2, must be 0 or 1"),
    ("y = CumSum<reverse=3> (x, n)", "reverse is 3, must be 0 or 1"),
    ("y = ReduceMax<keepdims=-1> (x)", "keepdims is -1, must be 0 or 1"),
    ("y = com.microsoft.MultiHeadAttention<num_heads=1, unidirectional=2> (x)", "unidirectional is 2, must be 0 or 1"),
    ("y = ai.onnx.ml.LabelEncoder<keys_floats=[1.0], values_floats=[1.0], values_int64s=[1]> (x)",
     "needs one list of values, has 2"),
    ('y = TfIdfVectorizer<max_gram_length=1, max_skip_count=0, min_gram_length=1, mode="TF", ngram_counts=[0], '
     'ngram_indexes=[0], pool_int64s=[2, 3]> (n)', "the pool has more n-grams than ngram_indexes, which has 1"),
    ('y = TfIdfVectorizer<max_gram_length=1, max_skip_count=0, min_gram_length=1, mode="IDF", ngram_counts=[0], '
     'ngram_indexes=[0, 1], pool_int64s=[2, 3], weights=[0.5]> (n)', "1 weights for 2 n-grams"),
    *[(f'y = TfIdfVectorizer<max_gram_length=2, max_skip_count=0, min_gram_length=1, mode="TF", ngram_counts={starts}, '
       'ngram_indexes=[0, 1, 2], pool_int64s=[2, 3, 4]> (n)', "do not cut a pool of 3 into whole n-grams")
      for starts in ("[0, -1]", "[2, 1]", "[0, 4]", "[0, 2]")],
    ('y = TfIdfVectorizer<max_gram_length=1, max_skip_count=0, min_gram_length=1, mode="TF", ngram_counts=[0], '
     'ngram_indexes=[0], pool_strings=["a"]> (n)', "a pool of strings for an input of int64"),
    ("y = ReverseSequence<batch_axis=0, time_axis=-2> (x, n)", "time_axis -2: must be 0 and 1"),
    ("y = ReverseSequence<batch_axis=1, time_axis=1> (x, n)", "must be 0 and 1"),
    ("y = DequantizeLinear<axis=0> (x, w)", "allowed is"),
])  # fmt: skip
def test_attributes(node: str, text: str) -> None:
    with pytest.raises(PyRuntimeError, match=text) as found:
        InferenceSession(graph(OPERANDS, node).SerializeToString())
    assert not isinstance(found.value, InternalError)
    assert found.value.node.startswith(node[4:].split("<")[0].split(" ")[0])


@pytest.mark.parametrize(("given", "text"), [
    ("local_window_size=-2", "local_window_size is -2"), ("local_window_size=0", "must be -1 or above 0"),
    ("smooth_softmax=2", "must be -1, 0 or 1"), ("causal=0, local_window_size=2", "needs causal attention"),
])  # fmt: skip
def test_what_no_group_query_attention_has(given: str, text: str) -> None:
    node = f"y, k, v = com.microsoft.GroupQueryAttention<num_heads=2, kv_num_heads=2, {given}> (q, q, q, , , n, n)"
    with pytest.raises(UnsupportedOp, match=text):
        InferenceSession(graph("float[1,3,8] q, int32[1] n", node, "float y, float k, float v").SerializeToString())


def test_more_in_total_than_there_is() -> None:
    node = "y, k, v = com.microsoft.GroupQueryAttention<num_heads=2, kv_num_heads=2> (q, q, q, p, p, n, m)"
    inputs = "float[1,1,8] q, float[1,2,4,4] p, int32[1] n, int32[1] m"
    feeds = {"q": np.ones((1, 1, 8), np.float32), "p": np.ones((1, 2, 4, 4), np.float32), "n": np.int32([4])}
    session = InferenceSession(graph(inputs, node, "float y, float k, float v").SerializeToString())
    assert session.run(None, feeds | {"m": np.int32([5])})[1].shape == (1, 2, 5, 4)
    with pytest.raises(ShapeError, match="total_sequence_length exceeds the past keys"):
        session.run(None, feeds | {"m": np.int32([6])})


def test_empty_separators_stand_alone() -> None:
    node = 'y = com.microsoft.Tokenizer<mark=0, mincharnum=1, pad_value="p", separators=["", "x"]> (x)'
    with pytest.raises(UnsupportedOp, match="must be the only one"):
        InferenceSession(graph("string[2] x", node, "string y").SerializeToString())


def test_erf_of_integers_which_older_schemas_have() -> None:
    old = graph("int64[2] x", "y = Erf (x)", "int64 y")
    old.opset_import[0].version = 12
    with pytest.raises(UnsupportedOp, match='Erf "y".*of int64 is not implemented'):
        InferenceSession(old.SerializeToString())


def test_products_in_codes_of_floats() -> None:
    model = graph("uint8[2,2] x, float s, uint8 z, float8e5m2 f", "y = QLinearMatMul (x, s, z, x, s, z, s, f)")
    model.opset_import[0].version = 21
    with pytest.raises(UnsupportedOp, match='QLinearMatMul "y".*quantised float8e5m2 is not implemented'):
        InferenceSession(model.SerializeToString())


@pytest.mark.parametrize(("inputs", "node", "value", "text"), [
    ("float[2,3] x, int64[2] v", "Tile (x, v)", ints(2, -1), "-1, must be at least 0|must be at least 0"),
    ("float[2,3] x, int64[3] v", "Tile (x, v)", ints(2, 2, 2), "repeats has 3 entries, not 2"),
    ("int64[2] v", "ConstantOfShape (v)", ints(2, -2), "must be at least 0"),
    ("int64[3] v", "ConstantOfShape (v)", ints(2**40, 2**40, 0), "cannot have the shape|at most"),
    ("float[4] x, int64[1] v", "TopK<axis=0> (x, v)", ints(-3), "must be at least 0"),
    ("float[4] x, int64[1] v", "TopK<axis=0> (x, v)", ints(5), "exceeds 4 elements"),
    ("int64[2] x, int64 v, float[2] z", "OneHot (x, v, z)", np.array(-3), "must be at least 0"),
    ("int64 x, int64 w, int64 v", "Range (x, w, v)", np.array(0), "delta is 0"),
    ("float x, float w, float v", "Range (x, w, v)", np.array(0, np.float32), "delta is 0"),
    ("float[2,3] x, int64[4] v", "Pad (x, v)", ints(-2, 0, -1, 0), "remove more than the 2 elements of axis 0"),
    ("float[0,3] x, int64[4] v", 'Pad<mode="edge"> (x, v)', ints(1, 0, 0, 0), "axis 0 has no elements to pad with"),
    ("float[2,3] x, int64[3] v", "Pad (x, v)", ints(1, 1, 1), "pads has 3 entries, not 4"),
    ("float[2,8] x, int64[2] v", "Reshape (x, v)", ints(-2, -8), "below -1|at least -1"),
    ("float[2,8] x, int64[2] v", "Reshape (x, v)", ints(3, 5), "cannot reshape"),
    ("float[2,3] x, int64[2] v", "Expand (x, v)", ints(-1, 3), "must be at least 0"),
    ("float[1,3] x, float[2] v", "Resize (x, , v)", np.array([1, -1], np.float32), "must be positive"),
    ("float[2,3] x, float[2] v", "Resize (x, , v)", np.array([3e38, 0.9], np.float32), "cannot have the shape|at most"),
    ("float[1,3] x, int64[3] v", "Resize (x, , , v)", ints(1, 3, 8), "sizes has 3 entries, not 2"),
    ("float[1,3] x, int64[2] v", "Resize (x, , , v)", ints(1, -8), "must be at least 0"),
    ("float[4] x, int64[2] v", "Split (x, v)", ints(-1, 5), "must be at least 0"),
    ("float[4] x, int64[1] v", "ReduceSum (x, v)", ints(3), "axis 3 is out of range"),
    ("float[4] x, int64[1] v", "Slice (x, v, v, v, v)", ints(0), "a step must not be 0"),
    ("int64 v", "HannWindow (v)", np.array(-4), "must be at least 0"),
])  # fmt: skip
@pytest.mark.parametrize("fed", [False, True])
def test_values(inputs: str, node: str, value: np.ndarray, text: str, fed: bool) -> None:
    model = graph(inputs, f"y{', y2' if node.startswith(('TopK', 'Split')) else ''} = {node}")
    shapes = {v.name: [d.dim_value for d in v.type.tensor_type.shape.dim] for v in model.graph.input}
    types = {v.name: onnx.helper.tensor_dtype_to_np_dtype(v.type.tensor_type.elem_type) for v in model.graph.input}
    feeds = {name: np.ones(shape, types[name]) for name, shape in shapes.items()} | {"v": value}
    data, left = with_values(model, feeds, set() if fed else {"v"})
    with pytest.raises((ShapeError, UnsupportedOp, OutOfMemory), match=text) as found:
        InferenceSession(data).run(None, left)
    assert found.value.node.startswith(node.split("<")[0].split(" ")[0])


@pytest.mark.parametrize("dims", ["0,3", "N,3"])
def test_the_position_of_nothing(dims: str) -> None:
    model = graph(f"float[{dims}] x", "y = ArgMax<axis=0> (x)", "int64 y").SerializeToString()
    with pytest.raises(ShapeError, match='ArgMax "y".*axis 0 has no elements'):
        InferenceSession(model).run(None, {"x": np.zeros((0, 3), np.float32)})


@pytest.mark.parametrize(("inputs", "node", "text"), [
    ("float x", "y = Gather (x, i)", 'input "x" has rank 0, must have 1 or more'),
    ("float[2,3] x", "y = DepthToSpace<blocksize=2> (x)", 'input "x" has rank 2, must have 4'),
    ("float[2] x", "y, z = LSTM<hidden_size=2> (x, x, x)", 'input "x" has rank 1, must have 3'),
    ("float[2] x", "y = Det (x)", 'input "x" has rank 1, must have 2 or more'),
    ("float[2] x", "y = Clip (x, x)", r'input "x" must be one number, has shape \[2\]'),
    ("float[2,2,2] x", "y = ai.onnx.ml.Normalizer (x)", 'input "x" has rank 3, must have 1 to 2'),
    ("float[2,2] x", "y = Concat<axis=0> (x, i)", "rank 2 and 1|must have the same type"),
    ("float[2] x", "y = com.microsoft.Trilu (x)", 'input "x" has rank 1, must have 2 or more'),
    ("uint8[2,8] x, float[2,1] s", "y = com.microsoft.GatherBlockQuantized<bits=-1> (x, i, s)", "bits -1 is not"),
    ("float x,uint8[2,1,8] b, float[2] s", "y = com.microsoft.MatMulNBits<K=16,N=2,block_size=16> (x, b, s)", "rank 0"),
    ("float[2] x, int64 j", "y = com.microsoft.GatherND (x, j)", 'input "j" has rank 0, must have 1 or more'),
    ("float[1,1,8] x, float[9,0] c, float[9,2] s", "y = com.microsoft.RotaryEmbedding (x, i, c, s)", "needs num_heads"),
    ("float[1,2,8] x, int32[0,0,8] m", "y = com.microsoft.MaxpoolWithMask<kernel_shape=[3]> (x, m)", "no channels"),
    ("float r, int64 s, double[2] x, float[2] g",
     "y, h = ai.onnx.preview.training.Adagrad (r, s, x, g, g)", "different types: float64, float32"),
    ("uint8[6,0] x, float[6,2] s",
     "y = com.microsoft.GatherBlockQuantized<block_size=0, quantize_axis=1> (x, i, s)", "scales must have the shape"),
    ("float x", "y = ai.onnx.ml.FeatureVectorizer (x, x)", 'input "x" has rank 0, must have 1 or more'),
    ("float[2] x", "y = com.microsoft.CDist (x, x)", 'input "x" has rank 1, must have 2'),
    ("float[2,2] x", "y = com.microsoft.Unique (x)", 'input "x" has rank 2, must have 1'),
    ("float[2,2] x", "y = com.microsoft.ScaledSiLU (x, x)", 'input "x" has rank 2, must have 0'),
    ("float[2,2,2] x", "y = ai.onnx.ml.Imputer<imputed_value_floats=[1.0]> (x)", "rank 3, must have 1 to 2"),
    (f"float[{','.join(['1'] * 65)}] x", "y = Relu (x)", "rank 65; up to 64"),
])  # fmt: skip
def test_ranks(inputs: str, node: str, text: str) -> None:
    with pytest.raises(PyRuntimeError, match=text):
        InferenceSession(graph(f"{inputs}, int64[2] i", node).SerializeToString())


# ── what makes sense works ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("i", [ints(1, 3).reshape(2, 1), ints(1, 2, 3, 3).reshape(2, 2)])
def test_indices_whose_last_dim_is_not_declared(i: np.ndarray) -> None:
    data = np.arange(20, dtype=np.float32).reshape(4, 5)
    updates = -np.ones((2, 5)[: 3 - i.shape[1]], np.float32)
    check(graph("float[A,B] x, int64[C,K] i", "y = GatherND (x, i)"), {"x": data, "i": i}, symbolic=(False,))
    dims = "C,B" if updates.ndim == 2 else "C"
    check(graph(f"float[A,B] x, int64[C,K] i, float[{dims}] u", "y = ScatterND (x, i, u)"),
          {"x": data, "i": i, "u": updates}, symbolic=(False,))  # fmt: skip


@pytest.mark.parametrize("node", ["ScatterElements", "ScatterND"])
def test_strings_have_no_product(node: str) -> None:
    """Bools can be summed, as in ONNX Runtime."""
    inputs = "string[a,b] x, int64[c,1] i, string[c,b] u"
    model = graph(inputs, f'y = {node} <reduction = "mul"> (x, i, u)', "string y")
    with pytest.raises(UnsupportedOp, match=f"{node}.* reduction mul needs numbers"):
        InferenceSession(model.SerializeToString())


@pytest.mark.parametrize("trips", [0, 1, 3])
def test_loops_stack_strings(trips: int) -> None:
    nodes = "d = Identity (c) t = Identity (s) o = Identity (s)"
    body = f"b (int64 i, bool c, string[1] s) => (bool d, string[1] t, string[1] o) {{ {nodes} }}"
    model = graph("int64 n, bool c, string[1] s", f"r, y = Loop<body = {body}> (n, c, s)", "string r, string y")
    r, y = InferenceSession(model.SerializeToString()).run(
        None, {"n": np.array(trips), "c": np.array(True), "s": np.array(["q"], object)}
    )
    assert r.tolist() == ["q"] and y.shape == (trips, 1) and set(y.ravel()) <= {"q"}


def test_scans_stack_strings() -> None:
    scan = "Scan<num_scan_inputs = 1, body = b (string[B] i) => (string[B] o) { o = Identity (i) }>"
    x = np.array([["q", "r"], ["s", "t"], ["u", "v"]], object)
    check(graph("string[A,B] x", f"y = {scan} (x)", "string y"), {"x": x})


@pytest.mark.parametrize("zeros", [0, 1])
def test_categories(zeros: int) -> None:
    model = graph("int64[N] x", f"y = ai.onnx.ml.OneHotEncoder<cats_int64s = [1, 2, 5], zeros = {zeros}> (x)")
    check(model, {"x": ints(5, 1, 1)})
    if zeros:
        check(model, {"x": ints(5, 9)})
    else:
        with pytest.raises(ExecutionError, match="OneHotEncoder"):
            InferenceSession(model.SerializeToString()).run(None, {"x": ints(5, 9)})


@pytest.mark.parametrize("op", ["MaxPool", "AveragePool"])
@pytest.mark.parametrize("size", [1, 2, 3, 5, 8])
def test_windows_that_reach_beyond_the_padding(op: str, size: int) -> None:
    x = np.arange(1, size + 1, dtype=np.float32).reshape(1, 1, size)
    for k, stride, begin, end in [(2, 3, 0, 0), (3, 2, 0, 0), (3, 2, 1, 1), (4, 3, 1, 2), (3, 5, 2, 0), (4, 1, 0, 3)]:
        if size + begin + end >= k:
            attrs = f"kernel_shape = [{k}], strides = [{stride}], pads = [{begin}, {end}], ceil_mode = 1"
            check(graph("float[1,1,N] x", f"y = {op}<{attrs}> (x)"), {"x": x})


@pytest.mark.parametrize("equation", ["i->->", "i->ii", "i->j", "i?->i"])
def test_equations(equation: str) -> None:
    with pytest.raises(ShapeError, match='Einsum "y"'):
        InferenceSession(graph("float[2] x", f'y = Einsum<equation = "{equation}"> (x)').SerializeToString())


@pytest.mark.parametrize(("code", "text"), [
    (1, "B"), (7, "B"), (1, "1_0"), (7, "1_0"), (1, "１"), (7, "9223372036854775808"), (2, "1e3"), (2, "-1"),
])  # fmt: skip
def test_strings_that_are_no_numbers(code: int, text: str) -> None:
    model = graph("string[1] x", f"y = Cast<to = {code}> (x)", {1: "float y", 7: "int64 y", 2: "uint8 y"}[code])
    with pytest.raises(ExecutionError, match=f"a string cannot be parsed as .*{text}"):
        InferenceSession(model.SerializeToString()).run(None, {"x": np.array([text], object)})
