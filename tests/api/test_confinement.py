"""Which handlers see the rows of every tenant: those that are named here, and no others."""

import ast
from pathlib import Path

import duly.api
from tests.api.people import changed, holder, made, removed

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


NOTE_WHO = """
create table who_wrote (role text, what text);
grant insert on who_wrote to public;
create function note_who() returns trigger language plpgsql as
$$ begin insert into duly.who_wrote values (current_user, tg_table_name); return null; end $$;
create trigger note_who after insert or update on users execute function note_who();
create trigger note_who after insert or update on keys execute function note_who();
create trigger note_who after insert on audit_log execute function note_who();
"""


async def test_users_and_keys_are_written_under_the_lock(api):
    """One of them that a statement took from another tenant would be a way in."""
    await made(api, "/v1/tenants", name="acme", plan="standard")
    manager = await holder(api, "submit", "read", "manage", user="kim")
    async with api.parts.database.connection() as conn:
        await conn.execute(NOTE_WHO)
    await made(manager, "/v1/users", name="sam", password="correct horse")
    await changed(manager, "/v1/users/sam", scopes=["read"], password="another horse")
    of_sam = await made(manager, "/v1/keys", user="sam", scopes=["read"])
    of_joe = await made(manager, "/v1/keys", user="joe", scopes=["read"])
    await changed(manager, f"/v1/keys/{of_joe['id']}", scopes=["submit"], expires_in="1h")
    await removed(manager, f"/v1/keys/{of_sam['id']}")
    await removed(manager, "/v1/users/joe")
    await made(api, "/v1/users", name="ann", tenant="acme")
    async with api.parts.database.connection() as conn:
        found = await conn.fetch("select distinct role, what from who_wrote order by what")
    assert [tuple(row) for row in found] == [
        ("duly_request", what) for what in ("audit_log", "keys", "users")
    ]
