"""python -m kit.families.build: writes the files of kit/families.

It needs torch, onnx_ir, onnxruntime-genai 0.18 with transformers 5, and for the families in OPTIMUM, which `--optimum`
selects, optimum-onnx 0.1 with transformers 4.57. Models have random weights and two layers.
"""

from __future__ import annotations

import argparse
import lzma
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import onnx

from kit.families import HERE, WINDOW, is_large

WORDS = 64
SPECIAL: dict[str, Any] = {"vocab_size": WORDS, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
COMMON: dict[str, Any] = {
    **SPECIAL, "hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2,
    "num_key_value_heads": 1, "head_dim": 16, "max_position_embeddings": 128, "tie_word_embeddings": False,
}  # fmt: skip
YARN = {
    "rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": False,
    "original_max_position_embeddings": 4096, "rope_theta": 150000.0,
}  # fmt: skip
HALF_ROTARY = {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5}
THREEFOLD = {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [1, 1, 0], "partial_rotary_factor": 0.25}
PICTURES = {"depth": 1, "hidden_size": 16, "intermediate_size": 16, "num_heads": 2, "out_hidden_size": 32}
# Names of the configuration and the model, what differs from COMMON
GENAI: dict[str, tuple[str, str, dict[str, Any]]] = {
    "llama": ("LlamaConfig", "LlamaForCausalLM", {}),
    "phi3": ("Phi3Config", "Phi3ForCausalLM", {"original_max_position_embeddings": 128}),
    "qwen3": ("Qwen3Config", "Qwen3ForCausalLM", {}),
    "smollm3": ("SmolLM3Config", "SmolLM3ForCausalLM", {}),
    "olmo": ("OlmoConfig", "OlmoForCausalLM", {}),
    "granite": ("GraniteConfig", "GraniteForCausalLM", {}),
    "hunyuan": ("HunYuanDenseV1Config", "HunYuanDenseV1ForCausalLM", {}),
    "nemotron": ("NemotronConfig", "NemotronForCausalLM", {"head_dim": 32, "rope_parameters": HALF_ROTARY}),
    "lfm2": ("Lfm2Config", "Lfm2ForCausalLM", {"layer_types": ["conv", "full_attention"],
                                              "block_auto_adjust_ff_dim": False}),
    "gptoss": ("GptOssConfig", "GptOssForCausalLM", {
        "head_dim": 64, "hidden_size": 64, "sliding_window": WINDOW, "num_local_experts": 2, "num_experts_per_tok": 1,
        "layer_types": ["sliding_attention", "full_attention"], "rope_scaling": YARN}),
    "qwen35": ("Qwen3_5Config", "Qwen3_5ForConditionalGeneration", {}),
    "whisper": ("WhisperConfig", "WhisperForConditionalGeneration", {}),
}  # fmt: skip
GPT = {"n_embd": 32, "n_layer": 2, "n_head": 2, "n_positions": 256, "n_inner": 32}
LAYERS = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
OPTIMUM: dict[str, tuple[str, str, dict[str, Any]]] = {
    "gpt2": ("GPT2Config", "GPT2LMHeadModel", GPT),
    "bigcode": ("GPTBigCodeConfig", "GPTBigCodeForCausalLM", {**GPT, "multi_query": True}),
    "bloom": ("BloomConfig", "BloomForCausalLM", {"hidden_size": 32, "n_layer": 2, "n_head": 2}),
    "falcon": ("FalconConfig", "FalconForCausalLM", {**LAYERS, "multi_query": True, "alibi": False}),
    "gemma2": ("Gemma2Config", "Gemma2ForCausalLM", {**COMMON, "sliding_window": WINDOW, "query_pre_attn_scalar": 16}),
    "gptneox": ("GPTNeoXConfig", "GPTNeoXForCausalLM", {**LAYERS, "intermediate_size": 32,
                                                        "max_position_embeddings": 256}),
    "mpt": ("MptConfig", "MptForCausalLM", {"d_model": 32, "n_layers": 2, "n_heads": 2, "max_seq_len": 256,
                                            "expansion_ratio": 1}),
    "stablelm": ("StableLmConfig", "StableLmForCausalLM", {**COMMON, "num_key_value_heads": 2}),
    "t5": ("T5Config", "T5ForConditionalGeneration", {
        "d_model": 32, "d_kv": 16, "d_ff": 32, "num_layers": 1, "num_decoder_layers": 2, "num_heads": 2,
        "decoder_start_token_id": 0}),
    "marian": ("MarianConfig", "MarianMTModel", {
        "d_model": 32, "encoder_layers": 1, "decoder_layers": 2, "encoder_attention_heads": 2,
        "decoder_attention_heads": 2, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32, "max_position_embeddings": 256,
        "decoder_start_token_id": 1}),
}  # fmt: skip


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m kit.families.build", description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--optimum", action="store_true", help="the families that Optimum exports")
    args = parser.parse_args(argv)
    import torch
    import transformers

    for name in args.names or (OPTIMUM if args.optimum else GENAI):
        config, kind, more = (OPTIMUM if args.optimum else GENAI)[name]
        torch.manual_seed(0)
        made = _config(transformers, name, config, more if args.optimum else {**COMMON, **more})
        net = getattr(transformers, kind)(made).eval()
        with tempfile.TemporaryDirectory() as folder:
            for path, stem in _by_optimum(net, name, folder) if args.optimum else _by_genai(net, name, Path(folder)):
                print(stem, write(path, stem), "bytes", flush=True)
    return 0


