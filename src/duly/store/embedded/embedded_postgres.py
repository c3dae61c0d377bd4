"""The bundled PostgreSQL cluster that `duly up` runs in its data folder.

The programs come from a wheel. The cluster listens only on a unix socket in a private folder and
requires a password. It is a separate process that survives a killed `duly up`: the next start
finds it by its folder and adopts it.

Files in the data folder:

    postgres/                      the cluster
    postgres.password              of the owner of Duly's database, the only role that Duly uses
    postgres.superuser.password    of the superuser, which only sets up the roles
    postgres.socket/               the socket's folder, unless the path is too long for a socket
    postgres.log                   the server's log, kept small by `trim_log`

Decision: docs/adr/0001-embedded-postgresql.md.
"""

import contextlib
import hashlib
import os
import secrets
import shutil
import stat
import tempfile
from pathlib import Path
from urllib.parse import quote

from duly.errors import ConfigError
from duly.private_file import open_private, sync_folder, write_private
from duly.store.embedded import postmaster
from duly.store.embedded.programs import Programs, bundled_programs, tail_of
from duly.store.embedded.roles import DATABASE, OWNER, PORT, SUPERUSER, Passwords, Roles
from duly.store.embedded.system_user import SystemUser, allow_traversal, check_has_name, user_for

MAX_SOCKET_PATH_BYTES = 107
"""The kernel's limit for the path of a unix socket."""
STAGING_PREFIX = "postgres.new-"
"""Name prefix of a cluster's folder while initdb creates it."""
MAX_LOG_BYTES = 10 * 2**20
START_TIMEOUT_SECONDS = 120.0
"""Seconds; recovery after a crash replays up to max_wal_size."""
ADOPTION_TIMEOUT_SECONDS = 10.0
"""Seconds for a server that is already running to answer, and then to stop."""
STOP_TIMEOUT_SECONDS = 30.0

SETTINGS = {
    "listen_addresses": "",
    "port": str(PORT),
    "unix_socket_permissions": "0700",
    "max_connections": "50",
    "shared_buffers": "128MB",
    "max_wal_size": "1GB",
    "jit": "off",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_checkpoints": "off",
    # Duly reports failed statements itself; in the log they would repeat what tenants sent.
    "log_min_error_statement": "panic",
    "log_parameter_max_length": "0",
}
"""Passed at every start, so that a newer Duly can change them. fsync stays on."""


