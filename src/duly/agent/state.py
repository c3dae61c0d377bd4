"""The agent's protocol as a pure state machine: events in, effects out.

`Agent.handle` takes one event and returns the effects that it calls for. It never
awaits and reads no clock, so a test or a simulation can drive the whole protocol:
lose a message, repeat one, let the lease expire, and compare the effects.

An attempt is held from its assignment until its report has been answered. Until
then every heartbeat lists it, and the server neither starts it elsewhere nor
counts its resources as free.
"""

from collections import OrderedDict
from dataclasses import dataclass, field

from duly.agent.events import (
    Abandon,
    Assigned,
    Effect,
    Event,
    Exited,
    Fenced,
    Fetch,
    Fetched,
    Forget,
    Freeze,
    Kill,
    Leave,
    Rejoin,
    Renewed,
    Report,
    ReportAnswered,
    Start,
    StopOrdered,
    StopRequested,
    Terminate,
    Thaw,
    Ticked,
    Trust,
)
from duly.agent.supervision.freeze_limit import MAX_FROZEN_SECONDS
from duly.agent.supervision.outcome import (
    CANCELLED_BEFORE_START,
    CONCLUSIONS_BEFORE_START,
    END_LOST,
    NEVER_BEGUN,
    Conclusion,
    Exit,
    conclude,
)
from duly.model.task import Outcome
from duly.wire import AttemptRef, Stop

LEASE_MARGIN_SECONDS = 2.0
"""The lease counts as expired this long before it is: freezing attempts takes time, too."""
MAX_REMEMBERED_ATTEMPTS = 10_000
"""Ended attempts that are remembered, so that a delayed assignment does not start one again."""


@dataclass(slots=True)
class HeldAttempt:
    """An attempt that this agent holds, and the outcome that it intends for it."""

    is_begun: bool = True
    """False while its bundle or inputs are being fetched: no process of it exists yet."""
    is_fetched: bool = False
    """Its bundle and inputs are here; it starts as soon as the lease is valid."""
    intent: Outcome | None = None
    """The outcome for which the agent has begun to end it."""
    killed: bool = False
    discarded: bool = False
    """Another node may run the task by now: the end of this attempt is not reported."""
    is_settled: bool = False
    """Its task has ended already: the report counts for nothing but the room on this node."""
    frozen_at: float | None = None
    ended: bool = False


