"""What an agent knows and does, without doing it.

`Agent.handle` takes one event and returns the effects that it calls for. It never
awaits and reads no clock, so the whole protocol can be driven by a test or a
simulation: lose a message, repeat one, let the lease run out, and look at the
effects.

An attempt is held from its assignment until its report has been answered: until
then every heartbeat names it, and the server neither starts it elsewhere nor
counts its resources as free.
"""

from collections import OrderedDict
from dataclasses import dataclass, field

from duly.agent.events import (
    Abandon,
    Answered,
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
    Start,
    StopOrdered,
    StopRequested,
    Terminate,
    Thaw,
    Ticked,
    Trust,
)
from duly.agent.frozen_limit import FROZEN_LIMIT
from duly.agent.outcome import (
    CANCELLED_BEFORE,
    END_LOST,
    NEVER_BEGUN,
    UNBEGUN,
    Conclusion,
    Exit,
    conclude,
)
from duly.model.task import Outcome
from duly.wire import AttemptRef, Stop

MARGIN = 2.0
"""Seconds before the end of the lease at which we stop trusting it; freezing takes time too."""
REMEMBERED = 10_000
"""How many ended attempts are remembered, so that a late assignment starts none of them again."""


@dataclass(slots=True)
class Attempt:
    """An attempt that we hold, and what we mean to do with it."""

    is_begun: bool = True
    """False while it waits for its inputs: nothing of it runs yet."""
    is_fetched: bool = False
    """It has all its inputs, and begins as soon as we are trusted."""
    intent: Outcome | None = None
    """As what we have begun to end it."""
    killed: bool = False
    discarded: bool = False
    """It is another's by now: nothing about it is reported."""
    frozen_at: float | None = None
    ended: bool = False


