"""The version of Duly before this one, from the history of this repository."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

COMMIT = "ba1e11981a714c9b086d0cd3010761e18e99b96c"
"""The previous version; the next release names its predecessor here."""
REPOSITORY = Path(__file__).parents[2]
PROGRAM = "import sys; from duly.cli.main import main; sys.argv[0] = 'duly'; main()"
TOKEN = """
import asyncio, pathlib, sys
from duly.launch.database import create_join_token
print(asyncio.run(create_join_token(pathlib.Path(sys.argv[1]).read_text())))
"""


def unpack(folder: Path) -> Path:
    """Return where the code of the previous version is; skips when history does not have it."""
    found = subprocess.run(
        ["git", "-C", REPOSITORY, "archive", COMMIT, "src"],
        capture_output=True,
        check=False,
    )
    if found.returncode:
        pytest.skip("the history of the repository is not here, and the version before with it")
    folder.mkdir()
    folder.chmod(0o755)
    subprocess.run(["tar", "-x", "-C", folder], input=found.stdout, check=True)
    source = folder / "src"
    assert run(source, "import duly; print(duly.__file__)").startswith(str(source))
    return source


def prepare(source: Path, folder: Path, dsn: str) -> tuple[str, str]:
    """Let the previous version set a database up; return an administrator's key and a token."""
    (folder / "dsn").touch(mode=0o600)
    (folder / "dsn").write_text(dsn)
    key = folder / "admin.key"
    run(source, PROGRAM, "db", "init", "--database-file", folder / "dsn", "--admin-key-file", key)
    return key.read_text().strip(), run(source, TOKEN, folder / "dsn")


def run(source: Path, program: str, *arguments: str | Path) -> str:
    """Run a program with the code in `source`; return what it wrote."""
    done = subprocess.run(
        [sys.executable, "-P", "-c", program, *arguments],
        env={**os.environ, "PYTHONPATH": str(source)},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return done.stdout.strip()
