"""Statements name their parameters, and every module runs those of its own file."""

import ast
import re
from pathlib import Path

import pytest

import duly.store
from tests.store.plans import FILES, STATEMENTS

FOLDER = Path(duly.store.__file__).parent


def parameters(text):
    """Return the numbers of the parameters that a statement takes."""
    code = re.sub(r"--.*", "", text)
    return sorted({int(number) for number in re.findall(r"\$(\d+)", code)})


def named(text):
    """Return the parameters that the comment above a statement names, each by its number."""
    lines = re.match(r"(?:--.*\n)*", text)[0].splitlines()
    listed = " ".join(line.removeprefix("--").strip() for line in lines if line.startswith("--   "))
    return [(int(number), name) for number, name in re.findall(r"\$(\d+) (\w+)", listed)]


@pytest.mark.parametrize("name", sorted(STATEMENTS))
def test_a_statement_names_its_parameters_in_order(name):
    numbers = parameters(STATEMENTS[name])
    assert numbers == list(range(1, len(numbers) + 1))
    assert [number for number, _ in named(STATEMENTS[name])] == numbers


def test_a_parameter_without_a_name_is_found():
    text = "-- Say what $2 is.\n--   $1 id, $3\nselect $1, $2 -- $4\n"
    assert parameters(text) == [1, 2]
    assert named(text) == [(1, "id")]


def loaded():
    """Yield every call of `load_statements` in the store: by which module, and of which file."""
    for path in FOLDER.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "load_statements":
                yield path.stem, node.args[0].value


def test_every_module_runs_the_statements_of_its_own_file():
    assert sorted(loaded()) == [(name.removesuffix(".sql"), name) for name in FILES]


def test_no_column_is_read_by_its_number():
    found = [
        f"{path.name}:{node.lineno}"
        for path in sorted(FOLDER.rglob("*.py"))
        if path.stem != "records"
        for node in ast.walk(ast.parse(path.read_text()))
        if by_number(node)
    ]
    assert found == []


def by_number(node):
    """Say whether code takes a record apart by position: `row[0]`, `row[:4]`, or `*row`."""
    if isinstance(node, ast.Starred):
        return getattr(node.value, "id", "") == "row"
    if isinstance(node, ast.Subscript) and getattr(node.value, "id", "") == "row":
        return isinstance(node.slice, ast.Slice | ast.UnaryOp) or isinstance(
            getattr(node.slice, "value", None), int
        )
    return False


@pytest.mark.parametrize("code", ["row[0]", "row[-1]", "row[:4]", "Head(*row)"])
def test_a_column_that_is_read_by_its_number_is_found(code):
    assert any(map(by_number, ast.walk(ast.parse(code))))
