"""Reads and writes files of weights: safetensors, .onnx_adapter, and models with new weights."""
