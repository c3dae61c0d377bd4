"""Converts flags to the fields of a task.

Mistakes that can be found without the server are usage errors here.
"""

import os
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import fields
from datetime import datetime, timedelta
from math import isfinite
from pathlib import Path

from typer import BadParameter

from duly.cli.tasks.find_task import is_id
from duly.cli.tasks.flags import ResourceFlags, TaskFlags
from duly.cli.tasks.submission.task_input import read_input
from duly.cli.tasks.times import parse_instant
from duly.cli.written_flags import as_written
from duly.client.shapes.task_shapes import (
    Concurrency,
    DependencyFields,
    ResourceFields,
    RetryFields,
    TaskFields,
    UniqueFields,
)
from duly.duration import parse_duration
from duly.errors import Invalid
from duly.model.wording import describe_unreadable

MAX_SCRIPT_BYTES = 1024 * 1024


def task_fields(flags: TaskFlags, command: Sequence[str], *, now: datetime) -> TaskFields:
    """Return the fields of a task from the flags that were given and `command`."""
    values: TaskFields = {
        "name": flags.name,
        "command": _command(flags, command),
        "script_path": flags.script_path,
        "source": None if flags.script is None else read_script(flags.script),
        "tier": flags.tier,
        "resources": resource_fields(flags) or None,
        "delay_tolerance": _duration("--delay-tolerance", flags.delay_tolerance),
        "execution_cap": _duration("--execution-cap", flags.execution_cap),
        "max_attempts": flags.max_attempts,
        "retry": _retry(flags) or None,
        "on_lost": flags.on_lost,
        "on_overdue": flags.on_overdue,
        "run_at": _run_at(flags, now),
        "depends_on": _depends_on(flags) or None,
        "idempotency_key": flags.idempotency_key,
        "env": _env(flags) or None,
        "stdin": None if flags.stdin is None else read_input(flags.stdin),
        "labels": parse_pairs("--label", flags.label) or None,
        "requires": parse_pairs("--require", flags.require) or None,
        "category": flags.category,
        "priority": flags.priority,
        "queue": flags.queue,
        "concurrency": _concurrency(flags),
        "unique": _unique(flags),
        "uses": flags.uses or None,
    }
    return {name: value for name, value in values.items() if value is not None}  # type: ignore[return-value]


def require_payload(fields: TaskFields, example: str = "duly submit -- echo hello") -> None:
    """Refuse a task with no payload, or more than one."""
    payloads = [name for name in ("command", "source", "script_path") if name in fields]
    if not payloads:
        raise BadParameter(f"There is nothing to run. Give a command, such as: {example}")
    if len(payloads) > 1:
        raise BadParameter(
            "Give only one of COMMAND, --script and --script-path. "
            "Pass input to a script with --env or --stdin."
        )


def require_file_alone(flags: TaskFlags, command: Sequence[str] | None) -> None:
    """Refuse task flags together with a manifest."""
    values = [
        flag_field.name
        for flag_field in fields(flags)
        if getattr(flags, flag_field.name) is not None
    ]
    others = [name for name in values if name != "idempotency_key"]
    if command or others:
        what = "a COMMAND"
        if others:
            flag = "in" if others[0] == "run_in" else others[0].replace("_", "-")
            what = as_written(f"--{flag}")
        raise BadParameter(
            f"{what} cannot be given together with a file. Set it in the file.", param_hint="--file"
        )


def parse_pairs(flag: str, texts: Iterable[str] | None) -> dict[str, str]:
    """Parse NAME=VALUE texts."""
    found = {}
    for text in texts or ():
        name, equals, value = text.partition("=")
        if not equals or not name:
            problem = "has no name" if equals else "has no '='"
            raise BadParameter(
                f"{text[:60]!r} {problem}. Write it like NAME=VALUE.", param_hint=flag
            )
        found[name] = value
    return found


def parse_expires(text: str | None) -> float | None:
    """Parse the flag --expires into seconds from now."""
    return None if text is None else parse_seconds("--expires", text)


def parse_seconds(flag: str, text: str) -> float:
    """Parse a duration into seconds."""
    try:
        return parse_duration(text, flag).total_seconds()
    except Invalid as error:
        raise BadParameter(error.problem, param_hint=flag) from error


def read_script(file: Path) -> str:
    """Read a script; it must be UTF-8 text of at most 1 MiB that begins with #!."""
    try:
        with file.open("rb") as opened:
            data = opened.read(MAX_SCRIPT_BYTES + 1)
    except OSError as error:
        raise _bad_script(f"{str(file)!r} cannot be read: {error.strerror}.") from error
    if len(data) > MAX_SCRIPT_BYTES:
        raise _bad_script(f"{str(file)!r} is larger than 1 MiB. Send it with --bundle FOLDER.")
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise _bad_script(
            f"{str(file)!r} is not UTF-8 text. Send a program with --bundle FOLDER."
        ) from error
    if not text.startswith("#!"):
        raise _bad_script(f"{str(file)!r} has no first line such as #!/bin/sh. Add one.")
    return text


def refuse_local_file(command: Sequence[str], folder: Path) -> None:
    """Refuse a local file as the command: the node may not have it."""
    if is_local_file(command, folder):
        raise BadParameter(
            f"{command[0]!r} is a file on this machine, and the task may run on another. Upload it "
            f"with --script {command[0]}, or its folder with --bundle FOLDER.",
            param_hint="COMMAND",
        )


