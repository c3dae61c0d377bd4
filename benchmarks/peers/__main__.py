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
from benchmarks.peers.measure import Extent
from benchmarks.peers.report import BUILD, ROOT, Report, machine
from benchmarks.peers.session import measure_in_session
from benchmarks.peers.system import About, Broker, LeftOut, Wrong

# A file or a pipe has no width, and a table that is squeezed cannot be read.
console = Console(width=None if sys.stdout.isatty() else 160)


def main() -> None:
    """Measure what was asked for; fail if one of them did not do its work."""
    asked = _arguments()
    signal.signal(signal.SIGTERM, _leave)
    extent = Extent(asked.tasks, asked.rounds, asked.single)
    kept = BUILD / "peers.json"
    # Some systems alone are a part of a larger table that is there already.
    rows = Report.read(kept).rows if asked.systems and kept.exists() else []
    with _environments(asked.environments) as environments:
        for name in asked.systems or SYSTEMS:
            about = SYSTEMS[name].about
            for broker in about.brokers:
                rows = merge(rows, [_row(about, broker, extent, environments)])
                Report(machine(), rows).write(kept)
                (BUILD / "peers.md").write_text(Report(machine(), rows).page())
    _show(rows)
    raise SystemExit(any(row.is_failure for row in rows))


def _arguments() -> argparse.Namespace:
    usual = Extent()
    parser = argparse.ArgumentParser(prog="make bench-peers", description=__doc__)
    parser.add_argument("systems", nargs="*", choices=[*SYSTEMS, []], help="only these")
    parser.add_argument("--tasks", type=int, default=usual.tasks, help="tasks in a round")
    parser.add_argument(
        "--rounds", type=int, default=usual.rounds, help="rounds; the middle one counts"
    )
    parser.add_argument("--single", type=int, default=usual.single, help="tasks one at a time")
    parser.add_argument(
        "--environments", type=Path, help="a folder where environments are kept for next time"
    )
    return parser.parse_args()


@contextlib.contextmanager
def _environments(kept: Path | None) -> Iterator[Path]:
    if kept is not None:
        kept.mkdir(parents=True, exist_ok=True)
        yield kept.resolve()
        return
    folder = Path(tempfile.mkdtemp(prefix="duly-peers-environments-"))
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        # Another Ctrl-C now would only leave something behind.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        shutil.rmtree(folder, ignore_errors=True)


def _row(about: About, broker: Broker, extent: Extent, environments: Path) -> Row:
    console.print(f"[dim]{about.title} ({broker}) …[/dim]")
    now = datetime.now(UTC).isoformat(timespec="seconds")
    row = Row(about.name, broker, commit(), now)
    try:
        figures, versions = measure_in_session(about, broker, extent, environments)
    except LeftOut as missing:
        console.print(f"  {about.title} is left out: {missing}.", markup=False)
        return replace(row, left_out=str(missing))
    except Wrong as wrong:
        console.print(f"  {about.title} failed:\n{wrong}", markup=False)
        return replace(row, left_out=str(wrong), is_failure=True)
    return replace(row, figures=read_figures(figures), versions=tuple(versions))


def commit() -> str:
    """Return the last commit that changed Duly, and whether something else was measured."""

    def git(*words: str) -> str:
        said = subprocess.run(
            ["git", *words, "--", "src"], cwd=ROOT, capture_output=True, text=True
        )
        return said.stdout.strip()

    changed = git("status", "--porcelain")
    return git("log", "-1", "--format=%h", "--abbrev=10") + (" with changes" if changed else "")


def _show(rows: list[Row]) -> None:
    shown = Table(*table.HEADINGS, title="Duly and its peers", box=SIMPLE_HEAD)
    for row in table.by_share(rows):
        shown.add_row(*table.cells(row))
    console.print(shown)
    console.print(f"The same with notes is in {BUILD / 'peers.md'}, all figures in peers.json.")


def _leave(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        raise SystemExit(130) from None
