"""Measures one system from inside its own environment, and writes the figures to a file.

Started by `session.py`, which terminates it with SIGTERM after Ctrl-C.
"""

import json
import signal
import sys
from dataclasses import asdict
from importlib.metadata import version
from types import FrameType

from benchmarks.peers.catalog import SYSTEMS
from benchmarks.peers.measure import Workload, measure
from benchmarks.peers.system import Context

RESULT_FILE = "figures.json"


def main() -> None:
    """Measure the system named by the first argument; the others are the fields of `Workload`."""
    system_name, *workload = sys.argv[1:]
    signal.signal(signal.SIGTERM, _exit_on_signal)
    context = Context.from_environment()
    system = SYSTEMS[system_name](context)
    figures = measure(system, Workload(*map(int, workload)))
    distributions = [package.partition("[")[0] for package in system.about.packages]
    versions = [f"{name} {version(name)}" for name in distributions]
    result = {"figures": asdict(figures), "versions": versions}
    (context.folder / RESULT_FILE).write_text(json.dumps(result))


def _exit_on_signal(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


if __name__ == "__main__":
    main()
