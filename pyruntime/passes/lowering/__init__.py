"""Passes that turn kernels into forms that providers support."""
