"""Faults are drawn in their lanes, completely, and in the same order for the same seed."""

import itertools

from tests.torture.fault_order import PAUSE_SECONDS, WeightedFault, draw, lanes

FAULTS = [
    WeightedFault("leader killed", "control", count=2),
    WeightedFault("PostgreSQL killed", "control"),
    WeightedFault("failover", "control"),
    WeightedFault("node killed", "nodes", is_exclusive=True),
    WeightedFault("node frozen", "nodes"),
]


def names(lane: str, count: int, seed: int = 7) -> list[str]:
    return [step.fault.name for step in itertools.islice(draw(FAULTS, lane, seed), count)]


def test_every_repetition_has_every_fault_of_its_lane() -> None:
    for start in (0, 4, 8):
        drawn = names("control", 12)[start : start + 4]
        assert sorted(drawn) == [
            "PostgreSQL killed",
            "failover",
            "leader killed",
            "leader killed",
        ]
    assert sorted(names("nodes", 2)) == ["node frozen", "node killed"]


def test_the_same_seed_gives_the_same_order_and_another_seed_another() -> None:
    assert names("control", 40) == names("control", 40)
    assert names("control", 40) != names("control", 40, seed=8)


def test_there_is_a_pause_before_every_fault() -> None:
    low, high = PAUSE_SECONDS
    for step in itertools.islice(draw(FAULTS, "nodes", 1), 50):
        assert low <= step.pause <= high


def test_the_lanes_are_those_of_the_faults_and_an_unknown_lane_is_empty() -> None:
    assert lanes(FAULTS) == ["control", "nodes"]
    assert list(draw(FAULTS, "elsewhere", 1)) == []


def test_the_number_of_repetitions_can_be_limited() -> None:
    drawn = [step.fault.name for step in draw(FAULTS, "nodes", 3, repetitions=1)]
    assert sorted(drawn) == ["node frozen", "node killed"]
