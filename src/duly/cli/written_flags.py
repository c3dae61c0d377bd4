"""Names the place of a mistake as the user wrote it.

A flag may have several names, and the API's fields have names of their own: the mistake in
`--cap 5x` is one of --cap, although the flag is --execution-cap and the field is execution_cap.
"""

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

FLAG_BY_FIELD: Mapping[str, str] = {
    "artifact": "bundle",
    "bandwidth_mbps": "bandwidth",
    "disk_mb": "disk",
    "end_at": "end",
    "expires_at": "expires",
    "expires_in": "expires",
    "labels": "label",
    "memory_mb": "memory",
    "next_run_at": "next-run",
    "no_retry_exit_codes": "no-retry-exit",
    "requires": "require",
    "source": "script",
    "start_at": "start",
}
"""The flags of fields that are not called like the field."""
SAME_FIELD: Mapping[str, str] = {"--run-at": "--in", "--password": "--password-stdin"}
"""Flags that set the same field in another way."""
INDEX = re.compile(r"\[\d+\]")
FIELD_IN_TEXT = re.compile(r"(?<![\w'./-])[a-z]+(?:[_.][a-z]+)+(?![\w'/-])")


def as_written(flag: str, arguments: Sequence[str] | None = None) -> str:
    """Return the name of `flag` on the command line; `flag` itself if it is not there."""
    return CommandLine(arguments).name_of(flag) or flag


def flag_of_field(field: str, arguments: Sequence[str] | None = None) -> str | None:
    """Return the flag or argument of the command that sets a field of the API, if one does."""
    line = CommandLine(arguments)
    found = (line.name_of(flag) for flag in _flags_of(field))
    return next((name for name in found if name), None)


def name_flags(text: str, arguments: Sequence[str] | None = None) -> str:
    """Return a message in which fields are called like the flags that set them."""
    line = CommandLine(arguments)

    def rename(match: re.Match[str]) -> str:
        found = (line.name_of(flag) for flag in _flags_of(match[0], parents=False))
        return next((name for name in found if name), match[0])

    return FIELD_IN_TEXT.sub(rename, text)


class CommandLine:
    """The arguments of this process, and the parameters of the command that they name."""

    def __init__(self, arguments: Sequence[str] | None) -> None:
        given = list(sys.argv[1:] if arguments is None else arguments)
        # After `--` comes the task's own command.
        self._own = given[: given.index("--")] if "--" in given else given
        self._flags = {argument.partition("=")[0] for argument in self._own}

    def name_of(self, flag: str) -> str | None:
        """Return the name under which a flag was given, or could be; None if there is none."""
        for param in self._parameters():
            names = [*param.opts, *param.secondary_opts]
            if param.param_type_name == "argument":
                if flag == f"--{param.name.replace('_', '-')}":
                    return str(param.metavar or param.name.upper()).strip("[]")
            elif flag in names:
                other = SAME_FIELD.get(flag)
                written = (name for name in (flag, *names, other) if name in self._flags)
                return next(written, flag)
        return None

    def _parameters(self) -> Sequence[Any]:
        from duly.cli.main import COMMANDS, load_command

        words = [word for word in self._own if not word.startswith("-")]
        if not words or words[0] not in COMMANDS:
            return ()
        command = load_command(words[0], COMMANDS[words[0]])
        for word in words[1:]:
            inner = getattr(command, "commands", {}).get(word)
            if inner is None:
                break
            command = inner
        return tuple(command.params)


def _flags_of(field: str, *, parents: bool = True) -> Iterator[str]:
    """Yield the flags that may set a field: of `retry.delay`, --retry-delay before --delay."""
    parts = INDEX.sub("", field).removeprefix("task.").split(".")
    for end in range(len(parts), 0 if parents else len(parts) - 1, -1):
        for start in range(end):
            name = "_".join(parts[start:end])
            yield f"--{FLAG_BY_FIELD.get(name, name).replace('_', '-')}"
