"""The pages without a server, and when it comes back."""

import contextlib
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from playwright.sync_api import expect

PAGES = (
    "import sys; from duly.dashboard.app import run; run(*sys.argv[1:4], int(sys.argv[4]), 'tok')"
)
DULY = Path(sys.executable).with_name("duly")


@contextlib.contextmanager
def process(*command, **environment):
    """A process that ends with the block."""
    with subprocess.Popen(command, env={**os.environ, **environment}) as running:
        try:
            yield running
        finally:
            running.terminate()


@pytest.fixture
def key(dsn, tmp_path):
    """The administrator's key of a database that no server serves yet."""
    file = tmp_path / "admin.key"
    init = [DULY, "db", "init", "--admin-key-file", file]
    subprocess.run(init, env={**os.environ, "DULY_DATABASE": dsn}, check=True)
    return file.read_text().strip()


def await_listener(port):
    """Return when somebody listens; a process that starts gives no other sign."""
    while True:
        with (
            contextlib.suppress(ConnectionRefusedError),
            socket.create_connection(("127.0.0.1", port)),
        ):
            return
        time.sleep(0.05)


@pytest.mark.timeout(120)
def test_the_page_says_that_the_server_is_gone_and_comes_back_by_itself(
    dsn, key, browser, free_ports, tmp_path
):
    server_port = free_ports()
    url, port = f"http://127.0.0.1:{server_port}", server_port + 1
    serve = [DULY, "serve", "--port", str(server_port), "--store", str(tmp_path / "objects")]
    pages = [sys.executable, "-c", PAGES, url, key, "127.0.0.1", str(port)]
    page = browser.new_page()
    with process(*pages):
        await_listener(port)
        page.goto(f"http://127.0.0.1:{port}/open?token=tok")
        expect(page.get_by_role("alert")).to_contain_text(f"cannot be reached at {url}")
        expect(page.get_by_role("status")).to_have_text("not reachable")

        with process(*serve, DULY_DATABASE=dsn):
            expect(page.get_by_role("status")).to_have_text("live", timeout=30_000)
            expect(page.get_by_role("alert")).to_be_hidden()
            expect(page.get_by_text("No node has joined")).to_be_visible()

        expect(page.get_by_role("status")).to_have_text("not reachable", timeout=30_000)
        expect(page.locator(".count.done .number")).to_have_text("0")
