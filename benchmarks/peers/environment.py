"""A virtual environment for each peer, made from PyPI, in a folder that is thrown away."""

import os
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
    try:
        done = subprocess.run(
            command,
            env=os.environ | QUIET,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=INSTALL_PATIENCE,
        )
    except subprocess.TimeoutExpired:
        raise LeftOut(f"installing {about.title} took over {INSTALL_PATIENCE:.0f} s") from None
    if done.returncode != 0:
        said = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
        last = said[-1] if said else f"it ended with {done.returncode} and said nothing"
        raise LeftOut(f"{about.title} could not be installed: {last}")
