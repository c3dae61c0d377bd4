import asyncio
import logging

import httpx
import pytest

from duly.api.app import create_app
from duly.config import Settings
from duly.server import components as server_components
from duly.server.accounts import logins, passwords
from duly.server.accounts.logins import MAX_TRIES, TRY_REFILL_INTERVAL
from tests.api.conftest import Api
from tests.api.people import audited_actions, create, remove, update, with_new_key

SECRET = "correct horse"


@pytest.fixture
async def kim(api):
    """A user of the tenant acme, with a password."""
    await create(api, "/v1/tenants", name="acme", plan="standard")
    return await create(
        api, "/v1/users", tenant="acme", name="kim", password=SECRET, scopes=["submit", "read"]
    )


async def log_in(api, password=SECRET, tenant="acme", user="kim"):
    body = {"tenant": tenant, "user": user, "password": password}
    return await api.with_key(None).call("POST", "/v1/login", json=body)


async def test_a_password_gives_a_key_for_a_while(api, kim):
    answer = await log_in(api)
    assert answer.status_code == 201, answer.text
    key = answer.json()
    assert (key["tenant"], key["user"], key["login"]) == ("acme", "kim", True)
    assert key["scopes"] == ["read", "submit"]
    assert key["expires_at"] > key["created_at"]
    own = api.with_key(key["key"])
    assert (await own.submit())["user"] == "kim"
    assert (await own.refused("GET", "/v1/keys"))[0] == 403
    assert (await own.call("POST", "/v1/logout")).status_code == 204
    assert (await own.refused("GET", "/v1/tasks"))[0] == 401
    assert (await audited_actions(api, "?tenant=acme"))[-2:] == [
        "user.login kim",
        "user.logout kim",
    ]


async def test_nobody_learns_what_was_wrong(api, kim):
    await create(api, "/v1/users", tenant="acme", name="sam")
    await create(api, "/v1/users", tenant="acme", name="gone", password=SECRET)
    await remove(api, "/v1/users/gone?tenant=acme")
    answers = [
        await log_in(api, **wrong)
        for wrong in (
            {"password": "wrong horse"},
            {"password": ""},
            {"password": "x" * 5000},
            {"user": "nobody"},
            {"user": "sam"},
            {"user": "sam", "password": ""},
            {"user": "gone"},
            {"tenant": "nobody"},
            {"tenant": "default"},
            {"tenant": "default", "user": "admin", "password": ""},
        )
    ]
    assert {answer.status_code for answer in answers} == {401}
    assert len({answer.text for answer in answers}) == 1


async def test_an_unknown_name_costs_as_much_as_a_wrong_password(api, kim, monkeypatch):
    compared = []
    verify = passwords._verify
    monkeypatch.setattr(
        passwords, "_verify", lambda *given: compared.append(given) or verify(*given)
    )
    for user in ("kim", "nobody"):
        assert (await log_in(api, "wrong horse", user=user)).status_code == 401
    assert len(compared) == 2
    # The same work: with the same parameters, whoever it is.
    assert len({hashed.rsplit("$", 2)[0] for hashed, _ in compared}) == 1


async def test_few_passwords_can_be_tried_for_a_name(api, kim):
    answers = await asyncio.gather(*(log_in(api, f"wrong {n:04}") for n in range(MAX_TRIES + 2)))
    assert sorted(answer.status_code for answer in answers) == [401] * MAX_TRIES + [429] * 2
    refused = await log_in(api)
    assert (refused.status_code, refused.json()["error"]["code"]) == (429, "limit_exceeded")
    assert 0 < int(refused.headers["retry-after"]) <= 30
    # Of others none was taken, and a name that does not exist has no more.
    assert (await log_in(api, user="sam")).status_code == 401
    unknown = [await log_in(api, user="nobody") for _ in range(MAX_TRIES + 1)]
    assert unknown[-1].status_code == 429


