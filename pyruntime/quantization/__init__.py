"""Weights of fewer bits: a smaller model that reads less memory, with a report of what that costs.

`quantize` is the public function. It needs the standard library alone.
"""
