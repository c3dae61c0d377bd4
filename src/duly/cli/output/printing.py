"""What a command prints: a table for people, or one of four forms for programs."""

import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Any

import typer

from duly.cli.text import clean, clean_json


class Output(StrEnum):
    """The forms of an answer."""

    TABLE = "table"
    JSON = "json"
    JSONL = "jsonl"
    CSV = "csv"
    ID = "id"


OutputFlag = Annotated[
    Output, typer.Option("--output", "-o", help="How to print it; json is what the API answered.")
]

TASK_COLUMNS = (
    "id",
    "name",
    "status",
    "outcome",
    "exit_code",
    "attempt",
    "node",
    "submitted_at",
    "started_at",
    "finished_at",
)


def discard_output() -> None:
    """Let whatever is still to be printed vanish, because nobody reads it any more."""
    sink = os.open(os.devnull, os.O_WRONLY)
    os.dup2(sink, sys.stdout.fileno())
    os.close(sink)


def write_bytes(data: bytes) -> None:
    """Pass on what a task wrote, untouched and at once."""
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def print_json(value: Any) -> None:
    """Print `value` as JSON."""
    print(_dump(value, indent=2))


def print_lines(items: Iterable[Any]) -> None:
    """Print one JSON value per line."""
    for item in items:
        print(_dump(item))


def print_ids(items: Iterable[Mapping[str, Any]]) -> None:
    """Print one id per line."""
    for item in items:
        print(clean(str(item["id"])))


def print_csv(items: Iterable[Mapping[str, Any]], columns: Sequence[str]) -> None:
    """Print `columns` of each item with a line of headings; what is nested is JSON."""
    import csv

    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(columns)
    for item in items:
        writer.writerow([_cell(item.get(column)) for column in columns])


def _dump(value: Any, indent: int | None = None) -> str:
    utf_8 = (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
    return clean_json(json.dumps(value, indent=indent, ensure_ascii=not utf_8))


def _cell(value: Any) -> str:
    if value is None:
        return ""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return clean(text) if sys.stdout.isatty() else text


def print_value(
    value: Mapping[str, Any], output: Output, columns: Sequence[str] = TASK_COLUMNS
) -> None:
    """Print one thing in a form for programs."""
    match output:
        case Output.JSONL:
            print_lines([value])
        case Output.CSV:
            print_csv([value], columns)
        case Output.ID:
            print_ids([value])
        case _:
            print_json(value)


def print_items(
    items: Iterable[Mapping[str, Any]],
    next_cursor: str | None,
    output: Output,
    columns: Sequence[str] = TASK_COLUMNS,
) -> None:
    """Print a list in a form for programs; as JSON it has the shape of the API's answer."""
    match output:
        case Output.JSONL:
            print_lines(items)
        case Output.CSV:
            print_csv(items, columns)
        case Output.ID:
            print_ids(items)
        case _:
            print_json({"items": list(items), "next_cursor": next_cursor})
