"""Operators of ai.onnx.ml. Spec: https://onnx.ai/onnx/operators/#ai-onnx-ml"""

DOMAIN = "ai.onnx.ml"
