"""`duly doctor`: read-only checks of this machine, each with a fix."""

import os
import platform
import shlex
import shutil
import sys
from collections.abc import Callable, Mapping
from datetime import timedelta
from enum import StrEnum
from pathlib import Path

import msgspec

from duly.agent import identity
from duly.agent.limits import cgroup_hierarchies
from duly.agent.preparation import task_users
from duly.client.endpoint import Endpoint, config_file, find_endpoint
from duly.client.retry import Patience
from duly.client.shapes.fleet_shapes import Database
from duly.client.sync import Client
from duly.errors import ConfigError, DulyError, Unauthenticated, Unreachable
from duly.launch import outside_data, store_folder
from duly.launch.local.ports import choose_port
from duly.server.artifacts.store_access import folder_of
from duly.server.artifacts.store_mark import NAME as STORE_MARK
from duly.store.embedded.programs import Programs, bundled_programs
from duly.store.embedded.system_user import USER_NAME as SYSTEM_USER
from duly.store.embedded.system_user import find_user

MIN_DISK_BYTES = 500 * 2**20
RECOMMENDED_DISK_BYTES = 5 * 2**30
MIN_PYTHON = (3, 11)
SECRET_FILES = (
    "admin.key",
    "pages.link",
    "postgres.password",
    "postgres.superuser.password",
    "agent/node.json",
    "agent/join.token",
)
"""Files in the data folder with credentials of an administrator, a node or PostgreSQL."""
NO_RETRIES = Patience(total=timedelta(0))
START_SERVER = "Start it with 'duly up', or 'duly serve' if it is one of several."


class Level(StrEnum):
    """How much a finding matters."""

    OK = "ok"
    WARNING = "warning"
    MISSING = "missing"


class Finding(msgspec.Struct, frozen=True):
    """The result of one check, with a fix if there is one."""

    about: str
    level: Level
    text: str
    fix: str = ""


def examine(
    data: Path, host: str, port: int, environment: Mapping[str, str], store: str | None = None
) -> list[Finding]:
    """Check everything that `duly up` on `data` and `port` needs, and `store`."""
    checks: list[Callable[[], Finding]] = [
        _python,
        _system,
        _user,
        _cgroups,
        lambda: _disk(data),
        lambda: _outside(data, environment),
        _postgresql,
        lambda: _data(data),
        lambda: _store(store or str(data / "objects"), is_given=store is not None),
        lambda: _secrets(data, environment),
        lambda: _configuration(environment),
    ]
    findings = [check() for check in checks]
    servers = _servers(environment)
    findings += servers
    # A port held by our own server is fine.
    if not any(finding.about == "server" and finding.level is Level.OK for finding in servers):
        findings.append(_port(host, port))
    return findings


def _python() -> Finding:
    version = platform.python_version()
    if sys.version_info < MIN_PYTHON:
        return Finding("python", Level.MISSING, version, "Install Python 3.11 or newer.")
    return Finding("python", Level.OK, version)


def _system() -> Finding:
    text = f"{platform.system()} {platform.release()}, {os.cpu_count()} cores"
    if platform.system() != "Linux":
        return Finding("system", Level.MISSING, text, "Nodes run on Linux only.")
    if not hasattr(os, "pidfd_open"):
        return Finding("system", Level.MISSING, text, "Use a kernel of version 5.3 or newer.")
    return Finding("system", Level.OK, text)


def _user() -> Finding:
    if os.geteuid() == 0 and task_users.mapped_range() is not None:
        return Finding("user", Level.OK, "root: every task runs as its own unprivileged user")
    if os.geteuid() == 0:
        return Finding(
            "user",
            Level.MISSING,
            "root, in a container that maps too few user ids to give each task its own",
            "Map more user ids, or start the agent with --tasks-as USER.",
        )
    return Finding(
        "user",
        Level.WARNING,
        "not root: tasks run as you and can access whatever you can",
        "Start Duly as root if you run other people's tasks.",
    )


