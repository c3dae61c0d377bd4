"""Tasks run inline as they would on a worker: encoded, retried, failed, in stages."""

import asyncio
from datetime import timedelta

import pytest

import duly
from duly.errors import ArgumentError, ConfigError, KeyReused
from tests.client.functions import shop
from tests.client.functions.shop import Size


@pytest.fixture
def tasks():
    with duly.testing.inline() as tasks:
        yield tasks


def test_a_call_is_a_call_and_a_submission_gives_its_result(tasks):
    assert shop.encode("a", Size(1, 2)) == "a@1x2/0.5"
    handle = shop.encode.submit("a", size=Size(1, 2), quality=1.0)
    assert handle.result() == "a@1x2/1.0"
    assert (handle.status(), handle.logs()) == ("done", "encoding a\n")
    assert [task.function for task in tasks.tasks] == ["tests.client.functions.shop:encode"]


def test_an_async_function_runs_in_a_loop_of_its_own(tasks):
    assert shop.pause.submit(timedelta(0)).result() == timedelta(0)


async def test_everything_has_an_async_form(tasks):
    handle = await shop.encode.submit_async("a", Size(1, 2))
    assert await handle.result_async() == "a@1x2/0.5"
    assert await handle.status_async() == "done"
    many = await shop.join.submit_many_async([(["a", "b"],), {"parts": ["c"]}])
    assert [await one.result_async() for one in many] == ["a+b", "c"]
    assert [one async for one in duly.as_completed_async(many)] == many
    assert (await duly.wait_async(many)).done == many


async def test_a_function_without_async_runs_where_no_loop_runs(tasks):
    app = duly.App("other")

    @app.task
    def sub() -> int:
        return asyncio.run(asyncio.sleep(0, 7))

    assert await (await sub.submit_async()).result_async() == 7


def test_many_are_submitted_at_once_and_awaited_together(tasks):
    handles = shop.encode.map(["a", "b"], [Size(1, 1), Size(2, 2)])
    assert list(duly.as_completed(handles)) == handles
    assert [handle.result() for handle in handles] == ["a@1x1/0.5", "b@2x2/0.5"]


def test_a_failure_tells_reason_traceback_and_log(tasks):
    handle = shop.fail.submit("bad height")
    with pytest.raises(duly.TaskFailed) as failed:
        handle.result()
    error = failed.value
    assert error.reason is not None
    assert error.reason["code"] == "exception"
    assert error.reason["message"] == "ValueError: bad height"
    assert error.log == "about to fail\n"
    assert "raise ValueError(message)" in (error.traceback or "")
    for part in ("bad height", "raise ValueError(message)", "about to fail"):
        assert part in str(error)
    assert handle.task()["attempt"] == 2


def test_a_retried_task_keeps_its_stages(tasks):
    assert shop.in_stages.submit(2).result() == [1, 3]


def test_giving_up_and_other_errors_are_not_retried(tasks):
    app = duly.App("other")
    seen = []

    @app.task(name="give_up")
    def give_up() -> None:
        seen.append("give_up")
        raise duly.GiveUp("no such photo")

    @app.task(name="careful", retry_on=(OSError,), max_attempts=3)
    def careful(error: str) -> None:
        seen.append(error)
        raise {"os": OSError, "value": ValueError}[error]("x")

    with pytest.raises(duly.TaskFailed, match="no such photo") as failed:
        give_up.submit().result()
    assert failed.value.reason["code"] == "gave_up"
    for error in ("os", "value"):
        with pytest.raises(duly.TaskFailed):
            careful.submit(error).result()
    assert seen == ["give_up", "os", "os", "os", "value"]


def test_a_result_that_is_not_of_its_type_fails_the_task(tasks):
    app = duly.App("other")

    @app.task(name="wrong", max_attempts=1)
    def wrong() -> int:
        return "x"  # type: ignore[return-value]

    with pytest.raises(duly.TaskFailed, match="a value of type str is not int"):
        wrong.submit().result()


def test_results_flow_through_a_graph(tasks):
    with shop.app.graph("nightly") as graph:
        first = shop.encode.node("a", Size(1, 1))
        second = shop.encode.node("b", Size(2, 2))
        joined = shop.join.node([first.result, second.result])
        after = shop.join.options(depends_on=[joined]).node(["x"])
        with pytest.raises(duly.DulyError, match="at the end of its with block"):
            _ = joined.handle
    assert [node.ref for node in graph.nodes] == ["encode", "encode-2", "join", "join-2"]
    assert joined.handle.result() == "a@1x1/0.5+b@2x2/0.5"
    assert after.handle.task()["depends_on"] == ["join"]
    assert graph.id is not None


def test_an_error_in_the_block_submits_nothing(tasks):
    with pytest.raises(ZeroDivisionError), shop.app.graph():
        shop.join.node(["a"])
        _ = 1 / 0
    assert tasks.tasks == []
    with pytest.raises(duly.DulyError, match="within"):
        shop.join.node(["a"])


