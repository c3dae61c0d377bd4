"""A server and a node as processes of their own, on a database that a test has."""

import asyncio
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

from duly.launch.tls import Certificate
from duly.store.accounts import tenants
from duly.store.database import Database
from duly.store.fleet import nodes
from tests.launch.running_up import DULY


class Place:
    """A database with an administrator's key and a join token, and a folder for what is started."""

    def __init__(self, folder: Path, dsn: str) -> None:
        folder.chmod(0o755)
        self.folder = folder
        self.key, token = asyncio.run(self._secrets(dsn))
        self.dsn_file, self.token_file = folder / "dsn", folder / "token"
        for file, text in ((self.dsn_file, dsn), (self.token_file, token)):
            file.touch(mode=0o600)
            file.write_text(text)
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("DULY_", "XDG_", "PG"))}
        self.env = {**kept, "HOME": str(folder / "home"), "DULY_KEY": self.key}

    @staticmethod
    async def _secrets(dsn: str) -> tuple[str, str]:
        async with await Database.connect(dsn) as database, database.connection() as conn:
            token = tenants.generate_key("dulyjoin")
            await nodes.add_token(conn, tenants.digest(token), lasts=timedelta(hours=1), uses=1)
            return await tenants.create_admin_key(conn), token

    @contextmanager
    def start(
        self, *arguments: str, stderr: int | None = None, **env: str
    ) -> Iterator["subprocess.Popen[str]"]:
        with subprocess.Popen(
            [DULY, *arguments],
            env=self.env | env,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
        ) as process:
            try:
                yield process
            finally:
                process.terminate()

    @contextmanager
    def server(self, certificate: Certificate | None) -> Iterator[str]:
        """Run a server; yield its URL."""
        tls = []
        if certificate:
            tls = ["--tls-cert", str(certificate.chain), "--tls-key", str(certificate.key)]
        with self.start(
            "serve", "--port", "0", "--database-file", str(self.dsn_file),
            "--store", str(self.folder / "store"), *tls,
        ) as process:  # fmt: skip
            assert process.stdout is not None
            yield process.stdout.readline().removeprefix("ready: ").strip()

    def agent(self, url: str, *arguments: str) -> list[str]:
        return [
            "agent", "--url", url, "--data", str(self.folder / "node"), "--name", "node",
            "--join-token-file", str(self.token_file), *arguments,
        ]  # fmt: skip
