"""The progress that an attempt reports: shown to people, and no decision depends on it."""

import msgspec

from duly.errors import Invalid

MAX_TEXT_CHARS = 500
"""Length of the text in characters: one line on a page."""


class Progress(msgspec.Struct, frozen=True):
    """A fraction from 0 to 1, and the task's own description of its progress."""

    fraction: float
    text: str | None = None


def check_progress(fraction: float, text: str | None, *, field: str = "fraction") -> Progress:
    """Return the progress; raises Invalid if it cannot be shown. `field` names the fraction."""
    # The comparison also refuses NaN.
    if not 0 <= fraction <= 1:
        raise Invalid(field, "it must be a number from 0 to 1.")
    if text is not None and len(text) > MAX_TEXT_CHARS:
        raise Invalid(
            "text", f"it has {len(text)} characters; at most {MAX_TEXT_CHARS} are allowed."
        )
    if text is not None and "\0" in text:
        raise Invalid("text", "it contains a NUL character. Remove it.")
    return Progress(fraction, text)
