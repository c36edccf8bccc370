"""Passes that let KV caches grow in place."""
