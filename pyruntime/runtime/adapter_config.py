"""Which fields of PEFT's adapter_config.json count. docs/use/adapters.md has the same table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyruntime.errors import InvalidInput

CONFIG = "adapter_config"  # in the metadata of a safetensors file: the JSON of adapter_config.json
METADATA = ["format", CONFIG]  # "format" names the framework that wrote the file
MOST_ALPHA = 3e38  # it scales float32
DEFAULT_ALPHA = 8.0  # PEFT's

APPLIED = ["peft_type", "lora_alpha", "alpha", "alpha_pattern", "use_rslora", "use_dora", "init_lora_weights"]
# How adapters were trained, and what the names and shapes of the tensors also say: all tensors of the file are applied,
# to the modules that they name, with their ranks.
WITHOUT_EFFECT = [
    "r", "rank_pattern", "target_modules", "exclude_modules", "layers_to_transform", "layers_pattern",
    "modules_to_save", "bias", "fan_in_fan_out", "lora_dropout", "inference_mode", "task_type", "auto_mapping",
    "base_model_name_or_path", "revision", "peft_version", "megatron_config", "megatron_core", "loftq_config",
    "eva_config", "corda_config", "lora_ga_config", "velora_config", "qalora_group_size", "runtime_config",
    "ensure_weight_tying",
]  # fmt: skip
# Refused if they are set: an adapter that is more, or something else, than products of two matrices
REFUSED: dict[str, str] = {
    "lora_bias": "LoRA with a bias of B",
    "use_qalora": "QALoRA",
    "use_bdlora": "BD-LoRA",
    "alora_invocation_tokens": "Activated LoRA",
    "arrow_config": "Arrow",
    "kasa_config": "KaSA",
    "monteclora_config": "MonteCLoRA",
    "layer_replication": "LoRA with replicated layers",
    "target_parameters": "LoRA of parameters",
    "trainable_token_indices": "LoRA with trained tokens",
}
# Initial values for which PEFT leaves the model's weights as they are. For the others (PiSSA, OLoRA, CorDA, LoRA-GA,
# LoftQ) it replaces them when it loads the adapter.
INITIAL_VALUES = ["gaussian", "eva", "orthogonal", "mica"]


def check_config(config: Any) -> None:
    """Errors: InvalidInput for another kind of adapter, or damaged data"""
    hint = "give PEFT's adapter_config.json"
    if not isinstance(config, dict):
        raise InvalidInput("the adapter's configuration is no JSON object", hint=hint)
    kind = config.get("peft_type", "LORA")
    if kind != "LORA" and kind is not None:
        raise InvalidInput(f"an adapter of kind {kind} is not supported", hint="LoRA is")
    for name, what in REFUSED.items():
        if _is_set(config.get(name)):
            raise InvalidInput(f"an adapter of kind {what} ({name}) is not supported", hint="LoRA is")
    _check_initial_values(config.get("init_lora_weights"))
    for key in ["use_rslora", "use_dora"]:
        if config.get(key) is not None and not isinstance(config.get(key), bool):
            raise InvalidInput(f"the adapter's {key} is neither true nor false", hint=hint)
    for key in ["lora_alpha", "alpha"]:
        if key in config and not _is_alpha(config[key]):
            raise InvalidInput(f"the adapter's {key} is no number")
    patterns = config.get("alpha_pattern")
    if patterns is not None and not isinstance(patterns, dict):
        raise InvalidInput("alpha_pattern is no table of patterns", hint=hint)
    if patterns is not None:
        for pattern, value in patterns.items():
            if not _is_alpha(value):
                raise InvalidInput(f'the alpha_pattern "{pattern}" of the adapter has no number')


def _check_initial_values(value: Any) -> None:
    if value is None or isinstance(value, bool):
        return
    if not isinstance(value, str) or value.lower() not in INITIAL_VALUES:
        text = f'the adapter belongs to weights that init_lora_weights "{value}" changes, not to those of the model'
        raise InvalidInput(text, hint="convert it with save_pretrained(path_initial_model_for_weight_conversion=…)")


def unknown_fields(config: Mapping[str, Any], metadata: Mapping[str, str]) -> str:
    """A warning of fields that are in no table, or "". metadata: of the adapter's file"""
    known = [*APPLIED, *WITHOUT_EFFECT, *list(REFUSED)]
    names = [name for name in config.keys() if name not in known and _is_set(config[name])]
    others = [key for key in metadata.keys() if key not in METADATA]
    if len(names) > 0:
        return f"the adapter's configuration has fields that are not known and count for nothing: {', '.join(names)}"
    if len(others) > 0:
        return f"the adapter's metadata has entries that are not known and count for nothing: {', '.join(others)}"
    return ""


def _is_set(value: Any) -> bool:
    if value is None or isinstance(value, bool):
        return value is True
    if isinstance(value, list):
        return len(value) > 0
    return not isinstance(value, dict) or len(value) > 0


def _is_alpha(x: Any) -> bool:
    is_number = (isinstance(x, int) or isinstance(x, float)) and not isinstance(x, bool)
    return is_number and -MOST_ALPHA <= x <= MOST_ALPHA
