"""Finds the programs that a peer needs: on the PATH, or in Debian packages unpacked into a folder.

The packages are downloaded and unpacked, not installed: the machine stays unchanged, no service is
started, and root is not needed.
"""

import os
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.peers.system import Unavailable

COMMAND_TIMEOUT_SECONDS = 180.0


@dataclass(frozen=True, slots=True)
class Program:
    """The path of a program, and the environment variables that it needs."""

    path: str
    variables: dict[str, str] = field(default_factory=dict)


def find_program(name: str, folder: Path) -> Program:
    """Return the program `name`, from the PATH or from Debian's package of that name."""
    if installed := shutil.which(name):
        return Program(installed)
    home = folder / f"debian-{name}"
    if not home.exists():
        _unpack(name, home)
    path = home / "usr" / "bin" / name
    if not path.exists():
        raise Unavailable(f"{name} is not installed, and Debian's package of that name lacks it")
    libraries = [str(library) for library in (home / "usr" / "lib").glob("*-linux-*")]
    return Program(str(path), {"LD_LIBRARY_PATH": ":".join(libraries)})


def _unpack(name: str, home: Path) -> None:
    missing = f"{name} is not installed"
    if not shutil.which("apt-get") or not shutil.which("dpkg"):
        raise Unavailable(f"{missing}, and without apt-get it cannot be fetched: install {name}")
    packages = _packages(name)
    if not packages and os.geteuid() == 0:
        _run(["apt-get", "update", "-qq"], Path.cwd())
        packages = _packages(name)
    if not packages:
        raise Unavailable(f"{missing}, and apt-get does not know the package: install it as root")
    home.mkdir(parents=True)
    if _run(["apt-get", "download", "-qq", *packages], home) is None:
        shutil.rmtree(home)
        raise Unavailable(f"{missing}, and apt-get could not download {' '.join(packages)}")
    for package in home.glob("*.deb"):
        _run(["dpkg", "-x", str(package), str(home)], home)


def _packages(name: str) -> list[str]:
    """Return `name` and those of its dependencies that are not installed, by apt-get."""
    simulation = _run(["apt-get", "install", "-s", "--no-install-recommends", name], Path.cwd())
    return new_packages(simulation or "")


def new_packages(simulation: str) -> list[str]:
    """Return the packages that a simulated installation would add."""
    lines = [line.split() for line in simulation.splitlines()]
    return [words[1] for words in lines if len(words) > 1 and words[0] == "Inst"]


def _run(command: list[str], folder: Path) -> str | None:
    """Return the output of `command`, or None if it failed."""
    try:
        completed = subprocess.run(
            command,
            cwd=folder,
            env=os.environ | {"LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=COMMAND_TIMEOUT_SECONDS,
        )
    except subprocess.TimeoutExpired:
        return None
    return completed.stdout if completed.returncode == 0 else None
