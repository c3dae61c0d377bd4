"""`duly bench`: measures an installation through its API, and formats figures.

A client comes in, and figures come out, one by one. Start with `api_benchmark.py`; `figure.py`
(a value with its limit and target) and `figure_table.py` also serve the repository's benchmarks.
"""
