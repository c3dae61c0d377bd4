"""Reads a manifest for `duly submit -f`: one task, a list of tasks, or a graph.

It becomes a request for the API. Plans, cycles and limits are checked by the server; its errors
name a field, and `Manifest.explain` finds the place of that field in the file.
"""

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path as File
from typing import Any, Literal

from duly.cli.manifests.document import Document, read_document
from duly.cli.manifests.positions import Path
from duly.cli.tasks.submission.bundle import missing_program
from duly.cli.tasks.submission.request import is_local_file
from duly.client.shapes.task_shapes import TaskFields
from duly.errors import Invalid, TooLarge

SCRIPT_HEADER = "#!/bin/sh -e\n"
"""The default first line of `run`; -e ends the script at the first failing command."""
TEXT_FIELDS = frozenset(
    {"command", "env", "labels", "requires", "depends_on", "name", "ref", "stdin"}
)
"""Fields whose numbers stay text as written: 1.10 does not become 1.1."""
GRAPH_FIELDS = ("name", "defaults", "tasks")
TASK_FIELDS = (*TaskFields.__annotations__, "run", "bundle")
PAYLOAD_FIELDS = ("run", "command", "source", "script_path", "call")
MANIFEST_NAMES: Mapping[str | int, str] = {"source": "run", "artifact": "bundle"}
"""The names in a manifest of the API's fields."""
PATH_STEP = re.compile(r"([^.\[\]]+)|\[([0-9]+)\]")
TASK_NAME = re.compile(r"\btasks\[([0-9]+)\]")
"""How a server's message names a task of the request."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """A parsed manifest."""

    kind: Literal["task", "tasks", "graph"]
    document: Document
    tasks: Sequence[TaskFields]
    name: str | None = None
    defaults: TaskFields | None = None
    refs: Sequence[str] | None = None
    """The refs of the tasks, if the file has a mapping of tasks."""
    bundles: Sequence[File | None] = ()
    """The bundle of each task; the task's own field is the hash, set after the upload."""

    def explain(self, error: Invalid | TooLarge) -> Invalid:
        """Return a server's error in terms of the manifest, with the place of the field."""
        name = self._field_of(error)
        path = self._path_of(name)
        problem = TASK_NAME.sub(
            lambda match: format_path(self._path_of_task(int(match[1]))), problem_of(error)
        )
        is_prefixed = problem_of(error) != error.message
        message = f"{format_path(path)}: {problem}" if is_prefixed and path else problem
        return self.document.error(path, message, name)

    def _field_of(self, error: Invalid | TooLarge) -> str:
        """Return the field of an error, also of an unknown artifact, which names no task."""
        name = str(error.details.get("field") or "")
        if name == "artifact" and self.kind != "task":
            hashes = [task.get("artifact") for task in self.tasks]
            if (unknown := error.details.get("artifact")) in hashes:
                return f"tasks[{hashes.index(unknown)}].artifact"
        return name

    def _path_of(self, name: str) -> Path:
        """Return the path in the file of a field of the request, or of the default for it."""
        field: Path = tuple(
            int(number) if number else step for step, number in PATH_STEP.findall(name)
        )
        owners: list[Path] = [()]
        if field[:1] == ("tasks",) and len(field) > 1 and isinstance(field[1], int):
            owners = [self._path_of_task(field[1]), ("defaults",)]
            field = field[2:]
        written = (*field[:-1], MANIFEST_NAMES.get(field[-1], field[-1])) if field else field
        candidates = [(owner, spelled) for owner in owners for spelled in (field, written)]
        owner, spelled = max(candidates, key=lambda candidate: self._count_known(*candidate))
        return (*owner, *spelled)

    def _count_known(self, owner: Path, field: Path) -> int:
        """Return how many steps of a field of `owner` the file has."""
        steps = range(1, len(field) + 1)
        return sum((*owner, *field[:end]) in self.document.positions for end in steps)

    def _path_of_task(self, index: int) -> Path:
        if self.kind == "tasks":
            return (index,)
        if self.refs is not None and index < len(self.refs):
            return ("tasks", self.refs[index])
        return ("tasks", index)


def read_manifest(name: str) -> Manifest:
    """Read the manifest `name`, or standard input for `-`; raises Invalid with the place."""
    document = read_document(name, _is_text)
    try:
        return _manifest(document, File.cwd() if name == "-" else File(name).parent)
    except ManifestError as error:
        path = format_path(error.path)
        message = f"{path}: {error.message}" if path else error.message
        raise document.error(error.path, message, path) from None


def problem_of(error: Invalid | TooLarge) -> str:
    """Return the message of an error without the name of its field."""
    return error.message.removeprefix(f"{error.details.get('field')}: ")


class ManifestError(Exception):
    """An error at a path of the manifest."""

    def __init__(self, path: Path, message: str) -> None:
        super().__init__(message)
        self.path = path
        self.message = message


