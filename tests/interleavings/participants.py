"""The servers and the nodes of a world."""

from dataclasses import dataclass, field
from datetime import timedelta

from duly import wire
from duly.config import LeaseSettings, RetrySettings, SchedulingSettings, Settings
from duly.model.task import Outcome
from duly.server.canceller import Canceller
from duly.server.cluster_manager import ClusterManager
from duly.server.parts import build
from duly.server.pauser import Pauser
from duly.server.plan_keeper import PlanKeeper
from duly.server.polls import Polls
from duly.server.queue_manager import QueueManager
from duly.server.repairer import Repairer
from duly.server.reservations import Reservations
from duly.server.resource_manager import ResourceManager
from duly.server.schedules import Schedules
from duly.server.submitter import Submitter
from duly.server.tenants import Tenants
from duly.server.timekeeper import Timekeeper
from duly.server.unplaceable import Unplaceable
from duly.server.updater import Updater
from duly.server.wishes import Wishes
from tests.interleavings.stepping import SteppedDatabase

SETTINGS = Settings(
    leases=LeaseSettings(ttl=timedelta(seconds=6), term_ttl=timedelta(seconds=20)),
    scheduling=SchedulingSettings(window=4, unplaceable_after=timedelta(0)),
    retries=RetrySettings(base_delay=timedelta(seconds=1)),
)
LATE = timedelta(hours=1)


@dataclass
class Server:
    """One server's components, as the launcher puts them together."""

    name: str
    cluster_manager: ClusterManager
    polls: Polls
    resource_manager: ResourceManager
    unplaceable: Unplaceable
    queue_manager: QueueManager
    canceller: Canceller
    submitter: Submitter
    updater: Updater
    pauser: Pauser
    wishes: Wishes
    reservations: Reservations
    repairer: Repairer
    tenants: Tenants
    plan_keeper: PlanKeeper
    timekeeper: Timekeeper
    schedules: Schedules
    busy: set[str] = field(default_factory=set)


def make_server(name: str, database: SteppedDatabase) -> Server:
    """Put a server together; nothing of it runs yet."""
    parts = build(database, SETTINGS, "memory:///")
    return Server(
        name,
        parts.cluster_manager,
        parts.polls,
        parts.resource_manager,
        parts.unplaceable,
        parts.queue_manager,
        parts.canceller,
        parts.submitter,
        parts.updater,
        parts.pauser,
        parts.wishes,
        parts.reservations,
        Repairer(database, parts.queue_manager, LATE),
        parts.tenants,
        parts.plan_keeper,
        parts.timekeeper,
        parts.schedules,
    )


@dataclass
class Node:
    """An agent, reduced to what it remembers."""

    id: int
    name: str
    incarnation: int
    held: dict[wire.AttemptRef, Outcome] = field(default_factory=dict)
    past: dict[wire.AttemptRef, Outcome] = field(default_factory=dict)
    reported: set[wire.AttemptRef] = field(default_factory=set)
    """What has ended, and so ends in no other way any more."""
    latest: int = 0
