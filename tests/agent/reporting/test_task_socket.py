"""What tasks say through their socket, and who else tries to."""

import asyncio
import json
import os
import shutil
import socket
import stat
from pathlib import Path

import pytest

from duly.agent.local_attempt import LocalAttempt
from duly.agent.reporting import task_protocol, task_rate, task_socket
from duly.agent.reporting.peer_credentials import Caller
from duly.agent.reporting.task_socket import TaskSocket, listen
from duly.model.progress import Progress
from duly.wire import AttemptRef
from tests.agent.node import new_data

REF = AttemptRef(1, 1, 10)
TALK = (
    "use IO::Socket::UNIX; my $s = IO::Socket::UNIX->new($ENV{DULY_SOCKET}) or die $!;"
    'for (@ARGV) { print $s "$_\n"; $s->flush; print scalar <$s>; }'
)
needs_perl = pytest.mark.skipif(shutil.which("perl") is None, reason="tasks here speak Perl")


def saying(fraction, text):
    return json.dumps({"progress": fraction, "text": text})


@needs_perl
async def test_every_attempt_speaks_for_itself(node, doorbell):
    wait = f"read x < {doorbell.path}"
    refs = [
        node.start("sh", "-c", f"perl -e '{TALK}' '{saying(0.5, name)}'; {wait}")
        for name in ("one", "two")
    ]
    async with asyncio.timeout(30):
        while len(node.said) < 2:
            await asyncio.sleep(0.01)
    assert sorted(node.said, key=lambda one: one[0].task) == [
        (refs[0], Progress(0.5, "one")),
        (refs[1], Progress(0.5, "two")),
    ]
    for ref in refs:
        node.command("kill", ref)
        await node.end(ref)


@needs_perl
async def test_a_child_speaks_for_its_attempt_whatever_its_environment(node):
    script = f"env -i DULY_SOCKET=$DULY_SOCKET perl -e '{TALK}' '{saying(1, 'child')}'; exit 0"
    ref = node.start("sh", "-c", script)
    _, report = await node.end(ref)
    assert report.tail == task_protocol.OK
    assert node.said == [(ref, Progress(1, "child"))]


@needs_perl
async def test_each_line_is_answered_in_turn(best_node):
    asked = [saying(0.1, "a"), "nonsense", '{"stage": "x"}', saying(0.2, "b")]
    report = await best_node.run("perl", "-e", TALK, *asked)
    told = [json.loads(line) for line in report.tail.splitlines()]
    assert [one.get("ok") or one["error"]["code"] for one in told] == [
        True, "malformed", "invalid", True,
    ]  # fmt: skip
    assert [progress.text for _, progress in best_node.said] == ["a", "b"]


async def test_a_process_of_no_attempt_is_sent_away(node):
    ref = node.start("sleep", "1000")
    with socket.socket(socket.AF_UNIX) as stranger:
        stranger.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(stranger, node.socket)
        answer = await loop.sock_recv(stranger, 4096)
        assert json.loads(answer)["error"]["code"] == "forbidden"
        assert await loop.sock_recv(stranger, 4096) == b""
    node.command("kill", ref)
    await node.end(ref)
    assert node.said == []


async def test_the_socket_is_open_to_tasks_and_gone_afterwards(best_node):
    mode = stat.S_IMODE(Path(best_node.socket).stat().st_mode)
    assert mode == (0o666 if best_node.users.runs_as_others else 0o600)
    if best_node.users.own_uids:
        report = await best_node.run("sh", "-c", 'test -S "$DULY_SOCKET" && env')
        assert report.exit_code == 0
        assert b"dulyattempt_" not in report.tail


def test_where_there_can_be_no_socket_there_is_none_or_another(tmp_path, caplog):
    deep = tmp_path / ("x" * 120)
    deep.mkdir()
    found = listen(deep / "work", "duly-test", everybody=False)
    assert "no socket for tasks" in caplog.text
    if os.geteuid() != 0:
        assert found is None
        return
    with found:
        path = Path(found.getsockname())
        assert path == Path("/var/lib/duly/socket-duly-test")
        path.unlink()


class Talk:
    """A socket on which everybody counts as one attempt, and its other end."""

    def __init__(self, folder):
        self.local = LocalAttempt(REF, 1, "", 60.0, 0)
        self.said = []
        self.callers = []
        listener = listen(folder / "work", "none", everybody=False)
        self.path = Path(listener.getsockname())
        self.socket = TaskSocket(listener, self.find, lambda _, said: self.said.append(said))

    def find(self, caller):
        self.callers.append(caller)
        return self.local

    async def connect(self):
        return await asyncio.open_unix_connection(str(self.path))