def test_a_downstream_of_a_failed_task_is_cancelled(tasks):
    failed = shop.fail.submit("x")
    handle = shop.join.submit([failed.as_argument(), "y"])
    assert handle.status() == "cancelled"
    with pytest.raises(duly.TaskFailed):
        handle.result()
    cleanup = shop.join.options(depends_on=[{"task": failed, "on": "always"}]).submit(["y"])
    assert cleanup.result() == "y"


def test_a_child_is_submitted_once_however_often_its_parent_runs(tasks):
    app = duly.App("other")

    @app.task(name="child")
    def child(name: str) -> str:
        return name

    @app.task(name="parent", max_attempts=2)
    def parent() -> list[str]:
        context = duly.context()
        ids = [context.submit(child, "a").id for _ in range(2)]
        if context.attempt == 1:
            raise duly.Retry
        return ids

    ids = parent.submit().result()
    assert len(set(ids)) == 2
    assert [task.parent for task in tasks.tasks] == [None, tasks.tasks[0].id, tasks.tasks[0].id]
    assert [task.id for task in tasks.tasks[1:]] == ids


def test_a_key_makes_a_repeated_submission_the_same_task(tasks):
    keyed = shop.join.options(idempotency_key="k")
    assert keyed.submit(["a"]).id == keyed.submit(["a"]).id
    with pytest.raises(KeyReused):
        keyed.submit(["b"])


def test_options_become_fields_of_the_request(tasks):
    unique = shop.encode.options(unique="encode:{path}", backoff=("1s", "1m"), uses=["s3"])
    unique.submit("a", Size(1, 1))
    fields = tasks.tasks[0].fields
    assert fields["unique"] == {"key": "encode:a"}
    assert fields["retry"] == {"delay": 1.0, "max_delay": 60.0}
    assert (fields["uses"], fields["max_attempts"]) == (["s3"], 3)
    with pytest.raises(ConfigError, match="'tiers' is no option"):
        shop.encode.options(tiers="x")  # type: ignore[call-arg]


def test_secret_arguments_are_marked(tasks):
    shop.log_in.submit("kim", password="hunter2")
    shop.log_in.submit("kim", "hunter2")
    assert [task.fields["call"]["secret"] for task in tasks.tasks] == [["password"], [1]]


def test_large_arguments_are_uploaded_unseen(tasks):
    parts = ["x" * 1000] * 2000
    assert shop.join.submit(parts, separator="").result() == "x" * 2_000_000
    assert "args" not in tasks.tasks[0].fields["call"]


def test_a_call_of_many_that_is_wrong_is_named(tasks):
    with pytest.raises(duly.Invalid, match=r"^\[1\]\.parts: a value of type str is not list"):
        shop.join.submit_many([(["a"],), ("b",)])
    assert tasks.tasks == []


def test_a_schedule_is_kept_under_its_name(tasks):
    for day in ("06:30", "07:30"):
        shop.encode.schedule("nightly", daily=day, args=("a", Size(1, 2)))
    (schedule,) = tasks.schedules
    assert (schedule["name"], schedule["daily"]) == ("nightly", "07:30")


def test_a_task_is_found_by_its_former_names_and_names_are_unique():
    app = duly.App("other")

    @app.task(name="new", aliases=["old"])
    def renamed() -> None: ...

    assert app.find("old") is app.find("new") is renamed
    assert list(app.tasks) == ["new"]
    with pytest.raises(ConfigError, match="'old'"):
        app.task(name="old")(lambda: None)
    with pytest.raises(ConfigError, match="lambda"):
        app.task(lambda: None)


def test_middleware_surrounds_the_call_and_hooks_the_process():
    app, seen = duly.App("other"), []

    @app.middleware
    def tracing(call):
        seen.append(("begin", call.task.name, call.args))
        yield
        seen.append("end")

    @app.startup
    async def connect():
        seen.append("start")

    @app.shutdown
    def disconnect():
        seen.append("stop")

    @app.task(name="double")
    def double(value: int) -> int:
        return value * 2

    app.start_process()
    assert double.call([2], {}) == 4
    app.stop_process()
    assert seen == ["start", ("begin", "double", [2]), "end", "stop"]


def test_outside_of_a_task_there_is_no_context():
    with pytest.raises(duly.DulyError, match=r"duly\.testing\.inline"):
        duly.context()


def test_a_stage_that_cannot_be_recorded_is_refused(tasks):
    app = duly.App("other")

    @app.task(name="bad_stage", max_attempts=1)
    def bad_stage() -> None:
        duly.context().stage("x", lambda: object())

    with pytest.raises(duly.TaskFailed, match="cannot be restored"):
        bad_stage.submit().result()


def test_arguments_are_checked_before_anything_is_sent(tasks):
    with pytest.raises(ArgumentError, match=r"^size: a value of type tuple is not Size"):
        shop.encode.submit("a", (1, 2))  # type: ignore[arg-type]
    assert tasks.tasks == []
