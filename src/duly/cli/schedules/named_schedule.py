"""`duly schedule create NAME`: a name before the options.

Everything after the options is the command of the task, so a first argument that is no option could
only be a command without a recurrence, which is an error anyway. It is taken as the name.
"""

from typing import Any

from typer import BadParameter

from duly.cli.main import TakesCommand


class TakesNameAndCommand(TakesCommand):
    """A command with an optional name first, then options, then the command of a task."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments; a first one that is no option sets the option --name."""
        name = args.pop(0) if args and not args[0].startswith("-") else None
        rest = super().parse_args(ctx, args)
        if name is not None:
            if ctx.params.get("name") is not None:
                raise BadParameter(
                    "the name is given twice. Give it once.", ctx=ctx, param_hint="--name"
                )
            ctx.params["name"] = name
        return rest

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return the parts of the usage line after the name of the command."""
        return ["[NAME]", *super().collect_usage_pieces(ctx)]
