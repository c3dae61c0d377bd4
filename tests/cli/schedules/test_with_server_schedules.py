"""Schedules from the command line and from Python, as their users have them."""

import json
from datetime import UTC, datetime, timedelta

import pytest

from duly.client.aio import AsyncClient
from duly.errors import NotFound

DAY = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(days=3)
BERLIN = ("--timezone", "Europe/Berlin")


@pytest.fixture
def nightly(server):
    """A schedule whose time is far from now, gone after the test."""
    made = server.duly(
        "schedule", "create", "--name", "nächtlich", "--annually", "02-29@02:30", *BERLIN, "--cap",
        "1h", "--label", "team=a", "--start", "2020-01-01T00:00Z", "--overlap", "queue", "--jitter",
        "10s", "-o", "json", "--", "echo", "--daily", "1 2",
    )  # fmt: skip
    assert (made.returncode, made.stderr) == (0, "")
    yield json.loads(made.stdout)
    server.duly("schedule", "remove", json.loads(made.stdout)["id"])


def lines(text: str) -> list[str]:
    return [" ".join(line.split()) for line in text.splitlines()]


def test_a_schedule_is_made_as_it_is_said(nightly):
    assert nightly["task"] == {
        "name": "nächtlich",
        "command": ["echo", "--daily", "1 2"],
        "execution_cap": 3600,
        "labels": {"team": "a"},
    }
    assert (nightly["name"], nightly["annually"]) == ("nächtlich", "02-29@02:30")
    assert (nightly["timezone"], nightly["overlap"]) == ("Europe/Berlin", "queue")
    assert (nightly["jitter"], nightly["start_at"]) == (10, "2020-01-01T00:00:00Z")
    assert (nightly["misfire"], nightly["short_month"]) == ("once", "last")


def test_it_runs_now_and_its_history_tells(server, nightly):
    schedule = nightly["id"]
    task = server.duly("schedule", "run", schedule, "-o", "id").stdout.strip()
    assert server.duly("wait", task).returncode == 0
    server.duly("schedule", "update", schedule, "--daily", "12:00", "--timezone", "Asia/Tokyo")
    first, second = (f"{DAY + timedelta(days=day):%Y-%m-%d}" for day in (0, 1))
    past = ("--start", f"{first}T00:00Z", "--end", f"{second}T23:00Z")
    begun = server.duly("schedule", "backfill", schedule, *past, "-o", "id")
    older, newer = begun.stdout.split()
    ids = server.duly("schedule", "history", schedule, "-o", "id").stdout.split()
    assert ids == [task, newer, older]
    told = lines(server.duly("schedule", "history", schedule).stdout)
    assert any(f"{task} done" in line for line in told)
    assert [f"{second} 12:00:00 JST {newer}" in line for line in told[2:]] == [False, True, False]
    assert f"{first} 12:00:00 JST {older}" in told[-1]
    again = server.duly("schedule", "backfill", schedule, *past)
    assert (again.returncode, again.stdout) == (1, "")
    assert "has been run already" in again.stderr
    none = ("--start", f"{first}T00:00Z", "--end", f"{first}T01:00Z")
    assert "no fire time" in server.duly("schedule", "backfill", schedule, *none).stdout
    server.duly("schedule", "remove", schedule)
    told = lines(server.duly("schedule", "history", schedule).stdout)
    assert f"{first} 03:00:00 UTC {older}" in told[-1]


def test_it_is_shown_with_its_next_times(server, nightly):
    first, *_ = server.duly("schedule", "next", nightly["id"], "-o", "id").stdout.split()
    assert first == nightly["next_run_at"]
    shown = lines(server.duly("schedule", "show", nightly["id"]).stdout)
    for line in ("name nächtlich", "when annually 02-29@02:30", "timezone Europe/Berlin"):
        assert line in shown
    assert "task echo --daily '1 2'" in shown
    assert "execution cap: 1 h" in shown
    assert sum("-02-2" in line and "02:30:00 CET" in line for line in shown) == 5


