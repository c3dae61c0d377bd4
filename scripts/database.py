"""Writes the reference of the database from the comments in the schema.

python scripts/database.py            write docs/reference/database.md
python scripts/database.py --check    fail if the page is out of date
"""

import asyncio
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import asyncpg

PAGE = Path(__file__).parent.parent / "docs" / "reference" / "database.md"
HEAD = """# The database

This page is written by `scripts/database.py` from the comments in the schema
([`0001_schema.sql`](../../src/duly/store/migrations/0001_schema.sql)); change those instead.

Everything is in the schema `duly` of one PostgreSQL database. It is not a public interface:
programs use the [REST API](rest.md), and a later version may change any of this by a migration that
keeps the previous version working ([decision 0008](../adr/0008-schema-and-migrations.md)). This
page is for those who operate Duly, inspect its database with `psql`, or work on Duly. All
constraints are in [`schema.sql`](../../src/duly/store/schema.sql).

*Written by* names modules of `duly.store`, each of which has a file of statements in
[`sql/`](../../src/duly/store/sql). *Kept* names [settings](settings.md). A type with `?` may be
null. Requests of tenants run in a role for which row level security hides the rows of other tenants
in every table that has a `tenant_id`.
"""
DIAGRAM = """## Diagram

A solid line is a foreign key. A dotted line is a reference that the database does not check:
history is dropped a day at a time, and may be gone before the rows that refer to it. References to
tenants and users that are not foreign keys are omitted.
"""
FUNCTIONS_HEAD = """## Functions

Most of them lock first and read afterwards, in separate statements: under `READ COMMITTED` each
statement of a function sees what was committed before it began.

| function | meaning |
|---|---|"""
REFERENCES = {
    "task_id": "tasks",
    "dependant_id": "tasks",
    "upstream_id": "tasks",
    "shape_id": "shapes",
    "node_id": "nodes",
    "incarnation_id": "incarnations",
    "graph_id": "graphs",
    "schedule_id": "schedules",
}
"""The tables that columns of these names refer to, where there is no foreign key."""

TABLES = """
select c.oid, c.relname as name, c.relkind = 'v' as is_view, c.relkind = 'p' as is_partitioned,
       obj_description(c.oid, 'pg_class') as comment
  from pg_class c
 where c.relnamespace = 'duly'::regnamespace
   and c.relkind in ('r', 'p', 'v')
   and not c.relispartition
 order by c.oid
"""
COLUMNS = """
select a.attname as name, format_type(a.atttypid, a.atttypmod) as type,
       a.attnotnull as is_required, pg_get_expr(d.adbin, d.adrelid) as default,
       a.attidentity <> '' as is_identity, a.attgenerated <> '' as is_generated,
       col_description(a.attrelid, a.attnum) as comment
  from pg_attribute a
  left join pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum
 where a.attrelid = $1
   and a.attnum > 0
   and not a.attisdropped
 order by a.attnum
"""
INDEXES = """
select c.relname as name, i.indisunique as is_unique, i.indisprimary as is_primary,
       pg_get_indexdef(i.indexrelid) as definition
  from pg_index i
  join pg_class c on c.oid = i.indexrelid
 where i.indrelid = $1
 order by not i.indisprimary, c.relname
"""
FOREIGN_KEYS = """
select conrelid::regclass::text as table, confrelid::regclass::text as target, a.attname as column
  from pg_constraint k
  join pg_attribute a on a.attrelid = k.conrelid and a.attnum = k.conkey[1]
 where contype = 'f'
   and connamespace = 'duly'::regnamespace
 order by 2, 1, 3
"""
ENUMS = """
select t.typname as name, array_agg(e.enumlabel::text order by e.enumsortorder) as labels,
       obj_description(t.oid, 'pg_type') as comment
  from pg_type t
  join pg_enum e on e.enumtypid = t.oid
 where t.typnamespace = 'duly'::regnamespace
 group by t.oid
 order by t.typname
"""
SEQUENCES = """
select c.relname as name, obj_description(c.oid, 'pg_class') as comment
  from pg_class c
 where c.relnamespace = 'duly'::regnamespace
   and c.relkind = 'S'
   and not exists (select from pg_depend d where d.objid = c.oid and d.deptype = 'i')
 order by c.relname
"""
FUNCTIONS = """
select p.proname as name, pg_get_function_identity_arguments(p.oid) as arguments,
       obj_description(p.oid, 'pg_proc') as comment
  from pg_proc p
 where p.pronamespace = 'duly'::regnamespace
 order by p.proname, arguments
"""


