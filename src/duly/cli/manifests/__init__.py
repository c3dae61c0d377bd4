"""Files of tasks for `duly submit -f` and `duly schedule create -f`.

A manifest may come from others, so YAML is parsed by `safe_yaml.py`. Every mistake in it, also one
that the server finds, is reported with its line and column (`positions.py`). Start with
`manifest.py`.
"""
