"""Training sessions with NumPy arrays."""
