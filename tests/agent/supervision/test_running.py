"""Attempts from start to end, with a real supervisor and real processes."""

import asyncio
import ctypes
import os
import re
import stat
from pathlib import Path

import pytest

from duly.agent.preparation import workspace
from duly.agent.preparation.task_users import UID_RANGES
from duly.agent.supervision.boot import PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL
from duly.agent.supervision.output import TRUNCATION_NOTICE
from duly.agent.supervision.spawner import MAX_PATH_FOLDERS
from duly.model.task import Outcome
from tests.agent.node import FIRST_PORT, is_alive, running
from tests.agent.preparation.test_unpack import entry, tar

HOG = "f() { head -c $1 /dev/zero | tail >/dev/null; }; f"
"""Holds as many bytes in memory as its argument says: tail looks for the ends of lines."""
BURN = "while [ $i -lt 100000 ]; do i=$((i + 1)); done"


@pytest.mark.parametrize(
    ("script", "outcome", "exit_code"),
    [
        ("exit 0", Outcome.SUCCEEDED, 0),
        ("exit 3", Outcome.FAILED, 3),
        ("exit 127", Outcome.FAILED, 127),
        ("kill -SEGV $$", Outcome.FAILED, 139),
        ("kill -KILL $$", Outcome.FAILED, 137),
    ],
)
async def test_an_exit_is_told_as_it_was(node, script, outcome, exit_code):
    report = await node.run("sh", "-c", script)
    assert (report.outcome, report.exit_code) == (outcome, exit_code)
    assert report.ran is not None and report.usage is not None
    assert 0 < report.usage.wall_seconds < 30


async def test_of_a_result_that_is_too_large_there_is_enough_to_tell(best_node):
    report = await best_node.run("sh", "-c", 'head -c 300000 /dev/zero > "$DULY_RESULT"')
    assert (len(report.result), report.result_limit) == (1024 + 1, 1024)


async def test_both_streams_come_in_the_order_written(best_node):
    report = await best_node.run("sh", "-c", "echo one; echo two >&2; echo three")
    assert report.tail == b"one\ntwo\nthree\n"
    assert report.log_size == 14


async def test_output_may_be_any_bytes(best_node):
    report = await best_node.run("printf", r"\377\376\000\n\200")
    assert report.tail == b"\xff\xfe\x00\n\x80"


async def test_arguments_may_be_any_text(best_node):
    report = await best_node.run("printf", "%s|", "søk", "a b", "", "'\"$x\\n", "\n", "日本")
    assert report.tail == "søk|a b||'\"$x\\n|\n|日本|".encode()


async def test_a_missing_program_is_named(node):
    report = await node.run("no-such-program-here")
    assert report.outcome is Outcome.FAILED
    assert report.exit_code == 127
    assert report.reason.code == "command_not_found"
    assert "no-such-program-here" in report.reason.message


async def test_a_file_that_is_no_program_cannot_be_executed(best_node):
    report = await best_node.run("/etc/passwd")
    assert (report.outcome, report.exit_code) == (Outcome.FAILED, 126)
    assert report.reason.code == "command_not_executable"


async def test_a_script_of_a_foreign_system_says_what_it_lacks(best_node):
    report = await best_node.run(source="#!/bin/sh\r\necho hi\r\n")
    assert report.exit_code == 127
    assert r"The interpreter '/bin/sh\r' of the script was not found" in report.reason.message


async def test_programs_are_found_in_the_path_of_the_task(best_node):
    report = await best_node.run("sh", "-c", "exit 0", env={"PATH": "/nowhere"})
    assert report.exit_code == 127


async def test_a_long_path_is_searched_up_to_its_bound_and_each_folder_once(best_node):
    near = ["/nowhere"] * 10_000 + [f"/nowhere/{n}" for n in range(MAX_PATH_FOLDERS - 2)]
    report = await best_node.run("sh", "-c", "exit 0", env={"PATH": ":".join([*near, "/bin"])})
    assert report.exit_code == 0
    far = [f"/{n}" for n in range(20_000)]
    report = await best_node.run("sh", "-c", "exit 0", env={"PATH": ":".join([*far, "/bin"])})
    assert report.exit_code == 127


