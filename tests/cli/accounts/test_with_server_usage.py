"""`duly usage` and both clients against a whole Duly."""

import csv
import io
import json

import duly


def test_what_was_used_can_be_read_as_a_table_as_json_and_as_csv(server):
    assert server.duly("run", "--tier", "basic", "--", "true").returncode == 0
    told = json.loads(server.duly("usage", "--by", "tier", "--output", "json").stdout)
    (basic,) = [row for row in told["items"] if row["tier"] == "basic"]
    assert basic["tasks"] >= 1
    assert basic["granted_cpu_seconds"] > 0
    assert told["total"]["tasks"] >= basic["tasks"]

    text = server.duly("usage", "--by", "user,tier", "-o", "csv").stdout
    rows = [row for row in csv.DictReader(io.StringIO(text)) if row["tier"] == "basic"]
    assert {(row["day"], float(row["price"])) for row in rows} == {("", 0)}

    lines = server.duly("usage", "-o", "jsonl").stdout.splitlines()
    assert json.loads(lines[0])["day"] == told["until"]

    table = server.duly("usage").stdout.splitlines()
    assert table[0].split()[:3] == ["DAY", "TASKS", "ATTEMPTS"]
    assert table[-1].split()[0] == "total"


def test_mistakes_are_told_in_a_sentence(server):
    wrong = server.duly("usage", "--by", "colour")
    assert (wrong.returncode, "--by: 'colour' is unknown. Use day" in wrong.stderr) == (1, True)
    assert server.duly("usage", "-o", "id").returncode == 2
    assert server.duly("usage", "--tenant", "nobody").returncode == 1


async def test_both_clients_ask_the_same(server):
    with duly.Client(server.url, server.key) as client:
        told = client.usage(by=["tenant", "day"], since="2d")
    async with duly.AsyncClient(server.url, server.key) as client:
        again = await client.usage(by="tenant,day", since="2d")
    assert told["since"] == again["since"]
    names = [{row["tenant"] for row in one["items"]} for one in (told, again)]
    assert names[0] <= names[1]
