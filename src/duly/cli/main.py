"""The command `duly`.

Starting must be quick, so a command's module is imported only when that command is
used; the one-line summaries stand here for the same reason.
"""

import os
import sys
from dataclasses import dataclass
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

import duly
from duly.errors import DulyError

USAGE = 2
"""The exit code of a command that cannot do what it was asked to, as click has it."""


@dataclass(frozen=True, slots=True)
class Entry:
    """Where a command is, and what `duly --help` says of it."""

    home: str
    summary: str
    extra: str = ""
    """What must be installed beside the plain package, as in `pip install 'duly[server]'`."""


SECTIONS: dict[str, dict[str, Entry]] = {
    "Submitting": {
        "run": Entry("run:run", "Run a task: submit it, show its output, exit as it did."),
        "submit": Entry("submit:submit", "Submit a task, or a file of them, and print the id."),
        "schedule": Entry(
            "schedules:schedule", "The schedules: what is submitted again and again, and when."
        ),
    },
    "Looking": {
        "list": Entry("tasks:list_tasks", "List tasks, newest first."),
        "show": Entry("tasks:show", "Show everything about a task."),
        "wait": Entry("tasks:wait", "Wait until a task has ended, and exit as it did."),
        "logs": Entry("tasks:logs", "Print what a task has written, byte by byte as it was."),
        "attempts": Entry("tasks:attempts", "List the attempts at a task, and how each ended."),
        "why": Entry("tasks:why", "Say why a task is where it is."),
        "result": Entry("tasks:result", "Print the result that a task left, as JSON."),
        "graph": Entry(
            "graph:graph", "Draw a graph, or what a task waits for and what waits for it."
        ),
        "usage": Entry("usage:usage", "Tell what was used on which days, and what it costs."),
        "status": Entry("status:status", "Show the whole at a glance: tasks, nodes, what is free."),
        "audit": Entry("audit:audit", "Show who did what to tenants, users, keys, plans, nodes."),
        "limits": Entry("limits:limits", "Show what your tenant may have, and what is left of it."),
    },
    "Changing": {
        "cancel": Entry(
            "change:cancel",
            "Cancel tasks: those that wait never start, those that run are stopped.",
        ),
        "pause": Entry(
            "pause:pause",
            "Pause tasks or a graph: nothing of it starts until it is resumed; what runs goes on.",
        ),
        "resume": Entry("pause:resume", "Let tasks or a graph go on that are paused."),
        "update": Entry("change:update", "Change a task that has not started yet."),
        "replay": Entry("change:replay", "Submit a task that has ended once more, as a new task."),
        "dead": Entry(
            "dead:dead",
            "The dead letters: tasks that failed for good, set aside for a person to look at.",
        ),
        "resources": Entry(
            "resources:resources", "Who has what of the nodes: tasks that run, and reservations."
        ),
        "artifact": Entry(
            "artifacts:artifact",
            "The artifacts: bundles of files that were sent for tasks to be run in.",
        ),
        "tenant": Entry("tenants:tenant", "The tenants: who submits, and with which plan."),
        "user": Entry("users:user", "The users of a tenant."),
        "key": Entry("keys:key", "The keys of a tenant: who may do what, and for how long."),
        "tier": Entry("tiers:tier", "The tiers: names for amounts of resources."),
        "plan": Entry("plans:plan", "The plans: what tenants may have."),
        "node": Entry("node:node", "The nodes: the machines that run tasks."),
        "server": Entry(
            "server:server", "The servers: those that take requests, and the one that leads."
        ),
    },
    "Operating": {
        "up": Entry(
            "processes:up",
            "Start everything on this machine: PostgreSQL, a server, a node and the pages.",
            extra="server",
        ),
        "serve": Entry(
            "processes:serve",
            "Start a server; any number of them may share one database.",
            extra="server",
        ),
        "agent": Entry(
            "agent:agent",
            "Start a node's agent: it asks the servers for tasks and runs them here.",
            extra="server",
        ),
        "dashboard": Entry(
            "dashboard:dashboard",
            "Serve the pages, on which people log in with a password.",
            extra="server",
        ),
        "link": Entry("dashboard:link", "Print a new one-time link to the pages of `duly up`."),
        "db": Entry("processes:db", "Set up and look at the database.", extra="server"),
        "doctor": Entry(
            "processes:doctor",
            "Say what this machine lacks, with the fix; exit 1 if Duly cannot run without it.",
            extra="server",
        ),
        "bench": Entry(
            "bench:bench",
            "Measure the installation from here: submits, runs of /bin/true, how soon one starts.",
        ),
    },
}
COMMANDS = {name: entry for section in SECTIONS.values() for name, entry in section.items()}
EXAMPLES = {
    "run": """\b
Examples:
  duly run -- echo hello
  duly run --script ./report.sh --env MONTH=2027-01 --cap 10m
  duly run --bundle ./job -- ./run.sh 720p
  duly run --memory 2GiB -- sh -c 'sort -u /srv/names | wc -l'""",
    "submit": """\b
Examples:
  duly submit --name nap -- sleep 60
  duly submit --in 10m --max-attempts 5 --script ./report.sh
  duly submit --bundle ./job -- ./run.sh 720p
  duly submit --idempotency-key order-17 --wait -- /usr/bin/true
  duly submit -f photo.yaml""",
}
"""Of the commands that take a command; \b keeps the lines as they are."""


