"""What a task sees: its command line and its environment, and nothing of ours."""

from collections.abc import Sequence

from duly.agent.safe_open import read_file
from duly.agent.workspace import RESULT, SCRIPT
from duly.model.task import Payload
from duly.wire import Assignment

LONGEST_LINE = 256
"""Bytes of a script that the kernel looks at for its interpreter."""
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def arguments(payload: Payload, workspace: str) -> list[str]:
    """Return the command line that the payload stands for."""
    return payload.command or [program(payload, workspace)]


def program(payload: Payload, workspace: str) -> str:
    """Return the program that the payload runs, as its owner would name it."""
    if payload.command:
        return payload.command[0]
    return payload.script_path or f"{workspace}/{SCRIPT}"


def interpreter(payload: Payload) -> str | None:
    """Return what the first line of a script that was sent along names; None for what was not."""
    return None if payload.source is None else _named_in(payload.source)


def interpreter_in(folder: str, program: str) -> str | None:
    """Return what the first line of a script names that lies in a bundle; None if none does.

    Of what lies elsewhere nothing is told: it may not be the task's to read.
    """
    if "/" not in program:
        return None
    try:
        start = read_file(folder, program, LONGEST_LINE).decode(errors="replace")
    except OSError:
        return None
    return _named_in(start) if start.startswith("#!") else None


def _named_in(script: str) -> str:
    words = script.partition("\n")[0].removeprefix("#!").strip(" \t").split(" ", 1)
    return words[0]


def build(
    assignment: Assignment,
    workspace: str,
    inputs: str,
    ports: Sequence[int],
    socket: str | None = None,
) -> dict[str, str]:
    """Return the whole environment of an attempt; what the task asked for replaces our defaults."""
    ref = assignment.ref
    env = {
        "PATH": PATH,
        "HOME": workspace,
        "LANG": "C.UTF-8",
        "TMPDIR": workspace,
        **assignment.payload.env,
        "DULY_TASK_ID": str(ref.task),
        "DULY_ATTEMPT": str(ref.attempt),
        # It rises for this task alone. The token of the servers counts the attempts of everybody.
        "DULY_FENCING_TOKEN": str(ref.attempt),
        "DULY_IDEMPOTENCY_KEY": assignment.idempotency_key,
        "DULY_RESULT": f"{workspace}/{RESULT}",
        "DULY_INPUTS": inputs,
    }
    if ports:
        env["DULY_PORTS"] = ",".join(map(str, ports))
    if socket is not None:
        env["DULY_SOCKET"] = socket
    return env


def marker(workspace: str) -> str:
    """Return the part of the environment by which a process of this attempt is known.

    With `workspace` the folder of all workspaces and without its last part, it finds those of
    every attempt of an agent.
    """
    return f"DULY_RESULT={workspace}/"
