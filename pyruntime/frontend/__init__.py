"""From a graph to kernels: operators are traced, sequences and optionals are settled at compile time."""
