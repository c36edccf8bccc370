"""Runs Programs: the executor and its steps, outputs that stay in its memory, timing and comparison of runs."""
