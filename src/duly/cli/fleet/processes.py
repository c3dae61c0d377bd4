"""The commands that start processes, and those that prepare for them."""

import os
from pathlib import Path
from typing import Annotated

import typer

from duly.cli.connect import say
from duly.cli.text import clean_lines
from duly.errors import ConfigError

DataFlag = Annotated[
    Path | None, typer.Option("--data", help="Folder for everything.", show_default=False)
]
HostFlag = Annotated[str, typer.Option("--host", help="Address to listen on.")]
PortFlag = Annotated[int, typer.Option("--port", min=0, max=65535, help="Port to listen on.")]
DatabaseFlag = Annotated[
    str | None,
    typer.Option("--database", metavar="DSN", help="PostgreSQL to use; also DULY_DATABASE."),
]
DatabaseFileFlag = Annotated[
    Path | None,
    typer.Option("--database-file", metavar="FILE", help="File that holds the DSN."),
]
ConfigFlag = Annotated[
    Path | None, typer.Option("--config", metavar="FILE", help="Settings, in TOML.")
]
IsolationFlag = Annotated[
    str, typer.Option("--isolation", help="How tasks are kept apart: process.")
]
VerboseFlag = Annotated[
    bool, typer.Option("--verbose", "-v", help="Say more than warnings and errors.")
]


def up(
    data: DataFlag = None,
    host: HostFlag = "127.0.0.1",
    port: PortFlag = 8470,
    database: DatabaseFlag = None,
    database_file: DatabaseFileFlag = None,
    dashboard: Annotated[
        bool, typer.Option("--dashboard/--no-dashboard", help="Serve pages on the next port.")
    ] = True,
    isolation: IsolationFlag = "process",
    config: ConfigFlag = None,
    verbose: VerboseFlag = False,
) -> None:
    """Start everything on this machine: PostgreSQL, a server, a node and the pages.

    The data is kept in ~/.local/share/duly unless --data says otherwise. Ctrl-C stops all of
    it and hands running tasks back to their queue; a second Ctrl-C hurries.
    """
    from duly import config as settings
    from duly.launch.data_folder import default_data
    from duly.launch.database import find_dsn
    from duly.launch.logs import log_to_stderr
    from duly.launch.running import run
    from duly.launch.up import UpOptions
    from duly.launch.up import up as start

    log_to_stderr(verbose=verbose)
    options = UpOptions(
        data=data or default_data(),
        host=host,
        port=port,
        database=find_dsn(database, database_file, os.environ),
        dashboard=dashboard,
        isolation=isolation,
        settings=settings.load(config, os.environ),
        verbose=verbose,
    )
    run(start(options, tell, say))


def serve(
    database: DatabaseFlag = None,
    database_file: DatabaseFileFlag = None,
    host: HostFlag = "127.0.0.1",
    port: PortFlag = 8470,
    store: Annotated[
        str | None,
        typer.Option("--store", metavar="URL", help="Object store: a folder, s3://…, gs://…"),
    ] = None,
    tls_cert: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Certificate and those above it, in PEM form."),
    ] = None,
    tls_key: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The certificate's key, in PEM form.")
    ] = None,
    config: ConfigFlag = None,
    verbose: VerboseFlag = False,
) -> None:
    """Start a server; any number of them may share one database."""
    from duly import config as settings
    from duly.launch.data_folder import default_data
    from duly.launch.logs import log_to_stderr
    from duly.launch.running import run
    from duly.launch.serve import ServeOptions
    from duly.launch.serving import serve_until_interrupted
    from duly.launch.tls import find_certificate

    log_to_stderr(verbose=verbose)
    options = ServeOptions(
        dsn=_dsn(database, database_file),
        store_url=store or str(default_data() / "objects"),
        host=host,
        port=port,
        settings=settings.load(config, os.environ),
        certificate=find_certificate(tls_cert, tls_key),
    )
    run(serve_until_interrupted(options, tell))


db = typer.Typer(
    help="Set up and look at the database.",
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
        typer.Option(metavar="FILE", help="Where the administrator's key is kept."),
    ] = None,
) -> None:
    """Bring a database to the schema of this version, and make the administrator's key.

    The key goes to the file, readable by you alone. Without a file it is printed, once,
    and only if the database has none yet.
    """
    from duly.launch import database as launch
    from duly.launch.running import run

    dsn, role = _dsn(database, database_file), _request_role()
    _tell_applied(run(launch.bring_up_to_date(dsn, role)))
    if admin_key_file:
        run(launch.ensure_admin_key(dsn, admin_key_file))
        say(f"The administrator's key is in {admin_key_file}.")
    else:
        _tell_first_key(run(launch.first_admin_key(dsn)))
    run(launch.check_request_role(dsn, role))


def _tell_first_key(key: str | None) -> None:
    if key is None:
        say("There is an administrator's key already; another one goes to an --admin-key-file.")
    else:
        say("The administrator's key follows. It is shown this once:")
        tell(key)


@db.command("migrate")
def migrate(database: DatabaseFlag = None, database_file: DatabaseFileFlag = None) -> None:
    """Bring a database to the schema of this version."""
    from duly.launch import database as launch
    from duly.launch.running import run

    dsn, role = _dsn(database, database_file), _request_role()
    _tell_applied(run(launch.bring_up_to_date(dsn, role)))
    run(launch.check_request_role(dsn, role))


@db.command("status")
def status(database: DatabaseFlag = None, database_file: DatabaseFileFlag = None) -> None:
    """Say how far a database is, and change nothing; exit 1 if migrations are missing."""
    from duly.launch import database as launch
    from duly.launch.running import run

    found = run(launch.status(_dsn(database, database_file)))
    tell(f"postgresql: {found.postgresql}")
    for name in found.applied:
        tell(f"applied: {name}")
    for name in found.pending:
        tell(f"pending: {name}")
    if found.pending:
        raise typer.Exit(1)


def doctor(
    data: DataFlag = None,
    host: HostFlag = "127.0.0.1",
    port: PortFlag = 8470,
    store: Annotated[
        str | None,
        typer.Option("--store", metavar="URL", help="Object store of `duly serve`, to look at."),
    ] = None,
) -> None:
    """Say what this machine lacks, with the fix; exit 1 if Duly cannot run without it."""
    from duly.launch.data_folder import default_data
    from duly.launch.doctor import Level, examine

    folder = (data or default_data()).absolute()
    findings = examine(folder, host, port, os.environ, store)
    for finding in findings:
        tell(f"{finding.level:<8} {finding.about}: {finding.text}")
        if finding.fix and finding.level is not Level.OK:
            tell(f"{'':<8} fix: {finding.fix}")
    if any(finding.level is Level.MISSING for finding in findings):
        raise typer.Exit(1)


def _tell_applied(names: list[str]) -> None:
    for name in names:
        say(f"applied {name}")
    if not names:
        say("The schema is up to date.")


def _dsn(database: str | None, file: Path | None) -> str:
    from duly.launch.database import find_dsn

    dsn = find_dsn(database, file, os.environ)
    if dsn is None:
        raise ConfigError("Which database? Give --database-file, --database or DULY_DATABASE.")
    return dsn


def _request_role() -> str:
    """Return the role that requests take on, from the environment or as it is by default."""
    from duly import config as settings

    return settings.load(None, os.environ).database.request_role


def tell(text: str) -> None:
    """Print a line that others wait for, at once; that nobody reads on is no reason to end."""
    try:
        print(clean_lines(text), flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
