"""The graph of the decoder that a GGUF file describes, with a cache of keys and values.

Inputs and outputs are those of exporters: input_ids, attention_mask, position_ids, past_key_values.N.key and .value ->
logits, present.N.key and .value.
"""

from __future__ import annotations

import math

from pyruntime.errors import InvalidModel
from pyruntime.ir.dtype import F32, I32, I64
from pyruntime.onnx.gguf_architectures import ARCHITECTURES
from pyruntime.onnx.gguf_parts import MICROSOFT, OPSETS, GraphParts
from pyruntime.onnx.gguf_reader import GgufFile, read_gguf
from pyruntime.onnx.graph import Graph, Source, TensorType, Value

_WITHOUT_EFFECT = "attn_rot_embd.weight"  # an older form of the angles


def read_gguf_graph(source: Source) -> Graph:
    """The graph of a decoder. Errors: InvalidModel, which names an architecture, a type, a key or a tensor that is not
    known"""
    file = read_gguf(source, with_texts=False)
    return _Decoder(file).graph()


class _Decoder:
    def __init__(self, file: GgufFile) -> None:
        name = str(file.metadata.get("general.architecture", ""))
        if name not in ARCHITECTURES:
            known = ", ".join(ARCHITECTURES)
            raise InvalidModel(f'GGUF architecture "{name}" is not known', hint=f"known are {known}")
        self.name, self.architecture, self.file = name, ARCHITECTURES[name], file
        prefix = f"{name}."
        self.fields = {k.removeprefix(prefix): v for k, v in file.metadata.items() if k.startswith(prefix)}
        self.layers, self.width, self.heads = (
            self.size(key) for key in ("block_count", "embedding_length", "attention.head_count")
        )
        self.groups = self.size("attention.head_count_kv", self.heads)
        self.head = self.size("attention.key_length", self.width // self.heads)
        self.turned = self.size("rope.dimension_count", self.head)
        # With angles for a part of each head, llama.cpp rotates other pairs than transformers does.
        self.is_reordered = self.architecture.interleaved and self.turned == self.head
        self.add = GraphParts(file, self.module_of)
        self._refuse_unknown()

    def number(self, key: str, default: float | None = None) -> float:
        found = self.fields.get(key, default)
        if not isinstance(found, (int, float)) or isinstance(found, bool):
            raise self.wrong(key, "is missing" if found is None else f"is no number but {type(found).__name__}")
        return found

    def size(self, key: str, default: int | None = None) -> int:
        found = self.number(key, default)
        if not isinstance(found, int) or found < 1:
            raise self.wrong(key, f"is {found}, which is no size")
        return found

    def wrong(self, key: str, what: str) -> InvalidModel:
        return InvalidModel(f'the key "{self.name}.{key}" of this GGUF file {what}')

    def module_of(self, name: str) -> str:
        """The name in transformers of the part of the model that has this name in the file, or the same name."""
        block, _, part = name.rpartition(".")
        if self.architecture.interleaved and not self.is_reordered and part in ("attn_q", "attn_k"):
            return name  # whose rows are in another order than in transformers
        known = self.architecture.modules.get(part, "")
        return f"model.layers.{block.removeprefix('blk.')}.{known}" if block and known else known or name

    def _refuse_unknown(self) -> None:
        """What would change results without being computed here is refused."""
        scaling = self.fields.get("rope.scaling.type", "none")
        if scaling not in ("none", "linear", "longrope"):
            raise InvalidModel(f'rope.scaling.type "{scaling}" of this GGUF file is not known')
        if self.number("expert_count", 0):
            raise InvalidModel(f"GGUF architecture {self.name} with experts is not known")
        if self.size("attention.value_length", self.head) != self.head:
            raise InvalidModel("this GGUF file has keys and values of different sizes, which is not known")
        pattern = self.fields.get("attention.sliding_window_pattern", 1)
        if len(pattern) < self.layers if isinstance(pattern, list) else not isinstance(pattern, int) or pattern < 1:
            raise self.wrong("attention.sliding_window_pattern", "is neither a period nor a list of all layers")
        self.number("attention.sliding_window", 0)

    # ── the graph ──

    def graph(self) -> Graph:
        add = self.add
        x = self.embedding()
        lengths, total = self.lengths()
        caches: list[Value] = []
        presents: list[Value] = []
        for n in range(self.layers):
            for part in ("key", "value"):
                caches.append(self.cache(f"past_key_values.{n}.{part}", "past"))
                presents.append(self.cache(f"present.{n}.{part}", "all"))
            x = self.layer(n, x, (lengths, total))
        x = self.norm(x, "output_norm")
        head = "output" if add.has("output.weight") else "token_embd"
        logits = self.linear(x, head, bits=0 if head == "output" else 8, module="lm_head")
        if cap := self.number("final_logit_softcapping", 0.0):
            limit = add.numbers(F32, cap)
            logits = add("Mul", add("Tanh", add("Div", logits, limit)), limit)
        add("Identity", logits, outputs=["logits"])
        self._refuse_unread()
        ids = [Value(name, TensorType(I64, ("batch", dim))) for name, dim in (
            ("input_ids", "tokens"), ("attention_mask", "all"), ("position_ids", "tokens"))]  # fmt: skip
        vocabulary = add.file.tensors[f"{head}.weight"].shape[0]
        outputs = [Value("logits", TensorType(F32, ("batch", "tokens", vocabulary))), *presents]
        metadata = {"ir_version": "11", "producer_name": "GGUF", "graph_description": ""}
        props = {key: str(self.size(key)) for key in ("context_length",) if key in self.fields}
        return Graph(
            self.name, (*ids, *caches), tuple(outputs), tuple(add.nodes), add.weights, opsets=OPSETS, metadata=metadata,
            props=props,
        )  # fmt: skip

    def cache(self, name: str, length: str) -> Value:
        return Value(name, TensorType(F32, ("batch", self.groups, length, self.head)))

    def _refuse_unread(self) -> None:
        left = [t for t in self.file.tensors if t not in self.add.read and not t.endswith(_WITHOUT_EFFECT)]
        if left:
            raise InvalidModel(f'tensor "{left[0]}" of this GGUF file is not known in architecture {self.name}')

    def embedding(self) -> str:
        """(batch, tokens, width)"""
        add, name = self.add, "token_embd.weight"
        if add.is_plain(name):
            x = add("Gather", add.plain(name), "input_ids", axis=0)
        else:
            parts, _, group = add.codes(name, bits=8)
            grouped = add.numbers(I64, 0, 0, self.width // group, group)
            rows = [add("Gather", part, "input_ids", axis=0) for part in parts]
            codes = add("Cast", add("Reshape", rows[0], grouped), to=F32.code)
            scales, *zeros = (add("Unsqueeze", row, add.numbers(I64, -1)) for row in rows[1:])
            zero = zeros[0] if zeros else add.numbers(F32, 128.0)
            x = add("Mul", add("Sub", codes, zero), scales)
            x = add("Reshape", x, add.numbers(I64, 0, 0, self.width))
        if self.architecture.scales_embedding:
            x = add("Mul", x, add.numbers(F32, math.sqrt(self.width)))
        return x

    def lengths(self) -> tuple[str, str]:
        """Of each text, its tokens less one; the tokens of the longest."""
        add = self.add
        sums = add("ReduceSum", "attention_mask", add.numbers(I64, 1), keepdims=0)
        total = add("Squeeze", add("Shape", "attention_mask", start=1, end=2))
        return add("Cast", add("Sub", sums, add.numbers(I64, 1)), to=I32.code), add("Cast", total, to=I32.code)

    def layer(self, n: int, x: str, lengths: tuple[str, str]) -> str:
        add, prefix = self.add, f"blk.{n}"
        normal = self.norm(x, f"{prefix}.attn_norm")
        y = self.attention(n, normal, lengths)
        if add.has(f"{prefix}.post_attention_norm.weight"):
            y = self.norm(y, f"{prefix}.post_attention_norm")
        if self.architecture.parallel:
            return add("Add", add("Add", x, y), self.feed_forward(prefix, normal))
        x = add("Add", x, y)
        z = self.feed_forward(prefix, self.norm(x, f"{prefix}.ffn_norm"))
        if add.has(f"{prefix}.post_ffw_norm.weight"):
            z = self.norm(z, f"{prefix}.post_ffw_norm")
        return add("Add", x, z)

    def feed_forward(self, prefix: str, x: str) -> str:
        add = self.add
        up = self.linear(x, f"{prefix}.ffn_up")
        inner = add.tensor(f"{prefix}.ffn_down.weight").shape[1]
        if add.has(f"{prefix}.ffn_gate.weight"):
            gate = self.linear(x, f"{prefix}.ffn_gate")
        elif add.tensor(f"{prefix}.ffn_up.weight").shape[0] == 2 * inner:  # both are one matrix
            gate, up = self.split(up, inner, inner)
        else:
            return self.linear(self.activated(up), f"{prefix}.ffn_down")
        return self.linear(add("Mul", self.activated(gate), up), f"{prefix}.ffn_down")

    def activated(self, x: str) -> str:
        if self.architecture.activation == "gelu":
            return self.add("Gelu", x, approximate="tanh")
        return self.add("Mul", x, self.add("Sigmoid", x))

    # ── attention ──

    def attention(self, n: int, x: str, lengths: tuple[str, str]) -> str:
        add, prefix = self.add, f"blk.{n}"
        sizes = (self.heads * self.head, self.groups * self.head, self.groups * self.head)
        if add.has(f"{prefix}.attn_qkv.weight"):
            q, k, v = self.split(self.linear(x, f"{prefix}.attn_qkv"), *sizes)
        else:
            turned = (self.heads, self.groups, 0) if self.is_reordered else (0, 0, 0)
            q, k, v = (self.linear(x, f"{prefix}.attn_{part}", heads=n) for part, n in zip("qkv", turned, strict=True))
        is_local = self.architecture.is_local(n, self.fields)
        q = self.head_norm(q, f"{prefix}.attn_q_norm", self.heads)
        k = self.head_norm(k, f"{prefix}.attn_k_norm", self.groups)
        if not self.architecture.unrotated(n, self.fields):
            q, k = (self.rotated(y, heads, is_local) for y, heads in ((q, self.heads), (k, self.groups)))
        past = [f"past_key_values.{n}.{part}" for part in ("key", "value")]
        window = self.size("attention.sliding_window") if is_local else -1  # -1: all tokens
        present = [f"present.{n}.{part}" for part in ("key", "value")]
        y = add(
            "GroupQueryAttention", q, k, v, *past, *lengths, domain=MICROSOFT,
            outputs=[f"blk.{n}.attention", *present], num_heads=self.heads, kv_num_heads=self.groups,
            scale=self.scale(), softcap=float(self.number("attn_logit_softcapping", 0.0)),
            local_window_size=window,
        )  # fmt: skip
        return self.linear(y, f"{prefix}.attn_output")

    def scale(self) -> float:
        size = self.width / self.heads if self.layers == self.architecture.wide_heads else self.head
        return float(self.number("attention.scale", 0.0)) or 1 / math.sqrt(size)

    def head_norm(self, x: str, name: str, heads: int) -> str:
        """x with each head normalised, where the file has weights for that."""
        add = self.add
        if not add.has(f"{name}.weight"):
            return x
        apart = add("Reshape", x, add.numbers(I64, 0, 0, heads, self.head))
        return add("Reshape", self.norm(apart, name), add.numbers(I64, 0, 0, heads * self.head))

    def rotated(self, x: str, heads: int, is_local: bool) -> str:
        cos, sin = self.angles(is_local)
        part = self.turned if self.turned != self.head else 0
        interleaved = self.architecture.interleaved and not self.is_reordered
        return self.add(
            "RotaryEmbedding", x, cos, sin, num_heads=heads, interleaved=int(interleaved), rotary_embedding_dim=part
        )

    def angles(self, is_local: bool) -> tuple[str, str]:
        """Cosines and sines (batch, tokens, pairs) of the angles of each position; the same nodes for all layers of a
        kind."""
        names = [f"{part}_{'local' if is_local else 'all'}" for part in ("cos", "sin")]
        add = self.add
        if not any(node.outputs[0] == names[0] for node in add.nodes):
            positions = add("Unsqueeze", add("Cast", "position_ids", to=F32.code), add.numbers(I64, -1))
            angles = add("Mul", positions, self.frequencies(is_local))
            factor = float(self.number("rope.scaling.attn_factor", 1.0))
            for op, name in zip(("Cos", "Sin"), names, strict=True):
                add("Mul", add(op, angles), add.numbers(F32, factor), outputs=[name])
        return names[0], names[1]

    def frequencies(self, is_local: bool) -> str:
        """The angle by which each pair turns from one position to the next."""
        add = self.add
        own = is_local and self.architecture.local_base
        base = self.architecture.local_base if own else float(self.number("rope.freq_base", 10000.0))
        divisor = 1.0 if own else self._linear_factor()
        pairs = range(0, self.turned, 2)
        plain = add.numbers(F32, *(base ** (-k / self.turned) / divisor for k in pairs))
        long, short, one = (f"rope_{kind}.weight" for kind in ("factors_long", "factors_short", "freqs"))
        if add.has(one) and not own:
            return add("Div", plain, add.plain(one))
        if add.has(long) and add.has(short):  # by the length of the text: the first ones up to the length in training
            trained = int(self.number("rope.scaling.original_context_length"))
            newest = add("ReduceMax", "position_ids", keepdims=0)
            is_long = add("GreaterOrEqual", newest, add.numbers(I64, trained, scalar=True))
            return add("Div", plain, add("Where", is_long, add.plain(long), add.plain(short)))
        return plain

    def _linear_factor(self) -> float:
        if self.fields.get("rope.scaling.type") == "linear":
            return float(self.number("rope.scaling.factor"))
        return 1.0

    # ── layers ──

    def norm(self, x: str, name: str) -> str:
        add = self.add
        if self.architecture.layer_norm:
            epsilon = float(self.number("attention.layer_norm_epsilon"))
            parts = [add.plain(f"{name}.weight"), add.plain(f"{name}.bias")]
            return add("LayerNormalization", x, *parts, axis=-1, epsilon=epsilon)
        epsilon = float(self.number("attention.layer_norm_rms_epsilon"))
        return add("RMSNormalization", x, add.plain(f"{name}.weight"), axis=-1, epsilon=epsilon)

    def linear(self, x: str, name: str, bits: int = 0, heads: int = 0, module: str = "") -> str:
        """x · wᵀ + bias. bits: a wider code of the weights, which the embedding has, too; heads: in which the file has
        rotated pairs as neighbours; module: the name in transformers, by default that of the weight's module"""
        add, weight, bias = self.add, f"{name}.weight", f"{name}.bias"
        module = module or self.module_of(name)
        if add.is_plain(weight):
            y = add("MatMul", x, add("Transpose", add.plain(weight, heads), perm=(1, 0)), module=module)
        else:
            rows, columns = add.tensor(weight).shape
            parts, width, group = add.codes(weight, bits, heads)
            sizes = {"K": columns, "N": rows, "bits": width, "block_size": group}
            y = add("MatMulNBits", x, *parts, domain=MICROSOFT, module=module, **sizes)
        return add("Add", y, add.plain(bias, heads)) if add.has(bias) else y

    def split(self, x: str, *sizes: int) -> tuple[str, ...]:
        self.add("Split", x, self.add.numbers(I64, *sizes), axis=-1, outputs=len(sizes))
        return self.add.outputs()
