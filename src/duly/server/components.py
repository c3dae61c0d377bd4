"""The components of a server, put together."""

from dataclasses import dataclass
from random import Random

from duly.config import Settings
from duly.server.admission_control import AdmissionControl
from duly.server.archive import Archive
from duly.server.artifacts import Artifacts
from duly.server.attempt_keys import AttemptKeys
from duly.server.auditor import Auditor
from duly.server.authenticator import Authenticator
from duly.server.backlog import Backlog
from duly.server.bell import Bell
from duly.server.bookkeeper import Bookkeeper
from duly.server.canceller import Canceller
from duly.server.cluster_manager import ClusterManager
from duly.server.downstream import Downstream
from duly.server.herald import Herald
from duly.server.inputs import Inputs
from duly.server.keys import Keys
from duly.server.logbook import Logbook
from duly.server.logins import Logins
from duly.server.measurements import Measurements
from duly.server.occurrences import Occurrences
from duly.server.passwords import Passwords
from duly.server.pauser import Pauser
from duly.server.plan_keeper import PlanKeeper
from duly.server.polls import Polls
from duly.server.preparations import Preparations
from duly.server.prioritizer import Prioritizer
from duly.server.queue_manager import QueueManager
from duly.server.rate_limiter import RateLimiter
from duly.server.replayer import Replayer
from duly.server.reservations import Reservations
from duly.server.resource_manager import ResourceManager
from duly.server.retention import Retention
from duly.server.room import SharedRoom, TenantRooms
from duly.server.schedules import Schedules
from duly.server.sequencer import Sequencer
from duly.server.service import Service
from duly.server.shape_book import ShapeBook
from duly.server.submitter import Submitter
from duly.server.tenants import Tenants
from duly.server.timekeeper import Timekeeper
from duly.server.timeouts import Timeouts
from duly.server.unplaceable import Unplaceable
from duly.server.updater import Updater
from duly.server.users import Users
from duly.server.waker import Waker
from duly.server.wishes import Wishes
from duly.store.database import Database

DOWNLOADS = 32
"""Artifacts and logs that are handed out to one tenant at once: slow readers keep no others out."""
TOO_MANY_DOWNLOADS = f"The tenant downloads {DOWNLOADS} artifacts and logs here already; try again."

TOO_MANY_WAITS = "The tenant waits for as many tasks and logs here as its share allows; try again."


@dataclass(frozen=True)
class Parts:
    """Everything that answers a request or runs in a loop of its own."""

    database: Database
    settings: Settings
    timeouts: Timeouts
    authenticator: Authenticator
    attempt_keys: AttemptKeys
    bell: Bell
    herald: Herald
    cluster_manager: ClusterManager
    polls: Polls
    inputs: Inputs
    artifacts: Artifacts
    downloads: TenantRooms
    waits: SharedRoom
    preparations: Preparations
    measurements: Measurements
    resource_manager: ResourceManager
    unplaceable: Unplaceable
    queue_manager: QueueManager
    rate_limiter: RateLimiter
    canceller: Canceller
    pauser: Pauser
    submitter: Submitter
    updater: Updater
    replayer: Replayer
    downstream: Downstream
    wishes: Wishes
    timekeeper: Timekeeper
    schedules: Schedules
    reservations: Reservations
    plan_keeper: PlanKeeper
    tenants: Tenants
    users: Users
    keys: Keys
    logins: Logins
    logbook: Logbook
    retention: Retention
    bookkeeper: Bookkeeper
    auditor: Auditor

    @property
    def services(self) -> list[Service]:
        """Return what runs in a loop."""
        return [
            self.cluster_manager,
            self.resource_manager,
            self.unplaceable,
            self.queue_manager,
            self.submitter,
            self.wishes,
            self.timekeeper,
            self.retention,
            self.bookkeeper,
            self.auditor,
            self.herald,
        ]


@dataclass(frozen=True)
class _Core:
    """What most components are made of: how a task comes in, is placed, and ends."""

    database: Database
    settings: Settings
    sequencer: Sequencer
    bell: Bell
    herald: Herald
    cluster_manager: ClusterManager
    polls: Polls
    resource_manager: ResourceManager
    unplaceable: Unplaceable
    queue_manager: QueueManager
    canceller: Canceller
    waker: Waker
    rate_limiter: RateLimiter
    admission: AdmissionControl
    shapes: ShapeBook


