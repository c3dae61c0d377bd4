"""The part of a request that says what is run, and its checks.

A program is a command, a script on the node, the text of a script, or a call of a function that a
worker knows (`duly.model.requests.call_request`).
"""

import re

import msgspec

from duly.errors import Invalid, TooLarge
from duly.model.artifact import check_sha256
from duly.model.requests.call_request import CallRequest, check_call
from duly.model.requests.texts import bounded_text, check_text
from duly.model.wording import either

MAX_ENV_VARIABLES = 1000
MAX_ENV_BYTES = 256 * 1024
MAX_VARIABLE_BYTES = 128 * 1024 - 2
"""Linux takes no single variable of more than 128 KiB, its `=` and closing NUL included."""
MAX_PATH_FOLDERS = 256
"""Different folders in a task's PATH: its node searches them for the program one by one."""
MAX_ARGUMENTS = 10_000
MAX_ARGUMENT_BYTES = 128 * 1024 - 1
"""Linux takes no single argument of more than 128 KiB, its closing NUL included."""
MAX_COMMAND_BYTES = 1024 * 1024
MAX_SOURCE_BYTES = 1024 * 1024
MAX_STDIN_BYTES = 1024 * 1024
PROGRAM_FIELDS = ("command", "script_path", "source", "call")
"""A task has exactly one of these."""
PROCESS_FIELDS = ("env", "stdin")
"""Fields of a process of its own, which a call does not get."""
ENV_NAME_PATTERN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class ProgramRequest(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """What a task runs, with its input."""

    command: list[str] | None = None
    script_path: str | None = None
    source: str | None = None
    call: CallRequest | None = None
    """The function that a worker of the tenant calls, with its arguments."""
    artifact: str | None = None
    """The SHA-256, in hex, of what was uploaded before: the bundle of a command, or the arguments
    of a call."""
    env: dict[str, str] | None = None
    stdin: str | None = None
    """Text that every attempt reads from its standard input."""


def check_program(request: ProgramRequest) -> None:
    """Raise Invalid or TooLarge unless the request has one program that can be run."""
    ways = (request.command, request.script_path, request.source, request.call)
    if ways.count(None) != len(ways) - 1:
        given = [name for name, way in zip(PROGRAM_FIELDS, ways, strict=True) if way is not None]
        problem = f"{either(given, 'and')} are given" if given else "there is nothing to run"
        raise Invalid(
            given[-1] if given else "command",
            f"{problem}. Give exactly one of {either(PROGRAM_FIELDS, 'and')}.",
        )
    if request.command is not None:
        _check_command(request.command)
    if request.script_path is not None:
        bounded_text(request.script_path, "script_path", 4096)
        if not request.script_path.startswith("/"):
            raise Invalid(
                "script_path",
                f"{request.script_path[:60]!r} is not an absolute path on the node. Begin with /.",
            )
    if request.source is not None:
        _check_source(request.source)
    if request.call is not None:
        check_call(request.call, has_artifact=request.artifact is not None)
        for field in PROCESS_FIELDS:
            if getattr(request, field) is not None:
                raise Invalid(
                    field,
                    "a call has none, because it runs in a process of its worker. Pass arguments.",
                )
    if request.artifact is not None:
        # Whether the artifact exists is checked where it is stored.
        if request.command is None and request.call is None:
            raise Invalid(
                "artifact",
                "it needs a command, which runs in its folder, or a call, whose arguments it has.",
            )
        check_sha256(request.artifact, "artifact")
    if request.stdin is not None:
        _check_stdin(request.stdin)
    if request.env:
        _check_env(request.env)


def _check_command(command: list[str]) -> None:
    if not command:
        raise Invalid("command", 'it is empty. Write it like ["echo", "hi"].')
    if not command[0].strip():
        raise Invalid("command[0]", "it is empty. Name the program to run.")
    if len(command) > MAX_ARGUMENTS:
        raise Invalid(
            "command", f"it has {len(command)} arguments; at most {MAX_ARGUMENTS} are allowed."
        )
    total = 0
    for index, argument in enumerate(command):
        size = len(argument)
        if not argument.isascii() or "\0" in argument:
            size = len(check_text(argument, f"command[{index}]").encode())
        total += size
        if size > MAX_ARGUMENT_BYTES:
            raise Invalid(
                f"command[{index}]",
                f"it has {size} bytes; at most {MAX_ARGUMENT_BYTES} are allowed in one argument.",
            )
    if total > MAX_COMMAND_BYTES:
        raise Invalid("command", f"it has {total} bytes; at most {MAX_COMMAND_BYTES} are allowed.")


def _check_source(source: str) -> None:
    check_text(source, "source")
    if not source.startswith("#!"):
        raise Invalid("source", "it has no first line such as #!/bin/sh. Add one.")
    size = len(source.encode())
    if size > MAX_SOURCE_BYTES:
        message = f"source: it has {size} bytes; at most {MAX_SOURCE_BYTES} are allowed."
        raise TooLarge(message, field="source")


def _check_stdin(text: str) -> None:
    check_text(text, "stdin")
    size = len(text.encode())
    if size > MAX_STDIN_BYTES:
        raise Invalid(
            "stdin",
            f"it has {size} bytes; at most {MAX_STDIN_BYTES} are allowed. Send it as a file of a "
            "bundle.",
        )


def _check_env(env: dict[str, str]) -> None:
    if len(env) > MAX_ENV_VARIABLES:
        raise Invalid(
            "env", f"it has {len(env)} variables; at most {MAX_ENV_VARIABLES} are allowed."
        )
    total = 0
    for name, value in env.items():
        if not ENV_NAME_PATTERN.fullmatch(name) or len(name) > 200:
            raise Invalid(
                "env",
                f"{name[:60]!r} is not the name of a variable. Use letters, digits and '_', and "
                "begin with no digit.",
            )
        if name.startswith("DULY_"):
            raise Invalid(
                "env", f"{name[:60]!r} is reserved, as all names that begin with DULY_. Rename it."
            )
        size = len(name) + len(check_text(value, f"env.{name}").encode())
        if size > MAX_VARIABLE_BYTES:
            message = (
                f"it has {size} bytes with its name; at most {MAX_VARIABLE_BYTES} are allowed."
            )
            raise Invalid(f"env.{name}", message)
        total += size
    if total > MAX_ENV_BYTES:
        raise Invalid("env", f"it has {total} bytes; at most {MAX_ENV_BYTES} are allowed.")
    folders = len(set(env.get("PATH", "").split(":")))
    if folders > MAX_PATH_FOLDERS:
        message = f"it names {folders} different folders; at most {MAX_PATH_FOLDERS} are allowed."
        raise Invalid("env.PATH", message)
