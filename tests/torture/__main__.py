"""Faults under load, for as long as it is told: `python -m tests.torture --minutes 20`.

`python -m tests.torture judge DIR` judges a run once more from what it left in DIR. The exit
status is 0 only if nothing happened that must not happen, and everything recovered in time.
"""

import argparse
import functools
import random
import shutil
import sys
from pathlib import Path

from tests.torture import namespaces, report, run_folder, runner
from tests.torture.fault_weights import cards
from tests.torture.faults import FAULTS

HERE = Path("build/torture")


def main(args: list[str]) -> int:
    if args[:1] == ["judge"]:
        return tell(Path(args[1]) if len(args) > 1 else HERE)
    return torture(_options(args))


def torture(options: argparse.Namespace) -> int:
    """Make a run, and judge it."""
    lacking = namespaces.lacking()
    if lacking:
        print(f"torture: {lacking}", file=sys.stderr)
        return 2
    print(f"torture: {options.minutes:g} minutes, seed {options.seed}", flush=True)
    _clear(options.report)
    chosen = runner.Options(options.seed, options.minutes, cards(options.only), options.rate)
    runner.run(chosen, options.report, say=functools.partial(print, flush=True))
    return tell(options.report)


def tell(folder: Path) -> int:
    """Judge what is in the folder, write the report, and say what came of it."""
    run = run_folder.tell(folder)
    report.write(run, folder)
    print((folder / "report.md").read_text())
    return 0 if run.is_good else 1


def _clear(folder: Path) -> None:
    """Take away what an earlier run left, and nothing else."""
    shutil.rmtree(folder / "logs", ignore_errors=True)
    for name in (*run_folder.FILES, *report.FILES):
        (folder / name).unlink(missing_ok=True)


def _options(args: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.torture", description=__doc__)
    parser.add_argument("--minutes", type=float, default=20.0, help="how long the load lasts")
    seed = random.randrange(10**6)
    parser.add_argument("--seed", type=int, default=seed, help="which faults, in which order")
    parser.add_argument("--rate", type=float, default=28.0, help="calls of clients per second")
    parser.add_argument(
        "--only", action="append", metavar="FAULT", choices=sorted(FAULTS), help="may be repeated"
    )
    parser.add_argument("--report", type=Path, default=HERE, help="the folder for the report")
    return parser.parse_args(args)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
