import stat
import time
from datetime import UTC, datetime, timedelta

import pytest
from typer import BadParameter

from duly.cli.tasks.flags import TaskFlags
from duly.cli.tasks.submission.request import (
    MAX_SCRIPT_BYTES,
    parse_pairs,
    read_script,
    refuse_local_file,
    require_payload,
    task_fields,
)
from duly.cli.tasks.tasks import task_filter
from duly.cli.tasks.times import parse_instant, parse_since
from duly.model.requests.task_request import TaskRequest

NOW = datetime(2027, 1, 31, 6, 30, tzinfo=UTC)


def fields(*command, **flags):
    return task_fields(TaskFlags(**flags), command, now=NOW)


def test_what_is_not_said_is_not_sent():
    assert fields("echo", "hi") == {"command": ["echo", "hi"]}


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ({"name": "x"}, {"name": "x"}),
        ({"tier": "premium", "priority": 0}, {"tier": "premium", "priority": 0}),
        ({"queue": "off_peak"}, {"queue": "off_peak"}),
        ({"cpu": 0.5}, {"resources": {"cpu": 0.5}}),
        ({"depends_on": ["1,2", "3"]}, {"depends_on": ["1", "2", "3"]}),
        ({"depends_on": ["1:always"]}, {"depends_on": [{"task": "1", "on": "always"}]}),
        ({"unique_key": "k"}, {"unique": {"key": "k"}}),
        (
            {"unique_key": "k", "unique_while": "waiting", "on_conflict": "return"},
            {"unique": {"key": "k", "while": "waiting", "on_conflict": "return"}},
        ),
        ({"memory": "512"}, {"resources": {"memory_mb": 512}}),
        ({"memory": "2GiB", "disk": "1GB"}, {"resources": {"memory": "2GiB", "disk": "1GB"}}),
        (
            {"iops": 1, "bandwidth": 2, "ports": 3, "extra": ["gpu=1"]},
            {"resources": {"iops": 1, "bandwidth_mbps": 2, "ports": 3, "extra": {"gpu": 1}}},
        ),
        (
            {"delay_tolerance": "5m", "execution_cap": "PT1H"},
            {"delay_tolerance": 300.0, "execution_cap": 3600.0},
        ),
        ({"max_attempts": 5, "on_lost": "fail"}, {"max_attempts": 5, "on_lost": "fail"}),
        ({"on_overdue": "cancel"}, {"on_overdue": "cancel"}),
        ({"run_in": "10m"}, {"run_at": NOW + timedelta(minutes=10)}),
        ({"run_at": "2027-01-31T06:30Z"}, {"run_at": NOW}),
        ({"label": ["a=b", "c=d=e"]}, {"labels": {"a": "b", "c": "d=e"}}),
        ({"idempotency_key": "k"}, {"idempotency_key": "k"}),
        ({"script_path": "/opt/x.sh"}, {"script_path": "/opt/x.sh"}),
        ({"concurrency_key": "k"}, {"concurrency": {"key": "k", "limit": 1}}),
        (
            {"concurrency_key": "k", "concurrency_limit": 3},
            {"concurrency": {"key": "k", "limit": 3}},
        ),
    ],
)
def test_every_flag_becomes_its_field(flags, said):
    assert fields(**flags) == said


def test_every_field_that_the_server_takes_has_a_flag():
    flags = {name.replace("run_in", "run_at") for name in TaskFlags.__dataclass_fields__}
    renamed = {
        "labels": "label",
        "requires": "require",
        "source": "script",
        "resources": "cpu",
        "command": "name",
        "concurrency": "concurrency_key",
        "unique": "unique_key",
        "retry": "retry_delay",
        "artifact": "bundle",
    }
    taken = {renamed.get(name, name) for name in TaskRequest.__struct_fields__}
    # A ref is for tasks that are submitted together; calls come from applications and manifests.
    assert taken - {"ref", "call"} <= flags


def test_a_time_without_an_offset_is_on_the_clock_of_this_machine():
    at = fields(run_at="2027-01-31T06:30")["run_at"]
    assert at == datetime(2027, 1, 31, 6, 30).astimezone()
    assert at.tzinfo is not None


@pytest.mark.parametrize(
    ("zone", "wall", "instant"),
    [
        ("Europe/Berlin", "2027-03-28T02:30", "2027-03-28T01:00Z"),
        ("Europe/Berlin", "2027-03-28T02:00", "2027-03-28T01:00Z"),
        ("Europe/Berlin", "2027-03-28T01:59:59", "2027-03-28T00:59:59Z"),
        ("Europe/Berlin", "2027-03-28T03:00", "2027-03-28T01:00Z"),
        ("Europe/Berlin", "2027-10-31T02:30", "2027-10-31T00:30Z"),
        ("Australia/Lord_Howe", "2027-10-03T02:10", "2027-10-02T15:30Z"),
    ],
)
def test_a_time_that_daylight_saving_skips_is_the_first_after_it(monkeypatch, zone, wall, instant):
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        assert parse_instant("--run-at", wall) == datetime.fromisoformat(instant)
    finally:
        monkeypatch.undo()
        time.tzset()


def test_a_limit_of_0_is_sent_for_the_server_to_refuse():
    concurrency = fields(concurrency_key="k", concurrency_limit=0)["concurrency"]
    assert concurrency == {"key": "k", "limit": 0}


