"""A file of tasks for `duly submit -f`: one task, a list of them, or a graph.

Here it becomes what the API takes. What only a server can know (plans, cycles, limits) is
left to it; its refusals name a field, and `Manifest.explain` finds the line of that field.
"""

import difflib
import json
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path as File
from typing import Any, Literal

from duly.cli.bundle import missing_program
from duly.cli.request import is_local_file
from duly.cli.yaml_text import Path, read_yaml, wrong
from duly.client.shapes import TaskFields
from duly.errors import Invalid

LARGEST = 64 * 1024 * 1024
"""Bytes: more than this no server takes at once."""
SCRIPT = "#!/bin/sh -e\n"
"""How `run` begins, unless it says so itself: the first command that fails ends it."""
TEXTS = frozenset({"command", "env", "labels", "requires", "depends_on", "name", "ref"})
"""Fields of text, in which a number is what was written: 1.10 is not 1.1 there."""
GRAPH_FIELDS = ("name", "defaults", "tasks")
TASK_FIELDS = (*TaskFields.__annotations__, "run", "bundle")
WAYS = ("run", "command", "source", "script_path")
NAMES_HERE: Mapping[str | int, str] = {"source": "run", "artifact": "bundle"}
"""What fields of the API are called in a file."""
STEP = re.compile(r"([^.\[\]]+)|\[([0-9]+)\]")


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a file asks for."""

    kind: Literal["task", "tasks", "graph"]
    tasks: Sequence[TaskFields]
    name: str | None = None
    defaults: TaskFields | None = None
    refs: Sequence[str] | None = None
    """The names of the tasks, if the file has them as a mapping."""
    source: str = ""
    text: str = field(default="", repr=False)
    bundles: Sequence[File | None] = ()
    """What each task brings along; a task itself says only by which hash."""

    def explain(self, error: Invalid) -> Invalid:
        """Return a server's refusal with the words and the line of the file."""
        path = tuple(int(number) if number else name for name, number in STEP.findall(error.field))
        message = error.message
        if path[:1] == ("tasks",) and len(path) > 1 and isinstance(path[1], int):
            place, said = path[1], f"tasks[{path[1]}]"
            if self.kind == "tasks":
                path = path[1:]
            elif self.refs is not None and place < len(self.refs):
                path = ("tasks", self.refs[place], *path[2:])
            message = message.replace(said, say_path(path[: 1 if self.kind == "tasks" else 2]))
        if path and path[-1] in NAMES_HERE:
            path = (*path[:-1], NAMES_HERE[path[-1]])
        told = _located(self.text, path, message)
        return Invalid(
            error.field, f"{self.source}, {told}" if told else f"{self.source}: {message}"
        )


def read_manifest(name: str) -> Manifest:
    """Read the file `name`, or standard input for `-`; raises Invalid with the line."""
    source = "standard input" if name == "-" else name
    text = _read_text(name, source)
    try:
        base = File.cwd() if name == "-" else File(name).parent
        return _manifest(_parse(text, name), source, text, base)
    except Wrong as error:
        raise Invalid(say_path(error.path), f"{source}{error.told(text)}") from None
    except Invalid as error:
        joint = ", " if error.message.startswith("line ") else ": "
        raise Invalid(error.field, f"{source}{joint}{error.message}") from None


class Wrong(Exception):
    """Something at a place of the file is not as it should be."""

    def __init__(self, path: Path, message: str) -> None:
        super().__init__(message)
        self.path = path
        self.message = message

    def told(self, text: str) -> str:
        """Return it as it follows the name of the file, with its line if that can be found."""
        where = f"{say_path(self.path)}: {self.message}" if self.path else self.message
        located = _located(text, self.path, where)
        return f", {located}" if located else f": {where}"