def _cgroups() -> Finding:
    mounts = cgroup_hierarchies.mounts()
    versions = sorted({mount.version for mount in mounts})
    layout = {(): "none", (1,): "v1", (2,): "v2", (1, 2): "v1 and v2"}[tuple(versions)]
    usable = [
        mount
        for mount in mounts
        if any(os.access(folder, os.W_OK) for folder in (mount.own, mount.root))
    ]
    if usable:
        return Finding(
            "cgroups", Level.OK, f"{layout}, and groups can be created{_favordynmods_hint(usable)}"
        )
    return Finding(
        "cgroups",
        Level.WARNING,
        f"{layout}, but no group can be created: memory is sampled, and cpu is not limited",
        "Start Duly as root, or with systemd-run --user --scope -p Delegate=yes …",
    )


def _favordynmods_hint(usable: list[cgroup_hierarchies.Mount]) -> str:
    """Return a hint about favordynmods, which speeds up joining a cgroup."""
    unified = next((mount for mount in usable if mount.version == 2), None)
    if unified is None or os.geteuid() != 0:
        return ""
    if unified.is_quick_to_join:
        return " quickly (favordynmods)"
    if not _kernel_is_at_least(6):
        return ""
    return (
        "; if this node starts hundreds of tasks a second, 'mount -o remount,favordynmods "
        f"{unified.root}' speeds up their start"
    )


def _kernel_is_at_least(version: int) -> bool:
    major = platform.release().partition(".")[0]
    return major.isdigit() and int(major) >= version


def _disk(data: Path) -> Finding:
    folder = next(path for path in (data, *data.parents) if path.exists())
    free = shutil.disk_usage(folder).free
    text = f"{free / 2**30:.1f} GiB free for {data}"
    fix = "Free some space, or choose another folder with --data."
    if free < MIN_DISK_BYTES:
        return Finding("disk", Level.MISSING, text, fix)
    return Finding("disk", Level.WARNING if free < RECOMMENDED_DISK_BYTES else Level.OK, text, fix)


def _outside(data: Path, environment: Mapping[str, str]) -> Finding:
    text = outside_data.describe(data, config_file(environment))
    return Finding("outside of data", Level.OK, text)


def _postgresql() -> Finding:
    try:
        version = Programs(bundled_programs()).major_version()
    except (ConfigError, OSError) as error:
        fix = "Reinstall Duly, or use your own PostgreSQL with --database."
        return Finding("postgresql", Level.MISSING, str(error), fix)
    text = f"version {version}, bundled with Duly"
    if os.geteuid() != 0 or find_user() is not None:
        return Finding("postgresql", Level.OK, text)
    if shutil.which("useradd") or shutil.which("useradd", path="/usr/sbin:/sbin"):
        return Finding(
            "postgresql",
            Level.OK,
            f"{text}; it will run as the user {SYSTEM_USER}, which will be created",
        )
    return Finding(
        "postgresql",
        Level.MISSING,
        f"{text}; it cannot run as root, and there is no useradd to create a user for it",
        f"Create a user {SYSTEM_USER}, start Duly as another user, or use --database.",
    )


def _data(data: Path) -> Finding:
    try:
        if (node := identity.load(data)) is not None:
            joined = "that has not joined yet" if node.node is None else f"with ID {node.node}"
            return Finding("data", Level.OK, f"{data} is the folder of the node {joined}")
        major = (data / "postgres" / "PG_VERSION").read_text().strip()
    except FileNotFoundError:
        return Finding("data", Level.OK, f"{data} is new")
    except ConfigError as error:
        return Finding("data", Level.MISSING, error.message, "Run this as the user of the agent.")
    except OSError as error:
        return Finding("data", Level.MISSING, f"{data}: {error.strerror}", "Use another --data.")
    return Finding("data", Level.OK, f"{data}, created by PostgreSQL {major}")


def _store(url: str, *, is_given: bool) -> Finding:
    folder = folder_of(url)
    if folder is None:
        return Finding("store", Level.OK, "not a local folder")
    try:
        if store_folder.is_open(folder):
            return _open_store_folder(folder)
        owner = (folder / STORE_MARK).stat().st_uid
    except FileNotFoundError:
        return _unmarked_store(folder, is_given=is_given)
    except OSError as error:
        return Finding("store", Level.MISSING, f"{folder}: {error.strerror}", "Use another one.")
    if owner != os.geteuid():
        text = f"{folder} is the store of servers that run as {store_folder.user_name(owner)}"
        return Finding("store", Level.WARNING, text, "Run all servers as that system user.")
    return Finding("store", Level.OK, f"{folder} is a store, and not accessible to others")


