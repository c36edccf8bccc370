"""The graph of a training step: options, losses, optimisers, and operators that differ in training."""
