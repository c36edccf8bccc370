"""ai.onnx.ml's operators. Spec: https://onnx.ai/onnx/operators/#ai-onnx-ml"""

DOMAIN = "ai.onnx.ml"
