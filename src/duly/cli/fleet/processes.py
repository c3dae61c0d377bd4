"""`duly up`, `serve`, `db` and `doctor`: start processes and prepare for them."""

import os
from pathlib import Path
from typing import Annotated

import typer

from duly.cli.connect import print_notice
from duly.cli.empty_paths import refuse_empty
from duly.cli.output.text import clean_lines
from duly.errors import ConfigError

DataFlag = Annotated[
    Path | None,
    typer.Option(
        "--data",
        metavar="DIR",
        help="Data folder. [default: ~/.local/share/duly]",
        show_default=False,
    ),
]
HostFlag = Annotated[str, typer.Option("--host", metavar="ADDRESS", help="Address to listen on.")]
PortFlag = Annotated[
    int,
    typer.Option(
        "--port", metavar="PORT", min=0, max=65535, help="Port to listen on; 0 takes a free one."
    ),
]
DatabaseFlag = Annotated[
    str | None,
    typer.Option(
        "--database",
        metavar="DSN",
        help="Your own PostgreSQL, such as postgresql://host/duly; also DULY_DATABASE.",
    ),
]
DatabaseFileFlag = Annotated[
    Path | None,
    typer.Option(
        "--database-file", metavar="FILE", help="File that contains the DSN, to keep it out of ps."
    ),
]
ConfigFlag = Annotated[
    Path | None, typer.Option("--config", metavar="FILE", help="Settings file in TOML.")
]
IsolationFlag = Annotated[
    str,
    typer.Option(
        "--isolation",
        metavar="LEVEL",
        help="How tasks are isolated; this version has only process.",
    ),
]
StoreFlag = Annotated[
    str | None,
    typer.Option(
        "--store",
        metavar="URL",
        callback=refuse_empty,
        help="Object store: a folder, s3://…, gs://…",
    ),
]
VerboseFlag = Annotated[
    bool, typer.Option("--verbose", "-v", help="Log more than warnings and errors.")
]


def up(
    data: DataFlag = None,
    host: HostFlag = "127.0.0.1",
    port: PortFlag = 8470,
    database: DatabaseFlag = None,
    database_file: DatabaseFileFlag = None,
    dashboard: Annotated[
        bool,
        typer.Option("--dashboard/--no-dashboard", help="Serve the dashboard on the next port."),
    ] = True,
    store: StoreFlag = None,
    isolation: IsolationFlag = "process",
    app: Annotated[
        str | None,
        typer.Option(metavar="MODULE:APP", help="Also start a worker for the functions of an app."),
    ] = None,
    config: ConfigFlag = None,
    verbose: VerboseFlag = False,
) -> None:
    """Start everything on this machine: PostgreSQL, a server, a node and the dashboard.

    It stays in the foreground. Ctrl-C stops everything and returns running tasks to their queue; a
    second Ctrl-C says what is left to wait for, and a third stops at once.
    """
    from duly import config as settings
    from duly.launch.database import find_dsn
    from duly.launch.event_loop import run
    from duly.launch.local.data_folder import default_data
    from duly.launch.logs import log_to_stderr
    from duly.launch.up import UpOptions
    from duly.launch.up import up as start

    log_to_stderr(verbose=verbose)
    options = UpOptions(
        data=data or default_data(),
        host=host,
        port=port,
        database=find_dsn(database, database_file, os.environ),
        store_url=store,
        dashboard=dashboard,
        isolation=isolation,
        app=app,
        settings=settings.load(config, os.environ),
        verbose=verbose,
    )
    raise typer.Exit(run(start(options, print_output, print_notice)))


def serve(
    database: DatabaseFlag = None,
    database_file: DatabaseFileFlag = None,
    host: HostFlag = "127.0.0.1",
    port: PortFlag = 8470,
    store: StoreFlag = None,
    tls_cert: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Certificate chain in PEM format."),
    ] = None,
    tls_key: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Private key of the certificate in PEM format."),
    ] = None,
    config: ConfigFlag = None,
    verbose: VerboseFlag = False,
) -> None:
    """Start a server; any number of them may share one database."""
    from duly import config as settings
    from duly.launch.event_loop import run
    from duly.launch.local.data_folder import default_data
    from duly.launch.logs import log_to_stderr
    from duly.launch.serve import ServeOptions
    from duly.launch.serving import serve_until_interrupted
    from duly.launch.tls import find_certificate

    log_to_stderr(verbose=verbose)
    if store is None:
        store = str(default_data() / "objects")
        print_notice(
            f"Logs and artifacts are stored in {store}. Servers on other machines need a store "
            "that all of them share: start every server with the same --store."
        )
    options = ServeOptions(
        dsn=find_database(database, database_file),
        store_url=store,
        host=host,
        port=port,
        settings=settings.load(config, os.environ),
        certificate=find_certificate(tls_cert, tls_key),
    )
    raise typer.Exit(run(serve_until_interrupted(options, print_output, print_notice)))


