"""From kernels to kernels, one file a pass; their order is in pyruntime/compiler/pipeline.py."""
