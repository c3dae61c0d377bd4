"""The files that a run leaves in its folder, from which it can be judged again at any time."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from tests.torture import cluster_watch, database_dump, history, ledger, recoveries
from tests.torture.database_dump import DatabaseDump
from tests.torture.evidence import Evidence, FaultInterval
from tests.torture.excerpt import excerpt
from tests.torture.history import Call
from tests.torture.invariants import judge
from tests.torture.ledger import Entry
from tests.torture.recoveries import Traces
from tests.torture.run_result import Episode, Finding, RunResult

BOOKS, HISTORY, LEDGER, SIGHTS, RUN = "books", "history.jsonl", "ledger", "sights.jsonl", "run.json"
FILES = (BOOKS, HISTORY, LEDGER, SIGHTS, RUN)
KINDS = {
    "node frozen": "node_frozen",
    "node killed": "node_killed",
    "database's clock jumps": "database_clock",
}
"""What the judge calls the faults that mean more to it than time."""


@dataclass(frozen=True)
class Record:
    """What the runner itself knows; times are of CLOCK_BOOTTIME."""

    seed: int
    commit: str
    minutes: float
    began: float
    ended: float
    episodes: tuple[Episode, ...]
    mishaps: tuple[str, ...] = ()
    """What the lab itself could not do, which spoils a run."""

    def save(self, folder: Path) -> None:
        (folder / RUN).write_text(json.dumps(asdict(self), indent=1) + "\n")

    @classmethod
    def load(cls, folder: Path) -> "Record":
        fields = json.loads((folder / RUN).read_text())
        episodes = tuple(
            Episode(**{**one, "hosts": tuple(one["hosts"])}) for one in fields.pop("episodes")
        )
        return cls(**{**fields, "mishaps": tuple(fields["mishaps"])}, episodes=episodes)


def tell(folder: Path) -> RunResult:
    """Judge what is in a folder, and return the whole chronicle."""
    record = Record.load(folder)
    stored = database_dump.load(folder / BOOKS)
    calls = history.read([folder / HISTORY])
    entries = ledger.read(folder / LEDGER)
    sights = cluster_watch.read(folder / SIGHTS)
    evidence = Evidence(
        books=stored,
        calls=calls,
        entries=entries,
        troubles=troubles(record.episodes),
        phase="quiet",
    )
    traces = Traces(stored.journal, entries, calls, sights, evidence.nodes)
    found = recoveries.measure(record.episodes, traces)
    return RunResult(
        seed=record.seed,
        commit=record.commit,
        minutes=record.minutes,
        seconds=record.ended - record.began,
        tasks=len(stored.tasks),
        calls=dict(sorted(Counter(f"{one.op}, {one.outcome}" for one in calls).items())),
        episodes=tuple(_shifted(one, record.began) for one in record.episodes),
        recoveries=tuple(replace(one, since=one.since - record.began) for one in found),
        violations=(
            *(Finding(one) for one in record.mishaps),
            *(Finding(str(one), excerpt(evidence, one, record.began)) for one in judge(evidence)),
        ),
        happenings=_happenings(record.began, stored, calls, entries),
        leases=recoveries.leases_of(traces, record.began),
    )


def troubles(episodes: Sequence[Episode]) -> list[FaultInterval]:
    """Return the faults as the judge knows them: one for every host that was hit."""
    return [
        FaultInterval(kind=_kind(one.fault), host=host, began=one.began, healed=one.healed)
        for one in episodes
        for host in one.hosts or [""]
    ]


def _kind(fault: str) -> str:
    return KINDS.get(fault, fault)


def _shifted(episode: Episode, began: float) -> Episode:
    return replace(
        episode,
        began=episode.began - began,
        healed=episode.healed - began,
        since=episode.since - began,
    )


def _happenings(
    began: float, stored: DatabaseDump, calls: Sequence[Call], entries: Sequence[Entry]
) -> dict[str, tuple[float, ...]]:
    submitted = [
        call.returned - began
        for call in calls
        if call.outcome == "ok" and call.returned is not None
        for _ in _admitted(call)
    ]
    started = [one.at - began for one in entries if one.what == "start"]
    ended = [one.boot - began for one in stored.journal if (one.what, one.op) == ("end", "insert")]
    return {"submitted": tuple(submitted), "started": tuple(started), "ended": tuple(ended)}


def _admitted(call: Call) -> Sequence[str]:
    """Return the tasks that were new with this call."""
    result = call.result or {}
    if call.op in ("batch", "submit graph"):
        return list(result.get("ids", ()))
    return [result["id"]] if call.op == "submit" else []
