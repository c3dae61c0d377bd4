"""Creates a temporary virtual environment for each peer, from PyPI."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from benchmarks.peers.system import About, Unavailable

INSTALL_TIMEOUT_SECONDS = 300.0
PIP_SETTINGS = {
    "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    "PIP_NO_INPUT": "1",
    "PIP_ROOT_USER_ACTION": "ignore",
}


def python_for(about: About, folder: Path) -> Path:
    """Return a Python that has the packages of a system, or our own if it needs none.

    An environment that exists in `folder` is reused.
    """
    if not about.packages:
        return Path(sys.executable)
    home = folder / about.name
    python = home / "bin" / "python"
    marker = home / "installed"
    if not marker.exists():
        # Our pip installs into it: faster than a pip of its own, and Debian's venv has none.
        _run(about, [sys.executable, "-m", "venv", "--without-pip", str(home)])
        pip = [sys.executable, "-m", "pip", "--python", str(python)]
        _run(about, [*pip, "install", "--quiet", *about.packages])
        marker.touch()
    return python


def _run(about: About, command: list[str]) -> None:
    process = subprocess.Popen(
        command,
        env=os.environ | PIP_SETTINGS,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=INSTALL_TIMEOUT_SECONDS)
    except subprocess.TimeoutExpired:
        raise Unavailable(
            f"installing {about.title} took over {INSTALL_TIMEOUT_SECONDS:.0f} s"
        ) from None
    finally:
        _kill(process)
    if process.returncode != 0:
        lines = [line for line in output.splitlines() if line.strip()]
        last = lines[-1] if lines else f"exit status {process.returncode} without output"
        raise Unavailable(f"{about.title} could not be installed: {last}")


def _kill(process: subprocess.Popen[str]) -> None:
    """Kill pip if it still runs, with its process group: it starts itself a second time."""
    if process.returncode is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
