"""A worker of a system whose library is started from Python: `python -m …work NAME`."""

import sys

from benchmarks.peers.catalog import SYSTEMS
from benchmarks.peers.python_queue import PythonQueue
from benchmarks.peers.system import Place

if __name__ == "__main__":
    system = SYSTEMS[sys.argv[1]](Place.from_environment())
    if not isinstance(system, PythonQueue):
        raise SystemExit(f"{sys.argv[1]} has no worker in Python.")
    system.work()
