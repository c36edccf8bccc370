"""Small ONNX models with weights one can compute in one's head."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from kit import ort_format

WEIGHT = np.arange(12, dtype=np.float32).reshape(4, 3) / 10 - 0.5
BIAS = np.array([0.5, -0.25, 0.125], np.float32)


def model(nodes: list, inputs: list, outputs: list, weights: dict | None = None) -> onnx.ModelProto:
    """inputs and outputs are (name, element type, shape)."""
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info(*value) for value in inputs],
        [helper.make_tensor_value_info(*value) for value in outputs],
        [numpy_helper.from_array(array, name) for name, array in (weights or {}).items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def products(layers: int, width: int) -> onnx.ModelProto:
    """Products with square matrices of zeros, 4 · width² bytes each, and a shape: what is large and takes no time."""
    names = ["x", *[f"h{n}" for n in range(layers)]]
    nodes = [helper.make_node("MatMul", [names[n], f"w{n}"], [names[n + 1]]) for n in range(layers)]
    nodes.append(helper.make_node("Reshape", [names[-1], "shape"], ["y"]))
    weights = {f"w{n}": np.zeros((width, width), np.float32) for n in range(layers)}
    weights["shape"] = np.array([0, -1], np.int64)
    value = (TensorProto.FLOAT, ["n", width])
    return model(nodes, [("x", *value)], [("y", *value)], weights)


def one_row(kind: str) -> onnx.ModelProto:
    """x of 1 x 1024 times 12 MiB of floats, of halves, or of codes of 8 bits: larger than caches near a processor."""
    rng, columns = np.random.default_rng(0), {"floats": 3072, "halves": 6144, "codes": 12288}[kind]
    of = TensorProto.FLOAT16 if kind == "halves" else TensorProto.FLOAT
    if kind == "codes":
        codes = rng.integers(0, 256, (columns, 32, 32), np.uint8)
        weights = {"w": codes, "s": rng.random((columns, 32), np.float32)}
        sizes = {"K": 1024, "N": columns, "bits": 8, "block_size": 32}
        node = helper.make_node("MatMulNBits", ["x", "w", "s"], ["y"], domain="com.microsoft", **sizes)
    else:
        weights = {"w": rng.standard_normal((1024, columns), np.float32).astype(helper.tensor_dtype_to_np_dtype(of))}
        node = helper.make_node("MatMul", ["x", "w"], ["y"])
    made = model([node], [("x", of, [1, 1024])], [("y", of, [1, columns])], weights)
    made.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    return made


def affine() -> onnx.ModelProto:
    """y = relu(x @ W + b), x (batch, 4), y (batch, 3)."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["xw"], name="product"),
        helper.make_node("Add", ["xw", "b"], ["sum"], name="bias"),
        helper.make_node("Relu", ["sum"], ["y"], name="relu"),
    ]
    x, y = ("x", TensorProto.FLOAT, ["batch", 4]), ("y", TensorProto.FLOAT, ["batch", 3])
    return model(nodes, [x], [y], {"w": WEIGHT, "b": BIAS})


def branches_and_rounds() -> onnx.ModelProto:
    """Weights that a branch, and the rounds of a loop, read, beside others that are an output, a carried value, a shape
    and a condition; an embedding that is looked up by what is made of x."""
    text = """<ir_version: 10, opset_import: ["" : 20]>
      g (float[N, 16] x, bool flag) => (float[N, 16] y, float[A, B] kept, float[C, D] state, float[N, 16] rows)
        <float[16, 16] w, float[16, 16] u, float[16, 16] start, float[40, 16] table,
         int64[2] shape, int64 three, bool yes> {
          taken = If (flag) <
            then_branch = t () => (float[N, 16] a) { a = MatMul (x, w) },
            else_branch = e () => (float[N, 16] b) { b = Add (x, x) }>
          moved, state = Loop (three, yes, taken, start) <
            body = r (int64 i, bool go, float[N, 16] h, float[16, 16] s) =>
              (bool on, float[N, 16] next, float[16, 16] same) { on = Identity (go)  p = MatMul (h, u)
                next = Tanh (p)  m = MatMul (s, w)  same = Tanh (m) }>
          y = Reshape (moved, shape)
          kept = Identity (table)
          k = ArgMax <axis = 1, keepdims = 0> (y)
          rows = Gather (table, k) }"""
    made = onnx.parser.parse_model(text)
    rng = np.random.default_rng(0)
    values = {name: rng.standard_normal(s, np.float32) / 4 for name, s in
              {"w": (16, 16), "u": (16, 16), "start": (16, 16), "table": (40, 16)}.items()}  # fmt: skip
    values |= {"shape": np.array([-1, 16]), "three": np.array(3), "yes": np.array(True)}
    made.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in values.items())
    return made


