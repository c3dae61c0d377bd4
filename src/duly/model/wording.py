"""Wording that messages share: counts with the right plural, lists of choices, and sizes.

It imports nothing large, because the command line needs it.
"""

from collections.abc import Iterable

BYTE_UNITS = (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10))


def count_of(number: int, noun: str, plural: str | None = None) -> str:
    """Return a number with its noun: "1 task", "2 tasks"."""
    return f"{number} {noun if number == 1 else plural or f'{noun}s'}"


def cpu_noun(number: float) -> str:
    """Return the noun that goes with a number of CPUs: 0.5 CPU, 1 CPU, 2 CPUs."""
    return "CPU" if number and number <= 1 else "CPUs"


def either(choices: Iterable[str], word: str = "or") -> str:
    """Return choices as a phrase: "daily, weekly or cron"."""
    *others, last = choices
    return f"{', '.join(others)} {word} {last}" if others else last


def format_bytes(size: int) -> str:
    """Return a size in the largest unit of which it is a multiple: "2 MiB", "100 bytes"."""
    for unit, factor in BYTE_UNITS:
        if size and size % factor == 0:
            return f"{size // factor} {unit}"
    return count_of(size, "byte")


def as_sentence(text: str) -> str:
    """Return a text of somebody else's with a full stop, for another sentence to follow."""
    return text if text.endswith((".", "!", "?")) else f"{text}."


def uncapitalised(sentence: str) -> str:
    """Return a sentence for use after a colon; a first word such as SIGKILL or KeyError: stays."""
    first = sentence.partition(" ")[0].rstrip(".,")
    is_plain = first.replace("'", "").isalpha() and first[1:] == first[1:].lower()
    return sentence[:1].lower() + sentence[1:] if is_plain else sentence


def describe_unreadable(error: OSError | UnicodeDecodeError) -> str:
    """Return why a text file cannot be read, for use after a colon."""
    if isinstance(error, UnicodeDecodeError):
        return "it is not UTF-8 text"
    return error.strerror or str(error)
