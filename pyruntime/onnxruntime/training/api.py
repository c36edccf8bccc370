"""Stands in for onnxruntime.training.api."""

from pyruntime.api.training import CheckpointState, LinearLRScheduler, Module, Optimizer

__all__ = ["CheckpointState", "LinearLRScheduler", "Module", "Optimizer"]
