"""`python -m benchmarks [PART …]`: measure, and write a table, JSON and a chart."""

import argparse
import signal
import sys
from dataclasses import replace
from pathlib import Path

from benchmarks import machine, performance_page, report, suite
from benchmarks.results import Measured, added
from benchmarks.rig import Sizes, full


def main() -> int:
    """Run the parts that were asked for; 1 means that a task was lost, or a part failed."""
    arguments = _arguments()
    kept = arguments.out / report.JSON
    if arguments.page:
        performance_page.update(performance_page.PAGE, _earlier(kept))
        return 0
    earlier = _earlier(kept) if arguments.add and kept.exists() else None
    if earlier is not None and earlier.machine.commit != machine.commit():
        # Said before anything is measured, and not after it.
        raise SystemExit(
            f"{kept} is of commit {earlier.machine.commit}, and this is {machine.commit()}: "
            "without --add it is replaced."
        )
    sizes = full() if arguments.full else Sizes()
    if arguments.scale != 1:
        sizes = sizes.scaled(arguments.scale)
    if arguments.minutes is not None:
        sizes = replace(sizes, snapshot_seconds=arguments.minutes * 60)
    parts = arguments.parts or list(suite.PARTS)
    # However it is ended, what it has started ends with it.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    measured = suite.run(parts, sizes, _say, arguments.stores)
    if earlier is not None:
        measured = added(measured, earlier, list(suite.PARTS))
    report.write(measured, arguments.out)
    report.draw(measured)
    return 0 if measured.is_right else 1


def _earlier(file: Path) -> Measured:
    """Return what an earlier run has left."""
    try:
        return report.load(file)
    except FileNotFoundError:
        raise SystemExit(f"There is no {file}: measure first.") from None


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "parts", nargs="*", metavar="PART", help=f"all unless named: {', '.join(suite.PARTS)}"
    )
    parser.add_argument("--out", type=Path, default=Path("build/bench"), help="folder to write to")
    parser.add_argument("--scale", type=float, default=1.0, help="do less, for trying it out")
    parser.add_argument("--minutes", type=float, help="how long the snapshot is held")
    parser.add_argument(
        "--full", action="store_true", help="with stores of the size that the targets speak of"
    )
    parser.add_argument(
        "--stores", type=Path, metavar="FOLDER", help="keep full stores there, for the next run"
    )
    parser.add_argument(
        "--add", action="store_true", help="keep what an earlier run has measured of other parts"
    )
    parser.add_argument(
        "--page", action="store_true", help="measure nothing; write the last table to the docs"
    )
    arguments = parser.parse_args()
    arguments.parts = [part for given in arguments.parts for part in given.split(",") if part]
    unknown = [part for part in arguments.parts if part not in suite.PARTS]
    if unknown:
        parser.error(f"there is no part {unknown[0]!r}; there are {', '.join(suite.PARTS)}")
    return arguments


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
