"""Published programs, unmodified, in pages: with this package in place of onnxruntime-web, and with onnxruntime-web."""
