"""The kernel language: element types, symbolic integers, scalar expressions, kernels, and a reference evaluator."""
