"""Python functions as tasks: the application's side of `duly.App`.

`app.py` has the decorator and `task.py` what it returns; `arguments.py` and `encoding` turn
arguments and results into JSON by their type hints, and `handle.py` is what `submit` returns.
`context.py` is what a running function sees of Duly, `control.py` the exceptions that it raises.
`inline.py` runs tasks in this process, for tests. Nothing here knows how a worker runs a function:
workers call `App` and `Task`. Start with `task.py`.
"""