def add() -> onnx.ModelProto:
    """c = a + b and d = a - b, all (2, 3)."""
    nodes = [helper.make_node("Add", ["a", "b"], ["c"]), helper.make_node("Sub", ["a", "b"], ["d"])]
    shape = (TensorProto.FLOAT, [2, 3])
    return model(nodes, [("a", *shape), ("b", *shape)], [("c", *shape), ("d", *shape)])


def types() -> onnx.ModelProto:
    """Integers and truth values: n = i + i (int64), t = not p (bool)."""
    nodes = [helper.make_node("Add", ["i", "i"], ["n"]), helper.make_node("Not", ["p"], ["t"])]
    whole, truth = (TensorProto.INT64, [3]), (TensorProto.BOOL, [2])
    return model(nodes, [("i", *whole), ("p", *truth)], [("n", *whole), ("t", *truth)])


def unsupported() -> onnx.ModelProto:
    """A node no engine knows."""
    node = helper.make_node("Frobnicate", ["x"], ["y"], name="odd")
    shape = (TensorProto.FLOAT, [2])
    return model([node], [("x", *shape)], [("y", *shape)])


def product() -> onnx.ModelProto:
    """y = x @ W + x, both (768, 768): 18 ms on one thread."""
    nodes = [helper.make_node("MatMul", ["x", "w"], ["xw"]), helper.make_node("Add", ["xw", "x"], ["y"])]
    shape = (TensorProto.FLOAT, [768, 768])
    weight = np.random.default_rng(0).standard_normal((768, 768), np.float32)
    return model(nodes, [("x", *shape)], [("y", *shape)], {"w": weight})


def chain() -> onnx.ModelProto:
    """Two hundred small kernels at least, x (4, 8) becoming y; then one large one, z (800, 800)."""
    nodes = [helper.make_node("Softmax", [f"a{i}"], [f"a{i + 1}"], axis=i % 2) for i in range(70)]
    nodes[0].input[0], nodes[-1].output[0] = "x", "y"
    nodes += [helper.make_node("Expand", ["first", "shape"], ["wide"]), helper.make_node("Softmax", ["wide"], ["z"])]
    nodes.insert(-2, helper.make_node("ReduceMax", ["y"], ["first"], keepdims=1))
    shape = np.array([800, 800], np.int64)
    x, y, z = [(name, TensorProto.FLOAT, dims) for name, dims in (("x", [4, 8]), ("y", [4, 8]), ("z", [800, 800]))]
    return model(nodes, [x], [y, z], {"shape": shape})


def softmax() -> onnx.ModelProto:
    """y = softmax over both axes of x (512, 1024), one after the other: two shared kernels at least."""
    nodes = [helper.make_node("Softmax", ["x"], ["a"], axis=1), helper.make_node("Softmax", ["a"], ["y"], axis=0)]
    shape = (TensorProto.FLOAT, [512, 1024])
    return model(nodes, [("x", *shape)], [("y", *shape)])


def steps() -> onnx.ModelProto:
    """a = tanh(x) in equal parts for all threads, x (512, 1024); s (512, 1) is the largest x + a of each row, so that a
    does not take the memory of x."""
    nodes = [helper.make_node("Tanh", ["x"], ["a"]), helper.make_node("Add", ["a", "x"], ["b"])]
    nodes.append(helper.make_node("ReduceMax", ["b"], ["s"], axes=[1]))
    x, a, s = [
        (name, TensorProto.FLOAT, dims) for name, dims in (("x", [512, 1024]), ("a", [512, 1024]), ("s", [512, 1]))
    ]
    return model(nodes, [x], [a, s])


def negations() -> onnx.ModelProto:
    """y = erf(--x) + --x, x (N): for a graph pass and a rewrite rule."""
    nodes = [helper.make_node("Neg", ["x"], ["a"]), helper.make_node("Neg", ["a"], ["b"])]
    nodes += [helper.make_node("Erf", ["b"], ["c"]), helper.make_node("Add", ["c", "b"], ["y"])]
    shape = (TensorProto.FLOAT, ["N"])
    return model(nodes, [("x", *shape)], [("y", *shape)])


def overridable() -> onnx.ModelProto:
    """y = x · w, both (n); w has a default, 1 and 2."""
    shape = (TensorProto.FLOAT, ["n"])
    nodes = [helper.make_node("Mul", ["x", "w"], ["y"])]
    return model(nodes, [("x", *shape), ("w", *shape)], [("y", *shape)], {"w": np.array([1, 2], np.float32)})


