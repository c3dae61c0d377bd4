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

DUMP, HISTORY, LEDGER = "database.msgpack", "history.jsonl", "ledger"
OBSERVATIONS, RUN = "observations.jsonl", "run.json"
FILES = (DUMP, HISTORY, LEDGER, OBSERVATIONS, RUN)
FAULT_KINDS = {
    "node frozen": "node_frozen",
    "node killed": "node_killed",
    "database's clock jumps": "database_clock",
}
"""Faults that excuse more than delays, with their kinds in `FaultInterval`."""


@dataclass(frozen=True)
class RunRecord:
    """The record of the runner, with times of CLOCK_BOOTTIME."""

    seed: int
    commit: str
    minutes: float
    began: float
    ended: float
    episodes: tuple[Episode, ...]
    lab_errors: tuple[str, ...] = ()
    """Errors of the lab itself, which invalidate the run."""

    def save(self, folder: Path) -> None:
        (folder / RUN).write_text(json.dumps(asdict(self), indent=1) + "\n")

    @classmethod
    def load(cls, folder: Path) -> "RunRecord":
        fields = json.loads((folder / RUN).read_text())
        episodes = tuple(
            Episode(**{**episode, "hosts": tuple(episode["hosts"])})
            for episode in fields.pop("episodes")
        )
        return cls(**{**fields, "lab_errors": tuple(fields["lab_errors"])}, episodes=episodes)


def judge_run(folder: Path) -> RunResult:
    """Check all invariants and recovery times of the run in a folder."""
    record = RunRecord.load(folder)
    stored = database_dump.load(folder / DUMP)
    calls = history.read([folder / HISTORY])
    entries = ledger.read(folder / LEDGER)
    observations = cluster_watch.read(folder / OBSERVATIONS)
    evidence = Evidence(
        dump=stored,
        calls=calls,
        entries=entries,
        faults=fault_intervals(record.episodes),
        phase="quiet",
    )
    traces = Traces(stored.journal, entries, calls, observations, evidence.nodes)
    measured = recoveries.measure(record.episodes, traces)
    return RunResult(
        seed=record.seed,
        commit=record.commit,
        minutes=record.minutes,
        seconds=record.ended - record.began,
        tasks=len(stored.tasks),
        calls=dict(sorted(Counter(f"{call.op}, {call.outcome}" for call in calls).items())),
        episodes=tuple(_shifted(episode, record.began) for episode in record.episodes),
        recoveries=tuple(
            replace(recovery, since=recovery.since - record.began) for recovery in measured
        ),
        violations=(
            *(Finding(error) for error in record.lab_errors),
            *(
                Finding(str(violation), excerpt(evidence, violation, record.began))
                for violation in judge(evidence)
            ),
        ),
        event_times=_event_times(record.began, stored, calls, entries),
        leases=recoveries.leases_of(traces, record.began),
    )


def fault_intervals(episodes: Sequence[Episode]) -> list[FaultInterval]:
    """Return the faults for the invariants: one for every affected host."""
    return [
        FaultInterval(
            kind=_kind(episode.fault), host=host, began=episode.began, healed=episode.healed
        )
        for episode in episodes
        for host in episode.hosts or [""]
    ]


def _kind(fault: str) -> str:
    return FAULT_KINDS.get(fault, fault)


def _shifted(episode: Episode, began: float) -> Episode:
    return replace(
        episode,
        began=episode.began - began,
        healed=episode.healed - began,
        since=episode.since - began,
    )


def _event_times(
    began: float, stored: DatabaseDump, calls: Sequence[Call], entries: Sequence[Entry]
) -> dict[str, tuple[float, ...]]:
    submitted = [
        call.returned - began
        for call in calls
        if call.outcome == "ok" and call.returned is not None
        for _ in _admitted(call)
    ]
    started = [entry.at - began for entry in entries if entry.what == "start"]
    ended = [
        step.boot - began for step in stored.journal if (step.what, step.op) == ("end", "insert")
    ]
    return {"submitted": tuple(submitted), "started": tuple(started), "ended": tuple(ended)}


def _admitted(call: Call) -> Sequence[str]:
    """Return the tasks that a call created."""
    result = call.result or {}
    if call.op in ("batch", "submit graph"):
        return list(result.get("ids", ()))
    return [result["id"]] if call.op == "submit" else []
