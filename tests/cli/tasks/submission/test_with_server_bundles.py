"""Bundles, from the folder on this machine to what a task finds on its node."""

import hashlib
import json
import shutil
import urllib.request
from pathlib import Path

import pytest

from duly.errors import Invalid
from tests.agent.preparation.test_unpack import entry, tar

RUN = """#!/bin/sh
cat data/greeting; echo "$1"
echo changed > data/greeting
exit 7
"""


@pytest.fixture
def job(tmp_path: Path) -> Path:
    folder = tmp_path / "job"
    (folder / "data").mkdir(parents=True)
    (folder / "run.sh").write_text(RUN)
    (folder / "run.sh").chmod(0o755)
    (folder / "data/greeting").write_text("hello ü\n", encoding="utf-8")
    return folder


def cached(server):
    """Return the files of what the node has fetched."""
    return set(server.data.glob("**/bundles/*/*"))


def test_a_task_runs_in_its_bundle_which_is_sent_and_fetched_once(server, job: Path):
    (job / "data/mark").write_text("of this test")
    before = cached(server)
    done = server.duly("run", "--bundle", str(job), "--", "./run.sh", "one")
    assert (done.returncode, done.stdout) == (7, "hello ü\none\n")
    (file,) = cached(server) - before
    inode = file.stat().st_ino
    listed = json.loads(server.duly("artifact", "list", "-o", "json").stdout)["items"]
    assert file.name in [one["sha256"] for one in listed]
    # Packed elsewhere it is the same, and the first task has changed its own copy only.
    shutil.copytree(job, job.parent / "copy")
    done = server.duly("run", "--bundle", str(job.parent / "copy"), "--", "./run.sh", "two")
    assert (done.returncode, done.stdout) == (7, "hello ü\ntwo\n")
    assert [path.stat().st_ino for path in cached(server) - before] == [inode]


def test_a_manifest_names_bundles_beside_it(server, job: Path):
    (job / "count.sh").write_text('#!/bin/sh\nwc -l < run.sh > "$DULY_RESULT"\n')
    (job / "count.sh").chmod(0o755)
    (job.parent / "jobs.yaml").write_text(
        "defaults: {bundle: ./job, max_attempts: 1}\n"
        "tasks:\n"
        "  count: {command: [./count.sh]}\n"
        "  also: {run: test ! -e run.sh}\n"
        '  sum: {command: [sh, -c, "cat data/greeting $DULY_INPUTS/count.json"], '
        "depends_on: [count, also]}\n"
    )
    done = server.duly("submit", "-f", str(job.parent / "jobs.yaml"), "--wait", cwd="/")
    assert (done.returncode, done.stderr) == (0, "3 of 3 tasks done\n")
    assert server.duly("logs").stdout == "hello ü\n4\n"


def test_a_schedule_brings_its_bundle_along_and_keeps_it(server, job: Path):
    (job / "data/greeting").write_text("again\n")
    when = ("schedule", "create", "--daily", "06:30", "--max-attempts", "1", "-o", "id")
    schedule = server.duly(*when, "--bundle", str(job), "--", "./run.sh", "x").stdout.strip()
    assert server.duly("schedule", "run", schedule).returncode == 0
    assert server.duly("wait").returncode == 7
    assert server.duly("logs").stdout == "again\nx\n"
    (sha256,) = (
        line.split()[-1] for line in server.duly("show").stdout.splitlines() if "bundle" in line
    )
    refused = server.duly("artifact", "remove", sha256)
    assert (refused.returncode, refused.stdout) == (1, "")
    (job / "data/greeting").write_text("once more\n")
    assert server.duly("schedule", "update", schedule, "--bundle", str(job)).returncode == 0
    assert server.duly("schedule", "run", schedule).returncode == 0
    assert server.duly("wait").returncode == 7
    assert server.duly("logs").stdout == "once more\nx\n"
    done = server.duly("artifact", "remove", sha256)
    assert (done.returncode, done.stdout) == (0, f"Artifact {sha256} removed.\n")
    assert sha256 not in server.duly("artifact", "list").stdout
    assert server.duly("schedule", "remove", schedule).returncode == 0


def test_what_is_wrong_with_a_bundle_is_told_before_anything_is_sent(server, job: Path):
    for args, told in (
        (
            ("--bundle", "job", "--", "./walk.sh"),
            "COMMAND: './walk.sh' is not in the bundle 'job', in which the command runs.",
        ),
        (("--bundle", "job", "--", "data/greeting"), "chmod +x"),
        (("--bundle", "job", "--", "run.sh"), "write ./run.sh"),
        (("--bundle", "nowhere", "--", "true"), "'nowhere' does not exist"),
        (
            ("--bundle", "job"),
            "There is nothing to run. Give a command, such as: duly submit -- echo hello",
        ),
        (("--bundle", "job", "--script", "job/run.sh"), "needs a COMMAND"),
        (("./job/run.sh",), "--bundle FOLDER"),
    ):
        done = server.duly("submit", *args, cwd=job.parent)
        assert (done.returncode, done.stdout) == (2, "")
        assert told in " ".join(done.stderr.replace("│", " ").split())
    (job / "link").symlink_to("run.sh")
    done = server.duly("submit", "--bundle", "job", "--", "./run.sh", cwd=job.parent)
    assert done.returncode != 0
    assert "'link' is a symbolic link" in done.stderr


def test_a_hash_that_was_never_uploaded_is_refused(server):
    with server.client() as client, pytest.raises(Invalid, match="there is no artifact '00"):
        client.submit(command=["true"], artifact="00" * 32)


def test_an_archive_that_no_node_would_take_says_so(server):
    """What was uploaded past the client's own look."""
    data = tar(entry("../x", b"1"))
    sha256 = hashlib.sha256(data).hexdigest()
    url, headers = f"{server.url}/v1/artifacts/{sha256}", {"Authorization": f"Bearer {server.key}"}
    request = urllib.request.Request(url, data=data, method="PUT", headers=headers)
    with urllib.request.urlopen(request) as answered:
        assert answered.status == 201
    with server.client() as client:
        task = client.wait(client.submit(command=["true"], artifact=sha256, max_attempts=1)["id"])
    assert (task["status"], task["reason"]["code"]) == ("failed", "artifact_invalid")
    assert "'../x' leads out of the bundle" in task["reason"]["message"]
