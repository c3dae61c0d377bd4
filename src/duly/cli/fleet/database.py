"""`duly db dump`, `restore` and `use-store`: back a cluster up, and move its object store."""

from pathlib import Path
from typing import Annotated

import typer

from duly.cli.connect import print_notice
from duly.cli.fleet.processes import (
    DatabaseFileFlag,
    DatabaseFlag,
    db,
    find_database,
    find_request_role,
    print_applied,
)

__all__ = ["db"]


@db.command("dump")
def dump(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="File to write.")],
    database: DatabaseFlag = None,
    database_file: DatabaseFileFlag = None,
) -> None:
    """Write a backup of the database into a file, while servers keep running.

    The object store is not part of it: copy the store afterwards. The file is readable by you
    alone; it has the hashes of all keys, and everything that tenants have submitted.
    """
    from duly.launch.backup import dump as write
    from duly.launch.event_loop import run

    run(write(find_database(database, database_file), file))
    print_notice(f"The backup of the database is in {file}. Copy the object store now.")


@db.command("restore")
def restore(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="File of 'duly db dump'.")],
    database: DatabaseFlag = None,
    database_file: DatabaseFileFlag = None,
) -> None:
    """Restore a backup into an empty database, all or nothing.

    Stop all servers and agents of the lost database first.
    """
    from duly.launch.backup import restore as load
    from duly.launch.database import check_request_role
    from duly.launch.event_loop import run

    dsn, role = find_database(database, database_file), find_request_role()
    applied = run(load(dsn, file, role))
    print_notice(f"Restored {file}.")
    if applied:
        print_applied(applied)
    run(check_request_role(dsn, role))


@db.command("use-store")
def use_store(
    store: Annotated[
        str, typer.Option("--store", metavar="URL", help="Object store: a folder, s3://…, gs://…")
    ],
    take_over: Annotated[
        bool,
        typer.Option("--take-over", help="Use it even if it is the store of another database."),
    ] = False,
    database: DatabaseFlag = None,
    database_file: DatabaseFileFlag = None,
) -> None:
    """Replace the object store, if the old one is lost; all servers must be stopped.

    Nothing is copied: logs and artifacts in the old store cannot be read any more, and bundles
    have to be uploaded again. To move a store with its contents, copy its files instead.
    """
    from duly.launch.event_loop import run
    from duly.launch.store_identity import name_of, replace

    dsn = find_database(database, database_file)
    if run(replace(dsn, store, take_over=take_over)):
        print_notice(f"The object store is now {name_of(store)}. Start all servers with it.")
    else:
        print_notice(f"{name_of(store)} is the object store already. Nothing was changed.")
