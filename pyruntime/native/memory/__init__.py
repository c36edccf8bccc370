"""Memory of Programs: arrays in the storage layout, linear memory as planners use it, argument blocks, reports."""