class Commands(TyperGroup):
    """A group that imports a command when it is asked for."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names, in the order of the help."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command, imported now; None if there is none of that name."""
        entry = COMMANDS.get(cmd_name)
        return None if entry is None else load(cmd_name, entry)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command; for one that does not exist, those near it are suggested."""
        self.commands = dict.fromkeys(COMMANDS)  # type: ignore[assignment] # only names are read
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the commands by what they are for."""
        for title, section in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(name, entry.summary) for name, entry in section.items()])

    def invoke(self, ctx: Any) -> Any:
        """Run the command; an error becomes a sentence and an exit code."""
        try:
            try:
                return super().invoke(ctx)
            finally:
                sys.stdout.flush()
        except DulyError as error:
            from duly.cli.connect import say_error
            from duly.cli.exits import code_of_error

            say_error(error)
            raise typer.Exit(code_of_error(error)) from error
        except ModuleNotFoundError as error:
            extra = COMMANDS[ctx.invoked_subcommand].extra
            if not extra or (error.name or "duly").partition(".")[0] == "duly":
                raise
            from duly.cli.connect import say

            say(
                f"duly {ctx.invoked_subcommand}: this needs the {extra} part of Duly, which is not "
                f"installed. Install it with: pip install 'duly[{extra}]'"
            )
            raise typer.Exit(USAGE) from error
        except BrokenPipeError:
            from duly.cli.output import discard_output

            # Whoever read our output has left, as in `duly list | head`.
            discard_output()
            raise typer.Exit(0) from None


class TakesCommand(TyperCommand):
    """A command whose arguments, from the first one on, belong to the task."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return what the usage line says after the name."""
        return ["[OPTIONS]", "[--] COMMAND [ARG]..."]


def load(name: str, entry: Entry) -> Any:
    """Import a command and make it ready: a function, or a group of them."""
    module, _, attribute = entry.home.partition(":")
    found = getattr(import_module(f"duly.cli.{module}"), attribute)
    if not isinstance(found, typer.Typer):
        alone = typer.Typer(add_completion=False, rich_markup_mode=None)
        if name in EXAMPLES:
            settings = {"allow_interspersed_args": False}
            alone.command(name, cls=TakesCommand, context_settings=settings, epilog=EXAMPLES[name])(
                found
            )
        else:
            alone.command(name)(found)
        found = alone
    return typer.main.get_command(found)


app = typer.Typer(
    cls=Commands,
    name="duly",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["--help", "-h"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"duly {duly.__version__}")
        raise typer.Exit


@app.callback(help="Run any task on a fleet of machines: in due time, as promised.")
def root(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print it."),
    ] = False,
) -> None:
    """Stand for the options that come before any command."""


def main() -> None:
    """Run the command line."""
    for name in ("stdout", "stderr"):
        # Started with one of them closed, there is nobody to tell, and yet work to be done.
        stream = getattr(sys, name) or open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115
        # Whatever the locale: a name that it cannot write must not end a command half-way.
        stream.reconfigure(errors="replace")
        setattr(sys, name, stream)
    app(prog_name="duly")