def test_a_change_leaves_the_rest_as_it_was(server, nightly):
    changed = server.duly(
        "schedule", "update", nightly["id"], "--every", "PT3H", "--jitter", "none", "--tier",
        "regular", "-o", "json", "--", "echo", "other",
    )  # fmt: skip
    assert (changed.returncode, changed.stderr) == (0, "")
    found = json.loads(changed.stdout)
    assert (found["every"], found["annually"], found["jitter"]) == (10800, None, 0)
    assert (found["name"], found["overlap"]) == ("nächtlich", "queue")
    assert found["task"] == {**nightly["task"], "tier": "regular", "command": ["echo", "other"]}


def test_the_next_run_alone_is_moved(server, nightly):
    moved = server.duly("schedule", "update", nightly["id"], "--next-run", "2h", "-o", "json")
    found = json.loads(moved.stdout)
    at = datetime.fromisoformat(found["next_run_at"])
    assert timedelta(hours=1) < at - datetime.now(UTC) < timedelta(hours=3)
    kept = {**nightly, "next_run_at": found["next_run_at"], "updated_at": found["updated_at"]}
    assert found == kept
    times = server.duly("schedule", "next", nightly["id"], "-o", "id").stdout.split()
    assert times[:2] == [found["next_run_at"], nightly["next_run_at"]]
    due = server.duly("schedule", "list", "--due-before", "3h", "-o", "id").stdout.split()
    assert nightly["id"] in due
    due = server.duly("schedule", "list", "--due-before", "1h", "-o", "id").stdout.split()
    assert nightly["id"] not in due


def test_a_paused_schedule_says_so_until_it_is_resumed(server, nightly):
    assert "paused" in server.duly("schedule", "pause", nightly["id"]).stdout
    row = next(
        line for line in lines(server.duly("schedule", "list").stdout) if nightly["id"] in line
    )
    assert row == f"{nightly['id']} annually 02-29@02:30 Europe/Berlin paused nächtlich admin"
    assert "It next runs at" in server.duly("schedule", "resume", nightly["id"]).stdout
    assert server.duly("schedule", "list", "--user", "nobody").stdout == "No schedules.\n"


def test_a_preview_stores_nothing(server):
    before = server.duly("schedule", "list", "-o", "json").stdout
    night = server.duly(
        "schedule", "next", "--daily", "02:30", *BERLIN, "--after", "2027-03-27", "--count", "2"
    )
    assert lines(night.stdout)[2:] == [
        line for line in lines(night.stdout) if "02:30:00 CET" in line or "03:00:00 CEST" in line
    ]
    assert lines(night.stdout)[3].startswith("Sun 2027-03-28 03:00:00 CEST")
    assert server.duly("schedule", "list", "-o", "json").stdout == before


MANIFEST = """
name: nightly
defaults: {max_attempts: 1}
tasks:
  extract: {command: ["true"]}
  publish:
    depends_on: [extract]
    run: |
      echo done
"""


