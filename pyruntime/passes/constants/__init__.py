"""Passes on what depends on constants alone."""
