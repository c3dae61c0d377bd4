"""Settings: defaults < TOML file < environment < flags.

Each component gets its own section, a frozen value, and never sees the rest. In a
file a setting is `[leases] ttl = "15s"`; in the environment it is
`DULY_LEASES__TTL=15s`. A name that does not exist is an error with a suggestion,
because a setting that is silently ignored is worse than none.
"""

import difflib
import tomllib
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple, get_type_hints

import msgspec

from duly.duration import format_duration, parse_duration
from duly.errors import ConfigError, Invalid


class LeaseSettings(msgspec.Struct, frozen=True):
    """How long nodes and the leader keep their leases without a heartbeat."""

    heartbeat: timedelta = timedelta(seconds=3)
    ttl: timedelta = timedelta(seconds=15)
    term_renewal: timedelta = timedelta(seconds=1)
    term_ttl: timedelta = timedelta(seconds=3)


class SchedulingSettings(msgspec.Struct, frozen=True):
    """How tasks are chosen and placed."""

    window: int = 200
    """Maximum number of waiting tasks that a scheduling round considers."""
    interval: timedelta = timedelta(seconds=1)
    """Longest pause between two scheduling rounds; a submission or a finish starts one at once."""
    unplaceable_after: timedelta = timedelta(seconds=60)
    """How long a task that fits no known node waits for one to join."""
    urgent_slack: timedelta = timedelta(seconds=60)
    """How long before its start_by a task moves ahead of tasks with more slack."""
    peak_percent: int = 80
    """Percentage of the scarcest resource in use at which peak time begins."""
    off_peak_percent: int = 70
    """Percentage of the scarcest resource in use at which peak time ends."""
    postpone_slack: timedelta = timedelta(hours=6)
    """Tasks with more slack than this do not start at peak time."""
    urgent_headroom: int = 5
    """Percentage of the fleet that is kept for urgent tasks at peak time."""
    promote_retries: bool = True
    """Whether a failed task is retried in the queue of the next higher level."""
    misfire_after: timedelta = timedelta(seconds=60)
    """How late a fire time may be before it counts as missed."""


class ExecutionSettings(msgspec.Struct, frozen=True):
    """Limits that hold for every attempt."""

    grace: timedelta = timedelta(seconds=10)
    """Grace period between SIGTERM and SIGKILL."""
    log_limit: int = 10 * 2**20
    """Maximum bytes of output kept per attempt."""
    result_limit: int = 256 * 1024
    """Maximum bytes of a task's JSON result."""
    inputs_limit: int = 64 * 2**20
    """Maximum total bytes of the results of a task's upstreams."""


class RetrySettings(msgspec.Struct, frozen=True):
    """How often, and with which backoff, tasks are retried."""

    base_delay: timedelta = timedelta(seconds=5)
    max_delay: timedelta = timedelta(hours=1)
    max_losses: int = 10
    max_lost_starts: int = 3
    """Nodes that may be lost before reporting that they started the same task."""


class RetentionSettings(msgspec.Struct, frozen=True):
    """How long finished tasks and their traces are kept."""

    history: timedelta = timedelta(days=30)
    idempotency_keys: timedelta = timedelta(days=7)
    """Counted from the end of the task."""
    artifacts: timedelta = timedelta(days=7)
    """Counted from the last use of an artifact."""
    usage: timedelta = timedelta(days=400)
    """How long daily usage is kept; far longer than the attempts that it sums up."""
    interval: timedelta = timedelta(minutes=10)


class AuditSettings(msgspec.Struct, frozen=True):
    """How the leader audits the database for inconsistencies."""

    interval: timedelta = timedelta(seconds=15)
    """Pause between two passes over live rows."""
    history_interval: timedelta = timedelta(minutes=10)
    """Pause between two passes over history."""
    batch: int = 1000
    """Rows checked per tick, of which there is at most one a second."""
    after: timedelta = timedelta(seconds=60)
    """How long a finding must persist, or an action be late, to count as drift."""