@pytest.mark.parametrize(
    "flags",
    [
        {"execution_cap": "soon"},
        {"run_in": "-5m"},
        {"concurrency_limit": 2},
        {"run_at": "tomorrow"},
        {"run_at": "2027-01-31T06:30Z", "run_in": "5m"},
        {"extra": ["gpu"]},
        {"extra": ["gpu=many"]},
        {"label": ["=x"]},
        {"env": ["NOT_SET_ANYWHERE_HERE"]},
        {"depends_on": [""]},
        {"depends_on": ["17", ""]},
        {"depends_on": [","]},
        {"depends_on": [":failure"]},
        {"no_retry_exit": [""]},
        {"cpu": float("nan")},
        {"cpu": float("inf")},
    ],
)
def test_what_can_be_told_wrong_here_is_a_usage_error(flags):
    with pytest.raises(BadParameter):
        fields(**flags)


def test_variables_come_from_the_file_the_flags_and_from_here(tmp_path, monkeypatch):
    file = tmp_path / "env"
    file.write_text("# a comment\nexport A=1\nB=two words\n\nC=x=y\n", encoding="utf-8")
    monkeypatch.setenv("FROM_HERE", "ü")
    said = fields(env_file=file, env=["B=2", "FROM_HERE", "EMPTY="])
    assert said == {"env": {"A": "1", "B": "2", "C": "x=y", "FROM_HERE": "ü", "EMPTY": ""}}


def test_a_script_is_sent_as_its_source(tmp_path):
    file = tmp_path / "job.sh"
    file.write_text("#!/bin/sh\necho ü\n", encoding="utf-8")
    assert fields(script=file) == {"source": "#!/bin/sh\necho ü\n"}


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"echo hi\n", "has no first line such as #!/bin/sh"),
        (b"", "has no first line"),
        (b"#!/bin/sh\n\xff\xfe", "UTF-8"),
        (b"\x7fELF\x02\x01\x01\xff", "UTF-8"),
        (b"#!" + b"x" * MAX_SCRIPT_BYTES, "larger than 1 MiB"),
    ],
)
def test_a_script_that_no_node_could_run_is_refused(tmp_path, data, problem):
    file = tmp_path / "job"
    file.write_bytes(data)
    with pytest.raises(BadParameter, match=problem):
        read_script(file)


def test_a_script_of_exactly_one_megabyte_is_taken(tmp_path):
    file = tmp_path / "job"
    file.write_bytes(b"#!/bin/sh\n".ljust(MAX_SCRIPT_BYTES, b"#"))
    assert len(read_script(file)) == MAX_SCRIPT_BYTES


@pytest.mark.parametrize("name", ["missing.sh", "."])
def test_a_script_that_cannot_be_read_is_named(tmp_path, name):
    with pytest.raises(BadParameter, match="cannot be read"):
        read_script(tmp_path / name)


@pytest.fixture
def folder(tmp_path):
    for name in ("job.sh", "ls", "bin/tool"):
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        file.write_text("#!/bin/sh\n")
        file.chmod(file.stat().st_mode | stat.S_IXUSR)
    return tmp_path


@pytest.mark.parametrize("program", ["./job.sh", "job.sh", "bin/tool", "./ls"])
def test_a_file_of_this_machine_is_refused_as_the_command(folder, program):
    with pytest.raises(BadParameter, match=f"--script {program}"):
        refuse_local_file([program, "x"], folder)


@pytest.mark.parametrize("program", ["ls", "/bin/ls", "./missing", "bin", "echo", "", "-x", "\0"])
def test_a_command_that_a_node_may_know_is_let_through(folder, program):
    refuse_local_file([program], folder)


@pytest.mark.parametrize("said", [{}, {"command": ["x"], "source": "#!"}])
def test_a_task_says_exactly_one_thing_to_run(said):
    with pytest.raises(BadParameter):
        require_payload(said)


def test_since_is_a_duration_by_the_servers_clock_or_a_time():
    assert parse_since("--since", "90m") == "90m"
    assert parse_since("--since", "2027-01-31T06:30Z") == NOW
    with pytest.raises(BadParameter):
        parse_since("--since", "yesterday")


def test_filters_say_only_what_was_said():
    assert task_filter(None, None, None) == {}
    assert task_filter(["done,failed", "running"], "n", ["a=b"], "1h", "kim", "here") == {
        "status": ["done", "failed", "running"],
        "name": "n",
        "labels": {"a": "b"},
        "since": "1h",
        "user": "kim",
        "node": "here",
    }


def test_pairs_keep_what_follows_the_first_equals_sign():
    assert parse_pairs("--label", ["a==", "b="]) == {"a": "=", "b": ""}


@pytest.mark.parametrize("flags", [{"unique_while": "live"}, {"on_conflict": "return"}])
def test_how_a_unique_key_is_kept_needs_the_key(flags):
    with pytest.raises(BadParameter, match="it needs --unique-key KEY"):
        fields("true", **flags)


def test_the_flags_of_retries_are_one_field():
    asked = fields(retry_delay="10s", retry_max_delay="5m", no_retry_exit=["3,4", "5"])
    assert asked["retry"] == {"delay": 10, "max_delay": 300, "no_retry_exit_codes": [3, 4, 5]}
    assert "retry" not in fields()
    with pytest.raises(BadParameter, match="an exit code is not a whole number"):
        fields(no_retry_exit=["three"])
