"""`python -m benchmarks [PART …]`: runs the benchmarks; writes a table, JSON and a chart."""

import argparse
import signal
import sys
from dataclasses import replace
from pathlib import Path

from benchmarks import machine, performance_page, report, suite
from benchmarks.results import Results, merge
from benchmarks.rig import Sizes, full_sizes


def main() -> int:
    """Run the selected parts; return 1 if a task was lost or a part failed."""
    arguments = _arguments()
    results_file = arguments.out / report.JSON
    if arguments.page:
        performance_page.update_page(performance_page.PAGE, _load_results(results_file))
        return 0
    earlier = _load_results(results_file) if arguments.add and results_file.exists() else None
    if earlier is not None and earlier.machine.commit != machine.commit():
        # Refused before measuring, which may take an hour, rather than after it.
        raise SystemExit(
            f"{results_file} is of commit {earlier.machine.commit}, not {machine.commit()}; "
            "run without --add to replace it."
        )
    sizes = full_sizes() if arguments.full else Sizes()
    if arguments.scale != 1:
        sizes = sizes.scaled(arguments.scale)
    if arguments.minutes is not None:
        sizes = replace(sizes, snapshot_seconds=arguments.minutes * 60)
    parts = arguments.parts or list(suite.PARTS)
    # Unwind on SIGTERM, too, so that every process that was started is stopped.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    results = suite.run(parts, sizes, _log, arguments.stores)
    if earlier is not None:
        results = merge(results, earlier, list(suite.PARTS))
    report.write(results, arguments.out)
    report.print_table(results)
    return 0 if results.is_valid else 1


def _load_results(file: Path) -> Results:
    """Return the results of an earlier run."""
    try:
        return report.load(file)
    except FileNotFoundError:
        raise SystemExit(f"{file} does not exist; run the benchmarks first.") from None


def _log(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "parts", nargs="*", metavar="PART", help=f"parts to run: {', '.join(suite.PARTS)} [all]"
    )
    parser.add_argument(
        "--out", type=Path, default=Path("build/bench"), help="output folder [build/bench]"
    )
    parser.add_argument(
        "--scale",
        type=float,
        default=1.0,
        help="factor for all workload sizes, for quick tries [1]",
    )
    parser.add_argument("--minutes", type=float, help="duration of the snapshot part")
    parser.add_argument(
        "--full", action="store_true", help="use the store sizes that the targets assume"
    )
    parser.add_argument(
        "--stores", type=Path, metavar="FOLDER", help="keep filled stores in FOLDER and reuse them"
    )
    parser.add_argument(
        "--add", action="store_true", help="keep the earlier results of other parts"
    )
    parser.add_argument(
        "--page",
        action="store_true",
        help="write the latest results to the docs, without measuring",
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
