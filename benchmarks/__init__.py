"""Measures Duly against the limits of the machine: `make bench`, or `python -m benchmarks`."""
