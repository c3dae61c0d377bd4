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
from typing import Any, TypeVar, get_type_hints

import msgspec

from duly.duration import parse_duration
from duly.errors import ConfigError, Invalid


class LeaseSettings(msgspec.Struct, frozen=True):
    """How long a node and a leader are trusted without a sign of life."""

    heartbeat: timedelta = timedelta(seconds=3)
    ttl: timedelta = timedelta(seconds=15)
    term_renewal: timedelta = timedelta(seconds=1)
    term_ttl: timedelta = timedelta(seconds=3)


class SchedulingSettings(msgspec.Struct, frozen=True):
    """How tasks are chosen and placed."""

    window: int = 200
    """How many waiting tasks one round looks at, at most."""
    interval: timedelta = timedelta(seconds=1)
    """The longest pause between two rounds; a submit or a finish asks for one at once."""
    unplaceable_after: timedelta = timedelta(seconds=60)
    """How long a task that no node could ever fit waits for one to join."""
    urgent_slack: timedelta = timedelta(seconds=60)
    """How long before its start_by a task goes before those that can wait for longer."""
    peak_percent: int = 80
    """How much of the scarcest resource is in use when off_peak work does not begin any more."""
    misfire_after: timedelta = timedelta(seconds=60)
    """How late a fire time of a schedule may be before it counts as missed."""


class ExecutionSettings(msgspec.Struct, frozen=True):
    """What holds for every attempt."""

    grace: timedelta = timedelta(seconds=10)
    """From SIGTERM to SIGKILL."""
    log_limit: int = 10 * 2**20
    """Bytes of output that are kept of one attempt."""
    result_limit: int = 256 * 1024
    """Bytes of JSON that a task may leave as its result."""
    inputs_limit: int = 64 * 2**20
    """Bytes that the results of all upstreams of a task may have together."""


class RetrySettings(msgspec.Struct, frozen=True):
    """How patiently a failed task is tried again."""

    base_delay: timedelta = timedelta(seconds=5)
    max_delay: timedelta = timedelta(hours=1)
    max_losses: int = 10
    max_lost_starts: int = 3
    """Nodes that may be lost with a task of which nobody has heard that it had begun there."""


class RetentionSettings(msgspec.Struct, frozen=True):
    """How long what has ended is kept."""

    history: timedelta = timedelta(days=30)
    idempotency_keys: timedelta = timedelta(days=7)
    """Counted from the end of the task."""
    artifacts: timedelta = timedelta(days=7)
    """Counted from when an artifact was last needed."""
    usage: timedelta = timedelta(days=400)
    """Days of the books; far longer than the attempts that they were made from."""
    interval: timedelta = timedelta(minutes=10)


class AuditSettings(msgspec.Struct, frozen=True):
    """How the leader looks for what should not be there."""

    interval: timedelta = timedelta(seconds=15)
    """The pause between two rounds through what lives."""
    history_interval: timedelta = timedelta(minutes=10)
    """The pause between two rounds through what is remembered."""
    batch: int = 1000
    """How many rows are looked at in one go, once a second at most."""
    after: timedelta = timedelta(seconds=60)
    """How long something must have been wrong, or be late, to count as drift."""


class UsageSettings(msgspec.Struct, frozen=True):
    """How the leader keeps the books of what was used."""

    interval: timedelta = timedelta(seconds=5)
    """The pause before what has ended since is booked; answers count it before that, too."""


class RequestSettings(msgspec.Struct, frozen=True):
    """What the API takes."""

    body_limit: int = 2 * 2**20
    batch_limit: int = 64 * 2**20
    batch_tasks: int = 100_000
    timeout: timedelta = timedelta(seconds=10)
    """How long a client waits for the database."""
    poll_limit: timedelta = timedelta(seconds=25)
    open_limit: int = 4000
    """Requests of clients that are worked on at once.

    A tenant holds no more of them than are still free.
    """
    waiting_limit: int = 2000
    """Requests of clients that wait for a task to end, or follow a log.

    A tenant holds no more of them than are still free.
    """
    artifact_limit: int = 2 * 2**30
    """Bytes of an artifact, whatever a plan says."""
    bodies_limit: int = 192 * 2**20
    """Bytes of bodies that are held at once; those of nodes are counted apart.

    A tenant holds no more of them than are still free: two tenants can send a whole batch each.
    """
    memory_limit: int = 2**30
    """Bytes that bodies may take once they are decoded, estimated before that is done.

    A tenant holds no more of them than are still free.
    """


