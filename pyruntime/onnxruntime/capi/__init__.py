"""onnxruntime's modules below `capi`, for programs that import from them."""
