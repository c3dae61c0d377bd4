"""Words usage errors: which flag or argument, what is wrong with it, and what to write instead.

Click prints the usage of the command above an error. It is long, the same for every mistake, and
hides the one line that matters, so that only this line is printed. Where the usage helps, as for an
unknown flag, the line ends with how to see it.
"""

import difflib
import re
from collections.abc import Callable, Mapping
from typing import Any

import typer

from duly.cli.written_flags import as_written

KIND_NAMES = (("a whole number", ("int", "integer")), ("a number", ("float",)))
NOT_A_KIND = re.compile(r"(.+) is not a valid (\w+)(?: range)?\.")
OUT_OF_RANGE = re.compile(r"(.+) is not in the range .*")
NOT_A_CHOICE = re.compile(r"(.+) is not one of .*", re.DOTALL)
EXTRA_ARGUMENTS = re.compile(r"Got unexpected extra arguments?(?:\(s\))? \((.*)\)", re.DOTALL)


class PlainUsageError(typer.BadParameter):
    """A usage error that is printed as one line."""

    def show(self, file: Any = None) -> None:
        """Print the error to stderr."""
        from duly.cli.connect import print_notice

        print_notice(f"duly: {self.message}")


def describe_usage_error(error: Any) -> str:
    """Return the line for an error of click, or of a command that raised one of its own."""
    words = DESCRIPTIONS.get(type(error).__name__, _describe_other)
    return words(error)


def _describe_value(error: Any) -> str:
    """Describe an invalid value of a flag or an argument."""
    place = error.param_hint if isinstance(error.param_hint, str) else None
    if place is None and error.param is not None:
        place = _name_of(error.param)
    problem = _problem(error.message, error.param)
    return f"{as_written(place)}: {problem}" if place else problem


def _problem(message: str, param: Any) -> str:
    """Return click's message about a value in the words of ours."""
    if param is None:
        return message
    kind = param.type
    if found := NOT_A_CHOICE.match(message):
        choices = [str(getattr(choice, "value", choice)) for choice in kind.choices]
        return f"{found[1]} is unknown. Use {', '.join(choices[:-1])} or {choices[-1]}."
    if found := OUT_OF_RANGE.match(message):
        low, high = kind.min, kind.max
        if high is None:
            return f"{found[1]} is too small. Use at least {low}."
        return f"{found[1]} is not between {low} and {high}."
    if found := NOT_A_KIND.match(message):
        name = next((name for name, words in KIND_NAMES if found[2] in words), f"a {found[2]}")
        return f"{found[1]} is not {name}."
    return message


def _describe_missing(error: Any) -> str:
    return f"{_name_of(error.param)} is missing. {_see_help(error)}"


def _describe_unknown_option(error: Any) -> str:
    name, near = str(error.option_name), list(error.possibilities or ())
    if not near and error.ctx is not None:
        known = [option for param in error.ctx.command.params for option in param.opts]
        near = difflib.get_close_matches(name, known, n=1, cutoff=0.7)
    hint = f"Did you mean {near[0]}? " if near else ""
    return f"There is no option {name!r}. {hint}{_see_help(error)}"


def _describe_option_use(error: Any) -> str:
    takes_none = "does not take" in error.message
    problem = "takes no value" if takes_none else "needs a value"
    return f"{error.option_name} {problem}. {_see_help(error)}".strip()


def _describe_other(error: Any) -> str:
    message = str(error.message)
    if found := EXTRA_ARGUMENTS.fullmatch(message):
        noun = "arguments" if " " in found[1] else "argument"
        return f"Unexpected {noun}: {found[1]}. {_see_help(error)}"
    if message.startswith("No such command "):
        message = f"There is no command {message.removeprefix('No such command ')}"
    if message.startswith("Missing command"):
        message = "A command is missing."
    return f"{message} {_see_help(error)}".strip()


def _name_of(param: Any) -> str:
    """Return a flag as it was written, or the name of an argument in the usage."""
    if param.param_type_name == "option":
        return as_written(max(param.opts, key=len))
    return str(param.metavar or param.name.upper()).strip("[]")


def _see_help(error: Any) -> str:
    return "" if error.ctx is None else f"See '{error.ctx.command_path} --help'."


DESCRIPTIONS: Mapping[str, Callable[[Any], str]] = {
    "BadParameter": _describe_value,
    "MissingParameter": _describe_missing,
    "NoSuchOption": _describe_unknown_option,
    "BadOptionUsage": _describe_option_use,
}
"""By name, because the classes are not exported either."""
