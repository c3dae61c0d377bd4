"""Tests Duly with the oldest versions that pyproject.toml allows.

Every direct dependency is installed at its lower bound into a temporary environment, then pytest
runs there with the given arguments. A bound that cannot be installed together with the others is an
error before any test runs, because it would be untested.
"""

import os
import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent
UV = Path(sys.executable).with_name("uv")
REQUIREMENT = re.compile(r"(?P<name>[\w-]+)>=(?P<version>[\w.]+)")
PINNED = re.compile(r"^(?P<name>[\w-]+)==(?P<version>[\w.]+)", re.MULTILINE)


def main() -> int:
    """Run pytest with this program's arguments, and return its exit code."""
    with tempfile.TemporaryDirectory(prefix="duly-lowest-") as name:
        folder = Path(name)
        folder.chmod(0o755)  # PostgreSQL and tasks run as other users
        pins = resolve(folder)
        if missed := missed_bounds(pins.read_text()):
            sys.exit("\n  ".join(["These lower bounds cannot be installed together:", *missed]))
        python = install(folder, pins)
        # Programs of the environment find each other by PATH, as after `activate`.
        path = f"{python.parent}{os.pathsep}{os.environ['PATH']}"
        command = [python, "-m", "pytest", *sys.argv[1:]]
        return subprocess.run(command, cwd=ROOT, env=os.environ | {"PATH": path}).returncode  # noqa: S603


def resolve(folder: Path) -> Path:
    """Pin every direct dependency to its lower bound, and all others to compatible versions."""
    pins = folder / "lowest.txt"
    sources = ["--extra", "server", "--group", "build", "--group", "dev", "pyproject.toml"]
    _uv(
        "compile", "--resolution", "lowest-direct", "--no-annotate", "--output-file", pins, *sources
    )
    return pins


def missed_bounds(pins: str) -> list[str]:
    """Return the lower bounds of pyproject.toml that are not in `pins`, with what is."""
    pinned = {match["name"]: match["version"] for match in PINNED.finditer(pins)}
    return [
        f"{name}>={version} (only {pinned.get(name)})"
        for name, version in lower_bounds()
        if _release(pinned.get(name, "")) != _release(version)
    ]


def lower_bounds() -> list[tuple[str, str]]:
    """Return every direct dependency with its lower bound."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    groups = [
        project["project"]["dependencies"],
        *project["project"]["optional-dependencies"].values(),
        *project["dependency-groups"].values(),
    ]
    bounds = [(line, REQUIREMENT.match(line)) for group in groups for line in group]
    if unbounded := [line for line, bound in bounds if bound is None]:
        sys.exit(f"These have no lower bound: {', '.join(unbounded)}")
    return [(bound["name"], bound["version"]) for _, bound in bounds if bound is not None]


def _release(version: str) -> str:
    """Return a version without trailing zeros, which have no meaning."""
    return re.sub(r"(\.0)+$", "", version)


def install(folder: Path, pins: Path) -> Path:
    """Create the environment, and return its Python."""
    home = folder / "venv"
    python = home / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", home], check=True)  # noqa: S603
    # pip as well: a test installs the plain package with it.
    _uv("install", "--python", python, "--requirement", pins, "pip")
    _uv("install", "--python", python, "--no-deps", "--no-build-isolation", "--editable", ".")
    return python


def _uv(command: str, *args: str | Path) -> None:
    subprocess.run([UV, "pip", command, "--quiet", *args], cwd=ROOT, check=True)  # noqa: S603


if __name__ == "__main__":
    sys.exit(main())
