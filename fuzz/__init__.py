"""The fuzzer: generators of cases, oracles that judge them, a runner that survives both: `python -m fuzz --help`."""
