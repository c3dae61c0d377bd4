"""Commands that submit, show and change tasks.

Flags (`flags.py`) or a manifest (`manifest.py`) become the fields of a task (`request.py`), which
go to the client. Manifests may come from others, so they are parsed by `safe_yaml.py`. Start with
`submit.py` for writing and `tasks.py` for reading.
"""
