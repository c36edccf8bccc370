"""The operators of ai.onnx and its preview domains. Spec: https://onnx.ai/onnx/operators/"""
