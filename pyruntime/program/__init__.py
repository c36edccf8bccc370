"""From kernels to a Program: the order of the stages, placement, lifetimes, and the Program's format."""
