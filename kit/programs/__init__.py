"""Programs of others, in pages: run unmodified, with this package in place of onnxruntime-web and with that itself."""
