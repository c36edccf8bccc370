"""Lowers kernels to the loop form that printers print, and defines the interface of providers."""
