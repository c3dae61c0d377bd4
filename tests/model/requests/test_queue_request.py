"""What may be asked of a queue."""

from datetime import time

import pytest
from msgspec.structs import replace

from duly.errors import Invalid
from duly.model.queues.queue import BUILT_IN_QUEUES, OpeningHours, QueueDefinition
from duly.model.requests.queue_request import QueueRequest, change_queue, queue_from

BULK = QueueDefinition(name="bulk", level=50)
NIGHT = OpeningHours(time(22), time(6))


def ask(**fields):
    return queue_from(QueueRequest(**{"name": "bulk", "level": 50, **fields}))


def test_a_queue_is_as_it_is_asked_for():
    asked = ask(off_peak=True, max_share="30%", hours="22:00-06:00", timezone="Europe/Berlin")
    hours = replace(NIGHT, timezone="Europe/Berlin")
    assert asked == replace(BULK, off_peak=True, max_share=0.3, hours=hours)
    assert ask() == BULK
    assert ask(max_share=0.25).max_share == 0.25
    assert ask(hours="18:00-24:00").hours == OpeningHours(time(18), time(0))


@pytest.mark.parametrize(
    ("fields", "field", "words"),
    [
        ({"name": "Bulk"}, "name", "lower-case letters"),
        ({"level": 0}, "level", "0 is not a number from 1 to 99."),
        ({"level": 100}, "level", "100 is not a number from 1 to 99."),
        ({"max_share": 30}, "max_share", "30 is not a share of the fleet. Write it as 0.3 or 30%"),
        ({"max_share": 0}, "max_share", "is not a share"),
        ({"max_share": "101%"}, "max_share", "is not a share"),
        ({"max_share": "much"}, "max_share", "'much' is not a share"),
        ({"max_share": "nan%"}, "max_share", "is not a share"),
        ({"hours": "22-6"}, "hours", "'22-6' is not a daily window. Write it like 22:00-06:00."),
        ({"hours": "22:00-25:00"}, "hours", "is not a daily window"),
        ({"hours": "09:00-09:00"}, "hours", "it ends when it begins."),
        ({"hours": "22:00-06:00", "timezone": "Mars"}, "timezone", "there is no time zone 'Mars'"),
        ({"timezone": "UTC"}, "timezone", "it has no meaning without hours."),
    ],
)
def test_what_cannot_be_is_refused_by_the_name_of_the_field(fields, field, words):
    with pytest.raises(Invalid) as refusal:
        ask(**fields)
    assert (refusal.value.field, words in refusal.value.problem) == (field, True)


def test_a_change_leaves_the_rest_and_null_removes_a_bound():
    bounded = replace(BULK, max_share=0.3, hours=NIGHT)
    assert change_queue(bounded, {"level": 9}) == replace(bounded, level=9)
    assert change_queue(bounded, {"max_share": None}) == replace(bounded, max_share=None)
    assert change_queue(bounded, {"hours": None}) == replace(bounded, hours=None)
    zoned = change_queue(bounded, {"timezone": "Asia/Tokyo"})
    assert zoned.hours == replace(NIGHT, timezone="Asia/Tokyo")
    assert change_queue(zoned, {"hours": "09:00-17:00"}).hours == OpeningHours(
        time(9), time(17), "Asia/Tokyo"
    )


def test_a_built_in_queue_takes_bounds_and_keeps_its_level():
    urgent = BUILT_IN_QUEUES.by_name["urgent"]
    assert change_queue(urgent, {"max_share": "50%"}).max_share == 0.5
    with pytest.raises(Invalid, match="keeps its level"):
        change_queue(urgent, {"level": 5})