def format_path(path: Path) -> str:
    """Format a path: tasks.encode.command[0]."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part[:60]}" for part in path)
    return text.removeprefix(".")


def _is_text(path: Path) -> bool:
    """Return True if a number at `path` stays text, by the task field that contains it."""
    if path[:1] == ("tasks",):
        path = path[2:]
    elif path and (path[0] == "defaults" or isinstance(path[0], int)):
        path = path[1:]
    return bool(path) and path[0] in TEXT_FIELDS


def _manifest(document: Document, base: File) -> Manifest:
    value = document.value
    if value is None:
        raise ManifestError((), "it is empty. Write a task, a list of tasks, or a graph.")
    if isinstance(value, list):
        tasks = [_task(item, (index,)) for index, item in enumerate(value)]
        if not tasks:
            raise ManifestError((), "the list is empty. Add at least one task.")
        bundles = [_bundle(task, (index,), base) for index, task in enumerate(tasks)]
        return Manifest("tasks", document, tasks, bundles=bundles)
    if not isinstance(value, dict):
        raise ManifestError(
            (), f"it is {_type_name(value)}. Write a task, a list of tasks, or a graph."
        )
    if "tasks" not in value:
        task = _task(value, ())
        bundles = [_bundle(task, (), base)]
        return Manifest("task", document, [task], bundles=bundles)
    return _graph(document, value, base)


def _graph(document: Document, value: Mapping[str, Any], base: File) -> Manifest:
    _check_names(value, GRAPH_FIELDS, (), "a graph")
    tasks, name, defaults = value["tasks"], value.get("name"), value.get("defaults")
    if name is not None and not isinstance(name, str):
        raise ManifestError(("name",), f"it must be text, not {_type_name(name)}.")
    if not isinstance(tasks, (dict, list)) or not tasks:
        raise ManifestError(
            ("tasks",), "it must contain tasks: a mapping from ref to task, or a list."
        )
    refs = list(tasks) if isinstance(tasks, dict) else None
    named = tasks.items() if isinstance(tasks, dict) else enumerate(tasks)
    common = None if defaults is None else _task(defaults, ("defaults",), needs_work=False)
    shared = None if common is None else _bundle(common, ("defaults",), base)
    read: list[TaskFields] = []
    bundles: list[File | None] = []
    for key, item in named:
        task = _task(item, ("tasks", key), is_bundled=shared is not None)
        bundles.append(_bundle(task, ("tasks", key), base, shared))
        if isinstance(key, str) and task.setdefault("ref", key) != key:
            raise ManifestError(
                ("tasks", key, "ref"),
                f"it must be {key!r}, the task's name in the mapping, or be left out.",
            )
        read.append(task)
    return Manifest("graph", document, read, name, common, refs, bundles)


def _task(
    value: Any, path: Path, *, needs_work: bool = True, is_bundled: bool = False
) -> TaskFields:
    """Return the fields of a task, with `run` converted to a script."""
    if not isinstance(value, dict):
        raise ManifestError(
            path, f"a task must be a mapping of its fields, not {_type_name(value)}."
        )
    # Without `tasks:` a file is a single task; a misspelt `tasks:` must be suggested, too.
    _check_names(value, TASK_FIELDS, path, "a task", () if path else ("tasks",))
    fields = {name: field_value for name, field_value in value.items() if field_value is not None}
    payloads = [payload_field for payload_field in PAYLOAD_FIELDS if payload_field in fields]
    if len(payloads) > 1:
        raise ManifestError(
            (*path, payloads[1]), f"{payloads[0]} is given, too. Give only one of them."
        )
    if not payloads and needs_work:
        raise ManifestError(path, "there is nothing to run. Add a command, or a script under run:.")
    if "run" in fields:
        fields["source"] = _script(fields.pop("run"), (*path, "run"))
    if not (is_bundled or "bundle" in fields or "artifact" in fields):
        _refuse_local_file(_command_words(fields), (*path, "command"))
    return fields  # type: ignore[return-value] # the server validates the values


def _command_words(fields: Mapping[str, Any]) -> Sequence[str]:
    """Return the command of a task; empty if it has none or an invalid one."""
    command = fields.get("command")
    is_one = isinstance(command, list) and all(isinstance(word, str) for word in command)
    return command or () if is_one else ()


def _bundle(task: TaskFields, path: Path, base: File, shared: File | None = None) -> File | None:
    """Remove and return the bundle of a task, relative to the manifest; by default `shared`.

    The shared bundle applies only to tasks with a command.
    """
    folder = task.pop("bundle", None)  # type: ignore[typeddict-item] # a field of files only
    here = (*path, "bundle")
    if folder is None:
        bundle = shared if "command" in task and "artifact" not in task else None
    elif not isinstance(folder, str) or not folder or "\0" in folder:
        raise ManifestError(here, "it must be the path of a folder or a tar archive.")
    elif "artifact" in task:
        raise ManifestError(here, "artifact is given, too. Give only one of them.")
    elif path != ("defaults",) and "command" not in task:
        raise ManifestError(here, "it needs a command to run in it. Add command:.")
    elif not (bundle := base / folder).exists():
        raise ManifestError(here, f"{str(bundle)!r} does not exist.")
    if (
        bundle is not None
        and (problem := missing_program(bundle, _command_words(task))) is not None
    ):
        raise ManifestError((*path, "command"), problem)
    return bundle


def _script(text: Any, path: Path) -> str:
    if not isinstance(text, str) or not text.strip():
        raise ManifestError(path, "it must be the text of a script, on the lines after run: |.")
    return text if text.startswith("#!") else SCRIPT_HEADER + text


def _refuse_local_file(command: Sequence[str], path: Path) -> None:
    if is_local_file(command, File.cwd()):
        raise ManifestError(
            path,
            f"{command[0][:60]!r} is a file on this machine, and the task may run on another. "
            "Put its text under run: | instead, or its folder under bundle:.",
        )


def _check_names(
    value: Mapping[str, Any],
    names: Sequence[str],
    path: Path,
    what: str,
    meant: Sequence[str] = (),
) -> None:
    for name in value:
        if name not in names:
            matches = difflib.get_close_matches(name[:60], [*names, *meant], n=1)
            hint = f" Did you mean {matches[0]!r}?" if matches else ""
            raise ManifestError((*path, name), f"{what} has no such field.{hint}")


def _type_name(value: Any) -> str:
    kinds = {dict: "a mapping", list: "a list", str: "text", bool: "true or false"}
    return kinds.get(type(value), "nothing" if value is None else "a number")
