"""Measures one system from inside its own environment; the figures go to a file.

Started by `session.py`, which ends it with SIGTERM when somebody has pressed Ctrl-C.
"""

import json
import signal
import sys
from dataclasses import asdict
from importlib.metadata import version
from types import FrameType

from benchmarks.peers.catalog import SYSTEMS
from benchmarks.peers.measure import Extent, measure
from benchmarks.peers.system import Place

RESULT = "figures.json"


def main() -> None:
    """Measure the system that the first argument names, as much as the others say."""
    name, *extent = sys.argv[1:]
    signal.signal(signal.SIGTERM, _leave)
    place = Place.from_environment()
    system = SYSTEMS[name](place)
    figures = measure(system, Extent(*map(int, extent)))
    distributions = [package.partition("[")[0] for package in system.about.packages]
    versions = [f"{each} {version(each)}" for each in distributions]
    result = {"figures": asdict(figures), "versions": versions}
    (place.folder / RESULT).write_text(json.dumps(result))


def _leave(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


if __name__ == "__main__":
    main()
