"""Creates a temporary virtual environment for each peer, from PyPI."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from benchmarks.peers.system import About, LeftOut

INSTALL_PATIENCE = 300.0
QUIET = {
    "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    "PIP_NO_INPUT": "1",
    "PIP_ROOT_USER_ACTION": "ignore",
}


def python_for(about: About, folder: Path) -> Path:
    """Return the Python that has the packages of a system, ours if it needs none.

    One that was made in `folder` before is taken as it is.
    """
    if not about.packages:
        return Path(sys.executable)
    home = folder / about.name
    python = home / "bin" / "python"
    done = home / "installed"
    if not done.exists():
        # Our own pip installs into it: quicker than one of its own, and Debian's Python has none.
        _run(about, [sys.executable, "-m", "venv", "--without-pip", str(home)])
        pip = [sys.executable, "-m", "pip", "--python", str(python)]
        _run(about, [*pip, "install", "--quiet", *about.packages])
        done.touch()
    return python


def _run(about: About, command: list[str]) -> None:
    process = subprocess.Popen(
        command,
        env=os.environ | QUIET,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        said, _ = process.communicate(timeout=INSTALL_PATIENCE)
    except subprocess.TimeoutExpired:
        raise LeftOut(f"installing {about.title} took over {INSTALL_PATIENCE:.0f} s") from None
    finally:
        _end(process)
    if process.returncode != 0:
        lines = [line for line in said.splitlines() if line.strip()]
        last = lines[-1] if lines else f"it ended with {process.returncode} and said nothing"
        raise LeftOut(f"{about.title} could not be installed: {last}")


def _end(process: subprocess.Popen[str]) -> None:
    """End pip if it still works, and whom it has work for it: it starts itself a second time."""
    if process.returncode is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
