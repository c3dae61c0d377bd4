"""The page about the database is what the schema says, and that is true."""

import re
import runpy
from pathlib import Path

import asyncpg
import pytest

from duly.store.migrate import migrations
from tests.store.plans import STATEMENTS

ROOT = Path(__file__).parents[2]
SCRIPT = runpy.run_path(str(ROOT / "scripts" / "database.py"))
SECTIONS = [
    "Tenants and keys",
    "Tasks",
    "Attempts and leases",
    "Servers and nodes",
    "Graphs",
    "Schedules",
    "Artifacts",
    "Limits and usage",
    "Audit and maintenance",
]
OBVIOUS = """
id name version labels resources status priority details reason outcome exit_code number at kind
tenant_id user_id task_id graph_id shape_id node_id artifact_id schedule_id tier plan
created_at updated_at submitted_at recorded_at applied_at started_at finished_at completed_at
removed_at revoked_at expires_at paused_at leased_at renewed_at filled_at failed_at ended_at
progress_at repaired_at requested_at last_at progress_text scopes attempts cpu_seconds
peak_memory_mb failures losses start_by sha256 bytes last_entry on_lost max_attempts
delay_tolerance execution_cap max_execution_cap max_delay_tolerance max_schedules
unique_while idempotency_key
price_per_task price_per_cpu_hour price_per_gib_hour
"""
"""Columns that may go without a comment, because the name says everything."""
WRITE = re.compile(r"\b(?:insert into|update|delete from)\s+(?:duly\.)?(\w+)")
TRIGGERS = {"note_ended_upstream", "keep_former_spec", "revise_quotas"}


def test_the_page_is_what_the_schema_says(dsn):
    assert SCRIPT["PAGE"].read_text() == SCRIPT["page"](dsn), "run scripts/database.py"


@pytest.fixture
async def comments(dsn):
    """What the comments of tables say, by name."""
    conn = await asyncpg.connect(dsn)
    rows = await conn.fetch(SCRIPT["TABLES"])
    await conn.close()
    return {row["name"]: SCRIPT["parse_comment"](row["comment"] or "") for row in rows}


def test_every_table_says_what_it_is_for_and_how_long_rows_are_kept(comments):
    for name, comment in comments.items():
        assert comment.text.endswith("."), name
        assert comment.section in SECTIONS, name
        assert name == "tenants_with_plans" or comment.kept.endswith("."), name


def test_every_table_names_those_who_write_it(comments):
    actual = writers()
    written = {name: sorted(actual[name]) for name in comments}
    named = {
        name: sorted(filter(None, comment.written_by.split(", ")))
        for name, comment in comments.items()
    }
    assert named == written


async def test_every_column_that_is_not_obvious_says_what_it_is(dsn):
    conn = await asyncpg.connect(dsn)
    silent = {
        f"{table['name']}.{column['name']}"
        for table in await conn.fetch(SCRIPT["TABLES"])
        for column in await conn.fetch(SCRIPT["COLUMNS"], table["oid"])
        if not table["is_view"] and not column["comment"] and column["name"] not in OBVIOUS.split()
    }
    await conn.close()
    assert silent == set()


async def test_every_function_says_what_it_does(dsn):
    conn = await asyncpg.connect(dsn)
    rows = [*await conn.fetch(SCRIPT["FUNCTIONS"]), *await conn.fetch(SCRIPT["SEQUENCES"])]
    await conn.close()
    assert [row["name"] for row in rows if not (row["comment"] or "").endswith(".")] == []


def test_only_settings_that_exist_are_named(comments):
    page = (ROOT / "docs" / "reference" / "settings.md").read_text()
    part = page.split("## `retention`")[1].split("\n## ")[0]
    named = {
        name
        for comment in comments.values()
        for name in re.findall(r"`retention\.(\w+)`", comment.kept)
    }
    assert named == {name for name in named if f"| `{name}` |" in part} != set()


def writers():
    """Return for each table the modules whose statements write it, and the triggers that do."""
    schema = re.sub(r"--.*", "", "".join(step.text for step in migrations()))
    parts = re.split(r"^(?=create |comment |insert |call )", schema, flags=re.M)
    functions = {
        named[1]: part
        for part in parts
        if (named := re.match(r"create (?:function|procedure) (\w+)\(", part))
    }
    writers_by_table = {
        name: set() for name in re.findall(r"^create (?:table|view) (\w+)", schema, re.M)
    }
    writers_by_table["migrations"] = set()
    for statement, text in STATEMENTS.items():
        for table in written_by(text, functions, writers_by_table):
            writers_by_table[table].add(statement.partition(".")[0])
    for trigger in TRIGGERS:
        for table in written_by(functions[trigger], functions, writers_by_table):
            writers_by_table[table].add(f"trigger {trigger}")
    return writers_by_table


def written_by(text, functions, tables):
    """Return the tables that a statement writes, itself or by a function that it calls."""
    text = re.sub(r"--.*", "", text)
    written = {name.removesuffix("_rest") for name in WRITE.findall(text)} & tables.keys()
    for name, body in functions.items():
        if re.search(rf"\b{name}\(", text):
            rest = {key: value for key, value in functions.items() if key != name}
            written |= written_by(body, rest, tables)
    return written
