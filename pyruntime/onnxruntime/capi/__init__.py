"""The modules that onnxruntime has below `capi`, for programs that import from them."""