class EmbeddedPostgres:
    """One cluster in one folder.

    The caller ensures that only one process at a time starts or stops the cluster. Both calls
    block; call them in a thread from an event loop.
    """

    def __init__(self, folder: Path, programs: Path | None = None) -> None:
        self._folder = folder.absolute()
        self._data = self._folder / "postgres"
        self._log = self._folder / "postgres.log"
        self._programs = Programs(programs or bundled_programs())

    def start(self) -> str:
        """Start the cluster, or adopt the running one, and return its DSN."""
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            user = user_for(self._data)
            allow_traversal(user, self._folder)
            allow_traversal(user, self._programs.folder)
            passwords = self._passwords()
            if not self._data.exists():
                self._create(user, passwords.superuser)
            self._check_version()
            roles = Roles(self._programs, self._data, passwords)
            sockets = self._adopt(roles) or self._launch(user, roles)
            return _dsn(sockets, passwords.owner)
        except OSError as error:
            raise ConfigError(
                f"PostgreSQL could not be started in {self._folder}: {error}. "
                "Set that right, or choose another folder with --data."
            ) from error

    def stop(self) -> None:
        """Stop the cluster if it runs, whichever process started it, and wait until it is gone."""
        postmaster.stop_postmaster(self._data, patience=STOP_TIMEOUT_SECONDS)
        sockets = self._socket_path()
        if sockets.parent != self._folder:
            with contextlib.suppress(OSError):
                sockets.rmdir()

    def running_pid(self) -> int | None:
        """Return the pid of the server, for supervision; None if it does not run."""
        return postmaster.find_postmaster(self._data)

    def trim_log(self) -> None:
        """Rotate a log that has grown too large; at most one old log is kept."""
        # Copied and truncated, not renamed: the server keeps writing to its open file.
        with contextlib.suppress(FileNotFoundError):
            if self._log.lstat().st_size > MAX_LOG_BYTES:
                set_aside = self._log.with_name("postgres.log.1")
                set_aside.unlink(missing_ok=True)
                # Links are not followed: root may run Duly in another user's folder.
                with (
                    open_private(self._log, os.O_RDWR) as log,
                    open_private(set_aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL) as copy,
                ):
                    os.sendfile(copy.fileno(), log.fileno(), 0, os.fstat(log.fileno()).st_size)
                    log.truncate(0)

    def _passwords(self) -> Passwords:
        owner = self._folder / "postgres.password"
        if self._data.exists() and not owner.exists():
            raise ConfigError(
                f"{owner} is missing, and without it the database in {self._data} cannot be "
                "opened. Restore it from a backup, or move the folder aside to begin anew."
            )
        # An earlier version had no file for the superuser, whose password is then set later.
        superuser = self._folder / "postgres.superuser.password"
        return Passwords(_read_or_create_password(owner), _read_or_create_password(superuser))

    def _create(self, user: SystemUser, password: str) -> None:
        """Create a cluster beside its final path, so that an incomplete one is never used."""
        check_has_name(user)
        self._remove_half_made()
        # A new name each time: a killed start may have left an initdb that is still writing.
        staging = Path(tempfile.mkdtemp(prefix=STAGING_PREFIX, dir=self._folder))
        password_file = staging.with_name(f"{staging.name}.password")
        write_private(password_file, password + "\n")
        options = [f"--pgdata={staging}", f"--pwfile={password_file}", f"--username={SUPERUSER}"]
        options += ["--auth=scram-sha-256", "--encoding=UTF8", "--data-checksums"]
        try:
            for path in (staging, password_file):
                os.chown(path, user.uid, user.gid)
            done = self._programs.run("initdb", options + self._locale(), user)
        finally:
            password_file.unlink()
        if done.returncode != 0:
            shutil.rmtree(staging, ignore_errors=True)
            raise ConfigError(
                f"PostgreSQL could not make its files in {self._folder}:\n{tail_of(done.stdout)}"
            )
        staging.rename(self._data)
        sync_folder(self._folder)
        self._remove_half_made()

    def _remove_half_made(self) -> None:
        """Remove what killed starts have left, unless a process is still writing there.

        Best effort: the name of a folder that cannot be removed now is never used again.
        """
        for left_over in self._folder.glob(f"{STAGING_PREFIX}*"):
            # The type is checked first: a process that still writes recreates a removed folder.
            if left_over.is_dir() and not left_over.is_symlink():
                shutil.rmtree(left_over, ignore_errors=True)
            else:
                left_over.unlink(missing_ok=True)

    def _locale(self) -> list[str]:
        """Return initdb options that order text by code point, whatever the machine's libraries."""
        if self._programs.major_version() >= 17:
            return ["--locale-provider=builtin", "--builtin-locale=C.UTF-8", "--locale=C"]
        return ["--locale=C"]

    def _check_version(self) -> None:
        file = self._data / "PG_VERSION"
        ours = str(self._programs.major_version())
        theirs = file.read_text().strip() if file.exists() else ""
        if theirs == ours:
            return
        if not theirs:
            raise ConfigError(
                f"{self._data} exists and holds no database of Duly's. "
                "Move it aside, or choose another folder with --data."
            )
        raise ConfigError(
            f"{self._data} was made by PostgreSQL {theirs}; this Duly brings PostgreSQL {ours} and "
            f"has left it as it is. Either go on with the version of Duly that made it; or take "
            f"the data along: start that version, save its database with pg_dump {theirs}, move "
            f"the folder aside, and restore into the one that this version makes; or begin anew "
            "in another folder with --data."
        )

    def _adopt(self, roles: Roles) -> Path | None:
        """Return the socket folder of the server already running here, if it answers."""
        noted = postmaster.read_pid_file(self._data)
        if noted is None:
            return None
        running = postmaster.find_postmaster(self._data)
        if running and postmaster.wait_until_ready(self._data, running, START_TIMEOUT_SECONDS):
            sockets = Path(noted.socket_folder)
            if roles.prepare(sockets).returncode == 0:
                return sockets
        # The server does not answer; or it is gone and only its sessions live on; or its pid
        # has passed to another program, which would keep PostgreSQL from starting.
        postmaster.stop_postmaster(self._data, patience=ADOPTION_TIMEOUT_SECONDS)
        (self._data / postmaster.PID_FILE).unlink(missing_ok=True)
        return None

    def _launch(self, user: SystemUser, roles: Roles) -> Path:
        self.trim_log()
        postmaster.kill_leftovers(self._data)
        sockets = self._socket_folder(user)
        for left_over in sockets.iterdir():
            # Its owner is gone. The pid in a lock file may be another program's by now.
            left_over.unlink()
        settings = {**SETTINGS, "unix_socket_directories": str(sockets)}
        options = ["-D", str(self._data)]
        for name, value in settings.items():
            options += ["-c", f"{name}={value}"]
        with open_private(self._log, os.O_WRONLY | os.O_CREAT | os.O_APPEND) as log:
            said_before = os.fstat(log.fileno()).st_size
            pid = self._programs.spawn("postgres", options, user, log)
        self._await_start(pid, said_before)
        answer = roles.prepare(sockets)
        if answer.returncode != 0:
            self.stop()
            raise ConfigError(f"PostgreSQL started, but refuses us:\n{tail_of(answer.stdout)}")
        return sockets

    def _await_start(self, pid: int, said_before: int) -> None:
        if postmaster.wait_until_ready(self._data, pid, START_TIMEOUT_SECONDS):
            return
        self.stop()
        with self._log.open("rb") as log:
            log.seek(said_before)
            said = log.read().decode(errors="replace")
        raise ConfigError(
            f"PostgreSQL did not start in {self._data}. The end of {self._log}:\n{tail_of(said)}"
        )

    def _socket_path(self) -> Path:
        """Return the socket's folder: below the data folder, if a socket can have such a path."""
        folder = self._folder / "postgres.socket"
        too_long = len(os.fsencode(folder / f".s.PGSQL.{PORT}")) > MAX_SOCKET_PATH_BYTES
        # PostgreSQL and its clients read a comma as a separator of paths.
        if not too_long and "," not in str(folder):
            return folder
        name = hashlib.sha256(os.fsencode(self._data)).hexdigest()[:24]
        # Any user could have created this folder first, so `_socket_folder` checks its owner.
        return Path("/tmp") / f"duly-{name}"  # noqa: S108

    def _socket_folder(self, user: SystemUser) -> Path:
        """Create the folder of the socket, or check that only `user` can enter it."""
        folder = self._socket_path()
        with contextlib.suppress(FileExistsError):
            folder.mkdir(mode=0o700)
            os.chown(folder, user.uid, user.gid)
        status = folder.lstat()
        private = stat.S_ISDIR(status.st_mode) and stat.S_IMODE(status.st_mode) == 0o700
        if not private or status.st_uid != user.uid:
            raise ConfigError(
                f"{folder} is not a private folder of the user that PostgreSQL runs as "
                f"(uid {user.uid}). Remove it, or choose another folder with --data."
            )
        return folder


def _read_or_create_password(file: Path) -> str:
    """Return the password in a file; create the file with a new one if it is missing."""
    try:
        return file.read_text().strip()
    except FileNotFoundError:
        password = secrets.token_hex(32)
        write_private(file, password + "\n")
        return password


def _dsn(sockets: Path, password: str) -> str:
    host = quote(str(sockets), safe="/")
    return f"postgresql://{OWNER}:{password}@/{DATABASE}?host={host}&port={PORT}"
