"""Starts a Duly program with a deliberate defect: `python -m tests.torture.mutant NAME serve …`."""

import sys

from duly.cli.main import main
from tests.torture.mutants import MUTANTS

if __name__ == "__main__":
    MUTANTS[sys.argv.pop(1)]()
    main()
