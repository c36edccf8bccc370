"""The official ONNX backend suite, run on any provider, natively or in Chromium. `python -m kit.conformance -h`."""
