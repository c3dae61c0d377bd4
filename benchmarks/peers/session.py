"""Measures one system: sets up its environment, runs the driver process, and cleans up.

All files are in one temporary folder, and all processes of the driver in one session; both are
removed at the end, also after Ctrl-C.
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import astuple
from pathlib import Path
from typing import Any

from benchmarks.peers.brokers import RunningBroker, running
from benchmarks.peers.debian import Program, find_program
from benchmarks.peers.drive import RESULT_FILE
from benchmarks.peers.environment import python_for
from benchmarks.peers.measure import Workload
from benchmarks.peers.system import About, Broker, CheckFailed, Context

ROOT = Path(__file__).parents[2]
TIMEOUT_SECONDS = 240.0
"""Time limit for one system, as a safety net: every step has its own limit."""
STOP_TIMEOUT_SECONDS = 40.0
LOG_TAIL_LINES = 12


def measure_in_session(
    about: About, broker: Broker, workload: Workload, environments: Path
) -> tuple[dict[str, Any], list[str]]:
    """Return the figures of a system as JSON, and the versions of its software."""
    python = python_for(about, environments)
    program = find_program(about.program, environments) if about.program else Program("")
    with _folder() as folder, running(broker, folder, environments) as server:
        context = Context(folder, server.address, program.path)
        _drive([str(python), "-m", "benchmarks.peers.drive", about.name], workload, context)
        result = json.loads((folder / RESULT_FILE).read_text())
    return result["figures"], [*result["versions"], *_versions(server, program)]


def _versions(server: RunningBroker, program: Program) -> list[str]:
    versions = [server.version] if server.version else []
    if program.path:
        completed = subprocess.run(
            [program.path, "--version"], capture_output=True, text=True, timeout=10
        )
        versions.append(completed.stdout.splitlines()[0])
    return versions


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="duly-peers-"))
    folder.chmod(0o711)  # A task may run as another user, and opens a pipe in it.
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _drive(command: list[str], workload: Workload, context: Context) -> None:
    log = context.folder / "log"
    with log.open("wb") as output:
        driver = subprocess.Popen(
            [*command, *map(str, astuple(workload))],
            cwd=context.folder,
            env=os.environ | context.as_variable() | {"PYTHONPATH": str(ROOT)},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            ended = has_ended(driver.pid, TIMEOUT_SECONDS)
        finally:
            _stop_driver(driver)
    if not ended or driver.returncode != 0:
        raise CheckFailed(log_tail(log.read_text(errors="replace")))


def _stop_driver(driver: subprocess.Popen[bytes]) -> None:
    """Let the driver stop its processes, then kill what is left of its session."""
    if not has_ended(driver.pid, 0):
        driver.terminate()
        has_ended(driver.pid, STOP_TIMEOUT_SECONDS)
    # The pid cannot be reused before we wait for it, so this cannot hit another process.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(driver.pid, signal.SIGKILL)
    driver.wait()


def has_ended(pid: int, timeout: float) -> bool:
    """Return whether a child ends within `timeout` seconds, without reaping it."""
    deadline = time.monotonic() + timeout
    while os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is None:
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.05)
    return True


def log_tail(log: str) -> str:
    """Return the last lines of the log of a failed measurement."""
    lines = [line for line in log.splitlines() if line.strip()]
    return "\n".join(lines[-LOG_TAIL_LINES:]) or "it failed without output"
