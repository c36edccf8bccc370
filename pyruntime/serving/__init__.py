"""`pyruntime serve --model NAME=PATH`: models behind the Open Inference Protocol, by KServe's Python server.

`tensors` converts what requests carry, `model` runs it, `rest` and `grpc` bound what clients may send, `server` starts
and ends both. Needs `pip install "pyruntime-onnx[serve]"` (docs/use/serving.md, docs/adr/0072-serving.md).
"""