class UsageSettings(msgspec.Struct, frozen=True):
    """How the leader books usage."""

    interval: timedelta = timedelta(seconds=5)
    """Pause between bookings of ended attempts; responses include unbooked ones."""


class RequestSettings(msgspec.Struct, frozen=True):
    """Limits on requests to the API."""

    body_limit: int = 2 * 2**20
    batch_limit: int = 64 * 2**20
    batch_tasks: int = 100_000
    timeout: timedelta = timedelta(seconds=10)
    """How long a request waits for the database."""
    poll_limit: timedelta = timedelta(seconds=25)
    open_limit: int = 4000
    """Client requests served concurrently.

    A tenant may hold at most as many as are still free.
    """
    waiting_limit: int = 2000
    """Client requests that wait for a task to end or follow a log.

    A tenant may hold at most as many as are still free.
    """
    artifact_limit: int = 2 * 2**30
    """Maximum bytes of an artifact, whatever the plan allows."""
    bodies_limit: int = 192 * 2**20
    """Bytes of request bodies held at once; those of nodes are counted separately.

    A tenant may hold at most as many as are still free, so two tenants can send a batch each.
    """
    memory_limit: int = 2**30
    """Bytes of memory for decoded bodies, estimated before decoding.

    A tenant may hold at most as many as are still free.
    """


class DatabaseSettings(msgspec.Struct, frozen=True):
    """How a server connects to PostgreSQL."""

    connections: int = 22
    """Divided into classes in `store/connections/connection_classes.py`."""
    statement_timeout: timedelta = timedelta(seconds=30)
    request_role: str = "duly_request"
    """Role of client requests, confined to one tenant's rows; empty: none."""
    pooler: str = ""
    """HOST:PORT of a PgBouncer for everything but session state; empty: none."""


class Settings(msgspec.Struct, frozen=True):
    """All settings of a server or an agent, one section per component."""

    leases: LeaseSettings = LeaseSettings()
    scheduling: SchedulingSettings = SchedulingSettings()
    execution: ExecutionSettings = ExecutionSettings()
    retries: RetrySettings = RetrySettings()
    retention: RetentionSettings = RetentionSettings()
    audit: AuditSettings = AuditSettings()
    usage: UsageSettings = UsageSettings()
    requests: RequestSettings = RequestSettings()
    database: DatabaseSettings = DatabaseSettings()


MIN_CONNECTIONS = 17
"""One per loop of a server plus one per class (`connection_classes.py`)."""
SECTIONS = get_type_hints(Settings)


class GivenSetting(NamedTuple):
    """A setting as it was given, with the place that messages name."""

    section: str
    name: str
    value: Any
    source: str
    """The file, or the variable."""
    place: str
    """The file and the setting in it, or the variable."""


def load(file: Path | None, environment: Mapping[str, str]) -> Settings:
    """Build the settings from `file`, if any, and from `DULY_<SECTION>__<NAME>` variables."""
    given = _read_file(file) if file else []
    given += _read_environment(environment)
    values: dict[str, dict[str, Any]] = {}
    for setting in given:
        values.setdefault(setting.section, {})[setting.name] = _convert(setting)
    settings = Settings(**{name: kind(**values.get(name, {})) for name, kind in SECTIONS.items()})
    _check_leases(settings.leases)
    _check_bounds(settings)
    return settings


def _check_leases(leases: LeaseSettings) -> None:
    """Refuse a lease that could expire between two renewals: a healthy node would be lost."""
    if not (leases.heartbeat and leases.term_renewal):
        raise ConfigError("leases.heartbeat and leases.term_renewal must be more than 0.")
    if leases.ttl < 3 * leases.heartbeat:
        raise ConfigError(
            f"leases.ttl is {format_duration(leases.ttl)}. It must be at least three times "
            f"leases.heartbeat, which is {format_duration(leases.heartbeat)}."
        )
    if leases.term_ttl < 2 * leases.term_renewal:
        raise ConfigError(
            f"leases.term_ttl is {format_duration(leases.term_ttl)}. It must be at least twice "
            f"leases.term_renewal, which is {format_duration(leases.term_renewal)}."
        )