@dataclass(slots=True)
class Agent:
    """The state of an agent's process: its lease, and the attempts that it holds."""

    freezer: bool
    """Whether this node can freeze attempts; if not, they are killed instead."""
    trusted_until: float = float("-inf")
    stopping: bool = False
    fenced: bool = False
    attempts: dict[AttemptRef, HeldAttempt] = field(default_factory=dict)
    ended_refs: OrderedDict[AttemptRef, None] = field(default_factory=OrderedDict)

    @property
    def held(self) -> list[AttemptRef]:
        """Return the attempts that every poll and heartbeat lists."""
        return list(self.attempts)

    def handle(self, event: Event, now: float) -> list[Effect]:
        """Apply `event` at the monotonic time `now`, and return its effects in order."""
        effects = self._check_lease(now)
        match event:
            case Assigned():
                effects += self._on_assigned(event, now)
            case Exited(ref, end):
                effects += self._on_exited(ref, end)
            case ReportAnswered(ref):
                effects += self._forget(ref)
            case Fetched(ref, refusal):
                effects += self._on_fetched(ref, refusal, now)
            case Renewed():
                effects += self._on_renewed(event, now)
            case StopOrdered(stop):
                effects += self._on_stop(stop)
            case StopRequested():
                effects += self._stop_all()
            case Fenced():
                effects += self._discard_all()
            case Ticked():
                pass
        return effects

    def begin_incarnation(self, sent_at: float, ttl: float) -> list[Effect]:
        """Begin the incarnation of a join request that was sent at `sent_at`."""
        self.fenced = False
        self.trusted_until = _trusted_until(sent_at, ttl)
        return [Trust(self.trusted_until)]

    def _check_lease(self, now: float) -> list[Effect]:
        """Freeze or kill everything that runs once the lease has expired."""
        effects: list[Effect] = []
        if now < self.trusted_until:
            return effects
        for ref, attempt in self.attempts.items():
            if attempt.ended or attempt.killed or not attempt.is_begun:
                continue
            if not self.freezer:
                effects += self._kill(ref, attempt, Outcome.LOST)
            elif attempt.frozen_at is None:
                attempt.frozen_at = now
                effects.append(Freeze(ref))
            elif now - attempt.frozen_at >= MAX_FROZEN_SECONDS:
                effects += self._kill(ref, attempt, Outcome.LOST)
        return effects

    def _on_assigned(self, event: Assigned, now: float) -> list[Effect]:
        ref = event.ref
        if ref in self.attempts or self.fenced:
            return []
        if ref in self.ended_refs:
            # Usually the report and this assignment have crossed, and this report is stale. But a
            # database failover may have lost the outcome, and the task would wait for it for ever.
            return self._report_unheld(ref, END_LOST)
        if now >= self.trusted_until:
            return []  # Not held, so the server assigns it again once the lease is renewed.
        if self.stopping:
            return self._report_unheld(ref, CONCLUSIONS_BEFORE_START[Outcome.PREEMPTED])
        self.attempts[ref] = HeldAttempt(is_begun=not event.needs_fetch)
        return [Fetch(ref) if event.needs_fetch else Start(ref)]

    def _on_fetched(self, ref: AttemptRef, refusal: Conclusion | None, now: float) -> list[Effect]:
        attempt = self.attempts.get(ref)
        if attempt is None or attempt.is_begun or attempt.ended:
            return []
        if refusal is not None:
            return self._withdraw(ref, attempt, refusal)
        attempt.is_fetched = True
        return self._start_fetched(ref, attempt) if now < self.trusted_until else []

    def _start_fetched(self, ref: AttemptRef, attempt: HeldAttempt) -> list[Effect]:
        attempt.is_begun = True
        return [Start(ref)]

    def _withdraw(
        self, ref: AttemptRef, attempt: HeldAttempt, conclusion: Conclusion
    ) -> list[Effect]:
        """End an attempt that has not started."""
        attempt.ended = True
        return [Abandon(ref), Report(ref, conclusion)]

    def _on_exited(self, ref: AttemptRef, end: Exit) -> list[Effect]:
        attempt = self.attempts.get(ref)
        if attempt is None or attempt.ended:
            return []
        attempt.ended = True
        if attempt.discarded:
            return self._forget(ref)
        return [Report(ref, conclude(end, attempt.intent))]

    def _on_renewed(self, renewed: Renewed, now: float) -> list[Effect]:
        effects: list[Effect] = []
        for stop in renewed.stop:
            effects += self._on_stop(stop)
        until = _trusted_until(renewed.sent_at, renewed.ttl)
        if self.fenced or until <= max(now, self.trusted_until):
            return effects
        self.trusted_until = until
        effects.append(Trust(until))
        for ref, attempt in self.attempts.items():
            if attempt.is_fetched and not (attempt.is_begun or attempt.ended):
                effects += self._start_fetched(ref, attempt)
            if attempt.frozen_at is not None and not (attempt.killed or attempt.ended):
                attempt.frozen_at = None
                effects.append(Thaw(ref))
        return effects

    def _on_stop(self, stop: Stop) -> list[Effect]:
        attempt = self.attempts.get(stop.ref)
        if attempt is None:
            return self._decline(stop)
        attempt.is_settled |= stop.is_settled
        match stop.why:
            case "lost":
                return self._discard(stop.ref, attempt)
            case "capped":
                return self._kill(stop.ref, attempt, Outcome.CAPPED)
            case "cancelled" if stop.is_settled:
                return self._kill(stop.ref, attempt, Outcome.CANCELLED)
            case "cancelled":
                return self._terminate(stop.ref, attempt, Outcome.CANCELLED)

    def _decline(self, stop: Stop) -> list[Effect]:
        """Report an attempt that a server wants stopped, but that is not held here."""
        if stop.why == "lost" or self.fenced:
            return []
        if stop.why == "cancelled":
            effects = self._report_unheld(stop.ref, CANCELLED_BEFORE_START)
            self.attempts[stop.ref].is_settled = stop.is_settled
            return effects
        return self._report_unheld(
            stop.ref, END_LOST if stop.ref in self.ended_refs else NEVER_BEGUN
        )

    def _report_unheld(self, ref: AttemptRef, conclusion: Conclusion) -> list[Effect]:
        """Report an attempt that does not run here: only this agent's report can end it.

        It is held until the answer, so that a delayed assignment does not start it.
        """
        self.ended_refs.pop(ref, None)
        self.attempts[ref] = HeldAttempt(ended=True)
        return [Report(ref, conclusion)]

    def _stop_all(self) -> list[Effect]:
        if self.stopping:
            return []
        self.stopping = True
        effects: list[Effect] = []
        for ref, attempt in self.attempts.items():
            effects += self._terminate(ref, attempt, Outcome.PREEMPTED)
        return effects + self._after_last()

    def _discard_all(self) -> list[Effect]:
        if self.fenced:
            return []
        self.fenced = True
        self.trusted_until = float("-inf")
        effects: list[Effect] = []
        for ref, attempt in list(self.attempts.items()):
            effects += self._discard(ref, attempt)
        # If attempts are left, forgetting the last one returns Rejoin.
        return effects or self._after_last()

    def _discard(self, ref: AttemptRef, attempt: HeldAttempt) -> list[Effect]:
        attempt.discarded = True
        if not (attempt.is_begun or attempt.ended):
            attempt.ended = True
            return [Abandon(ref), *self._forget(ref)]
        return self._forget(ref) if attempt.ended else self._kill(ref, attempt, Outcome.LOST)

    def _terminate(self, ref: AttemptRef, attempt: HeldAttempt, intent: Outcome) -> list[Effect]:
        if attempt.ended or attempt.intent is not None:
            return []
        if not attempt.is_begun:
            return self._withdraw(ref, attempt, CONCLUSIONS_BEFORE_START[intent])
        attempt.intent = intent
        return [Terminate(ref)]

    def _kill(self, ref: AttemptRef, attempt: HeldAttempt, intent: Outcome) -> list[Effect]:
        if attempt.ended or attempt.killed:
            return []
        if not attempt.is_begun:
            return self._withdraw(ref, attempt, CONCLUSIONS_BEFORE_START[intent])
        attempt.killed = True
        attempt.intent = attempt.intent or intent
        return [Kill(ref)]

    def _forget(self, ref: AttemptRef) -> list[Effect]:
        attempt = self.attempts.get(ref)
        if attempt is None or not attempt.ended:
            return []
        del self.attempts[ref]
        self.ended_refs[ref] = None
        if len(self.ended_refs) > MAX_REMEMBERED_ATTEMPTS:
            self.ended_refs.popitem(last=False)
        return [Forget(ref), *self._after_last()]

    def _after_last(self) -> list[Effect]:
        """Return Leave or Rejoin if the agent is stopping or fenced and holds nothing any more."""
        if self.attempts:
            return []
        if self.stopping:
            return [Leave()]
        return [Rejoin()] if self.fenced else []


def _trusted_until(sent_at: float, ttl: float) -> float:
    return sent_at + ttl - min(LEASE_MARGIN_SECONDS, ttl / 4)
