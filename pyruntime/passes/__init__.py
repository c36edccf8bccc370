"""Passes, which rewrite kernels: one file for each. pyruntime/compiler/pipeline.py has their order."""
