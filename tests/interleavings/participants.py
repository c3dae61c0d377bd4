"""The servers and nodes that take part in a run."""

from dataclasses import dataclass, field
from datetime import timedelta

from duly import wire
from duly.config import LeaseSettings, RetrySettings, SchedulingSettings, Settings
from duly.model.task import Outcome
from duly.server.accounts.plans import Plans
from duly.server.accounts.tenants import Tenants
from duly.server.admission.submitter import Submitter
from duly.server.cluster.cluster_manager import ClusterManager
from duly.server.components import build
from duly.server.delivery.polls import Polls
from duly.server.lifecycle.canceller import Canceller
from duly.server.lifecycle.graph_operations import GraphOperations
from duly.server.lifecycle.marker import Marker
from duly.server.lifecycle.overdue_detector import OverdueDetector
from duly.server.lifecycle.pauser import Pauser
from duly.server.lifecycle.queue_manager import QueueManager
from duly.server.lifecycle.updater import Updater
from duly.server.maintenance.repairer import Repairer
from duly.server.recurrence.schedules import Schedules
from duly.server.recurrence.timekeeper import Timekeeper
from duly.server.scheduling.reservations import Reservations
from duly.server.scheduling.resource_manager import ResourceManager
from duly.server.scheduling.unplaceable import Unplaceable
from tests.interleavings.stepped_database import SteppedDatabase

SETTINGS = Settings(
    leases=LeaseSettings(ttl=timedelta(seconds=6), term_ttl=timedelta(seconds=20)),
    scheduling=SchedulingSettings(window=4, unplaceable_after=timedelta(0)),
    retries=RetrySettings(base_delay=timedelta(seconds=1)),
)
AUDIT_LATE_AFTER = timedelta(hours=1)


@dataclass
class Server:
    """The components of one server, wired as in production."""

    name: str
    cluster_manager: ClusterManager
    polls: Polls
    resource_manager: ResourceManager
    unplaceable: Unplaceable
    queue_manager: QueueManager
    canceller: Canceller
    submitter: Submitter
    updater: Updater
    marker: Marker
    pauser: Pauser
    graph_operations: GraphOperations
    reservations: Reservations
    repairer: Repairer
    tenants: Tenants
    plans: Plans
    timekeeper: Timekeeper
    schedules: Schedules
    overdue_detector: OverdueDetector
    busy: set[str] = field(default_factory=set)


def make_server(name: str, database: SteppedDatabase) -> Server:
    """Build the components of a server, without running any loop."""
    components = build(database, SETTINGS, "memory:///")
    return Server(
        name,
        components.cluster_manager,
        components.polls,
        components.resource_manager,
        components.unplaceable,
        components.queue_manager,
        components.canceller,
        components.submitter,
        components.updater,
        components.marker,
        components.pauser,
        components.graph_operations,
        components.reservations,
        Repairer(database, components.queue_manager, AUDIT_LATE_AFTER),
        components.tenants,
        components.plans,
        components.timekeeper,
        components.schedules,
        components.overdue_detector,
    )


@dataclass
class Node:
    """The state of an agent: the attempts that it holds and held."""

    id: int
    name: str
    incarnation: int
    held: dict[wire.AttemptRef, Outcome] = field(default_factory=dict)
    past: dict[wire.AttemptRef, Outcome] = field(default_factory=dict)
    reported: set[wire.AttemptRef] = field(default_factory=set)
    """Attempts that were reported, whose outcome is final."""
    latest: int = 0
