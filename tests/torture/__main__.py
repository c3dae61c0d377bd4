"""Injects faults under load: `python -m tests.torture --minutes 20`.

`python -m tests.torture judge DIR` judges an earlier run again, from the files in DIR. The exit
status is 0 only if no invariant was violated and every recovery was in time.
"""

import argparse
import functools
import random
import shutil
import sys
from pathlib import Path

from tests.torture import namespaces, report, run_folder, runner
from tests.torture.fault_weights import weighted_faults
from tests.torture.faults import FAULTS

REPORT_FOLDER = Path("build/torture")


def main(args: list[str]) -> int:
    if args[:1] == ["judge"]:
        return judge(Path(args[1]) if len(args) > 1 else REPORT_FOLDER)
    return torture(_options(args))


def torture(options: argparse.Namespace) -> int:
    """Execute a run, and judge it."""
    missing = namespaces.missing_requirement()
    if missing:
        print(f"torture: {missing}", file=sys.stderr)
        return 2
    print(f"torture: {options.minutes:g} minutes, seed {options.seed}", flush=True)
    _clear(options.report)
    run_options = runner.Options(
        options.seed, options.minutes, weighted_faults(options.only), options.rate
    )
    runner.run(run_options, options.report, log=functools.partial(print, flush=True))
    return judge(options.report)


def judge(folder: Path) -> int:
    """Judge the run in a folder, write and print the report; return the exit status."""
    run = run_folder.judge_run(folder)
    report.write(run, folder)
    print((folder / "report.md").read_text())
    return 0 if run.is_good else 1


def _clear(folder: Path) -> None:
    """Remove the files of an earlier run, and nothing else."""
    shutil.rmtree(folder / "logs", ignore_errors=True)
    for name in (*run_folder.FILES, *report.FILES):
        (folder / name).unlink(missing_ok=True)


def _options(args: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.torture", description=__doc__)
    parser.add_argument("--minutes", type=float, default=20.0, help="duration of the load [20]")
    seed = random.randrange(10**6)
    parser.add_argument(
        "--seed", type=int, default=seed, help="seed of the order of faults [random]"
    )
    parser.add_argument("--rate", type=float, default=28.0, help="calls of clients per second [28]")
    parser.add_argument(
        "--only",
        action="append",
        metavar="FAULT",
        choices=sorted(FAULTS),
        help="inject only this fault; may be repeated",
    )
    parser.add_argument(
        "--report", type=Path, default=REPORT_FOLDER, help="folder for the report [build/torture]"
    )
    return parser.parse_args(args)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
