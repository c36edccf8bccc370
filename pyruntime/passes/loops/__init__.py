"""Passes on loops: a Loop whose body only computes becomes one procedure, and products leave the body."""
