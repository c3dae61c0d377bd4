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
        raise Invalid(field, f"{field} must be from 0 to 1.")
    if text is not None and len(text) > MAX_TEXT_CHARS:
        raise Invalid(
            "text", f"text may have at most {MAX_TEXT_CHARS} characters, not {len(text)}."
        )
    if text is not None and "\0" in text:
        raise Invalid("text", "text contains a NUL character; take it out.")
    return Progress(fraction, text)
