import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from duly import errors
from duly.client.call import Call, Response, encode, parse_json, read_error, read_response
from duly.client.calls import task_calls


def error_response(status: int, code: str, **details: object) -> Response:
    body = {"error": {"code": code, "message": "No.", "details": details}}
    return Response(status, json.dumps(body).encode(), "3")


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (400, "malformed", errors.Malformed),
        (401, "unauthenticated", errors.Unauthenticated),
        (403, "forbidden", errors.Forbidden),
        (404, "not_found", errors.NotFound),
        (409, "conflict", errors.Conflict),
        (409, "idempotency_key_reused", errors.KeyReused),
        (409, "something_finer", errors.Conflict),
        (413, "too_large", errors.TooLarge),
        (422, "invalid", errors.Invalid),
        (429, "limit_exceeded", errors.LimitExceeded),
        (503, "unavailable", errors.Unavailable),
        (500, "error", errors.DulyError),
    ],
)
def test_every_error_response_becomes_its_error(status, code, kind):
    error = read_error(error_response(status, code))
    assert (type(error), error.message) == (kind, "No.")


def test_an_invalid_field_is_named():
    error = read_error(error_response(422, "invalid", field="resources.cpu"))
    assert isinstance(error, errors.Invalid)
    assert error.field == "resources.cpu"


def test_a_rate_limit_error_has_the_retry_after():
    error = read_error(error_response(429, "limit_exceeded", limit="tasks_per_hour", self="odd"))
    assert isinstance(error, errors.LimitExceeded)
    assert error.retry_after == timedelta(seconds=3)
    assert error.details["limit"] == "tasks_per_hour"


@example(429, b"", "nan")
@example(503, b"", "-1")
@given(st.sampled_from([400, 404, 418, 422, 429, 500, 503]), st.binary(), st.text())
def test_any_error_response_of_a_proxy_becomes_a_duly_error(status, body, retry_after):
    assert isinstance(read_error(Response(status, body, retry_after)), errors.DulyError)


@given(st.recursive(st.none() | st.integers() | st.text(), st.lists))
def test_an_error_body_of_any_shape_can_be_read(error):
    body = json.dumps({"error": error}).encode()
    assert isinstance(read_error(Response(422, body)), errors.DulyError)


def test_a_response_that_is_not_json_suggests_checking_the_url():
    call = Call("GET", "/", parse_json)
    with pytest.raises(errors.DulyError, match="The response is not JSON"):
        read_response(call, Response(200, b"<html>"))


def test_durations_become_seconds_and_times_keep_their_offset():
    at = datetime(2027, 1, 31, 6, 30, tzinfo=UTC)
    body = {"execution_cap": timedelta(minutes=5), "run_at": at}
    assert json.loads(encode(body)) == {
        "execution_cap": 300.0,
        "run_at": "2027-01-31T06:30:00+00:00",
    }


@pytest.mark.parametrize("value", [datetime(2027, 1, 31), float("nan"), object(), {1, 2}])
def test_values_without_a_json_form_are_refused_before_sending(value):
    with pytest.raises(errors.Invalid):
        encode({"value": value})


def test_every_submission_has_an_idempotency_key_and_is_retryable():
    first, second = (task_calls.submit({"command": ["true"], "name": None}) for _ in range(2))
    keys = [json.loads(call.body or b"")["idempotency_key"] for call in (first, second)]
    assert len(set(keys)) == 2
    assert first.repeatable
    assert json.loads(task_calls.submit({"idempotency_key": "mine"}).body or b"") == {
        "idempotency_key": "mine"
    }


@pytest.mark.parametrize("bad", ["", ".", ".."])
def test_an_id_that_would_change_the_path_is_refused(bad):
    with pytest.raises(errors.Invalid):
        task_calls.get_task(bad)


@given(st.text(st.characters(codec="utf-8"), min_size=1).filter(lambda t: t not in (".", "..")))
def test_an_id_stays_one_segment_of_the_path(text):
    path = task_calls.cancel_task(text).path
    assert path.count("/") == 4
    assert path.isascii()
    assert "?" not in path


def test_a_filter_becomes_a_query():
    call = task_calls.list_tasks(
        {"status": ["waiting", "running"], "labels": {"a": "b=c"}, "name": "x", "user": None},
        10,
        "next",
    )
    assert call.query == (
        ("status", "waiting"),
        ("status", "running"),
        ("label", "a=b=c"),
        ("name", "x"),
        ("limit", "10"),
        ("cursor", "next"),
    )


def test_a_filter_becomes_a_body():
    call = task_calls.cancel_tasks({"status": "waiting", "labels": {"a": "b"}, "name": "x"})
    assert json.loads(call.body or b"") == {"status": ["waiting"], "label": ["a=b"], "name": "x"}
    assert not call.repeatable


@pytest.mark.parametrize(
    ("value", "field"),
    [
        ({"run_at": datetime(2027, 1, 1)}, "run_at"),
        ({"command": ["x", Path("/bin/true")]}, "command[1]"),
        ({"tasks": [{"resources": {"cpu": float("nan")}}]}, "tasks[0].resources.cpu"),
    ],
)
def test_a_value_that_is_not_json_is_named_by_its_field(value, field):
    with pytest.raises(errors.Invalid) as raised:
        encode(value)
    assert raised.value.field == field
    assert raised.value.message.startswith(f"{field}: ")
