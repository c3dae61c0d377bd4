"""Builds the components of a server, and wires them together."""

from dataclasses import dataclass
from random import Random
from uuid import UUID

from duly.config import Settings
from duly.server.accounts.authenticator import Authenticator
from duly.server.accounts.downstreams import Downstreams
from duly.server.accounts.keys import Keys
from duly.server.accounts.logins import Logins
from duly.server.accounts.passwords import Passwords
from duly.server.accounts.plans import Plans
from duly.server.accounts.queues import Queues
from duly.server.accounts.tenants import Tenants
from duly.server.accounts.usage_recorder import UsageRecorder
from duly.server.accounts.users import Users
from duly.server.admission.admission_control import AdmissionControl
from duly.server.admission.backlog_limit import BacklogLimit
from duly.server.admission.rate_limiter import RateLimiter
from duly.server.admission.shape_ids import ShapeIds
from duly.server.admission.submitter import Submitter
from duly.server.artifacts.artifacts import Artifacts
from duly.server.artifacts.log_store import LogStore
from duly.server.artifacts.object_store import ObjectStore
from duly.server.artifacts.store_guard import StoreGuard
from duly.server.capacity_limiter import FairCapacityLimiter, TenantCapacityLimiters
from duly.server.cluster.cluster_manager import ClusterManager
from duly.server.cluster.server_bus import ServerBus
from duly.server.cluster.wakeups import Wakeups
from duly.server.delivery.attempt_keys import AttemptKeys
from duly.server.delivery.inputs import Inputs
from duly.server.delivery.measurements import Measurements
from duly.server.delivery.polls import Polls
from duly.server.delivery.preparations import Preparations
from duly.server.lifecycle.attempt_calls import AttemptCalls
from duly.server.lifecycle.canceller import Canceller
from duly.server.lifecycle.downstream_replay import DownstreamReplay
from duly.server.lifecycle.graph_operations import GraphOperations
from duly.server.lifecycle.marker import Marker
from duly.server.lifecycle.overdue_detector import OverdueDetector
from duly.server.lifecycle.pauser import Pauser
from duly.server.lifecycle.queue_manager import QueueManager
from duly.server.lifecycle.replayer import Replayer
from duly.server.lifecycle.updater import Updater
from duly.server.maintenance.auditor import Auditor
from duly.server.maintenance.retention import Retention
from duly.server.recurrence.occurrences import Occurrences
from duly.server.recurrence.schedules import Schedules
from duly.server.recurrence.timekeeper import Timekeeper
from duly.server.scheduling.leader_nudge import LeaderNudge
from duly.server.scheduling.reservations import Reservations
from duly.server.scheduling.resource_manager import ResourceManager
from duly.server.scheduling.run_times import RunTimes, learn
from duly.server.scheduling.subqueues.prioritizer import Prioritizer
from duly.server.scheduling.unplaceable import Unplaceable
from duly.server.sequencer import Sequencer
from duly.server.service import Service
from duly.server.timeouts import Timeouts
from duly.store.database import Database

MAX_DOWNLOADS_PER_TENANT = 32
"""Concurrent downloads of artifacts and logs; slow readers of one tenant block no other tenant."""
TOO_MANY_DOWNLOADS = (
    f"The tenant has {MAX_DOWNLOADS_PER_TENANT} downloads from this server already; "
    "try again later."
)

TOO_MANY_WAITS = (
    "The tenant waits for as many tasks and logs on this server as it may; try again later."
)


