import pytest

from duly.errors import Invalid
from duly.model.schedules.cron import parse_cron, position_of_day
from duly.model.schedules.recurrence import ALL_MONTHS, LAST, Calendar, TimesOfDay

MIDNIGHT = TimesOfDay((0,), (0,))


@pytest.mark.parametrize(
    ("expression", "calendar"),
    [
        ("0 0 * * *", Calendar(times=MIDNIGHT)),
        ("@daily", Calendar(times=MIDNIGHT)),
        (" 30  6 * * *\t", Calendar(times=TimesOfDay((6,), (30,)))),
        ("15 30 6 * * *", Calendar(times=TimesOfDay((6,), (30,), (15,)))),
        ("*/20 8-18/5 * * *", Calendar(times=TimesOfDay((8, 13, 18), (0, 20, 40)))),
        ("50/4 0 * * *", Calendar(times=TimesOfDay((0,), (50, 54, 58)))),
        ("0 0 * JAN,mar-May *", Calendar(times=MIDNIGHT, months=(1, 3, 4, 5))),
        ("0 0 L * *", Calendar(times=MIDNIGHT, days=(), last_day=True)),
        ("0 0 1,L * *", Calendar(times=MIDNIGHT, days=(1,), last_day=True)),
        ("0 0 * * sun", Calendar(times=MIDNIGHT, weekdays=(6,))),
        ("0 0 * * 0,7", Calendar(times=MIDNIGHT, weekdays=(6,))),
        ("0 0 * * fri-sun", Calendar(times=MIDNIGHT, weekdays=(4, 5, 6))),
        ("0 0 * * sun-sun", Calendar(times=MIDNIGHT, weekdays=(6,))),
        ("0 0 * * 0-0,2", Calendar(times=MIDNIGHT, weekdays=(1, 6))),
        ("0 0 * * 0-7", Calendar(times=MIDNIGHT, weekdays=tuple(range(7)))),
        ("0 0 * * 1#2", Calendar(times=MIDNIGHT, weekdays=(), nth_weekdays=((0, 2),))),
        ("0 0 * * friL,mon", Calendar(times=MIDNIGHT, weekdays=(0,), nth_weekdays=((4, LAST),))),
        ("0 0 13 * 5", Calendar(times=MIDNIGHT, days=(13,), weekdays=(4,), matches_either=True)),
        ("0 0 */2 * 5", Calendar(times=MIDNIGHT, days=tuple(range(1, 32, 2)), weekdays=(4,))),
        ("@yearly", Calendar(times=MIDNIGHT, months=(1,), days=(1,))),
    ],
)
def test_an_expression_is_expanded_into_numbers(expression, calendar):
    assert parse_cron(expression) == calendar


def test_a_step_over_all_days_of_the_week_does_not_count_sunday_twice():
    assert parse_cron("0 0 * * */7").weekdays == (6,)
    assert parse_cron("* * * */5 *").months == (1, 6, 11)
    assert parse_cron("* * * * *").months == ALL_MONTHS


@pytest.mark.parametrize(
    ("expression", "position"),
    [
        ("", 0),
        ("0 0 * *", 7),
        ("0 0 * * * * 2027", 12),
        ("61 * * * *", 0),
        ("0 24 * * *", 2),
        ("0  0  32 * *", 6),
        ("0 0 * foo *", 6),
        ("0 0 0 * *", 4),
        ("a b c d e", 0),
        ("0 0 LW * *", 4),
        ("0 0 1 1 * 2027", 10),
        ("0 0 * * 8", 8),
        ("*/0 * * * *", 2),
        ("*/x * * * *", 2),
        ("*/2/3 * * * *", 4),
        ("1,5-1 * * * *", 2),
        ("0 0 1-2-3 * *", 8),
        ("0,,1 * * * *", 2),
        ("0 0 * * fri#6", 12),
        ("0 0 * * fri#", 12),
        ("0 0 * * 9L", 8),
        ("0 0 * * L", 8),
        ("-1 * * * *", 0),
        ("² * * * *", 0),
        ("@reboot", 0),
        ("  @reboot", 2),
        ("0" * 501, 0),
    ],
)
def test_a_mistake_is_told_with_its_position(expression, position):
    with pytest.raises(Invalid) as refused:
        parse_cron(expression)
    assert refused.value.details == {"field": "cron", "position": position}


def test_of_six_fields_it_is_said_what_the_first_one_is():
    with pytest.raises(Invalid, match="Of 6 fields, the first is the seconds"):
        parse_cron("0 0 31 2 * *")


def test_where_the_day_stands_is_known():
    assert position_of_day("0 0 31 2 *") == 4
    assert position_of_day("30 0  0 31 2 *") == 8
    assert position_of_day("@daily") == 0
