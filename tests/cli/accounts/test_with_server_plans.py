"""Plans, tiers and limits from the command line, as an administrator uses it."""

import json

import pytest


@pytest.fixture
def team(server):
    """A plan that is gone after the test."""
    made = server.duly(
        "plan", "create", "team", "--tasks-per-hour", "100", "--burst", "10", "--max-resources",
        "cpu=2,memory=1GiB,gpu=1", "--tiers", "basic,regular", "--tolerances", "mail=30s,report=2h",
        "--max-execution-cap", "1h", "--price-per-task", "0.00001", "-o", "json",
    )  # fmt: skip
    assert (made.returncode, made.stderr) == (0, "")
    yield json.loads(made.stdout)
    server.duly("plan", "remove", "team", "--yes")


def test_a_plan_is_made_as_it_is_said(server, team):
    assert (team["tasks_per_hour"], team["burst"], team["price_per_task"]) == (100, 10, 0.00001)
    assert team["max_resources"] == {"cpu": 2, "memory_mb": 1024, "extra": {"gpu": 1}}
    assert (team["tiers"], team["tolerances"]) == (
        ["basic", "regular"],
        {"mail": 30, "report": 7200},
    )
    assert (team["execution_cap"], team["max_running"]) == (3600, None)


def test_none_takes_a_limit_away_and_the_rest_stays(server, team):
    changed = server.duly(
        "plan", "update", "team", "--tasks-per-hour", "none", "--burst", "none", "--max-running",
        "7", "--tolerances", "none", "-o", "json",
    )  # fmt: skip
    assert (changed.returncode, changed.stderr) == (0, "")
    wanted = {"tasks_per_hour": None, "burst": None, "max_running": 7, "tolerances": {}}
    assert json.loads(changed.stdout) == {**team, **wanted}


def test_a_plan_is_shown_to_people_and_listed_for_programs(server, team):
    shown = server.duly("plan", "show", "team").stdout
    for line in (
        "tasks per hour 100",
        "max running no limit",
        "max resources 2 CPUs, 1024 MiB memory, 1 gpu",
        "tolerances mail 30 s, report 2 h",
        "max execution cap 1 h",
    ):
        assert line in [" ".join(one.split()) for one in shown.splitlines()]
    listed = server.duly("plan", "list", "-o", "id").stdout.split()
    known = ["team", "business", "standard", "free", "unlimited"]
    assert [name for name in listed if name in known] == known
    table = server.duly("plan", "list").stdout
    assert "LONGEST CAP" in table
    assert "basic, regular" in table


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        (("plan", "remove", "unlimited", "--yes"), 1, "cannot be removed"),
        (("plan", "create", "free"), 1, "There is a plan 'free' already"),
        (
            ("plan", "create", "x", "--burst", "5"),
            1,
            "--burst: it needs --tasks-per-hour. Give both or neither.",
        ),
        (("plan", "create", "x", "--burst", "some"), 2, "a whole number"),
        (("plan", "create", "x", "--max-resources", "lots"), 2, "NAME=VALUE"),
        (("plan", "create", "x", "--execution-cap", "soon"), 2, "not a duration"),
        (
            ("plan", "update", "free"),
            2,
            "There is nothing to change. Give a flag, such as --max-running 20.",
        ),
        (
            ("plan", "show", "nothing"),
            1,
            "There is no plan 'nothing'. Give a name from 'duly plan list'.",
        ),
        (
            ("tier", "create", "x"),
            2,
            "The tier needs resources. Give amounts, such as --cpu 2 --memory 4GiB.",
        ),
        (
            ("tier", "create", "x", "--cpu", "1"),
            1,
            "--memory: it is missing. Give an amount above 0.",
        ),
        (("tier", "remove", "basic"), 1, "Duly's own"),
        (
            ("submit", "--category", "mail", "--", "true"),
            1,
            "--category: the plan 'unlimited' has no categories. Leave it out.",
        ),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(server, args, code, words):
    done = server.duly(*args)
    assert done.returncode == code
    assert words in " ".join(done.stderr.replace("│", " ").split())