def build(database: Database, settings: Settings, store_url: str) -> Parts:
    """Put a server's components together; nothing runs yet."""
    core = _core(database, settings)
    herald, sequencer, cluster_manager = core.herald, core.sequencer, core.cluster_manager
    submitter = _submitter(core)
    occurrences = Occurrences(cluster_manager, sequencer, core.shapes)
    timekeeper = _timekeeper(core, occurrences)
    authenticator = Authenticator(database)
    for part in (core.resource_manager, core.polls, core.queue_manager, timekeeper, authenticator):
        herald.subscribe(part.hear)
    logbook = Logbook(store_url, limit=settings.execution.log_limit)
    passwords, pauser = Passwords(), Pauser(database, core.waker)
    archive = Archive(store_url)
    return Parts(
        database=database,
        settings=settings,
        timeouts=Timeouts(settings.requests.timeout),
        authenticator=authenticator,
        attempt_keys=AttemptKeys(database),
        bell=core.bell,
        herald=herald,
        cluster_manager=cluster_manager,
        polls=core.polls,
        inputs=Inputs(database),
        artifacts=Artifacts(database, settings.requests, sequencer, archive),
        downloads=TenantRooms(DOWNLOADS, TOO_MANY_DOWNLOADS),
        waits=SharedRoom(settings.requests.waiting_limit, TOO_MANY_WAITS),
        preparations=Preparations(database, settings.execution.grace),
        measurements=Measurements(database),
        resource_manager=core.resource_manager,
        unplaceable=core.unplaceable,
        queue_manager=core.queue_manager,
        rate_limiter=core.rate_limiter,
        canceller=core.canceller,
        pauser=pauser,
        submitter=submitter,
        updater=Updater(database, core.shapes, core.waker),
        replayer=_replayer(core),
        downstream=Downstream(database, sequencer, submitter, settings.requests.batch_tasks),
        wishes=Wishes(database, cluster_manager, sequencer, core.canceller, pauser),
        timekeeper=timekeeper,
        schedules=_schedules(core, occurrences),
        reservations=Reservations(database, sequencer, herald),
        plan_keeper=PlanKeeper(database, herald, settings.retention),
        tenants=Tenants(database, herald),
        users=Users(database, herald, passwords),
        keys=Keys(database, herald),
        logins=Logins(database, herald, passwords),
        logbook=logbook,
        retention=Retention(database, settings.retention, cluster_manager, logbook, archive),
        bookkeeper=Bookkeeper(database, settings.usage, cluster_manager),
        auditor=Auditor(database, settings, cluster_manager, core.queue_manager),
    )


def _core(database: Database, settings: Settings) -> _Core:
    sequencer, bell, herald = Sequencer(), Bell(), Herald(database)
    prioritizer, rate_limiter = Prioritizer(settings.scheduling), RateLimiter()
    cluster_manager = ClusterManager(database, settings.leases, sequencer, herald)
    polls = Polls(database, settings, herald)
    unplaceable = Unplaceable(
        database, settings.scheduling, cluster_manager, prioritizer, bell, herald
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
        bell,
        herald,
        Random(),  # noqa: S311 -- spreads retries out, guards nothing
    )
    return _Core(
        database=database,
        settings=settings,
        sequencer=sequencer,
        bell=bell,
        herald=herald,
        cluster_manager=cluster_manager,
        polls=polls,
        resource_manager=resource_manager,
        unplaceable=unplaceable,
        queue_manager=queue_manager,
        canceller=Canceller(database, queue_manager, polls, bell, herald),
        waker=Waker(cluster_manager, prioritizer, resource_manager, queue_manager, herald),
        rate_limiter=rate_limiter,
        admission=AdmissionControl(rate_limiter, Backlog(database)),
        shapes=ShapeBook(database),
    )


def _submitter(core: _Core) -> Submitter:
    return Submitter(
        core.database,
        core.settings.requests,
        core.cluster_manager,
        core.sequencer,
        core.waker,
        core.rate_limiter,
        core.admission,
        core.shapes,
    )


def _replayer(core: _Core) -> Replayer:
    return Replayer(
        core.database,
        core.cluster_manager,
        core.sequencer,
        core.waker,
        core.rate_limiter,
        core.admission,
        core.shapes,
    )


def _timekeeper(core: _Core, occurrences: Occurrences) -> Timekeeper:
    return Timekeeper(
        core.database,
        core.settings.scheduling,
        core.cluster_manager,
        core.canceller,
        occurrences,
        core.rate_limiter,
        core.waker,
    )


def _schedules(core: _Core, occurrences: Occurrences) -> Schedules:
    return Schedules(
        core.database,
        core.sequencer,
        occurrences,
        core.rate_limiter,
        core.waker,
        core.herald,
        core.settings.retention.history,
    )
