"""`duly help [COMMAND]`: the same as `duly COMMAND --help`."""

from typing import Annotated, Any

import typer

from duly.cli.main import COMMANDS


def _complete_command(incomplete: str) -> list[str]:
    return [name for name in COMMANDS if name.startswith(incomplete)]


def show_help(
    ctx: typer.Context,
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="COMMAND",
            help="The command, such as submit or schedule create. [default: list all commands]",
            autocompletion=_complete_command,
        ),
    ] = None,
) -> None:
    """Show the help of a command."""
    context: Any = ctx.find_root()
    for word in words or ():
        if not hasattr(context.command, "resolve_command"):
            raise typer.BadParameter(
                f"'{context.command_path}' has no command {word!r}.", param_hint="COMMAND"
            )
        # It raises a usage error with similar names for an unknown command.
        name, command, _ = context.command.resolve_command(context, [word])
        context = command.make_context(name, [], parent=context, resilient_parsing=True)
        context.resilient_parsing = False  # Otherwise an unknown command of a group is None.
    print(context.get_help())
