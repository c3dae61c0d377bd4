"""The composition roots: build the components from settings and run them until stopped.

`serve.py` runs a server, `agent.py` a node, `dashboard.py` the dashboard, and `up.py` all of them
on one machine, with the child processes in `local`. Options come in from the command line, parsed
and checked. Start with `serve.py`.
"""

import sys

# Keep uvicorn from importing its file watcher, which is never used: 0.7 MiB in each process.
sys.modules.setdefault("watchfiles", None)  # type: ignore[arg-type]
