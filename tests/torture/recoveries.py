"""Measures the recovery time after each fault.

There are four criteria of recovery, computed from the journal of PostgreSQL, the ledger of the
payloads, the history of the clients, and the observations of the cluster.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from tests.torture.cluster_watch import Observation
from tests.torture.evidence import CLOCK_TOLERANCE
from tests.torture.history import Call
from tests.torture.journal import Step
from tests.torture.ledger import Entry
from tests.torture.run_result import Episode, Lease, Recovery

MAX_GAP_SECONDS = 3.0
"""Seconds without any start that count, under load, as an outage."""
SUBMITS = frozenset({"submit", "repeat", "batch", "submit graph"})


@dataclass(frozen=True)
class Traces:
    """The records from which recovery is computed; all times are of one clock."""

    journal: Sequence[Step] = ()
    entries: Sequence[Entry] = ()
    calls: Sequence[Call] = ()
    observations: Sequence[Observation] = ()
    nodes: Mapping[int, str] = field(default_factory=dict)
    """The names of the nodes, by the ids that the journal has."""

    @cached_property
    def leases(self) -> list[Step]:
        """All leases, sorted by time."""
        token: dict[int, int | None] = {}
        leases = []
        for step in self.journal:
            if step.what == "live" and step.op != "delete" and step.task is not None:
                if step.token is not None and step.token != token.get(step.task):
                    leases.append(step)
                token[step.task] = step.token
        return sorted(leases, key=lambda step: step.boot)

    @cached_property
    def starts(self) -> list[Entry]:
        """The starts of payloads."""
        return [entry for entry in self.entries if entry.what == "start"]

    @cached_property
    def losses(self) -> list[Step]:
        """The attempts that were lost."""
        return [step for step in self.journal if (step.what, step.outcome) == ("attempt", "lost")]

    @cached_property
    def admissions(self) -> list[tuple[float, float]]:
        """The times of acknowledgement and of invocation of successful submits."""
        return sorted(
            (call.returned, call.invoked)
            for call in self.calls
            if call.op in SUBMITS and call.outcome == "ok" and call.returned is not None
        )


def measure(episodes: Sequence[Episode], traces: Traces) -> tuple[Recovery, ...]:
    """Return the recovery from each fault that has a criterion."""
    criteria = {
        "dispatch": dispatch,
        "rerun": rerun,
        "submit": submit,
        "converged": converged,
    }
    return tuple(
        Recovery(
            episode.fault,
            episode.clock,
            episode.since,
            None if at is None else at - episode.since,
            episode.target,
            _excuse(episode, at, episodes),
        )
        for episode in episodes
        if episode.clock is not None
        for at in criteria[episode.clock](episode, traces)
    )


def dispatch(episode: Episode, traces: Traces) -> Iterator[float | None]:
    """Yield the time of the first lease of a later term."""
    before = [step.term or 0 for step in traces.leases if step.boot < episode.since]
    last_term = max(before, default=0)
    after = (
        step.boot
        for step in traces.leases
        if step.boot >= episode.since and (step.term or 0) > last_term
    )
    yield next(after, None)


def submit(episode: Episode, traces: Traces) -> Iterator[float | None]:
    """Yield the time by which a submit was acknowledged and a leased task has started.

    Both must begin after the fault; a call or lease in progress may not have been affected.
    """
    since = episode.since
    admitted = next((returned for returned, invoked in traces.admissions if invoked >= since), None)
    leased = {(step.task, step.attempt) for step in traces.leases if step.boot >= since}
    started = _steady_since(
        [start.at for start in traces.starts if (start.task, start.attempt) in leased], episode
    )
    yield None if admitted is None or started is None else max(admitted, started)


def rerun(episode: Episode, traces: Traces) -> Iterator[float | None]:
    """Yield the time at which the last task that was lost with the node was started again.

    Yields nothing if no lost task was started again. Tasks that were leased to the node after it
    was back were lost in a later fault.
    """
    leased_after = {
        step.token for step in traces.leases if step.boot >= episode.healed - CLOCK_TOLERANCE
    }
    restarted_at = [
        at
        for step in traces.losses
        if traces.nodes.get(step.node or 0) in episode.hosts
        and episode.began < step.boot < episode.healed + episode.target
        and step.token not in leased_after
        if (at := _started_after(step, traces.entries)) is not None
    ]
    if restarted_at:
        yield max(restarted_at)


def converged(episode: Episode, traces: Traces) -> Iterator[float | None]:
    """Yield the time of the first observation with a leader and all affected hosts."""
    known = frozenset().union(
        *(observation.servers | observation.nodes for observation in traces.observations)
    )
    affected = [name for name in episode.hosts if name in known]
    yield next(
        (
            observation.at
            for observation in traces.observations
            if observation.at >= episode.since and observation.shows(affected)
        ),
        None,
    )


def leases_of(traces: Traces, since: float) -> tuple[Lease, ...]:
    """Return every lease with its term, in seconds after `since`."""
    return tuple(Lease(step.boot - since, step.term or 0) for step in traces.leases)


def _started_after(lost: Step, entries: Iterable[Entry]) -> float | None:
    starts = (
        entry.at
        for entry in entries
        if entry.task == lost.task and entry.attempt > (lost.attempt or 0) and entry.what == "start"
    )
    return next(starts, None)


def _steady_since(times: Sequence[float], episode: Episode) -> float | None:
    """Return the first time after which no gap occurred until the fault was healed."""
    steady_since, before = None, float("-inf")
    for at in times:
        if steady_since is not None and before > episode.healed:
            break
        if at - before > MAX_GAP_SECONDS:
            steady_since = at
        before = at
    return steady_since


def _excuse(late: Episode, at: float | None, episodes: Iterable[Episode]) -> str | None:
    """Return the fault of a server or database that excuses the late recovery of a node, if any."""
    deadline = late.since + late.target
    if late.lane != "nodes" or (at is not None and at <= deadline):
        return None
    return next(
        (
            other.fault
            for other in episodes
            if other.lane != late.lane and other.began < deadline and other.healed > late.began
        ),
        None,
    )