def is_local_file(command: Sequence[str], folder: Path) -> bool:
    """Return True if the program is a file in `folder` rather than a command in PATH."""
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
    """Return the amounts that were given."""
    amounts: ResourceFields = {}
    if flags.cpu is not None:
        if not isfinite(flags.cpu):
            raise BadParameter(f"'{flags.cpu}' is not an amount. Try 0.5.", param_hint="--cpu")
        amounts["cpu"] = flags.cpu
    if flags.memory is not None:
        amounts.update(_size("memory", flags.memory))
    if flags.disk is not None:
        amounts.update(_size("disk", flags.disk))
    if flags.iops is not None:
        amounts["iops"] = flags.iops
    if flags.bandwidth is not None:
        amounts["bandwidth_mbps"] = flags.bandwidth
    if flags.ports is not None:
        amounts["ports"] = flags.ports
    if flags.extra:
        amounts["extra"] = _extra(flags.extra)
    return amounts


def _size(kind: str, text: str) -> ResourceFields:
    """Parse a size; a bare number is in MiB, because 512 bytes is never meant."""
    return {f"{kind}_mb": int(text)} if text.strip().isdecimal() else {kind: text}  # type: ignore[misc]


def _extra(texts: Iterable[str]) -> dict[str, int]:
    amounts = parse_pairs("--extra", texts)
    try:
        return {kind: int(amount) for kind, amount in amounts.items()}
    except ValueError:
        raise BadParameter(
            "the amount is not a whole number. Write it like gpu=1.", param_hint="--extra"
        ) from None


def _concurrency(flags: TaskFlags) -> Concurrency | None:
    if flags.concurrency_key is not None:
        limit = 1 if flags.concurrency_limit is None else flags.concurrency_limit
        return {"key": flags.concurrency_key, "limit": limit}
    if flags.concurrency_limit is not None:
        raise BadParameter(
            "it needs --concurrency-key KEY. Give that, too.", param_hint="--concurrency-limit"
        )
    return None


def _duration(flag: str, text: str | None) -> float | None:
    return None if text is None else parse_seconds(flag, text)


def _depends_on(flags: TaskFlags) -> list[str | DependencyFields]:
    """Parse ids, comma-separated or repeated, each with an optional condition."""
    found: list[str | DependencyFields] = []
    for text in _items("--depends-on", flags.depends_on or ()):
        task, colon, on = text.partition(":")
        if colon and on not in ("success", "failure", "always"):
            raise BadParameter(
                f"{on!r} is unknown. Use success, failure or always, as in {task}:failure.",
                param_hint="--depends-on",
            )
        if not is_id(task):
            raise BadParameter(
                f"there is no task {task[:60]!r}. Give a task ID from 'duly list'.",
                param_hint="--depends-on",
            )
        found.append({"task": task, "on": on} if colon else task)
    return found


def _items(flag: str, texts: Iterable[str]) -> list[str]:
    """Split what is comma-separated or repeated; refuses an empty value, as of an unset variable.

    A comma at the end is no value.
    """
    found = []
    for text in texts:
        items = [item.strip() for item in text.split(",")]
        if not any(items):
            raise BadParameter("it is empty. Give a value, or leave it out.", param_hint=flag)
        found += [item for item in items if item]
    return found


def _retry(flags: TaskFlags) -> RetryFields:
    retry: RetryFields = {}
    if flags.retry_delay is not None:
        retry["delay"] = _duration("--retry-delay", flags.retry_delay)
    if flags.retry_max_delay is not None:
        retry["max_delay"] = _duration("--retry-max-delay", flags.retry_max_delay)
    if flags.no_retry_exit is not None:
        retry["no_retry_exit_codes"] = _exit_codes(flags.no_retry_exit)
    return retry


def _exit_codes(texts: Iterable[str]) -> list[int]:
    """Parse exit codes, comma-separated or repeated."""
    try:
        return [int(code) for code in _items("--no-retry-exit", texts)]
    except ValueError:
        raise BadParameter(
            "an exit code is not a whole number. Write them like 3,4.", param_hint="--no-retry-exit"
        ) from None


def _unique(flags: TaskFlags) -> UniqueFields | None:
    if flags.unique_key is None:
        for flag, values in (
            ("--unique-while", flags.unique_while),
            ("--on-conflict", flags.on_conflict),
        ):
            if values is not None:
                raise BadParameter("it needs --unique-key KEY. Give that, too.", param_hint=flag)
        return None
    unique: UniqueFields = {"key": flags.unique_key}
    if flags.unique_while is not None:
        unique["while"] = flags.unique_while
    if flags.on_conflict is not None:
        unique["on_conflict"] = flags.on_conflict
    return unique


def _run_at(flags: TaskFlags, now: datetime) -> datetime | None:
    if flags.run_at is not None and flags.run_in is not None:
        raise BadParameter(
            f"{as_written('--run-at')} is given, too. Give only one of them.", param_hint="--in"
        )
    if flags.run_in is not None:
        return now + timedelta(seconds=parse_seconds("--in", flags.run_in))
    return None if flags.run_at is None else parse_instant("--run-at", flags.run_at)


def _env(flags: TaskFlags) -> dict[str, str]:
    env = _read_env_file(flags.env_file) if flags.env_file else {}
    for text in flags.env or ():
        name, equals, value = text.partition("=")
        if not equals and name not in os.environ:
            raise BadParameter(
                f"{name!r} is not set here. Give a value: --env {name}=VALUE.",
                param_hint="--env",
            )
        env[name] = value if equals else os.environ[name]
    return env


def _read_env_file(file: Path) -> dict[str, str]:
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        why = describe_unreadable(error)
        raise BadParameter(
            f"{str(file)!r} cannot be read: {why}.", param_hint="--env-file"
        ) from error
    values = [line.strip().removeprefix("export ") for line in lines]
    return parse_pairs("--env-file", (line for line in values if line and not line.startswith("#")))
