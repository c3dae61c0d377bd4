"""From flags to the request: what a person typed becomes the fields of a task.

Whatever can be told wrong without asking the server is refused here, as a usage error.
"""

import os
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import fields
from datetime import datetime, timedelta
from pathlib import Path

from typer import BadParameter

from duly.cli.flags import ResourceFlags, TaskFlags
from duly.client.shapes import (
    Concurrency,
    DependencyFields,
    ResourceFields,
    TaskFields,
    UniqueFields,
)
from duly.duration import parse_duration
from duly.errors import Invalid

LARGEST_SCRIPT = 1024 * 1024


def task_fields(flags: TaskFlags, command: Sequence[str], *, now: datetime) -> TaskFields:
    """Return the request that `flags` and `command` ask for, without what was not said."""
    said: TaskFields = {
        "name": flags.name,
        "command": _command(flags, command),
        "script_path": flags.script_path,
        "source": None if flags.script is None else read_script(flags.script),
        "tier": flags.tier,
        "resources": resource_fields(flags) or None,
        "delay_tolerance": _duration("--delay-tolerance", flags.delay_tolerance),
        "execution_cap": _duration("--execution-cap", flags.execution_cap),
        "max_attempts": flags.max_attempts,
        "on_lost": flags.on_lost,
        "run_at": _run_at(flags, now),
        "depends_on": _depends_on(flags) or None,
        "idempotency_key": flags.idempotency_key,
        "env": _env(flags) or None,
        "labels": pairs("--label", flags.label) or None,
        "requires": pairs("--require", flags.require) or None,
        "category": flags.category,
        "priority": flags.priority,
        "queue": flags.queue,
        "concurrency": _concurrency(flags),
        "unique": _unique(flags),
    }
    return {name: value for name, value in said.items() if value is not None}  # type: ignore[return-value]


def require_payload(fields: TaskFields, example: str = "duly submit -- echo hello") -> None:
    """Refuse a task that says nothing, or two things, to run."""
    given = [name for name in ("command", "source", "script_path") if name in fields]
    if not given:
        raise BadParameter(f"Nothing to run. Write it like: {example}")
    if len(given) > 1:
        raise BadParameter(
            "Give a COMMAND, --script or --script-path, only one of them. "
            "A script gets its input from --env."
        )


def require_file_alone(flags: TaskFlags, command: Sequence[str] | None) -> None:
    """Refuse flags that would say of a whole file of tasks what belongs into it."""
    said = [one.name for one in fields(flags) if getattr(flags, one.name) is not None]
    others = [name for name in said if name != "idempotency_key"]
    if command or others:
        what = f"--{others[0].replace('_', '-')}" if others else "A COMMAND"
        raise BadParameter(f"{what} does not go with a file; write it there.", param_hint="--file")


def pairs(flag: str, texts: Iterable[str] | None) -> dict[str, str]:
    """Read NAME=VALUE texts."""
    found = {}
    for text in texts or ():
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise BadParameter(f"Write it like NAME=VALUE, not {text!r}.", param_hint=flag)
        found[name] = value
    return found


def moment(flag: str, text: str) -> str | datetime:
    """Read a duration before now, by the server's clock, or a time, by ours if it has no offset."""
    return text if is_duration(text) else instant(flag, text)


def is_duration(text: str) -> bool:
    """Return whether a text is a duration, and not a time."""
    try:
        parse_duration(text, "time")
    except Invalid:
        return False
    return True


def duration(flag: str, text: str) -> float:
    """Read a duration as seconds."""
    try:
        return parse_duration(text, flag).total_seconds()
    except Invalid as error:
        raise BadParameter(error.message, param_hint=flag) from error


def read_script(file: Path) -> str:
    """Return the text of a script, if it is one that a node could run."""
    try:
        with file.open("rb") as opened:
            data = opened.read(LARGEST_SCRIPT + 1)
    except OSError as error:
        raise _bad_script(f"Cannot read {str(file)!r}: {error.strerror}.") from error
    if len(data) > LARGEST_SCRIPT:
        raise _bad_script(f"{str(file)!r} is larger than 1 MB.")
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise _bad_script(f"{str(file)!r} is not a text in UTF-8; a script must be.") from error
    if not text.startswith("#!"):
        raise _bad_script(f"{str(file)!r} must begin with a line such as #!/bin/sh.")
    return text


def refuse_local_file(command: Sequence[str], folder: Path) -> None:
    """Refuse a file of this folder as the command: the node that runs the task does not have it."""
    if is_local_file(command, folder):
        raise BadParameter(
            f"{command[0]!r} is a file on this machine, and the node that runs the task may be "
            f"another. Send it along: --script {command[0]}, or with its folder: --bundle FOLDER",
            param_hint="COMMAND",
        )


def is_local_file(command: Sequence[str], folder: Path) -> bool:
    """Say whether the program is a file of this folder, and none that every node has."""
    program = command[0] if command else ""
    if not program or program.startswith(("/", "-")) or not _is_file(folder / program):
        return False
    return "/" in program or shutil.which(program) is None


