"""Side by side with peers, in one Chromium page: `python -m bench --help`, docs/benchmarks.md."""