class DatabaseSettings(msgspec.Struct, frozen=True):
    """How a server speaks to PostgreSQL."""

    connections: int = 20
    """Shared out in `store/lanes.py`: clients get a part of them."""
    statement_timeout: timedelta = timedelta(seconds=30)
    request_role: str = "duly_request"
    """The role that requests take on, so that they reach one tenant's rows only; empty is none."""
    pooler: str = ""
    """HOST:PORT of a PgBouncer through which all goes but what needs a session; empty is none."""


class Settings(msgspec.Struct, frozen=True):
    """All settings of a server or an agent, one section for each component."""

    leases: LeaseSettings = LeaseSettings()
    scheduling: SchedulingSettings = SchedulingSettings()
    execution: ExecutionSettings = ExecutionSettings()
    retries: RetrySettings = RetrySettings()
    retention: RetentionSettings = RetentionSettings()
    audit: AuditSettings = AuditSettings()
    usage: UsageSettings = UsageSettings()
    requests: RequestSettings = RequestSettings()
    database: DatabaseSettings = DatabaseSettings()


FEWEST_CONNECTIONS = 15
"""One for each loop of a server, and for each lane besides (`store/lanes.py`)."""
SECTIONS = get_type_hints(Settings)
S = TypeVar("S", bound=msgspec.Struct)


def load(file: Path | None, environment: Mapping[str, str]) -> Settings:
    """Build the settings from `file`, if any, and from `DULY_<SECTION>__<NAME>` variables."""
    values = _read(file) if file else {}
    for variable, text in environment.items():
        section, found, name = variable.removeprefix("DULY_").partition("__")
        if variable.startswith("DULY_") and found:
            values.setdefault(section.lower(), {})[name.lower()] = text
    for section in values:
        _check_name(section, SECTIONS, "section")
    settings = Settings(
        **{name: _section(kind, name, values.get(name, {})) for name, kind in SECTIONS.items()}
    )
    _check_leases(settings.leases)
    _check_bounds(settings)
    return settings


def _check_leases(leases: LeaseSettings) -> None:
    """Refuse a lease that runs out while it is being renewed: a healthy node would be lost."""
    if not (leases.heartbeat and leases.term_renewal):
        raise ConfigError("leases.heartbeat and leases.term_renewal must be above 0.")
    if leases.ttl < 3 * leases.heartbeat:
        raise ConfigError("leases.ttl must be at least three times leases.heartbeat.")
    if leases.term_ttl < 2 * leases.term_renewal:
        raise ConfigError("leases.term_ttl must be at least twice leases.term_renewal.")


def _check_bounds(settings: Settings) -> None:
    """Refuse bounds under which a server could never do some of its work."""
    if settings.database.connections < FEWEST_CONNECTIONS:
        raise ConfigError(f"database.connections must be at least {FEWEST_CONNECTIONS}.")
    requests = settings.requests
    if min(requests.open_limit, requests.waiting_limit) < 1:
        raise ConfigError("requests.open_limit and requests.waiting_limit must be above 0.")
    if requests.bodies_limit < 2 * max(requests.body_limit, requests.batch_limit):
        raise ConfigError(
            "requests.bodies_limit must be at least twice requests.batch_limit: half of it is all "
            "that one tenant may hold."
        )
    if settings.audit.batch < 1:
        raise ConfigError("audit.batch must be at least 1.")


def _read(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text())
    except OSError as error:
        raise ConfigError(f"Cannot read {file}: {error.strerror}.") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file} is not valid TOML: {error}") from error


def _section(kind: type[S], name: str, values: Any) -> S:
    if not isinstance(values, dict):
        raise ConfigError(f"{name} is a section; write [{name}] and its settings below it.")
    hints = get_type_hints(kind)
    for setting in values:
        _check_name(setting, hints, f"setting in [{name}]")
    converted = {
        setting: _convert(value, hints[setting], f"{name}.{setting}")
        for setting, value in values.items()
    }
    return kind(**converted)


def _convert(value: Any, kind: type, name: str) -> Any:
    try:
        if kind is timedelta:
            if isinstance(value, bool) or not isinstance(value, int | float | str):
                raise Invalid(name, f'{name} is a duration; write it like "15s".')
            return parse_duration(value, name)
        return msgspec.convert(value, kind, strict=False)
    except Invalid as error:
        raise ConfigError(error.message) from error
    except msgspec.ValidationError as error:
        raise ConfigError(f"{name}: {error}.") from error


def _check_name(name: str, known: Mapping[str, Any], what: str) -> None:
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(known)}."
        raise ConfigError(f"There is no {what} named {name!r}; {hint}")