@dataclass(slots=True)
class Agent:
    """Everything that an agent must remember while its process lives."""

    freezer: bool
    """Whether attempts can be frozen here; if not, they are killed instead."""
    trusted_until: float = float("-inf")
    stopping: bool = False
    fenced: bool = False
    attempts: dict[AttemptRef, Attempt] = field(default_factory=dict)
    past: OrderedDict[AttemptRef, None] = field(default_factory=OrderedDict)

    @property
    def held(self) -> list[AttemptRef]:
        """Return what a poll or heartbeat tells the server that we hold."""
        return list(self.attempts)

    def handle(self, event: Event, now: float) -> list[Effect]:
        """Take in `event` at the monotonic time `now`, and return what is to be done, in order."""
        effects = self._watch(now)
        match event:
            case Assigned():
                effects += self._assigned(event, now)
            case Exited(ref, end):
                effects += self._exited(ref, end)
            case Answered(ref):
                effects += self._forget(ref)
            case Fetched(ref, refusal):
                effects += self._fetched(ref, refusal, now)
            case Renewed():
                effects += self._renewed(event, now)
            case StopOrdered(stop):
                effects += self._ordered(stop)
            case StopRequested():
                effects += self._stop_all()
            case Fenced():
                effects += self._discard_all()
            case Ticked():
                pass
        return effects

    def begin(self, sent_at: float, ttl: float) -> list[Effect]:
        """Begin a new incarnation, by a join that was sent at `sent_at`."""
        self.fenced = False
        self.trusted_until = _trust(sent_at, ttl)
        return [Trust(self.trusted_until)]

    def _watch(self, now: float) -> list[Effect]:
        """Let nothing run on a lease that we no longer trust."""
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
            elif now - attempt.frozen_at >= FROZEN_LIMIT:
                effects += self._kill(ref, attempt, Outcome.LOST)
        return effects

    def _assigned(self, event: Assigned, now: float) -> list[Effect]:
        ref = event.ref
        if ref in self.attempts or self.fenced:
            return []
        if ref in self.past:
            # Most often its end and this have crossed, and what we say is stale. But a database
            # that was failed over may have lost that end, and would wait for it for ever.
            return self._answer_for(ref, END_LOST)
        if now >= self.trusted_until:
            return []  # Not held, so that it comes again when we are trusted again.
        if self.stopping:
            return self._answer_for(ref, UNBEGUN[Outcome.PREEMPTED])
        self.attempts[ref] = Attempt(is_begun=not event.has_inputs)
        return [Fetch(ref) if event.has_inputs else Start(ref)]

    def _fetched(self, ref: AttemptRef, refusal: Conclusion | None, now: float) -> list[Effect]:
        attempt = self.attempts.get(ref)
        if attempt is None or attempt.is_begun or attempt.ended:
            return []
        if refusal is not None:
            return self._withdraw(ref, attempt, refusal)
        attempt.is_fetched = True
        return self._begin_fetched(ref, attempt) if now < self.trusted_until else []

    def _begin_fetched(self, ref: AttemptRef, attempt: Attempt) -> list[Effect]:
        attempt.is_begun = True
        return [Start(ref)]

    def _withdraw(self, ref: AttemptRef, attempt: Attempt, conclusion: Conclusion) -> list[Effect]:
        """End an attempt that has not begun."""
        attempt.ended = True
        return [Abandon(ref), Report(ref, conclusion)]

    def _exited(self, ref: AttemptRef, end: Exit) -> list[Effect]:
        attempt = self.attempts.get(ref)
        if attempt is None or attempt.ended:
            return []
        attempt.ended = True
        if attempt.discarded:
            return self._forget(ref)
        return [Report(ref, conclude(end, attempt.intent))]

    def _renewed(self, renewed: Renewed, now: float) -> list[Effect]:
        effects: list[Effect] = []
        for stop in renewed.stop:
            effects += self._ordered(stop)
        until = _trust(renewed.sent_at, renewed.ttl)
        if self.fenced or until <= max(now, self.trusted_until):
            return effects
        self.trusted_until = until
        effects.append(Trust(until))
        for ref, attempt in self.attempts.items():
            if attempt.is_fetched and not (attempt.is_begun or attempt.ended):
                effects += self._begin_fetched(ref, attempt)
            if attempt.frozen_at is not None and not (attempt.killed or attempt.ended):
                attempt.frozen_at = None
                effects.append(Thaw(ref))
        return effects

    def _ordered(self, stop: Stop) -> list[Effect]:
        attempt = self.attempts.get(stop.ref)
        if attempt is None:
            return self._decline(stop)
        match stop.why:
            case "lost":
                return self._discard(stop.ref, attempt)
            case "capped":
                return self._kill(stop.ref, attempt, Outcome.CAPPED)
            case "cancelled":
                return self._terminate(stop.ref, attempt, Outcome.CANCELLED)

    def _decline(self, stop: Stop) -> list[Effect]:
        """Answer for an attempt that never reached us, or that we have done with."""
        if stop.why == "lost" or self.fenced:
            return []
        if stop.why == "cancelled":
            return self._answer_for(stop.ref, CANCELLED_BEFORE)
        return self._answer_for(stop.ref, END_LOST if stop.ref in self.past else NEVER_BEGUN)

    def _answer_for(self, ref: AttemptRef, conclusion: Conclusion) -> list[Effect]:
        """Report on an attempt that does not run here: it can only end once we say so.

        It is held like any other, so that an assignment that comes late starts nothing.
        """
        self.past.pop(ref, None)
        self.attempts[ref] = Attempt(ended=True)
        return [Report(ref, conclusion)]

    def _stop_all(self) -> list[Effect]:
        if self.stopping:
            return []
        self.stopping = True
        effects: list[Effect] = []
        for ref, attempt in self.attempts.items():
            effects += self._terminate(ref, attempt, Outcome.PREEMPTED)
        return effects + self._settled()

    def _discard_all(self) -> list[Effect]:
        if self.fenced:
            return []
        self.fenced = True
        self.trusted_until = float("-inf")
        effects: list[Effect] = []
        for ref, attempt in list(self.attempts.items()):
            effects += self._discard(ref, attempt)
        # The last one that is forgotten says so itself.
        return effects or self._settled()

    def _discard(self, ref: AttemptRef, attempt: Attempt) -> list[Effect]:
        attempt.discarded = True
        if not (attempt.is_begun or attempt.ended):
            attempt.ended = True
            return [Abandon(ref), *self._forget(ref)]
        return self._forget(ref) if attempt.ended else self._kill(ref, attempt, Outcome.LOST)

    def _terminate(self, ref: AttemptRef, attempt: Attempt, intent: Outcome) -> list[Effect]:
        if attempt.ended or attempt.intent is not None:
            return []
        if not attempt.is_begun:
            return self._withdraw(ref, attempt, UNBEGUN[intent])
        attempt.intent = intent
        return [Terminate(ref)]

    def _kill(self, ref: AttemptRef, attempt: Attempt, intent: Outcome) -> list[Effect]:
        if attempt.ended or attempt.killed:
            return []
        if not attempt.is_begun:
            return self._withdraw(ref, attempt, UNBEGUN[intent])
        attempt.killed = True
        attempt.intent = attempt.intent or intent
        return [Kill(ref)]

    def _forget(self, ref: AttemptRef) -> list[Effect]:
        attempt = self.attempts.get(ref)
        if attempt is None or not attempt.ended:
            return []
        del self.attempts[ref]
        self.past[ref] = None
        if len(self.past) > REMEMBERED:
            self.past.popitem(last=False)
        return [Forget(ref), *self._settled()]

    def _settled(self) -> list[Effect]:
        """Say what comes next once nothing is held, if anything was waiting for that."""
        if self.attempts:
            return []
        if self.stopping:
            return [Leave()]
        return [Rejoin()] if self.fenced else []


def _trust(sent_at: float, ttl: float) -> float:
    return sent_at + ttl - min(MARGIN, ttl / 4)