def test_a_file_with_a_graph_is_fired_as_one(server, tmp_path):
    file = tmp_path / "nightly.yaml"
    file.write_text(MANIFEST)
    flags = ("--annually", "02-29@02:30", "--overlap", "queue", "-f", str(file))
    made = json.loads(server.duly("schedule", "create", *flags, "-o", "json").stdout)
    assert made["name"] == "nightly"
    assert [task["ref"] for task in made["graph"]["tasks"]] == ["extract", "publish"]
    graph = json.loads(server.duly("schedule", "run", made["id"], "-o", "json").stdout)
    assert server.duly("wait", graph["ids"]["publish"]).returncode == 0
    told = lines(server.duly("schedule", "show", made["id"]).stdout)
    assert any("publish after extract" in line for line in told)
    assert any(f"{graph['id']} done" in line for line in told)
    ids = server.duly("schedule", "history", made["id"], "-o", "id").stdout.split()
    assert ids == [graph["id"]]
    refused = server.duly("schedule", "update", made["id"], "--cap", "1h")
    assert (refused.returncode, "submits a graph" in refused.stderr) == (2, True)
    file.write_text(MANIFEST.replace("[extract]", "[extrat]"))
    refused = server.duly("schedule", "update", made["id"], "-f", str(file))
    assert (refused.returncode, f"{file}, line 7" in refused.stderr) == (1, True)
    file.write_text("command: ['true']")
    server.duly("schedule", "update", made["id"], "-f", str(file), "--name", "one")
    shown = json.loads(server.duly("schedule", "show", made["id"], "-o", "json").stdout)
    assert (shown["graph"], shown["task"]) == (None, {"command": ["true"]})
    server.duly("schedule", "remove", made["id"])


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        (
            ("create", "--cron", "0 6 * * munday", "--", "true"),
            1,
            "--cron: at position 8, 'munday' is not a day of the week. Use 0 to 7 or sun to sat, "
            "or like fri#2 or friL, or *. 0 6 * * munday ^",
        ),
        (
            ("next", "--cron", "0 0 31 2 *"),
            1,
            "--cron: no year has such a day, so the schedule would never fire. 0 0 31 2 * ^",
        ),
        (
            ("create", "--daily", "25:00", "--", "true"),
            1,
            "--daily: '25:00' is not a time of day. Write it like 06:30.",
        ),
        (("create", "--daily", "6:30"), 2, "duly schedule create --daily 06:30 -- echo hello"),
        (
            ("create", "--daily", "6:30", "--idempotency-key", "x", "--", "true"),
            1,
            "--idempotency-key: a schedule cannot have it, because every occurrence would be the "
            "same task. Leave it out.",
        ),
        (
            ("create", "--daily", "6:30", "--tier", "basic", "-f", "-"),
            2,
            "-f: the file defines the task. Set tier there.",
        ),
        (
            ("create", "--daily", "6:30", "-f", "/nowhere"),
            1,
            "/nowhere cannot be read: No such file or directory.",
        ),
        (("next",), 2, "or a recurrence"),
        (("next", "17", "--daily", "6:30"), 2, "Give either the ID"),
        (("update", "17"), 2, "There is nothing to change. Give a flag, such as --daily 07:00."),
        (
            ("update", "17", "--cap", "1h"),
            1,
            "There is no schedule '17'. Give a schedule's ID or name from 'duly schedule list'.",
        ),
        (
            ("history", "17"),
            1,
            "There is no schedule '17'. Give a schedule's ID or name from 'duly schedule list'.",
        ),
        (
            ("remove", "17"),
            1,
            "There is no schedule '17'. Give a schedule's ID or name from 'duly schedule list'.",
        ),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(server, args, code, words):
    done = server.duly("schedule", *args)
    assert (done.returncode, done.stdout) == (code, "")
    assert words in " ".join(done.stderr.replace("│", " ").split())


async def test_the_async_client_has_it_all(server):
    async with AsyncClient(server.url, server.key) as client:
        made = await client.create_schedule(
            daily="06:30",
            task={"command": ["true"]},
            end_at=datetime(2099, 1, 1, tzinfo=UTC),
            jitter=timedelta(seconds=2),
        )
        schedule = made["id"]
        assert (made["jitter"], made["end_at"]) == (2, "2099-01-01T00:00:00Z")
        assert await client.get_schedule(schedule) == made
        assert made in (await client.list_schedules(user="admin"))["items"]
        assert (await client.pause_schedule(schedule))["paused"]
        assert not (await client.resume_schedule(schedule))["paused"]
        assert (await client.update_schedule(schedule, end_at=None))["end_at"] is None
        end = DAY + timedelta(hours=47)
        older, newer = await client.backfill_schedule(schedule, DAY, end)
        tasks = await client.list_schedule_tasks(schedule, limit=1)
        assert [task["id"] for task in tasks["items"]] == [newer]
        page = await client.list_occurrences(schedule, limit=1, cursor=tasks["next_cursor"])
        assert [one["task"] for one in page["items"]] == [older]
        assert (await client.run_schedule(schedule))["schedule"] == schedule
        times = await client.next_times(schedule, count=2, after=DAY)
        assert [datetime.fromisoformat(time) - DAY for time in times] == [
            timedelta(hours=6.5),
            timedelta(hours=30.5),
        ]
        assert await client.preview_schedule(count=2, after=DAY, daily="06:30") == times
        await client.remove_schedule(schedule)
        with pytest.raises(NotFound):
            await client.get_schedule(schedule)
