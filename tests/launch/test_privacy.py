"""What others on the machine can read of what our processes keep: nothing."""

import json
import os
import stat
import subprocess

import pytest

from tests.launch.place import Place
from tests.launch.running_up import DULY

NOBODY = 65_534
SECRET = "what-only-its-tenant-may-read"

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")


@pytest.fixture
def place(open_folder, dsn):
    return Place(open_folder, dsn)


def read_by_nobody(folder):
    """Return what somebody without any rights can read or list below a folder."""
    search = subprocess.run(
        ["find", str(folder), "-readable"], user=NOBODY, group=NOBODY, extra_groups=[], cwd="/",
        capture_output=True, text=True,
    )  # fmt: skip
    return search.stdout.splitlines()


def modes_below(folder):
    kinds = {stat.S_IFDIR: "folders", stat.S_IFREG: "files"}
    status = [path.lstat() for path in (folder, *folder.rglob("*"))]
    return {
        (kinds.get(stat.S_IFMT(entry.st_mode)), oct(stat.S_IMODE(entry.st_mode)))
        for entry in status
    }


def run(place, url, *arguments):
    return subprocess.run(
        [DULY, "run", "--cpu", "0.1", "--memory", "32MiB", *arguments],
        env=place.env | {"DULY_URL": url}, capture_output=True, text=True, timeout=60,
        cwd=place.folder,
    )  # fmt: skip


def test_neither_a_task_nor_a_stranger_reads_the_store(place):
    job = place.folder / "job"
    job.mkdir()
    (job / "data").write_text(SECRET)
    with place.server(None) as url, place.start(*place.agent(url)) as agent:
        assert agent.stdout.readline() == "joined\n"
        done = run(place, url, "--bundle", "job", "--", "cat", "data")
        assert (done.returncode, done.stdout.strip()) == (0, SECRET), done.stderr
        store = place.folder / "store"
        spy = run(place, url, "--", "sh", "-c", f"grep -rs {SECRET} {store} || ls {store}")
        assert (spy.returncode != 0, SECRET in spy.stdout) == (True, False)
        assert modes_below(store) == {("folders", "0o700"), ("files", "0o600")}
        assert read_by_nobody(store) == []


@pytest.mark.parametrize("is_closed", [False, True])
def test_a_task_reaches_what_is_its_own_and_nothing_else_of_the_node(place, is_closed):
    above = place.folder / "above"
    above.mkdir()
    above.chmod(0o700 if is_closed else 0o755)
    node = above / "node"
    script = """
        umask
        cat data "$DULY_INPUTS"/*.json
        test -w "$DULY_SOCKET" && echo socket
        while IFS=: read -r _ _ group; do
            for top in /sys/fs/cgroup /sys/fs/cgroup/*; do
                test -d "$top$group" && test "$group" != / && cd "$top$group" && echo group
            done
        done < /proc/self/cgroup | sort -u
    """
    (place.folder / "job").mkdir()
    (place.folder / "job" / "data").write_text("bundle\n")
    manifest = {
        "name": "both",
        "defaults": {"resources": {"cpu": 0.1, "memory": "32MiB"}},
        "tasks": {
            "first": {"command": ["sh", "-c", "echo '\"input\"' > $DULY_RESULT"]},
            "second": {
                "command": ["sh", "-c", script], "bundle": "./job", "depends_on": ["first"],
            },
        },
    }  # fmt: skip
    (place.folder / "both.yaml").write_text(json.dumps(manifest))
    with (
        place.server(None) as url,
        place.start(*place.agent(url, "--data", str(node))) as agent,
    ):
        assert agent.stdout.readline() == "joined\n"
        env = place.env | {"DULY_URL": url}
        submit = [DULY, "submit", "-f", "both.yaml", "--wait", "--output", "json"]
        done = subprocess.run(submit, env=env, capture_output=True, text=True, cwd=place.folder)
        assert done.returncode == 0, done.stdout + done.stderr
        second = json.loads(done.stdout)["ids"]["second"]
        said = subprocess.check_output([DULY, "logs", second], env=env, text=True)
        assert said.split() == ["0022", "bundle", '"input"', "socket", "group"]
        # Where others cannot come to its folder, they have a place elsewhere.
        assert (node / "work").is_dir() is not is_closed
        assert read_by_nobody(node) == []


def test_a_server_refuses_a_store_that_others_can_enter(place):
    store = place.folder / "store"
    with place.server(None) as url:
        assert url
    (store / "logs").mkdir()
    store.chmod(0o755)
    serve = ["serve", "--port", "0", "--database-file", str(place.dsn_file), "--store", str(store)]
    done = subprocess.run([DULY, *serve], env=place.env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert f"or run: chmod o-rwx {store}" in done.stderr
    subprocess.run(["chmod", "o-rwx", str(store)], check=True)
    with place.server(None) as url:
        assert url
