"""Only the handlers listed here see the rows of other tenants."""

import ast
from pathlib import Path

import duly.api
from tests.api.people import create, remove, update, with_new_key

SOURCES = sorted(Path(duly.api.__file__).parent.rglob("*.py"))
CROSS_TENANT_USERS = {
    "attempts._pick": "finds attempts by the index of their tenants; they are read as the tenant's",
    "limits.get_limits": "counts among all live tasks, up to a bound",
    "metrics.metrics": "for administrators",
    "nodes.change_node": "for administrators",
    "nodes.create_token": "for administrators",
    "nodes.get_node": "for administrators",
    "nodes.list_nodes": "for administrators",
    "nodes.remove_node": "for administrators",
    "plans._respond": "no tenant owns plans",
    "plans.list_plans": "no tenant owns plans",
    "lookups.read_task_with_reason": "the free capacity of the nodes",
    "accounts.act_for_tenant": "an administrator names another tenant",
    "lookups.explain_listed": "the free capacity of the nodes",
    "lookups.scoped_connection": "for administrators",
    "lookups.listing_connection": "finds ids by status; they are read as the tenant's",
    "queues._read": "no tenant owns queues; the tasks are counted with the tenant in the statement",
    "resources.reserve": "looks for a node",
    "servers.list_servers": "for administrators",
    "status.readyz": "checks that the database responds",
    "status.status": "counts among all tasks, up to a bound",
    "tenants._with_shares": "shares depend on what all tenants hold",
    "task_pages._pick_of_all_tenants": "for administrators who name no tenant",
    "usage.get_usage": "for administrators who ask for all tenants",
}
"""The functions that may use `cross_tenant_connection`, with the reason."""
DATABASE = {
    "auth._act_for_owner": "an administrator names a task of another tenant",
    "auth._act_for_tenant": "an administrator names another tenant",
    "gateway.append_log": "nodes work for every tenant",
    "lookups.cross_tenant_connection": "",
    "lookups.tenant_connection": "",
}
"""The functions that take a connection from the database directly, with the reason."""


def functions_with(matches):
    """Return the functions of the API that contain a syntax node for which `matches` is true."""
    found = set()
    for file in SOURCES:
        for function in ast.walk(ast.parse(file.read_text())):
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef) and any(
                matches(node) for node in ast.walk(function)
            ):
                found.add(f"{file.stem}.{function.name}")
    return found


def test_only_listed_functions_see_the_rows_of_every_tenant():
    found = functions_with(
        lambda node: isinstance(node, ast.Name) and node.id == "cross_tenant_connection"
    )
    assert found == CROSS_TENANT_USERS.keys()


def test_handlers_read_only_with_a_connection_of_the_callers_tenant():
    found = functions_with(
        lambda node: (
            isinstance(node, ast.Attribute)
            and node.attr == "database"
            and ast.unparse(node.value) != "components.settings"
        )
    )
    assert found == DATABASE.keys()


async def test_a_statement_that_forgets_the_tenant_finds_only_its_rows(api, key_for):
    """Row-level security itself, as handlers get it."""
    from duly.api.requests.lookups import tenant_connection
    from duly.model.tenant import Scope

    other = api.with_key(await key_for("other", "someone", Scope.SUBMIT, Scope.READ))
    mine, theirs = await api.submit(), await other.submit()
    credential = await api.components.authenticator.authenticate(
        api.client.headers["authorization"].removeprefix("Bearer ")
    )
    async with tenant_connection(api.components, credential) as conn:
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


async def test_users_and_keys_are_written_under_row_level_security(api):
    """A statement that took a user or key of another tenant would grant access to it."""
    await create(api, "/v1/tenants", name="acme", plan="standard")
    manager = await with_new_key(api, "submit", "read", "manage", user="kim")
    async with api.components.database.connection() as conn:
        await conn.execute(NOTE_WHO)
    await create(manager, "/v1/users", name="sam", password="correct horse")
    await update(manager, "/v1/users/sam", scopes=["read"], password="another horse")
    of_sam = await create(manager, "/v1/keys", user="sam", scopes=["read"])
    of_joe = await create(manager, "/v1/keys", user="joe", scopes=["read"])
    await update(manager, f"/v1/keys/{of_joe['id']}", scopes=["submit"], expires_in="1h")
    await remove(manager, f"/v1/keys/{of_sam['id']}")
    await remove(manager, "/v1/users/joe")
    await create(api, "/v1/users", name="ann", tenant="acme")
    async with api.components.database.connection() as conn:
        found = await conn.fetch("select distinct role, what from who_wrote order by what")
    assert [tuple(row) for row in found] == [
        ("duly_request", what) for what in ("audit_log", "keys", "users")
    ]
