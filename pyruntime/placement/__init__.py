"""Assigns each kernel to one of the providers that a session names."""