def _config(transformers: Any, name: str, config: str, more: dict[str, Any]) -> Any:
    if name == "qwen35":
        heads = {"linear_num_key_heads": 2, "linear_num_value_heads": 2, "linear_key_head_dim": 16}
        text = {**COMMON, **heads, "linear_value_head_dim": 16, "linear_conv_kernel_dim": 4,
                "layer_types": ["linear_attention", "full_attention"], "rope_parameters": THREEFOLD}  # fmt: skip
        return transformers.Qwen3_5Config(text_config=text, vision_config=PICTURES)
    if name == "whisper":
        heads = {"encoder_attention_heads": 2, "decoder_attention_heads": 2}
        more = {"encoder_layers": 2, "decoder_layers": 2, "d_model": 32, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32,
                "max_target_positions": 256, "decoder_start_token_id": 1, **heads}  # fmt: skip
    return getattr(transformers, config)(**{**SPECIAL, **more})


def _by_optimum(net: Any, name: str, folder: str) -> list[tuple[Path, str]]:
    from optimum.exporters.onnx import onnx_export_from_model

    has_encoder = name in ("t5", "marian")
    task = "text2text-generation-with-past" if has_encoder else "text-generation-with-past"
    onnx_export_from_model(net, folder, task=task, do_validation=False)
    if has_encoder:
        return [
            (Path(folder, "decoder_model_merged.onnx"), name),
            (Path(folder, "encoder_model.onnx"), f"{name}.encoder"),
        ]
    return [(Path(folder, "model.onnx"), name)]


def _by_genai(net: Any, name: str, folder: Path) -> list[tuple[Path, str]]:
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast, WhisperFeatureExtractor

    net.save_pretrained(folder / "from")
    words = Tokenizer(models.WordLevel({f"w{n}": n for n in range(WORDS)}, unk_token="w0"))
    PreTrainedTokenizerFast(tokenizer_object=words, unk_token="w0", bos_token="w1", eos_token="w2").save_pretrained(
        folder / "from"
    )
    if name == "whisper":
        WhisperFeatureExtractor(feature_size=80).save_pretrained(folder / "from")
    command = [sys.executable, "-m", "onnxruntime_genai.models.builder", "-m", "any", "-i", str(folder / "from")]
    command += ["-o", str(folder / "to"), "-p", "fp32", "-e", "cpu", "-c", str(folder / "cache")]
    subprocess.run(command, check=True, capture_output=True)
    if name == "whisper":
        return [(folder / "to/decoder.onnx", name), (folder / "to/encoder.onnx", f"{name}.encoder")]
    return [(folder / "to/model.onnx", name)]


def write(path: Path, name: str) -> int:
    """Without large weights, and without what tells where it was made. Returns bytes."""
    model = onnx.load(path)
    for tensor in model.graph.initializer:
        del tensor.external_data[:]
        tensor.data_location = onnx.TensorProto.DEFAULT
        tensor.doc_string = ""
        if is_large(tensor):
            for data in ("raw_data", "float_data"):
                tensor.ClearField(data)
    del model.graph.value_info[:], model.metadata_props[:]
    for node in model.graph.node:
        node.doc_string = ""
        del node.metadata_props[:]
    data = lzma.compress(model.SerializeToString(), preset=9)
    (HERE / f"{name}.onnx.xz").write_bytes(data)
    return len(data)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
