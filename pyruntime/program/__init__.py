"""The contract between compiler and executors: the Program, its schema, and what checks and reads it."""