def joined() -> onnx.ModelProto:
    """c = a, then b: two inputs of a dim of one name."""
    node = helper.make_node("Concat", ["a", "b"], ["c"], axis=0)
    vector = (TensorProto.FLOAT, ["n"])
    return model([node], [("a", *vector), ("b", *vector)], [("c", TensorProto.FLOAT, ["m"])])


def number() -> onnx.ModelProto:
    """y = -x, one integer."""
    return model(
        [helper.make_node("Neg", ["x"], ["y"])], [("x", TensorProto.INT64, [])], [("y", TensorProto.INT64, [])]
    )


def zipped() -> onnx.ModelProto:
    """y = softmax(x) by class, x (N, 3): maps from names that are not in order, and from numbers."""
    nodes = [
        helper.make_node("Softmax", ["x"], ["s"], axis=1),
        helper.make_node("ZipMap", ["s"], ["y"], domain="ai.onnx.ml", classlabels_strings=["pear", "apple", "fig"]),
        helper.make_node("ZipMap", ["s"], ["z"], domain="ai.onnx.ml", classlabels_int64s=[10, -2, 9]),
    ]
    made = model(nodes, [("x", TensorProto.FLOAT, ["N", 3])], [])
    score = helper.make_tensor_type_proto(TensorProto.FLOAT, [])
    for name, key in {"y": TensorProto.STRING, "z": TensorProto.INT64}.items():
        maps = helper.make_sequence_type_proto(helper.make_map_type_proto(key, score))
        made.graph.output.append(helper.make_value_info(name, maps))
    made.opset_import.append(helper.make_opsetid("ai.onnx.ml", 1))
    return made


def mapped() -> onnx.ModelProto:
    """Rows of a map by names, (1, 3), and of one by numbers: what is at 0 to 4, (1, 5), and all as text, (1, n)."""
    nodes = [
        helper.make_node("DictVectorizer", ["x"], ["a"], domain="ai.onnx.ml", string_vocabulary=["pear", "fig", "nut"]),
        helper.make_node("CastMap", ["m"], ["b"], domain="ai.onnx.ml", map_form="SPARSE", max_map=5),
        helper.make_node("CastMap", ["m"], ["c"], domain="ai.onnx.ml", cast_to="TO_STRING"),
        helper.make_node("Neg", ["a"], ["d"]),
    ]
    kinds = {"b": TensorProto.FLOAT, "c": TensorProto.STRING, "d": TensorProto.FLOAT}
    made = model(nodes, [], [(name, kind, [1, "n"]) for name, kind in kinds.items()])
    number = helper.make_tensor_type_proto(TensorProto.FLOAT, [])
    for name, key in {"x": TensorProto.STRING, "m": TensorProto.INT64}.items():
        made.graph.input.append(helper.make_value_info(name, helper.make_map_type_proto(key, number)))
    made.opset_import.append(helper.make_opsetid("ai.onnx.ml", 1))
    return made


def write(folder: Path) -> None:
    """All of them as NAME.onnx; affine also as `external.onnx`, with its weights in external.bin, and `affine.ort`."""
    folder.mkdir(parents=True, exist_ok=True)
    maps = (zipped, mapped)
    for make in (affine, add, types, unsupported, product, chain, softmax, steps, overridable, joined, number, *maps):
        onnx.save(make(), folder / f"{make.__name__}.onnx")
    (folder / "external.bin").unlink(missing_ok=True)
    onnx.save(affine(), folder / "external.onnx", save_as_external_data=True, location="external.bin", size_threshold=0)
    whole = (folder / "affine.onnx").read_bytes()
    ort_format.saved(whole, folder / "affine.ort", "ENABLE_EXTENDED")
    (folder / "cut.onnx").write_bytes(whole[: len(whole) // 2])
    (folder / "page.onnx").write_text("<!doctype html><title>Not a model</title>")


TOWERS = """<ir_version: 10, opset_import: ["" : 20]>
    g (float[B, 64] image, float[T, 32] text) => (float[B, 16] a, float[T, 16] b, float[B, T] both)
    {
      a0 = MatMul (image, wa)  a1 = Tanh (a0)  a = MatMul (a1, va)
      b0 = MatMul (text, wb)  b = Tanh (b0)  t = Transpose (b)  both = MatMul (a, t) }"""


def towers() -> bytes:
    """An image and a text each go through products of their own; `both` needs the two."""
    made = onnx.parser.parse_model(TOWERS)
    rng = np.random.default_rng(1)
    for name, shape in {"wa": (64, 64), "va": (64, 16), "wb": (32, 16)}.items():
        made.graph.initializer.append(numpy_helper.from_array(rng.standard_normal(shape, np.float32), name))
    return made.SerializeToString()
