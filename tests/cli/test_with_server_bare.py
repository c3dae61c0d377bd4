"""What `pip install duly` brings: the client and the command line, without the server."""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MAX_INSTALLED_BYTES = 30_000_000
UNREACHABLE_INDEX = "(from versions: none)"
NEED_THE_SERVER = ("up", "serve", "agent --url http://h --data d", "dashboard --url http://h")

pytestmark = pytest.mark.timeout(300)  # the first test waits for the package index


@pytest.fixture(scope="module")
def bare():
    """A virtual environment with the plain package of this tree, as pip installs it."""
    folder = Path(tempfile.mkdtemp(prefix="duly-test-bare-"))
    venv = folder / "venv"
    pip("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", folder, ROOT)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    (wheel,) = folder.glob("duly-*.whl")
    pins = folder / "pins.txt"
    pins.write_text(locked_versions())
    pip("--python", venv / "bin" / "python", "install", "--constraint", pins, wheel)
    yield venv
    shutil.rmtree(folder)


def locked_versions():
    """Return the locked versions without their hashes, which pip would ask of our wheel, too."""
    lines = (ROOT / "requirements.lock").read_text().splitlines()
    return "\n".join(line.rstrip(" \\") for line in lines if not line.startswith(" "))


def pip(*args):
    """Run this environment's pip; without a package index there is nothing to test."""
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", *args]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if UNREACHABLE_INDEX in done.stderr:
        pytest.skip("the package index cannot be reached")
    assert done.returncode == 0, done.stderr


def run(server, command, *args):
    """Run a program as the user of `server`, and return how it ended."""
    return subprocess.run(
        [command, *args],
        env=server.environment,
        cwd=server.home,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_the_plain_package_is_small(bare):
    files = [file for file in bare.rglob("*") if file.is_file() and not file.is_symlink()]
    assert sum(file.stat().st_size for file in files) <= MAX_INSTALLED_BYTES


def test_every_command_loads_without_the_server_part(bare, server):
    program = (
        "from duly.cli.main import *\nfor name in COMMANDS: load_command(name, COMMANDS[name])"
    )
    done = run(server, bare / "bin" / "python", "-c", program)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_program_submits_and_waits(bare, server):
    program = """
import asyncio, duly

with duly.Client() as client:
    task = client.submit(command=["true"])
    print(client.wait(task["id"], timeout=30)["status"])

async def main():
    async with duly.AsyncClient() as client:
        task = await client.submit(command=["false"], max_attempts=1)
        print((await client.wait(task["id"], timeout=30))["status"])

asyncio.run(main())
"""
    done = run(server, bare / "bin" / "python", "-c", program)
    assert (done.stdout, done.stderr) == ("done\nfailed\n", "")


def test_the_command_line_submits_and_waits(bare, server):
    duly = bare / "bin" / "duly"
    assert run(server, duly, "run", "--", "echo", "hello").stdout == "hello\n"
    submitted = run(server, duly, "submit", "--output", "id", "--", "sh", "-c", "exit 3")
    assert run(server, duly, "wait", submitted.stdout.strip()).returncode == 3
    assert submitted.stdout.strip() in run(server, duly, "list").stdout


@pytest.mark.parametrize("command", [*NEED_THE_SERVER, "db status --database x", "doctor"])
def test_a_command_that_needs_the_server_says_what_to_install(bare, server, command):
    name, *args = command.split()
    done = run(server, bare / "bin" / "duly", name, *args)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        f"duly: 'duly {name}' needs the server part of Duly, which is not installed. "
        "Install Duly with it: pip install '.[server]' in Duly's folder.\n"
    )