async def test_a_command_line_of_a_megabyte_is_run(best_node):
    report = await best_node.run("sh", "-c", "echo $# ${#1}", "sh", *["x" * 100_000] * 10)
    assert report.tail == b"10 100000\n"


async def test_a_command_line_beyond_the_kernel_is_refused_with_a_reason(best_node):
    report = await best_node.run("true", *["x" * 130_000] * 30)
    assert (report.outcome, report.exit_code) == (Outcome.FAILED, 126)


async def test_a_script_is_run_from_its_text(best_node):
    report = await best_node.run(source="#!/bin/sh\necho from $0\nexit 4\n")
    assert report.exit_code == 4
    assert report.tail.startswith(b"from /")


async def test_a_script_without_an_interpreter_line_says_so(best_node):
    report = await best_node.run(source="echo hi\n")
    assert report.exit_code == 126
    assert "#!/bin/sh" in report.reason.message


async def test_a_script_on_the_node_is_run_in_place(best_node):
    script = best_node.data / "hello"
    script.write_text("#!/bin/sh\npwd; exit 5\n")
    script.chmod(0o755)
    report = await best_node.run(script_path=str(script))
    assert report.exit_code == 5
    assert report.tail.decode().startswith(str(best_node.work))
    missing = await best_node.run(script_path=str(best_node.data / "missing"))
    assert missing.exit_code == 127


async def test_the_environment_is_the_tasks_own_and_nothing_of_ours(node, monkeypatch):
    monkeypatch.setenv("DULY_SECRET_OF_THE_AGENT", "x")
    report = await node.run("env", "-0", env={"COLOUR": "blue", "LANG": "de_DE.UTF-8"}, ports=2)
    seen = dict(line.split("=", 1) for line in report.tail.decode().split("\0") if line)
    home = seen["HOME"]
    assert home.startswith(str(node.work))
    assert seen == {
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME": home,
        "LANG": "de_DE.UTF-8",
        "TMPDIR": home,
        "COLOUR": "blue",
        "DULY_TASK_ID": "1",
        "DULY_ATTEMPT": "1",
        "DULY_FENCING_TOKEN": "1",
        "DULY_IDEMPOTENCY_KEY": "key-1",
        "DULY_RESULT": f"{home}/result.json",
        "DULY_INPUTS": f"{node.work}/no-inputs",
        "DULY_SOCKET": node.socket,
        "DULY_PORTS": f"{FIRST_PORT},{FIRST_PORT + 1}",
    }


@pytest.mark.parametrize("kind", ["command", "source", "bundle"])
async def test_nothing_that_a_task_sees_of_its_node_is_a_count_of_attempts(best_node, kind):
    script = "#!/bin/sh\nenv; pwd; cat /proc/self/cgroup\n"
    options = {
        "command": {},
        "source": {"source": script, "inputs": {"first": b"1"}},
        "bundle": {"bundle": tar(entry("hello", script.encode(), mode=0o755))},
    }[kind]
    command = {"command": ("sh", "-c", script), "source": (), "bundle": ("./hello",)}[kind]
    for _ in range(2):
        ref = best_node.start(*command, **options)
        _, report = await best_node.end(ref)
        assert report.outcome is Outcome.SUCCEEDED
        seen = report.tail.decode()
        assert str(ref.token) not in seen
        folders = re.findall(rf"{best_node.work}/([^/\n]+)", seen)
        assert folders
        groups = re.findall(rf":.*/{best_node.mark}/(.+)", seen)
        assert bool(groups) == bool(best_node.layout.folders)
        for name in (*folders, *groups):
            assert name == "no-inputs" or re.fullmatch(r"[0-9a-f]{16}(\.inputs)?", name), name


async def test_the_fencing_token_of_a_task_is_that_of_its_own_attempts(node):
    report = await node.run("sh", "-c", "echo $DULY_ATTEMPT $DULY_FENCING_TOKEN")
    assert report.tail == b"1 1\n"