db = typer.Typer(
    help="Set up, migrate, back up and inspect the database.",
    add_completion=False,
    rich_markup_mode=None,
    no_args_is_help=True,
)


@db.command("init")
def init(
    database: DatabaseFlag = None,
    database_file: DatabaseFileFlag = None,
    admin_key_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="File to keep the administrator's key in. Any other content is left as it is.",
        ),
    ] = None,
) -> None:
    """Migrate a database to this version's schema, and create the administrator's key.

    The key is written to the file, readable by you alone. Without a file it is printed once,
    and only if the database has none yet.
    """
    from duly.launch import database as launch
    from duly.launch.event_loop import run

    dsn, role = find_database(database, database_file), find_request_role()
    print_applied(run(launch.bring_up_to_date(dsn, role)))
    if admin_key_file:
        run(launch.ensure_admin_key(dsn, admin_key_file))
        print_notice(f"The administrator's key is in {admin_key_file}.")
    else:
        _print_first_key(run(launch.first_admin_key(dsn)))
    run(launch.check_request_role(dsn, role))


def _print_first_key(key: str | None) -> None:
    if key is None:
        print_notice(
            "The database has an administrator's key already. Create another one with "
            "--admin-key-file FILE."
        )
    else:
        print_notice("The administrator's key, shown only this once:")
        print_output(key)


@db.command("migrate")
def migrate(database: DatabaseFlag = None, database_file: DatabaseFileFlag = None) -> None:
    """Migrate a database to this version's schema."""
    from duly.launch import database as launch
    from duly.launch.event_loop import run

    dsn, role = find_database(database, database_file), find_request_role()
    print_applied(run(launch.bring_up_to_date(dsn, role)))
    run(launch.check_request_role(dsn, role))


@db.command("status")
def status(database: DatabaseFlag = None, database_file: DatabaseFileFlag = None) -> None:
    """Show applied and pending migrations; exit 1 if any are pending."""
    from duly.launch import database as launch
    from duly.launch.event_loop import run

    found = run(launch.status(find_database(database, database_file)))
    print_output(f"postgresql: {found.postgresql}")
    for name in found.applied:
        print_output(f"applied: {name}")
    for name in found.pending:
        print_output(f"pending: {name}")
    if found.pending:
        raise typer.Exit(1)


def doctor(
    data: DataFlag = None,
    host: HostFlag = "127.0.0.1",
    port: PortFlag = 8470,
    store: Annotated[
        str | None,
        typer.Option(
            "--store",
            metavar="URL",
            callback=refuse_empty,
            help="Object store of 'duly serve' to check.",
        ),
    ] = None,
) -> None:
    """Check this machine and print fixes; exit 1 if Duly cannot run."""
    from duly.launch.doctor import Level, examine
    from duly.launch.local.data_folder import default_data

    folder = (data or default_data()).absolute()
    findings = examine(folder, host, port, os.environ, store)
    for finding in findings:
        print_output(f"{finding.level:<8} {finding.about}: {finding.text}")
        if finding.fix and finding.level is not Level.OK:
            print_output(f"{'':<8} fix: {finding.fix}")
    if any(finding.level is Level.MISSING for finding in findings):
        raise typer.Exit(1)


def print_applied(names: list[str]) -> None:
    """Print the names of migrations that were applied, if any."""
    for name in names:
        print_notice(f"Migration {name} applied.")
    if not names:
        print_notice("The schema is up to date.")


def find_database(database: str | None, file: Path | None) -> str:
    """Return the DSN from the flags or the environment; raises ConfigError if there is none."""
    from duly.launch.database import find_dsn

    dsn = find_dsn(database, file, os.environ)
    if dsn is None:
        raise ConfigError("No database is given. Use --database-file, --database or DULY_DATABASE.")
    return dsn


def find_request_role() -> str:
    """Return the PostgreSQL role for requests, from the environment or the default."""
    from duly import config as settings

    return settings.load(None, os.environ).database.request_role


def print_output(text: str) -> None:
    """Print and flush a line that other programs wait for; a closed pipe is ignored."""
    try:
        print(clean_lines(text), flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
