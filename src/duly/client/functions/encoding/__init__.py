"""Converts the values of arguments and results to JSON and back, by their type hints.

What comes back equals what went in, or the value is refused: nothing changes silently. Each type
hint becomes a `Converter`, built once and cached. Start with `converters.py`, which chooses them;
`scalars.py`, `containers.py`, `records.py` and `unions.py` have the kinds.
"""
