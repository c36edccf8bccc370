"""Folders of models as transformers.js reads them from a server: configurations, a tokenizer, models by precision.

Architectures are exported ones of the zoo, made smaller, with its random weights: their results mean nothing, and are
the same on every machine.
"""

from __future__ import annotations

import json
import string
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from kit import zoo
from kit.programs import precisions

FOLDERS = zoo.CACHE.parent / "program-models"
Build = Callable[[onnx.ModelProto], onnx.ModelProto]
Save = Callable[[onnx.ModelProto, Path], None]
# precision -> the end of the file's name, and the function that writes it
PRECISIONS: dict[str, tuple[str, Save]] = {
    "fp32": ("", onnx.save),
    "q8": ("_quantized", precisions.q8),
    "q4": ("_q4", precisions.q4),
}
HALVES = {"fp16": ("_fp16", onnx.save), "q4f16": ("_q4f16", precisions.q4)}  # of the generator alone
GENERATORS = {"fp32": "llama_mini", "q8": "llama_mini.dyn", "q4": "llama_mini.nb4"}  # of the zoo
WORDS = "a and bird brown dog fox hill in jumps lazy light moon of old on over quick river sleeps stone sun the".split()
MARKS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
LABELS = [f"kind {number}" for number in range(5)]
PIXELS = 224  # of an image's side


def write() -> Path:
    """Writes all folders whose sources are newer. Returns their path."""
    for precision in PRECISIONS:
        _model("encoder", precision, "bert_tiny", _encoder)
        _model("classifier", precision, "bert_tiny", _classifier)
        _model("pictures", precision, "vit_tiny", _pictures)
        _model("generator", precision, GENERATORS[precision], _generator, onnx.save)
    for precision in HALVES:
        _model("generator", precision, "llama_mini.fp16", lambda model: precisions.half_caches(_generator(model)))
    for name, files in _configurations().items():
        for file, content in files.items():
            with zoo.replacing(FOLDERS / name / file) as part:
                part.write_text(json.dumps(content))
    return FOLDERS


def _model(folder: str, precision: str, source: str, build: Build, save: Save | None = None) -> None:
    end, usual = (PRECISIONS | HALVES)[precision]
    original, path = zoo.materialize(source), FOLDERS / folder / "onnx" / f"model{end}.onnx"
    sources = [original, Path(__file__), Path(precisions.__file__)]
    zoo.cached(path, sources, lambda part: (save or usual)(build(onnx.load(original)), part))


# ── models ────────────────────────────────────────────────────────────────────────────────────────────────────────


def _encoder(model: onnx.ModelProto) -> onnx.ModelProto:
    """BERT with two layers and a small vocabulary."""
    _keep_rows(model, "m.embeddings.word_embeddings.weight", len(_vocabulary()))
    return model


def _classifier(model: onnx.ModelProto) -> onnx.ModelProto:
    """`_bert` with a linear layer on its first token."""
    graph = _encoder(model).graph
    weight = np.random.default_rng(7).standard_normal((128, len(LABELS)), np.float32) / 4
    graph.initializer.extend([numpy_helper.from_array(weight, "head"), numpy_helper.from_array(np.array(0), "first")])
    graph.node.append(helper.make_node("Gather", ["last_hidden_state", "first"], ["token"], axis=1))
    graph.node.append(helper.make_node("MatMul", ["token", "head"], ["logits"]))
    del graph.output[:]
    graph.output.append(helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", len(LABELS)]))
    return model


def _pictures(model: onnx.ModelProto) -> onnx.ModelProto:
    """A ViT with the first two of its twelve blocks."""
    graph = model.graph
    norms = [node for node in graph.node if node.op_type == "LayerNormalization"]
    norms[-1].input[0] = norms[4].input[0]
    _keep_rows(model, "head.weight", len(LABELS))
    for node in graph.node:
        node.input[:] = ["pixel_values" if name == "x" else name for name in node.input]
        node.output[:] = ["logits" if name == "y" else name for name in node.output]
    graph.input[0].name, graph.output[0].name = "pixel_values", "logits"
    graph.output[0].type.tensor_type.shape.dim[1].dim_value = len(LABELS)
    return precisions.pruned(model)


def _generator(model: onnx.ModelProto) -> onnx.ModelProto:
    """Llama with four layers. transformers.js makes the first, empty cache by the name that a batch has."""
    for value in model.graph.input:
        value.type.tensor_type.shape.dim[0].dim_param = "batch_size"
    return model


def _keep_rows(model: onnx.ModelProto, name: str, count: int) -> None:
    weight = next(tensor for tensor in model.graph.initializer if tensor.name == name)
    weight.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(weight)[:count], name))
    del model.graph.value_info[:]  # they have the old size


