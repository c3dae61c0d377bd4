"""A worker of a Python queue: `python -m benchmarks.peers.work NAME`."""

import sys

from benchmarks.peers.catalog import SYSTEMS
from benchmarks.peers.python_queue import PythonQueue
from benchmarks.peers.system import Context

if __name__ == "__main__":
    system = SYSTEMS[sys.argv[1]](Context.from_environment())
    if not isinstance(system, PythonQueue):
        raise SystemExit(f"{sys.argv[1]} has no Python worker.")
    system.work()
