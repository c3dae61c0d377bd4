"""The composition roots: settings become parts, and run until they are stopped."""

import sys

# uvicorn loads what would watch our files for changes, and never uses it: 0.7 MiB in each process.
sys.modules.setdefault("watchfiles", None)  # type: ignore[arg-type]