async def test_a_task_has_no_open_files_but_its_streams(best_node):
    report = await best_node.run(
        "sh", "-c", "ls /proc/self/fd; readlink /proc/self/fd/0; ulimit -c"
    )
    # ls itself has the folder open as 3.
    assert report.tail == b"0\n1\n2\n3\n/dev/null\n0\n"


async def test_a_task_begins_with_ordinary_signals_in_a_session_of_its_own(best_node):
    report = await best_node.run(
        "sh", "-c", "grep -E '^Sig(Blk|Ign)' /proc/self/status; ps -o sid= $$"
    )
    blocked, ignored, _ = report.tail.decode().splitlines()
    assert int(blocked.split()[1], 16) == 0
    # The C library keeps two signals for itself, which nobody can set back.
    assert int(ignored.split()[1], 16) & ~(0b11 << 31) == 0


async def test_a_task_is_never_root_and_gains_nothing(node):
    report = await node.run(
        "sh", "-c", "id -u; id -G; grep -E 'Uid|Gid|CapEff|CapPrm|NoNewPrivs' /proc/self/status"
    )
    uid, groups, uids, gids, permitted, effective, no_new = report.tail.decode().splitlines()
    assert int(uid) != 0 and "0" not in groups.split()
    # The real one, the effective one, the saved one and that for files.
    assert uids.split()[1:] == [uid] * 4
    assert "0" not in gids.split()[1:]
    if os.geteuid() == 0:
        assert int(permitted.split()[1], 16) == int(effective.split()[1], 16) == 0
    assert no_new.split()[1] == "1"


@pytest.fixture
def ambient():
    """Have capabilities that exec leaves to whoever is not root, as a service may be given them."""
    libc = ctypes.CDLL(None, use_errno=True)
    version, override = 0x20080522, 1 << 1
    header, found = (ctypes.c_uint32 * 2)(version, 0), (ctypes.c_uint32 * 6)()
    assert libc.capget(header, found) == 0
    before = list(found)
    found[2] |= override
    assert libc.capset(header, found) == 0
    assert libc.prctl(PR_CAP_AMBIENT, 2, 1, 0, 0) == 0
    yield
    assert libc.prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) == 0
    assert libc.capset(header, (ctypes.c_uint32 * 6)(*before)) == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has capabilities to leave")
@pytest.mark.usefixtures("ambient")
async def test_a_task_inherits_no_capabilities_from_the_agent():
    async with running("cgroup") as node:
        script = "grep -E 'CapEff|CapPrm|CapAmb' /proc/self/status; cat /etc/shadow > /dev/null"
        report = await node.run("sh", "-c", script)
    assert report.outcome is Outcome.FAILED
    for line in report.tail.decode().splitlines()[:3]:
        assert int(line.split()[1], 16) == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give attempts a user of their own")
async def test_each_attempt_has_a_user_of_its_own():
    async with running("cgroup") as node:
        uids = {(await node.run("id", "-u")).tail for _ in range(5)}
        assert len(uids) == 5
        assert all(int(uid) >= min(UID_RANGES)[0] for uid in uids)


async def test_the_workspace_is_private_and_gone_afterwards(best_node):
    report = await best_node.run(
        "sh", "-c", "stat -c '%a %u' . ; id -u; touch $TMPDIR/x a; mkdir b"
    )
    mode_and_owner, uid = report.tail.decode().splitlines()
    assert mode_and_owner == f"700 {uid}"
    for folder in best_node.left:
        workspace.remove(folder)
    assert [path.name for path in best_node.work.iterdir()] == ["no-inputs"]


async def test_the_result_is_read_when_the_attempt_succeeded(best_node):
    report = await best_node.run("sh", "-c", """echo '{"n": 1}' > "$DULY_RESULT" """)
    assert report.result == b'{"n": 1}\n'
    failed = await best_node.run("sh", "-c", """echo 1 > "$DULY_RESULT"; exit 1""")
    assert failed.result is None


