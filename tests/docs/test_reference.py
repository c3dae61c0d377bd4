"""What exists is documented, and what is documented exists."""

import ast
import inspect
import re
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import get_type_hints

import msgspec
import pytest

from duly import config, errors, telemetry
from duly.api.app import create_app
from duly.config import Settings
from duly.duration import parse_duration
from duly.model.drift import DriftKind
from duly.model.task import Outcome, Status

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "docs" / "reference"
SOURCES = sorted((ROOT / "src" / "duly").rglob("*.py"))


def page(name):
    return (REFERENCE / name).read_text()


def rows(text):
    """Yield the cells of every row of every table."""
    for line in text.splitlines():
        if line.startswith("| `"):
            yield [cell.strip().strip("`") for cell in line.strip("|").split("|")]


def settings():
    return [
        (section, name, default)
        for section, kind in get_type_hints(Settings).items()
        for name, default in zip(kind.__struct_fields__, kind.__struct_defaults__, strict=True)
    ]


def test_every_setting_is_documented_with_its_default():
    documented = {}
    for part in page("settings.md").split("\n## ")[1:]:
        section = part.split("`")[1] if part.startswith("`") else ""
        documented |= {(section, cells[0]): cells[1] for cells in rows(part)}
    for section, name, default in settings():
        example = documented.pop((section, name))
        if isinstance(default, timedelta):
            value = parse_duration(example, name)
        else:
            value = msgspec.convert(example, type(default), strict=False)
        assert value == default, f"{section}.{name}"
    assert {section for section, _ in documented} == {""}, "these settings do not exist"


def another(default):
    """Return a value that is not the default, as it is written and as it is read."""
    if isinstance(default, timedelta):
        # Little more, for some have to stay within others.
        value = default + timedelta(milliseconds=250)
        return f"{value / timedelta(milliseconds=1):.0f}ms", value
    if isinstance(default, bool):
        return str(not default).lower(), not default
    if isinstance(default, int):
        return str(default + 1), default + 1
    return "another", "another"


def with_one_changed(section, name, value):
    changed = msgspec.structs.replace(getattr(Settings(), section), **{name: value})
    return msgspec.structs.replace(Settings(), **{section: changed})


@pytest.mark.parametrize(("section", "name", "default"), settings())
def test_every_setting_can_be_set_from_the_environment_as_the_page_says(section, name, default):
    text, value = another(default)
    variable = f"DULY_{section}__{name}".upper()
    assert config.load(None, {variable: text}) == with_one_changed(section, name, value)


@pytest.mark.parametrize(("section", "name", "default"), settings())
def test_every_setting_can_be_set_in_a_file_as_the_page_says(tmp_path, section, name, default):
    text, value = another(default)
    file = tmp_path / "duly.toml"
    file.write_text(f"[{section}]\n{name} = {text if isinstance(value, int) else repr(text)}\n")
    assert config.load(file, {}) == with_one_changed(section, name, value)


def test_every_error_code_is_documented_with_its_class():
    documented = {
        cells[0]: cell
        for cells in rows(page("errors.md").partition("## Of the API alone")[0])
        for cell in (each.strip("`") for each in cells[1:3])
        if cell.isalpha()
    }
    kinds = [
        kind
        for _, kind in inspect.getmembers(errors, inspect.isclass)
        if issubclass(kind, errors.DulyError)
    ]
    assert documented == {kind.code: kind.__name__ for kind in kinds}


def test_every_metric_is_documented():
    documented = {cells[0].removesuffix("_total") for cells in rows(page("metrics.md"))}
    counted_on_demand = {
        "duly_tasks_live",
        "duly_tasks_waiting",
        "duly_oldest_wait_seconds",
        "duly_nodes",
        "duly_capacity",
        "duly_allocated",
        "duly_utilisation_ratio",
        "duly_drift",
        "duly_audit_completed_timestamp_seconds",
    }
    assert (
        documented == {metric.name for metric in telemetry.REGISTRY.collect()} | counted_on_demand
    )


def test_every_kind_of_drift_is_documented():
    text = (ROOT / "docs" / "how-to" / "when-the-audit-reports-drift.md").read_text()
    assert sorted(cells[0] for cells in rows(text)) == sorted(DriftKind)


def test_every_status_and_outcome_is_documented():
    text = page("tasks.md")
    assert [name for name in [*Status, *Outcome] if f"`{name}`" not in text] == []


def reason_codes():
    """Return every code that is written where a Reason is made."""
    codes = set()
    for source in SOURCES:
        for node in ast.walk(ast.parse(source.read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Reason":
                code = node.args[0] if node.args else None
                if isinstance(code, ast.Constant):
                    codes.add(code.value)
    return codes


def test_every_reason_code_is_documented():
    text = page("tasks.md") + page("schedules.md")
    assert [code for code in sorted(reason_codes()) if f"`{code}`" not in text] == []


def task_variables():
    """Return the variables that the agent gives to a task."""
    variables = set()
    for source in SOURCES:
        if "agent" in source.parts:
            variables |= set(re.findall(r'"(DULY_[A-Z_]+)"', source.read_text()))
    return variables


def test_every_variable_that_a_task_sees_is_documented():
    text = page("tasks.md")
    assert [name for name in sorted(task_variables()) if f"`{name}`" not in text] == []


def test_the_page_of_the_command_line_is_what_the_help_texts_say():
    command = [sys.executable, ROOT / "scripts" / "reference.py", "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def routes():
    """Return every route of the API as METHOD /path; jobs are another name for tasks."""
    return {
        f"{route.operation.method} {path}"
        for path, route in create_app(None).routes
        if not path.startswith("/v1/jobs")
    }


def test_every_route_is_documented():
    documented = set(re.findall(r"`((?:GET|HEAD|POST|PUT|PATCH|DELETE) /[^`]*)`", page("rest.md")))
    assert documented == routes()
