"""The command `duly`: the list of commands, imported lazily.

Start-up must be quick, so a command's module is imported only when it is used; the one-line
summaries are here for the same reason.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

import duly
from duly.cli.entry import INTERRUPTED
from duly.errors import DulyError

NOT_CONFIRMED = REFUSED = 1
"""The exit code of a command whose question was not answered with yes, and of most errors."""
USAGE_ERROR = 2
"""The exit code of a usage error, as in click."""
UsageError: type[Any] = typer.BadParameter.__mro__[1]
"""Click's class, which Typer does not export: some versions depend on click, others contain it."""


@dataclass(frozen=True, slots=True)
class CommandEntry:
    """Where a command is defined, and its summary in `duly --help`."""

    home: str
    summary: str
    extra: str = ""
    """The optional dependencies that it needs, as in `pip install '.[server]'`."""


SECTIONS: dict[str, dict[str, CommandEntry]] = {
    "Submitting": {
        "run": CommandEntry(
            "tasks.submission.run:run",
            "Run a task: submit it, stream its output, exit with its exit code.",
        ),
        "submit": CommandEntry(
            "tasks.submission.submit:submit",
            "Submit a task, or a manifest of tasks, and print its ID.",
        ),
        "schedule": CommandEntry(
            "schedules.schedules:schedule",
            "Manage schedules: tasks and graphs that are submitted repeatedly.",
        ),
    },
    "Looking": {
        "list": CommandEntry("tasks.tasks:list_tasks", "List tasks, newest first."),
        "show": CommandEntry("tasks.tasks:show", "Show everything about a task."),
        "wait": CommandEntry(
            "tasks.wait:wait",
            "Wait until tasks or graphs have ended, and exit with the exit code of the task.",
        ),
        "logs": CommandEntry("tasks.tasks:logs", "Print the output of a task, unmodified."),
        "attempts": CommandEntry(
            "tasks.attempts:attempts",
            "List the attempts of a task and their outcomes, or those of all tasks.",
        ),
        "why": CommandEntry("tasks.tasks:why", "Explain why tasks have their current status."),
        "result": CommandEntry("tasks.tasks:result", "Print the result of a task as JSON."),
        "graph": CommandEntry(
            "graphs.graph:graph", "Draw a graph, or the upstream and downstream tasks of a task."
        ),
        "usage": CommandEntry(
            "accounts.usage:usage",
            "Show usage and its price, by day, tenant, user, tier or urgency.",
        ),
        "status": CommandEntry(
            "fleet.status:status", "Show an overview: tasks, nodes, capacity and free resources."
        ),
        "audit": CommandEntry(
            "accounts.audit:audit",
            "Show the audit log: who changed tenants, users, keys, plans and nodes.",
        ),
        "limits": CommandEntry(
            "accounts.limits:limits", "Show the limits of your tenant and how much of them is left."
        ),
        "help": CommandEntry("help:show_help", "Show the help of a command."),
    },
    "Changing": {
        "cancel": CommandEntry(
            "tasks.change:cancel",
            "Cancel tasks. Waiting tasks never start; running tasks are stopped.",
        ),
        "mark": CommandEntry(
            "tasks.mark:mark",
            "Mark a task as done or failed. If it runs, it is stopped; downstream tasks go on.",
        ),
        "pause": CommandEntry(
            "tasks.pause:pause",
            "Pause tasks or a graph. Running attempts finish; nothing else starts until resumed.",
        ),
        "resume": CommandEntry("tasks.pause:resume", "Resume paused tasks or a paused graph."),
        "update": CommandEntry("tasks.change:update", "Update a task that has not started yet."),
        "replay": CommandEntry("tasks.change:replay", "Submit an ended task again, as a new task."),
        "dead": CommandEntry(
            "tasks.dead_letters:dead",
            "Manage dead letters: failed tasks with no attempts left.",
        ),
        "resources": CommandEntry(
            "fleet.resources:resources",
            "Inspect allocations of running tasks, and manage reservations.",
        ),
        "artifact": CommandEntry(
            "tasks.artifacts:artifact",
            "Manage artifacts: uploaded bundles of files.",
        ),
        "tenant": CommandEntry("accounts.tenants:tenant", "Manage tenants and their plans."),
        "user": CommandEntry("accounts.users:user", "Manage the users of a tenant."),
        "key": CommandEntry("accounts.keys:key", "Manage the API keys of a tenant."),
        "tier": CommandEntry("accounts.tiers:tier", "Manage tiers: named amounts of resources."),
        "downstream": CommandEntry(
            "accounts.downstreams:downstream", "Manage the limits of what your tasks call."
        ),
        "plan": CommandEntry(
            "accounts.plans:plan", "Manage plans: the limits and prices of tenants."
        ),
        "queue": CommandEntry(
            "fleet.queue:queue", "Manage queues: in which order, when and how many tasks start."
        ),
        "node": CommandEntry("fleet.node:node", "Inspect and manage nodes."),
        "server": CommandEntry("fleet.server:server", "Show the servers, and which of them leads."),
    },
    "Operating": {
        "up": CommandEntry(
            "fleet.processes:up",
            "Start everything on this machine: PostgreSQL, a server, a node and the dashboard.",
            extra="server",
        ),
        "serve": CommandEntry(
            "fleet.processes:serve",
            "Start a server; any number of them may share one database.",
            extra="server",
        ),
        "agent": CommandEntry(
            "fleet.agent:agent",
            "Start an agent: it makes this machine a node and runs tasks here.",
            extra="server",
        ),
        "worker": CommandEntry(
            "fleet.worker:worker",
            "Start a worker: it runs the functions of a Python app, in warm processes.",
            extra="server",
        ),
        "dashboard": CommandEntry(
            "fleet.dashboard:dashboard",
            "Serve the dashboard; users log in with a password.",
            extra="server",
        ),
        "link": CommandEntry(
            "fleet.dashboard:link", "Print a new one-time login link to the dashboard of 'duly up'."
        ),
        "db": CommandEntry(
            "fleet.database:db",
            "Set up, migrate, back up and inspect the database.",
            extra="server",
        ),
        "doctor": CommandEntry(
            "fleet.processes:doctor",
            "Check this machine and print fixes; exit 1 if Duly cannot run.",
            extra="server",
        ),
        "bench": CommandEntry(
            "fleet.bench:bench",
            "Benchmark the installation: submit rate, run rate and start latency.",
        ),
        "simulate": CommandEntry(
            "fleet.simulate:simulate",
            "Simulate a workload on a fleet: waits, utilisation, fairness. "
            "Only --history needs a server.",
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
"""For the commands that take a COMMAND; \b keeps the line breaks."""
FIRST_STEPS = """\b
First steps:
  duly up                  Start Duly on this machine, and leave it running.
  duly run -- echo hello   Run a task, in another terminal.
  duly help submit         Show the help of a command."""


@contextmanager
def _plain_usage_errors() -> Iterator[None]:
    """Turn click's usage errors into one line each; the help of a bare group stays as it is."""
    try:
        yield
    except UsageError as error:
        if type(error).__name__ == "NoArgsIsHelpError":
            raise
        from duly.cli.usage_errors import PlainUsageError, describe_usage_error

        raise PlainUsageError(describe_usage_error(error)) from None


class LazyCommands(TyperGroup):
    """A command group that imports a command when it is used."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the command names in the order of the help."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Import and return a command; None if there is none of that name."""
        entry = COMMANDS.get(cmd_name)
        return None if entry is None else load_command(cmd_name, entry)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find a command; for an unknown one, similar names are suggested."""
        self.commands = dict.fromkeys(COMMANDS)  # type: ignore[assignment] # only names are read
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the commands by section."""
        for title, section in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(name, entry.summary) for name, entry in section.items()])

    def make_context(
        self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any
    ) -> Any:
        """Parse the options before the command."""
        with _plain_usage_errors():
            return super().make_context(info_name, args, parent, **extra)

    def invoke(self, ctx: Any) -> Any:
        """Run the command; an error becomes a message and an exit code."""
        try:
            try:
                with _plain_usage_errors():
                    return super().invoke(ctx)
            finally:
                sys.stdout.flush()
        except DulyError as error:
            from duly.cli.connect import print_error
            from duly.cli.exit_codes import exit_code_for_error

            print_error(error)
            raise typer.Exit(exit_code_for_error(error)) from error
        except ModuleNotFoundError as error:
            extra = COMMANDS[ctx.invoked_subcommand].extra
            if not extra or (error.name or "duly").partition(".")[0] == "duly":
                raise
            from duly.cli.connect import print_notice

            print_notice(
                f"duly: 'duly {ctx.invoked_subcommand}' needs the {extra} part of Duly, which is "
                f"not installed. Install Duly with it: pip install '.[{extra}]' in Duly's folder."
            )
            raise typer.Exit(USAGE_ERROR) from error
        except typer.Abort as error:
            raise typer.Exit(_end_of_prompt(error)) from None
        except BrokenPipeError as error:
            from duly.cli.output.closed_pipe import discard_output

            # The reader of our output has exited, as in `duly list | head`. Ctrl-C ends the reader,
            # too, perhaps before us.
            discard_output()
            is_interrupted = isinstance(error.__context__, KeyboardInterrupt)
            raise typer.Exit(INTERRUPTED if is_interrupted else 0) from None
        except OSError as error:
            from duly.cli.connect import print_notice
            from duly.cli.output.closed_pipe import (
                describe_unwritable,
                discard_output,
                is_unwritable,
            )

            if not is_unwritable(error):
                raise
            discard_output()
            print_notice(f"duly: {describe_unwritable(error)}")
            raise typer.Exit(REFUSED) from None
        except KeyboardInterrupt:
            from duly.cli.output.closed_pipe import discard_output

            # What nobody reads would be written again at the exit, and block it.
            discard_output()
            raise typer.Exit(INTERRUPTED) from None


def _end_of_prompt(error: typer.Abort) -> int:
    """Say that nothing was done, and return the exit code; prompts come before any change.

    The answer was no, or there was none: Ctrl-C, or the end of the input.
    """
    from duly.cli.connect import print_notice

    no_answer = error.__context__
    print_notice("Nothing was changed." if no_answer is None else "\nNothing was changed.")
    return INTERRUPTED if isinstance(no_answer, KeyboardInterrupt) else NOT_CONFIRMED


class CommandGroup(TyperGroup):
    """A group whose help has the summaries of its commands in full."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the commands; click would cut their summaries off at the end of the line."""
        commands = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl([(name, _summary_of(command)) for name, command in commands])


def _summary_of(command: Any) -> str:
    return " ".join((command.help or "").partition("\n\n")[0].split())


def _wrap_summaries(group: typer.Typer) -> None:
    group.info.cls = CommandGroup
    for inner in group.registered_groups:
        if inner.typer_instance is not None:
            _wrap_summaries(inner.typer_instance)


class TakesCommand(TyperCommand):
    """A command that passes everything after its options to the task."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return the parts of the usage line after the name."""
        return ["[OPTIONS]", "[--] COMMAND [ARG]..."]


def load_command(name: str, entry: CommandEntry) -> Any:
    """Import a command, which is a function or a Typer group, and return it for click."""
    from duly.cli.empty_paths import refuse_empty_paths

    module, _, attribute = entry.home.partition(":")
    found = getattr(import_module(f"duly.cli.{module}"), attribute)
    if isinstance(found, typer.Typer):
        _wrap_summaries(found)
    else:
        alone = typer.Typer(add_completion=False, rich_markup_mode=None)
        if name in EXAMPLES:
            settings = {"allow_interspersed_args": False}
            alone.command(name, cls=TakesCommand, context_settings=settings, epilog=EXAMPLES[name])(
                found
            )
        else:
            alone.command(name)(found)
        found = alone
    command = typer.main.get_command(found)
    refuse_empty_paths(command)
    return command


app = typer.Typer(
    cls=LazyCommands,
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


@app.callback(
    help="Run any task on a fleet of machines: in due time, as promised.", epilog=FIRST_STEPS
)
def root(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    """Define the options that come before any command."""


def main() -> None:
    """Run the command line."""
    for name in ("stdout", "stderr"):
        # A closed stream, as with `>&-`, must not keep a command from its work.
        stream = getattr(sys, name) or open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115
        # A character that the locale cannot encode must not end a command half-way.
        stream.reconfigure(errors="replace")
        setattr(sys, name, stream)
    app(prog_name="duly")