def test_a_tier_is_made_changed_listed_and_taken_back(server):
    assert server.duly("tier", "create", "wide", "--cpu", "3", "--memory", "1GiB").returncode == 0
    changed = server.duly("tier", "update", "wide", "--extra", "gpu=1", "-o", "json")
    assert json.loads(changed.stdout)["resources"]["extra"] == {"gpu": 1}
    lines = [" ".join(one.split()) for one in server.duly("tier", "list").stdout.splitlines()]
    assert "wide 3 CPUs, 1024 MiB memory, 1 gpu tenant yes" in lines
    assert server.duly("tier", "list", "-o", "id").stdout.split() == [
        "basic",
        "regular",
        "premium",
        "wide",
    ]
    assert server.duly("tier", "remove", "wide").returncode == 0
    assert server.duly("tier", "show", "wide").returncode == 1


def test_an_administrator_sees_and_sets_what_another_tenant_has(server):
    server.duly("tenant", "create", "tiered", "--plan", "standard")
    of = ("--tenant", "tiered")
    assert json.loads(server.duly("limits", *of, "-o", "json").stdout)["tenant"] == "tiered"
    wide = ("--cpu", "4", "--memory", "2GiB")
    made = server.duly("tier", "create", "regular", *of, *wide, "-o", "json")
    assert (made.stderr, json.loads(made.stdout)["defined_by"]) == ("", "tenant")
    server.duly("tier", "update", "regular", *of, "--cpu", "3")
    shown = json.loads(server.duly("tier", "show", "regular", *of, "-o", "json").stdout)
    assert shown["resources"]["cpu"] == 3
    listed = json.loads(server.duly("tier", "list", *of, "-o", "json").stdout)["items"]
    assert shown in listed
    own = json.loads(server.duly("tier", "show", "regular", "-o", "json").stdout)
    assert own["defined_by"] == "duly"
    assert server.duly("tier", "remove", "regular", *of).returncode == 0
    both = server.duly("tier", "create", "regular", *of, *wide, "--everyone")
    assert (both.returncode, "Give only one of --tenant and --everyone." in both.stderr) == (
        2,
        True,
    )


def test_limits_say_what_is_used_and_that_there_is_none(server):
    there = len(server.duly("schedule", "list", "-o", "id").stdout.split())
    lines = [" ".join(one.split()) for one in server.duly("limits").stdout.splitlines()]
    assert "WHAT USED / LIMIT LEFT" in lines
    assert f"schedules {there} / no limit no limit" in lines
    assert "plan unlimited" in lines
    assert "execution cap 1 d by default, no limit" in lines
    assert json.loads(server.duly("limits", "-o", "json").stdout)["rate"] is None


@pytest.fixture
def cpu_quota(server):
    """Give the plan of the user's tenant a cpu quota until the test is over."""
    changed = server.duly("plan", "update", "unlimited", "--cpu-quota", "-o", "json")
    assert (changed.stderr, json.loads(changed.stdout)["cpu_quota"]) == ("", True)
    yield
    changed = server.duly("plan", "update", "unlimited", "--no-cpu-quota", "-o", "json")
    assert (changed.stderr, json.loads(changed.stdout)["cpu_quota"]) == ("", False)


@pytest.mark.usefixtures("cpu_quota")
def test_a_task_gets_no_more_cpu_than_it_asked_for_if_its_plan_says_so(server):
    [node] = json.loads(server.duly("node", "list", "-o", "json").stdout)["items"]
    if node["enforcement"]["cpu"] != "weight":
        pytest.skip("no cpu controller can be had here")
    limits = ("--cpu", "0.2", "--cap", "2s", "--attempts", "1")
    server.duly("run", "--name", "spin", *limits, "--", "sh", "-c", "while :; do :; done")
    [task] = json.loads(server.duly("list", "--name", "spin", "-o", "json").stdout)["items"]
    assert (task["outcome"], task["enforcement"]["cpu"]) == ("capped", "quota")
    assert task["usage"]["cpu_seconds"] < 0.2 * 2.0 + 0.15


@pytest.mark.usefixtures("cpu_quota")
def test_a_cpu_quota_is_shown_with_the_plan_and_with_the_limits(server):
    for command in (("plan", "show", "unlimited"), ("limits",)):
        lines = [" ".join(one.split()) for one in server.duly(*command).stdout.splitlines()]
        assert "cpu quota yes" in lines
