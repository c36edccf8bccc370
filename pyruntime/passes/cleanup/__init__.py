"""Passes that remove what nothing uses."""
