"""What a user reads of an error."""

import sys

import pytest

from duly.cli.connect import describe_error
from duly.errors import Forbidden, Invalid, NotFound, Unauthenticated, Unreachable


@pytest.fixture(autouse=True)
def command_line(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["duly", "submit", "--after", "7", "--cap", "9h", "--", "x"])


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (
            Invalid("execution_cap", "9 h is more than the 1 h that the plan 'free' allows."),
            "--cap: 9 h is more than the 1 h that the plan 'free' allows.",
        ),
        (
            Invalid("depends_on", "there is no task '7'.", kind="task"),
            "--after: there is no task '7'. Give a task ID from 'duly list'.",
        ),
        (Invalid("ref", "no."), "ref: no."),
        (Invalid("", "No."), "No."),
        (
            NotFound("There is no schedule 'x'.", kind="schedule"),
            "There is no schedule 'x'. Give a schedule's ID or name from 'duly schedule list'.",
        ),
        (
            NotFound("There is no user 'x'. If it is another tenant's, say so.", kind="user"),
            "There is no user 'x'. If it is another tenant's, say so.",
        ),
        (NotFound("There is nothing."), "There is nothing."),
        (
            Unreachable("Duly cannot be reached at http://a: the connection was refused."),
            "Duly cannot be reached at http://a: the connection was refused. Is it running? "
            "Start it here with 'duly up', or set DULY_URL to a server.",
        ),
        (
            Unauthenticated("The key is not valid."),
            "The key is not valid. Set DULY_KEY to a valid key; 'duly up' keeps one in admin.key "
            "in its data folder.",
        ),
        (Forbidden("No."), "No."),
    ],
)
def test_an_error_names_the_flag_that_was_given_and_what_to_do_next(error, line):
    assert describe_error(error) == line
