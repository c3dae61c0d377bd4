"""The application that Duly's worker serves: one function, which records its number."""

import duly
from benchmarks.peers.python_queue import LEDGER, run_task
from benchmarks.peers.system import Context

app = duly.App("peers")
ledger_file = Context.from_environment().folder / LEDGER


@app.task(name="run")
def run(number: int, command: list[str]) -> None:
    """Do what the tasks of all queues of functions do."""
    run_task(ledger_file, number, command)
