"""`duly doctor`: what this machine lacks, with the fix. It looks and changes nothing."""

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

from duly.agent import hierarchies, users
from duly.client.endpoint import config_file, find_endpoint
from duly.client.retry import Patience
from duly.client.sync import Client
from duly.errors import ConfigError, DulyError, Unauthenticated, Unreachable
from duly.launch import store_folder
from duly.launch.ports import choose_port
from duly.server.logbook import folder_of
from duly.store.postgres_programs import Programs, bundled_programs
from duly.store.system_user import NAME as SYSTEM_USER
from duly.store.system_user import find_user

NEEDED_DISK = 500 * 2**20
WANTED_DISK = 5 * 2**30
OLDEST_PYTHON = (3, 11)
SECRET_FILES = (
    "admin.key",
    "pages.link",
    "postgres.password",
    "postgres.superuser.password",
    "agent/node.json",
    "agent/join.token",
)
"""In the data folder: each is as good as the key of an administrator or of a node."""
AT_ONCE = Patience(total=timedelta(0))


class Level(StrEnum):
    """How much a finding matters."""

    OK = "ok"
    WARNING = "warning"
    MISSING = "missing"


class Finding(msgspec.Struct, frozen=True):
    """One thing that was looked at; `fix` says what to do about it, if anything."""

    about: str
    level: Level
    text: str
    fix: str = ""


def examine(
    data: Path, host: str, port: int, environment: Mapping[str, str], store: str | None = None
) -> list[Finding]:
    """Look at everything that `duly up` on `data` and `port` would need, and at `store`."""
    looks: list[Callable[[], Finding]] = [
        _python,
        _system,
        _user,
        _cgroups,
        lambda: _disk(data),
        _postgresql,
        lambda: _data(data),
        lambda: _store(store or str(data / "objects")),
        lambda: _secrets(data, environment),
        lambda: _configuration(environment),
    ]
    findings = [look() for look in looks]
    server, *more = _server(environment)
    findings += [server, *more]
    # A port that our own server holds is as it should be.
    if server.level is not Level.OK:
        findings.append(_port(host, port))
    return findings


def _python() -> Finding:
    version = platform.python_version()
    if sys.version_info < OLDEST_PYTHON:
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
    if os.geteuid() == 0 and users.mapped_range() is not None:
        return Finding("user", Level.OK, "root: every task runs as an unprivileged user of its own")
    if os.geteuid() == 0:
        return Finding(
            "user",
            Level.MISSING,
            "root, in a container that maps too few user ids for tasks to have their own",
            "Map more of them, or start the agent with --tasks-as USER.",
        )
    return Finding(
        "user",
        Level.WARNING,
        "not root: tasks run as you, and can reach what you can",
        "Start it as root if tasks are not your own.",
    )


def _cgroups() -> Finding:
    mounts = hierarchies.mounts()
    versions = sorted({mount.version for mount in mounts})
    layout = {(): "none", (1,): "v1", (2,): "v2", (1, 2): "v1 and v2"}[tuple(versions)]
    usable = [
        mount
        for mount in mounts
        if any(os.access(folder, os.W_OK) for folder in (mount.own, mount.root))
    ]
    if usable:
        return Finding("cgroups", Level.OK, f"{layout}, and groups can be made{_joining(usable)}")
    return Finding(
        "cgroups",
        Level.WARNING,
        f"{layout}, but no group can be made: memory is sampled, and cpu is not limited",
        "Start it as root, or let systemd delegate: systemd-run --user --scope -p Delegate=yes …",
    )


def _joining(usable: list[hierarchies.Mount]) -> str:
    """Return what else there is to say of groups: nothing is wrong, but it could be better."""
    unified = next((mount for mount in usable if mount.version == 2), None)
    if unified is None or os.geteuid() != 0:
        return ""
    if unified.is_quick_to_join:
        return ", quickly (favordynmods)"
    if not _kernel_is_at_least(6):
        return ""
    return (
        "; if this node starts hundreds of tasks a second, "
        f"`mount -o remount,favordynmods {unified.root}` lets them start sooner"
    )


def _kernel_is_at_least(version: int) -> bool:
    major = platform.release().partition(".")[0]
    return major.isdigit() and int(major) >= version


