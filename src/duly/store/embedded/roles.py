"""Roles and privileges in the embedded PostgreSQL, set up at every start.

Duly connects as the owner of its database, which is not a superuser, so a mistake in Duly cannot
reach beyond that database. Only this module uses the superuser. Its password has a separate file,
so that a leaked DSN does not reveal it.

In a cluster of an earlier version, `duly` is the bootstrap superuser, which can never lose that
attribute. So it is renamed, which only another superuser can do, and a plain `duly` takes over
its objects. A start that is killed on the way leaves a state from which the next start continues.
"""

import subprocess
from pathlib import Path

import msgspec

from duly.store.connections.request_role import ROLE
from duly.store.embedded.programs import Programs
from duly.store.embedded.system_user import current_user

SUPERUSER = "postgres"
OWNER = DATABASE = "duly"
RENAMING_ROLE = "duly_renames"
PORT = 5432
"""Only part of the socket's name: the server does not listen on the network."""
CONNECT_TIMEOUT_SECONDS = 10.0
"""Seconds for a server that is already running to answer."""

CHECK = r"""
\set ON_ERROR_STOP on
\getenv data DULY_DATA
\getenv owner_password DULY_OWNER_PASSWORD
\getenv superuser_password DULY_SUPERUSER_PASSWORD
select 1 / (current_setting('data_directory') = :'data')::int;
"""
"""Checks that this is the expected cluster. Secrets are passed in the environment."""

PREPARE = rf"""
{CHECK}
select 'create role {OWNER} login'
 where not exists (select from pg_roles where rolname = '{OWNER}') \gexec
alter role {OWNER} password :'owner_password';
-- To see how long others hold snapshots; and an earlier version asks where the data lies.
grant pg_read_all_stats, pg_read_all_settings to {OWNER};
select 'create role {ROLE} nologin noinherit'
 where not exists (select from pg_roles where rolname = '{ROLE}') \gexec
grant {ROLE} to {OWNER};
drop role if exists {RENAMING_ROLE};
select 'create database {DATABASE} owner {OWNER}'
 where not exists (select from pg_database where datname = '{DATABASE}') \gexec
alter database {DATABASE} owner to {OWNER};
\connect {DATABASE}
select format('alter schema %I owner to {OWNER}', nspname)
  from pg_namespace
 where nspname = '{DATABASE}' and nspowner <> '{OWNER}'::regrole \gexec
-- Indexes and the sequences of columns go with their tables.
select format('alter table %s owner to {OWNER}', c.oid::regclass)
  from pg_class c
 where c.relnamespace = to_regnamespace('{DATABASE}')
   and c.relowner <> '{OWNER}'::regrole
   and c.relkind in ('r', 'p', 'v', 'm', 'S')
   and not exists (select from pg_depend d
                    where d.classid = 'pg_class'::regclass and d.objid = c.oid
                      and d.refobjsubid > 0 and d.deptype in ('a', 'i')) \gexec
select format('alter routine %s owner to {OWNER}', p.oid::regprocedure)
  from pg_proc p
 where p.pronamespace = to_regnamespace('{DATABASE}')
   and p.proowner <> '{OWNER}'::regrole \gexec
select format('alter type %s owner to {OWNER}', t.oid::regtype)
  from pg_type t
 where t.typnamespace = to_regnamespace('{DATABASE}')
   and t.typowner <> '{OWNER}'::regrole
   and t.typtype in ('e', 'd', 'r') \gexec
"""  # noqa: S608 (constants)

CARRY_OVER = rf"""
{CHECK}
select 'create role {RENAMING_ROLE}'
 where not exists (select from pg_roles where rolname = '{RENAMING_ROLE}') \gexec
alter role {RENAMING_ROLE} superuser login password :'superuser_password';
"""  # noqa: S608 (constants)

RENAME = rf"""
{CHECK}
begin;
alter role {OWNER} rename to {SUPERUSER};
alter role {SUPERUSER} password :'superuser_password';
commit;
"""


class Passwords(msgspec.Struct, frozen=True):
    """The passwords of the roles."""

    owner: str
    superuser: str


class Roles:
    """Sets up the roles of one cluster, given its programs and data folder."""

    def __init__(self, programs: Programs, data: Path, passwords: Passwords) -> None:
        self._programs = programs
        self._data = data
        self._passwords = passwords

    def prepare(self, sockets: Path) -> subprocess.CompletedProcess[str]:
        """Log in, which is the only proof that a server answers, and set up the roles."""
        done = self._run(sockets, SUPERUSER, self._passwords.superuser, PREPARE)
        if "password authentication failed" not in done.stdout or not self._carry_over(sockets):
            return done
        return self._run(sockets, SUPERUSER, self._passwords.superuser, PREPARE)

    def _carry_over(self, sockets: Path) -> bool:
        """Rename the superuser of an earlier version, if there is one."""
        steps = [
            (OWNER, self._passwords.owner, CARRY_OVER),
            (RENAMING_ROLE, self._passwords.superuser, RENAME),
        ]
        return all(self._run(sockets, *step).returncode == 0 for step in steps)

    def _run(
        self, sockets: Path, user: str, password: str, script: str
    ) -> subprocess.CompletedProcess[str]:
        return self._programs.run(
            "psql",
            ["--no-psqlrc", "--quiet", "--dbname=postgres"],
            current_user(),
            script=script,
            environment={
                "PGHOST": str(sockets),
                "PGPORT": str(PORT),
                "PGUSER": user,
                "PGPASSWORD": password,
                "PGCONNECT_TIMEOUT": str(round(CONNECT_TIMEOUT_SECONDS)),
                "DULY_DATA": str(self._data),
                "DULY_OWNER_PASSWORD": self._passwords.owner,
                "DULY_SUPERUSER_PASSWORD": self._passwords.superuser,
            },
        )
