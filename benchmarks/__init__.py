"""Measures Duly against what the machine can do: `make bench`, or `python -m benchmarks`."""
