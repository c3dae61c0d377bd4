"""Figures are compared with their limits and targets, and formatted."""

import pytest

from duly.bench.figure import Figure, at_least, at_most, median, percentile
from duly.bench.figure_table import amount, markdown, row


def figure(value, **more):
    return Figure(part="run", name="it", value=value, unit="/s", **more)


@pytest.mark.parametrize(
    ("value", "limit", "target", "met"),
    [
        (40, 100, at_least(0.4), True),
        (39, 100, at_least(0.4), False),
        (8000, None, at_least(8000), True),
        (7999, None, at_least(8000), False),
        (6.0, None, at_most(6.0), True),
        (6.1, None, at_most(6.0), False),
        (1, 100, None, None),
    ],
)
def test_a_target_is_for_the_ratio_if_there_is_one_and_else_for_the_value(
    value, limit, target, met
):
    assert figure(value, limit=limit, target=target).is_met is met


def test_percentiles_are_values_that_occurred():
    values = [5.0, 1.0, 4.0, 2.0, 3.0]
    assert [percentile(values, share) for share in (0.01, 0.5, 0.8, 0.99, 1.0)] == [1, 3, 4, 5, 5]
    assert median([2.0, 900.0, 1.0]) == 2.0


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (12345.6, "/s", "12,346/s"),
        (12.34, "ms", "12.3 ms"),
        (0.1234, "s", "0.12 s"),
        (2048, "bytes", "2,048 bytes"),
    ],
)
def test_an_amount_has_about_three_significant_digits(value, unit, text):
    assert amount(value, unit) == text


def test_a_row_has_the_limit_the_ratio_the_target_and_whether_it_is_met():
    compared = figure(39, limit=100.0, against="raw", target=at_least(0.4), note="ten")
    assert row(compared) == ("it (ten)", "39.0/s", "100/s raw", "39%", "≥ 40%", "NO")
    assert row(figure(7, target=at_most(8)))[2:] == ("", "", "≤ 8.00/s", "yes")
    assert row(figure(7)) == ("it", "7.00/s", "", "", "", "")


def test_a_markdown_table_has_a_line_for_each_figure():
    header, rule, *lines = markdown([figure(1), figure(2)]).splitlines()
    assert (header.count("|"), rule.count("---"), len(lines)) == (7, 6, 2)
