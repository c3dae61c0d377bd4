"""The facts about a waiting, running or ended task that its explanation depends on."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

import msgspec

from duly.config import SchedulingSettings
from duly.model.limits import UNLIMITED, Limits
from duly.model.node import AbsentNode, Offer
from duly.model.queues.downstream import Downstream
from duly.model.queues.pause import Pause
from duly.model.queues.peak import NO_PEAK, PeakState
from duly.model.queues.queue import Queue, QueueDefinition
from duly.model.resources import NO_RESOURCES, Resources
from duly.model.shape import Concurrency, FunctionRef, Shape
from duly.model.task import Reason, Status
from duly.policy.budget.limits import NO_KEY_USAGE, NO_USAGE, KeyUsage, TenantUsage
from duly.policy.explanation.competition import Competition


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a task and of the nodes that it could run on."""

    task: int = 0
    status: Status
    attempt: int
    ready_at: datetime
    needs: Resources
    requires: dict[str, str] = {}
    stored: Reason | None = None
    """The stored reason: of its end, or of the last failed attempt."""
    node: str | None = None
    leased_at: datetime | None = None
    cancel_requested_at: datetime | None = None
    is_paused: bool = False
    """Whether it waits to be resumed; a running one is not retried before."""
    pause: Pause | None = None
    offers: Sequence[Offer] = ()
    absent: Sequence[AbsentNode] = ()
    """Nodes that are down or removed; only read if none of the offers could ever fit the task."""
    now: datetime | None = None
    """When the offers were read."""
    ahead: int | None = None
    """Tasks of its shape ranked before it, up to a counting limit; None if not counted."""
    function: FunctionRef | None = None
    concurrency: Concurrency | None = None
    limits: Limits = UNLIMITED
    use: TenantUsage = NO_USAGE
    """The usage of its tenant."""
    blocked_by: int = 0
    """The number of its unfinished upstream tasks."""
    awaited: Sequence[int] | None = ()
    """The ids of some of them; None if they were not read."""
    under_key: KeyUsage = NO_KEY_USAGE
    """Running attempts of its tenant with its concurrency key."""
    uses: Sequence[str] = ()
    """The keys of the downstreams that it calls."""
    downstreams: Sequence[tuple[Downstream, int]] = ()
    """The limits of those that apply to it, and how many attempts run under each."""
    queue: str | None = None
    """The queue that it is in now."""
    stored_queue: str | None = None
    """The queue that it is in until its slack runs out; None is `delayable`."""
    definition: QueueDefinition | None = None
    """Of the stored queue."""
    held_by_queue: Resources = NO_RESOURCES
    """What running tasks of that queue hold, if it has a maximum share."""
    start_by: datetime | None = None
    peak: PeakState = NO_PEAK
    scheduling: SchedulingSettings = SchedulingSettings()
    overdue_since: datetime | None = None
    """Its start_by, if it was found to be overdue."""
    delay_tolerance: timedelta = timedelta(0)
    expected_ends: Mapping[int, timedelta] = {}
    """When the next attempt of each incarnation will probably end; only read if it is overdue."""
    competition: Competition | None = None
    """None if no other tenant competes, or that was not looked up."""
    user_competition: Competition | None = None
    """None unless the users of its tenant divide its fair share."""

    @property
    def shape(self) -> Shape:
        """Return what decides on which nodes it fits, and the limits of its key."""
        return Shape(self.needs, self.requires, self.concurrency, function=self.function)

    @property
    def is_off_peak(self) -> bool:
        """Return True if it waits for low load, and its slack has not run out."""
        if self.queue == Queue.URGENT:
            return False
        return self.queue == Queue.OFF_PEAK or (
            self.definition is not None and self.definition.off_peak
        )

    @property
    def postponed_until(self) -> datetime | None:
        """Return until when it may be postponed at peak time; None if it may not."""
        if self.start_by is None or self.now is None or self.queue == Queue.URGENT:
            return None
        scheduling = self.scheduling
        slack = scheduling.urgent_slack if self.is_off_peak else scheduling.postpone_slack
        until = self.start_by - slack
        return until if until > self.now else None
