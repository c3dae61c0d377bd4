"""Which handlers see the rows of every tenant: those that are named here, and no others."""

import ast
from pathlib import Path

import duly.api

SOURCES = sorted(Path(duly.api.__file__).parent.glob("*.py"))
OVERSEERS = {
    "limits.get_limits": "counts among all live tasks, up to a bound",
    "metrics.metrics": "for administrators",
    "nodes.change_node": "for administrators",
    "nodes.create_token": "for administrators",
    "nodes.get_node": "for administrators",
    "nodes.list_nodes": "for administrators",
    "nodes.remove_node": "for administrators",
    "plans._answer": "plans are nobody's own",
    "plans.list_plans": "plans are nobody's own",
    "reading.explained": "the room that is left on the nodes",
    "people.for_tenant": "an administrator names another tenant",
    "reading.seeing": "for administrators",
    "reading.picking": "finds ids by status; they are read as the tenant's",
    "resources.reserve": "looks for a node",
    "servers.list_servers": "for administrators",
    "status.readyz": "asks whether the database answers",
    "status.status": "counts among all tasks, up to a bound",
    "usage.get_usage": "for administrators who ask for all tenants",
}
"""By handler: what it needs that is not its caller's own."""
DATABASE = {
    "auth._for_tenant": "an administrator names another tenant",
    "gateway.append_log": "nodes work for every tenant",
    "reading.overseeing": "",
    "reading.reading": "",
}
"""What takes a connection from the database itself."""


def users_of(is_meant):
    """Return the functions of the API in which something is used."""
    found = set()
    for file in SOURCES:
        for function in ast.walk(ast.parse(file.read_text())):
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef) and any(
                is_meant(node) for node in ast.walk(function)
            ):
                found.add(f"{file.stem}.{function.name}")
    return found


def test_only_those_who_must_see_the_rows_of_every_tenant():
    found = users_of(lambda node: isinstance(node, ast.Name) and node.id == "overseeing")
    assert found == OVERSEERS.keys()


def test_whoever_reads_gets_a_connection_for_the_caller_and_no_other():
    found = users_of(
        lambda node: (
            isinstance(node, ast.Attribute)
            and node.attr == "database"
            and ast.unparse(node.value) != "parts.settings"
        )
    )
    assert found == DATABASE.keys()


async def test_a_statement_that_forgets_the_tenant_finds_only_its_rows(api, key_for):
    """The lock itself, as handlers get it: what another tenant has is not there."""
    from duly.api.reading import reading
    from duly.model.tenant import Scope

    other = api.with_key(await key_for("other", "someone", Scope.SUBMIT, Scope.READ))
    mine, theirs = await api.submit(), await other.submit()
    credential = await api.parts.authenticator.authenticate(
        api.client.headers["authorization"].removeprefix("Bearer ")
    )
    async with reading(api.parts, credential) as conn:
        found = {str(row["id"]) for row in await conn.fetch("select id from tasks")}
    assert mine["id"] in found
    assert theirs["id"] not in found
