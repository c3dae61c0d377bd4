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

from tests.launch.running_up import until

DULY = str(Path(sys.executable).with_name("duly"))
ENDED = {"id": "17", "status": "waiting", "ready_at": None}
UNAVAILABLE = {"error": {"code": "unavailable", "message": "The database is down.", "details": {}}}


def environment(folder: Path, **more: str) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "HOME": str(folder), "DULY_KEY": "k", **more}


def mind_interrupts() -> None:
    # A test run in the background ignores SIGINT, and its children would inherit that.
    signal.signal(signal.SIGINT, signal.SIG_DFL)


STUBBORN = """
import signal
while True:
    try:
        print("{said}", flush=True)
        signal.pause()
    except BaseException:
        pass  # As in libraries that catch everything while they are imported.
"""
TORN = """
import signal
print("{said}", flush=True)
signal.pause()
"""
LEAVING = """
import atexit, signal
def leave():
    print("leaving", flush=True)
    signal.pause()
atexit.register(leave)
"""


def interrupted(folder, command, said, **more):
    """Interrupt a command once it has said something; return its exit code and its errors."""
    with subprocess.Popen(
        [DULY, *command],
        env=environment(folder, PYTHONPATH=str(folder), **more),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=mind_interrupts,
    ) as process:
        try:
            assert process.stdout.readline() == f"{said}\n".encode()
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=30)
        finally:
            process.kill()
    assert b"Traceback" not in errors
    return process.returncode, errors.decode()


@pytest.mark.parametrize("library", [STUBBORN, TORN])
def test_ctrl_c_while_modules_are_imported(tmp_path, library):
    (tmp_path / "typer.py").write_text(library.format(said="importing"))
    assert interrupted(tmp_path, ["list"], "importing") == (130, "")


@pytest.mark.parametrize("command", [["list"], ["--help"], ["up"], ["run", "--", "true"]])
def test_ctrl_c_while_arguments_are_parsed_and_commands_imported(tmp_path, command):
    module = {"--help": "shutil", "up": "asyncio"}.get(command[0], "json")
    source = TORN.format(said="parsing")
    (tmp_path / f"{module}.py").write_text(source)
    assert interrupted(tmp_path, command, "parsing") == (130, "")


def test_ctrl_c_while_the_interpreter_shuts_down(tmp_path):
    (tmp_path / "sitecustomize.py").write_text(LEAVING)
    assert interrupted(tmp_path, ["link", "--data", str(tmp_path)], "leaving")[0] == 130


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


class Long(BaseHTTPRequestHandler):
    """A server with a list that fills a pipe several times."""

    def do_GET(self) -> None:
        items = [{**ENDED, "id": str(number), "name": "x" * 1000} for number in range(1000)]
        body = json.dumps({"items": items, "next_cursor": None}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        """Keep the output of the test clean."""


def test_ctrl_c_while_nobody_reads_the_output(tmp_path):
    with (
        serving(Long) as url,
        subprocess.Popen(
            [DULY, "list", "--output", "jsonl"],
            env=environment(tmp_path, DULY_URL=url),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            preexec_fn=mind_interrupts,
        ) as process,
    ):
        try:
            until(lambda: is_writing(process.pid), "the pipe to be full")
            process.send_signal(signal.SIGINT)
            # Nobody reads the pipe before the end.
            assert (process.wait(30), process.stderr.read()) == (130, b"")
        finally:
            process.kill()


class Hesitant(BaseHTTPRequestHandler):
    """A server that cancels one task, and does not answer for the next one before `leave`."""

    is_asked = threading.Event()
    leave = threading.Event()

    def do_POST(self) -> None:
        if "/18/" in self.path:
            self.is_asked.set()
            self.leave.wait(30)
            return
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps({**ENDED, "status": "cancelled"}).encode())

    def log_message(self, *args: object) -> None:
        """Keep the output of the test clean."""


@pytest.mark.parametrize("has_reader", [True, False])
def test_ctrl_c_half_way_tells_what_was_done_if_anybody_reads(tmp_path, has_reader):
    for event in (Hesitant.is_asked, Hesitant.leave):
        event.clear()
    with (
        serving(Hesitant) as url,
        subprocess.Popen(
            [DULY, "cancel", "17", "18"],
            env=environment(tmp_path, DULY_URL=url),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            preexec_fn=mind_interrupts,
        ) as process,
    ):
        try:
            assert Hesitant.is_asked.wait(30)
            if not has_reader:
                process.stdout.close()
            process.send_signal(signal.SIGINT)
            assert (process.wait(30), process.stderr.read()) == (130, b"")
            assert not has_reader or process.stdout.read() == b"Task 17 cancelled.\n"
        finally:
            Hesitant.leave.set()
            process.kill()


def is_writing(pid: int) -> bool:
    """Say whether a process waits in a write to its standard output."""
    number = {"x86_64": "1", "aarch64": "64"}[os.uname().machine]
    return Path(f"/proc/{pid}/syscall").read_text().startswith(f"{number} 0x1 ")


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
def serving(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_submit_waits_for_the_database_and_says_so_once(tmp_path):
    with serving(Recovering) as url:
        done = subprocess.run(
            [DULY, "submit", "--", "true"],
            env=environment(tmp_path, DULY_URL=url),
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
    assert (done.returncode, done.stdout) == (0, "Task 17 submitted.\n")
    assert done.stderr == "duly: The database is down. Trying again for up to 20 s.\n"