def say_path(path: Path) -> str:
    """Return a path as it is written: tasks.encode.command[0]."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part[:60]}" for part in path)
    return text.removeprefix(".")


def _located(text: str, path: Path, message: str) -> str | None:
    """Return `message` with the line of `path`, or of the nearest thing around it."""
    lines: dict[Path, int] = {}
    try:
        read_yaml(text, _is_text, lines)
    except Invalid:  # JSON that is no YAML, as with tabs
        return None
    for end in range(len(path), 0, -1):
        if path[:end] in lines:
            return f"line {lines[path[:end]]}: {message}"
    return None


def _is_text(path: Path) -> bool:
    """Say whether a number at `path` is text, by the field of the task that it is in."""
    if path[:1] == ("tasks",):
        path = path[2:]
    elif path and (path[0] == "defaults" or isinstance(path[0], int)):
        path = path[1:]
    return bool(path) and path[0] in TEXTS


def _read_text(name: str, source: str) -> str:
    try:
        if name == "-":
            data = sys.stdin.buffer.read(LARGEST + 1)
        else:
            with File(name).open("rb") as opened:
                data = opened.read(LARGEST + 1)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise Invalid("", f"Cannot read {source}: {why}.") from error
    if len(data) > LARGEST:
        raise Invalid("", f"{source} is larger than {LARGEST // 2**20} MiB; submit it in parts.")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise Invalid("", f"{source}, line {line}: this is not a text in UTF-8.") from None


def _parse(text: str, name: str) -> Any:
    """Read JSON, which is quick, or else YAML, of which JSON is a part."""
    if text.lstrip()[:1] in ("{", "["):
        try:
            return json.loads(text, object_pairs_hook=_once)
        except RecursionError:
            raise wrong(None, "it is nested too deep.") from None
        except ValueError as error:
            if name.endswith(".json"):
                line = error.lineno if isinstance(error, json.JSONDecodeError) else None
                said = error.msg if isinstance(error, json.JSONDecodeError) else str(error)
                raise wrong(line, f"this is not JSON: {said}.") from None
    return read_yaml(text, _is_text)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name is there twice")  # the YAML reader says which, and where
    return found


def _manifest(value: Any, source: str, text: str, base: File) -> Manifest:
    if value is None:
        raise Wrong((), "it is empty; write a task, a list of tasks, or a graph.")
    if isinstance(value, list):
        tasks = [_task(one, (index,)) for index, one in enumerate(value)]
        if not tasks:
            raise Wrong((), "the list is empty; give at least one task.")
        bundles = [_bundle(task, (index,), base) for index, task in enumerate(tasks)]
        return Manifest("tasks", tasks, source=source, text=text, bundles=bundles)
    if not isinstance(value, dict):
        raise Wrong((), f"it is {_kind(value)}; write a task, a list of tasks, or a graph.")
    if "tasks" not in value:
        task = _task(value, ())
        bundles = [_bundle(task, (), base)]
        return Manifest("task", [task], source=source, text=text, bundles=bundles)
    return _graph(value, source, text, base)


def _graph(value: Mapping[str, Any], source: str, text: str, base: File) -> Manifest:
    _check_names(value, GRAPH_FIELDS, (), "a graph")
    tasks, name, defaults = value["tasks"], value.get("name"), value.get("defaults")
    if name is not None and not isinstance(name, str):
        raise Wrong(("name",), f"it must be text, not {_kind(name)}.")
    if not isinstance(tasks, (dict, list)) or not tasks:
        raise Wrong(("tasks",), "it must hold tasks: a mapping by their refs, or a list.")
    refs = list(tasks) if isinstance(tasks, dict) else None
    named = tasks.items() if isinstance(tasks, dict) else enumerate(tasks)
    common = None if defaults is None else _task(defaults, ("defaults",), needs_work=False)
    shared = None if common is None else _bundle(common, ("defaults",), base)
    read: list[TaskFields] = []
    bundles: list[File | None] = []
    for key, one in named:
        task = _task(one, ("tasks", key), is_bundled=shared is not None)
        bundles.append(_bundle(task, ("tasks", key), base, shared))
        if isinstance(key, str) and task.setdefault("ref", key) != key:
            raise Wrong(("tasks", key, "ref"), f"it is {key!r} already, by its place.")
        read.append(task)
    return Manifest("graph", read, name, common, refs, source, text, bundles)


def _task(
    value: Any, path: Path, *, needs_work: bool = True, is_bundled: bool = False
) -> TaskFields:
    """Return the fields of a task, with `run` made the script that it stands for."""
    if not isinstance(value, dict):
        raise Wrong(path, f"a task is a mapping of its fields, not {_kind(value)}.")
    # Without `tasks:`, a file is a task; whoever has misspelt that meant a graph.
    _check_names(value, TASK_FIELDS, path, "a task", () if path else ("tasks",))
    fields = {name: said for name, said in value.items() if said is not None}
    ways = [way for way in WAYS if way in fields]
    if len(ways) > 1:
        raise Wrong((*path, ways[1]), f"there is {ways[0]} already; give one of them.")
    if not ways and needs_work:
        raise Wrong(path, "there is nothing to run; give it a command, or run: with a script.")
    if "run" in fields:
        fields["source"] = _script(fields.pop("run"), (*path, "run"))
    if not (is_bundled or "bundle" in fields or "artifact" in fields):
        _refuse_local_file(_words(fields), (*path, "command"))
    return fields  # type: ignore[return-value] # the server looks at what is in them


def _words(fields: Mapping[str, Any]) -> Sequence[str]:
    """Return the command of a task, if it is one at all."""
    command = fields.get("command")
    is_one = isinstance(command, list) and all(isinstance(word, str) for word in command)
    return command or () if is_one else ()


def _bundle(task: TaskFields, path: Path, base: File, shared: File | None = None) -> File | None:
    """Take out what a task brings along, by its place beside the file; or what all bring along.

    What all bring along is for those that have a command.
    """
    said = task.pop("bundle", None)  # type: ignore[typeddict-item] # a field of files only
    here = (*path, "bundle")
    if said is None:
        bundle = shared if "command" in task and "artifact" not in task else None
    elif not isinstance(said, str) or not said or "\0" in said:
        raise Wrong(here, "it must be the path of a folder, or of a tar archive.")
    elif "artifact" in task:
        raise Wrong(here, "there is artifact already; give one of them.")
    elif path != ("defaults",) and "command" not in task:
        raise Wrong(here, "a bundle goes with a command, which is run in it.")
    elif not (bundle := base / said).exists():
        raise Wrong(here, f"there is no {str(bundle)!r}.")
    if bundle is not None and (problem := missing_program(bundle, _words(task))) is not None:
        raise Wrong((*path, "command"), problem)
    return bundle


def _script(text: Any, path: Path) -> str:
    if not isinstance(text, str) or not text.strip():
        raise Wrong(path, "it must be the text of a script, as after run: | on lines of its own.")
    return text if text.startswith("#!") else SCRIPT + text


def _refuse_local_file(command: Sequence[str], path: Path) -> None:
    if is_local_file(command, File.cwd()):
        raise Wrong(
            path,
            f"{command[0][:60]!r} is a file on this machine, and the node that runs the task may "
            "be another. Put its text under run: | instead, or its folder after bundle:.",
        )


def _check_names(
    value: Mapping[str, Any],
    known: Sequence[str],
    path: Path,
    what: str,
    meant: Sequence[str] = (),
) -> None:
    for name in value:
        if name not in known:
            near = difflib.get_close_matches(name[:60], [*known, *meant], n=1)
            hint = f"; did you mean {near[0]}?" if near else "."
            raise Wrong((*path, name), f"{what} has no field of that name{hint}")


def _kind(value: Any) -> str:
    kinds = {dict: "a mapping", list: "a list", str: "text", bool: "true or false"}
    return kinds.get(type(value), "nothing" if value is None else "a number")