class TableComment(NamedTuple):
    """The parsed comment of a table."""

    text: str
    section: str
    written_by: str
    kept: str


def parse_comment(comment: str) -> TableComment:
    """Parse the comment of a table: a text, then a line for each field."""
    text, _, fields = comment.partition("\nSection:")
    values = dict(re.findall(r"^(Section|Written by|Kept): (.*)$", f"Section:{fields}", re.M))
    return TableComment(
        text, values.get("Section", ""), values.get("Written by", ""), values.get("Kept", "")
    )


def page(dsn: str) -> str:
    """Return the whole page for a migrated database."""
    return asyncio.run(_page(dsn))


async def _page(dsn: str) -> str:
    conn = await asyncpg.connect(dsn, server_settings={"search_path": "duly"})
    try:
        tables = await conn.fetch(TABLES)
        columns = {table["name"]: await conn.fetch(COLUMNS, table["oid"]) for table in tables}
        indexes = {table["name"]: await conn.fetch(INDEXES, table["oid"]) for table in tables}
        parts = [
            HEAD,
            *_contents(tables),
            DIAGRAM,
            *_diagram(tables, columns, indexes, await conn.fetch(FOREIGN_KEYS)),
            *_sections(tables, columns, indexes),
            *_types(await conn.fetch(ENUMS)),
            *_sequences(await conn.fetch(SEQUENCES)),
            *_functions(await conn.fetch(FUNCTIONS)),
        ]
    finally:
        await conn.close()
    return "\n".join(parts)


def _by_section(tables: Sequence[asyncpg.Record]) -> Mapping[str, list[asyncpg.Record]]:
    sections: dict[str, list[asyncpg.Record]] = {}
    # The table `migrations` is created before all others, but is shown last.
    for table in sorted(tables, key=lambda table: table["name"] == "migrations"):
        sections.setdefault(parse_comment(table["comment"]).section, []).append(table)
    return sections


def _contents(tables: Sequence[asyncpg.Record]) -> Iterator[str]:
    yield "| section | tables |\n|---|---|"
    for section, members in _by_section(tables).items():
        links = " · ".join(f"[`{table['name']}`](#{table['name']})" for table in members)
        yield f"| {section} | {links} |"
    yield ""


def _diagram(
    tables: Sequence[asyncpg.Record],
    columns: Mapping[str, Sequence[asyncpg.Record]],
    indexes: Mapping[str, Sequence[asyncpg.Record]],
    foreign_keys: Sequence[asyncpg.Record],
) -> Iterator[str]:
    yield "```mermaid\nerDiagram"
    checked = {(key["table"], key["column"]): key["target"] for key in foreign_keys}
    unchecked = {
        (table["name"], column["name"]): REFERENCES[column["name"]]
        for table in tables
        for column in columns[table["name"]]
        if column["name"] in REFERENCES
    }
    required = {
        (table, column["name"])
        for table, members in columns.items()
        for column in members
        if column["is_required"]
    }
    for (table, column), target in (unchecked | {("live", "id"): "tasks"} | checked).items():
        line = "--" if (table, column) in checked else ".."
        one_side = "||" if (table, column) in required else "|o"
        many_side = "o|" if _is_unique(indexes[table], column) else "o{"
        yield f"    {target} {one_side}{line}{many_side} {table} : {column}"
    yield "```\n"


