"""The lines that `duly up` prints when it is ready."""

import shlex
import shutil
import sys
from pathlib import Path


def isolation_line(isolation: str, *, is_root: bool) -> str:
    """Return the line about the isolation of tasks and the user that they run as."""
    as_whom = (
        "each as an unprivileged user of its own" if is_root else "as the user who started this"
    )
    return f"isolation: {isolation} (tasks run {as_whom})"


def pages_line(link: str, *, address: str, file: Path, is_terminal: bool) -> str:
    """Return the line with the dashboard's link; the link itself only on a terminal."""
    if is_terminal:
        return f"pages: {link} (works once, for 5 minutes; '{_program()} link' prints another)"
    return (
        f"pages: {address} (open the link in {shlex.quote(str(file))}, which works once, for 5 "
        f"minutes; '{_program()} link' prints another)"
    )


def commands(*, url: str, key_file: Path, is_configured: bool) -> list[str]:
    """Return commands to paste; without a config file they begin with the environment."""
    duly = _program()
    lines = [
        f"{duly} run -- echo hello",
        f"{duly} submit --name nap -- sleep 5",
        f"{duly} status",
    ]
    if is_configured:
        return lines
    key = f'"$(cat {shlex.quote(str(key_file))})"'
    return [f"export DULY_URL={shlex.quote(url)} DULY_KEY={key}", *lines]


def _program() -> str:
    """Return the command that starts this program from the user's shell."""
    executable = Path(sys.argv[0])
    on_path = shutil.which("duly")
    if on_path is None or not executable.exists() or not Path(on_path).samefile(executable):
        return shlex.quote(str(executable.absolute())) if executable.name == "duly" else "duly"
    return "duly"
