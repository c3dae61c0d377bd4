"""Tenants, users, keys and the audit log, as an administrator and a tenant use them."""

import csv
import io
import json
import uuid

import pytest

from duly.client.aio import AsyncClient
from duly.errors import Conflict, Forbidden, NotFound, TenantSuspended, Unauthenticated


def ok(server, *args, **options):
    done = server.duly(*args, **options)
    assert done.returncode == 0, done.stderr
    return done.stdout


def answer(server, *args, **options):
    return json.loads(ok(server, *args, "--output", "json", **options))


def refused(server, *args, **options):
    done = server.duly(*args, **options)
    assert (done.returncode, done.stdout) == (1, ""), done.stdout
    return done.stderr


@pytest.fixture
def tenant(server):
    """A tenant of its own, by name."""
    name = f"t{uuid.uuid4().hex[:12]}"
    ok(server, "tenant", "create", name, "--plan", "standard")
    return name


@pytest.fixture
def as_holder(server):
    """Return the environment of whoever holds a key."""
    return lambda key: {**server.environment, "DULY_URL": server.url, "DULY_KEY": key}


def test_a_team_gets_its_own_tenant(server, tenant, as_holder):
    ok(server, "user", "create", "kim", "--tenant", tenant, "--password-stdin",
       input="correct horse\n")  # fmt: skip
    done = server.duly("key", "create", "--tenant", tenant, "--user", "kim",
                       "--scopes", "submit,read", "--expires-in", "90d")  # fmt: skip
    assert done.returncode == 0, done.stderr
    key = done.stdout.strip()
    assert key.startswith("duly_")
    assert f"{tenant}/kim" in done.stderr
    assert "shown only this once" in done.stderr
    assert key not in done.stderr
    kim = as_holder(key)
    assert ok(server, "run", "--", "echo", "hello", env=kim) == "hello\n"
    assert answer(server, "list", env=kim)["items"][0]["tenant"] == tenant
    table = ok(server, "key", "list", "--tenant", tenant)
    assert table.split()[:7] == ["ID", "PREFIX", "HOLDER", "SCOPES", "STATUS", "EXPIRES", "NAME"]
    for word in (key[:12], "kim", "read,submit", "active", "in 90 d"):
        assert word in table, table
    assert key not in table
    assert "kim" in ok(server, "user", "list", "--tenant", tenant)
    assert "standard" in ok(server, "tenant", "list")
    ok(server, "key", "revoke", key[:12], "--tenant", tenant, "--yes")
    assert "not valid" in refused(server, "list", env=kim)
    assert (
        ok(server, "key", "list", "--tenant", tenant)
        == "No keys. Create one with: duly key create\n"
    )
    assert "revoked" in ok(server, "key", "list", "--all", "--tenant", tenant)
    assert "revoked" in ok(server, "key", "show", key[:12], "--tenant", tenant)


def test_answers_have_a_form_for_every_reader(server, tenant):
    made = answer(server, "key", "create", "--tenant", tenant, "--service", "billing")
    assert (made["service"], made["scopes"]) == ("billing", ["read", "submit"])
    assert ok(server, "key", "list", "--tenant", tenant, "-o", "id").split() == [made["id"]]
    text = ok(server, "key", "list", "--tenant", tenant, "-o", "csv")
    (row,) = csv.DictReader(io.StringIO(text))
    assert (row["prefix"], row["service"], row["status"]) == (made["prefix"], "billing", "active")
    assert "key" not in answer(server, "key", "show", made["id"], "--tenant", tenant)
    assert answer(server, "tenant", "show", tenant)["plan"] == "standard"
    assert answer(server, "tenant", "update", tenant, "--plan", "free")["plan"] == "free"
    assert "service:billing" in ok(server, "key", "show", made["id"], "--tenant", tenant)


