"""Smaller models by samples and by training: static quantisation, pruning, and what each costs."""
