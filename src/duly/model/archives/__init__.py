"""Reads archives from untrusted sources: bounded, without links, files and folders only.

Agents unpack bundles with these readers, and clients check a bundle with them before it is
uploaded. Bytes come in; entries and their data, or an error, come out, and nothing is written
here. Start with `bundle.py`, the rules for a bundle; `tar.py` and `gunzip.py` read the formats.
"""
