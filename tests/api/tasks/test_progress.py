"""Progress from a task's socket to the API, with a real agent and a real server."""

import asyncio
import json
import logging
import os
import shutil
from pathlib import Path

import pytest

from duly.model import attempt_key
from tests.agent.node import Doorbell, new_data
from tests.api.agents import running_agent

PERL = shutil.which("perl")
pytestmark = pytest.mark.skipif(PERL is None, reason="tasks here speak Perl")
SCRIPT = """#!{perl}
use IO::Socket::UNIX;
$| = 1;
my $s = IO::Socket::UNIX->new($ENV{{DULY_SOCKET}}) or die $!;
sub tell_it {{ print $s "$_[0]\\n"; $s->flush; print scalar <$s>; }}
open my $bell, '>', '{doorbell}'; print $bell "$$\\n"; close $bell;
open my $gate, '<', '{gate}';
tell_it('{{"progress": 0.25, "text": "first"}}');
<$gate>;
tell_it("{{\\"progress\\": 0.$_}}") for (11..99);
<$gate>;
exit 3;
"""


@pytest.fixture
def gate():
    """A named pipe that lets a task go on, a line for each time."""
    folder = new_data()
    path = folder / "gate"
    os.mkfifo(path)
    path.chmod(0o666)
    fd = os.open(path, os.O_RDWR)
    yield path, lambda: os.write(fd, b"go\n")
    os.close(fd)
    shutil.rmtree(folder)


@pytest.fixture
def doorbell():
    folder = new_data()
    made = Doorbell(folder)
    yield made
    made.close()
    folder.rmdir()


async def until_shown(real, task, fraction):
    async with asyncio.timeout(60):
        while True:
            told = (await real.get(f"/v1/tasks/{task}"))["progress"]
            if told is not None and told["fraction"] == fraction:
                return told
            await asyncio.sleep(0.02)


async def test_what_a_task_says_is_shown_while_it_runs_and_its_key_is_nowhere(
    real, gate, doorbell, caplog, monkeypatch
):
    caplog.set_level(logging.DEBUG)
    minted, mint = [], attempt_key.mint
    monkeypatch.setattr(attempt_key, "mint", lambda *ref: minted.append(mint(*ref)) or minted[-1])
    path, let_go = gate
    script = SCRIPT.format(perl=PERL, doorbell=doorbell.path, gate=path)
    async with running_agent(real) as data:
        task = (await real.submit(command=None, source=script, max_attempts=1))["id"]
        pid = int(await doorbell.ring())
        assert (await until_shown(real, task, 0.25))["text"] == "first"
        let_go()
        # The last of a flood, however little of the rest was passed on.
        assert (await until_shown(real, task, 0.99))["text"] is None
        secret = minted[0].rpartition("_")[2].encode()
        seen = b"".join(Path(f"/proc/{pid}/{what}").read_bytes() for what in ("environ", "cmdline"))
        assert b"DULY_SOCKET=" in seen
        kept = b"".join(file.read_bytes() for file in data.rglob("*") if file.is_file())
        assert secret not in seen + kept
        let_go()
        ended = await real.get(f"/v1/tasks/{task}?wait=20")
        assert (ended["status"], ended["exit_code"], ended["progress"]) == ("failed", 3, None)
        log = (await real.call("GET", f"/v1/tasks/{task}/logs")).text
        assert [json.loads(line) for line in log.splitlines()] == [{"ok": True}] * 90
        late = await real.call(
            "PUT",
            "/v1/attempt/progress",
            json={"fraction": 1},
            headers={"authorization": f"Bearer {minted[0]}"},
        )
        assert late.status_code == 401
    assert len(minted) == 1
    assert secret.decode() not in caplog.text
