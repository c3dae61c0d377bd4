"""What the payloads themselves say they did.

A payload appends one short line when it starts and one when it ends; appends of that
size are atomic, so the file is a history that no part of Duly has written.
"""

from dataclasses import dataclass
from pathlib import Path

SCRIPT = """#!/bin/sh
now() { date +%s.%N; }
echo "start $DULY_TASK_ID $DULY_ATTEMPT $DULY_FENCING_TOKEN $$ $(now)" >> {ledger}
{work}
echo "end $DULY_TASK_ID $DULY_ATTEMPT $DULY_FENCING_TOKEN $$ $(now)" >> {ledger}
"""


@dataclass(frozen=True)
class Entry:
    what: str
    task: str
    attempt: int
    token: int
    pid: int
    at: float


class Ledger:
    def __init__(self, folder: Path) -> None:
        self.path = folder / "ledger"
        self.path.touch()
        self.path.chmod(0o666)

    def script(self, work: str) -> str:
        """Return a script that does `work` between its two entries."""
        return SCRIPT.replace("{ledger}", str(self.path)).replace("{work}", work)

    def entries(self) -> list[Entry]:
        rows = [line.split() for line in self.path.read_text().splitlines()]
        return [
            Entry(what, task, int(attempt), int(token), int(pid), float(at))
            for what, task, attempt, token, pid, at in rows
        ]

    def starts(self, task: str) -> list[Entry]:
        return [one for one in self.entries() if one.what == "start" and one.task == task]

    def ends(self, task: str) -> list[Entry]:
        return [one for one in self.entries() if one.what == "end" and one.task == task]
