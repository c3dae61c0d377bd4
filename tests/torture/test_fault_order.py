"""The order of the faults: all of them, the same for the same seed, and in their lanes."""

import itertools

from tests.torture.fault_order import PAUSE, WeightedFault, draw, lanes

CARDS = [
    WeightedFault("leader killed", "control", count=2),
    WeightedFault("PostgreSQL killed", "control"),
    WeightedFault("failover", "control"),
    WeightedFault("node killed", "nodes", is_alone=True),
    WeightedFault("node frozen", "nodes"),
]


def names(lane: str, count: int, seed: int = 7) -> list[str]:
    return [step.card.name for step in itertools.islice(draw(CARDS, lane, seed), count)]


def test_every_deck_holds_every_fault_of_its_lane() -> None:
    for start in (0, 4, 8):
        deck = names("control", 12)[start : start + 4]
        assert sorted(deck) == [
            "PostgreSQL killed",
            "failover",
            "leader killed",
            "leader killed",
        ]
    assert sorted(names("nodes", 2)) == ["node frozen", "node killed"]


def test_the_same_seed_gives_the_same_order_and_another_seed_another() -> None:
    assert names("control", 40) == names("control", 40)
    assert names("control", 40) != names("control", 40, seed=8)


def test_there_is_peace_before_every_fault() -> None:
    low, high = PAUSE
    for step in itertools.islice(draw(CARDS, "nodes", 1), 50):
        assert low <= step.pause <= high


def test_the_lanes_are_those_of_the_cards_and_an_empty_one_is_silent() -> None:
    assert lanes(CARDS) == ["control", "nodes"]
    assert list(draw(CARDS, "elsewhere", 1)) == []


def test_a_plan_may_be_one_deck_long() -> None:
    drawn = [step.card.name for step in draw(CARDS, "nodes", 3, decks=1)]
    assert sorted(drawn) == ["node frozen", "node killed"]