@dataclass(frozen=True)
class Components:
    """Every component that handles requests or runs in a loop of its own."""

    database: Database
    settings: Settings
    timeouts: Timeouts
    authenticator: Authenticator
    attempt_keys: AttemptKeys
    attempt_calls: AttemptCalls
    wakeups: Wakeups
    server_bus: ServerBus
    cluster_manager: ClusterManager
    polls: Polls
    inputs: Inputs
    artifacts: Artifacts
    downloads: TenantCapacityLimiters
    waits: FairCapacityLimiter
    preparations: Preparations
    measurements: Measurements
    resource_manager: ResourceManager
    unplaceable: Unplaceable
    queue_manager: QueueManager
    rate_limiter: RateLimiter
    canceller: Canceller
    overdue_detector: OverdueDetector
    marker: Marker
    pauser: Pauser
    submitter: Submitter
    run_times: RunTimes
    updater: Updater
    replayer: Replayer
    downstream: DownstreamReplay
    graph_operations: GraphOperations
    timekeeper: Timekeeper
    schedules: Schedules
    reservations: Reservations
    plans: Plans
    queues: Queues
    downstreams: Downstreams
    tenants: Tenants
    users: Users
    keys: Keys
    logins: Logins
    log_store: LogStore
    store_guard: StoreGuard
    retention: Retention
    usage_recorder: UsageRecorder
    auditor: Auditor

    @property
    def services(self) -> list[Service]:
        """Return the components that run in a loop."""
        return [
            self.cluster_manager,
            self.resource_manager,
            self.unplaceable,
            self.queue_manager,
            self.overdue_detector,
            self.submitter,
            self.run_times,
            self.graph_operations,
            self.timekeeper,
            self.retention,
            self.usage_recorder,
            self.auditor,
            self.server_bus,
            self.store_guard,
        ]


@dataclass(frozen=True)
class _Core:
    """The components that most others depend on: they admit, place and finish tasks."""

    database: Database
    settings: Settings
    sequencer: Sequencer
    wakeups: Wakeups
    server_bus: ServerBus
    cluster_manager: ClusterManager
    polls: Polls
    resource_manager: ResourceManager
    unplaceable: Unplaceable
    queue_manager: QueueManager
    canceller: Canceller
    leader_nudge: LeaderNudge
    rate_limiter: RateLimiter
    admission: AdmissionControl
    shapes: ShapeIds
    run_times: RunTimes


def build(
    database: Database, settings: Settings, store_url: str, store_id: UUID | None = None
) -> Components:
    """Build a server's components; none of them runs yet.

    `store_id` is the mark of the object store, which is then watched.
    """
    core = _core(database, settings)
    server_bus, sequencer, cluster_manager = core.server_bus, core.sequencer, core.cluster_manager
    submitter = _submitter(core)
    occurrences = Occurrences(cluster_manager, sequencer, core.shapes, core.run_times)
    timekeeper = _timekeeper(core, occurrences)
    authenticator = Authenticator(database)
    for subscriber in (
        core.resource_manager,
        core.polls,
        core.queue_manager,
        timekeeper,
        authenticator,
    ):
        server_bus.subscribe(subscriber.on_hint)
    store_guard = StoreGuard(store_url, store_id)
    log_store = LogStore(store_url, store_guard, limit=settings.execution.log_limit)
    passwords, pauser = Passwords(), Pauser(database, core.leader_nudge)
    object_store = ObjectStore(store_url, store_guard)
    return Components(
        database=database,
        settings=settings,
        timeouts=Timeouts(settings.requests.timeout),
        authenticator=authenticator,
        attempt_keys=AttemptKeys(database),
        attempt_calls=AttemptCalls(database, submitter, settings.execution),
        wakeups=core.wakeups,
        server_bus=server_bus,
        cluster_manager=cluster_manager,
        polls=core.polls,
        inputs=Inputs(database),
        artifacts=Artifacts(database, settings.requests, sequencer, object_store),
        downloads=TenantCapacityLimiters(MAX_DOWNLOADS_PER_TENANT, TOO_MANY_DOWNLOADS),
        waits=FairCapacityLimiter(settings.requests.waiting_limit, TOO_MANY_WAITS),
        preparations=Preparations(database, settings.execution.grace),
        measurements=Measurements(database),
        resource_manager=core.resource_manager,
        unplaceable=core.unplaceable,
        queue_manager=core.queue_manager,
        rate_limiter=core.rate_limiter,
        canceller=core.canceller,
        overdue_detector=OverdueDetector(
            database, settings.scheduling, cluster_manager, core.canceller
        ),
        marker=Marker(database, settings, core.queue_manager, core.polls, server_bus),
        pauser=pauser,
        submitter=submitter,
        run_times=core.run_times,
        updater=Updater(database, core.shapes, core.run_times, core.leader_nudge),
        replayer=_replayer(core),
        downstream=DownstreamReplay(database, sequencer, submitter, settings.requests.batch_tasks),
        graph_operations=GraphOperations(
            database, cluster_manager, sequencer, core.canceller, pauser
        ),
        timekeeper=timekeeper,
        schedules=_schedules(core, occurrences),
        reservations=Reservations(database, settings.scheduling, sequencer, server_bus),
        plans=Plans(database, server_bus, settings.retention),
        queues=Queues(database, server_bus),
        downstreams=Downstreams(database, server_bus),
        tenants=Tenants(database, server_bus),
        users=Users(database, server_bus, passwords),
        keys=Keys(database, server_bus),
        logins=Logins(database, server_bus, passwords),
        log_store=log_store,
        store_guard=store_guard,
        retention=Retention(database, settings.retention, cluster_manager, log_store, object_store),
        usage_recorder=UsageRecorder(database, settings.usage, cluster_manager, learn),
        auditor=Auditor(database, settings, cluster_manager, core.queue_manager),
    )