def _command(flags: TaskFlags, command: Sequence[str]) -> list[str] | None:
    if flags.script is None and flags.script_path is None and flags.bundle is None:
        refuse_local_file(command, Path.cwd())
    return list(command) or None


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def _bad_script(message: str) -> BadParameter:
    return BadParameter(message, param_hint="--script")


def resource_fields(flags: TaskFlags | ResourceFlags) -> ResourceFields:
    """Return the amounts that were said."""
    asked: ResourceFields = {}
    if flags.cpu is not None:
        asked["cpu"] = flags.cpu
    if flags.memory is not None:
        asked.update(_size("memory", flags.memory))
    if flags.disk is not None:
        asked.update(_size("disk", flags.disk))
    if flags.iops is not None:
        asked["iops"] = flags.iops
    if flags.bandwidth is not None:
        asked["bandwidth_mbps"] = flags.bandwidth
    if flags.ports is not None:
        asked["ports"] = flags.ports
    if flags.extra:
        asked["extra"] = _extra(flags.extra)
    return asked


def _size(kind: str, text: str) -> ResourceFields:
    """Read a size; a bare number is in MiB, because nobody asks for 512 bytes."""
    return {f"{kind}_mb": int(text)} if text.strip().isdecimal() else {kind: text}  # type: ignore[misc]


def _extra(texts: Iterable[str]) -> dict[str, int]:
    amounts = pairs("--extra", texts)
    try:
        return {kind: int(amount) for kind, amount in amounts.items()}
    except ValueError:
        raise BadParameter("Write whole numbers, like gpu=1.", param_hint="--extra") from None


def _concurrency(flags: TaskFlags) -> Concurrency | None:
    if flags.concurrency_key is not None:
        return {"key": flags.concurrency_key, "limit": flags.concurrency_limit or 1}
    if flags.concurrency_limit is not None:
        raise BadParameter("Give --concurrency-key, too.", param_hint="--concurrency-limit")
    return None


def _duration(flag: str, text: str | None) -> float | None:
    return None if text is None else duration(flag, text)


def _depends_on(flags: TaskFlags) -> list[str | DependencyFields]:
    """Read ids, with commas or one by one, each perhaps with how that task must end."""
    found: list[str | DependencyFields] = []
    for text in ",".join(flags.depends_on or ()).split(","):
        task, colon, on = text.strip().partition(":")
        if colon and on not in ("success", "failure", "always"):
            raise BadParameter(
                f"Write it like ID:failure or ID:always, not {text!r}.", param_hint="--depends-on"
            )
        if task:
            found.append({"task": task, "on": on} if colon else task)
    return found


def _unique(flags: TaskFlags) -> UniqueFields | None:
    if flags.unique_key is None:
        for flag, said in (
            ("--unique-while", flags.unique_while),
            ("--on-conflict", flags.on_conflict),
        ):
            if said is not None:
                raise BadParameter("It needs --unique-key KEY.", param_hint=flag)
        return None
    unique: UniqueFields = {"key": flags.unique_key}
    if flags.unique_while is not None:
        unique["while"] = flags.unique_while
    if flags.on_conflict is not None:
        unique["on_conflict"] = flags.on_conflict
    return unique


def _run_at(flags: TaskFlags, now: datetime) -> datetime | None:
    if flags.run_at is not None and flags.run_in is not None:
        raise BadParameter("Give --in or --run-at, not both.", param_hint="--in")
    if flags.run_in is not None:
        return now + timedelta(seconds=duration("--in", flags.run_in))
    return None if flags.run_at is None else instant("--run-at", flags.run_at)


def instant(flag: str, text: str) -> datetime:
    """Read a time, on the clock of this machine if it has no offset."""
    try:
        at = datetime.fromisoformat(text.strip())
        return at.astimezone() if at.tzinfo is None else at
    except (ValueError, OverflowError, OSError):
        raise BadParameter(
            f"Not a time: {text[:60]!r}. Write it like 2027-01-31T06:30 (on the clock of this "
            "machine) or 2027-01-31T06:30Z.",
            param_hint=flag,
        ) from None


def _env(flags: TaskFlags) -> dict[str, str]:
    env = _read_env_file(flags.env_file) if flags.env_file else {}
    for text in flags.env or ():
        name, equals, value = text.partition("=")
        if not equals and name not in os.environ:
            raise BadParameter(
                f"{name!r} is not set here. Write --env {name}=VALUE.", param_hint="--env"
            )
        env[name] = value if equals else os.environ[name]
    return env


def _read_env_file(file: Path) -> dict[str, str]:
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not a text in UTF-8"
        raise BadParameter(f"Cannot read {str(file)!r}: {why}.", param_hint="--env-file") from error
    said = [line.strip().removeprefix("export ") for line in lines]
    return pairs("--env-file", (line for line in said if line and not line.startswith("#")))
