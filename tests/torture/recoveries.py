"""Measures the recovery time after each fault.

Four clocks, each read from what was written down by others: the journal of PostgreSQL, the
ledger of the payloads, the history of the clients, and what was seen from outside.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from tests.torture.cluster_watch import Observation
from tests.torture.evidence import BLUR
from tests.torture.history import Call
from tests.torture.journal import Step
from tests.torture.ledger import Entry
from tests.torture.run_result import Episode, Lease, Recovery

PAUSE = 3.0
"""Seconds without a single start that mean, under load, that nothing works."""
ADMITTING = frozenset({"submit", "repeat", "batch", "submit graph"})


@dataclass(frozen=True)
class Traces:
    """Everything that recovery can be seen in; all times are of one clock."""

    journal: Sequence[Step] = ()
    entries: Sequence[Entry] = ()
    calls: Sequence[Call] = ()
    sights: Sequence[Observation] = ()
    nodes: Mapping[int, str] = field(default_factory=dict)
    """The names of the nodes, by the ids that the journal has."""

    @cached_property
    def leases(self) -> list[Step]:
        """The steps that gave an attempt to a node, in the order of time."""
        token: dict[int, int | None] = {}
        found = []
        for step in self.journal:
            if step.what == "live" and step.op != "delete" and step.task is not None:
                if step.token is not None and step.token != token.get(step.task):
                    found.append(step)
                token[step.task] = step.token
        return sorted(found, key=lambda step: step.boot)

    @cached_property
    def starts(self) -> list[Entry]:
        """When payloads began."""
        return [one for one in self.entries if one.what == "start"]

    @cached_property
    def losses(self) -> list[Step]:
        """The attempts that were given up as lost."""
        return [step for step in self.journal if (step.what, step.outcome) == ("attempt", "lost")]

    @cached_property
    def admissions(self) -> list[tuple[float, float]]:
        """When clients were told that something is stored, and when they had asked."""
        return sorted(
            (call.returned, call.invoked)
            for call in self.calls
            if call.op in ADMITTING and call.outcome == "ok" and call.returned is not None
        )


def measure(episodes: Sequence[Episode], traces: Traces) -> tuple[Recovery, ...]:
    """Return how each fault was recovered from, as far as something was promised."""
    clocks = {
        "dispatch": dispatch,
        "rerun": rerun,
        "submit": submit,
        "converged": converged,
    }
    return tuple(
        Recovery(
            one.fault,
            one.clock,
            one.since,
            None if at is None else at - one.since,
            one.target,
            _excuse(one, at, episodes),
        )
        for one in episodes
        if one.clock is not None
        for at in clocks[one.clock](one, traces)
    )


def dispatch(episode: Episode, traces: Traces) -> Iterator[float | None]:
    """Tell when the first lease of a new term was given."""
    before = [step.term or 0 for step in traces.leases if step.boot < episode.since]
    old = max(before, default=0)
    after = (
        step.boot for step in traces.leases if step.boot >= episode.since and (step.term or 0) > old
    )
    yield next(after, None)


def submit(episode: Episode, traces: Traces) -> Iterator[float | None]:
    """Tell when all worked again: a client that asked was told yes, and a task that was leased ran.

    Both had to begin after the fault; what was under way may have been past the trouble.
    """
    since = episode.since
    admitted = next((told for told, asked in traces.admissions if asked >= since), None)
    leased = {(step.task, step.attempt) for step in traces.leases if step.boot >= since}
    started = _steadily(
        [one.at for one in traces.starts if (one.task, one.attempt) in leased], episode
    )
    yield None if admitted is None or started is None else max(admitted, started)


def rerun(episode: Episode, traces: Traces) -> Iterator[float | None]:
    """Tell when the last task that was lost with the node was begun again.

    Nothing is told when none was: then nothing was at work there, or what was is not repeated.
    What was leased to the node once it was back is lost to a later fault.
    """
    later = {step.token for step in traces.leases if step.boot >= episode.healed - BLUR}
    again = [
        at
        for step in traces.losses
        if traces.nodes.get(step.node or 0) in episode.hosts
        and episode.began < step.boot < episode.healed + episode.target
        and step.token not in later
        if (at := _started_after(step, traces.entries)) is not None
    ]
    if again:
        yield max(again)


def converged(episode: Episode, traces: Traces) -> Iterator[float | None]:
    """Tell when the servers and nodes that were hit are seen at work again, under a leader."""
    known = frozenset().union(*(one.servers | one.nodes for one in traces.sights))
    hit = [name for name in episode.hosts if name in known]
    yield next(
        (one.at for one in traces.sights if one.at >= episode.since and one.shows(hit)), None
    )


def leases_of(traces: Traces, since: float) -> tuple[Lease, ...]:
    """Return every lease with its term, in seconds after `since`."""
    return tuple(Lease(step.boot - since, step.term or 0) for step in traces.leases)


def _started_after(lost: Step, entries: Iterable[Entry]) -> float | None:
    starts = (
        one.at
        for one in entries
        if one.task == lost.task and one.attempt > (lost.attempt or 0) and one.what == "start"
    )
    return next(starts, None)


def _steadily(instants: Sequence[float], episode: Episode) -> float | None:
    """Return when things began to happen again, and did not pause before the fault was healed."""
    found, before = None, float("-inf")
    for at in instants:
        if found is not None and before > episode.healed:
            break
        if at - before > PAUSE:
            found = at
        before = at
    return found


def _excuse(late: Episode, at: float | None, episodes: Iterable[Episode]) -> str | None:
    """Name the fault of servers or databases that kept a node from coming back in time, if any."""
    last = late.since + late.target
    if late.lane != "nodes" or (at is not None and at <= last):
        return None
    return next(
        (
            one.fault
            for one in episodes
            if one.lane != late.lane and one.began < last and one.healed > late.began
        ),
        None,
    )
