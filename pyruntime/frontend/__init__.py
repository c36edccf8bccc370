"""From a graph to kernels: operators are traced; sequences and optionals exist at compile time only."""
