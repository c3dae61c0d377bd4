"""Remembers the tasks that this user submitted last, for each server and key.

The latest is the default task id, and all of them complete task ids. Keys are kept apart because
each may be of another tenant; only a digest of the key is stored.
"""

import hashlib
import json
import os
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from duly.client.endpoint import Endpoint
from duly.errors import NotFound

MAX_ENDPOINTS = 50
"""The least recently used servers and keys beyond this number are forgotten."""
MAX_TASKS = 20
"""Tasks remembered for each server and key."""
DIGEST_LENGTH = 16


def state_file(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the path of the file with the ids."""
    base = environment.get("XDG_STATE_HOME")
    home = environment.get("HOME") or "~"
    return Path(base or f"{home}/.local/state").expanduser() / "duly" / "last"


def remember(endpoint: Endpoint, task: str) -> None:
    """Store `task` as the last one submitted to `endpoint`; an unwritable home is ignored."""
    file, name = state_file(), _name(endpoint)
    tasks_by_endpoint = _read(file)
    earlier = [old for old in tasks_by_endpoint.pop(name, []) if old != task]
    latest = [task, *earlier][:MAX_TASKS]
    kept = dict([*tasks_by_endpoint.items(), (name, latest)][-MAX_ENDPOINTS:])
    with suppress(OSError):
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # mkstemp creates it with mode 600; the rename makes the update atomic.
        handle, temporary = tempfile.mkstemp(dir=file.parent, prefix=".last-")
        with os.fdopen(handle, "w", encoding="utf-8") as out:
            json.dump(kept, out)
        Path(temporary).replace(file)


def recall(endpoint: Endpoint) -> str:
    """Return the id of the last task submitted to `endpoint` with its key."""
    tasks = recent(endpoint)
    if not tasks:
        raise NotFound(
            f"No task was submitted from here to {endpoint.name} with this key. Give a task ID "
            "from 'duly list'."
        )
    return tasks[0]


def recent(endpoint: Endpoint) -> list[str]:
    """Return the ids of the last tasks submitted to `endpoint` with its key, latest first."""
    return _read(state_file()).get(_name(endpoint), [])


def _name(endpoint: Endpoint) -> str:
    digest = hashlib.sha256((endpoint.key or "").encode()).hexdigest()[:DIGEST_LENGTH]
    return f"{endpoint.name} {digest}"


def _read(file: Path) -> dict[str, list[str]]:
    try:
        tasks_by_endpoint = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    if not isinstance(tasks_by_endpoint, dict):
        return {}
    return {
        name: tasks
        for name, tasks in tasks_by_endpoint.items()
        if isinstance(tasks, list) and all(isinstance(task, str) for task in tasks)
    }