def _is_unique(indexes: Sequence[asyncpg.Record], column: str) -> bool:
    """Return True if at most one row can have a given value of the column."""
    endings = (f" ({column})", f" ({column}) WHERE ({column} IS NOT NULL)")
    return any(index["is_unique"] and index["definition"].endswith(endings) for index in indexes)


def _sections(
    tables: Sequence[asyncpg.Record],
    columns: Mapping[str, Sequence[asyncpg.Record]],
    indexes: Mapping[str, Sequence[asyncpg.Record]],
) -> Iterator[str]:
    for section, members in _by_section(tables).items():
        yield f"## {section}\n"
        for table in members:
            yield from _table(table, columns[table["name"]], indexes[table["name"]])


def _table(
    table: asyncpg.Record, columns: Sequence[asyncpg.Record], indexes: Sequence[asyncpg.Record]
) -> Iterator[str]:
    comment = parse_comment(table["comment"])
    yield f"### `{table['name']}`\n"
    yield f"{'A view. ' if table['is_view'] else ''}{comment.text}\n"
    if comment.written_by:
        yield f"- Written by: {_writers(comment.written_by)}"
        yield f"- Kept: {comment.kept}"
        for index in indexes:
            yield f"- {_index(index)}"
        yield ""
    yield "| column | type | default | meaning |\n|---|---|---|---|"
    for column in columns:
        may_be_null = not column["is_required"] and not table["is_view"]
        yield (
            f"| `{column['name']}` | {_type(column['type'])}{'?' if may_be_null else ''} "
            f"| {_default(column)} | {_cell(column['comment'] or '')} |"
        )
    yield ""


def _writers(names: str) -> str:
    return ", ".join(
        f"the {name.replace('trigger ', 'trigger `')}`" if " " in name else f"`{name}`"
        for name in names.split(", ")
    )


def _index(index: asyncpg.Record) -> str:
    kind = "Primary key" if index["is_primary"] else "Unique" if index["is_unique"] else "Index"
    definition = re.sub(r"^.* USING btree ", "", index["definition"])
    return f"{kind} `{index['name']}`: `{definition.replace('duly.', '')}`"


def _type(name: str) -> str:
    return name.replace("timestamp with time zone", "timestamptz").replace("duly.", "")


def _default(column: asyncpg.Record) -> str:
    if column["is_identity"]:
        return "identity"
    if column["is_generated"] or column["default"] is None:
        return "generated" if column["is_generated"] else ""
    return f"`{_cell(re.sub(r'::[a-z ]+', '', ' '.join(column['default'].split())))}`"


def _types(enums: Sequence[asyncpg.Record]) -> Iterator[str]:
    yield "## Types\n\n| type | values | meaning |\n|---|---|---|"
    for enum in enums:
        labels = ", ".join(f"`{label}`" for label in enum["labels"])
        yield f"| `{enum['name']}` | {labels} | {_cell(enum['comment'])} |"
    yield ""


def _sequences(sequences: Sequence[asyncpg.Record]) -> Iterator[str]:
    yield "## Sequences\n\n| sequence | meaning |\n|---|---|"
    for sequence in sequences:
        yield f"| `{sequence['name']}` | {_cell(sequence['comment'])} |"
    yield ""


def _functions(functions: Sequence[asyncpg.Record]) -> Iterator[str]:
    yield FUNCTIONS_HEAD
    for function in functions:
        arguments = re.sub(r"\bIN ", "", _type(function["arguments"]))
        yield f"| `{function['name']}({arguments})` | {_cell(function['comment'])} |"
    yield ""


def _cell(text: str) -> str:
    return text.replace("|", r"\|")


def main() -> int:
    """Write the page, or with --check compare it with the file."""
    from schema import migrated  # a sibling of this file; scripts/ is no package

    with migrated() as dsn:
        written = page(dsn)
    if "--check" not in sys.argv[1:]:
        PAGE.write_text(written)
        return 0
    if PAGE.read_text() == written:
        return 0
    sys.stderr.write(f"{PAGE.name} is out of date; run python scripts/database.py\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())
