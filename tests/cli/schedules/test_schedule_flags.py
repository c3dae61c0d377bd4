"""What the flags of `duly schedule` become, and what is refused before a server is asked."""

from datetime import UTC, datetime, timedelta

import pytest
from typer import BadParameter

from duly.cli.schedules.schedule_flags import (
    ScheduleFlags,
    marking_cron_errors,
    parse_future,
    require_when,
    schedule_fields,
)
from duly.cli.schedules.schedules import merge_task_fields
from duly.errors import Invalid

NOW = datetime(2027, 1, 31, 6, 30, tzinfo=UTC)


def test_flags_of_the_schedule_and_of_its_task_are_told_apart():
    flags = ScheduleFlags(
        name="night",
        every="PT3H",
        start="2027-01-01T00:00Z",
        end="none",
        jitter="10m",
        misfire="all",
        tier="basic",
    )
    said, task = schedule_fields(flags, ["true"], now=NOW)
    assert task == {"name": "night", "command": ["true"], "tier": "basic"}
    assert said == {
        "name": "night",
        "every": 10800,
        "start_at": datetime(2027, 1, 1, tzinfo=UTC),
        "end_at": None,
        "jitter": 600,
        "misfire": "all",
    }


def test_a_time_in_the_flags_of_a_task_is_the_one_fire_time():
    said, task = schedule_fields(ScheduleFlags(run_in="10m"), ["true"], now=NOW)
    assert (said, task) == ({"run_at": NOW + timedelta(minutes=10)}, {"command": ["true"]})


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (ScheduleFlags(), "The schedule needs a recurrence"),
        (ScheduleFlags(timezone="Europe/Berlin"), "The schedule needs a recurrence"),
        (ScheduleFlags(daily="6:30", every="1h"), "Give only one of --daily and --every"),
        (ScheduleFlags(daily="6:30", run_in="1h"), "Give only one of --daily and --in"),
        (
            ScheduleFlags(cron="* * * * *", run_at="2027-02-01"),
            "Give only one of --cron and --run-at",
        ),
        (ScheduleFlags(every="soon"), "not a duration"),
        (ScheduleFlags(daily="6:30", jitter="some"), "not a duration"),
        (ScheduleFlags(daily="6:30", start="soon"), "--start: 'soon' is not a time"),
        (ScheduleFlags(daily="6:30", end=""), "--end: '' is not a time"),
    ],
)
def test_what_cannot_be_meant_is_refused(flags, words):
    with pytest.raises(BadParameter) as caught:
        require_when(schedule_fields(flags, [], now=NOW)[0])
    assert words in caught.value.format_message()


def test_a_time_ahead_is_a_time_or_a_duration():
    assert parse_future("--due-before", "1h", NOW) == NOW + timedelta(hours=1)
    assert parse_future("--due-before", "2027-02-01T00:00Z", NOW) == datetime(
        2027, 2, 1, tzinfo=UTC
    )


@pytest.mark.parametrize(
    ("expression", "position", "shown"),
    [
        ("0 6 * * munday", 8, "cron: no.\n  0 6 * * munday\n          ^"),
        ("\x1b日 x", 3, "cron: no.\n  \ufffd日 x\n      ^"),
        ("* *", 3, "cron: no.\n  * *\n     ^"),
        ("* *", 4, "cron: no."),
        (None, 0, "cron: no."),
    ],
)
def test_a_mistake_is_shown_where_it_is(expression, position, shown):
    with pytest.raises(Invalid) as caught, marking_cron_errors(expression):
        raise Invalid("cron", "no.", position=position)
    assert caught.value.message == shown


def test_another_thing_to_run_takes_the_place_of_the_old_one():
    old = {"source": "#!/bin/sh\n", "tier": "basic", "env": {"A": "1"}}
    assert merge_task_fields(old, {"command": ["true"]}) == {
        "command": ["true"],
        "tier": "basic",
        "env": {"A": "1"},
    }
    assert merge_task_fields(old, {"tier": "regular"}) == {**old, "tier": "regular"}