def _check_bounds(settings: Settings) -> None:
    """Refuse limits under which a server could not do all of its work."""
    if settings.database.connections < MIN_CONNECTIONS:
        raise ConfigError(
            f"database.connections is {settings.database.connections}. It must be at least "
            f"{MIN_CONNECTIONS}."
        )
    scheduling = settings.scheduling
    if scheduling.off_peak_percent > scheduling.peak_percent:
        raise ConfigError(
            f"scheduling.off_peak_percent is {scheduling.off_peak_percent}. It must be at most "
            f"scheduling.peak_percent, which is {scheduling.peak_percent}."
        )
    if not 0 <= scheduling.urgent_headroom <= 50:
        raise ConfigError(
            f"scheduling.urgent_headroom is {scheduling.urgent_headroom}. It must be from 0 to 50."
        )
    requests = settings.requests
    if min(requests.open_limit, requests.waiting_limit) < 1:
        raise ConfigError("requests.open_limit and requests.waiting_limit must be at least 1.")
    if requests.bodies_limit < 2 * max(requests.body_limit, requests.batch_limit):
        raise ConfigError(
            f"requests.bodies_limit is {requests.bodies_limit}. It must be at least twice "
            "requests.batch_limit and requests.body_limit, because one tenant may hold half of it."
        )
    if settings.audit.batch < 1:
        raise ConfigError("audit.batch must be at least 1.")


def _read_file(file: Path) -> list[GivenSetting]:
    try:
        sections = tomllib.loads(file.read_text())
    except OSError as error:
        raise ConfigError(f"Cannot read {file}: {error.strerror}.") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file} is not valid TOML: {error}.") from error
    given = []
    for section, settings in sections.items():
        _check_name(section, SECTIONS, "section", str(file))
        if not isinstance(settings, dict):
            raise ConfigError(
                f"{file}: {section} is a section. Write [{section}], and its settings below it."
            )
        for name, value in settings.items():
            given.append(GivenSetting(section, name, value, str(file), f"{file}: {section}.{name}"))
    return given


def _read_environment(environment: Mapping[str, str]) -> list[GivenSetting]:
    given = []
    for variable, text in environment.items():
        section, separator, name = variable.removeprefix("DULY_").lower().partition("__")
        if variable.startswith("DULY_") and separator:
            _check_name(section, SECTIONS, "section", variable)
            given.append(GivenSetting(section, name, text, variable, variable))
    return given


WANTED: Mapping[Any, str] = {int: "a whole number", bool: "true or false"}


def _convert(given: GivenSetting) -> Any:
    """Return the value as its setting has it; raises ConfigError with the place of a mistake."""
    hints = get_type_hints(SECTIONS[given.section])
    _check_name(given.name, hints, f"setting in [{given.section}]", given.source)
    kind, value = hints[given.name], given.value
    try:
        if kind is not timedelta:
            return msgspec.convert(value, kind, strict=False)
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            raise Invalid("", f"{value!r} is not a duration. Try 90, 5m or 1h30m.")
        return parse_duration(value, "")
    except Invalid as error:
        raise ConfigError(f"{given.place}: {error.problem}") from error
    except msgspec.ValidationError as error:
        wanted = WANTED.get(kind, "text in quotes")
        raise ConfigError(f"{given.place}: {value!r} is not {wanted}.") from error


def _check_name(name: str, known: Mapping[str, Any], what: str, source: str) -> None:
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"Did you mean {near[0]!r}?" if near else f"There are {', '.join(known)}."
        raise ConfigError(f"{source}: there is no {what} named {name!r}. {hint}")