def _open_store_folder(folder: Path) -> Finding:
    text = f"every user of this machine can access {folder}, with all tenants' logs and artifacts"
    return Finding("store", Level.MISSING, text, f"Run {store_folder.how_to_close(folder)}.")


def _unmarked_store(folder: Path, *, is_given: bool) -> Finding:
    if not is_given:
        return Finding("store", Level.OK, f"{folder} is new")
    state = f"has no {STORE_MARK}" if folder.exists() else "does not exist"
    return Finding(
        "store",
        Level.WARNING,
        f"{folder} {state}: no server has used it",
        "Fine before the first server. Else: is it mounted, was it restored, is it this path?",
    )


def _secrets(data: Path, environment: Mapping[str, str]) -> Finding:
    files = [*(data / name for name in SECRET_FILES), config_file(environment)]
    shared = [file for file in files if _is_shared(file)]
    if not shared:
        return Finding("secrets", Level.OK, "no file with secrets is readable by others")
    names = " ".join(shlex.quote(str(file)) for file in shared)
    return Finding("secrets", Level.WARNING, f"others can read {names}", f"Run chmod 600 {names}.")


def _is_shared(file: Path) -> bool:
    try:
        return bool(file.stat().st_mode & 0o077)
    except OSError:
        return False


def _port(host: str, port: int) -> Finding:
    try:
        choose_port(host, port, count=2)
    except ConfigError as error:
        return Finding("ports", Level.WARNING, error.message, "Choose others with --port.")
    return Finding("ports", Level.OK, f"{port} and {port + 1} are free")


def _configuration(environment: Mapping[str, str]) -> Finding:
    try:
        endpoint = find_endpoint(environment)
    except ConfigError as error:
        return Finding("configuration", Level.WARNING, error.message)
    source = "DULY_URL" if environment.get("DULY_URL") else str(config_file(environment))
    return Finding("configuration", Level.OK, f"{endpoint.name}, from {source}")


def _servers(environment: Mapping[str, str]) -> list[Finding]:
    """Try every configured URL: a client would fail over and hide a server that is down."""
    try:
        endpoint = find_endpoint(environment)
    except ConfigError:
        return [Finding("server", Level.WARNING, "none is configured", START_SERVER)]
    findings: list[Finding] = []
    row_security: Finding | None = None
    for url in endpoint.urls:
        finding, database = _server(url, endpoint)
        findings.append(finding)
        if database is not None:
            row_security = _row_security(is_on=database.get("row_security") is True)
    return findings if row_security is None else [*findings, row_security]


def _server(url: str, endpoint: Endpoint) -> tuple[Finding, Database | None]:
    """Check one server; also return its database status, if the key may see that."""
    try:
        with Client(url, endpoint.key, ca_file=endpoint.ca_file, patience=NO_RETRIES) as client:
            status = client.status()
    except Unauthenticated as error:
        fix = "Set DULY_KEY to a valid key, or start 'duly up' again to have one written."
        return Finding("server", Level.MISSING, f"{url}: {error.message}", fix), None
    except Unreachable as error:
        return Finding("server", Level.WARNING, error.message, START_SERVER), None
    except DulyError as error:
        text = f"{url}: {error.message}"
        return Finding("server", Level.WARNING, text, "Check the server's log."), None
    text = f"{status['server']} at {url} responds, and the key is valid"
    return Finding("server", Level.OK, text), status["database"]


def _row_security(*, is_on: bool) -> Finding:
    if is_on:
        return Finding(
            "row security", Level.OK, "on: a request can access the rows of one tenant only"
        )
    return Finding(
        "row security",
        Level.WARNING,
        "off: only the SQL statements themselves isolate the tenants",
        "Set database.request_role to a dedicated role; see docs/how-to/"
        "use-your-own-postgresql.md.",
    )
