"""The contract between compiler and executors: the Program, its schema, its validation, and reports on it."""
