"""Writes the results as JSON, and a Markdown page generated from the JSON alone."""

import json
import os
import platform
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from benchmarks.peers import table
from benchmarks.peers.catalog import ALL
from benchmarks.peers.figures import Row

ROOT = Path(__file__).parents[2]
BUILD = Path(os.environ.get("PEERS_BUILD", ROOT / "build"))
BEGIN, END = "<!-- made by benchmarks/peers from {name}: begin -->\n", "<!-- end -->\n"


@dataclass(frozen=True, slots=True)
class Report:
    """The rows, and the machine they were measured on."""

    machine: str
    rows: list[Row]

    @classmethod
    def read(cls, file: Path) -> Self:
        """Read a report from JSON."""
        data: dict[str, Any] = json.loads(file.read_text())
        return cls(data["machine"], [Row.from_json(row) for row in data["rows"]])

    def write(self, file: Path) -> None:
        """Write the report as JSON."""
        file.parent.mkdir(exist_ok=True)
        data = {"machine": self.machine, "rows": [row.as_json() for row in self.rows]}
        file.write_text(json.dumps(data, indent=1) + "\n")

    def markdown(self) -> str:
        """Return the figures, and when, at which commit and on which machine they were measured."""
        measured = [row for row in self.rows if row.figures]
        days = sorted({row.measured_at[:10] for row in measured})
        commits = sorted({row.commit for row in measured})
        notes = [
            f"- {row.system} ({row.broker}): {row.left_out.splitlines()[-1]}\n"
            for row in self.rows
            if row.left_out
        ]
        return (
            f"{table.figures_table(self.rows)}\n"
            f"Measured {', '.join(days)} at {', '.join(commits)} on {self.machine}. "
            f"{table.versions_line(measured)}.\n" + ("\n" + "".join(notes) if notes else "")
        )

    def functions(self) -> str:
        """Return the figures of systems that call functions."""
        return table.functions_table(self.rows)

    def page(self) -> str:
        """Return a self-contained page."""
        about = [system.about for system in ALL]
        return (
            f"# Duly and its peers\n\n{self.markdown()}\n{self.functions()}\n"
            f"{table.durability_table()}\n"
            f"{table.facts_table(about)}\n{table.settings_list(about)}"
        )


def replace_section(page: str, name: str, text: str) -> str:
    """Return `page` with `text` between the markers of the section `name`."""
    begin = BEGIN.format(name=name)
    before, opening, rest = page.partition(begin)
    _, closing, after = rest.partition(END)
    if not opening or not closing:
        raise ValueError(f"the page has no section marked {begin.strip()}")
    return f"{before}{begin}\n{text}\n\n{END}{after}"


def machine() -> str:
    """Return a short description of the machine."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return (
        f"{os.cpu_count()} cores ({_processor()}), {memory:.0f} GiB, "
        f"Linux {platform.release()}, Python {platform.python_version()}"
    )


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()