@pytest.mark.parametrize(
    "trick",
    [
        'ln -s /etc/passwd "$DULY_RESULT"',
        'mkfifo "$DULY_RESULT"',
        'mkdir "$DULY_RESULT"',
        'echo 1 > x; ln x "$DULY_RESULT"',
    ],
)
async def test_only_a_plain_file_is_a_result(best_node, trick):
    report = await best_node.run("sh", "-c", trick)
    assert report.outcome is Outcome.SUCCEEDED
    # Nothing of what it leads to, but that there was something.
    assert report.result == b""


async def test_much_output_is_cut_with_a_notice_and_the_task_goes_on(best_node):
    script = "head -c 12000000 /dev/zero | tr '\\0' x; echo end >&2"
    report = await best_node.run("sh", "-c", script, log_limit=2**20)
    assert report.outcome is Outcome.SUCCEEDED
    assert report.log_size == 2**20
    assert report.tail.endswith(TRUNCATION_NOTICE)
    [spool] = (best_node.data / "spool").iterdir()
    kept = spool.read_bytes()
    assert len(kept) == 2**20
    assert kept.startswith(b"x" * 1000)
    assert stat.S_IMODE(spool.stat().st_mode) == 0o600


async def test_a_spool_is_gone_when_the_attempt_is_forgotten(best_node):
    ref = best_node.start("sh", "-c", "head -c 10000 /dev/zero")
    await best_node.end(ref)
    assert len(list((best_node.data / "spool").iterdir())) == 1
    best_node.attempts.forget(ref)
    assert list((best_node.data / "spool").iterdir()) == []


async def test_output_is_told_of_while_the_task_runs(best_node):
    ref = best_node.start("sh", "-c", "echo early; read _ < /dev/null; sleep 60")
    assert await best_node.outputs.get() == (ref, 6)
    [spool] = (best_node.data / "spool").iterdir()
    assert spool.read_bytes() == b"early\n"
    best_node.command("kill", ref)
    _, report = await best_node.end(ref)
    assert report.tail == b"early\n"


async def test_the_cap_ends_a_task_that_ignores_sigterm(node):
    report = await node.run(
        "sh", "-c", "trap '' TERM; while :; do sleep 1; done", cap=0.3, grace=0.3
    )
    assert (report.outcome, report.exit_code) == (Outcome.CAPPED, 137)
    assert report.reason.details["execution_cap"] == 0.3
    assert 0.6 <= report.ran < 5


async def test_a_task_may_use_its_grace(best_node):
    script = "trap 'echo saved; exit 0' TERM; while :; do sleep 0.05; done"
    report = await best_node.run("sh", "-c", script, cap=0.5, grace=20)
    assert (report.outcome, report.exit_code) == (Outcome.CAPPED, 0)
    assert report.tail.endswith(b"saved\n")


async def test_a_daemon_that_hides_is_killed_with_its_task(node, doorbell):
    daemon = f"setsid sh -c 'trap : TERM; echo $$ > {doorbell.path}; while :; do sleep 9; done'"
    ref = node.start("sh", "-c", f"({daemon} &) & sleep 1000")
    daemon = int(await doorbell.ring())
    assert is_alive(daemon)
    node.command("terminate", ref)
    _, report = await node.end(ref, Outcome.CANCELLED)
    assert report.outcome is Outcome.CANCELLED
    assert not is_alive(daemon)


async def test_an_exit_is_told_only_when_nothing_is_left(node, doorbell):
    ref = node.start("sh", "-c", f"setsid sh -c 'echo $$ > {doorbell.path}; sleep 1000' & sleep 1")
    left = int(await doorbell.ring())
    _, report = await node.end(ref)
    assert report.outcome is Outcome.SUCCEEDED
    assert not is_alive(left)


async def test_a_cancel_during_the_very_start_takes_effect(node):
    for turn in range(10):
        ref = node.start("sleep", "1000", grace=20)
        if turn % 2:
            await asyncio.sleep(0)  # The order to start leaves by itself, and not with the next.
        node.command("terminate", ref)
        _, report = await node.end(ref, Outcome.CANCELLED)
        assert report.outcome is Outcome.CANCELLED
        assert report.exit_code in ((None, 143) if turn % 2 else (None,))


