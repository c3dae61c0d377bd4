"""Builds the command line and the environment of a task, with nothing from the agent's own."""

from collections.abc import Sequence

from duly.agent.preparation.safe_open import read_file
from duly.agent.preparation.workspace import RESULT_FILE, SCRIPT_FILE
from duly.model.task import Payload
from duly.wire import Assignment

MAX_SHEBANG_BYTES = 256
"""Bytes of a script that the kernel reads to find its interpreter."""
DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def arguments(payload: Payload, workspace: str) -> list[str]:
    """Return the command line of the payload."""
    return payload.command or [program(payload, workspace)]


def program(payload: Payload, workspace: str) -> str:
    """Return the program that the payload runs, as the task's owner would name it."""
    if payload.command:
        return payload.command[0]
    return payload.script_path or f"{workspace}/{SCRIPT_FILE}"


def stdin(payload: Payload) -> tuple[bytes, ...]:
    """Return the standard input that was submitted, or nothing, which leaves it empty."""
    return () if payload.stdin is None else (payload.stdin.encode(),)


def interpreter(payload: Payload) -> str | None:
    """Return the interpreter that an inline script names; None without an inline script."""
    return None if payload.source is None else _shebang_interpreter(payload.source)


def interpreter_in(folder: str, program: str) -> str | None:
    """Return the interpreter that a script in a bundle names; None if there is none.

    A script elsewhere is not read: the task may not have the permission to.
    """
    if "/" not in program:
        return None
    try:
        start = read_file(folder, program, MAX_SHEBANG_BYTES).decode(errors="replace")
    except OSError:
        return None
    return _shebang_interpreter(start) if start.startswith("#!") else None


def _shebang_interpreter(script: str) -> str:
    words = script.partition("\n")[0].removeprefix("#!").strip(" \t").split(" ", 1)
    return words[0]


def build(
    assignment: Assignment,
    workspace: str,
    inputs: str,
    ports: Sequence[int],
    socket: str | None = None,
) -> dict[str, str]:
    """Return the whole environment of an attempt; the task's variables override the defaults."""
    ref = assignment.ref
    env = {
        "PATH": DEFAULT_PATH,
        "HOME": workspace,
        "LANG": "C.UTF-8",
        "TMPDIR": workspace,
        **assignment.payload.env,
        "DULY_TASK_ID": str(ref.task),
        "DULY_ATTEMPT": str(ref.attempt),
        # Counts the attempts of this task only. The servers' token counts those of all tenants.
        "DULY_FENCING_TOKEN": str(ref.attempt),
        "DULY_IDEMPOTENCY_KEY": assignment.idempotency_key,
        "DULY_RESULT": f"{workspace}/{RESULT_FILE}",
        "DULY_INPUTS": inputs,
    }
    if ports:
        env["DULY_PORTS"] = ",".join(map(str, ports))
    if socket is not None:
        env["DULY_SOCKET"] = socket
    return env


def marker(workspace: str) -> str:
    """Return the part of the environment that identifies a process of this attempt.

    If `workspace` is the folder of all workspaces, it matches the processes of every attempt of
    the agent.
    """
    return f"DULY_RESULT={workspace}/"
