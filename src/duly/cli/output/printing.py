"""Prints output for programs: JSON, JSON lines, CSV or ids."""

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Any

import typer

from duly.cli.output.text import clean, clean_json


class Output(StrEnum):
    """The output formats."""

    TABLE = "table"
    JSON = "json"
    JSONL = "jsonl"
    CSV = "csv"
    ID = "id"


OutputFlag = Annotated[
    Output, typer.Option("--output", "-o", help="Output format; json is the API's response.")
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
    "tenant",
)


def write_bytes(data: bytes) -> None:
    """Write a task's output to stdout, unmodified and unbuffered."""
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
    """Print `columns` of each item below a header line; nested values are JSON."""
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
    """Print an item in a machine-readable format."""
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
    """Print a list in a machine-readable format; JSON has the shape of the API's response."""
    match output:
        case Output.JSONL:
            print_lines(items)
        case Output.CSV:
            print_csv(items, columns)
        case Output.ID:
            print_ids(items)
        case _:
            print_json({"items": list(items), "next_cursor": next_cursor})
