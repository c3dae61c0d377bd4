"""Every statement of the store, also those inside functions, and how to read its plan."""

import json
import re
from importlib import resources

from duly.store.database import load_statements

FILES = sorted(file.name for file in resources.files("duly.store").joinpath("sql").iterdir())
CALLS = {"history.ensure_days", "history.drop_day"}
"""Procedures cannot be prepared; other tests call them."""
STATEMENTS = {
    f"{file.removesuffix('.sql')}.{name}": text
    for file in FILES
    for name, text in load_statements(file).items()
}
SETUP = {name for name in STATEMENTS if name.startswith(("migrate.", "request_role."))}
"""What sets a database up, once; most of it cannot be prepared."""


def nodes(plan):
    """Yield every node of a plan."""
    yield plan
    for child in plan.get("Plans", ()):
        yield from nodes(child)


def parent(relation):
    """Return the table of which a relation is a day."""
    return re.sub(r"_(\d+|rest)$", "", relation)


def scans(plan, table):
    """Return the nodes that read a table or one of its days."""
    return [
        node
        for node in nodes(plan)
        if parent(node.get("Relation Name", "")) == table and node["Node Type"] != "ModifyTable"
    ]


def indexes(plan, table):
    """Return the indexes through which a table is read, days under their parent's name."""
    found = set()
    for node in nodes(plan):
        name = node.get("Index Name", "")
        if re.match(rf"{table}_", name):
            found.add(re.sub(r"^(\w+?)_(\d+|rest)_", r"\1_", name))
    return found


async def explain(conn, text, *, arguments=None, options="format json"):
    count = max([int(number) for number in re.findall(r"\$(\d+)", text)], default=0)
    given = arguments or ["null"] * count
    await conn.execute(f"prepare statement as {text}")
    try:
        call = f"execute statement ({', '.join(given)})" if count else "execute statement"
        return json.loads(await conn.fetchval(f"explain ({options}) {call}"))[0]["Plan"]
    finally:
        await conn.execute("deallocate statement")


async def explain_all(conn):
    return {
        name: await explain(conn, text)
        for name, text in {**STATEMENTS, **inner_statements()}.items()
        if name not in CALLS | SETUP
    }


def inner_statements():
    """Return the statements inside our functions, with their variables as parameters."""
    folder = resources.files("duly.store").joinpath("migrations")
    files = sorted(folder.iterdir(), key=lambda file: file.name)
    schema = "".join(file.read_text() for file in files).replace("create or replace", "create")
    found = {}
    for name in (
        "lease_tasks",
        "end_each_unstarted",
        "attach_edges",
        "resolve_ended_upstreams",
        "read_inputs",
        "cancel_overdue",
        "request_cancel",
        "mark_task",
        "pause_tasks",
        "resume_tasks",
        "join_node",
        "drain_node",
        "remove_node",
        "override_capacity",
    ):
        begin = schema.rindex(f"create function {name}(")
        body = schema[begin : schema.index("$$;", begin)]
        parameters = re.findall(r"(p_\w+) ([\w.]+(?:\[\])?)", body[: body.index("returns")])
        head = body[: body.index("\nbegin\n")]
        declared = re.findall(r"^    (\w+) ([\w.]+(?:\[\])?)(?: :=.*)?;", head, re.MULTILINE)
        types = [*parameters, *declared]
        text = body[body.index("\nbegin\n") :]
        parts = [part.strip() for part in re.split(r";\n", text)]
        for number, part in enumerate(parts):
            sql = re.sub(r"^(begin\s+|while .* loop\s+|perform 1|return query\s+)", "", part)
            sql = re.sub(r"^for .* in\s+(select .*)\n    loop\n.*", r"\1", sql, flags=re.DOTALL)
            if part.removeprefix("begin").strip().startswith("perform 1"):
                sql = "select 1" + part.split("perform 1", 1)[1]
            sql = re.sub(r"\breturning \w+\.id into fresh|^\s+into .*$", "", sql, flags=re.M)
            sql = sql.replace("tenant_id, at, kind", 'tenant_id, "at", kind')
            if not re.match(r"\s*(select|update|insert|delete|with)\b", sql):
                continue
            for place, (variable, kind) in enumerate(types, 1):
                sql = re.sub(rf"(?<![.\w\"]){variable}\b(?!\s*\()", f"${place}::{kind}", sql)
            found[f"{name} {number}"] = _renumbered(sql)
    return found


def _renumbered(sql):
    """Number parameters without gaps, as a prepared statement wants them."""
    used = sorted({int(number) for number in re.findall(r"\$(\d+)", sql)})
    return re.sub(r"\$(\d+)", lambda match: f"${used.index(int(match[1])) + 1}", sql)
