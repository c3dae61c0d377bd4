"""What becomes of the tasks of a graph, said in the simplest way there is."""

from dataclasses import dataclass, field

FINAL = ("done", "failed", "cancelled")


@dataclass
class Part:
    """A task: what it waits for, and what was done with it."""

    waits: dict[int, str]
    """The condition of each upstream."""
    end: str | None = None
    """How it ended by itself, or by somebody who cancelled it."""
    attempt: int = 0
    is_running: bool = False
    is_paused: bool = False
    is_to_end: bool = False
    """Whether it was cancelled while it ran."""


@dataclass
class Model:
    """Tasks by their ids; an upstream has the lower one."""

    parts: dict[int, Part] = field(default_factory=dict)

    def fates(self) -> dict[int, str]:
        """Return where every task is once everybody has been told of everything."""
        found: dict[int, str] = {}
        for number in sorted(self.parts):
            found[number] = self._fate(self.parts[number], found)
        return found

    def _fate(self, part: Part, fates: dict[int, str]) -> str:
        if part.end is not None:
            return part.end
        if part.is_running:
            return "running"
        ends = [(fates[upstream], on) for upstream, on in part.waits.items()]
        if any(end in FINAL and not is_met(on, end) for end, on in ends):
            return "cancelled"
        if part.is_paused:
            return "paused"
        return "waiting" if all(end in FINAL for end, _ in ends) else "blocked"


def is_met(on: str, end: str) -> bool:
    """Say whether an end is the one that a condition asks for."""
    return {"always": True, "success": end == "done", "failure": end != "done"}[on]
