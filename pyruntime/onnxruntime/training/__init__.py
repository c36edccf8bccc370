"""Stands in for onnxruntime.training; of its parts, `api` is here."""