def _disk(data: Path) -> Finding:
    folder = next(path for path in (data, *data.parents) if path.exists())
    free = shutil.disk_usage(folder).free
    text = f"{free / 2**30:.1f} GiB free for {data}"
    fix = "Make room, or choose another folder with --data."
    if free < NEEDED_DISK:
        return Finding("disk", Level.MISSING, text, fix)
    return Finding("disk", Level.WARNING if free < WANTED_DISK else Level.OK, text, fix)


def _postgresql() -> Finding:
    try:
        version = Programs(bundled_programs()).major_version()
    except (ConfigError, OSError) as error:
        fix = "Install Duly again, or use a PostgreSQL of your own with --database."
        return Finding("postgresql", Level.MISSING, str(error), fix)
    text = f"version {version} comes with Duly"
    if os.geteuid() != 0 or find_user() is not None:
        return Finding("postgresql", Level.OK, text)
    if shutil.which("useradd") or shutil.which("useradd", path="/usr/sbin:/sbin"):
        return Finding(
            "postgresql", Level.OK, f"{text}; the user {SYSTEM_USER} will be made for it"
        )
    return Finding(
        "postgresql",
        Level.MISSING,
        f"{text}, but does not run as root, and there is no useradd to make a user for it",
        f"Add a user {SYSTEM_USER}, start Duly as another user, or use --database.",
    )


def _data(data: Path) -> Finding:
    version = data / "postgres" / "PG_VERSION"
    try:
        found = version.read_text().strip()
    except FileNotFoundError:
        return Finding("data", Level.OK, f"{data} is new")
    except OSError as error:
        return Finding("data", Level.MISSING, f"{data}: {error.strerror}", "Use another --data.")
    return Finding("data", Level.OK, f"{data}, made by PostgreSQL {found}")


def _store(url: str) -> Finding:
    folder = folder_of(url)
    if folder is None:
        return Finding("store", Level.OK, "no folder of this machine")
    try:
        if not store_folder.is_open(folder):
            return Finding("store", Level.OK, f"{folder} is closed to others")
    except FileNotFoundError:
        return Finding("store", Level.OK, f"{folder} is new")
    except OSError as error:
        return Finding("store", Level.MISSING, f"{folder}: {error.strerror}", "Use another one.")
    text = f"everybody on this machine can get into {folder}, with all tenants' logs and artifacts"
    return Finding("store", Level.MISSING, text, f"Run {store_folder.how_to_close(folder)}.")


def _secrets(data: Path, environment: Mapping[str, str]) -> Finding:
    files = [*(data / name for name in SECRET_FILES), config_file(environment)]
    found = [file for file in files if _is_shared(file)]
    if not found:
        return Finding("secrets", Level.OK, "no file that holds one is open to others")
    names = " ".join(shlex.quote(str(file)) for file in found)
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
        found = find_endpoint(environment)
    except ConfigError as error:
        return Finding("configuration", Level.WARNING, error.message)
    source = "DULY_URL" if environment.get("DULY_URL") else str(config_file(environment))
    return Finding("configuration", Level.OK, f"{found.name}, from {source}")


def _server(environment: Mapping[str, str]) -> list[Finding]:
    fix = "Start it with `duly up`."
    try:
        found = find_endpoint(environment)
        with Client(found.name, found.key, ca_file=found.ca_file, patience=AT_ONCE) as client:
            database = client.status()["database"]
    except ConfigError:
        return [Finding("server", Level.WARNING, "none is known", fix)]
    except Unauthenticated as error:
        fix = "Set DULY_KEY to a valid key, or start `duly up` again to have one written."
        return [Finding("server", Level.MISSING, error.message, fix)]
    except Unreachable as error:
        return [Finding("server", Level.WARNING, error.message, fix)]
    except DulyError as error:
        return [Finding("server", Level.WARNING, error.message, "Look at what the server said.")]
    answers = Finding("server", Level.OK, f"{found.name} answers, and the key is valid")
    return [answers, _row_security(is_on=database.get("row_security") is True)]


def _row_security(*, is_on: bool) -> Finding:
    if is_on:
        return Finding("row security", Level.OK, "requests reach the rows of one tenant only")
    return Finding(
        "row security",
        Level.WARNING,
        "off: only the statements themselves keep the tenants apart",
        "Set database.request_role to a role of its own, as docs/how-to/"
        "use-your-own-postgresql.md tells.",
    )