def _core(database: Database, settings: Settings) -> _Core:
    sequencer, wakeups, server_bus = Sequencer(), Wakeups(), ServerBus(database)
    prioritizer, rate_limiter = Prioritizer(settings.scheduling), RateLimiter()
    cluster_manager = ClusterManager(database, settings.leases, sequencer, server_bus)
    polls = Polls(database, settings, server_bus)
    unplaceable = Unplaceable(
        database, settings.scheduling, cluster_manager, prioritizer, wakeups, server_bus
    )
    resource_manager = ResourceManager(
        database, settings, cluster_manager, prioritizer, polls, unplaceable
    )
    queue_manager = QueueManager(
        database,
        settings,
        cluster_manager,
        prioritizer,
        resource_manager,
        wakeups,
        server_bus,
        Random(),  # noqa: S311 -- spreads retries out, guards nothing
    )
    return _Core(
        database=database,
        settings=settings,
        sequencer=sequencer,
        wakeups=wakeups,
        server_bus=server_bus,
        cluster_manager=cluster_manager,
        polls=polls,
        resource_manager=resource_manager,
        unplaceable=unplaceable,
        queue_manager=queue_manager,
        canceller=Canceller(database, queue_manager, polls, wakeups, server_bus),
        leader_nudge=LeaderNudge(
            cluster_manager, prioritizer, resource_manager, queue_manager, server_bus
        ),
        rate_limiter=rate_limiter,
        admission=AdmissionControl(rate_limiter, BacklogLimit(database)),
        shapes=ShapeIds(database),
        run_times=RunTimes(database),
    )


def _submitter(core: _Core) -> Submitter:
    return Submitter(
        core.database,
        core.settings.requests,
        core.cluster_manager,
        core.sequencer,
        core.leader_nudge,
        core.rate_limiter,
        core.admission,
        core.shapes,
        core.run_times,
    )


def _replayer(core: _Core) -> Replayer:
    return Replayer(
        core.database,
        core.cluster_manager,
        core.sequencer,
        core.leader_nudge,
        core.rate_limiter,
        core.admission,
        core.shapes,
        core.run_times,
    )


def _timekeeper(core: _Core, occurrences: Occurrences) -> Timekeeper:
    return Timekeeper(
        core.database,
        core.settings.scheduling,
        core.cluster_manager,
        core.canceller,
        occurrences,
        core.rate_limiter,
        core.leader_nudge,
    )


def _schedules(core: _Core, occurrences: Occurrences) -> Schedules:
    return Schedules(
        core.database,
        core.sequencer,
        occurrences,
        core.rate_limiter,
        core.leader_nudge,
        core.server_bus,
        core.settings.retention.history,
    )