def test_a_tenant_gets_a_weight_of_its_own_and_gives_it_back(server, tenant, as_holder):
    shown = " ".join(ok(server, "tenant", "show", tenant).split())
    assert "weight 2 (the plan's) share 0 % fair share none: no task of it waits" in shown
    assert "7 (its own)" in ok(server, "tenant", "update", tenant, "--weight", "7")
    assert "fair users no" in shown
    shared = ok(server, "tenant", "update", tenant, "--fair-users")
    assert "fair users yes" in " ".join(shared.split())
    told = ok(server, "audit", "--tenant", tenant, "--action", "tenant.update")
    assert "weight=none → 7" in told
    (row,) = (line for line in ok(server, "tenant", "list").splitlines() if tenant in line)
    assert row.split()[1:5] == ["standard", "7", "0", "%"]
    assert answer(server, "tenant", "show", tenant)["fair_share"] is None
    assert answer(server, "tenant", "update", tenant, "--weight", "plan")["weight"] == 2
    assert "1 to 1000" in refused(server, "tenant", "update", tenant, "--weight", "1001")
    key = answer(server, "key", "create", "--tenant", tenant, "--scopes", "read")["key"]
    assert "0 %" in ok(server, "tenant", "show", tenant, env=as_holder(key))


def test_a_tenant_is_created_with_a_weight(server):
    name = f"t{uuid.uuid4().hex[:12]}"
    assert "5 (its own)" in ok(server, "tenant", "create", name, "--weight", "5")
    text = ok(server, "tenant", "list", "-o", "csv")
    (row,) = (one for one in csv.DictReader(io.StringIO(text)) if one["name"] == name)
    assert (row["weight"], row["weight_override"], row["share"]) == ("5", "5", "0.0")


def test_a_weight_that_is_no_number_is_refused_by_the_command(server, tenant):
    done = server.duly("tenant", "update", tenant, "--weight", "much")
    assert (done.returncode, "or plan for the plan's" in done.stderr) == (2, True)
    assert "--weight" in server.duly("tenant", "update", tenant).stderr


def test_a_key_is_changed_while_its_holder_goes_on_with_it(server, tenant, as_holder):
    made = answer(server, "key", "create", "--tenant", tenant, "--service", "billing")
    update = ("key", "update", made["prefix"], "--tenant", tenant)
    shown = ok(server, *update, "--scopes", "submit", "--expires-in", "7d", "--name", "invoices")
    for word in ("submit", "in 7 d", "invoices", "service:billing"):
        assert word in shown, shown
    assert "'read'" in refused(server, "list", env=as_holder(made["key"]))
    changed = answer(server, *update, "--expires-in", "never", "--name", "")
    assert (changed["expires_at"], changed["name"], changed["scopes"]) == (None, None, ["submit"])
    told = ok(server, "audit", "--tenant", tenant, "--action", "key.update")
    assert "scopes=read+submit → submit" in told
    assert "name=none → invoices" in told


def test_a_tenant_is_suspended_resumed_and_removed(server, tenant, as_holder):
    key = answer(server, "key", "create", "--tenant", tenant, "--user", "kim")["key"]
    kim = as_holder(key)
    assert "suspended" in ok(server, "tenant", "suspend", tenant)
    assert "is suspended" in refused(server, "submit", "--", "true", env=kim)
    assert ok(server, "list", env=kim) == "No tasks yet. Submit one: duly run -- echo hello\n"
    assert "active" in ok(server, "tenant", "resume", tenant)
    task = ok(server, "submit", "-o", "id", "--in", "1h", "--", "true", env=kim).strip()
    assert "1 task that" in refused(server, "tenant", "remove", tenant, "--yes")
    ok(server, "cancel", task, env=kim)
    ok(server, "tenant", "remove", tenant, "--yes")
    assert "not valid" in refused(server, "list", env=kim)
    assert tenant in refused(server, "tenant", "show", tenant)


