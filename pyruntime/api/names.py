"""All names of onnxruntime's modules: those that work, those that are refused, and the exceptions."""

from __future__ import annotations

from typing import Any

from pyruntime import ort_errors
from pyruntime.api import refused
from pyruntime.api.name_table import BY_MODULE, named
from pyruntime.frontend.feed_checks import NodeArg
from pyruntime.session.run_options import RunOptions
from pyruntime.training.adapters.lora_adapter import LoraAdapter

NAMES = named(BY_MODULE)
NAMES |= {"NodeArg": NodeArg, "LoraAdapter": LoraAdapter, "RunOptions": RunOptions, **refused.NAMES}
ERRORS: dict[str, Any] = {name: getattr(ort_errors, name) for name in ort_errors.__all__}

__all__ = ["ERRORS", "NAMES"]  # the documentation site reads it
