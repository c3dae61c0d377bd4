"""Commands that submit tasks: `duly run` and `duly submit`.

Flags become the fields of a task (`request.py`), a manifest becomes a batch or a graph
(`submit_file.py`), and local files are uploaded first (`bundle.py`). Start with `submit.py`.
"""
