"""Measures one system: sets up its environment, runs the driver process, and cleans up.

Everything is in one temporary folder, and all that the driver starts is in one session; both
are gone at the end, also after Ctrl-C.
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

from benchmarks.peers.brokers import Running, running
from benchmarks.peers.debian import Program, find_program
from benchmarks.peers.drive import RESULT
from benchmarks.peers.environment import python_for
from benchmarks.peers.measure import Extent
from benchmarks.peers.system import About, Broker, Place, Wrong

ROOT = Path(__file__).parents[2]
PATIENCE = 240.0
"""Seconds for one system; all its parts are bounded too, this is for what nobody thought of."""
STOP_PATIENCE = 40.0
LAST_WORDS = 12


def measure_in_session(
    about: About, broker: Broker, extent: Extent, environments: Path
) -> tuple[dict[str, Any], list[str]]:
    """Return the figures of a system as JSON, and the versions of all that took part."""
    python = python_for(about, environments)
    program = find_program(about.program, environments) if about.program else Program("")
    with _folder() as folder, running(broker, folder, environments) as server:
        place = Place(folder, server.address, program.path)
        _drive([str(python), "-m", "benchmarks.peers.drive", about.name], extent, place)
        result = json.loads((folder / RESULT).read_text())
    return result["figures"], [*result["versions"], *_versions(server, program)]


def _versions(server: Running, program: Program) -> list[str]:
    found = [server.version] if server.version else []
    if program.path:
        said = subprocess.run(
            [program.path, "--version"], capture_output=True, text=True, timeout=10
        )
        found.append(said.stdout.splitlines()[0])
    return found


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="duly-peers-"))
    folder.chmod(0o711)  # A task may run as another user, and opens a pipe in here.
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _drive(command: list[str], extent: Extent, place: Place) -> None:
    log = place.folder / "log"
    with log.open("wb") as output:
        driver = subprocess.Popen(
            [*command, *map(str, astuple(extent))],
            cwd=place.folder,
            env=os.environ | place.as_variable() | {"PYTHONPATH": str(ROOT)},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            ended = has_ended(driver.pid, PATIENCE)
        finally:
            _end(driver)
    if not ended or driver.returncode != 0:
        raise Wrong(last_words(log.read_text(errors="replace")))


def _end(driver: subprocess.Popen[bytes]) -> None:
    """Let the driver stop what it started; then make sure."""
    if not has_ended(driver.pid, 0):
        driver.terminate()
        has_ended(driver.pid, STOP_PATIENCE)
    # Its number is ours until it is awaited, so this cannot hit anybody else.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(driver.pid, signal.SIGKILL)
    driver.wait()


def has_ended(pid: int, patience: float) -> bool:
    """Tell whether a child ends within so many seconds, and leave it to be awaited."""
    until = time.monotonic() + patience
    while os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is None:
        if time.monotonic() >= until:
            return False
        time.sleep(0.05)
    return True


def last_words(log: str) -> str:
    """Return the end of what a measurement said, for somebody who wants to know why."""
    lines = [line for line in log.splitlines() if line.strip()]
    return "\n".join(lines[-LAST_WORDS:]) or "it failed and said nothing"
