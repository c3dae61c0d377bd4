"""What a process does not need it does not carry along."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    ("module", "needless"),
    [
        ("duly.launch.up", {"aiohttp", "duly.agent", "duly.dashboard.app", "nicegui"}),
        ("duly.launch.serve", {"aiohttp", "duly.agent", "duly.dashboard", "rich", "typer"}),
        ("duly.launch.agent", {"asyncpg", "starlette", "rich", "typer", "uvicorn"}),
        ("duly.launch.dashboard", {"aiohttp", "starlette", "nicegui", "rich", "typer"}),
    ],
)
def test_a_process_imports_nothing_of_the_others(module: str, needless: set[str]) -> None:
    script = f"import sys, {module}\nprint(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60
    )
    imported = set(done.stdout.split())
    assert module in imported
    assert imported & needless == set()


def test_a_server_carries_no_kinds_of_values_that_it_does_not_use() -> None:
    script = (
        "import sys\nfrom types import SimpleNamespace\nfrom duly.api.app import create_app\n"
        "create_app(SimpleNamespace())\nprint(*sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60
    )
    assert set(done.stdout.split()) & {"attr", "pydantic"} == set()
