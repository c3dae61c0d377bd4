"""Figures are the same after JSON, and summarise measurements by median and percentile."""

import json
from dataclasses import replace

import pytest

from benchmarks.peers.figures import Figures, Round, Row, merge
from benchmarks.peers.system import Broker


def figures(*latencies, rounds=((500, 1000),)):
    return Figures(tuple(Round(*fields) for fields in rounds), latencies or (1.0,), checked=1)


def row(system="celery", broker=Broker.REDIS, **fields):
    return Row(system, broker, "abc", "2026-01-02T03:04:05+00:00", **fields)


def test_the_median_round_counts_and_each_is_compared_with_its_own_limit():
    measured = figures(rounds=((100, 1000), (900, 3000), (500, 1000)))
    assert measured.share == pytest.approx(0.3)
    assert (measured.rate, measured.limit) == (500, 1000)


@pytest.mark.parametrize(
    ("share", "expected"), [(0.5, 50.0), (0.99, 99.0), (0.991, 100.0), (1.0, 100.0), (0.0, 1.0)]
)
def test_a_percentile_is_a_latency_that_was_measured(share, expected):
    backwards = tuple(float(number) for number in range(100, 0, -1))
    assert figures(*backwards).percentile(share) == expected


@pytest.mark.parametrize(
    "original",
    [
        row(figures=figures(1.5, 2.5), versions=("celery 5", "Redis 7")),
        row(figures=replace(figures(1.5), functions=(2.0, 4.0, 9.0), function_latencies=(1.0,))),
        row(left_out="pip is missing"),
        row(left_out="it crashed", is_failure=True),
    ],
)
def test_a_row_is_the_same_after_json(original):
    assert Row.from_json(json.loads(json.dumps(original.as_json()))) == original


def test_a_new_row_takes_the_place_of_the_old_one_with_the_same_broker():
    always, other = row(broker=Broker.REDIS_ALWAYS), row("huey")
    old, new = row(versions=("old",)), row(versions=("new",))
    assert merge([old, always, other], [new]) == [new, always, other]
