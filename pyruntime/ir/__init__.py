"""The kernel language: element types, symbolic integers, scalar expressions, kernels, and their slow evaluator."""
