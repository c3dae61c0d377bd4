"""Measures Duly and its peers, and prints a table: `make bench-peers`."""

import argparse
import contextlib
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from benchmarks.peers import table
from benchmarks.peers.catalog import SYSTEMS
from benchmarks.peers.figures import Row, merge, read_figures
from benchmarks.peers.measure import Workload
from benchmarks.peers.report import BUILD, ROOT, Report, machine
from benchmarks.peers.session import measure_in_session
from benchmarks.peers.system import About, Broker, CheckFailed, Unavailable

# A file or a pipe has no width, and the default of 80 columns would break every row.
console = Console(width=None if sys.stdout.isatty() else 160)


def main() -> None:
    """Measure the selected systems; exit with 1 if one of them failed."""
    arguments = _arguments()
    signal.signal(signal.SIGTERM, _exit_on_signal)
    workload = Workload(
        arguments.tasks, arguments.rounds, arguments.single, functions=arguments.functions
    )
    results_file = BUILD / "peers.json"
    # Selected systems are merged into the rows of earlier runs.
    rows = Report.read(results_file).rows if arguments.systems and results_file.exists() else []
    with _environments(arguments.environments) as environments:
        for name in arguments.systems or SYSTEMS:
            about = SYSTEMS[name].about
            for broker in about.brokers:
                rows = merge(rows, [_row(about, broker, workload, environments)])
                Report(machine(), rows).write(results_file)
                (BUILD / "peers.md").write_text(Report(machine(), rows).page())
    _show(rows)
    raise SystemExit(any(row.is_failure for row in rows))


def _arguments() -> argparse.Namespace:
    defaults = Workload()
    parser = argparse.ArgumentParser(prog="make bench-peers", description=__doc__)
    parser.add_argument(
        "systems", nargs="*", choices=[*SYSTEMS, []], help="systems to measure [all]"
    )
    parser.add_argument(
        "--tasks", type=int, default=defaults.tasks, help="tasks in a round [%(default)s]"
    )
    parser.add_argument(
        "--rounds",
        type=int,
        default=defaults.rounds,
        help="rounds, of which the median counts [%(default)s]",
    )
    parser.add_argument(
        "--single",
        type=int,
        default=defaults.single,
        help="tasks in the latency part [%(default)s]",
    )
    parser.add_argument(
        "--functions",
        type=int,
        default=defaults.functions,
        help="calls of a function in a round [%(default)s]",
    )
    parser.add_argument(
        "--environments", type=Path, help="folder in which environments are kept and reused"
    )
    return parser.parse_args()


@contextlib.contextmanager
def _environments(folder_to_keep: Path | None) -> Iterator[Path]:
    if folder_to_keep is not None:
        folder_to_keep.mkdir(parents=True, exist_ok=True)
        yield folder_to_keep.resolve()
        return
    folder = Path(tempfile.mkdtemp(prefix="duly-peers-environments-"))
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        # A second Ctrl-C must not interrupt the clean-up.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        shutil.rmtree(folder, ignore_errors=True)


def _row(about: About, broker: Broker, workload: Workload, environments: Path) -> Row:
    console.print(f"[dim]{about.title} ({broker}) …[/dim]")
    now = datetime.now(UTC).isoformat(timespec="seconds")
    row = Row(about.name, broker, commit(), now)
    try:
        figures, versions = measure_in_session(about, broker, workload, environments)
    except Unavailable as missing:
        console.print(f"  {about.title} is skipped: {missing}.", markup=False)
        return replace(row, left_out=str(missing))
    except CheckFailed as wrong:
        console.print(f"  {about.title} failed:\n{wrong}", markup=False)
        return replace(row, left_out=str(wrong), is_failure=True)
    return replace(row, figures=read_figures(figures), versions=tuple(versions))


def commit() -> str:
    """Return the last commit that changed Duly, and whether there are uncommitted changes."""

    def git(*git_arguments: str) -> str:
        completed = subprocess.run(
            ["git", *git_arguments, "--", "src"], cwd=ROOT, capture_output=True, text=True
        )
        return completed.stdout.strip()

    changed = git("status", "--porcelain")
    return git("log", "-1", "--format=%h", "--abbrev=10") + (" with changes" if changed else "")


def _show(rows: list[Row]) -> None:
    printed = Table(*table.HEADINGS, title="Duly and its peers", box=SIMPLE_HEAD)
    for row in table.by_share(rows):
        printed.add_row(*table.cells(row))
    console.print(printed)
    functions = Table(*table.FUNCTION_HEADINGS, title="Python functions", box=SIMPLE_HEAD)
    for row in table.by_function_rate(rows):
        functions.add_row(*table.function_cells(row))
    console.print(functions)
    console.print(f"With notes: {BUILD / 'peers.md'}. All figures: {BUILD / 'peers.json'}.")


def _exit_on_signal(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        raise SystemExit(130) from None