@pytest.fixture
async def other(components, api, tmp_path):
    """Another server on the same database, for the same administrator."""
    built = server_components.build(components.database, Settings(), str(tmp_path / "other"))
    transport = httpx.ASGITransport(create_app(built), raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://other.test") as client:
        yield Api(client, built)


async def test_servers_count_the_tries_together_and_forget_them_in_time(api, other, kim):
    tried = [log_in((api, other)[n % 2], f"wrong {n:04}") for n in range(MAX_TRIES + 4)]
    answers = [answer.status_code for answer in await asyncio.gather(*tried)]
    assert sorted(answers) == [401] * MAX_TRIES + [429] * 4
    refused = [await log_in(server) for server in (api, other)]
    assert [answer.status_code for answer in refused] == [429] * 2
    assert all(0 < int(answer.headers["retry-after"]) <= 30 for answer in refused)
    # A server that has refused nobody yet knows it, too; when a try has come back, there is one.
    other.components.logins._refused.clear()
    assert (await log_in(other)).status_code == 429
    other.components.logins._refused.clear()
    await pass_time(api, TRY_REFILL_INTERVAL)
    assert [(await log_in(other, "wrong")).status_code for _ in range(2)] == [401, 429]
    # What says nothing any more is dropped with the next wrong password of anybody.
    await pass_time(api, TRY_REFILL_INTERVAL * MAX_TRIES)
    await log_in(api, user="nobody")
    assert await count_names(api) == 1


async def pass_time(api, length):
    """Let the tries believe that time has passed."""
    async with api.components.database.connection() as conn:
        await conn.execute("update login_attempts set full_at = full_at - $1::interval", length)


async def count_names(api):
    async with api.components.database.connection() as conn:
        return await conn.fetchval("select count(*) from login_attempts")


async def test_a_right_password_takes_no_try(api, kim):
    for _ in range(MAX_TRIES + 2):
        assert (await log_in(api)).status_code == 201


async def test_only_the_newest_logins_of_a_user_last(api, kim, monkeypatch):
    monkeypatch.setattr(logins.keys, "MAX_LOGINS_PER_USER", 2)
    own = [api.with_key((await log_in(api)).json()["key"]) for _ in range(3)]
    statuses = [(await one.call("GET", "/v1/tasks")).status_code for one in own]
    assert statuses == [401, 200, 200]


async def test_a_new_password_ends_what_the_old_one_began_and_no_more(api, kim):
    login = api.with_key((await log_in(api)).json()["key"])
    key = await with_new_key(api, "read", user="kim")
    await login.get("/v1/tasks")
    await update(api, "/v1/users/kim?tenant=acme", password="another horse")
    assert (await login.refused("GET", "/v1/tasks"))[0] == 401
    await key.get("/v1/tasks")
    assert (await log_in(api)).status_code == 401
    assert (await log_in(api, "another horse")).status_code == 201


async def test_only_a_login_logs_out(api, kim):
    key = await with_new_key(api, "read", user="kim")
    status, error = await key.refused("POST", "/v1/logout")
    assert (status, "key revoke" in error["message"]) == (409, True)
    await key.get("/v1/tasks")
    assert (await api.with_key(None).refused("POST", "/v1/logout"))[0] == 401


async def test_who_is_suspended_logs_in_to_look_and_out_again(api, kim):
    await api.call("POST", "/v1/tenants/acme/suspend")
    own = api.with_key((await log_in(api)).json()["key"])
    await own.get("/v1/tasks")
    status, error = await own.refused("POST", "/v1/tasks", json={"command": ["true"]})
    assert (status, error["code"]) == (403, "tenant_suspended")
    assert (await own.call("POST", "/v1/logout")).status_code == 204


async def test_a_login_is_no_lasting_administrator(api):
    await update(api, "/v1/users/admin", password=SECRET)
    (only,) = (await api.get("/v1/keys"))["items"]
    own = api.with_key((await log_in(api, tenant="default", user="admin")).json()["key"])
    assert (await own.refused("DELETE", f"/v1/keys/{only['id']}"))[0] == 409


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({}, 422),
        ({"tenant": "acme", "user": "kim"}, 422),
        ({"tenant": "acme", "user": "kim", "password": 7}, 422),
        ({"tenant": "acme", "user": "kim\0", "password": "x"}, 422),
        ({"tenant": "acme", "user": "kim", "password": "x" * 20_000}, 413),
    ],
)
async def test_what_is_no_login_is_refused(api, body, status):
    assert (await api.with_key(None).refused("POST", "/v1/login", json=body))[0] == status


async def test_no_password_is_in_the_log(api, kim, caplog):
    caplog.set_level(logging.DEBUG)
    await log_in(api, "wrong horse")
    await log_in(api)
    assert "'kim' of 'acme' was refused" in caplog.text
    assert "horse" not in caplog.text
