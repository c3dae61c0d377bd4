"""The ledger: what tasks themselves record about their execution.

A payload appends a short line when it starts, when it ends, and optionally in between. Appends of
that size are atomic, and all go to one file, so its order is the order of events, independent of
Duly. Times are of CLOCK_BOOTTIME, which no fault changes, and which can be read without starting a
process.
"""

import re
from pathlib import Path, PurePath

import msgspec

LINE = re.compile(r"([a-z]+) (\d+) (\d+) (\d+) (\d+) (\d+) (\S+) ([\d.]+)\n")
LEDGER_MARK = "# writes the ledger"
SCRIPT = f"""#!/bin/sh
{LEDGER_MARK}
note() {{
    read -r up idle < /proc/uptime
    echo "$1 $DULY_TASK_ID $DULY_ATTEMPT $DULY_FENCING_TOKEN $$ <cpu> $HOME $up" >> <ledger>
}}
beats() {{ n=$1; while [ "$n" -gt 0 ]; do sleep 0.1; note beat; n=$((n-1)); done; }}
note start
<work>
note end
"""


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the ledger."""

    what: str
    task: int
    attempt: int
    token: int
    pid: int = 0
    cpu_milli: int = 0
    node: str = ""
    """The folder of the node's agent, which has its name; empty if unknown."""
    at: float = 0.0


class Ledger:
    """The file, and the scripts that write to it."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "ledger"
        self.path.touch()
        self.path.chmod(0o666)

    def script(self, work: str, *, cpu_milli: int = 0) -> str:
        """Return a script that does `work` between its first and last entry.

        `work` may call `beats N`, which writes N entries, one every tenth of a second.
        """
        return (
            SCRIPT.replace("<ledger>", str(self.path))
            .replace("<cpu>", str(cpu_milli))
            .replace("<work>", work)
        )

    def entries(self) -> list[Entry]:
        return read(self.path)

    def starts(self, task: str) -> list[Entry]:
        return [
            entry for entry in self.entries() if entry.what == "start" and entry.task == int(task)
        ]

    def ends(self, task: str) -> list[Entry]:
        return [
            entry for entry in self.entries() if entry.what == "end" and entry.task == int(task)
        ]


def read(path: Path) -> list[Entry]:
    """Return the entries in the order in which they were written.

    A payload that is killed while writing across the end of a page leaves part of a line, to which
    the next line is joined; the part is skipped.
    """
    return [
        Entry(
            what=what,
            task=int(task),
            attempt=int(attempt),
            token=int(token),
            pid=int(pid),
            cpu_milli=int(cpu),
            node=_node(home),
            at=float(at),
        )
        for what, task, attempt, token, pid, cpu, home, at in LINE.findall(path.read_text())
    ]


def _node(home: str) -> str:
    parts = [part for part in PurePath(home).parts if part != "data"]
    return parts[parts.index("work") - 1] if "work" in parts[1:] else ""
