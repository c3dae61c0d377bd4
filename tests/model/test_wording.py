"""Words that messages share."""

import pytest

from duly.errors import Invalid
from duly.model.wording import (
    as_sentence,
    count_of,
    describe_unreadable,
    either,
    format_bytes,
    uncapitalised,
)


def test_a_count_has_the_plural_of_its_noun():
    assert [count_of(number, "task") for number in (0, 1, 2)] == ["0 tasks", "1 task", "2 tasks"]
    assert count_of(2, "copy", "copies") == "2 copies"


def test_choices_are_a_phrase():
    assert either(["a"]) == "a"
    assert either(["a", "b"]) == "a or b"
    assert either(iter(["a", "b", "c"]), "and") == "a, b and c"


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 bytes"),
        (1, "1 byte"),
        (1000, "1000 bytes"),
        (256 * 1024, "256 KiB"),
        (2 * 2**20, "2 MiB"),
        (2**30 + 2**20, "1025 MiB"),
    ],
)
def test_a_size_is_told_exactly_in_its_largest_unit(size, text):
    assert format_bytes(size) == text


def test_a_sentence_after_a_colon_begins_small_unless_it_begins_with_an_acronym():
    assert uncapitalised("Exited with code 1.") == "exited with code 1."
    assert uncapitalised("SIGKILL ended it.") == "SIGKILL ended it."
    assert uncapitalised("ValueError: bad 3") == "ValueError: bad 3"
    assert uncapitalised("Timeout: of 3 s") == "Timeout: of 3 s"
    assert uncapitalised("It's over.") == "it's over."
    assert uncapitalised("Lost.") == "lost."
    assert uncapitalised("'x' was not found.") == "'x' was not found."
    assert uncapitalised("") == ""


def test_why_a_file_cannot_be_read_is_told_without_its_name():
    assert describe_unreadable(FileNotFoundError(2, "No such file or directory", "x")) == (
        "No such file or directory"
    )
    assert describe_unreadable(UnicodeDecodeError("utf-8", b"\xff", 0, 1, "x")) == (
        "it is not UTF-8 text"
    )


def test_an_invalid_field_is_named_first_and_keeps_its_details_within_another():
    error = Invalid("cron", "it has 2 fields.", position=3)
    assert (error.message, error.problem) == ("cron: it has 2 fields.", "it has 2 fields.")
    inner = error.within("schedule")
    assert (inner.field, inner.message) == ("schedule.cron", "schedule.cron: it has 2 fields.")
    assert inner.details == {"field": "schedule.cron", "position": 3}
    assert Invalid("", "No.").within("task").message == "task: No."


def test_a_text_that_another_sentence_follows_ends_with_a_full_stop():
    assert as_sentence("ValueError: bad 3") == "ValueError: bad 3."
    assert as_sentence("It ended.") == "It ended."
