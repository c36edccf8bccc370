"""Lowers a graph to kernels by tracing its operators. Sequences and optionals exist at compile time only."""
