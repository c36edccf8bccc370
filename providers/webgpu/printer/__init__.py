"""Prints the loop form as WGSL."""