def test_a_tenants_own_manager_goes_no_further(server, tenant, as_holder):
    scopes = "submit,read,manage"
    key = answer(server, "key", "create", "--tenant", tenant, "--user", "kim", "--scopes", scopes)
    kim = as_holder(key["key"])
    ok(server, "user", "create", "sam", "--scopes", "read", env=kim)
    assert answer(server, "user", "update", "sam", "--scopes", "submit,read", env=kim)[
        "scopes"
    ] == [
        "read",
        "submit",
    ]
    assert "admin" in refused(server, "key", "create", "--scopes", "admin", env=kim)
    assert "admin" in refused(server, "key", "create", "--tenant", "default", env=kim)
    assert "admin" in refused(server, "tenant", "update", tenant, "--plan", "unlimited", env=kim)
    table = ok(server, "audit", env=kim)
    assert f"{tenant}/kim" in table
    assert "user.create" in table
    unconfirmed = server.duly("user", "remove", "sam", env=kim)
    assert (unconfirmed.returncode, "Remove the user sam" in unconfirmed.stderr) == (2, True)
    ok(server, "user", "remove", "sam", "--yes", env=kim)
    found = answer(server, "audit", "--tenant", tenant, "--action", "user.remove", "--since", "1h")
    assert [(one["actor"], one["target"]) for one in found["items"]] == [(f"{tenant}/kim", "sam")]


def test_a_password_never_comes_from_a_flag_or_from_nowhere(server, tenant):
    done = server.duly("user", "create", "kim", "--tenant", tenant, "--password", "correct horse")
    assert done.returncode == 2
    done = server.duly("user", "create", "kim", "--tenant", tenant, "--password", input="")
    assert done.returncode == 2
    assert "--password-stdin" in done.stderr
    stdin = {"input": "short\n"}
    told = refused(server, "user", "create", "kim", "--tenant", tenant, "--password-stdin", **stdin)
    assert "8 to 1000" in told


def test_the_last_administrators_key_stays(server):
    told = refused(server, "key", "revoke", server.key[:12], "--yes")
    assert "Create another one first" in told


def test_what_is_said_wrong_is_a_usage_error(server):
    for args in (
        ("tenant", "update", "default"),
        ("user", "update", "admin"),
        ("key", "create", "--expires-in", "soon"),
        ("key", "update", "1"),
        ("key", "update", "1", "--expires-in", "soon"),
        ("audit", "--since", "whenever"),
    ):
        assert server.duly(*args).returncode == 2, args


async def test_both_clients_administer(server):
    name = f"t{uuid.uuid4().hex[:12]}"
    with server.client() as client:
        client.create_tenant(name, "standard", weight=3)
        assert client.update_tenant(name, weight=None)["weight"] == 2
        assert client.update_tenant(name, plan="business", weight=5)["weight_override"] == 5
        assert client.update_tenant(name, plan="standard")["weight_override"] == 5
        kim = client.create_user("kim", tenant=name, scopes=["read", "submit"])
        assert client.get_user("kim", tenant=name) == kim
        made = client.create_key(["submit", "read"], tenant=name, user="kim", expires_in="1h")
        assert client.get_key(made["id"], tenant=name)["prefix"] == made["prefix"]
        with pytest.raises(Conflict):
            client.create_tenant(name)
    async with AsyncClient(server.url, made["key"]) as own:
        assert (await own.list_tenants())["items"][0]["name"] == name
        with pytest.raises(Forbidden):
            await own.create_key(["read"])
        with pytest.raises(NotFound):
            await own.get_tenant("default")
        with server.client() as client:
            client.suspend_tenant(name)
            with pytest.raises(TenantSuspended):
                await own.submit(command=["true"])
            client.resume_tenant(name)
            assert client.update_key(made["id"], tenant=name, name="a")["name"] == "a"
            client.revoke_key(made["prefix"], tenant=name)
            assert client.list_keys(tenant=name)["items"] == []
            assert client.list_keys(tenant=name, all=True)["items"][0]["status"] == "revoked"
            entries = client.read_audit(tenant=name, action="key.revoke")["items"]
            assert [one["target"] for one in entries] == [made["prefix"]]
        with pytest.raises(Unauthenticated):
            await own.list_tasks()
