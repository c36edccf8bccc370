"""Passes on constants and on values computed from them."""
