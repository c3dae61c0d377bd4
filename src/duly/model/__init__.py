"""What things are: frozen values without any I/O.

Start with `task.py`, `resources.py` and `tenant.py`. `requests` has what clients may ask for and
how it becomes one of these values; `archives` reads bundles that anybody may have made.
"""