async def test_a_file_beyond_the_disk_that_was_promised_ends_the_attempt(node):
    report = await node.run("dd", "if=/dev/zero", "of=big", "bs=1M", "count=3", disk_mb=2)
    assert (report.outcome, report.reason.code) == (Outcome.OVERUSED, "disk_exceeded")
    fits = await node.run("dd", "if=/dev/zero", "of=big", "bs=1M", "count=2", disk_mb=2)
    assert fits.outcome is Outcome.SUCCEEDED


async def test_memory_beyond_the_limit_ends_the_attempt(needs_memory_controller):
    async with running("cgroup") as node:
        report = await node.run("sh", "-c", f"{HOG} 200000000", memory_mb=50)
        assert report.outcome is Outcome.OVERUSED
        assert report.reason.code == "memory_exceeded"
        assert report.reason.details["memory_mb"] == 50
        assert report.usage.peak_memory_mb == pytest.approx(50, abs=1)
        after = await node.run("true", memory_mb=50)
        assert after.outcome is Outcome.SUCCEEDED
        assert after.usage.peak_memory_mb < 20


async def test_a_fork_bomb_is_bounded_and_dies_at_its_cap(node):
    if not (node.layout.folders or node.users.own_uids):
        pytest.skip("without cgroups and users of its own nothing bounds it")
    bomb = "f() { f | f & f; }; f 2>/dev/null & exec sleep 1000"
    # With less memory it may end by that, if the machine is quick enough.
    report = await node.run("sh", "-c", bomb, cap=0.5, grace=0, memory_mb=4096)
    assert report.outcome is Outcome.CAPPED
    assert (await node.run("true")).outcome is Outcome.SUCCEEDED


async def test_use_is_measured(node):
    report = await node.run("sh", "-c", f"{HOG} 60000000; i=0; {BURN}")
    assert 0.02 < report.usage.cpu_seconds < 10
    assert 50 <= report.usage.peak_memory_mb < 200


async def test_the_memory_of_a_spawner_is_not_taken_for_that_of_its_task():
    async with running("uid") as node:
        small = await node.run("true")
        assert (small.outcome, small.usage.peak_memory_mb) == (Outcome.SUCCEEDED, None)
        large = await node.run("sh", "-c", f"{HOG} 60000000")
        assert 50 <= large.usage.peak_memory_mb < 200


async def test_an_attempt_that_cannot_be_prepared_fails_with_a_reason(best_node):
    report = await best_node.run("true", ports=100)
    assert report.outcome is Outcome.FAILED
    assert report.reason.code == "not_prepared"
    assert (await best_node.run("true", ports=10)).outcome is Outcome.SUCCEEDED


async def test_many_attempts_run_side_by_side(node):
    refs = [node.start("sh", "-c", f"echo {number}") for number in range(60)]
    ends = [await node.end(ref) for ref in refs]
    assert [report.tail for _, report in ends] == [b"%d\n" % number for number in range(60)]


async def test_the_supervisor_stays_lean(best_node):
    await best_node.run("true")
    status = Path(f"/proc/{best_node.supervisor}/status").read_text()
    assert "Threads:\t1\n" in status
    maps = Path(f"/proc/{best_node.supervisor}/maps").read_text()
    assert not any(name in maps for name in ("msgspec", "aiohttp", "ctypes", "_ssl"))


@pytest.mark.parametrize("log_limit", [2**12, 2**30], ids=["full", "not full"])
async def test_who_writes_without_end_waits_instead_of_keeping_the_supervisor_busy(
    best_node, log_limit
):
    await best_node.run("true")
    before = cpu_of(best_node.supervisor)
    report = await best_node.run("timeout", "1", "yes", log_limit=log_limit)
    assert report.exit_code == 124
    assert cpu_of(best_node.supervisor) - before < 0.15


def cpu_of(pid):
    """Return the seconds of processor time that a process has had."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
