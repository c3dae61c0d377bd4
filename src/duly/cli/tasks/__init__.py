"""Commands that submit, show and change tasks.

Flags (`flags.py`) or a manifest (`cli/manifests`) become the fields of a task, which go to the
client. Start with `submission/submit.py` for writing and `tasks.py` for reading.
"""
