"""What an administrator and a tenant see on the command line."""

import json

import pytest

LATER = ("--at", "2100-01-01T00:00:00Z")


@pytest.fixture(scope="module")
def acme(server):
    """Return the environment of a user of another tenant."""
    assert server.duly("tenant", "create", "acme", "--plan", "standard").returncode == 0
    created = server.duly("key", "create", "--tenant", "acme", "--scopes", "submit,read")
    assert created.returncode == 0, created.stderr
    key = created.stdout.strip().splitlines()[-1]
    return {**server.environment, "DULY_URL": server.url, "DULY_KEY": key}


def submit(server, **options):
    done = server.duly("submit", *LATER, "--output", "id", "--", "true", **options)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def heading(shown):
    assert shown.returncode == 0, shown.stderr
    return shown.stdout.splitlines()[0].split()


def test_an_administrator_lists_all_tenants_and_narrows(server, acme):
    mine, theirs = submit(server), submit(server, env=acme)
    everything = server.duly("list")
    assert heading(everything)[:2] == ["ID", "TENANT"]
    rows = {line.split()[0]: line.split()[1] for line in everything.stdout.splitlines()[2:]}
    assert (rows[mine], rows[theirs]) == ("default", "acme")
    narrowed = server.duly("list", "--tenant", "acme", "--all")
    assert "TENANT" not in heading(narrowed)
    assert theirs in narrowed.stdout and mine not in narrowed.stdout
    own = server.duly("list", env=acme)
    assert "TENANT" not in heading(own)
    assert theirs in own.stdout and mine not in own.stdout
    refused = server.duly("list", "--tenant", "default", env=acme)
    assert (refused.returncode, "admin" in refused.stderr) == (1, True)


def test_an_administrator_finds_and_cancels_a_task_of_another_tenant_by_its_id(server, acme):
    theirs = submit(server, env=acme)
    for command in ("show", "why", "logs"):
        assert server.duly(command, theirs).returncode == 0
    assert f"Task {theirs} cancelled." in server.duly("cancel", theirs).stdout


def test_a_filter_cancels_in_another_tenant_only_if_it_is_named(server, acme):
    theirs = submit(server, env=acme)
    alone = server.duly("cancel", "--tenant", "acme")
    assert (alone.returncode, "--tenant: it needs a filter" in alone.stderr) == (2, True)
    server.duly("cancel", "--status", "scheduled", "--yes")
    assert (
        json.loads(server.duly("show", theirs, "--output", "json").stdout)["status"] == "scheduled"
    )
    server.duly("cancel", "--status", "scheduled", "--tenant", "acme", "--yes")
    assert (
        json.loads(server.duly("show", theirs, "--output", "json").stdout)["status"] == "cancelled"
    )


def test_the_status_names_the_server_and_shows_the_cluster_only_to_administrators(server, acme):
    submit(server, env=acme)
    nowhere = {**server.environment, "DULY_KEY": server.key}
    nowhere["DULY_URL"] = f"http://127.0.0.1:1,{server.url}"
    shown = server.duly("status", env=nowhere)
    assert f"server-0 at {server.url}, version" in shown.stdout
    assert "all tenants" in shown.stdout and "capacity" in shown.stdout
    assert any(line.split()[:3] == ["acme", "0", "%"] for line in shown.stdout.splitlines())
    own = server.duly("status", env=acme).stdout
    assert f"server-0 at {server.url}" in own
    assert not {"version", "leader", "capacity", "nodes", "audit"} & set(own.split())


def test_a_node_shows_what_it_runs_for_which_tenant(server, acme):
    command = ("sh", "-c", "echo up; exec sleep 60")
    submitted = server.duly("submit", "--cpu", "0.1", "--output", "id", "--", *command, env=acme)
    running = submitted.stdout.strip()
    with server.client() as client:
        assert next(iter(client.follow_logs(running))) == b"up\n"
        node = client.get_task(running)["node"]
    row = f"{running} acme"
    shown = server.duly("node", "show", node)
    assert row in " ".join(shown.stdout.split())
    assert running not in server.duly("node", "show", node, "--tenant", "default").stdout
    allocated = server.duly("resources", "list")
    assert heading(allocated)[:2] == ["ID", "TENANT"]
    assert row in " ".join(allocated.stdout.split())
    assert "TENANT" not in heading(server.duly("resources", "list", env=acme))
    server.duly("cancel", running)


def test_servers_are_listed_with_address_and_pid(server):
    shown = server.duly("server", "list")
    assert {"ADDRESS", "HOST", "PID"} <= set(heading(shown))
    (listed,) = json.loads(server.duly("server", "list", "--output", "json").stdout)["items"]
    assert listed["address"] == server.url
    assert listed["pid"] > 1