# ── configurations and tokenizers ──


def _configurations() -> dict[str, dict[str, Any]]:
    """Folder -> file -> its content."""
    labels = {"id2label": dict(enumerate(LABELS)), "label2id": {label: n for n, label in enumerate(LABELS)}}
    pieces = {
        "tokenizer.json": _pieces(),
        "tokenizer_config.json": {"tokenizer_class": "BertTokenizer", "pad_token": "[PAD]"},
    }
    side = {"height": PIXELS, "width": PIXELS}
    preprocessor = {
        "image_processor_type": "ViTImageProcessor", "do_resize": True, "size": side, "resample": 2,
        "do_rescale": True, "rescale_factor": 1 / 255, "do_normalize": True, "image_mean": [0.5] * 3,
        "image_std": [0.5] * 3,
    }  # fmt: skip
    llama = {
        "model_type": "llama", "architectures": ["LlamaForCausalLM"], "num_hidden_layers": 4, "num_attention_heads": 8,
        "num_key_value_heads": 2, "hidden_size": 256, "head_dim": 32, "vocab_size": 4096, "bos_token_id": 0,
        "eos_token_id": 1, "pad_token_id": 1,
    }  # fmt: skip
    return {
        "encoder": {"config.json": {"model_type": "bert", "architectures": ["BertModel"]}} | pieces,
        "classifier": {
            "config.json": {"model_type": "bert", "architectures": ["BertForSequenceClassification"], **labels}
        }
        | pieces,
        "pictures": {
            "config.json": {"model_type": "vit", "architectures": ["ViTForImageClassification"], **labels},
            "preprocessor_config.json": preprocessor,
        },
        "generator": {
            "config.json": llama,
            "generation_config.json": {"bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 1},
            "tokenizer.json": _pairs(),
            "tokenizer_config.json": {"tokenizer_class": "PreTrainedTokenizerFast", "pad_token": "<end>"},
        },
    }


def _vocabulary() -> list[str]:
    letters = string.ascii_lowercase + string.digits + string.punctuation
    return [*MARKS, *WORDS, *letters, *("##" + letter for letter in letters)]


def _pieces() -> dict[str, Any]:
    """A WordPiece tokenizer like BERT's."""
    marks = [_mark(number, mark) for number, mark in enumerate(MARKS)]
    one = [{"SpecialToken": {"id": "[CLS]", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]
    one.append({"SpecialToken": {"id": "[SEP]", "type_id": 0}})
    post = {
        "type": "TemplateProcessing", "single": one, "pair": one,
        "special_tokens": {mark: {"id": mark, "ids": [MARKS.index(mark)], "tokens": [mark]} for mark in MARKS[2:4]},
    }  # fmt: skip
    normalizer = {"clean_text": True, "handle_chinese_chars": True, "strip_accents": None, "lowercase": True}
    return {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": marks,
        "normalizer": {"type": "BertNormalizer", **normalizer}, "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": post, "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
        "model": {
            "type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100, "vocab": {piece: n for n, piece in enumerate(_vocabulary())},
        },
    }  # fmt: skip


def _pairs() -> dict[str, Any]:
    """A byte-level BPE tokenizer of 4096 tokens: marks, letters, and pairs of letters in alphabetical order."""
    marks, letters = ["<begin>", "<end>"], ["Ġ", *string.ascii_letters, *string.digits, *string.punctuation]
    pairs = [pair for pair in product(letters, letters) if pair[1] != "Ġ"][: 4096 - len(marks) - len(letters)]
    tokens = [*marks, *letters, *map("".join, pairs)]
    bytes_ = {"add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {
        "version": "1.0", "truncation": None, "padding": None, "normalizer": None,
        "added_tokens": [_mark(number, mark) for number, mark in enumerate(marks)],
        "pre_tokenizer": {"type": "ByteLevel", **bytes_}, "post_processor": None,
        "decoder": {"type": "ByteLevel", **bytes_},
        "model": {
            "type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
            "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
            "vocab": {token: n for n, token in enumerate(tokens)}, "merges": [f"{a} {b}" for a, b in pairs],
        },
    }  # fmt: skip


def _mark(number: int, content: str) -> dict[str, Any]:
    flags = dict.fromkeys(["single_word", "lstrip", "rstrip", "normalized"], False)
    return {"id": number, "content": content, **flags, "special": True}
