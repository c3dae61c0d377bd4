"""Finds the programs that a peer needs: installed ones, or Debian packages unpacked into a folder.

The packages are downloaded and unpacked, not installed. So nothing is changed on the machine,
no service is started by an installation, and it does not take root.
"""

import os
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.peers.system import LeftOut

PATIENCE = 180.0


@dataclass(frozen=True, slots=True)
class Program:
    """Something to be started, and what its environment must have beside ours."""

    path: str
    variables: dict[str, str] = field(default_factory=dict)


def find_program(name: str, folder: Path) -> Program:
    """Return the program `name`, from the PATH or from Debian's package of that name."""
    if found := shutil.which(name):
        return Program(found)
    home = folder / f"debian-{name}"
    if not home.exists():
        _unpack(name, home)
    path = home / "usr" / "bin" / name
    if not path.exists():
        raise LeftOut(f"{name} is not installed, and Debian's package of that name lacks it")
    libraries = [str(each) for each in (home / "usr" / "lib").glob("*-linux-*")]
    return Program(str(path), {"LD_LIBRARY_PATH": ":".join(libraries)})


def _unpack(name: str, home: Path) -> None:
    missing = f"{name} is not installed"
    if not shutil.which("apt-get") or not shutil.which("dpkg"):
        raise LeftOut(f"{missing}, and without apt-get it cannot be fetched: install {name}")
    wanted = _packages(name)
    if not wanted and os.geteuid() == 0:
        _run(["apt-get", "update", "-qq"], Path.cwd())
        wanted = _packages(name)
    if not wanted:
        raise LeftOut(f"{missing}, and apt-get knows no such package: install it, as root")
    home.mkdir(parents=True)
    if _run(["apt-get", "download", "-qq", *wanted], home) is None:
        shutil.rmtree(home)
        raise LeftOut(f"{missing}, and apt-get could not download {' '.join(wanted)}")
    for package in home.glob("*.deb"):
        _run(["dpkg", "-x", str(package), str(home)], home)


def _packages(name: str) -> list[str]:
    """Return `name` and what it needs that this machine has not, as apt-get sees it."""
    said = _run(["apt-get", "install", "-s", "--no-install-recommends", name], Path.cwd())
    return new_packages(said or "")


def new_packages(simulation: str) -> list[str]:
    """Return the packages that a simulated installation would add."""
    lines = [line.split() for line in simulation.splitlines()]
    return [words[1] for words in lines if len(words) > 1 and words[0] == "Inst"]


def _run(command: list[str], folder: Path) -> str | None:
    """Return what `command` said, or nothing if it failed."""
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env=os.environ | {"LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
    except subprocess.TimeoutExpired:
        return None
    return done.stdout if done.returncode == 0 else None
