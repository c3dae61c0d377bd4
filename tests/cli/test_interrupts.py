"""Ctrl-C and outages, as a person at a terminal meets them."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

DULY = str(Path(sys.executable).with_name("duly"))
ENDED = {"id": "17", "status": "waiting", "ready_at": None}
UNAVAILABLE = {"error": {"code": "unavailable", "message": "The database is down.", "details": {}}}


def environment(folder: Path, **more: str) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "HOME": str(folder), "DULY_KEY": "k", **more}


def mind_interrupts() -> None:
    # A test run in the background ignores SIGINT, and its children would inherit that.
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_ctrl_c_while_modules_are_imported_prints_no_traceback(tmp_path):
    (tmp_path / "typer.py").write_text("raise KeyboardInterrupt")
    done = subprocess.run(
        [DULY, "list"],
        env=environment(tmp_path, PYTHONPATH=str(tmp_path)),
        capture_output=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (130, b"")


@pytest.mark.parametrize("command", [["list"], ["submit", "--", "true"], ["wait", "17"]])
def test_ctrl_c_while_a_server_is_silent_prints_no_traceback(tmp_path, command):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        process = subprocess.Popen(
            [DULY, *command],
            env=environment(tmp_path, DULY_URL=url),
            stderr=subprocess.PIPE,
            preexec_fn=mind_interrupts,
        )
        connection, _ = silent.accept()
        with connection:
            connection.recv(1)
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert b"Traceback" not in err


class Recovering(BaseHTTPRequestHandler):
    """A server whose database comes back after the first two requests."""

    requests = 0

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        type(self).requests += 1
        is_down = self.requests <= 2
        body = json.dumps(UNAVAILABLE if is_down else ENDED).encode()
        self.send_response(503 if is_down else 201)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        """Keep the output of the test clean."""


@contextlib.contextmanager
def recovering_server() -> Iterator[str]:
    Recovering.requests = 0
    with HTTPServer(("127.0.0.1", 0), Recovering) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_submit_waits_for_the_database_and_says_so_once(tmp_path):
    with recovering_server() as url:
        done = subprocess.run(
            [DULY, "submit", "--", "true"],
            env=environment(tmp_path, DULY_URL=url),
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
    assert (done.returncode, done.stdout) == (0, "submitted 17\n")
    assert done.stderr == "duly: The database is down. Trying again for up to 20 s.\n"
