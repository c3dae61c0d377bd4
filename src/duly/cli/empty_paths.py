"""Refuses an empty path, as of an unset variable: it would mean the current folder."""

from typing import Any

import typer

EMPTY = "it is empty. Give a value, or leave it out."


def refuse_empty_paths(command: Any) -> None:
    """Let the parameters of a command, and of the commands in a group, refuse an empty path."""
    for param in command.params:
        if type(param.type).__name__.endswith("Path"):
            param.type.convert = _refusing_empty(param.type.convert)
    for inner in getattr(command, "commands", {}).values():
        refuse_empty_paths(inner)


def refuse_empty(value: str | None) -> str | None:
    """Refuse an empty text as the value of a flag."""
    if value == "":
        raise typer.BadParameter(EMPTY)
    return value


def _refusing_empty(convert: Any) -> Any:
    def checked(value: Any, param: Any, ctx: Any) -> Any:
        if value == "":
            raise typer.BadParameter(EMPTY, ctx=ctx, param=param)
        return convert(value, param, ctx)

    return checked
