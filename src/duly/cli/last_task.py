"""The last task that this user submitted to each server, so that its id may be left out."""

import json
import os
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from duly.errors import NotFound

KEPT = 50
"""How many servers are remembered."""


def state_file(environment: Mapping[str, str] = os.environ) -> Path:
    """Return where the ids are kept."""
    base = environment.get("XDG_STATE_HOME")
    home = environment.get("HOME") or "~"
    return Path(base or f"{home}/.local/state").expanduser() / "duly" / "last"


def remember(url: str, task: str) -> None:
    """Keep `task` as the last one; a home that cannot be written to is no reason to fail."""
    file = state_file()
    known = _read(file)
    known.pop(url, None)
    kept = dict([*known.items(), (url, task)][-KEPT:])
    with suppress(OSError):
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # mkstemp makes it 600; renamed into place, it is never seen half written.
        handle, temporary = tempfile.mkstemp(dir=file.parent, prefix=".last-")
        with os.fdopen(handle, "w", encoding="utf-8") as out:
            json.dump(kept, out)
        Path(temporary).replace(file)


def recall(url: str) -> str:
    """Return the id of the last task submitted to `url`."""
    task = _read(state_file()).get(url)
    if task is None:
        raise NotFound(f"Which task? None has been submitted from here to {url} yet; give its ID.")
    return task


def _read(file: Path) -> dict[str, str]:
    try:
        known = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    if not isinstance(known, dict):
        return {}
    return {url: task for url, task in known.items() if isinstance(task, str)}
