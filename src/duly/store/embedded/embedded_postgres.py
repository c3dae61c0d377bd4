"""PostgreSQL in a folder: the one that `duly up` brings along.

The programs come from a wheel; how they are run is ours. The cluster listens only on a
unix socket in a private folder and asks for a password. It is a process of its own that
survives a killed `duly up`: the next start finds it by its folder and goes on with it.

Below the folder that is given:

    postgres/                      the cluster
    postgres.password              of the role that owns Duly's database, and is all that we use
    postgres.superuser.password    of its superuser, who only arranges the roles
    postgres.socket/               where it listens, unless that path is too long for a socket
    postgres.log                   what it says, kept small by `trim_log`
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
from duly.store import postmaster
from duly.store.embedded_roles import DATABASE, OWNER, PORT, SUPERUSER, Passwords, Roles
from duly.store.postgres_programs import Programs, bundled_programs, end_of
from duly.store.system_user import SystemUser, check_name, let_through, user_for

LONGEST_SOCKET = 107
"""Bytes of a unix socket's path that the kernel takes."""
STAGING = "postgres.new-"
"""What the name of a cluster begins with while it is being made."""
LOG_LIMIT = 10 * 2**20
START_PATIENCE = 120.0
"""Seconds; recovery after a crash replays up to max_wal_size."""
ADOPTION_PATIENCE = 10.0
"""Seconds that a server which runs already gets to answer, and then to stop."""
STOP_PATIENCE = 30.0

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
    # A failed statement is ours to report; in the log it would repeat what tenants sent.
    "log_min_error_statement": "panic",
    "log_parameter_max_length": "0",
}
"""Given at every start, so that a newer Duly can change them. fsync stays on."""


class EmbeddedPostgres:
    """One cluster in one folder.

    The caller makes sure that only one process at a time starts or stops it. Both block;
    from an event loop they are called in a thread.
    """

    def __init__(self, folder: Path, programs: Path | None = None) -> None:
        self._folder = folder.absolute()
        self._data = self._folder / "postgres"
        self._log = self._folder / "postgres.log"
        self._programs = Programs(programs or bundled_programs())

    def start(self) -> str:
        """Start the cluster, or adopt the one that runs, and return a DSN for it."""
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            user = user_for(self._data)
            let_through(user, self._folder)
            let_through(user, self._programs.folder)
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
        """Stop the cluster if it runs, whoever started it, and wait until it is gone."""
        postmaster.stop_postmaster(self._data, patience=STOP_PATIENCE)
        sockets = self._socket_path()
        if sockets.parent != self._folder:
            with contextlib.suppress(OSError):
                sockets.rmdir()

    def running_pid(self) -> int | None:
        """Return the process to watch: the server's, while it lives."""
        return postmaster.find_postmaster(self._data)

    def trim_log(self) -> None:
        """Set a log aside that has grown too large; at most one old one is kept."""
        # Copied and cut, not renamed: the server goes on writing to the file that it has.
        with contextlib.suppress(FileNotFoundError):
            if self._log.lstat().st_size > LOG_LIMIT:
                set_aside = self._log.with_name("postgres.log.1")
                set_aside.unlink(missing_ok=True)
                # No link is followed: root may have been given the folder of somebody else.
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
        # An earlier version had no file for the superuser: it gets its password later.
        superuser = self._folder / "postgres.superuser.password"
        return Passwords(_secret(owner), _secret(superuser))

    def _create(self, user: SystemUser, password: str) -> None:
        """Make a cluster beside its final place, so that a half-made one is never used."""
        check_name(user)
        self._remove_half_made()
        # Another name each time: a killed start may have left an initdb that still writes.
        staging = Path(tempfile.mkdtemp(prefix=STAGING, dir=self._folder))
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
                f"PostgreSQL could not make its files in {self._folder}:\n{end_of(done.stdout)}"
            )
        staging.rename(self._data)
        sync_folder(self._folder)
        self._remove_half_made()

    def _remove_half_made(self) -> None:
        """Remove what killed starts have left, as far as nobody still writes there.

        It is in nobody's way: whatever cannot be removed now has a name that is not used again.
        """
        for left_over in self._folder.glob(f"{STAGING}*"):
            # Looked at before: who still writes there makes a folder anew that was just removed.
            if left_over.is_dir() and not left_over.is_symlink():
                shutil.rmtree(left_over, ignore_errors=True)
            else:
                left_over.unlink(missing_ok=True)

    def _locale(self) -> list[str]:
        """Order text by code point everywhere, independent of the machine's libraries."""
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
        """Return where the server listens that runs in this folder already, if one answers."""
        noted = postmaster.read_pid_file(self._data)
        if noted is None:
            return None
        running = postmaster.find_postmaster(self._data)
        if running and postmaster.await_ready(self._data, running, START_PATIENCE):
            sockets = Path(noted.socket_folder)
            if roles.prepare(sockets).returncode == 0:
                return sockets
        # It does not answer; or it is gone and only its sessions live on; or its number has
        # passed to another program, which would keep PostgreSQL from starting.
        postmaster.stop_postmaster(self._data, patience=ADOPTION_PATIENCE)
        (self._data / postmaster.PID_FILE).unlink(missing_ok=True)
        return None

    def _launch(self, user: SystemUser, roles: Roles) -> Path:
        self.trim_log()
        postmaster.sweep(self._data)
        sockets = self._socket_folder(user)
        for left_over in sockets.iterdir():
            # Its owner is gone. The number in a lock may be another program's by now.
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
            raise ConfigError(f"PostgreSQL started, but refuses us:\n{end_of(answer.stdout)}")
        return sockets

    def _await_start(self, pid: int, said_before: int) -> None:
        if postmaster.await_ready(self._data, pid, START_PATIENCE):
            return
        self.stop()
        with self._log.open("rb") as log:
            log.seek(said_before)
            said = log.read().decode(errors="replace")
        raise ConfigError(
            f"PostgreSQL did not start in {self._data}. The end of {self._log}:\n{end_of(said)}"
        )

    def _socket_path(self) -> Path:
        """Return where the socket lies: in our folder, if a socket can have such a path."""
        folder = self._folder / "postgres.socket"
        too_long = len(os.fsencode(folder / f".s.PGSQL.{PORT}")) > LONGEST_SOCKET
        # PostgreSQL and its clients take a comma for the end of one path and the next one.
        if not too_long and "," not in str(folder):
            return folder
        name = hashlib.sha256(os.fsencode(self._data)).hexdigest()[:24]
        # Anybody could have made this one first, which is why its owner is looked at.
        return Path("/tmp") / f"duly-{name}"  # noqa: S108

    def _socket_folder(self, user: SystemUser) -> Path:
        """Make the folder of the socket, or make sure that only `user` can enter it."""
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


def _secret(file: Path) -> str:
    """Return what a file of ours holds; a new password if there is none."""
    try:
        return file.read_text().strip()
    except FileNotFoundError:
        password = secrets.token_hex(32)
        write_private(file, password + "\n")
        return password


def _dsn(sockets: Path, password: str) -> str:
    host = quote(str(sockets), safe="/")
    return f"postgresql://{OWNER}:{password}@/{DATABASE}?host={host}&port={PORT}"