@pytest.fixture
async def talk():
    folder = new_data()
    made = Talk(folder)
    with made.socket:
        yield made
    assert not made.path.exists()
    folder.rmdir()


async def test_who_calls_is_told_by_the_kernel(talk):
    reader, writer = await talk.connect()
    writer.write_eof()
    assert await reader.read() == b""
    assert talk.callers == [Caller(os.getpid(), os.geteuid())]
    writer.close()


async def test_a_line_without_an_end_counts_when_nothing_more_comes(talk):
    reader, writer = await talk.connect()
    writer.write(b'{"progress": 0.1}\n{"progress": 0.2}')
    writer.write_eof()
    assert await reader.read() == task_protocol.OK * 2
    assert talk.said == [Progress(0.1), Progress(0.2)]
    writer.close()


async def test_a_line_that_is_too_long_is_refused_once_and_the_next_one_heard(talk):
    reader, writer = await talk.connect()
    for size in (task_protocol.MAX_LINE_BYTES, 10 * task_protocol.MAX_LINE_BYTES):
        writer.write(b'{"progress": 0.1}\n' + b"x" * size + b'\n{"progress": 0.2}\n')
        answers = [await reader.readline() for _ in range(3)]
        assert (answers[0], answers[2]) == (task_protocol.OK, task_protocol.OK)
        assert json.loads(answers[1])["error"]["code"] == "too_large"
    writer.close()


async def test_an_attempt_that_is_over_is_not_heard_any_more(talk):
    reader, writer = await talk.connect()
    writer.write(b'{"progress": 0.1}\n')
    assert await reader.readline() == task_protocol.OK
    talk.local.ended_at = 1.0
    writer.write(b'{"progress": 0.2}\n')
    assert json.loads(await reader.readline())["error"]["code"] == "forbidden"
    assert talk.said == [Progress(0.1)]
    writer.close()


async def test_connections_are_few_and_free_again_when_closed(talk):
    open_ones = [await talk.connect() for _ in range(task_rate.MAX_CONNECTIONS)]
    reader, refused = await talk.connect()
    assert json.loads(await reader.read())["error"]["code"] == "limit_exceeded"
    refused.close()
    for reader, writer in open_ones:
        writer.write_eof()
        assert await reader.read() == b""
        writer.close()
    assert talk.local.rate_limiter.connections == 0
    reader, writer = await talk.connect()
    writer.write(b'{"progress": 0.3}\n')
    assert await reader.readline() == task_protocol.OK
    writer.close()


async def test_who_connects_in_a_loop_is_closed_unheard(talk, monkeypatch):
    monkeypatch.setattr(task_socket, "MAX_CONNECTS_PER_USER", 10)
    connects = min(2000, int(Path("/proc/sys/net/core/somaxconn").read_text()))
    for _ in range(connects):
        # Without a turn of the agent: each waits in the backlog, though it is closed already.
        with socket.socket(socket.AF_UNIX) as client:
            client.setblocking(False)
            client.connect(str(talk.path))
    with socket.socket(socket.AF_UNIX) as last:
        last.setblocking(False)
        last.connect(str(talk.path))
        assert await asyncio.get_running_loop().sock_recv(last, 4096) == b""
    assert 10 <= len(talk.callers) < connects / 10


async def test_who_takes_no_answers_is_not_listened_to(talk, monkeypatch):
    monkeypatch.setattr(task_rate, "MAX_LINES_PER_SECOND", 10**9)
    loop = asyncio.get_running_loop()
    line, asked, heard = b"{}\n", 0, b""
    with socket.socket(socket.AF_UNIX) as client:
        client.setblocking(False)
        await loop.sock_connect(client, str(talk.path))
        # Until both directions are full, whatever the agent does meanwhile.
        quiet = 0
        while quiet < 50:
            try:
                asked += client.send(line * 100)
                quiet = 0
            except BlockingIOError:
                quiet += 1
            await asyncio.sleep(0)
        assert asked < 50 * 2**20
        client.shutdown(socket.SHUT_WR)
        while data := await loop.sock_recv(client, 2**20):
            heard += data
    answers = heard.splitlines()
    assert len(answers) == -(-asked // len(line))
    assert {json.loads(one)["error"]["code"] for one in set(answers)} <= {"invalid", "malformed"}
