"""`duly attempts` of one task and of all tasks, and both clients."""

import csv
import io
import json
import uuid

import pytest

import duly


@pytest.fixture
def ran(server):
    """The names of two tasks: one was tried twice and failed, the other is done."""
    bad, good = f"bad-{uuid.uuid4().hex}", f"good-{uuid.uuid4().hex}"
    server.duly("submit", "--name", bad, "--attempts", "2", "--wait", "--", "sh", "-c", "exit 3")
    server.duly("submit", "--name", good, "--wait", "--", "true")
    return bad, good


def names(server, *args):
    """Return the names of the tasks of the attempts that a command lists, without repeats."""
    done = server.duly("attempts", *args, "-o", "json")
    assert done.returncode == 0, done.stderr
    return list(dict.fromkeys(one["name"] for one in json.loads(done.stdout)["items"]))


def test_without_an_id_or_filter_it_is_still_the_last_task(server, ran):
    done = server.duly("attempts", "-o", "json")
    (item,) = json.loads(done.stdout)["items"]
    assert (item["outcome"], "task" in item) == ("succeeded", False)
    assert server.duly("attempts").stdout.splitlines()[0].split()[0] == "ATTEMPT"


def test_with_all_or_any_filter_it_is_those_of_all_tasks(server, ran):
    bad, good = ran
    assert names(server, "--all")[:2] == [good, bad]
    assert names(server, "--outcome", "failed,lost", "--name", bad) == [bad]
    assert names(server, "--outcome", "succeeded")[0] == good
    assert good not in names(server, "--outcome", "failed", "--outcome", "capped")
    assert names(server, "--since", "1h")[:2] == [good, bad]
    assert names(server, "--tenant", "default")[:2] == [good, bad]
    assert names(server, "--user", "nobody") == []
    assert server.duly("attempts", "--user", "nobody").stdout == "No attempts.\n"


def test_the_table_tells_which_task_each_was_for_and_that_there_are_more(server, ran):
    bad, _ = ran
    done = server.duly("attempts", "--name", bad)
    head, rows = done.stdout.splitlines()[0], done.stdout.splitlines()[2:]
    assert head.split()[:4] == ["TASK", "TENANT", "ATTEMPT", "STATUS"]
    assert [row.split()[2:5] for row in rows] == [["2", "failed", "3"], ["1", "failed", "3"]]
    assert done.stderr == ""
    first = server.duly("attempts", "--name", bad, "--limit", "1")
    assert first.stderr.startswith("There are more. List the next page with --cursor ")
    second = server.duly(
        "attempts", "--name", bad, "--cursor", first.stderr.split()[-1].rstrip(".")
    )
    assert [row.split()[2] for row in second.stdout.splitlines()[2:]] == ["1"]
    rows = csv.DictReader(io.StringIO(server.duly("attempts", "--name", bad, "-o", "csv").stdout))
    assert [(row["name"], row["attempt"], row["exit_code"]) for row in rows] == [
        (bad, "2", "3"), (bad, "1", "3"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("123", "--all"), "Give either the ID of a task, or --all"),
        (("123", "--limit", "3"), "Give either the ID of a task, or --all"),
        (("--all", "-o", "id"), "-o: attempts have no IDs."),
        (("--all", "--since", "soon"), "--since"),
        (("--limit", "0"), "--limit"),
    ],
)
def test_what_makes_no_sense_is_a_usage_error(server, args, words):
    done = server.duly("attempts", *args)
    assert (done.returncode, words in done.stderr) == (2, True), done.stderr


def test_an_unknown_outcome_is_refused_with_the_known_ones(server):
    done = server.duly("attempts", "--outcome", "fialed")
    assert (done.returncode, "Use succeeded, failed" in done.stderr) == (1, True)


async def test_both_clients_list_and_walk_them(server, ran):
    bad, good = ran
    with duly.Client(server.url, server.key) as client:
        page = client.list_all_attempts(name=bad, outcome=["failed"], since="1h", limit=1)
        assert [one["attempt"] for one in page["items"]] == [2]
        rest = client.list_all_attempts(name=bad, cursor=page["next_cursor"], tenant="default")
        assert ([one["attempt"] for one in rest["items"]], rest["tenant"]) == ([1], "default")
        found = [one["name"] for one in client.iter_all_attempts(since="1h")]
    async with duly.AsyncClient(server.url, server.key) as client:
        again = [one["name"] async for one in client.iter_all_attempts(since="1h")]
        page = await client.list_all_attempts(name=good)
    assert found[:3] == [good, bad, bad]
    assert again == found
    assert page["items"][0]["outcome"] == "succeeded"


@pytest.mark.parametrize("command", [("server",), ("tier",), ("plan",), ("node",)])
def test_every_list_takes_a_limit(server, command):
    done = server.duly(*command, "list", "--limit", "1", "-o", "jsonl")
    assert (done.returncode, len(done.stdout.splitlines())) == (0, 1)
    assert server.duly(*command, "list", "--limit", "0").returncode == 2


def test_a_list_that_has_more_says_so(server):
    for command in ("tier", "plan"):
        first = server.duly(command, "list", "--limit", "1")
        assert first.stderr.startswith("There are more. List the next page with --cursor "), command
        second = server.duly(
            command, "list", "--limit", "1", "--cursor", first.stderr.split()[-1].rstrip(".")
        )
        assert second.returncode == 0
        assert second.stdout != first.stdout
