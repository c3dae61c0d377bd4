"""The types of the API's JSON, for type checkers and editors.

They are TypedDicts without behaviour: responses are returned as they were received. A test
compares them with the server's own types. Start with `task_shapes.py`.
"""
